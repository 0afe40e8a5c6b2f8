"""What all commands of the engine stand on: the command frame, rows by request, write pins."""

from __future__ import annotations

import functools
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from threading import get_ident
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from kvlife.config import compile_layout
from kvlife.engine.arguments import as_id, is_name
from kvlife.engine.batch import Batch
from kvlife.engine.observer import Observer, forks
from kvlife.errors import (
    BadArgument,
    CommandRefused,
    DuplicateRequest,
    PinRefused,
    StaleBatch,
    UnknownRequest,
)
from kvlife.events import Event, Unpinned
from kvlife.ledger import MEMBERSHIP_BITS
from kvlife.ledger.entries import touched_entries
from kvlife.prefix import IndexLayout, PageKeys, PrefixIndex, Victims

if TYPE_CHECKING:
    from kvlife.config import PoolConfig
    from kvlife.invariants import Checker
    from kvlife.log import LogWriter
    from kvlife.pools import Pools

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="EngineCore")

# Ids that were aborted before they were admitted are remembered up to this many.
_MAX_ABORTED = 1 << 16


def command(
    method: Callable[Concatenate[Self, P], R],
) -> Callable[Concatenate[Self, P], R]:
    """A command: only from the engine's thread, on an open engine; refusals are counted.

    Any other error, or an interrupt, ends the run where the command had begun to act.
    """

    @functools.wraps(method)
    def framed(self: Self, *args: P.args, **kwargs: P.kwargs) -> R:
        first = self.next_seq
        try:
            # `_enter` says what is wrong; asking here first spares its call.
            if self._closed or get_ident() != self._thread or self._fork != forks[0]:
                self._enter()
            if self._posted or self._copies:
                self._do_posted()
            return method(self, *args, **kwargs)
        except CommandRefused as refusal:
            self._refusals[type(refusal).__name__] += 1
            raise
        except BaseException as error:
            self._break_off(first, error)
            raise

    return framed  # type: ignore[return-value]  # functools.wraps names the first parameter away


