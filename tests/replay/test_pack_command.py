"""`kvlife pack`: what is in a pack, that every command reads it, and that aliases hide names."""

import json
import random
import re

import pytest
from pack_runs import KEYS, NAMESPACE, SECRETS, events_of, packed, whispering_run
from recorded_runs import (
    CONFIG,
    admitted,
    allocated,
    answered,
    crowded_engine,
    life_of,
    observe,
    ran,
)

from kvlife import LogWriter
from kvlife.errors import ConfigError
from kvlife.events import (
    Admitted,
    Allocated,
    Marked,
    Pinned,
    Protected,
    SessionSaved,
    Unpinned,
    same_event,
)
from kvlife.log import RunHeader, open_run
from kvlife.log.ints import varint
from kvlife.log.zstd import _zstd
from kvlife.replay.history.timeline import Timeline
from kvlife.testing.faults import FAULTS, Kind, write_faulty_run


def contents_of(path):
    """The bytes of a pack, and of whatever in it is compressed."""
    whole = path.read_bytes()
    contents = [whole]
    for found in re.finditer(rb"\x28\xb5\x2f\xfd", whole):  # how a Zstandard frame begins
        stream = _zstd.ZstdDecompressor()
        try:
            contents.append(stream.decompress(whole[found.start() :]))
        except _zstd.ZstdError:
            continue  # these four bytes were something else
    assert len(contents) > 2
    return contents


def test_pack_begins_with_the_snapshot_before_the_event(tmp_path, capsys):
    """A pack has the state before the event it is about, and every event from there on."""
    crowded_engine(tmp_path / "log", seed=1)
    run = open_run(tmp_path / "log")
    around = run.snapshots[-2] + 3
    told = packed(capsys, tmp_path / "log", tmp_path / "a.kvpack", "--around", around)
    assert told["first_seq"] == run.snapshots[-2]
    assert told["next_seq"] == run.next_seq
    assert told["bytes"] == (tmp_path / "a.kvpack").stat().st_size
    there = events_of(tmp_path / "a.kvpack")
    wanted = events_of(run.path, told["first_seq"])
    assert len(there) == len(wanted)
    assert all(map(same_event, there, wanted))
    pack = open_run(tmp_path / "a.kvpack")
    assert Timeline(pack).state().digest() == run.closed.digest


def test_pack_is_about_the_violation_or_the_end(tmp_path, capsys):
    """Without --around a pack is about the violation that ended the run, else about its end."""
    facts = [[event] for event in life_of("r1", 1, [1, 2])]
    observe(tmp_path / "sound", [*facts, "snapshot", *facts])
    told = packed(capsys, tmp_path / "sound", tmp_path / "sound.kvpack")
    assert (told["around"], told["next_seq"]) == (7, 8)
    double = [[admitted("r2", 1)], [allocated([1], [8], [1, 1])]]
    observe(tmp_path / "broken", [*facts, "snapshot", *double])
    told = packed(capsys, tmp_path / "broken", tmp_path / "broken.kvpack")
    assert (told["around"], told["next_seq"]) == (5, 7)
    status, found = answered(capsys, "replay", tmp_path / "broken.kvpack")
    assert status == 1
    assert found["violations"][0]["id"] == "page-double-alloc"
    assert found["violations"][0]["seq"] == 5
    status, out, _ = ran(
        capsys, "shrink", tmp_path / "broken.kvpack", "-o", tmp_path / "small", "--json"
    )
    assert (status, json.loads(out)["invariant"]) == (0, "page-double-alloc")


def test_pack_ends_where_it_is_told_to(tmp_path, capsys):
    """--to leaves out what follows, and the pack says so; what was written at once stays whole."""
    facts = [[event] for event in life_of("r1", 1, [1, 2])]
    pair = [Marked("one", idle=False), Marked("two", idle=False)]
    observe(tmp_path / "log", [*facts, pair, *facts])
    for arguments in ([], ["--redact"]):
        told = packed(
            capsys, tmp_path / "log", tmp_path / "p", "--around", 2, "--to", 4, *arguments
        )
        assert (told["first_seq"], told["next_seq"]) == (0, 6)
        run = open_run(tmp_path / "p")
        assert [type(item.event) for item in run.events()][4:] == [Marked, Marked]
        assert run.closed is None
        assert run.warnings[-1] == "packed up to the command of seq 4: what followed is not here"


