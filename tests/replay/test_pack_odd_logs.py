"""`kvlife pack` of logs that are live, killed, cut, damaged, shortened, newer, or empty."""

import pytest
from pack_runs import events_of, packed, whispering_run
from recorded_runs import (
    CONFIG,
    admitted,
    allocated,
    answered,
    copy_of_unclosed,
    life_of,
    observe,
    ran,
    released,
    write_snapshot,
)

from kvlife import LogWriter
from kvlife.events import (
    BY_CODE,
    Marked,
)
from kvlife.log import Retention, RunHeader, open_run
from kvlife.replay.output.output_file import new_file
from kvlife.replay.packing import pack_command


def test_pack_of_a_run_that_is_being_written(tmp_path, capsys):
    """A live run is packed up to where it had come, and the writer goes on."""
    observer = whispering_run(tmp_path / "log", close=False)
    for arguments in ([], ["--redact"]):
        told = packed(capsys, tmp_path / "log", tmp_path / "p", "--around", 0, *arguments)
        assert told["next_seq"] == 12
        run = open_run(tmp_path / "p")
        assert run.closed is None
        assert not run.live
        assert len(list(run.events())) == 12
    observer.observe(admitted("r3", 3))
    observer.close()
    assert open_run(tmp_path / "log").next_seq == 13


def test_pack_of_a_run_that_was_killed(tmp_path, capsys):
    """What a killed process left is packed, and says as before that it was not closed."""
    observer = whispering_run(tmp_path / "log", close=False)
    copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "killed")
    observer.close()
    for arguments in ([], ["--redact"]):
        packed(capsys, tmp_path / "killed", tmp_path / "p", *arguments)
        run = open_run(tmp_path / "p")
        assert (run.next_seq, run.closed) == (12, None)
        assert ran(capsys, "replay", tmp_path / "p")[0] == 0


def test_pack_of_a_cut_log(tmp_path, capsys):
    """A log that stops within a record is packed with its tear; redacted, up to it."""
    observer = whispering_run(tmp_path / "log", close=False)
    cut = copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "cut")
    observer.close()
    (segment,) = cut.glob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content[: len(content.rstrip(b"\0")) - 2])
    packed(capsys, cut, tmp_path / "p", "--around", 0)
    run = open_run(tmp_path / "p")
    assert run.next_seq == 11
    assert "an unreadable end was dropped" in run.warnings[0]
    packed(capsys, cut, tmp_path / "p", "--around", 0, "--redact")
    assert len(list(open_run(tmp_path / "p").events())) == 11


def gap_run(path):
    """A log that lacks events 4 to 6, and goes on from a snapshot behind them."""
    observer = observe(path / "whole", [], close=False)
    log = LogWriter(path / "log")
    log.start(RunHeader(config=CONFIG, created_ns=0))
    lives = [*life_of("r1", 1, [1, 2]), *life_of("r2", 2, [3]), *life_of("r3", 3, [4])]
    lives[5] = allocated([2], [8], [3, 5])
    lives[7] = released("r2", 2, [3, 5])
    lives[9:] = []
    for seq, event in enumerate(lives):
        if seq == 7:
            log.skip(3)
            log.wait()
            log.snapshot(observer.ledger.snapshot())
        observer.observe(event)
        if not 4 <= seq < 7:
            log.append(seq, 0, 0, [event])
    log.close(observer.ledger.digest())
    observer.close()
    return path / "log"


def test_pack_of_a_log_with_a_gap(tmp_path, capsys):
    """Events that a full disk kept out stay missing, and the state behind them is in the pack."""
    log = gap_run(tmp_path)
    for arguments in ([], ["--redact"]):
        packed(capsys, log, tmp_path / "p", "--around", 0, *arguments)
        run = open_run(tmp_path / "p")
        assert [(gap.first_seq, gap.next_seq) for gap in run.gaps] == [(4, 7)]
        assert [item.seq for item in run.events()] == [0, 1, 2, 3, 7, 8]
        status, told = answered(capsys, "replay", tmp_path / "p")
        assert (status, told["digest_ok"]) == (0, True)


def test_pack_of_a_log_whose_beginning_is_gone(tmp_path, capsys):
    """Under retention a pack begins where the log does; what is gone is refused by name."""
    log = LogWriter(tmp_path / "log", retention=Retention(keep_bytes=1 << 17), compress=False)
    facts = [[event] for event in life_of("r1", 1, [1, 2])]
    notes = [[Marked("x" * 900, idle=False)] for _ in range(40)]
    observe(tmp_path / "log", [*facts, *([*notes, "snapshot"] * 12), *facts], writer=log)
    begins = open_run(tmp_path / "log").begins_at
    assert begins > 100
    for arguments in ([], ["--redact"]):
        told = packed(capsys, tmp_path / "log", tmp_path / "p", "--around", begins, *arguments)
        assert (told["first_seq"], told["next_seq"]) == (begins, 488)
        status, seen = answered(capsys, "replay", tmp_path / "p")
        assert (status, seen["digest_ok"]) == (0, True)
    status, _, err = ran(capsys, "pack", tmp_path / "log", "-o", tmp_path / "q", "--around", 5)
    assert status == 2
    assert f"is gone: the log's states begin at seq {begins}" in err


