"""The parts of a shrink: programs read from runs, mended when cut, cut tokens, and what is left."""

import random

import attrs
import numpy as np
import pytest
from recorded_runs import CONFIG, admitted, allocated, committed, crowded_engine, ints, released

from kvlife import CacheGroup, Checker, Observer
from kvlife.events import Marked, Protected
from kvlife.ledger import Ledger
from kvlife.log import open_run
from kvlife.replay.shrinking import Program, Shrinker, run_trial
from kvlife.replay.shrinking.cutting import Cut, cut_tokens
from kvlife.replay.shrinking.smaller import smaller_events, thinner_events

NO_LINKS = np.empty((0, 4), np.int32)
LAST = Marked("the end", idle=False)


def fold(config, events):
    """The state that events lead to."""
    ledger = Ledger(config)
    for seq, event in enumerate(events):
        ledger.apply(event, seq)
    return ledger


def lengths(ledger):
    """The ladder of each row in use, and the pages it has."""
    return {
        row: (ledger.row_record(row), [ledger.pages_of(row, g.idx).tolist() for g in groups])
        for groups in [ledger.layout.groups]
        for row in ledger.rows.in_use().tolist()
    }


@pytest.mark.parametrize("window", [None, 8])
def test_a_program_of_sound_events_comes_to_the_same_state(tmp_path, seed, window):
    """Read in pieces and folded again, a run of an engine leaves every row as it was."""
    groups = (CacheGroup("full"),) + (() if window is None else (CacheGroup("swa", window=window),))
    crowded_engine(tmp_path, seed=seed, num_steps=60, groups=groups, close=False).close()
    run = open_run(tmp_path)
    events = [item.event for item in run.events()]
    trial = run_trial(Program.of(run.header.config, events, LAST))
    assert lengths(fold(run.header.config, trial.events)) == lengths(
        fold(run.header.config, events)
    )


@pytest.mark.soak
@pytest.mark.parametrize("window", [None, 8])
def test_whatever_is_taken_away_the_rest_is_sound(tmp_path, seed, window):
    """Events left out at random, and tokens cut: what a trial folds stands every check."""
    groups = (CacheGroup("full"),) + (() if window is None else (CacheGroup("swa", window=window),))
    crowded_engine(tmp_path, seed=seed, num_steps=60, groups=groups)
    run, chance = open_run(tmp_path), random.Random(seed)
    whole = Program.of(run.header.config, [item.event for item in run.events()], LAST)
    for _ in range(10):
        share = chance.random()
        pieces = tuple(piece for piece in whole.pieces if chance.random() < share)
        program = attrs.evolve(whole, pieces=pieces)
        name, low = chance.choice(list(whole.lives)), chance.randrange(40)
        program = cut_tokens(program, [name], Cut(low, low + chance.randrange(1, 20)))
        observer = Observer(run.header.config, checker=Checker())
        for event in run_trial(program).events:
            observer.observe(event)
        assert observer.audit() == []


@pytest.mark.parametrize(
    ("length", "left"), [(0, 0), (3, 3), (4, 4), (6, 4), (8, 4), (9, 5), (20, 16)]
)
def test_a_length_behind_a_cut(length, left):
    """Without [4, 8), what lies below stays, what lies inside ends at 4, and above 4 are gone."""
    assert Cut(4, 8).after(length) == left


def test_a_table_behind_a_cut():
    """Without its second page of four tokens a table closes up; without half a page it moves on."""
    table = {0: 11, 1: 12, 2: 13}
    assert Cut(4, 8).table(table, 4) == {0: 11, 1: 13}
    # Positions 8 to 11 of what is left were 10 to 13, which began on the third page.
    assert Cut(4, 6).table(table, 4) == {0: 11, 1: 12, 2: 13}
    assert Cut(0, 12).table(table, 4) == {}


def shared_prefix():
    """One request publishes two pages, a second one hits both, and lets only its own page go."""
    keys = (np.array([71, 72], np.uint64),)
    return [
        admitted("r1", 1),
        allocated([1], [8], [1, 2]),
        committed([1], [8]),
        Protected(1, 8, keys, NO_LINKS),
        attrs.evolve(admitted("r2", 2, 12), prefix_len=8, pages=(ints(1, 2),)),
        allocated([2], [12], [3]),
    ]


