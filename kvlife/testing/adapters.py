"""The adapters that come with the kit: the engine, and the plain block allocator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from kvlife.config import PoolConfig
from kvlife.engine import KvEngine, Observer
from kvlife.errors import OutOfPages
from kvlife.log import LogWriter
from kvlife.testing.block_allocator import BlockAllocator


class BlockAllocatorAdapter(BlockAllocator):
    """`BlockAllocator`, which has all verbs, made from a pool and with a look at its books."""

    def __init__(self, config: PoolConfig) -> None:
        super().__init__(config.num_pages - 1, config.page_size)

    def table(self, rid: str) -> list[int]:
        """The block table of a request."""
        return self.sequences[rid].table

    def free_pages(self) -> list[int]:
        """The free list; idle blocks are not in it."""
        return self.free_blocks

    def published(self) -> Iterable[tuple[bytes, int]]:
        """What prefixes are looked up by."""
        return self.block_of.items()

    def refs(self) -> Mapping[int, int]:
        """The counts of all blocks."""
        return dict(enumerate(self.num_refs))


class EngineAdapter:
    """`KvEngine`, whose facts are its own; a subclass may make another engine in `_make`.

    It forks nothing, as the engine does not.
    """

    def __init__(self, config: PoolConfig, *, log: LogWriter, clock: Callable[[], int]) -> None:
        self._engine = self._make(config, log, clock)
        self._tokens: dict[str, list[int]] = {}

    def _make(self, config: PoolConfig, log: LogWriter, clock: Callable[[], int]) -> KvEngine:
        return KvEngine(config, log=log, clock=clock, key_seed=1)

    @property
    def observer(self) -> Observer:
        """The engine itself."""
        return self._engine

    def admit(self, rid: str, tokens: list[int]) -> int:
        """Admit or resume; without room for its tokens the request waits for `extend`."""
        engine = self._engine
        back = rid in engine.ledger.waiting
        got = engine.resume(rid, tokens) if back else engine.admit(rid, tokens)
        self._tokens[rid] = list(tokens)
        with suppress(OutOfPages):
            self._allocate(rid, len(tokens))
        return got.prefix_len

    def extend(self, rid: str, tokens: list[int]) -> None:
        """Allocate and commit."""
        self._allocate(rid, len(self._tokens[rid]) + len(tokens))
        self._tokens[rid] += tokens

    def _allocate(self, rid: str, length: int) -> None:
        self._engine.allocate([rid], [length])
        self._engine.commit([rid], [length])

    def publish(self, rid: str) -> None:
        """Protect what is committed."""
        self._engine.protect(rid, self._tokens[rid])

    def roll_back(self, rid: str, length: int) -> None:
        """Roll back."""
        self._engine.roll_back([rid], [length])
        del self._tokens[rid][length:]

    def free(self, rid: str) -> None:
        """Finish, or abort where the prompt is not wholly there."""
        record = self._engine.record(rid)
        if record.kv_committed_len < record.prompt_len:
            self._engine.abort(rid)
        else:
            self._engine.finish(rid, self._tokens[rid])

    def abort(self, rid: str) -> None:
        """Abort."""
        self._engine.abort(rid)

    def preempt(self, rid: str) -> None:
        """Retract."""
        self._engine.retract(rid)

    def back_up(self, rid: str) -> None:
        """Retract, with a backup where the host has room for it."""
        self._engine.retract_with_backup(rid)

    def evict(self, num_pages: int) -> None:
        """Evict."""
        self._engine.evict(num_pages)

    def reset(self) -> None:
        """Flush."""
        self._engine.flush()

    def pin(self, pin_id: str, rid: str) -> None:
        """Pin the request's pages, for a reader."""
        pages = self._engine.ledger.pages_of(self._engine.ledger.requests[rid], 0)
        self._engine.pin(pin_id, pages, "copy")

    def unpin(self, pin_id: str) -> None:
        """Unpin."""
        self._engine.unpin(pin_id)
