"""`decode_step` in numpy on views of CPU tensors: it is in every step of an engine on the CPU.

Torch's calls would take several times as long on a thousand rows.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.kernels.decode_step.arenas import Arenas
from kvlife.kernels.page_states import PageState
from kvlife.kernels.violations import ViolationCode, Violations, note

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U32 = npt.NDArray[np.uint32]
Bools = npt.NDArray[np.bool_]

ZERO, ONE = np.array(0, np.int32), np.array(1, np.int32)
FREE, PRIVATE, CACHED = int(PageState.FREE), int(PageState.PRIVATE), int(PageState.CACHED)


@attrs.define(eq=False)
class _Pool:
    """One group's table and page columns; `roomy` if the table has the entries of every row."""

    table: I32
    state: I32
    refs: I32
    width: int
    size: int
    roomy: bool

    # What meets arrays at every step, as arrays of one number: numpy converts those in no time.
    _widths: U32 = attrs.field(init=False)
    _sizes: I32 = attrs.field(init=False)
    _shift: I32 | None = attrs.field(init=False, default=None)
    _last_page: U32 = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._widths = np.array(self.width, np.uint32)
        self._sizes = np.array(self.size, np.int32)
        self._last_page = np.array(self.num_pages - 1, np.uint32)
        if self.size & (self.size - 1) == 0:
            self._shift = np.array(self.size.bit_length() - 1, np.int32)

    @property
    def num_pages(self) -> int:
        return len(self.state)

    def split(self, lengths: I32) -> tuple[I32, I32]:
        """The page of each position among its row's, and its place on the page."""
        if self._shift is None:
            idx = lengths // self._sizes
            return idx, lengths - idx * self._sizes
        return lengths >> self._shift, lengths & (self._sizes - ONE)

    def has_entries(self, idx: I32) -> bool:
        """Whether all are inside a row; as unsigned, a negative number is too large as well."""
        return not _any(idx.view(np.uint32) >= self._widths)

    def has_pages(self, pages: I32) -> bool:
        """Whether all are pages of the space, and none is the reserved one."""
        return not _any((pages - ONE).view(np.uint32) >= self._last_page)

    def take(self, spots: I64) -> None:
        """FREE pages, each named once, become PRIVATE with one reference more."""
        self.state[spots] = PRIVATE
        self.refs[spots] = self.refs.take(spots) + ONE

    def slots(self, pages: I32, offset: I32) -> I32:
        """The slots at these places; `pages` is written over."""
        pages *= self._sizes
        pages += offset
        return pages


@attrs.frozen(eq=False)
class _Named:
    """Rows that all exist, as they were when torch last wrote to their tensor.

    `version` counts those writes, None where torch does not (inference tensors). `starts` are the
    first entries of each row in the table of each group.
    """

    rows: Tensor
    version: int | None
    row: I64
    starts: list[I64]


@attrs.define(eq=False)
class Views:
    """The arenas as numpy sees them: lengths of the rows, and each group's part of the rest.

    A batch steps again and again: what is known of the rows of the last one is kept.
    """

    lengths: I32
    pools: list[_Pool]
    violations: Violations
    named: _Named | None = None

    def name(self, rows: Tensor) -> _Named | None:
        """These rows, or None where one is padding, or does not exist."""
        kept, version = self.named, None
        if not rows.is_inference():
            version = rows._version  # noqa: SLF001  # torch has no other name for it
            if kept is not None and kept.rows is rows and kept.version == version:
                return kept
        row = rows.numpy().astype(np.int64)
        if _any((row - 1).view(np.uint64) >= len(self.lengths) - 1):
            return None
        starts = [row * pool.width for pool in self.pools]
        self.named = _Named(rows, version, row, starts)
        return self.named


def views_of(arenas: Arenas) -> Views:
    """Views of tensors that lie in the memory of the CPU."""
    lengths: I32 = arenas.allocated.numpy()
    table, state, refs = arenas.tables.numpy(), arenas.state.numpy(), arenas.refs.numpy()
    pools = [
        _Pool(
            table[start:],
            state[first : first + num],
            refs[first : first + num],
            width,
            size,
            len(lengths) * width <= len(table) - start,
        )
        for start, width, size, first, num, _ in arenas.groups.tolist()
    ]
    return Views(lengths, pools, arenas.violations)


def decode_step_reference(
    views: Views, rows: Tensor, new_pages: Tensor, slots_out: Tensor, seq: Tensor
) -> None:
    """What `decode_step` says, group after group."""
    lengths, pages, slots = views.lengths, new_pages.numpy(), slots_out.numpy()
    named = views.name(rows)
    if named is None:
        row = rows.numpy().astype(np.int64)
        _step_of_strangers(views, row, pages, slots, seq)
        return
    row = named.row
    old = lengths.take(row)
    for group, pool in enumerate(views.pools):
        plain = None
        if pool.roomy:
            plain = _plain_step(pool, named.starts[group], old, pages[group])
        if plain is None:
            used = np.ones(row.shape, np.bool_)
            plain, codes, page, where = _any_step(pool, row, old, used, pages[group])
            _note(views, codes, page, where, seq, group)
        slots[group] = plain
    lengths[row] = old + ONE