@pytest.mark.parametrize("redact", [(), ("--redact",)])
def test_every_command_reads_a_pack(tmp_path, capsys, redact):
    """What takes a log takes a pack in its place."""
    crowded_engine(tmp_path / "log", seed=2)
    output = tmp_path / "p.kvpack"
    packed(capsys, tmp_path / "log", output, "--around", 0, *redact)
    rid = next(item.event.rid for item in open_run(output).events())
    for command in (
        ["replay", output, "--jobs", "2"],
        ["inspect", output, "--at", "100"],
        ["log", output],
        ["page", output, "5"],
        ["request", output, rid],
        ["leaks", output],
        ["why", output, "reset"],
        ["bisect", output, "free_pages < 20"],
        ["report", output, "-o", tmp_path / "r.html"],
        ["top", output, "--once"],
        ["export", output, "--to", "jsonl", "-o", tmp_path / "e.jsonl"],
        ["pack", output, "-o", tmp_path / "again.kvpack"],
        ["diff", output, output],
    ):
        status, out, err = ran(capsys, *command)
        assert status in (0, 1), (command, out, err)
        assert "kvlife-pack-" not in out + err, "a folder that is gone when the command has ended"
    assert ran(capsys, "diff", output, output)[0] == 0


def test_nothing_is_left_of_an_unpacked_run(tmp_path, capsys, monkeypatch):
    """What a pack is unpacked to goes with the run that is read, and nothing lies beside it."""
    crowded_engine(tmp_path / "log", seed=1, num_steps=60)
    packed(capsys, tmp_path / "log", tmp_path / "p.kvpack")
    run = open_run(tmp_path / "p.kvpack")
    folder = run.folder
    assert folder.is_dir()
    assert folder.parent != tmp_path
    del run
    assert not folder.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "p.kvpack"]


def test_no_name_is_left_under_aliases(tmp_path, capsys):
    """No id, holder, namespace, page key or note stands in a redacted pack, unzipped or not."""
    whispering_run(tmp_path / "log")
    output = tmp_path / "p.kvpack"
    numbers = [NAMESPACE, *KEYS]
    secrets = [
        *(secret.encode() for secret in SECRETS),
        *(number.to_bytes(8, "little") for number in numbers),
        *(number.to_bytes(8, "big") for number in numbers),
        *(varint(number) for number in numbers),
        *(f"{number:x}".encode() for number in numbers),
    ]
    packed(capsys, tmp_path / "log", output, "--around", 0)
    plain = contents_of(output)
    for secret in SECRETS:
        assert any(secret.encode() in content for content in plain), "else this proves nothing"
    for number in numbers:
        assert any(number.to_bytes(8, "little") in content for content in plain)
    told = packed(capsys, tmp_path / "log", output, "--around", 0, "--redact")
    assert told["redacted"]
    for content in contents_of(output):
        assert [secret for secret in secrets if secret in content] == []


def test_aliases_are_the_same_within_a_pack_alone(tmp_path, capsys):
    """One id has one alias in events, states and beside a pin; another pack has another."""
    whispering_run(tmp_path / "log")
    found = []
    for name in ("a", "b"):
        packed(capsys, tmp_path / "log", tmp_path / name, "--around", 0, "--redact")
        events = events_of(tmp_path / name)
        bound = next(e for e in events if isinstance(e, Admitted) and e.row == 1)
        (pin,) = [e for e in events if isinstance(e, Pinned)]
        (saved,) = [e for e in events if isinstance(e, SessionSaved)]
        (unpinned,) = [e for e in events if isinstance(e, Unpinned)]
        assert pin.owner == bound.rid == events[-1].rid
        assert unpinned.pin_id == pin.pin_id
        ledger = Timeline(open_run(tmp_path / name)).state(9)
        assert ledger.requests == {bound.rid: 1}
        assert list(ledger.sessions) == [saved.session_id]
        assert ledger.pins[pin.pin_id].owner == bound.rid
        assert int(ledger.rows.namespace[1]) == bound.namespace == events[0].namespace != 0
        found.append((bound.rid, bound.namespace, saved.session_id, pin.pin_id))
    assert not set(found[0]) & set(found[1])