class EngineCore(Observer):
    """An observer with a prefix index and the means to decide."""

    def __init__(
        self,
        config: PoolConfig,
        *,
        log: LogWriter | None = None,
        checker: Checker | None = None,
        pools: Pools | None = None,
        policy: str = "lru",
        key_seed: int | None = None,
        clock: Callable[[], int] = time.time_ns,
        group: str = "",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Start a run; `policy` orders evictions, `key_seed` makes page keys repeatable."""
        seed = secrets.randbits(128) if key_seed is None else key_seed
        keys = {
            size: PageKeys(seed, size)
            for size in {group.page_size or config.page_size for group in config.groups}
        }
        groups = compile_layout(config).groups
        index = PrefixIndex(
            IndexLayout(
                page_sizes=[group.page_size for group in groups],
                windows=[group.window for group in groups],
            ),
            policy,
        )
        super().__init__(
            config,
            log=log,
            checker=checker,
            pools=pools,
            clock=clock,
            group=group,
            rank=rank,
            world_size=world_size,
            key_fingerprint=next(iter(keys.values())).fingerprint(),
        )
        self._keys = keys
        self._index = index
        self._capacity = np.array(self.ledger.layout.capacity, np.int32)
        self._free_rows = list(range(self.ledger.layout.num_rows - 1, 0, -1))
        self._namespaces: dict[int, bytes] = {}
        self._most_namespaces = 0
        self._aborted: OrderedDict[str, None] = OrderedDict()
        self._posted: deque[str] = deque()
        # The pins of copies to the host and from it that have not been seen to end, oldest first.
        self._copies: dict[str, None] = {}
        # Ranks that write the same events must not go by how long each one's device takes.
        self._waits_for_copies = world_size > 1
        self._refusals: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._newest_step: int | None = None
        self._slots_kept: tuple[I32, I32] | None = None
        self._evictable_at: tuple[int, int, int] | None = None

    @property
    def index(self) -> PrefixIndex:
        """The prefix index; reading it is fine, changing it is not."""
        return self._index

    @command
    def mark(self, text: str, *, idle: bool = False) -> None:
        """Write a note, after the unpins that were posted; see `Observer.mark`."""
        super().mark(text, idle=idle)

    def close(self) -> None:
        """End the run, after the unpins that were posted and all copies; see `Observer.close`."""
        if not self._closed:
            self._enter()
            self._finish_copies()
            self._do_posted()
        super().close()

    def _do_posted(self) -> None:
        """End the pins that other threads have posted, and those of copies that are complete.

        A posted one that is gone already, or that the engine ends itself, is counted as refused.
        """
        self._end_copies()
        while self._posted:
            pin_id = self._posted.popleft()
            pin = self.ledger.pins.get(pin_id) if is_name(pin_id) else None
            if pin is None or pin_id in self._copies:
                self._refusals["PinRefused"] += 1
            else:
                self._decide([Unpinned(pin_id, pin.group, pin.pages)])

    def _end_copies(self) -> None:
        """End the pins of the copies that are complete; copies end in the order they began in."""
        pools = self._pools
        try:
            done = [*takewhile(lambda pin: pools is None or pools.copy_done(pin), self._copies)]
        except Exception as error:
            self._fail_pools(error)
            raise
        self._unpin_copies(done)

    def _finish_copies(self) -> None:
        """Wait until all copies are complete, and end their pins."""
        if self._copies and self._pools is not None:
            try:
                self._pools.finish_copies()
            except Exception as error:
                self._fail_pools(error)
                raise
        self._unpin_copies(list(self._copies))

    def _unpin_copies(self, pin_ids: Sequence[str]) -> None:
        pins = self.ledger.pins
        if pin_ids:
            self._decide([Unpinned(pin, pins[pin].group, pins[pin].pages) for pin in pin_ids])
            for pin_id in pin_ids:
                del self._copies[pin_id]

    def _decide(self, events: Sequence[Event], *victims: Victims) -> None:
        """Record the events of one command, then follow them in the prefix index."""
        self._record(events)
        self._follow(victims)

    def _follow(self, victims: Sequence[Victims]) -> None:
        """Take what was evicted out of the prefix index."""
        if victims:
            self._index.remove(*victims)
            self._counts["evicted_pages"] += sum(sum(v.num_found) for v in victims)

    def _check_unused(self, rid: str) -> str:
        """A request id that no live request has, and none that was aborted too early to have it."""
        rid = as_id("a request id", rid)
        if rid in self.ledger.requests:
            raise DuplicateRequest(f"request {rid!r} is live already: choose another id")
        if rid in self._aborted:
            raise DuplicateRequest(
                f"request {rid!r} was aborted before its turn: choose another id"
            )
        return rid

    def _check_new(self, rid: str) -> str:
        """As `_check_unused`, for an id that no retracted request has either."""
        rid = self._check_unused(rid)
        if rid in self.ledger.waiting:
            raise DuplicateRequest(f"request {rid!r} is retracted and waits: resume it")
        return rid

    def _row(self, rid: str) -> int:
        row = self.ledger.requests.get(rid) if is_name(rid) else None
        if row is None:
            raise UnknownRequest(self._why_unknown(rid))
        return row

    def _why_unknown(self, rid: object) -> str:
        if not isinstance(rid, str):
            return f"a request id is a str, got {rid!r}"
        if rid in self.ledger.waiting:
            return f"request {rid!r} is retracted and waits: resume it first"
        if rid in self._aborted:
            return f"request {rid!r} was aborted before it was admitted"
        return f"no live request {rid!r}: admit it first"

    def _rows(self, which: Batch | Sequence[str]) -> I32:
        """The rows of a batch or of request ids, checked; one read-only array a batch."""
        if type(which) is Batch:
            if which.membership != self.ledger.membership:
                self._check_fresh(which)
            return which.rows
        return self._rows_of_ids(which)  # type: ignore[arg-type]  # narrowed by the type above

    def _check_fresh(self, batch: Batch) -> None:
        rows = self.ledger.rows
        if batch.membership >> MEMBERSHIP_BITS != self.ledger.membership >> MEMBERSHIP_BITS:
            raise StaleBatch("the batch is another engine's: make one here")
        now = rows.generation.take(batch.index)
        if now.tobytes() != batch.generations:
            made = np.frombuffer(batch.generations, np.uint32)
            stale = [batch.rids[idx] for idx in np.flatnonzero(now != made)[:5].tolist()]
            raise StaleBatch(
                f"rows of {', '.join(map(repr, stale))} have changed hands since the batch was"
                " made: make a new one from the requests that still run"
            )
        batch.membership = self.ledger.membership

    def _rows_of_ids(self, rids: Sequence[str]) -> I32:
        if isinstance(rids, (str, bytes)) or not isinstance(rids, Sequence):
            raise BadArgument(f"wanted a batch or a list of request ids, got {rids!r}")
        if not rids:
            raise BadArgument("an empty batch was asked for: name at least one request")
        rows = np.array([self._row(rid) for rid in rids], np.int32)
        if len(set(rids)) != len(rids):
            twice = next(rid for rid in rids if list(rids).count(rid) > 1)
            raise BadArgument(f"request {twice!r} is named twice in one command")
        rows.setflags(write=False)
        return rows

    def _rid_at(self, rows: I32, wrong: npt.NDArray[np.bool_]) -> tuple[int, str]:
        idx = int(np.flatnonzero(wrong)[0])
        return idx, str(self.ledger.rows.rid[int(rows[idx])])

    def _locked(self, group: int, pages: I32) -> npt.NDArray[np.bool_]:
        space = self.ledger.spaces[self.ledger.layout.groups[group].space_idx]
        return (space.refs.take(pages) | space.pins.take(pages)) > 0

    def _refuse_writing(self, index: Index, low_len: I32, high_len: I32, what: str) -> None:
        """Refuse where a pin writes a page that positions [low, high) of these rows lie on."""
        ledger = self.ledger
        if not any(pin.writes for pin in ledger.pins.values()):
            return
        for group in ledger.layout.groups:
            at = touched_entries(group, index, low_len, high_len)
            self._refuse_written(group.idx, ledger.tables[group.idx][at], what)

    def _refuse_written(self, group: int, pages: I32, what: str) -> None:
        """Pages under a write pin are not committed, published or dispatched.

        What a backup is being restored to is waited for.
        """
        for pin_id, pin in self.ledger.pins.items():
            if pin.writes and pin.group == group:
                hit = np.intersect1d(pin.pages, pages)
                if hit.size and pin_id in self._copies:
                    self._finish_copies()
                    self._refuse_written(group, pages, what)
                    return
                if hit.size:
                    raise PinRefused(
                        f"page {hit[0]} is being written under pin {pin_id!r}, so it cannot be"
                        f" {what}: unpin it first"
                    )

    def _remember_aborted(self, rid: str) -> None:
        self._aborted[rid] = None
        if len(self._aborted) > _MAX_ABORTED:
            self._aborted.popitem(last=False)
