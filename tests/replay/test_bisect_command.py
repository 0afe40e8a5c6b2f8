"""`kvlife bisect`: the event after which something holds first, and how certain that is."""

import json

import numpy as np
import pytest
import recorded_runs as made

from kvlife import LogWriter
from kvlife.events import BY_CODE, Marked
from kvlife.invariants import Checker
from kvlife.log import Retention, open_run
from kvlife.replay.cli import main
from kvlife.replay.finding.bisection import SEARCHES, Searcher
from kvlife.replay.finding.conditions import parse_condition
from kvlife.replay.history.timeline import Timeline

# Each life: admitted, pages 1 and 2 taken, committed, released. 31 pages are free else.
LIVES = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(4)]
WITH_SNAPSHOTS = [LIVES[0], "snapshot", LIVES[1], "snapshot", LIVES[2], "snapshot", LIVES[3]]


def bisected(capsys, *arguments):
    """Run `kvlife bisect --json` and return its exit status and object."""
    status = main(["bisect", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert not err
    return status, json.loads(out)


def shown(capsys, *arguments):
    status = main(["bisect", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_the_event_behind_which_a_metric_passes_its_bound(tmp_path, capsys):
    """r0's allocation, seq 1, takes 2 of 31 free pages; what it touched is told."""
    made.observe(tmp_path, [LIVES[0]])
    status, seen = bisected(capsys, tmp_path, "free_pages < 31")
    assert (status, seen["found"], seen["seq"], seen["kind"]) == (0, True, 1, "Allocated")
    assert (seen["before"], seen["after"]) == ({"free_pages": 31}, {"free_pages": 29})
    assert seen["num_touched"] == {"pages": 2, "rows": 1}
    assert seen["touched"][0] == {
        "what": "pages 1-2 of full",
        "left": "FREE",
        "right": "PRIVATE, refs 1",
    }
    assert seen["certain_from"] == 0
    (run,) = tmp_path.iterdir()
    assert seen["next"] == [
        f"kvlife inspect {run} --at 1",
        f"kvlife page {run} 1 --group full",
        f"kvlife request {run} r0",
    ]


def test_the_report_reads_as_a_finding(tmp_path, capsys):
    """The event, the value on both sides of it, and that nothing before it had it."""
    made.observe(tmp_path, [LIVES[0]])
    status, out, err = shown(capsys, tmp_path, "refs(page=2) > 0")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[1].startswith("found       seq 1, step 0")
    assert lines[2].strip() == "Allocated rows 1, allocated_len 8, pages 1-2"
    assert "value       refs(page=2): 0 -> 1" in lines
    assert any(line.startswith("certain     every event before it") for line in lines)


@pytest.mark.parametrize(("search", "states"), [("snapshots", 4), ("halving", 4)])
def test_what_never_ceases_is_found_between_two_snapshots(tmp_path, capsys, search, states):
    """Known states 0, 4, 8, 12 and the end: before 12 it holds first, so [8, 12) is folded."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    _, seen = bisected(capsys, tmp_path, "seq >= 9", "--search", search)
    assert (seen["seq"], seen["certain_from"]) == (9, 8)
    # Walked: 0, 4, 8, 12. Halved: 0 first, the end, then 8 and 12.
    assert (seen["states"], seen["events"]) == (states, 2)


def test_what_holds_for_a_while_is_found_for_certain_only_behind_every_event(tmp_path, capsys):
    """Pages are taken in each life and free at each snapshot: the default says what it missed."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    _, seen = bisected(capsys, tmp_path, "free_pages < 31")
    assert (seen["seq"], seen["certain_from"]) == (13, 12)
    _, out, _ = shown(capsys, tmp_path, "free_pages < 31")
    assert "--search=events looks there" in out
    _, seen = bisected(capsys, tmp_path, "free_pages < 31", "--search", "events")
    assert (seen["seq"], seen["certain_from"]) == (1, 0)


def test_where_no_known_state_has_it_every_event_is_looked_at(tmp_path, capsys):
    """Neither a snapshot nor the last stretch has r1, so that the rest is folded: certain."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    for search in SEARCHES:
        _, seen = bisected(capsys, tmp_path, "state(request=r1) == HELD", "--search", search)
        assert (seen["seq"], seen["certain_from"]) == (4, 0)


def test_what_never_holds_is_said_to(tmp_path, capsys):
    """Exit status 0, and the value at the end."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    status, seen = bisected(capsys, tmp_path, "rows_held > 1")
    assert (status, seen["found"], seen["seq"]) == (0, False, None)
    assert seen["after"] == {"rows_held": 0}
    _, out, _ = shown(capsys, tmp_path, "rows_held > 1")
    assert "never       it holds in no state" in out


def test_what_holds_already_has_no_event(tmp_path, capsys):
    """In the empty state 31 pages are free: no event has brought that."""
    made.observe(tmp_path, [LIVES[0]])
    _, seen = bisected(capsys, tmp_path, "free_pages == 31")
    assert (seen["found"], seen["seq"], seen["holds_before_seq"]) == (True, None, 0)
    _, seen = bisected(capsys, tmp_path, "free_pages == 31", "--from", 2)
    assert seen["seq"] == 3


def test_a_search_keeps_to_its_bounds(tmp_path, capsys):
    """From seq 5 on the second life's allocation is the first; up to seq 0 there is none."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    _, seen = bisected(capsys, tmp_path, "rows_held > 0", "--from", 4, "--to", 7)
    assert seen["seq"] == 4
    _, seen = bisected(capsys, tmp_path, "free_pages < 31", "--to", 0)
    assert not seen["found"]
    assert seen["searched"] == [0, 1]
    for bounds in (("--from", "16"), ("--to", "-1"), ("--from", "5", "--to", "4")):
        status, _, err = shown(capsys, tmp_path, "seq > 3", *bounds)
        assert status == 2
        assert bounds[0] in err


@pytest.fixture
def later(tmp_path):
    """Notes up to seq 599, the first segments of which retention has taken, and then a life."""
    retention = Retention(keep_bytes=9000)
    writer = LogWriter(tmp_path, retention=retention, segment_bytes=4096, compress=False)
    noted = [[Marked("x" * 60, False)] for _ in range(100)]
    facts = [fact for _ in range(6) for fact in (*noted, "snapshot")]
    twice = made.released("r0", 1, [1, 2])
    checker = Checker(policy="collect")
    made.observe(tmp_path, [*facts, LIVES[0], [twice]], writer=writer, checker=checker)
    run = open_run(tmp_path)
    assert 0 < run.begins_at < 600
    return run


@pytest.mark.parametrize("condition", ["free_pages < 31", "release-once"])
def test_the_first_since_history_begins_is_not_said_to_be_the_first(later, capsys, condition):
    """What retention took was not looked at: the allocation at 601, the second release at 604."""
    begins = later.begins_at
    _, seen = bisected(capsys, later.path, condition, "--search", "events")
    assert (seen["seq"], seen["begins_at"]) == (604 if "-" in condition else 601, begins)
    _, out, _ = shown(capsys, later.path, condition, "--search", "events")
    assert f"from seq {begins}, where history begins, was looked at" in out
    assert "it is the first since then" in out
    assert "every event before it" not in out
    assert f"history begins at seq {begins}: what lies before is gone" in out


@pytest.mark.parametrize("condition", ["rows_held > 1", "ladder-order"])
def test_never_is_said_of_what_history_there_is(later, capsys, condition):
    """A metric and a guard alike: what lies before the beginning may have had it."""
    status, out, _ = shown(capsys, later.path, condition)
    assert (status, "never" in out) == (0, True)
    assert f"history begins at seq {later.begins_at}: what lies before is gone" in out


def test_what_held_when_history_began_says_so(later, capsys):
    """All pages are free in the oldest state there is, and no event has brought that."""
    _, out, _ = shown(capsys, later.path, "free_pages == 31")
    assert f"already in the state before seq {later.begins_at}, where history begins" in out


def test_a_search_from_a_later_event_does_not_speak_of_those_before(tmp_path, capsys):
    """The second life's allocation, seq 5, is the first since seq 4 alone."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    options = ("--from", 4, "--search", "events")
    _, out, _ = shown(capsys, tmp_path, "free_pages < 31", *options)
    assert "every event from seq 4, where the search began, was looked at" in out
    assert "history begins" not in out


def test_a_function_of_the_users_own_is_searched_for(tmp_path, capsys, monkeypatch):
    """It is imported from the current folder, and called with each ledger."""
    (tmp_path / "mine.py").write_text("def held(ledger):\n    return 'r2' in ledger.requests\n")
    monkeypatch.chdir(tmp_path)
    made.observe(tmp_path / "log", WITH_SNAPSHOTS)
    status, seen = bisected(capsys, tmp_path / "log", "mine:held")
    assert (status, seen["seq"], seen["before"]) == (0, 8, {})


def test_what_never_was_there_is_no_answer(tmp_path, capsys):
    """A request that the log does not have, and a page beyond the pool: exit status 2."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    for text in ("committed(request=r9) > 1", "refs(page=32) > 0"):
        status, out, err = shown(capsys, tmp_path, text)
        assert (status, out) == (2, "")
        assert text.partition(" ")[0] in err


def test_a_condition_that_does_not_parse_is_shown(tmp_path, capsys):
    """Exit status 2, a caret under the place, and the metrics there are."""
    made.observe(tmp_path, [LIVES[0]])
    status, out, err = shown(capsys, tmp_path, "free_pages <> 3")
    assert (status, out) == (2, "")
    lines = err.splitlines()
    assert lines[1:3] == ["  free_pages <> 3", " " * 14 + "^"]
    assert "refs" in lines[3]


def test_a_violation_that_ended_the_run_is_found_at_once(tmp_path, capsys):
    """The second release, seq 4, was refused by a guard, as the run's log says: no fold."""
    twice = made.released("r0", 1, [1, 2])
    made.observe(tmp_path, [LIVES[0], [twice]], close=False)
    status, seen = bisected(capsys, tmp_path, "release-once")
    assert (status, seen["seq"], seen["applied"]) == (1, 4, False)
    assert (seen["events"], seen["kind"]) == (0, "Released")
    assert seen["evidence"]
    status, out, _ = shown(capsys, tmp_path, "release-once")
    assert "a guard refused it" in out
    assert "the run's own checker asked about every event before it" in out


def test_what_one_event_breaks_besides_is_found_in_it_too(tmp_path, capsys):
    """The same release names free pages: it breaks page-double-free as well, at the same seq."""
    twice = made.released("r0", 1, [1, 2])
    made.observe(tmp_path, [LIVES[0], [twice]], close=False)
    status, seen = bisected(capsys, tmp_path, "page-double-free")
    assert (status, seen["seq"], seen["events"]) == (1, 4, 4)


@pytest.mark.parametrize("facts", [[LIVES[0]], [LIVES[0], "snapshot"]])
def test_a_guards_objection_is_found_though_the_state_forgets_it(tmp_path, capsys, facts):
    """Under collect the release is applied and changes nothing: only a checked fold finds it."""
    twice = made.released("r0", 1, [1, 2])
    facts = [*facts, [twice], "snapshot", LIVES[1], "snapshot", LIVES[2]]
    made.observe(tmp_path, facts, checker=Checker(policy="collect"))
    status, seen = bisected(capsys, tmp_path, "release-once")
    assert (status, seen["seq"], seen["applied"]) == (1, 4, True)


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", ["page-aliased", "page-double-alloc"])
def test_an_audits_objection_is_found_at_the_event_that_brought_it(tmp_path, capsys, name, search):
    """Row 2 gets row 1's pages by seq 104, between 300 notes: an audit sees it from there on."""
    notes = [[Marked(f"note {n}", False)] for n in range(300)]
    facts = [LIVES[0][:3], "snapshot", *notes[:100], [made.admitted("r1", 2)]]
    facts += [[made.allocated([2], [8], [1, 2])], *notes[100:], "snapshot", notes[0]]
    made.observe(tmp_path, facts, checker=Checker(policy="collect"), close=False)
    status, seen = bisected(capsys, tmp_path, name, "--search", search)
    assert (status, seen["seq"], seen["kind"]) == (1, 104, "Allocated")
    assert seen["evidence"]["pages"] == [1, 2]


def test_an_invariant_that_holds_is_never_broken(tmp_path, capsys):
    """Guards and audits alike: exit status 0."""
    made.observe(tmp_path, WITH_SNAPSHOTS)
    for name in ("ladder-order", "page-conservation", "idle-no-leak"):
        status, seen = bisected(capsys, tmp_path, name)
        assert (status, seen["found"]) == (0, False)


def test_what_no_log_can_show_is_refused(tmp_path, capsys):
    """Device checks, and what compares logs: the latter names the command that does."""
    made.observe(tmp_path, [LIVES[0]])
    for name, words in (("device-agrees", "not checked"), ("rank-agreement", "kvlife diff")):
        status, _, err = shown(capsys, tmp_path, name)
        assert status == 2
        assert words in err


def test_events_that_are_missing_are_named(tmp_path, capsys):
    """r1's life is damaged: behind the hole the state has r1's mark, and no event brought it."""
    facts = [LIVES[0], "snapshot", LIVES[1][:3], "snapshot", LIVES[2][3:], LIVES[3][:1]]
    facts[4] = [made.released("r1", 1, [1, 2])]
    writer = LogWriter(tmp_path, compress=False, snapshot_every_bytes=1 << 20)
    made.observe(tmp_path, facts, writer=writer, close=False)
    writer.wait()
    (path,) = tmp_path.rglob("*.seg")
    content = bytearray(path.read_bytes())
    content[content.index(b"r1")] ^= 0x40
    path.write_bytes(content)
    status, _, err = shown(capsys, tmp_path, "state(request=r1) == HELD")
    assert status == 2
    assert "--salvage" in err
    status, seen = bisected(capsys, tmp_path, "state(request=r1) == HELD", "--salvage")
    assert (status, seen["found"], seen["seq"]) == (0, True, None)
    assert (seen["missing_from"], seen["holds_before_seq"]) == (4, 7)
    assert any("salvage left out" in note for note in seen["notes"])


def test_an_empty_run_holds_nothing(tmp_path, capsys):
    """A run without events has one state."""
    made.observe(tmp_path, [])
    status, out, _ = shown(capsys, tmp_path, "rows_held > 0")
    assert status == 0
    assert "not in the one state there is" in out
    _, seen = bisected(capsys, tmp_path, "rows_held == 0")
    assert seen["holds_before_seq"] == 0


@pytest.mark.soak
def test_the_search_agrees_with_a_look_at_every_state(tmp_path, seed):
    """For random bounds, each way of searching gives an event that one fold would choose."""
    made.crowded_engine(tmp_path, seed=seed, num_steps=150)
    run = open_run(tmp_path)
    timeline = Timeline(run)
    values = {timeline.first_seq: free_of(timeline.state(timeline.first_seq))}
    values |= {moment.item.seq + 1: free_of(moment.ledger) for moment in timeline.walk()}
    rng = np.random.default_rng(seed)
    for bound in rng.integers(min(values.values()), 96, 12).tolist():
        condition = parse_condition(f"free_pages < {bound}", run.layout)
        having = [seq for seq, num in values.items() if num < bound]
        for search in SEARCHES:
            found = Searcher(timeline, condition.holds, search=search).find()
            if not having:
                assert not found.found
                continue
            # The event of seq s leads to the state before seq s + 1.
            after = found.item.seq + 1
            assert values[after] < bound <= values[after - 1]
            assert free_of(found.ledger) == values[after]
            if search == "events" or found.certain_from == timeline.first_seq:
                assert after == having[0]
            low = found.certain_from
            assert after == min(seq for seq in having if seq > low)
            if search == "snapshots" and found.certain_from:
                assert not any(seq <= low for seq in having if seq in run.snapshots)


def free_of(ledger):
    return ledger.spaces[0].free.num_free


def test_an_audit_that_finds_nothing_says_what_it_looked_at(tmp_path, capsys):
    """It was made at the known states, and not between all of them, unless that is asked for."""
    notes = [[Marked(f"note {n}", False)] for n in range(300)]
    made.observe(tmp_path, [*notes, "snapshot", *notes[:100], "snapshot", *notes])
    status, seen = bisected(capsys, tmp_path, "page-conservation")
    assert (status, seen["found"], seen["certain_from"]) == (0, False, 700)
    _, out, _ = shown(capsys, tmp_path, "page-conservation")
    assert "--search=events looks there" in out
    status, seen = bisected(capsys, tmp_path, "page-conservation", "--search", "events")
    assert (status, seen["found"], seen["certain_from"]) == (0, False, 0)


def test_events_of_a_newer_version_are_not_passed_over(tmp_path, capsys, monkeypatch):
    """A search that must fold one ends with 2; what lies behind the next snapshot can be had."""
    made.observe(tmp_path, [LIVES[0], "snapshot", [Marked("new", False)], "snapshot", LIVES[1]])
    monkeypatch.delitem(BY_CODE, Marked.CODE)
    asked = "state(request=r1) == HELD"
    for arguments in ((asked, "--search", "events"), ("release-once",)):
        status, _, err = shown(capsys, tmp_path, *arguments)
        assert status == 2
        assert f"code={Marked.CODE}" in err
    status, seen = bisected(capsys, tmp_path, asked)
    assert (status, seen["seq"], seen["certain_from"]) == (0, 5, 5)
    status, seen = bisected(capsys, tmp_path, asked, "--search", "events", "--salvage")
    assert (status, seen["seq"]) == (0, 5)
    assert any("unknown kind" in note for note in seen["notes"])
