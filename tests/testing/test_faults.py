"""Every fault, at a few places of sound runs: found at once, first by the invariant to blame."""

import re
from pathlib import Path

import attrs
import numpy as np
import pytest
from fault_runs import KINDS, courses, record

from kvlife import PoolConfig
from kvlife.errors import ConfigError
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Protected,
    Recorded,
    Released,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Violated,
)
from kvlife.events.arrays import ints
from kvlife.invariants import CATALOGUE
from kvlife.log import open_run
from kvlife.replay.cli import main
from kvlife.replay.replaying.session import Settings, replay_run
from kvlife.testing.faults import (
    FAULTS,
    Course,
    Fault,
    Injection,
    Kind,
    When,
    fault_named,
    place_all,
    write_faulty_run,
)

DOCS = Path(__file__).resolve().parents[2] / "docs"
# Runs in which every fault applies somewhere; the places in them are new each time.
RUNS_SEED, NUM_REQUESTS = 7, 50


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Simulated runs of all kinds, as lists of events."""
    return list(courses(tmp_path_factory.mktemp("runs"), NUM_REQUESTS, RUNS_SEED))


@pytest.fixture(scope="module")
def full_run(tmp_path_factory):
    """A run without windows, in its log."""
    path = tmp_path_factory.mktemp("full")
    return open_run(record(path, KINDS[4], 30, RUNS_SEED))


def test_every_fault_is_found_at_once_and_rightly(runs, seed):
    """In random places: the invariant to blame is first, at the first event wrong in itself."""
    tallies = place_all(FAULTS.values(), runs, num_places=5, seed=seed)
    nowhere = [tally.fault.name for tally in tallies if not tally.verdicts]
    wrong = [
        (tally.fault.name, verdict)
        for tally in tallies
        for verdict in tally.verdicts
        if not (verdict.caught and verdict.rightly and verdict.at_once)
    ]
    unlisted = [
        (tally.fault.name, verdict.expected)
        for tally in tallies
        for verdict in tally.verdicts
        if verdict.expected not in tally.fault.fires
    ]
    assert (nowhere, wrong, unlisted) == ([], [], [])


def test_the_same_seed_gives_the_same_places(runs):
    """A run of faults can be repeated by its seed."""
    some = [FAULTS[name] for name in ("release-lost", "key-of-another-page", "refs-one-up")]

    def places():
        return [tally.verdicts for tally in place_all(some, runs[:1], num_places=3, seed=11)]

    assert places() == places()


def test_places_lie_all_over_a_run(runs):
    """Also in its last part, though what was drawn to spare is left untried."""
    sound = fault_of(
        lambda spot: Injection(events=(spot.event,), invariant="ladder-order"), Committed
    )
    (tally,) = place_all([sound], runs[4:5], num_places=40, seed=1)
    seqs = [verdict.wrong_seq for verdict in tally.verdicts]
    last = runs[4].items[-1].seq
    assert (len(seqs), min(seqs) < last / 4, max(seqs) > last * 3 / 4) == (40, True, True)


def test_each_guard_catches_two_faults_first():
    """Of each built guard there are two faults that it must find first; of each audit, one."""
    first = [name for fault in FAULTS.values() for name in set(fault.fires)]
    for invariant in CATALOGUE:
        if invariant.built:
            least = 2 if invariant.guard or invariant.post else 1
            assert first.count(invariant.id) >= least, invariant.id


def test_there_are_faults_of_all_kinds():
    """There are at least 60 faults, some in the stream, in decisions and in columns each."""
    kinds = [fault.kind for fault in FAULTS.values()]
    assert len(kinds) >= 60
    assert all(kinds.count(kind) >= 20 for kind in Kind)
    known = {invariant.id for invariant in CATALOGUE if invariant.built}
    assert all(set(fault.fires) <= known and fault.sentence for fault in FAULTS.values())


def test_the_table_in_the_docs_lists_every_fault():
    """docs/faults.md is of these faults: `make faults` writes it."""
    page = (DOCS / "faults.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([\w-]+)` \| (?:stream|decision|columns) \|", page, re.MULTILINE) == [
        *FAULTS
    ]


def test_the_page_s_code_writes_a_faulty_run(tmp_path, monkeypatch, capsys):
    """It prints where the run lies and what is wrong in it, and a replay finds just that."""
    page = (DOCS / "faults.md").read_text(encoding="utf-8")
    assert f"\n{len(FAULTS)} faults at " in page
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    record(tmp_path / "runs", KINDS[4], 30, RUNS_SEED)
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "docs/faults.md", "exec"), {})  # noqa: S102  # what the page shows is run
    path, first_seq, wrong_seq, invariant = capsys.readouterr().out.split()
    assert path == "faulty-runs/run-000001"
    assert invariant == "release-once"
    # A release that is told twice: the first telling is sound.
    assert int(wrong_seq) == int(first_seq) + 1
    assert main(["replay", path]) == 1
    assert f"release-once at seq {wrong_seq}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    ["release-doubled", "settle-lost", "key-of-another-page", "evicted-while-pinned"],
)
def test_a_faulty_run_ends_as_a_live_one(tmp_path, full_run, seed, name):
    """The log ends with the violation, and a replay finds it: that invariant, at that event."""
    placed = write_faulty_run(full_run, FAULTS[name], tmp_path, seed=seed)
    run = open_run(placed.path)
    last = list(run.events())[-1].event
    assert isinstance(last, Violated)
    assert (last.seq, last.invariant) == (placed.wrong_seq, placed.invariant)
    first = replay_run(run, Settings()).found[0]
    assert (first.seq, first.id) == (placed.wrong_seq, placed.invariant)
    sound = list(full_run.events(0, placed.first_seq))
    kept = list(run.events(0, placed.first_seq))
    assert [(item.seq, item.step, item.time_ns) for item in kept] == [
        (item.seq, item.step, item.time_ns) for item in sound
    ]


def test_a_faulty_run_can_begin_late(tmp_path, full_run):
    """Nothing changes before the seq from which on a fault may stand."""
    late = full_run.next_seq // 2
    placed = write_faulty_run(
        full_run, FAULTS["committed-beyond-allocated"], tmp_path, seed=1, first_seq=late
    )
    assert placed.first_seq >= late


def test_what_no_log_can_show_is_refused(tmp_path, full_run):
    """A fault in the columns, or one that applies nowhere in the run, is a clear error."""
    with pytest.raises(ConfigError, match="columns"):
        write_faulty_run(full_run, FAULTS["refs-one-up"], tmp_path, seed=1)
    with pytest.raises(ConfigError, match="applies at no event"):
        write_faulty_run(full_run, FAULTS["cursor-goes-back"], tmp_path, seed=1)


def test_an_unknown_fault_is_named_with_those_that_there_are():
    """The error lists what could have been meant."""
    with pytest.raises(ConfigError, match=r"'release-tripled'.*release-doubled"):
        fault_named("release-tripled")


NONE = ints([])
PUBLISHED = Protected(1, 8, (np.array([7, 8], np.uint64),), np.empty((0, 4), np.int32))
ROLLED_BACK = RolledBack(ints([1]), ints([4]), ints([4]), (ints([2]),), NONE)
SAVED = SessionSaved("s", "r1", 1, 8, (NONE,))
DRAINING = Released("r1", 1, "aborted", (NONE,), NONE)
NOT_DRAINED, DRAINED = (NONE, NONE), (ints([1]), ints([1, 2]))


def admitted(rid, row, prompt_len):
    return Admitted(
        rid=rid, row=row, namespace=0, prompt_len=prompt_len, prefix_len=0, evict_floor=0,
        evicted_len=(), pages=(ints([]),),
    )  # fmt: skip


def taken_by_r2(row, page):
    return [admitted("r2", row, 4), Allocated(ints([row]), ints([4]), (ints([page]),))]


@pytest.mark.parametrize(
    ("under_step", "drained", "behind", "invariant"),
    [
        ([ROLLED_BACK], NOT_DRAINED, taken_by_r2(2, 2), "pinned-page-freed"),
        ([PUBLISHED, ROLLED_BACK], NOT_DRAINED, [Evicted("pressure", (ints([2]),))],
         "evicted-while-locked"),
        ([DRAINING], DRAINED, taken_by_r2(2, 1), "page-double-alloc"),
        ([DRAINING], DRAINED, taken_by_r2(1, 3)[:1], "row-single-holder"),
        ([], NOT_DRAINED, [Retracted("r1", 1, None, (ints([1, 2]),))], "in-flight-fence"),
        ([SAVED], NOT_DRAINED, [SessionClosed("s", 1, (ints([1, 2]),))], "in-flight-fence"),
    ],
)  # fmt: skip
def test_a_lost_settle_is_found_where_what_its_step_keeps_is_taken(
    under_step, drained, behind, invariant
):
    """Step 1 reads pages 1 and 2 of r1, and they go, or its row does, while it is still open."""
    rows, pages = drained
    events = [
        admitted("r1", 1, 8),
        Allocated(ints([1]), ints([8]), (ints([1, 2]),)),
        Committed(ints([1]), ints([8])),
        StepDispatched(1, ints([1])),
        *under_step,
        StepSettled(1, rows, (pages,)),
        *behind,
    ]
    verdict, tally = verdict_of("settle-lost", events)
    # Without the settle the last event comes a seq sooner.
    assert (verdict.found, verdict.found_seq) == (invariant, len(events) - 2)
    assert (tally.rightly, tally.at_once) == (1, 1)


def test_a_publish_lost_in_one_turn_is_found_in_the_next():
    """Turn 1 publishes page 1 and keeps its row; the last turn gives the key of page 2 alone."""
    key, no_links = np.array([7], np.uint64), np.empty((0, 4), np.int32)
    events = [
        admitted("r1", 1, 4),
        Allocated(ints([1]), ints([4]), (ints([1]),)),
        Committed(ints([1]), ints([4])),
        Protected(1, 4, (key,), no_links),
        SessionSaved("s", "r1", 1, 4, (NONE,)),
        SessionRestored("s", "r2", 1, 4, 8, (NONE,)),
        SessionClosed("s", None, (NONE,)),
        Allocated(ints([1]), ints([8]), (ints([2]),)),
        Committed(ints([1]), ints([8])),
        Protected(1, 8, (key + np.uint64(1),), no_links),
    ]
    verdict, tally = verdict_of("publish-lost", events)
    assert (verdict.found, verdict.found_seq) == ("index-agrees", 8)
    assert (tally.rightly, tally.at_once) == (1, 1)


def verdict_of(name, events):
    config = PoolConfig(page_size=4, num_pages=8, max_requests=4, max_context_len=16)
    course = Course(config, [Recorded(seq, 0, 0, event) for seq, event in enumerate(events)])
    (tally,) = place_all([FAULTS[name]], [course], num_places=1, seed=1)
    (verdict,) = tally.verdicts
    return verdict, tally


def fault_of(make, *of):
    return Fault(
        name="made-up",
        sentence="A fault of this test.",
        kind=Kind.STREAM,
        when=When.EVENT,
        fires=("ladder-order",),
        of=of,
        make=make,
    )


def verdicts_of(runs, make, *of):
    (tally,) = place_all([fault_of(make, *of)], runs[4:5], num_places=3, seed=1)
    assert len(tally.verdicts) == 3
    return tally


def test_what_is_no_fault_is_not_found(runs):
    """An event that is sound is told from one that is caught: the judge can say no."""
    sound = verdicts_of(
        runs, lambda spot: Injection(events=(spot.event,), invariant="ladder-order"), Committed
    )
    assert (sound.caught, sound.rightly, sound.at_once) == (0, 0, 0)


def test_another_invariant_is_not_the_right_one(runs):
    """A fault that fires another invariant than it says is caught, and not rightly."""
    doubled = verdicts_of(
        runs,
        lambda spot: Injection(events=(spot.event, spot.event), invariant="ladder-order"),
        Released,
    )
    assert (doubled.caught, doubled.rightly, doubled.at_once) == (3, 0, 3)


def test_a_fault_that_is_found_late_is_not_found_at_once(runs):
    """A commit that is lost is held to be wrong where it is lost: the judge says it came later."""

    def shorter(spot):
        # A token less than was computed is no fault yet; the next result is committed all the same.
        old = spot.ledger.rows.committed[spot.event.rows]
        return Injection(
            events=(attrs.evolve(spot.event, committed_len=old),), invariant="settled-bound"
        )

    late = verdicts_of(runs, shorter, Committed)
    assert late.at_once == 0
