"""One small case of each paging operation, worked out by hand."""

import pytest
import torch
from paging import buffer, int32

from kvlife.kernels import PageState, TableGroup, ViolationCode, describe
from kvlife.kernels.audit_refs import audit_refs
from kvlife.kernels.bind_pages import bind_pages
from kvlife.kernels.change_pages import Transition, change_pages
from kvlife.kernels.decode_step import decode_step
from kvlife.kernels.expand_tokens import expand_tokens
from kvlife.kernels.rebind import rebind
from kvlife.kernels.release_pages import release_pages
from kvlife.kernels.share_pages import share_pages
from kvlife.kernels.slots_of import slots_of

FREE, PRIVATE, CACHED, QUARANTINED, RESERVED = PageState


@pytest.fixture
def found():
    return buffer()


@pytest.fixture
def space():
    """Six pages: the reserved one, FREE, PRIVATE by two rows, CACHED and unlocked, held, pinned."""
    state = int32([RESERVED, FREE, PRIVATE, CACHED, PRIVATE, QUARANTINED])
    return state, int32([0, 0, 2, 0, 1, 0]), int32([0, 0, 0, 0, 1, 1])


def codes(found):
    return [(finding.code.name, finding.page, finding.where) for finding in found.read()]


def test_bind_pages(space, found):
    """FREE page 1 becomes PRIVATE; page 3 has an owner, gains a ref all the same, and is found."""
    state, refs, _ = space
    table = int32([0, 0, 0, 0])
    bind_pages(
        table, state, refs, torch.tensor([2, 0]), int32([1, 3]), violations=found, seq=70, group=1
    )
    assert table.tolist() == [3, 0, 1, 0]
    assert state.tolist() == [RESERVED, PRIVATE, PRIVATE, CACHED, PRIVATE, QUARANTINED]
    assert refs.tolist() == [0, 1, 2, 1, 1, 0]
    (finding,) = found.read()
    assert (finding.code, finding.page, finding.where) == (ViolationCode.NOT_FREE, 3, 0)
    assert (finding.seq, finding.group) == (70, 1)


def test_share_pages(space, found):
    """CACHED page 3 and PRIVATE page 2 gain a ref; FREE page 1 is left alone and found."""
    state, refs, _ = space
    table = int32([0, 0, 0])
    share_pages(
        table, state, refs, torch.tensor([0, 1, 2]), int32([3, 2, 1]), violations=found, seq=1
    )
    assert table.tolist() == [3, 2, 1]
    assert state.tolist() == [RESERVED, FREE, PRIVATE, CACHED, PRIVATE, QUARANTINED]
    assert refs.tolist() == [0, 0, 3, 1, 1, 0]
    assert codes(found) == [("NOT_SHARED", 1, 2)]


def test_release_pages(space, found):
    """Page 2 goes with its second release, pinned page 4 waits, page 3 had no reference to lose."""
    state, refs, pins = space
    table = int32([2, 2, 4, 3, 9])
    freed = release_pages(
        *(table, state, refs, pins, torch.tensor([0, 1, 2, 3]), int32([2, 2, 4, 3])),
        violations=found,
        seq=1,
    )
    assert table.tolist() == [0, 0, 0, 0, 9]
    assert state.tolist() == [RESERVED, FREE, FREE, CACHED, QUARANTINED, QUARANTINED]
    assert refs.tolist() == [0, 0, 0, 0, 0, 0]
    assert sorted(freed.tolist()) == [0, 0, 0, 2]
    assert codes(found) == [("DOUBLE_FREE", 3, 3)]


