"""A sound run replays to the recorded state, however it is split."""

import pytest
import recorded_runs as made

from kvlife import CacheGroup, Checker, LogWriter
from kvlife.log import Retention, open_run

WINDOW = (CacheGroup("full"), CacheGroup("swa", window=8, num_pages=96))


@pytest.mark.parametrize("groups", [None, WINDOW], ids=["full", "window"])
def test_a_crowded_run_replays_to_its_digest(tmp_path, capsys, groups):
    """The final digest, every snapshot and every event are held against the log, and agree."""
    engine = made.crowded_engine(tmp_path, seed=1, groups=groups)
    status, seen = made.replayed(capsys, tmp_path)
    assert status == 0
    assert seen["digest_ok"] is True
    assert seen["digest"] == f"{engine.ledger.digest():016x}"
    assert seen["events"] == seen["checked"] == engine.next_seq
    assert seen["violations"] == seen["differences"] == seen["holes"] == []
    assert seen["snapshots"] == len(open_run(tmp_path).snapshots) > 0


@pytest.mark.parametrize("jobs", [2, 3])
def test_processes_agree_with_one(tmp_path, capsys, jobs):
    """Intervals between snapshots in several processes find what one process finds."""
    made.crowded_engine(tmp_path, seed=2)
    _, alone = made.replayed(capsys, tmp_path)
    _, together = made.replayed(capsys, tmp_path, "--jobs", jobs)
    assert together["jobs"] > 1
    for name in ("jobs", "seconds", "events_per_second"):
        del alone[name], together[name]
    assert together == alone


def test_a_run_without_a_snapshot_takes_one_process(tmp_path, capsys):
    """Where there is nothing to split at, --jobs changes nothing."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    status, seen = made.replayed(capsys, tmp_path, "--jobs", 8)
    assert (status, seen["jobs"], seen["events"], seen["digest_ok"]) == (0, 1, 4, True)


def test_an_empty_run_says_that_nothing_was_checked(tmp_path, capsys):
    """A run without events replays to the empty state, under an audit of it alone."""
    made.observe(tmp_path, [])
    status, seen = made.replayed(capsys, tmp_path)
    assert (status, seen["events"], seen["checked"], seen["digest_ok"]) == (0, 0, 0, True)


def test_level_off_compares_digests_alone_and_says_so(tmp_path, capsys):
    """With --check off nothing is checked, and the report says what that leaves."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    status, out, _ = made.shown(capsys, tmp_path, "--check", "off")
    assert status == 0
    assert "checked     NOTHING" in out
    assert "as recorded" in out


