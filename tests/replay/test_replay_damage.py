"""Logs with gaps, damage and events that fit nothing: what is left out is said."""

import numpy as np
import pytest
import recorded_runs as made

from kvlife import LogWriter
from kvlife.errors import LogError
from kvlife.events import BY_CODE, Marked, Resized
from kvlife.log import open_run, segment
from kvlife.log.files import snapshot_path
from kvlife.replay.replaying.session import Settings, replay_run

LIVES = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(4)]


def flip(path, offset):
    """Change one byte of a file."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x40
    path.write_bytes(content)


def spoilt_run(root):
    """Four lives with snapshots before the second, third and fourth; the second is damaged."""
    facts = [LIVES[0], "snapshot", LIVES[1], "snapshot", LIVES[2], "snapshot", LIVES[3]]
    writer = LogWriter(root, compress=False, snapshot_every_bytes=1 << 20)
    observer = made.observe(root, facts, writer=writer)
    (path,) = root.rglob("*.seg")
    flip(path, path.read_bytes().index(b"r1", path.read_bytes().index(b"r1") + 1))
    return observer


def test_damage_is_refused_with_the_way_out(tmp_path, capsys):
    """A bad record with valid ones after it is corruption; the message names --salvage."""
    spoilt_run(tmp_path)
    status, out, err = made.shown(capsys, tmp_path)
    assert (status, out) == (2, "")
    assert "--salvage" in err


@pytest.mark.parametrize("jobs", [1, 2])
def test_salvage_goes_on_from_the_next_snapshot(tmp_path, capsys, jobs):
    """The life of seqs 4 to 7 is left out and named; the states behind it are the recorded ones."""
    observer = spoilt_run(tmp_path)
    status, seen = made.replayed(capsys, tmp_path, "--salvage", "--jobs", jobs)
    assert status == 0
    ((first_seq, next_seq),) = [(hole["first_seq"], hole["next_seq"]) for hole in seen["holes"]]
    assert 4 <= first_seq < next_seq == 8
    assert seen["events"] == 16 - (next_seq - first_seq)
    assert seen["digest"] == f"{observer.ledger.digest():016x}"
    assert seen["digest_ok"] is True
    assert "--salvage" not in str(seen), "nobody is told to do what is being done"


def test_a_snapshot_that_is_not_the_state_is_a_difference(tmp_path, capsys):
    """A snapshot of another state at its seq is told apart, and the replay goes on from it."""
    made.observe(tmp_path / "log", [LIVES[0], "snapshot", LIVES[1]])
    other = [made.admitted("r0", 1), *LIVES[0][1:3], made.released("r0", 1, [1, 2], "aborted")]
    other[3] = Marked("the row is still held", False)
    made.observe(tmp_path / "other", [other, "snapshot"])
    (target,) = (tmp_path / "log").rglob("*.snap")
    (source,) = (tmp_path / "other").rglob("*.snap")
    target.write_bytes(with_place_of(source.read_bytes(), target.read_bytes()))
    status, seen = made.replayed(capsys, tmp_path / "log")
    assert status == 1
    assert seen["differences"][0]["kind"] == "snapshot"
    assert seen["differences"][0]["seq"] == 4
    assert seen["digest_ok"] is False


def spoilt_snapshots(root):
    """Four lives, and the second of three snapshots, before seq 8, is damaged; no event is."""
    facts = [LIVES[0], "snapshot", LIVES[1], "snapshot", LIVES[2], "snapshot", LIVES[3]]
    made.observe(root, facts)
    flip(sorted(root.rglob("*.snap"))[1], -1)


@pytest.mark.parametrize("options", [(), ("--from", 9), ("--jobs", 2)])
def test_a_snapshot_that_cannot_be_read_is_refused_with_the_way_out(tmp_path, capsys, options):
    """Whether the replay passes it or begins there, the message names --salvage."""
    spoilt_snapshots(tmp_path)
    status, out, err = made.shown(capsys, tmp_path, *options)
    assert (status, out) == (2, "")
    assert f"{8:020d}.snap" in err
    assert "--salvage" in err


@pytest.mark.parametrize(
    ("options", "start"), [((), 0), (("--from", 9), 4), (("--jobs", 2), 0), (("--jobs", 4), 0)]
)
def test_salvage_replays_all_events_without_a_bad_snapshot(tmp_path, capsys, options, start):
    """No event is lost: the replay begins at the snapshot before, and passes the bad one."""
    spoilt_snapshots(tmp_path)
    status, seen = made.replayed(capsys, tmp_path, "--salvage", *options)
    assert (status, seen["first_seq"], seen["events"]) == (0, start, 16 - start)
    assert (seen["holes"], seen["digest_ok"]) == ([], True)
    assert seen["snapshots"] == 2 - (start > 0)
    assert sum(f"{8:020d}.snap" in note for note in seen["notes"]) == 1
    assert "--salvage" not in str(seen)


def with_place_of(content, other):
    """A snapshot file's content under the head fields that say where another one stands."""
    import zlib  # only this test reads heads

    from kvlife.log.wire import CRC, SNAPSHOT_HEAD  # as above

    ours = list(SNAPSHOT_HEAD.unpack_from(content))
    theirs = SNAPSHOT_HEAD.unpack_from(other)
    ours[3], ours[5], ours[6] = theirs[3], theirs[5], theirs[6]
    head = SNAPSHOT_HEAD.pack(*ours)
    return head + CRC.pack(zlib.crc32(head)) + content[SNAPSHOT_HEAD.size + CRC.size :]


