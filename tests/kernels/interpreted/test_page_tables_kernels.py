"""The kernels that read and extend page tables do what their references do."""

import numpy as np
import pytest
import torch
from paging import buffer, crossing_pages, int32, random_tables
from twice import assert_same, poisoned, strided

from kvlife.kernels import PageState
from kvlife.kernels.audit_refs import audit_refs
from kvlife.kernels.decode_step import decode_step
from kvlife.kernels.expand_tokens import expand_tokens
from kvlife.kernels.slots_of import slots_of

PAGE_SIZES = (1, 16, 64, 256)
BATCHES = (0, 1, 3, 1000)
FAULTY = (False, True)
APART = (False, True)

reading = pytest.mark.axes(
    page_size=PAGE_SIZES, batch=BATCHES, max_pages=(1, 40), faulty=FAULTY, apart=APART, wide=(0, 1)
)
stepping = pytest.mark.axes(
    page_sizes=((1,), (16,), (64, 16), (256, 64, 16)),
    batch=BATCHES,
    max_pages=(1, 40),
    faulty=FAULTY,
    apart=APART,
)


def ragged(case, rng):
    """A table, and rows with ranges of their tokens; faulty ones lie outside in part."""
    size, num_rows, width = case["page_size"], 40, case["max_pages"]
    table = int32(rng.integers(0, 1000, num_rows * width))
    rows = rng.integers(0, num_rows, case["batch"])
    longest = min(width * size, 200)
    high = rng.integers(0, longest + 1, case["batch"])
    low = (high * rng.random(case["batch"]) * (rng.random(case["batch"]) < 0.7)).astype(np.int64)
    if case["faulty"]:
        rows = rng.integers(-2, num_rows + 2, case["batch"])
        shift = rng.integers(-longest, longest + 1, case["batch"])
        low, high = low + shift, high + shift
    dtype = np.int64 if case["wide"] else np.int32
    lay = strided if case["apart"] else torch.clone
    return table, *(lay(torch.from_numpy(part.astype(dtype))) for part in (rows, low, high))


@reading
def test_slots_of(case, seed):
    """Slots of ragged ranges, some of them empty, with rows and positions that do not exist."""
    rng = np.random.default_rng(seed)
    table, rows, low, high = ragged(case, rng)
    offsets = torch.zeros(len(rows) + 1, dtype=torch.int64)
    offsets[1:] = (high - low).cumsum(0)
    total = int(offsets[-1])
    wrong = case["faulty"] * 7
    slots, _ = assert_same(
        slots_of,
        *(table, case["max_pages"], case["page_size"], rows, low, high),
        strided(offsets) if case["apart"] else offsets,
        total=total + wrong,
    )
    assert slots.dtype == torch.int32
    assert slots.shape == (total + wrong,)


@reading
def test_expand_tokens(case, seed):
    """Slots of whole rows into a table that is too wide or too narrow, and the rest untouched."""
    rng = np.random.default_rng(seed)
    table, rows, _, lens = ragged(case, rng)
    longest = int(lens.max()) if len(lens) else 3
    columns = max(longest + (-3 if case["faulty"] else 5), 0)
    out = poisoned((len(rows), columns), torch.int32)
    if case["apart"]:
        out = poisoned((2 * len(rows), columns + 4), torch.int32)[::2, :columns]
    assert_same(expand_tokens, table, case["max_pages"], case["page_size"], rows, lens, out)


def spoil(tables, rows, new, rng):
    """Wrong lengths, rows, pages and entries, a few of each."""
    lengths = tables.allocated
    for row in rng.choice(np.arange(1, len(lengths)), max(len(lengths) // 20, 1)):
        lengths[row] = int(rng.choice([-5, 10**6, 17]))
    for idx in range(len(rows)):
        if rng.random() < 0.05:
            rows[idx] = rng.choice([0, -1, len(lengths), 2**31 - 1])
        if rng.random() < 0.1:
            group = rng.integers(0, len(new))
            new[group, idx] = rng.choice([0, 1, -3, 10**6, new[group].max()])
    strange = rng.integers(0, len(tables.tables), max(len(tables.tables) // 50, 1))
    tables.tables[strange] = int32(rng.choice([0, -7, 10**6, 3], len(strange)))
    tables.state[rng.integers(1, len(tables.state), 3)] = int(PageState.CACHED)


@stepping
def test_decode_step(case, seed):
    """A step of rows at any length, in one to three groups, with everything that can be wrong."""
    rng = np.random.default_rng(seed)
    tables = random_tables(
        rng,
        page_sizes=case["page_sizes"],
        num_rows=case["batch"] + 5,
        max_pages=case["max_pages"],
        full=1 if case["faulty"] else 0.9,
    )
    limit = min(group.table_width * group.page_size for group in tables.described)
    tables.allocated.clamp_(max=limit - 1)
    rows = rng.permutation(np.arange(1, case["batch"] + 5))[: case["batch"]]
    new = crossing_pages(tables, rows)
    if case["faulty"]:
        spoil(tables, rows, new, rng)
    lay = strided if case["apart"] else torch.clone
    _, (arguments, named) = assert_same(
        decode_step,
        *(tables.tables, tables.groups, tables.state, tables.refs, tables.allocated),
        lay(torch.from_numpy(rows)),
        lay(int32(new)),
        slots_out=lay(poisoned(new.shape, torch.int32)),
        violations=buffer(10_000),
        seq=torch.tensor([2**33]),
    )
    if not case["faulty"]:
        assert named["violations"].read() == []
        assert torch.equal(arguments[4][rows], tables.allocated[rows] + 1)


@pytest.mark.axes(
    page_sizes=((1,), (16,), (64, 16), (256, 64, 16)), num_rows=(1, 3, 300), max_pages=(1, 40),
    faulty=FAULTY,
)  # fmt: skip
def test_audit_refs(case, seed):
    """Tables in order, and tables, lengths, states and counts with a few changes in each."""
    rng = np.random.default_rng(seed)
    tables = random_tables(
        rng,
        page_sizes=case["page_sizes"],
        num_rows=case["num_rows"],
        max_pages=case["max_pages"],
    )
    if case["faulty"]:
        for column, low, high in (
            (tables.tables, -1, len(tables.state)),
            (tables.state, 0, 5),
            (tables.refs, 0, 4),
            (tables.pins, 0, 2),
            (tables.allocated, 0, 500),
            (tables.floor, 0, 500),
        ):
            spots = rng.integers(0, len(column), max(len(column) // 10, 1))
            column[spots] = int32(rng.integers(low, high, len(spots)))
    _, (_, named) = assert_same(
        audit_refs,
        *(tables.tables, tables.groups, tables.state, tables.refs, tables.pins),
        *(tables.allocated, tables.floor, tables.cursors),
        violations=buffer(100_000),
        seq=9,
    )
    if not case["faulty"]:
        assert named["violations"].read() == []