def test_the_report_names_what_was_checked_and_what_was_not(tmp_path, capsys):
    """4 events name row 1 each, 2 pages are taken and 2 let go: 4 events, 4 rows, 4 pages."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    status, out, _ = made.shown(capsys, tmp_path, "--ignore", "refs-balance")
    assert status == 0
    assert "checked     4 events, 4 rows, 4 pages, 1 audit" in out
    lines = [line for line in out.splitlines() if line.startswith("not checked")]
    assert lines[0] == "not checked refs-balance: ignored"
    assert lines[1].startswith("not checked 5 invariants that cannot be checked here: ")
    assert "device-agrees" in lines[1]
    assert lines[1].endswith("; --json says why")
    assert len(lines) == 2
    assert "a second)" in out


def test_a_killed_run_is_held_against_its_snapshots_alone(tmp_path, capsys):
    """Without an end mark the run is said not to be closed, and its last digest is not judged."""
    facts = [made.life_of("r1", 1, [1, 2]), "snapshot", made.life_of("r2", 2, [2, 1])]
    observer = made.observe(tmp_path / "log", facts, close=False)
    killed = made.copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "killed")
    observer.close()
    status, seen = made.replayed(capsys, killed)
    assert (status, seen["closed"], seen["events"]) == (0, False, 8)
    assert (seen["snapshots"], seen["digest_ok"]) == (1, True)
    _, out, _ = made.shown(capsys, killed)
    assert "the run's end is not here: its process was killed" in out


def test_a_run_that_is_being_written_is_told_from_a_killed_one(tmp_path, capsys):
    """Replay and report say that its writer is still there."""
    observer = made.observe(tmp_path / "log", [made.life_of("r1", 1, [1, 2])], close=False)
    for command in ("replay", "report"):
        output = ("-o", tmp_path / "r.html") if command == "report" else ()
        status, out, _ = made.ran(capsys, command, tmp_path / "log", *output)
        assert status == 0
        assert "the run is not closed: another process is writing it" in " ".join(out.split())
    assert "another process is writing it" in (tmp_path / "r.html").read_text(encoding="utf-8")
    observer.close()


def test_a_killed_run_without_a_snapshot_is_compared_with_nothing(tmp_path, capsys):
    """Where the log names no digest at all, digest_ok is null."""
    facts = [made.life_of("r1", 1, [1, 2])]
    observer = made.observe(tmp_path / "log", facts, close=False)
    killed = made.copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "killed")
    observer.close()
    status, seen = made.replayed(capsys, killed)
    assert (status, seen["digest_ok"], seen["events"]) == (0, None, 4)


def test_from_starts_at_the_newest_snapshot_before(tmp_path, capsys):
    """Snapshots lie at seqs 4 and 8; --from 7 starts at 4, --from 8 at 8, --from 3 at the start."""
    lives = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(3)]
    facts = [lives[0], "snapshot", lives[1], "snapshot", lives[2]]
    made.observe(tmp_path, facts)
    starts = {}
    for first in (3, 4, 7, 8):
        status, seen = made.replayed(capsys, tmp_path, "--from", first)
        assert (status, seen["digest_ok"]) == (0, True)
        starts[first] = (seen["first_seq"], seen["events"])
    assert starts == {3: (0, 12), 4: (4, 8), 7: (4, 8), 8: (8, 4)}


def test_to_stops_after_the_seq_it_names(tmp_path, capsys):
    """--to 5 replays seqs 0 to 5, within a group too, and holds no end mark against it."""
    lives = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(2)]
    made.observe(tmp_path, [lives[0], "snapshot", lives[1]])
    status, seen = made.replayed(capsys, tmp_path, "--to", 5)
    assert (status, seen["events"], seen["next_seq"]) == (0, 6, 6)
    assert (seen["snapshots"], seen["digest_ok"]) == (1, True)
    status, seen = made.replayed(capsys, tmp_path, "--from", 4, "--to", 4)
    assert (status, seen["first_seq"], seen["events"], seen["digest_ok"]) == (0, 4, 1, None)


def test_history_that_begins_late_starts_at_its_oldest_snapshot(tmp_path, capsys):
    """Where retention took the beginning, the replay starts from the first snapshot left."""
    writer = LogWriter(
        tmp_path,
        segment_bytes=4096,
        snapshot_every_bytes=1024,
        compress=False,
        retention=Retention(keep_bytes=16_000),
    )
    lives = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(600)]
    facts = [step for n, life in enumerate(lives) for step in (life, *["snapshot"] * (n % 20 == 0))]
    made.observe(tmp_path, facts, writer=writer)
    run = open_run(tmp_path)
    assert run.begins_at > 0
    for jobs in (1, 2):
        status, seen = made.replayed(capsys, tmp_path, "--jobs", jobs)
        assert (status, seen["digest_ok"]) == (0, True)
        assert (seen["first_seq"], seen["next_seq"]) == (run.begins_at, 2400)
    status, _, err = made.shown(capsys, tmp_path, "--from", 0)
    assert status == 2
    assert f"history begins at seq {run.begins_at}" in err


def test_the_newest_run_of_a_folder_is_taken(tmp_path, capsys):
    """A folder of runs stands for its newest; an older one is named by its own folder."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    made.observe(tmp_path, [])
    assert made.replayed(capsys, tmp_path)[1]["events"] == 0
    assert made.replayed(capsys, tmp_path / "run-000001")[1]["events"] == 4


@pytest.mark.parametrize("level", ["event", "step", "sample"])
def test_the_level_of_the_run_does_not_matter(tmp_path, capsys, level):
    """The replay checks every event, whatever the run itself checked."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])], checker=Checker(level=level))
    status, seen = made.replayed(capsys, tmp_path)
    assert (status, seen["checked"], seen["digest_ok"]) == (0, 4, True)
