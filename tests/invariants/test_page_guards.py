"""Guards over pages and tables: for each, a fault that it names first and a sound neighbour."""

import pytest
from short_events import (
    Bench,
    admit,
    allocate,
    close_session,
    commit,
    evict,
    evict_window,
    full,
    idle,
    ints,
    pin,
    protect,
    release,
    resize,
    resume,
    retract,
    roll_back,
    save,
    unpin,
    windowed,
)

from kvlife.config import CacheGroup
from kvlife.events import Allocated

# r1 on row 1 has pages 1 and 2, all 8 tokens committed; r2 on row 2 has page 3.
TWO = (
    admit("r1", 1, prompt=8),
    allocate(1, 8, [1, 2]),
    commit(1, 8),
    admit("r2", 2),
    allocate(2, 4, [3]),
    commit(2, 4),
)
# Page 1 is CACHED under key 11 and r2's row gone: the first page can be hit.
CACHED = (*TWO, protect(1, 4, [11]), release("r2", 2, [3]))


def first(bench, *events):
    found = bench.do(*events)
    return None if found is None else found.id


@pytest.mark.parametrize("pages", [[1, 4], [4, 4], [2, 2]])
def test_page_double_alloc(pages):
    """A page that somebody has, or that stands twice, is not handed out."""
    bench = Bench(full())
    assert first(bench, *TWO, allocate(2, 12, pages)) == "page-double-alloc"
    assert first(Bench(full()), *TWO, allocate(2, 12, [9, 4])) is None


def test_page_double_alloc_across_groups_of_one_space():
    """Two groups that share a page space do not get one page in one event."""
    groups = (CacheGroup("full", space="all"), CacheGroup("more", space="all"))
    bench = Bench(full(groups=groups))
    setup = admit("r1", 1, 0, [[], []])
    assert first(bench, setup, allocate(1, 4, [[1], [1]])) == "page-double-alloc"
    assert first(Bench(full(groups=groups)), setup, allocate(1, 4, [[1], [2]])) is None


def test_page_double_free():
    """A page is let go once: not when it is FREE, and not twice in one event."""
    bench = Bench(full())
    assert first(bench, *TWO, release("r1", 1, [1, 2, 2])) == "page-double-free"
    again = (*TWO, release("r2", 2, [3]), roll_back(1, 4, 4, [3]))
    assert first(Bench(full()), *again) == "page-double-free"
    assert first(Bench(full()), *TWO, evict([7])) == "page-double-free"
    assert first(Bench(full()), *TWO, release("r1", 1, [1, 2])) is None


def test_a_cached_page_is_let_go_by_each_of_its_rows():
    """Two rows of one event may let go of a page that both reference, and no third time."""
    pages = ([1], [1])
    cached = (
        admit("r1", 1, 0, [[], []], cursors=[0]),
        allocate(1, 4, pages),
        commit(1, 4),
        protect(1, 4, [[11], [11]]),
    )
    joined = (admit("r2", 2, 4, pages, cursors=[0]), allocate(2, 8, [[2], [2]]), commit(2, 8))
    grown = (allocate(1, 8, [[3], [3]]), commit(1, 8))
    both = evict_window(1, 1, 4, [1, 1])
    both.rows, both.evicted_len = ints(1, 2), ints(4, 4)
    thrice = evict_window(1, 1, 4, [1, 1, 1])
    thrice.rows, thrice.evicted_len = both.rows, both.evicted_len
    assert first(Bench(windowed()), *cached, *joined, *grown, both) is None
    assert first(Bench(windowed()), *cached, *joined, *grown, thrice) == "page-double-free"


def test_page_freed_by_stranger():
    """A row does not let go of a page that it does not reference."""
    assert first(Bench(full()), *TWO, release("r1", 1, [1, 3])) == "page-freed-by-stranger"
    found = Bench(full()).do(*TWO, roll_back(1, 4, 4, [3]))
    assert found.id == "page-freed-by-stranger"
    assert found.evidence["pages"] == [3]
    assert found.evidence["owners"] == [["request r2"]]
    assert found.evidence["last_events"] == [4]
    assert "refs-balance" in found.also
    assert first(Bench(full()), *TWO, roll_back(1, 4, 4, [2])) is None


