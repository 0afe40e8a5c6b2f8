"""`decode_step`: what it takes and does."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor
from kvlife.kernels.decode_step.arenas import Arenas
from kvlife.kernels.decode_step.reference import (
    decode_step_elsewhere,
    decode_step_reference,
    views_of,
)
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.table_checks import INTS, check_buffer, check_columns, check_groups, check_table
from kvlife.kernels.violations import Violations


class DecodeStep:
    """`decode_step` for a pool: the arenas are checked once, and each call is one step.

    The tensors are kept: they must not be resized, nor moved.
    """

    def __init__(
        self,
        tables: Tensor,
        groups: Tensor,
        state: Tensor,
        refs: Tensor,
        allocated: Tensor,
        *,
        violations: Violations,
    ) -> None:
        check_columns("decode_step", state=state, refs=refs)
        check_columns("decode_step", allocated=allocated)
        self._device = device = state.device
        check_table("decode_step", tables, device, name="tables")
        check_groups("decode_step", groups, device)
        check_tensor(
            "decode_step", "allocated", allocated, dtype=torch.int32, shape=(None,), device=device
        )
        check_buffer("decode_step", device, violations)
        self._num_groups = groups.shape[0]
        self._checked: tuple[Tensor | None, Tensor | None, Tensor | None] = (None, None, None)
        arenas = Arenas(
            tables=tables,
            groups=groups,
            state=state,
            refs=refs,
            allocated=allocated,
            violations=violations,
        )
        if uses_triton(state):
            # Triton is loaded where it runs, and nowhere else.
            from kvlife.kernels.decode_step.kernel import launch

            self._step = functools.partial(launch, arenas)
        elif device.type == "cpu":
            self._step = functools.partial(decode_step_reference, views_of(arenas))
        else:
            self._step = functools.partial(decode_step_elsewhere, arenas)

    def __call__(self, rows: Tensor, new_pages: Tensor, *, slots_out: Tensor, seq: Tensor) -> None:
        """One step; takes and raises what `decode_step` does."""
        device = self._device
        checked = self._checked
        # A batch steps again and again with the same tensors, but for those of its slots.
        if not (rows is checked[0] and new_pages is checked[1] and seq is checked[2]):
            self._check(rows, new_pages, seq)
        check_tensor(
            "decode_step", "slots_out", slots_out,
            dtype=torch.int32, shape=new_pages.shape, device=device,
        )  # fmt: skip
        if slots_out.numel():
            self._step(rows, new_pages, slots_out, seq)

    def _check(self, rows: Tensor, new_pages: Tensor, seq: Tensor) -> None:
        device = self._device
        check_tensor("decode_step", "rows", rows, dtype=INTS, shape=(None,), device=device)
        wanted = (self._num_groups, rows.numel())
        check_tensor(
            "decode_step", "new_pages", new_pages, dtype=torch.int32, shape=wanted, device=device
        )
        check_tensor("decode_step", "seq", seq, dtype=torch.int64, shape=(1,), device=device)
        self._checked = (rows, new_pages, seq)


def decode_step(
    tables: Tensor,
    groups: Tensor,
    state: Tensor,
    refs: Tensor,
    allocated: Tensor,
    rows: Tensor,
    new_pages: Tensor,
    *,
    slots_out: Tensor,
    violations: Violations,
    seq: Tensor,
) -> None:
    """Each row gains one token, in all groups: lengths, crossed pages, table, states and slots.

    `tables`, `state`, `refs` int32: the arenas of all groups, `groups` as `describe` makes it;
    `allocated` int32 [rows of the pool]. `rows` int32 or int64 [n], none twice; row 0 is padding
    and gets slot 0. `new_pages` int32 [groups, n]: the page for a row that comes to a new page in
    that group, 0 for the others. `slots_out` int32 [groups, n] gets the slot of the new token.
    `seq` int64 [1] lies on the device, so that a CUDA graph can be replayed under another.

    One launch without allocation or synchronisation. Finds, with the entry of the group's table:
    NOT_FREE, PAGE_MISSING (the slot is on page 0), PAGE_UNASKED (the page is taken, no entry names
    it), LENGTH_DISAGREES (beyond the table; slot 0), and OUTSIDE (a page or entry, slot 0; or, with
    page -1, a row). Raises `KernelError`.
    """
    step = DecodeStep(tables, groups, state, refs, allocated, violations=violations)
    step(rows, new_pages, slots_out=slots_out, seq=seq)
