"""Random page spaces, tables and rows for the paging operations, as torch tensors."""

import attrs
import numpy as np
import torch

from kvlife.kernels import PageState, TableGroup, Violations, describe


def int32(values):
    """An int32 tensor of anything numpy takes, in memory of its own."""
    return torch.from_numpy(np.array(values, np.int32))


def space_columns(rng, num_pages):
    """State, refs and pins of a space as a ledger could have them, page 0 RESERVED."""
    state = rng.choice([PageState.FREE, *list(PageState)[:4]], num_pages)
    refs = np.where(state == PageState.PRIVATE, rng.integers(1, 4, num_pages), 0)
    refs = np.where(state == PageState.CACHED, rng.integers(0, 3, num_pages), refs)
    pins = np.where(state == PageState.FREE, 0, rng.integers(0, 3, num_pages) // 2)
    pins = np.where(state == PageState.QUARANTINED, rng.integers(1, 3, num_pages), pins)
    state[0], refs[0], pins[0] = PageState.RESERVED, 0, 0
    return int32(state), int32(refs), int32(pins)


def faulty_pages(rng, num_pages, num):
    """Page ids of which many stand twice, some are 0 and a few lie outside of the space."""
    return int32(rng.integers(-1, num_pages + 2, num))


def faulty_entries(rng, table_len, num):
    """Entries of a table, each once, some of them none (-1) and a few outside."""
    at = rng.permutation(max(table_len, num) + num)[:num]
    at[rng.random(num) < 0.1] = -1
    return torch.from_numpy(at)


def buffer(capacity=4096):
    """An empty violation buffer."""
    return Violations.create("cpu", capacity)


@attrs.define(eq=False)
class Tables:
    """The arenas of some groups, each with a space of its own but where `shared` says so."""

    tables: torch.Tensor
    groups: torch.Tensor
    state: torch.Tensor
    refs: torch.Tensor
    pins: torch.Tensor
    allocated: torch.Tensor
    floor: torch.Tensor
    cursors: torch.Tensor
    described: list


def random_tables(rng, *, page_sizes, num_rows, max_pages, full=1.0):
    """Rows of random lengths whose entries hold a PRIVATE page each; every second group a window.

    `max_pages` bounds a row's pages in the group of the smallest page size; `full` is the share of
    it that rows fill at most.
    """
    capacity = max_pages * min(page_sizes)
    allocated = rng.integers(0, int(capacity * full) + 1, num_rows).astype(np.int32)
    allocated[0] = 0
    floor = (rng.integers(0, capacity + 1, num_rows) * (rng.random(num_rows) < 0.3)).astype(
        np.int32
    )
    tables, columns, described, cursors = [], [], [], []
    starts = [0, 0]
    for idx, size in enumerate(page_sizes):
        width = -(-capacity // size) + idx
        window = None
        wanted = np.arange(width) * size < allocated[:, None]
        if idx % 2:
            window = len(cursors)
            cursor = rng.integers(0, capacity + 1, num_rows).astype(np.int32)
            # The page of the next token stays.
            cursor = np.minimum(cursor, np.maximum(allocated - 1, 0))
            cursors.append(cursor)
            kept = np.arange(width) * size < floor[:, None]
            wanted &= kept | (np.arange(width) >= (cursor // size)[:, None])
        num_pages = int(wanted.sum()) + num_rows + 2
        pages = rng.permutation(np.arange(1, num_pages))
        table = np.zeros((num_rows, width), np.int32)
        table[wanted] = pages[: wanted.sum()]
        state = np.zeros(num_pages, np.int32)
        state[0] = PageState.RESERVED
        state[table[wanted]] = PageState.PRIVATE
        refs = (state == PageState.PRIVATE).astype(np.int32)
        described.append(
            TableGroup(
                table_start=starts[0],
                table_width=width,
                page_size=size,
                page_start=starts[1],
                num_pages=num_pages,
                window_idx=window,
            )
        )
        tables.append(table.ravel())
        columns.append((state, refs))
        starts = [starts[0] + table.size, starts[1] + num_pages]
    state, refs = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Tables(
        tables=int32(np.concatenate(tables)),
        groups=describe(described, "cpu"),
        state=int32(state),
        refs=int32(refs),
        pins=int32(np.zeros(len(state))),
        allocated=int32(allocated),
        floor=int32(floor),
        cursors=int32(np.array(cursors).reshape(len(cursors), num_rows)),
        described=described,
    )


def crossing_pages(tables, rows):
    """A FREE page for each row that comes to a new one, group by group: int32 [groups, rows]."""
    new = np.zeros((len(tables.described), len(rows)), np.int32)
    old = tables.allocated.numpy()[rows]
    for idx, group in enumerate(tables.described):
        space = slice(group.page_start, group.page_start + group.num_pages)
        free = np.flatnonzero(tables.state.numpy()[space] == PageState.FREE)
        crossing = np.flatnonzero((old % group.page_size == 0) & (rows > 0))
        new[idx, crossing] = free[: len(crossing)]
    return new