def decode_step_elsewhere(
    arenas: Arenas, rows: Tensor, new_pages: Tensor, slots_out: Tensor, seq: Tensor
) -> None:
    """The same on tensors of a device: copied here, and back."""
    here = attrs.evolve(
        arenas,
        tables=arenas.tables.cpu(),
        state=arenas.state.cpu(),
        refs=arenas.refs.cpu(),
        allocated=arenas.allocated.cpu(),
    )
    slots = slots_out.cpu()
    decode_step_reference(views_of(here), rows.cpu(), new_pages.cpu(), slots, seq)
    slots_out.copy_(slots)
    arenas.tables.copy_(here.tables)
    arenas.state.copy_(here.state)
    arenas.refs.copy_(here.refs)
    arenas.allocated.copy_(here.allocated)


def _step_of_strangers(views: Views, row: I64, pages: I32, slots: I32, seq: Tensor) -> None:
    """A step in which some rows are padding, or do not exist."""
    lengths = views.lengths
    used = (row > 0) & (row < len(lengths))
    old = np.where(used, lengths[row * used], 0)
    strange = (row < 0) | (row >= len(lengths))
    codes = strange * np.int32(ViolationCode.OUTSIDE)
    _note(views, codes, np.full(row.shape, -1, np.int32), row, seq, 0)
    for group, pool in enumerate(views.pools):
        slots[group], codes, page, where = _any_step(pool, row, old, used, pages[group])
        _note(views, codes, page, where, seq, group)
    lengths[row[used]] = old[used] + ONE


def _note(views: Views, codes: I32, page: I32, where: I64, seq: Tensor, group: int) -> None:
    if codes.any():
        code, pages, at = (torch.as_tensor(column) for column in (codes, page, where))
        note(views.violations, code, code != 0, page=pages, where=at, seq=seq, group=group)


def _any(amiss: Bools) -> bool:
    # Faster than any() on a thousand entries.
    return 1 in amiss.tobytes()


def _plain_step(pool: _Pool, start: I64, old: I32, given: I32) -> I32 | None:
    """The slots where nothing is amiss; else None, and nothing has changed."""
    idx, offset = pool.split(old)
    if not pool.has_entries(idx):
        return None
    at = start + idx
    page = pool.table.take(at)
    if (given != ZERO).tobytes() != (offset == ZERO).tobytes():
        return None
    crossing = given.nonzero()[0]
    if not crossing.size:
        return pool.slots(page, offset) if pool.has_pages(page) else None
    fresh = given.take(crossing)
    page[crossing] = fresh
    if not pool.has_pages(page):
        return None
    spots = fresh.astype(np.int64)
    states = pool.state.take(spots).tobytes()
    if states.count(0) < len(states) or len(set(fresh.tolist())) < fresh.size:
        return None
    pool.table[at.take(crossing)] = fresh
    pool.take(spots)
    return pool.slots(page, offset)


def _any_step(
    pool: _Pool, row: I64, old: I32, used: Bools, given: I32
) -> tuple[I32, I32, I32, I64]:
    """Slots, and per row the code, page and entry of what is amiss, the order as in the kernel."""
    exists = used | (row == 0)
    idx = old // pool.size
    offset = old - idx * pool.size
    where = row * pool.width + np.clip(idx, 0, pool.width - 1)
    fits = used & (old >= 0) & (idx < pool.width) & (where >= 0) & (where < len(pool.table))
    crossing = fits & (offset == 0)
    named = exists & (given != 0)
    held = named & (given > 0) & (given < pool.num_pages)
    codes = np.zeros(row.shape, np.int32)
    codes[held] = _take(pool, given[held])
    bound = np.where(held, given, 0)
    pool.table[where[crossing]] = bound[crossing]
    page = np.where(crossing, bound, pool.table[where * (fits & ~crossing)])
    page[~fits] = 0
    strange = (page < 0) | (page >= pool.num_pages)
    slots = np.where(fits & ~strange, page * np.int32(pool.size) + offset, 0)
    for code, amiss in (
        (ViolationCode.PAGE_UNASKED, named & ~crossing),
        (ViolationCode.PAGE_MISSING, fits & (page == 0)),
        (ViolationCode.LENGTH_DISAGREES, used & ~fits),
    ):
        codes[(codes == 0) & amiss] = code
    codes[(named & ~held) | (fits & strange)] = ViolationCode.OUTSIDE
    return slots, codes, np.where(named, given, page), where


def _take(pool: _Pool, pages: I32) -> I32:
    """As `page_moves.take`."""
    states = pool.state[pages]
    _, first = np.unique(pages, return_index=True)
    again = np.ones(pages.shape, np.bool_)
    again[first] = False
    pool.state[pages[states == FREE]] = PRIVATE
    np.add.at(pool.refs, pages[states <= CACHED], 1)
    codes: I32 = ((states != FREE) | again) * np.int32(ViolationCode.NOT_FREE)
    return codes
