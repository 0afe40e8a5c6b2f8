"""The states of a log at any seq."""

import pytest
import recorded_runs as made

from kvlife import LogWriter
from kvlife.errors import ConfigError, LogError
from kvlife.events import Marked
from kvlife.invariants import Checker
from kvlife.log import Retention, open_run
from kvlife.replay.history.timeline import Timeline


def digests_of(path):
    """The digest before every event, by one fold from the beginning, and at the end."""
    timeline = Timeline(open_run(path))
    found = {timeline.first_seq: timeline.state(timeline.first_seq).digest()}
    for moment in timeline.walk():
        found[moment.item.seq + 1] = moment.ledger.digest()
    return timeline, found


def test_any_state_is_that_of_one_fold(tmp_path):
    """From whichever snapshot a state is taken, it is the one that the whole fold passes."""
    made.crowded_engine(tmp_path, seed=5, num_steps=300)
    timeline, digests = digests_of(tmp_path)
    assert len(timeline.run.snapshots) > 2
    assert timeline.last_seq == timeline.run.next_seq
    assert digests[timeline.last_seq] == timeline.run.closed.digest
    for seq in range(0, timeline.last_seq + 1, 13):
        assert timeline.state(seq).digest() == digests[seq]
    assert timeline.state().digest() == digests[timeline.last_seq]


def test_a_walk_passes_each_event_once(tmp_path):
    """A walk over [5, 11) sees seqs 5 to 10, each before and after it is applied."""
    facts = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(3)]
    made.observe(tmp_path, facts)
    timeline = Timeline(open_run(tmp_path))
    seen = []
    walk = timeline.walk(5, 11, before=lambda ledger, item, _: seen.append(ledger.next_seq))
    assert [(m.item.seq, m.ledger.next_seq) for m in walk] == [(n, n + 1) for n in range(5, 11)]
    assert seen == list(range(5, 11))


def test_what_a_guard_refused_was_never_applied(tmp_path):
    """The second release of page 1 is refused: the last state is that before it."""
    twice = made.released("r1", 1, [1, 2])
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2]), [twice]], close=False)
    timeline = Timeline(open_run(tmp_path))
    assert timeline.violated.seq == 4
    assert not timeline.violated.applied
    assert (timeline.run.next_seq, timeline.last_seq) == (6, 4)
    assert timeline.state(6).next_seq == 4
    assert [moment.item.seq for moment in timeline.walk()] == [0, 1, 2, 3]


def test_states_behind_a_fault_can_be_seen_under_collect(tmp_path):
    """Where a run goes on behind a violation, so do its states."""
    twice = made.released("r1", 1, [1, 2])
    facts = [made.life_of("r1", 1, [1, 2]), [twice], made.life_of("r2", 2, [1, 2])]
    made.observe(tmp_path, facts, checker=Checker(policy="collect"))
    timeline = Timeline(open_run(tmp_path))
    assert timeline.violated is None
    assert timeline.state().next_seq == timeline.last_seq == 9
    assert timeline.state(8).requests == {"r2": 2}


def test_a_seq_outside_the_log_is_refused(tmp_path):
    """The message names the seqs that can be had."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    timeline = Timeline(open_run(tmp_path))
    for seq in (-1, 5):
        with pytest.raises(ConfigError, match="from seq 0 to 4"):
            timeline.state(seq)


def test_an_empty_run_has_one_state(tmp_path):
    """A run without events is known before its first."""
    made.observe(tmp_path, [])
    timeline = Timeline(open_run(tmp_path))
    assert (timeline.first_seq, timeline.last_seq) == (0, 0)
    assert timeline.state().is_idle
    assert list(timeline.walk()) == []


def test_a_snapshot_that_lies_is_passed_over(tmp_path):
    """A snapshot under another's name is no state of this seq: the events lead there as well."""
    facts = [made.life_of("r1", 1, [1, 2]), "snapshot", made.life_of("r2", 2, [1, 2])]
    observer = made.observe(tmp_path, facts)
    (snap,) = tmp_path.rglob("*.snap")
    snap.rename(snap.with_name(f"{6:020d}.snap"))
    timeline = Timeline(open_run(tmp_path))
    assert timeline.state(7).requests == {"r2": 2}
    assert timeline.state().digest() == observer.ledger.digest()
    (note,) = timeline.notes
    assert "the snapshot of seq 6" in note
    assert "seq 4" in note


def three_lives(tmp_path):
    """Three lives of four events, the second snapshot of which, before seq 8, is damaged."""
    lives = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(3)]
    observer = made.observe(tmp_path, [lives[0], "snapshot", lives[1], "snapshot", lives[2]])
    snap = max(tmp_path.rglob("*.snap"))
    content = bytearray(snap.read_bytes())
    content[-1] ^= 0x40
    snap.write_bytes(content)
    return observer


def test_the_states_behind_a_damaged_snapshot_are_those_of_the_events(tmp_path):
    """All events are there, and a snapshot before them: each state is known; a note says how."""
    observer = three_lives(tmp_path)
    timeline = Timeline(open_run(tmp_path))
    assert timeline.notes == ()
    assert timeline.state().digest() == observer.ledger.digest()
    assert timeline.state(9).requests == {"r2": 1}
    assert [moment.item.seq for moment in timeline.walk(8)] == [8, 9, 10, 11]
    assert ["snapshot of seq 8" in note for note in timeline.notes] == [True]


def test_the_commands_go_on_behind_a_damaged_snapshot(tmp_path, capsys):
    """`inspect`, `page --all` and `bisect` tell all, and which snapshot could not be read."""
    three_lives(tmp_path)
    status, state = made.answered(capsys, "inspect", tmp_path, "--at", 9)
    assert (status, state["seq"]) == (0, 9)
    status, life = made.answered(capsys, "page", tmp_path, 1, "--all")
    taken = [touch["seq"] for touch in life["touches"] if touch["begins"]]
    assert (status, taken, life["troubles"]) == (0, [1, 5, 9], [])
    status, found = made.answered(capsys, "bisect", tmp_path, "seq >= 9")
    assert (status, found["seq"]) == (0, 9)
    for told in (state, life, found):
        assert any("snapshot of seq 8" in note for note in told["notes"])


def test_where_the_only_state_is_damaged_the_message_says_why(tmp_path):
    """Retention took the beginning, and the oldest snapshot that is left cannot be read."""
    retention = Retention(keep_bytes=9000)
    writer = LogWriter(tmp_path, retention=retention, segment_bytes=4096, compress=False)
    notes = [[Marked("x" * 60, False)] for _ in range(100)]
    made.observe(tmp_path, [fact for _ in range(6) for fact in (*notes, "snapshot")], writer=writer)
    begins = open_run(tmp_path).begins_at
    min(tmp_path.rglob("*.snap")).write_bytes(b"nothing")
    with pytest.raises(LogError, match=f"history begins at .*{begins}"):
        Timeline(open_run(tmp_path)).state(begins)


def test_a_state_is_folded_on_from_inside_a_group(tmp_path):
    """From the state at seq 2, amid a group of four events, to those at 3, at 6 and at the end."""
    facts = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(2)]
    made.observe(tmp_path, facts)
    timeline = Timeline(open_run(tmp_path))
    ledger = timeline.state(2)
    for seq in (3, 6, 8):
        ledger = timeline.onward(ledger, seq)
        assert ledger.next_seq == seq
        assert ledger.digest() == timeline.state(seq).digest()
