"""`ReqKvInfo`, the immutable state of one request's KV, and `ReqKvBatch`, the same for many."""

from __future__ import annotations

from typing import Any, Self

import attrs
import numpy as np
import numpy.typing as npt

from kvlife import transitions

I32 = npt.NDArray[np.int32]


@attrs.frozen(kw_only=True)
class MambaState:
    """The recurrent-state slots of a request; filled once state groups exist."""

    slots: tuple[int, ...]
    tracked_len: int


@attrs.frozen(kw_only=True)
class RetractionBackup:
    """Where a retracted request's KV lies on the host, and how many tokens it covers."""

    host_pages: tuple[int, ...]
    kept_len: int


class _Ladder:
    """The transitions that a record and a batch share; fields are ints or int32 arrays."""

    __slots__ = ()

    def _with(self, **lengths: Any) -> Self:  # Any: fields of the attrs classes below
        return attrs.evolve(self, **lengths)  # type: ignore[misc]  # they are attrs classes

    def allocate(self, allocated_len: object) -> Self:
        """Schedule up to `allocated_len` tokens."""
        return self._with(kv_allocated_len=allocated_len)

    def commit(self, committed_len: object) -> Self:
        """Confirm up to `committed_len` tokens."""
        return self._with(kv_committed_len=committed_len)

    def protect(self, protected_len: object) -> Self:
        """Publish up to `protected_len` tokens."""
        return self._with(cache_protected_len=protected_len)

    def evict_window(self, evicted_len: tuple[object, ...]) -> Self:
        """Move the window cursors, one for each window group."""
        return self._with(swa_evicted_seqlens=evicted_len)

    def roll_back(
        self, committed_len: Any, allocated_len: Any, windows: tuple[tuple[int, int], ...] = ()
    ) -> Self:
        """Cut the tail off; `windows` names (window, page size) of each window group, in tokens."""
        old: Any = self  # Any: the fields stand in the attrs classes below
        return self._with(
            kv_committed_len=committed_len,
            kv_allocated_len=allocated_len,
            settled_len=transitions.lower(old.settled_len, allocated_len),
            swa_evicted_seqlens=tuple(
                transitions.cursor_after_roll_back(cursor, committed_len, window, page_size)
                for cursor, (window, page_size) in zip(
                    old.swa_evicted_seqlens, windows, strict=True
                )
            ),
        )


@attrs.frozen(kw_only=True)
class ReqKvInfo(_Ladder):
    """One request's KV: 0 <= protected <= committed <= allocated <= row capacity, in tokens.

    `swa_evict_floor`: positions [0, floor) are never taken by the window.
    `swa_evicted_seqlens`: the cursor of each window group.
    """

    req_pool_idx: int | None = None
    cache_protected_len: int = 0
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    swa_evict_floor: int = 0
    swa_evicted_seqlens: tuple[int, ...] = ()
    prompt_len: int = 0
    settled_len: int = 0
    mamba: MambaState | None = None
    retraction_backup: RetractionBackup | None = None

    @property
    def swa_evicted_seqlen(self) -> int:
        """The cursor of the window group, the furthest where there are several, 0 without one."""
        return max(self.swa_evicted_seqlens, default=0)

    @property
    def holds_kv(self) -> bool:
        """Whether a row is bound."""
        return self.req_pool_idx is not None

    @property
    def is_released(self) -> bool:
        """Whether nothing is allocated and the cursor is 0."""
        return self.kv_allocated_len == 0 and self.swa_evicted_seqlen == 0

    def swa_dead_lo(self, page_size: int) -> int:
        """The lowest window position that the request may free itself."""
        return transitions.swa_dead_lo(self.cache_protected_len, self.swa_evict_floor, page_size)

    @property
    def effective_kv_committed_len(self) -> int:
        """What `finish` may publish where the reasoning is stripped."""
        return transitions.effective_committed_len(self.kv_committed_len, self.prompt_len)


@attrs.frozen(kw_only=True, eq=False)
class ReqKvBatch(_Ladder):
    """Many requests' KV as a struct of int32 arrays, one entry for each row of `req_pool_idx`."""

    req_pool_idx: I32
    cache_protected_len: I32
    kv_committed_len: I32
    kv_allocated_len: I32
    swa_evict_floor: I32
    swa_evicted_seqlens: tuple[I32, ...]
    prompt_len: I32
    settled_len: I32

    def __len__(self) -> int:
        """How many requests."""
        return len(self.req_pool_idx)

    def one(self, idx: int) -> ReqKvInfo:
        """The record at a position of the batch."""
        return ReqKvInfo(
            req_pool_idx=int(self.req_pool_idx[idx]),
            cache_protected_len=int(self.cache_protected_len[idx]),
            kv_committed_len=int(self.kv_committed_len[idx]),
            kv_allocated_len=int(self.kv_allocated_len[idx]),
            swa_evict_floor=int(self.swa_evict_floor[idx]),
            swa_evicted_seqlens=tuple(int(cursor[idx]) for cursor in self.swa_evicted_seqlens),
            prompt_len=int(self.prompt_len[idx]),
            settled_len=int(self.settled_len[idx]),
        )