def test_redacted_run_is_the_same_but_for_names(tmp_path, capsys):
    """Lengths, pages, steps and times stay, as do equal keys; states and end have their digests."""
    crowded_engine(tmp_path / "log", seed=5)
    output = tmp_path / "p.kvpack"
    run = open_run(tmp_path / "log")
    packed(capsys, tmp_path / "log", output, "--redact", "--around", run.snapshots[1])
    pack = open_run(output)
    assert pack.begins_at == run.snapshots[1]
    assert pack.snapshots == run.snapshots[1:]
    status, told = answered(capsys, "replay", output)
    assert status == 0
    assert told["digest_ok"]
    renamed = {}
    for item, other in zip(run.events(pack.begins_at), pack.events(), strict=True):
        assert (item.seq, item.step, item.time_ns) == (other.seq, other.step, other.time_ns)
        assert type(item.event) is type(other.event)
        if isinstance(item.event, Allocated):
            assert same_event(item.event, other.event)
        if isinstance(item.event, Protected):
            keys = zip(item.event.keys[0].tolist(), other.event.keys[0].tolist(), strict=True)
            assert all(renamed.setdefault(key, alias) == alias for key, alias in keys)
    assert len(set(renamed.values())) == len(renamed) > 10


def test_wrong_digest_stays_wrong_under_aliases(tmp_path, capsys):
    """A run whose recorded digest is not its state's cannot be made sound by redacting it."""
    log = LogWriter(tmp_path / "log")
    log.start(RunHeader(config=CONFIG, created_ns=0))
    for seq, event in enumerate(life_of("r1", 1, [1, 2])):
        log.append(seq, 0, 0, [event])
    log.close(digest=1234)
    assert answered(capsys, "replay", tmp_path / "log")[0] == 1
    packed(capsys, tmp_path / "log", tmp_path / "p.kvpack", "--redact")
    status, told = answered(capsys, "replay", tmp_path / "p.kvpack")
    assert status == 1
    assert [difference["kind"] for difference in told["differences"]] == ["digest"]


@pytest.mark.soak
def test_faults_stay_what_they_are(tmp_path, capsys, seed):
    """A random fault is found at the same event by the same invariant in every pack of its run."""
    crowded_engine(tmp_path / "sound", seed=seed, num_steps=200)
    sound = open_run(tmp_path / "sound")
    names = [name for name, fault in FAULTS.items() if fault.kind != Kind.COLUMNS]
    random.Random(seed).shuffle(names)
    num = 0
    while num < 4:
        name = names.pop()
        try:
            faulty = write_faulty_run(sound, FAULTS[name], tmp_path / name, seed=seed).path
        except ConfigError:
            continue  # this run has no place for it
        num += 1
        wanted = first_found(capsys, faulty)
        for arguments in ([], ["--redact"], ["--around", 0, "--redact"]):
            packed(capsys, faulty, tmp_path / "p", *arguments)
            assert first_found(capsys, tmp_path / "p") == wanted


def first_found(capsys, log):
    status, told = answered(capsys, "replay", log)
    return status, [(found["id"], found["seq"]) for found in told["violations"][:1]]


def test_packing_writes_nothing_to_the_log(tmp_path, capsys):
    """Not a file of the run is made, removed or touched."""
    whispering_run(tmp_path / "log")
    (run,) = (tmp_path / "log").iterdir()
    before = {path.name: path.stat().st_mtime_ns for path in [run, *run.iterdir()]}
    packed(capsys, run, tmp_path / "p")
    packed(capsys, run, tmp_path / "p", "--redact", "--around", 0)
    assert {path.name: path.stat().st_mtime_ns for path in [run, *run.iterdir()]} == before


def test_what_cannot_be_packed_is_told(tmp_path, capsys):
    """Seqs that are not there, and places where nothing is written: a message and status 2."""
    observe(tmp_path / "log", [[event] for event in life_of("r1", 1, [1, 2])])
    (run,) = (tmp_path / "log").iterdir()
    for arguments, said in (
        (["-o", tmp_path / "p", "--around", 4], "the log's events are [0, 4)"),
        (["-o", tmp_path / "p", "--around", -1], "the log's events are [0, 4)"),
        (["-o", tmp_path / "p", "--around", 3, "--to", 2], "lies before the event"),
        (["-o", run / "p"], "lies in a run's folder"),
        (["-o", tmp_path], "is a folder"),
        (["-o", tmp_path / "no" / "p"], "there is no folder"),
    ):
        status, out, err = ran(capsys, "pack", tmp_path / "log", *arguments)
        assert (status, out) == (2, "")
        assert said in err
    assert not (tmp_path / "p").exists()
    status, _, err = ran(capsys, "pack", tmp_path / "log", "-o", run / "header.json")
    assert status == 2
    assert json.loads((run / "header.json").read_text())
