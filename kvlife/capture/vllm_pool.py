"""vLLM's block pool as the ledger has it: counts, hashes and what is free, in vLLM's own terms.

A block is a page of the one page space; the null block is its reserved page 0. A block that vLLM
calls free is FREE where it has no hash, and CACHED without refs where it has one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kvlife.capture.contradictions import Contradictions
from kvlife.engine import Observer
from kvlife.events import Event
from kvlife.ledger import PageState

NULL_BLOCK = 0


class BlockPool:
    """The ledger of an observer, read as a pool of blocks; `tell` is the way to change it."""

    def __init__(self, observer: Observer, found: Contradictions) -> None:
        """The pool of an observer that has one page space."""
        (self._space,) = observer.ledger.spaces
        self._observer = observer
        self._found = found
        self._num_evictable = 0

    @property
    def num_free(self) -> int:
        """Blocks that could be handed out: FREE ones and those with a hash and no refs."""
        return self._space.free.num_free + self._num_evictable

    def tell(self, event: Event, blocks: Sequence[int] = ()) -> None:
        """Report a fact; `blocks` are those whose refs it changes, or whose hash it drops."""
        before = self._evictable_among(blocks)
        self._observer.observe(event)
        self._num_evictable += self._evictable_among(blocks) - before

    def _evictable_among(self, blocks: Sequence[int]) -> int:
        if not blocks:
            return 0
        at = np.unique(np.array(blocks))
        return int(np.count_nonzero(self._evictable(at)))

    def _evictable(self, at: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.bool_]:
        space = self._space
        unused: npt.NDArray[np.bool_] = space.refs[at] == 0
        unused &= space.state[at] == PageState.CACHED
        return unused

    def known(self, blocks: Sequence[int]) -> list[int]:
        """The blocks but the null block; raises `Stopped` for one that the pool does not have."""
        if blocks and max(blocks) >= self._space.num_pages:
            raise self._found.refuse(
                f"block {max(blocks)} is named, and the pool has {self._space.num_pages} blocks"
            )
        return [block for block in blocks if block != NULL_BLOCK]

    def refs(self, blocks: Sequence[int]) -> list[int]:
        """The counts of blocks."""
        counts: list[int] = self._space.refs[list(blocks)].tolist()
        return counts

    def hashes(self, blocks: Sequence[int]) -> list[str | None]:
        """The hashes of blocks, None for one without."""
        keys = self._space.key[list(blocks)].tolist()
        return [f"{key:016x}" if key else None for key in keys]

    def group(self, block: int) -> int:
        """The group that a block in use belongs to."""
        return int(self._space.group[block])

    def same_counts(self, blocks: Sequence[int], said: Sequence[int]) -> None:
        """Hold a line's counts of its blocks against the ledger's; the null block has none."""
        kept = _without_null(blocks, said)
        self._found.same("refs", kept, self.refs(self.known(blocks)))

    def same_hashes(self, blocks: Sequence[int], said: Sequence[str | None]) -> None:
        """Hold a line's hashes of its blocks against the ledger's."""
        kept = _without_null(blocks, said)
        self._found.same("hashes", kept, self.hashes(self.known(blocks)))

    def cached(self) -> dict[int, tuple[str, int]]:
        """Every block that has a hash: the hash and the group."""
        space = self._space
        blocks = np.flatnonzero(space.state == PageState.CACHED).tolist()
        keys, groups = space.key[blocks].tolist(), space.group[blocks].tolist()
        return {
            block: (f"{key:016x}", group)
            for block, key, group in zip(blocks, keys, groups, strict=True)
        }

    def counted(self) -> dict[int, int]:
        """Every block with a count above 0, and the count."""
        blocks = np.flatnonzero(self._space.refs)
        return dict(zip(blocks.tolist(), self._space.refs[blocks].tolist(), strict=True))

    def free_blocks(self) -> set[int]:
        """The blocks that could be handed out, counted anew."""
        evictable = self._evictable(slice(None))
        self._num_evictable = int(np.count_nonzero(evictable))
        return set(np.flatnonzero(evictable | (self._space.state == PageState.FREE)).tolist())


def _without_null(blocks: Sequence[int], said: Sequence[object]) -> list[object]:
    if len(said) != len(blocks):
        return list(said)
    return [value for block, value in zip(blocks, said, strict=True) if block != NULL_BLOCK]