@pytest.mark.parametrize(
    ("transition", "state", "refs", "pins", "freed", "found_codes"),
    [
        (
            Transition.PUBLISH,
            [RESERVED, FREE, CACHED, CACHED, CACHED, QUARANTINED],
            [0, 0, 2, 0, 1, 0],
            [0, 0, 0, 0, 1, 1],
            [0, 0, 0, 0, 0],
            [("NOT_PUBLISHABLE", 1, -1), ("NOT_PUBLISHABLE", 5, -1)],
        ),
        (
            Transition.EVICT,
            [RESERVED, FREE, PRIVATE, FREE, PRIVATE, QUARANTINED],
            [0, 0, 2, 0, 1, 0],
            [0, 0, 0, 0, 1, 1],
            [0, 0, 3, 0, 0],
            [("NOT_EVICTABLE", page, -1) for page in (1, 2, 4, 5)],
        ),
        (
            Transition.PIN,
            [RESERVED, FREE, PRIVATE, CACHED, PRIVATE, QUARANTINED],
            [0, 0, 2, 0, 1, 0],
            [0, 1, 1, 1, 2, 2],
            [0, 0, 0, 0, 0],
            [("NOT_PINNABLE", 1, -1)],
        ),
        (
            Transition.UNPIN,
            [RESERVED, FREE, PRIVATE, CACHED, PRIVATE, FREE],
            [0, 0, 2, 0, 1, 0],
            [0, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 5],
            [("NOT_PINNED", page, -1) for page in (1, 2, 3)],
        ),
    ],
)
def test_change_pages(space, found, transition, state, refs, pins, freed, found_codes):
    """Each transition of all five pages: what it changes, what it frees, what it finds."""
    pages = int32([1, 2, 3, 4, 5])
    got = change_pages(*space, pages, transition, violations=found, seq=1)
    assert [column.tolist() for column in space] == [state, refs, pins]
    assert got.tolist() == freed
    assert codes(found) == found_codes


def test_rebind(space, found):
    """An entry goes from page 4, whose last row it was, to CACHED page 3; page 4 is pinned."""
    state, refs, pins = space
    table = int32([0, 4, 2])
    freed = rebind(
        *(table, state, refs, pins, torch.tensor([1, 2]), int32([4, 4]), int32([3, 3])),
        violations=found,
        seq=1,
    )
    assert table.tolist() == [0, 3, 3]
    assert state.tolist() == [RESERVED, FREE, PRIVATE, CACHED, QUARANTINED, QUARANTINED]
    assert refs.tolist() == [0, 0, 2, 2, 0, 0]
    assert freed.tolist() == [0, 0]
    # The second entry held page 2; page 4 had one reference, and two entries let go of it.
    assert codes(found) == [("DOUBLE_FREE", 4, 2)]


def test_rebind_of_an_entry_that_holds_another_page(space, found):
    """An entry that is said to leave page 2, and held page 4, is found."""
    state, refs, pins = space
    columns = (int32([4]), state, refs, pins)
    rebind(*columns, torch.tensor([0]), int32([2]), int32([3]), violations=found, seq=1)
    assert codes(found) == [("NOT_REFERENCED", 2, 0)]


# Two rows of three entries, pages of four tokens: row 1 lies on pages 5, 7, 6.
TABLE = [0, 0, 0, 5, 7, 6]


def test_slots_of():
    """Tokens 2 to 5 of row 1 lie on slots 22, 23 and 28; token 9 on 25; row 0 has no pages."""
    slots = slots_of(
        *(int32(TABLE), 3, 4, int32([1, 1, 0, 1])),
        *(int32([2, 3, 1, 9]), int32([5, 3, 2, 10]), torch.tensor([0, 3, 3, 4, 5])),
        total=5,
    )
    assert slots.tolist() == [22, 23, 28, 1, 25]


def test_expand_tokens():
    """Six tokens of row 1 lie on page 5 and half of page 7; the columns beyond stay."""
    out = int32([[-1] * 8, [-1] * 8])
    expand_tokens(int32(TABLE), 3, 4, int32([1, 1]), int32([6, 1]), out)
    assert out.tolist() == [[20, 21, 22, 23, 28, 29, -1, -1], [20] + [-1] * 7]


def test_decode_step(found):
    """Row 1 comes to its second page in the group of pages of two, row 2 in none, row 0 is padding.

    The second group has pages of four tokens, its table after the first's 9 entries, its pages
    after the first's 6.
    """
    groups = describe(
        [
            TableGroup(table_start=0, table_width=3, page_size=2, page_start=0, num_pages=6),
            TableGroup(table_start=9, table_width=2, page_size=4, page_start=6, num_pages=4),
        ],
        "cpu",
    )
    tables = int32([0, 0, 0, 3, 0, 0, 1, 0, 0, *[0, 0, 2, 0, 1, 0]])
    state = int32([RESERVED, PRIVATE, FREE, PRIVATE, FREE, FREE, *[RESERVED, PRIVATE, PRIVATE, 0]])
    refs = int32([0, 1, 0, 1, 0, 0, *[0, 1, 1, 0]])
    allocated, out = int32([0, 2, 1]), int32([[-9] * 3] * 2)
    decode_step(
        *(tables, groups, state, refs, allocated, int32([2, 1, 0]), int32([[0, 4, 0], [0, 0, 0]])),
        slots_out=out,
        violations=found,
        seq=torch.tensor([8]),
    )
    # Token 1 of row 2: offset 1 of page 1. Token 2 of row 1: page 4, and offset 2 of page 2.
    assert out.tolist() == [[3, 8, 0], [5, 10, 0]]
    assert allocated.tolist() == [0, 3, 2]
    assert tables.tolist() == [0, 0, 0, 3, 4, 0, 1, 0, 0, *[0, 0, 2, 0, 1, 0]]
    assert state.tolist()[:6] == [RESERVED, PRIVATE, FREE, PRIVATE, PRIVATE, FREE]
    assert refs.tolist() == [0, 1, 0, 1, 1, 0, *[0, 1, 1, 0]]
    assert codes(found) == []