@pytest.fixture(params=[{"keep_bytes": 1 << 17}, {"ring_bytes": 1 << 17}], ids=["last", "ring"])
def forgetting(tmp_path, request):
    """The folder of a live run that keeps its end alone, and what makes all go that it has."""
    log = LogWriter(tmp_path / "log", retention=Retention(**request.param), compress=False)
    observer = observe(tmp_path / "log", [life_of("r1", 1, [1, 2])], writer=log, close=False)

    def go_on():
        before = open_run(tmp_path / "log").next_seq
        while open_run(tmp_path / "log").begins_at < before:
            for _ in range(40):
                observer.observe(Marked("x" * 900, idle=False))
            write_snapshot(observer)

    go_on()
    yield tmp_path / "log", go_on
    observer.close()


def files_that_go(monkeypatch, go_on, times):
    """Let a pack find, so many times, that what it was about to read has gone."""
    begun = []

    def late(output):
        begun.append(output)
        if len(begun) <= times:
            go_on()
        return new_file(output)

    monkeypatch.setattr(pack_command, "new_file", late)


@pytest.mark.parametrize("arguments", [[], ["--redact"]])
@pytest.mark.parametrize("times", [1, 4])
def test_what_goes_while_it_is_packed(forgetting, tmp_path, capsys, monkeypatch, arguments, times):
    """Where the writer removes what is being packed, that is begun anew, and said."""
    log, go_on = forgetting
    files_that_go(monkeypatch, go_on, times)
    status, told = answered(capsys, "pack", log, "-o", tmp_path / "p", *arguments)
    assert status == 0
    anew = [note for note in told["notes"] if "the run's writer removed" in note]
    assert anew == [
        f"the run's writer removed what was being packed, and so it was begun anew ({times} of 4)"
    ]
    run = open_run(log)
    assert (told["next_seq"], told["around"]) == (run.next_seq, run.next_seq - 1)
    assert ran(capsys, "replay", tmp_path / "p")[0] == 0


@pytest.mark.parametrize("arguments", [[], ["--redact"]])
def test_a_log_that_goes_faster_than_it_is_packed(
    forgetting, tmp_path, capsys, monkeypatch, arguments
):
    """After a few tries it is said that the writer removes what is packed, and nothing is left."""
    log, go_on = forgetting
    files_that_go(monkeypatch, go_on, 5)
    status, out, err = ran(capsys, "pack", log, "-o", tmp_path / "p", *arguments)
    assert (status, out) == (2, "")
    assert err == (
        f"kvlife: {log}/run-000001: its writer removed what was being packed, 5 times: pack its"
        " end, without --around, or let it keep more\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_an_event_that_goes_while_it_is_packed(forgetting, tmp_path, capsys, monkeypatch):
    """Where the event that was asked for is gone by then, that is what is said."""
    log, go_on = forgetting
    files_that_go(monkeypatch, go_on, 1)
    around = open_run(log).next_seq - 1
    status, _, err = ran(capsys, "pack", log, "-o", tmp_path / "p", "--around", around)
    assert status == 2
    begins_at = open_run(log).begins_at
    assert err == (
        f"kvlife: --around {around} is gone: the log's states begin at seq {begins_at}\n"
    )


def test_unknown_kinds_are_packed_and_not_redacted(tmp_path, capsys, monkeypatch):
    """An event of a newer version is packed as it is; what it names cannot be hidden."""
    facts = [[event] for event in life_of("r1", 1, [1, 2])]
    observe(tmp_path / "log", [*facts, "snapshot", [Marked("new", False)], "snapshot", *facts])
    monkeypatch.delitem(BY_CODE, Marked.CODE)
    status, _, err = ran(
        capsys, "pack", tmp_path / "log", "-o", tmp_path / "p", "--around", 0, "--redact"
    )
    assert status == 2
    assert f"seq 4 is an event of the unknown kind {Marked.CODE}" in err
    assert not (tmp_path / "p").exists()
    packed(capsys, tmp_path / "log", tmp_path / "p", "--around", 0)
    monkeypatch.undo()
    assert [event.text for event in events_of(tmp_path / "p") if isinstance(event, Marked)]


def test_damage_is_packed_under_salvage(tmp_path, capsys):
    """A damaged log is packed as it is with --salvage; redacted, it lacks what cannot be read."""
    facts = [[event] for event in life_of("r1", 1, [1, 2])]
    log = LogWriter(tmp_path / "log", compress=False)
    observe(tmp_path / "log", [*facts, "snapshot", *facts], writer=log)
    (segment,) = (tmp_path / "log").glob("*/*.seg")
    content = bytearray(segment.read_bytes())
    content[content.index(b"r1")] ^= 0x40
    segment.write_bytes(content)
    status, _, err = ran(capsys, "pack", tmp_path / "log", "-o", tmp_path / "p", "--around", 0)
    assert status == 2
    assert "--salvage" in err
    packed(capsys, tmp_path / "log", tmp_path / "p", "--around", 0, "--salvage")
    assert ran(capsys, "replay", tmp_path / "p")[0] == 2
    status, told = answered(capsys, "replay", tmp_path / "p", "--salvage")
    assert [(hole["first_seq"], hole["next_seq"]) for hole in told["holes"]] == [(0, 4)]
    packed(capsys, tmp_path / "log", tmp_path / "p", "--around", 0, "--salvage", "--redact")
    run = open_run(tmp_path / "p")
    assert [(gap.first_seq, gap.next_seq) for gap in run.gaps] == [(0, 4)]
    assert [item.seq for item in run.events()] == [4, 5, 6, 7]


def test_pack_of_an_empty_log(tmp_path, capsys):
    """A run without an event makes a pack without one."""
    observe(tmp_path / "log", [])
    for arguments in ([], ["--redact"]):
        told = packed(capsys, tmp_path / "log", tmp_path / "p", *arguments)
        assert (told["first_seq"], told["next_seq"]) == (0, 0)
        assert ran(capsys, "inspect", tmp_path / "p")[0] == 0