@pytest.mark.parametrize(
    "faulty",
    [
        allocate(2, 8, [4, 5]),
        allocate(2, 8, []),
        roll_back(2, 5, 4),
        roll_back(1, 8, 8, [1, 2]),
        admit("r3", 3, 4, []),
        admit("r3", 3, 4, [1]),
        admit("r3", 3, 4, [9]),
        resize(3),
    ],
    ids=[
        "too many",
        "too few",
        "grows",
        "let go too early",
        "no prefix page",
        "shares a PRIVATE page",
        "shares a FREE page",
        "dropped in use",
    ],
)
def test_allocated_covers_pages(faulty):
    """After each event the rows have just the pages that their lengths ask for, and fit to have."""
    assert first(Bench(full()), *TWO, faulty) == "allocated-covers-pages"


def test_an_allocation_does_not_shrink():
    """A shorter allocation is a roll-back, which lets pages go."""
    setup = (admit("r1", 1), allocate(1, 8, [1, 2]), commit(1, 2))
    assert first(Bench(full()), *setup, allocate(1, 6)) == "allocated-covers-pages"
    assert first(Bench(full()), *setup, allocate(1, 8)) is None


def test_a_prefix_of_cached_pages_covers():
    """A hit on a CACHED page fills its entry."""
    assert first(Bench(full()), *CACHED, admit("r3", 3, 4, [1])) is None


@pytest.mark.parametrize(
    ("link", "id_"),
    [
        ((0, 0, 3, 1), None),
        ((0, 0, 2, 1), "page-freed-by-stranger"),
        ((0, 0, 3, 2), "allocated-covers-pages"),
        ((0, 0, 3, 9), "allocated-covers-pages"),
    ],
)
def test_rebinds(link, id_):
    """A duplicate is rebound from the row's own page to a CACHED one of the same key."""
    events = (*TWO, protect(1, 4, [11]), protect(2, 4, [11], [link]))
    assert first(Bench(full()), *events) == id_


def test_a_rebind_to_another_key():
    """The canonical page must hold the content that the key names."""
    events = (*TWO, protect(1, 4, [11]), protect(2, 4, [12], [(0, 0, 3, 1)]))
    assert first(Bench(full()), *events) == "allocated-covers-pages"


@pytest.mark.parametrize(
    ("faulty", "why"),
    [
        (release("r1", 1, [2]), "without being let go"),
        (retract("r1", 1, []), "without being let go"),
        (roll_back(1, 2, 2, []), "without being let go"),
        (save("s1", "r1", 1, 8), None),
        (release("r1", 1, [1, 2], host=[5]), "host pages"),
    ],
)
def test_refs_balance(faulty, why):
    """A row that lets go names all it leaves, and no host pages but its backup's."""
    found = Bench(full()).do(*TWO, faulty)
    assert (found and found.id) == (why and "refs-balance")
    if why:
        assert why in found.evidence["why"]


def test_refs_balance_of_a_backup():
    """The host pages of a retracted request are given back with it, all of them."""
    setup = (*TWO, retract("r1", 1, [1, 2], backup=[50, 51]))
    assert first(Bench(full()), *setup, release("r1", None, host=[50])) == "refs-balance"
    assert first(Bench(full()), *setup, release("r1", None, host=[50, 51])) is None


def test_refs_balance_of_pins():
    """A pin that a request owns ends no later than the request."""
    setup = (*TWO, pin("p1", [2], owner="r1"))
    found = Bench(full()).do(*setup, release("r1", 1, [1, 2]))
    assert found.id == "refs-balance"
    assert found.evidence["pins"] == ["p1"]
    assert found.evidence["pinned_at"] == [6]
    assert first(Bench(full()), *setup, unpin("p1", [2]), release("r1", 1, [1, 2])) is None


def test_refs_balance_of_an_idle_session():
    """An idle session is not closed without the row that it has."""
    setup = (*TWO, save("s1", "r1", 1, 8))
    assert first(Bench(full()), *setup, close_session("s1", None)) == "refs-balance"
    assert first(Bench(full()), *setup, close_session("s1", 1, [1, 2])) is None


def test_refs_balance_of_an_overwritten_entry():
    """An entry that still names a page is not written over."""
    bench = Bench(full())
    assert first(bench, *TWO) is None
    bench.ledger.tables[0][2 * 16 + 1] = 2
    assert first(bench, allocate(2, 8, [4])) == "refs-balance"


def test_write_exclusive():
    """Tokens are not written to a page that another row reads, or that is published."""
    bench = Bench(full())
    assert first(bench, *CACHED, allocate(1, 10, [4])) is None
    bench.ledger.spaces[0].refs[4] = 2
    found = bench.do(roll_back(1, 9, 8))
    assert found.id == "write-exclusive"
    assert found.evidence["pages"] == [4]
    assert found.evidence["rows"] == [1]
    assert found.applied


