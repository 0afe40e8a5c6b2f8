"""Audits: each finds what a hand has put wrong in the columns, and names the pages and rows."""

import sys

import numpy as np
import pytest
from short_events import (
    Bench,
    admit,
    allocate,
    commit,
    dispatch,
    evict_window,
    full,
    pin,
    protect,
    release,
    save,
    windowed,
)

from kvlife.config import PoolConfig
from kvlife.invariants import Checker
from kvlife.ledger import Ledger

# r1 on row 1 has pages 1 and 2 (4/6/7, page 1 CACHED), session s1 row 2 with page 3.
SETUP = (
    admit("r1", 1),
    allocate(1, 7, [1, 2]),
    commit(1, 6),
    protect(1, 4, [11]),
    admit("r2", 2),
    allocate(2, 4, [3]),
    commit(2, 4),
    save("s1", "r2", 2, 4),
    pin("p1", [2]),
    dispatch(1, 1),
)


class StubIndex:
    """A prefix index that says what it is told to."""

    def __init__(self, *pages):
        self.found = np.array(pages, np.int32)

    def pages(self, group, /):
        return self.found if group == 0 else self.found[:0]


@pytest.fixture
def bench():
    made = Bench(full())
    assert made.do(*SETUP) is None
    return made


def audited(bench, **more):
    return {found.id: found for found in bench.checker.audit(bench.ledger, **more)}


def test_a_sound_state_has_no_findings(bench):
    """An audit of what events have made finds nothing, with the index that belongs to it."""
    assert bench.checker.audit(bench.ledger, StubIndex(1)) == []


def set_entry(ledger, row, idx, page):
    ledger.tables[0][row * 16 + idx] = page


def corrupt(name, at, value):
    """A hand that sets one cell of a column of rows, pages (`page.`) or the table."""

    def hand(ledger):
        if name == "table":
            set_entry(ledger, *at, value)
        elif name.startswith("page."):
            getattr(ledger.spaces[0], name.removeprefix("page."))[at] = value
        else:
            getattr(ledger.rows, name)[at] = value

    return hand


@pytest.mark.parametrize(
    ("hand", "id_"),
    [
        (corrupt("committed", 1, 9), "ladder-order"),
        (corrupt("protected", 1, -4), "ladder-order"),
        (corrupt("protected", 1, 3), "protected-aligned"),
        (corrupt("settled", 1, 5), "settled-bound"),
        (lambda ledger: ledger.requests.update(r1=2), "row-single-holder"),
        (lambda ledger: ledger.requests.pop("r1"), "row-single-holder"),
        (lambda ledger: ledger.sessions.clear(), "row-single-holder"),
        (corrupt("table", (1, 1), 0), "allocated-covers-pages"),
        (corrupt("page.refs", 2, 2), "refs-balance"),
        (corrupt("page.pins", 3, 1), "refs-balance"),
        (lambda ledger: ledger.pins.clear(), "refs-balance"),
        (corrupt("page.state", 2, 2), "write-exclusive"),
        (corrupt("page.pins", 9, 1), "pinned-page-freed"),
        (corrupt("in_flight", 2, 1), "in-flight-fence"),
        (corrupt("in_flight", 1, 0), "in-flight-fence"),
        (corrupt("state", 2, 2), "in-flight-fence"),
        (corrupt("page.state", 0, 0), "reserved-untouched"),
        (corrupt("page.refs", 0, 1), "reserved-untouched"),
        (corrupt("page.key", 1, 0), "index-agrees"),
        (corrupt("page.key", 3, 7), "index-agrees"),
        (corrupt("table", (2, 0), 2), "page-aliased"),
        (corrupt("table", (2, 0), 9), "page-use-after-free"),
        (corrupt("page.state", 2, 3), "page-use-after-free"),
        (corrupt("page.state", 3, 0), "page-conservation"),
        (corrupt("page.state", 9, 1), "page-conservation"),
        (corrupt("page.state", 9, 7), "page-conservation"),
        (
            lambda ledger: ledger.spaces[0].free.take_head(np.array([4], np.int32)),
            "page-conservation",
        ),
        (corrupt("state", 4, 3), "row-conservation"),
        (corrupt("allocated", 4, 5), "row-conservation"),
        (corrupt("state", 0, 0), "row-conservation"),
    ],
)
def test_an_audit_finds_what_a_hand_has_put_wrong(bench, hand, id_):
    """Each audit invariant, and each guard one that can be recounted, is found broken."""
    hand(bench.ledger)
    assert id_ in audited(bench)