def test_a_state_that_retention_removed_meanwhile_is_no_damage(tmp_path):
    """A live run goes on: what has gone since it was opened asks for another try, not salvage."""
    engine = made.crowded_engine(tmp_path, seed=3, num_steps=60, close=False)
    run = open_run(tmp_path)
    snapshot_path(run.folder, run.snapshots[-1]).unlink()
    settings = Settings(level="event", first_seq=run.snapshots[-1])
    with pytest.raises(LogError, match="retention has removed it since: try again") as caught:
        replay_run(run, settings)
    assert "--salvage" not in str(caught.value)
    engine.close()


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_gap_is_stepped_over_and_told(tmp_path, capsys, monkeypatch, jobs):
    """Where the disk was full, the replay goes on from the snapshot that ended the gap."""
    writer = LogWriter(
        tmp_path, on_full="gap", segment_bytes=4096, snapshot_every_bytes=1 << 20, compress=False
    )
    observer = made.observe(tmp_path, around_a_full_disk(monkeypatch), writer=writer)
    assert observer.stats().gaps == 1
    status, seen = made.replayed(capsys, tmp_path, "--jobs", jobs)
    assert status == 0
    assert seen["digest_ok"] is True
    ((hole),) = seen["holes"]
    assert "disk was full" in hole["why"]
    assert seen["events"] == observer.next_seq - (hole["next_seq"] - hole["first_seq"])


def around_a_full_disk(monkeypatch):
    """Marks outgrow a segment while no space can be had; a snapshot follows once there is."""
    room = {"left": True}
    real = segment.reserve_space

    def reserve(*arguments):
        if not room["left"]:
            raise OSError(28, "No space left on device")
        return real(*arguments)

    monkeypatch.setattr(segment, "reserve_space", reserve)
    yield LIVES[0]
    yield "snapshot"
    room["left"] = False
    for _ in range(12):
        yield [Marked("x" * 1000, False)]
    room["left"] = True
    yield "snapshot"
    yield LIVES[1]


def test_an_unknown_kind_of_event_is_refused_and_never_passed_over(tmp_path, capsys, monkeypatch):
    """A kind that this version does not know cannot be folded: it ends the replay with 2."""
    made.observe(tmp_path, [LIVES[0], "snapshot", [Marked("new", False)], "snapshot", LIVES[1]])
    monkeypatch.delitem(BY_CODE, Marked.CODE)
    status, _, err = made.shown(capsys, tmp_path)
    assert status == 2
    assert "seq 4" in err
    assert f"code={Marked.CODE}" in err


def test_salvage_leaves_an_unknown_kind_out(tmp_path, capsys, monkeypatch):
    """With --salvage the replay goes on from the snapshot behind it, and says what it left out."""
    made.observe(tmp_path, [LIVES[0], "snapshot", [Marked("new", False)], "snapshot", LIVES[1]])
    monkeypatch.delitem(BY_CODE, Marked.CODE)
    status, seen = made.replayed(capsys, tmp_path, "--salvage")
    assert (status, seen["digest_ok"], seen["events"]) == (0, True, 8)
    assert [(hole["first_seq"], hole["next_seq"]) for hole in seen["holes"]] == [(4, 5)]
    assert any(f"unknown kind {Marked.CODE}" in note for note in seen["notes"])
    assert "--salvage" not in str(seen)