def test_write_exclusive_of_a_copied_page():
    """A roll-back into a published page goes on only on a copy of its own."""
    groups = (CacheGroup("full"),)
    config = full(groups=groups, publish="scheduled")
    setup = (admit("r1", 1), allocate(1, 8, [1, 2]), commit(1, 6))
    assert first(Bench(config), *setup, roll_back(1, 7, 6)) is None
    bench = Bench(config)
    assert first(bench, *setup) is None
    bench.ledger.spaces[0].state[2] = 2
    bench.ledger.spaces[0].key[2] = 5
    assert first(bench, roll_back(1, 7, 6)) == "write-exclusive"
    bench = Bench(config)
    assert first(bench, *setup) is None
    bench.ledger.spaces[0].state[2] = 2
    bench.ledger.spaces[0].key[2] = 5
    assert first(bench, roll_back(1, 7, 6, copies=[(0, 1, 2, 3)])) is None


def test_reserved_untouched():
    """Page 0 and row 0 are handed out by no event."""
    assert first(Bench(full()), *CACHED, allocate(1, 12, [0])) == "reserved-untouched"
    assert first(Bench(full()), *CACHED, admit("r3", 3, 4, [0])) == "reserved-untouched"
    assert first(Bench(full()), *CACHED, admit("r3", 0)) == "reserved-untouched"
    assert first(Bench(full()), *CACHED, pin("p1", [0])) == "reserved-untouched"
    assert first(Bench(full()), resize(0)) == "reserved-untouched"
    waits = (*TWO, retract("r1", 1, [1, 2]))
    assert first(Bench(full()), *waits, resume("r1", 0)) == "reserved-untouched"


def test_idle_no_leak():
    """At an idle mark nothing is held but cache."""
    assert first(Bench(full()), *CACHED, release("r1", 1, [1, 2]), idle()) is None
    found = Bench(full()).do(*CACHED, idle())
    assert found.id == "idle-no-leak"
    assert found.evidence["holders"] == ["request r1"]
    found = Bench(full()).do(*CACHED, release("r1", 1, [1, 2]), pin("p1", [1]), idle())
    assert found.evidence["pins"] == ["p1"]


def test_idle_no_leak_names_pages_of_nobody():
    """A page that no row, session or pin accounts for is named with who touched it last."""
    bench = Bench(full())
    assert first(bench, *CACHED, release("r1", 1, [1, 2])) is None
    bench.ledger.spaces[0].state[2] = 1
    found = bench.do(idle())
    assert found.id == "idle-no-leak"
    assert found.evidence["pages"] == [2]
    assert found.evidence["last_events"] == [8]


@pytest.mark.parametrize(
    ("keys", "id_"),
    [([11, 12], None), ([11, 0], None), ([11, 11], "index-agrees"), ([11], "index-agrees")],
)
def test_index_agrees(keys, id_):
    """Each published page gets a key of its own, or none and stays PRIVATE."""
    assert first(Bench(full()), *TWO, protect(1, 8, keys)) == id_


def test_index_agrees_of_duplicates():
    """Where the header allows it, two pages stand under one key."""
    assert first(Bench(full(duplicates=True)), *TWO, protect(1, 8, [11, 11])) is None


def test_a_cached_page_is_not_dropped():
    """A space does not shrink over what the index still finds."""
    setup = (*TWO, protect(2, 4, [13]), release("r1", 1, [1, 2]), release("r2", 2, [3]))
    assert first(Bench(full()), *setup, resize(3)) == "index-agrees"
    assert first(Bench(full()), *setup, evict([3]), resize(3)) is None


def test_evidence_is_cut_and_counted():
    """Evidence names a few pages and says how many there are."""
    bench = Bench(full(num_pages=40, max_context_len=160))
    found = bench.do(admit("r1", 1), allocate(1, 160, range(1, 41)), release("r1", 1, []))
    assert found.id == "refs-balance"
    assert found.evidence["pages"] == list(range(1, 21))
    assert found.evidence["num_pages"] == 40


def test_a_batch_names_pages_across_rows():
    """Pages of a batch stand in row order, and are checked row by row and together."""
    rows = (admit("r1", 1), admit("r2", 2))
    sound = Allocated(ints(1, 2), ints(5, 3), (ints(1, 2, 3),))
    short = Allocated(ints(1, 2), ints(5, 3), (ints(1, 2),))
    assert first(Bench(full()), *rows, sound) is None
    assert first(Bench(full()), *rows, short) == "allocated-covers-pages"
