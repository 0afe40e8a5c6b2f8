"""Decode steps on the device: one token for each row of a batch, in one launch for all groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.kernels.decode_step import DecodeStep
from kvlife.ledger.spans import num_at
from kvlife.pools.graphs import Capture, GraphedLaunch

if TYPE_CHECKING:
    from kvlife.ledger import Change
    from kvlife.pools.device_state import DeviceState
    from kvlife.pools.uploading import Uploads

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]

# The smallest batch that a graph is made for; larger ones are padded to a power of two.
_SMALLEST_GRAPH = 8


class DecodeSteps:
    """Runs decode steps, from graphs where `capture` can make them; keeps the slots of the last.

    A graph serves all batches of its size. The slots of a step are a tensor of their own, so that
    a later step does not change them.
    """

    def __init__(self, state: DeviceState, uploads: Uploads, capture: Capture | None) -> None:
        """Make no buffers yet."""
        self._state = state
        self._uploads = uploads
        self._capture = capture
        self._step = _step_of(state)
        self._padded: dict[int, _PaddedStep] = {}
        self._batch: _Batch | None = None
        self._last: tuple[Index, Tensor] | None = None

    def forget(self) -> None:
        """Drop the last slots, and every graph: the state's tensors are others now."""
        self._step = _step_of(self._state)
        self._padded.clear()
        self._last = None

    def forget_slots(self) -> None:
        """The last slots are no longer those of the last tokens."""
        self._last = None

    def last_slots(self, group: int, index: Index) -> Tensor | None:
        """The slots of the last step in a group, if these rows took it."""
        kept = self._last
        return kept[1][group] if kept is not None and kept[0] is index else None

    def run(self, change: Change, seq: int) -> bool:
        """Run a step where each row of the change gains one token; False where it is not plain."""
        assert change.index is not None  # a batch event
        crossings = _crossings(self._state, change)
        if crossings is None:
            return False
        index, taken = change.index, change.taken
        assert taken is not None  # it has crossings
        if self._capture is None:
            self._last = (index, self._run_directly(index, taken, crossings, seq))
        else:
            size = max(_SMALLEST_GRAPH, 1 << (len(index) - 1).bit_length())
            padded = self._padded.get(size)
            if padded is None:
                # Later steps write to its buffers, in inference mode or outside it.
                with torch.inference_mode(mode=False):
                    padded = _PaddedStep(self._state, self._step, size, self._capture)
                self._padded[size] = padded
            self._last = (index, padded.run(self._uploads, index, taken, crossings, seq))
        return True

    def _run_directly(
        self, index: Index, taken: tuple[I32, ...], crossings: list[Index | None], seq: int
    ) -> Tensor:
        batch = self._batch
        if batch is None or batch.index is not index:
            batch = self._batch = _Batch.create(index, len(taken), self._uploads)
        _fill(batch.by_group, taken, crossings)
        batch.seq[0] = seq
        slots = torch.empty(batch.new_pages.shape, dtype=torch.int32, device=self._state.device)
        # The same tensors at each step where they can be: the kernel looks at new ones closely.
        there = batch.there
        if there is None:
            words, number = self._uploads.several(batch.new_pages.ravel(), batch.seq)
            there = words.view(batch.new_pages.shape), number
        self._step(batch.rows, there[0], slots_out=slots, seq=there[1])
        _clear(batch.by_group, crossings)
        return slots


@attrs.frozen(eq=False)
class _Batch:
    """What a step takes, for one batch; `there` are `new_pages` and `seq` where those are on a CPU.

    Between steps `new_pages` is 0 everywhere; `by_group` are its rows.
    """

    index: Index
    rows: Tensor
    new_pages: I32
    by_group: list[I32]
    seq: npt.NDArray[np.int64]
    there: tuple[Tensor, Tensor] | None

    @classmethod
    def create(cls, index: Index, num_groups: int, uploads: Uploads) -> _Batch:
        new_pages, seq = np.zeros((num_groups, len(index)), np.int32), np.zeros(1, np.int64)
        there = None
        if uploads.device.type == "cpu":
            there = torch.from_numpy(new_pages), torch.from_numpy(seq)
        return cls(index, uploads.one(index), new_pages, list(new_pages), seq, there)


def _step_of(state: DeviceState) -> DecodeStep:
    return DecodeStep(
        state.tables, state.described, state.state, state.refs, state.allocated,
        violations=state.violations,
    )  # fmt: skip


class _PaddedStep:
    """Buffers for batches of up to `size` rows, and the graph that works on them.

    `inputs` is one upload a step: seq as two words, then the new pages of each group. Rows beyond
    the batch are 0, which the kernel passes over.
    """

    def __init__(self, state: DeviceState, step: DecodeStep, size: int, capture: Capture) -> None:
        """Make the buffers."""
        num_groups, device = len(state.groups), state.device
        self._size, self._num_groups = size, num_groups
        self._inputs = torch.zeros(2 + num_groups * size, dtype=torch.int32, device=device)
        self._rows = torch.zeros(size, dtype=torch.int64, device=device)
        self._slots = torch.zeros((num_groups, size), dtype=torch.int32, device=device)
        self._index: Index | None = None
        seq, new_pages = self._inputs[:2].view(torch.int64), self._inputs[2:].view(num_groups, size)
        self._step = GraphedLaunch(
            lambda: step(self._rows, new_pages, slots_out=self._slots, seq=seq), capture
        )

    def run(
        self,
        uploads: Uploads,
        index: Index,
        taken: tuple[I32, ...],
        crossings: list[Index | None],
        seq: int,
    ) -> Tensor:
        """Run a step of these rows; their slots in each group."""
        num, pinned = len(index), uploads.device.type == "cuda"
        if self._index is not index:
            rows = np.zeros(self._size, np.int64)
            rows[:num] = index
            self._rows.copy_(uploads.one(rows), non_blocking=True)
            self._index = index
        # A fresh pinned buffer each step: torch hands it out again only when its copy is done.
        host = torch.empty(self._inputs.numel(), dtype=torch.int32, pin_memory=pinned)
        words = host.numpy()
        words[:2].view(np.int64)[0] = seq
        words[2:] = 0
        _fill(list(words[2:].reshape(self._num_groups, self._size)), taken, crossings)
        self._inputs.copy_(host, non_blocking=True)
        self._step.run()
        return self._slots[:, :num].clone()


def _fill(new_pages: list[I32], taken: tuple[I32, ...], crossings: list[Index | None]) -> None:
    for room, pages, crossing in zip(new_pages, taken, crossings, strict=True):
        if crossing is not None:
            room[crossing] = pages


def _clear(new_pages: list[I32], crossings: list[Index | None]) -> None:
    for room, crossing in zip(new_pages, crossings, strict=True):
        if crossing is not None:
            room[crossing] = 0


def _crossings(state: DeviceState, change: Change) -> list[Index | None] | None:
    """Per group, who in the batch comes to a new page; None where the pages are not theirs."""
    taken_at, taken = change.taken_at, change.taken
    if taken_at is None or taken is None:
        return None
    found: list[Index | None] = []
    groups = state.layout.groups
    for group, at, pages in zip(groups, taken_at, taken, strict=True):
        num, crossing = num_at(at), None
        if num:
            crossing = change.crossing if len(groups) == 1 else None
            if crossing is None:
                crossing = (change.old_allocated % group.page_size == 0).nonzero()[0]
        if not (num == len(pages) == (0 if crossing is None else len(crossing))):
            return None
        found.append(crossing)
    return found