def test_a_prefix_that_nobody_published_is_computed_again():
    """Without its publisher the second request computes and publishes the two pages itself."""
    program = Program.of(CONFIG, shared_prefix(), LAST)
    events = run_trial(attrs.evolve(program, pieces=program.pieces[4:])).events
    bound, allocated_first, result, publication, allocated_next = events
    assert (bound.prefix_len, bound.pages[0].tolist()) == (0, [])
    assert (allocated_first.allocated_len.tolist(), result.committed_len.tolist()) == ([8], [8])
    assert allocated_first.pages[0].tolist() == [1, 2]
    assert (publication.protected_len, publication.keys[0].tolist()) == (8, [71, 72])
    assert allocated_next.pages[0].tolist() == [3]


def test_a_shared_page_is_cut_out_of_both_requests():
    """Where the first page goes, publication and hit are of the second page alone."""
    program = Program.of(CONFIG, shared_prefix(), LAST)
    *_, hit, grown = run_trial(cut_tokens(program, program.lives, Cut(0, 4))).events
    assert (hit.prefix_len, hit.pages[0].tolist()) == (4, [2])
    assert (grown.allocated_len.tolist(), grown.pages[0].tolist()) == ([8], [3])


def test_a_page_that_somebody_else_has_by_now_is_another():
    """Where the release that freed a page goes, the next owner gets a page of its own."""
    events = [
        admitted("r1", 1),
        allocated([1], [4], [1]),
        released("r1", 1, [1], "aborted"),
        admitted("r2", 2),
        allocated([2], [4], [1]),
    ]
    last = released("r2", 2, [], "aborted")
    program = Program.of(CONFIG, events, last)
    kept = tuple(piece for piece in program.pieces if piece.event is not events[2])
    trial = run_trial(attrs.evolve(program, pieces=kept))
    (page,) = trial.events[-1].pages[0].tolist()
    assert page != 1
    assert trial.finding.id == "refs-balance"
    assert trial.finding.evidence["pages"] == [page]


def test_a_faulty_event_follows_the_pages_of_its_row():
    """Named by its old number, the page that its row has now is meant."""
    events = [
        admitted("r1", 1),
        allocated([1], [4], [1]),
        released("r1", 1, [1], "aborted"),
        admitted("r2", 2),
        allocated([2], [8], [1, 2]),
    ]
    program = Program.of(CONFIG, events, released("r2", 2, [1], "aborted"))
    kept = tuple(piece for piece in program.pieces if piece.event is not events[2])
    trial = run_trial(attrs.evolve(program, pieces=kept))
    first, second = trial.events[-1].pages[0].tolist()
    assert trial.last.pages[0].tolist() == [first]
    assert trial.finding.evidence["pages"] == [second]


FAULTS = {
    "refs-balance": released("r2", 2, [1, 2], "aborted"),
    "page-double-alloc": allocated([1, 2], [12, 16], [3, 4]),
    "protected-monotone": Protected(1, 4, (np.array([], np.uint64),), NO_LINKS),
    "settled-bound": released("r2", 2, [1, 2, 3]),
}


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_more_can_be_taken(name):
    """No event, page, key, token or length of what is left can go without mending the fault."""
    shrinker = Shrinker(Program.of(CONFIG, shared_prefix(), FAULTS[name]))
    shrinker.run()
    assert shrinker.complete
    least = shrinker.best
    assert run_trial(least).finding.id == name
    without_one = [
        attrs.evolve(least, pieces=(*least.pieces[:place], *least.pieces[place + 1 :]))
        for place in range(len(least.pieces))
    ]
    without_token = [
        cut_tokens(least, [life], Cut(low, low + 1)) for life in least.lives for low in range(16)
    ]
    changed = [way() for way in (*thinner_events(least), *smaller_events(least))]
    size = sum_of_lengths(run_trial(least))
    for program in (*without_one, *without_token, *changed):
        trial = run_trial(program)
        same = trial.finding is not None and trial.finding.id == name
        assert not same or sum_of_lengths(trial) >= size


def sum_of_lengths(trial):
    """Events, tokens and pages in all: what no single change may lower."""
    events = (*trial.events, trial.last)
    tokens = sum(
        int(np.abs(getattr(event, field, 0)).sum())
        for event in events
        for field in ("prompt_len", "prefix_len", "allocated_len", "committed_len", "protected_len")
    )
    pages = sum(len(part) for event in events for part in getattr(event, "pages", ()))
    return len(events) + tokens + pages