@pytest.mark.parametrize(
    ("length", "page", "slot", "finding"),
    [
        # At 2 tokens the row comes to a page; the table has three entries of two tokens.
        (2, 3, 6, ("NOT_FREE", 3, 4)),
        (2, 0, 0, ("PAGE_MISSING", 0, 4)),
        (1, 2, 7, ("PAGE_UNASKED", 2, 3)),
        (6, 2, 0, ("PAGE_UNASKED", 2, 5)),
        (6, 0, 0, ("LENGTH_DISAGREES", 0, 5)),
        (-1, 0, 0, ("LENGTH_DISAGREES", 0, 3)),
        (2, 6, 0, ("OUTSIDE", 6, 4)),
    ],
)
def test_decode_step_finds_what_is_wrong(found, length, page, slot, finding):
    """A page that is taken, missing, unasked for or strange, and a length beyond the table."""
    group = TableGroup(table_start=0, table_width=3, page_size=2, page_start=0, num_pages=6)
    state, refs = int32([RESERVED, FREE, FREE, PRIVATE, FREE, FREE]), int32([0, 0, 0, 1, 0, 0])
    out = int32([[-9]])
    decode_step(
        *(int32([0, 0, 0, 3, 0, 0]), describe([group], "cpu"), state, refs, int32([0, length])),
        *(int32([1]), int32([[page]])),
        slots_out=out,
        violations=found,
        seq=torch.tensor([8]),
    )
    assert out.item() == slot
    assert codes(found) == [finding]


def test_audit_refs(found):
    """Eight things amiss in one small pool, each found by its name.

    Row 1 has 5 tokens on pages of two: three entries. Its second is empty, its third holds page 2
    that is FREE; row 2 has 2 tokens, and an entry more with page 9 that does not exist. Page 1
    stands twice more and counts once; page 3 counts 1 and stands nowhere; page 4 is PRIVATE and
    nobody's; page 5 is FREE with a pin; row 0 has an entry with page 1.
    """
    group = TableGroup(table_start=0, table_width=3, page_size=2, page_start=0, num_pages=6)
    table = int32([1, 0, 0, 1, 0, 2, 1, 9, 0])
    state = int32([RESERVED, PRIVATE, FREE, CACHED, PRIVATE, FREE])
    audit_refs(
        *(table, describe([group], "cpu"), state, int32([0, 1, 1, 1, 0, 0])),
        *(int32([0, 0, 0, 0, 0, 1]), int32([0, 5, 2]), int32([0, 0, 0])),
        torch.zeros((0, 3), dtype=torch.int32),
        violations=found,
        seq=1,
    )
    assert sorted(codes(found)) == [
        ("ALIASED", 1, -1),
        ("LOST", 4, -1),
        ("NOT_PINNABLE", 5, -1),
        ("OUTSIDE", 9, 7),
        ("PAGE_MISSING", 0, 4),
        ("PAGE_UNASKED", 1, 0),
        ("REFS_DISAGREE", 3, -1),
        ("REF_TO_FREE", 2, 5),
    ]


def test_audit_refs_of_a_window(found):
    """A row of 7 tokens, floor 2, cursor 4 has pages for tokens 0, 1 and from 4 on: all is well."""
    group = TableGroup(
        table_start=0, table_width=4, page_size=2, page_start=0, num_pages=4, window_idx=0
    )
    audit_refs(
        *(int32([0, 0, 0, 0, 3, 0, 1, 2]), describe([group], "cpu")),
        *(int32([RESERVED, PRIVATE, CACHED, PRIVATE]), int32([0, 1, 1, 1]), int32([0, 0, 0, 0])),
        *(int32([0, 7]), int32([0, 2]), int32([[0, 4]])),
        violations=found,
        seq=1,
    )
    assert codes(found) == []
