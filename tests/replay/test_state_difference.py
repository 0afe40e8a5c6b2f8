"""Where two states differ, in words and numbers."""

import attrs
import recorded_runs as made

from kvlife import CacheGroup, Observer, PoolConfig
from kvlife.events import Pinned, Released, Resized, Retracted, SessionSaved, StepDispatched
from kvlife.ledger import Ledger
from kvlife.log import open_run
from kvlife.replay.finding.state_difference import MAX_TOLD, difference_of
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.output.event_words import numbers

GROUPS = (CacheGroup("full"), CacheGroup("swa", window=16))


def ledger_of(*events, config=made.CONFIG):
    observer = Observer(config, clock=lambda: 0)
    for event in events:
        observer.observe(event)
    return observer.ledger


def entries(left, right):
    found = difference_of(left, right)
    return {entry.what: (entry.left, entry.right) for entry in found.entries}, found.counts


def test_each_event_changes_the_state_and_a_restored_state_is_the_same(tmp_path):
    """Before and behind every event of a run with windows, the states differ; a copy does not."""
    made.crowded_engine(tmp_path, seed=7, num_steps=60, groups=GROUPS)
    timeline = Timeline(open_run(tmp_path))
    before = timeline.state(0)
    num = 0
    for moment in timeline.walk():
        assert not difference_of(before, moment.ledger).is_empty, moment.item
        snapshot = moment.ledger.snapshot()
        before = Ledger.restore(moment.ledger.config, snapshot.freeze())
        snapshot.release()
        assert difference_of(before, moment.ledger).is_empty
        num += 1
    assert num > 100


def test_books_are_told_by_their_names():
    """A session, a pin, a step and a waiting request that only one side has."""
    facts = made.life_of("r1", 1, [1, 2])[:3]
    left = ledger_of(*facts, made.admitted("r2", 2))
    right = ledger_of(
        *facts,
        made.admitted("r2", 2),
        SessionSaved("s1", "r1", 1, 8, (made.ints(),)),
        Pinned("p1", "store", True, None, 0, made.ints(1)),
        Retracted("r2", 2, None, (made.ints(),)),
        made.admitted("r3", 3),
        StepDispatched(9, made.ints(3)),
    )
    told, counts = entries(left, right)
    assert told["session s1"] == ("none", "on row 1, kept 8, idle")
    assert told["pin p1"] == ("none", "store, writes pages 1 of full, no owner")
    assert told["waiting request r2"] == ("none", "prompt 8, committed 0, no backup")
    assert told["step 9"] == ("none", "rows 3")
    assert told["request r1"] == ("on row 1", "none")
    assert told["row 1"] == ("request r1", "session s1")
    assert told["page 1 of full"] == ("PRIVATE, refs 1", "PRIVATE, refs 1, pins 1")
    assert counts == {
        "pages": 1, "rows": 3, "requests": 3, "waiting": 1, "sessions": 1, "pins": 1, "steps": 1,
    }  # fmt: skip


def test_pages_to_which_the_same_happened_are_told_together():
    """Ten pages taken for a row are one entry, as many as the rest are counted."""
    left = ledger_of(made.admitted("r1", 1, prompt_len=40))
    right = ledger_of(
        made.admitted("r1", 1, prompt_len=40), made.allocated([1], [40], range(1, 11))
    )
    told, counts = entries(left, right)
    assert told["pages 1-10 of full"] == ("FREE", "PRIVATE, refs 1")
    assert told["row 1 (request r1)"] == (
        "allocated 0, pages of full none",
        "allocated 40, pages of full 1-10",
    )
    assert counts == {"pages": 10, "rows": 1}


def test_one_of_a_kind_is_told_as_one():
    """One row and its request in words, beside two pages."""
    facts = made.life_of("r1", 1, [1, 2])[:2]
    assert difference_of(ledger_of(), ledger_of(*facts)).told == "2 pages, 1 row, 1 request"