def test_findings_stand_in_the_order_of_the_catalogue(bench):
    """An audit that finds several begins with the one that stands highest."""
    set_entry(bench.ledger, 2, 0, 9)
    ids = [found.id for found in bench.checker.audit(bench.ledger)]
    assert ids == sorted(ids, key=bench.checker.ids.index)
    assert len(ids) > 1


def test_evidence_of_an_audit_names_pages_rows_and_events(bench):
    """A row that reads a FREE page is named with its holder, and the page with its last event."""
    set_entry(bench.ledger, 2, 0, 9)
    found = audited(bench)["page-use-after-free"]
    assert found.evidence["pages"] == [9]
    assert found.evidence["states"] == ["FREE"]
    assert found.evidence["rows"] == [2]
    assert found.evidence["holders"] == ["session s1"]
    assert found.event is None
    assert found.seq == len(SETUP) - 1
    assert audited(bench)["refs-balance"].evidence["pages"] == [3, 9]


def test_the_index_is_held_against_the_cached_pages(bench):
    """A page that the index lacks, has too much, or has twice, is named."""
    assert audited(bench, index=StubIndex())["index-agrees"].evidence["not_in_index"] == [1]
    assert audited(bench, index=StubIndex(1, 2))["index-agrees"].evidence["only_in_index"] == [2]
    assert audited(bench, index=StubIndex(1, 1))["index-agrees"].evidence["twice_in_index"] == [1]


def test_two_pages_under_one_key_are_found():
    """A key on two CACHED pages is found, however long ago either was published."""
    events = (*SETUP[:4], *SETUP[4:7], protect(2, 4, [11]))
    bench = Bench(full())
    assert bench.do(*events).id == "index-agrees"
    assert audited(bench)["index-agrees"].evidence["pages"] == [1, 3]
    allowed = Bench(full(duplicates=True))
    assert allowed.do(*events) is None
    assert audited(allowed) == {}


def test_an_idle_audit_asks_that_nothing_is_held(bench):
    """At the close of an idle engine the audit includes idle-no-leak; else it does not."""
    assert "idle-no-leak" not in audited(bench)
    found = audited(bench, idle=True)["idle-no-leak"]
    assert found.evidence["holders"] == ["request r1", "session s1"]
    assert found.evidence["open_steps"] == [1]


def test_windows_are_recounted():
    """An entry that the window has passed holds no page, and cursors are whole pages."""
    bench = Bench(windowed(window=6))
    setup = (
        admit("r1", 1, 0, [[], []], cursors=[0]),
        allocate(1, 16, [[1, 2, 3, 4], [1, 2, 3, 4]]),
        commit(1, 16),
        evict_window(1, 1, 8, [1, 2]),
    )
    assert bench.do(*setup) is None
    assert audited(bench) == {}
    bench.ledger.tables[1][16] = 1
    found = audited(bench)["allocated-covers-pages"]
    assert found.evidence["group"] == "swa"
    assert found.evidence["table_idx"] == [0]
    bench.ledger.rows.cursors[0, 1] = 9
    assert "window-cursor" in audited(bench)


def test_an_audit_of_a_draining_row_counts_its_pages():
    """A row that drains holds its pages until its last step settles, and that is no fault."""
    bench = Bench(full())
    events = (admit("r1", 1), allocate(1, 7, [1, 2]), dispatch(1, 1), release("r1", 1))
    assert bench.do(*events) is None
    assert audited(bench) == {}


def test_an_audit_of_a_large_pool_is_a_few_array_operations():
    """A million pages in use by 512 rows are recounted without a loop over pages."""
    pages, rows = 1_000_000, 512
    config = PoolConfig(
        page_size=16, num_pages=pages + 1, max_requests=rows, max_context_len=32_000
    )
    ledger, checker = Ledger(config), Checker(policy="collect")
    each = pages // rows
    for row in range(1, rows + 1):
        taken = np.arange((row - 1) * each + 1, row * each + 1, dtype=np.int32)
        ledger.apply(admit(f"r{row}", row), ledger.next_seq)
        event = allocate(row, each * 16)
        event.pages = (taken,)
        ledger.apply(event, ledger.next_seq)
    calls = []
    sys.setprofile(lambda _frame, what, _arg: calls.append(what))
    try:
        findings = checker.audit(ledger)
    finally:
        sys.setprofile(None)
    assert findings == []
    assert len(calls) < 10 * rows