def test_an_event_beyond_pools_that_shrank_is_refused(tmp_path, capsys):
    """After a shrink to 8 pages, page 20 is no page: the event is ill-formed, and its seq named."""
    writer = LogWriter(tmp_path)
    made.observe(tmp_path, [[Resized(0, 8)], [made.admitted("r1", 1)]], writer=writer, close=False)
    writer.append(2, 0, 0, [made.allocated([1], [4], [20])])
    writer.close()
    status, _, err = made.shown(capsys, tmp_path)
    assert status == 2
    assert "seq 2" in err
    assert "out of [0, 8)" in err


def test_pools_that_grow_replay(tmp_path, capsys):
    """A page that the pools did not have at the start is known after they grew."""
    facts = [
        [Resized(0, 64)],
        made.life_of("r1", 1, [50, 60]),
        "snapshot",
        made.life_of("r2", 1, [60, 50]),
    ]
    made.observe(tmp_path, facts)
    for arguments in ([], ["--from", 5]):
        status, seen = made.replayed(capsys, tmp_path, *arguments)
        assert (status, seen["digest_ok"]) == (0, True)


def test_pools_that_grow_beyond_memory_are_refused(tmp_path, capsys):
    """A resize that no machine could follow is refused, not tried."""
    writer = LogWriter(tmp_path)
    made.observe(tmp_path, [], writer=writer, close=False)
    writer.append(0, 0, 0, [Resized(0, (1 << 62) + 1)])
    writer.close()
    status, _, err = made.shown(capsys, tmp_path)
    assert status == 2
    assert "seq 0" in err


def test_a_tear_at_the_end_is_dropped_and_told(tmp_path, capsys):
    """An unreadable end of a killed run is left out with a note; what stands before it replays."""
    writer = LogWriter(tmp_path / "log", compress=False)
    observer = made.observe(tmp_path / "log", LIVES, writer=writer, close=False)
    killed = made.copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "killed")
    observer.close()
    (path,) = killed.glob("*.seg")
    flip(path, path.read_bytes().rindex(b"r3"))
    status, seen = made.replayed(capsys, killed)
    assert (status, seen["closed"]) == (0, False)
    assert 12 <= seen["events"] < 16
    assert any("unreadable end" in note for note in seen["notes"])


def test_bytes_at_random_end_in_a_message_or_a_finding(tmp_path, capsys, seed):
    """Flipped bytes anywhere in a run give a status of 0, 1 or 2, and no traceback."""
    made.crowded_engine(tmp_path / "log", seed=4, num_steps=60)
    (run,) = (tmp_path / "log").iterdir()
    rng = np.random.default_rng(seed)
    files = {path: path.read_bytes() for path in sorted(run.iterdir()) if path.stat().st_size}
    for _ in range(60):
        path = list(files)[rng.integers(len(files))]
        flip(path, rng.integers(len(files[path])))
        status, _, err = made.shown(capsys, run, *["--salvage"] * int(rng.integers(2)))
        assert status in (0, 1, 2)
        assert "Traceback" not in err
        path.write_bytes(files[path])


@pytest.mark.parametrize("lost", [1, 2])
def test_salvage_says_which_segment_is_missing(tmp_path, capsys, lost):
    """Of three segments the second or the last is gone: that is said, with no advice to salvage."""
    made.crowded_engine(tmp_path, seed=3)
    paths = sorted(tmp_path.rglob("*.segz"))
    assert len(paths) >= 3
    paths[lost if lost == 1 else -1].unlink()
    for command in (["replay"], ["inspect"], ["page", 3], ["export", "--to", "jsonl", "-o", "OUT"]):
        words = [str(tmp_path / word) if word == "OUT" else word for word in command[1:]]
        _, out, err = made.ran(capsys, command[0], tmp_path / "run-000001", *words, "--salvage")
        told = " ".join((out + err).split())
        assert "missing" in told or command[0] in {"inspect", "page"}
        assert "--salvage" not in told