def test_many_rows_are_counted_and_a_few_told():
    """Of 20 rows that differ the first few are told."""
    config = PoolConfig(page_size=4, num_pages=64, max_requests=24, max_context_len=16)
    rows = list(range(1, 21))
    bound = [made.admitted(f"r{row}", row) for row in rows]
    left = ledger_of(*bound, config=config)
    right = ledger_of(*bound, made.allocated(rows, [4] * 20, rows), config=config)
    found = difference_of(left, right)
    assert found.counts == {"pages": 20, "rows": 20}
    assert found.rows == tuple(range(1, MAX_TOLD + 1))
    assert sum(entry.what.startswith("row") for entry in found.entries) == MAX_TOLD


def test_the_same_free_pages_in_another_order_are_a_difference():
    """Pages 1 and 2 freed in either order: the next allocation takes another page."""
    sides = []
    for last in (1, 2):
        facts = [
            made.admitted("a", 1, prompt_len=4),
            made.admitted("b", 2, prompt_len=4),
            made.allocated([1, 2], [4, 4], [1, 2]),
            made.committed([1, 2], [4, 4]),
        ]
        ends = [made.released("a", 1, [1]), made.released("b", 2, [2])]
        sides.append(ledger_of(*facts, *(ends if last == 2 else ends[::-1])))
    told, counts = entries(*sides)
    assert told == {"free list of full: what is taken 0 pages from now": ("page 1", "page 2")}
    assert counts == {"free lists": 1}


def test_a_pool_that_was_resized_has_pages_that_the_other_has_not():
    """40 pages against 32: 8 are not there."""
    told, counts = entries(ledger_of(), ledger_of(Resized(0, 40)))
    assert told["size of full"] == ("32 pages", "40 pages")
    assert told["pages 32-39 of full"] == ("not there", "FREE")
    assert counts == {"pages": 8}


def test_numbers_are_written_as_ranges():
    """In their order; what is left out after six runs is counted."""
    assert numbers([]) == ""
    assert numbers([7]) == "7"
    assert numbers([1, 2, 3, 9, 8, 7, 5]) == "1-3 9 8 7 5"
    assert numbers([1, 3, 5, 7, 9, 11]) == "1 3 5 7 9 11"
    assert numbers([1, 3, 5, 7, 9, 11, 12, 20, 21]) == "1 3 5 7 9 11-12 … 9 in all"


def test_pages_of_the_host_are_compared():
    """r1 was aborted with its host pages in one run, and without them in the other."""
    config = attrs.evolve(made.CONFIG, host_pages=8)
    facts = [
        *made.life_of("r1", 1, [1, 2])[:3],
        Retracted("r1", 1, made.ints(1, 2), (made.ints(1, 2),)),
    ]
    left, right = Ledger(config), Ledger(config)
    for ledger, kept in ((left, made.ints(1, 2)), (right, made.ints())):
        end = Released("r1", None, "aborted", (made.ints(),), kept)
        for seq, event in enumerate([*facts, end]):
            ledger.apply(event, seq)
    told, counts = entries(left, right)
    assert told == {"pages 1-2 of the host": ("FREE", "PRIVATE, refs 1")}
    assert counts == {"host pages": 2}


def test_free_pages_of_the_host_in_another_order_are_a_difference():
    """Two backups that are given back in another order leave the same pages free, not in order."""
    config = attrs.evolve(made.CONFIG, host_pages=8)
    ledgers = Ledger(config), Ledger(config)
    for ledger, rids in zip(ledgers, (("r1", "r2"), ("r2", "r1")), strict=True):
        events = []
        for number, rid in enumerate(("r1", "r2"), 1):
            page = made.ints(number)
            events += [made.admitted(rid, number, 4), made.allocated([number], [4], [number])]
            events += [made.committed([number], [4]), Retracted(rid, number, page, (page,))]
        none = (made.ints(),)
        events += [
            Released(rid, None, "aborted", none, made.ints(1 + (rid == "r2"))) for rid in rids
        ]
        for seq, event in enumerate(events):
            ledger.apply(event, seq)
    told, counts = entries(*ledgers)
    key = "free list of the host: what is taken 0 pages from now"
    assert told == {key: ("page 2", "page 1")}
    assert counts == {"free lists": 1}
