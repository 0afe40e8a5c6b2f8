"""`kvlife export --to jsonl`, and what all targets have in common."""

import json

import msgspec
import numpy as np
import pytest
from recorded_runs import (
    CONFIG,
    answered,
    copy_of_unclosed,
    crowded_engine,
    life_of,
    observe,
    ran,
)
from told_runs import told_run

from kvlife import CacheGroup, LogWriter
from kvlife.events import BY_NAME, FIELDS, FieldKind, same_event
from kvlife.log import RunHeader, open_run
from kvlife.replay.exporting import export_command

_LISTS = (FieldKind.ROWS, FieldKind.LENGTHS, FieldKind.GROUP_PAGES, FieldKind.HOST_PAGES)


def lines_of(capsys, log, *arguments):
    output = log.parent / "out.jsonl"
    status, told = answered(capsys, "export", log, "--to", "jsonl", "-o", output, *arguments)
    assert status == 0
    header, *lines = map(json.loads, output.read_text().splitlines())
    assert told["events"] == len(lines)
    return header, lines


def event_of(line, layout):
    """An event built again from its line alone."""
    kind = BY_NAME[line["event"]]
    fields = {
        field.name: _value(line["fields"][field.name], field, layout) for field in FIELDS[kind]
    }
    return kind(**fields)


def _value(told, field, layout):
    groups = [group.name for group in layout.groups]
    windows = [group.name for group in layout.window_groups]
    match field.kind:
        case FieldKind.PAGES:
            return tuple(np.array(told[name], np.int32) for name in groups)
        case FieldKind.KEYS:
            keys = ([int(key, 16) for key in told[name]] for name in groups)
            return tuple(np.array(one, np.uint64) for one in keys)
        case FieldKind.CURSORS:
            return tuple(told[name] for name in windows)
        case FieldKind.CURSOR_ARRAYS if told is not None:
            return tuple(np.array(told[name], np.int32) for name in windows)
        case FieldKind.LINKS:
            return np.array(told, np.int32).reshape(-1, 4)
        case FieldKind.U64:
            return int(told, 16)
        case FieldKind.GROUP:
            return groups.index(told)
        case FieldKind.SPACE:
            return [space.name for space in layout.spaces].index(told)
        case FieldKind.MAYBE_HOST_PAGES if told is not None:
            return np.array(told, np.int32)
        case FieldKind.DIGESTS:
            return np.array([int(digest, 16) for digest in told], np.uint64)
        case kind if kind in _LISTS:
            return np.array(told, np.int32)
    return told


@pytest.mark.parametrize("groups", [None, (CacheGroup("full"), CacheGroup("swa", window=8))])
def test_nothing_is_lost(tmp_path, capsys, seed, groups):
    """Header and events, built again from the lines, are those of the log, field by field."""
    crowded_engine(tmp_path / "log", seed=seed, groups=groups)
    run = open_run(tmp_path / "log")
    header, lines = lines_of(capsys, tmp_path / "log")
    assert msgspec.convert(header["header"], RunHeader) == run.header
    assert header["digest"] == f"{run.closed.digest:016x}"
    for line, item in zip(lines, run.events(), strict=True):
        assert (line["seq"], line["step"], line["time_ns"]) == (item.seq, item.step, item.time_ns)
        assert same_event(event_of(line, run.layout), item.event)


def test_every_kind_of_event_has_its_line(tmp_path, capsys):
    """The run in which everything happens comes back from its lines."""
    run = open_run(told_run(tmp_path / "log"))
    _, lines = lines_of(capsys, tmp_path / "log")
    for line, item in zip(lines, run.events(), strict=True):
        assert same_event(event_of(line, run.layout), item.event)


def test_part_and_gap_are_told(tmp_path, capsys):
    """The header line names the part and the gaps; events that are missing leave their seqs out."""
    log = told_run(tmp_path / "log")
    header, lines = lines_of(capsys, log, "--from", 3, "--until", 5)
    assert (header["first_seq"], header["next_seq"]) == (3, 6)
    assert [line["seq"] for line in lines] == [3, 4, 5]
    writer = LogWriter(tmp_path / "gap")
    writer.start(RunHeader(config=CONFIG, created_ns=0))
    first, *_, last = life_of("r1", 1, [1, 2])
    writer.append(0, 0, 0, [first])
    writer.skip(2)
    observer = observe(tmp_path / "whole", [[event] for event in life_of("r1", 1, [1, 2])[:3]])
    writer.snapshot(observer.ledger.snapshot())
    writer.append(3, 0, 0, [last])
    writer.close()
    header, lines = lines_of(capsys, tmp_path / "gap")
    assert header["gaps"] == [[1, 3]]
    assert [line["seq"] for line in lines] == [0, 3]
    status, out, _ = ran(
        capsys, "export", tmp_path / "gap", "--to", "chrome", "-o", tmp_path / "gap.json"
    )
    assert (status, "2 events" in out) == (0, True)


def test_log_that_is_cut_or_written(tmp_path, capsys):
    """What is there is exported, with a note of what is missing."""
    observer = observe(
        tmp_path / "log", [[event] for event in life_of("r1", 1, [1, 2])], close=False
    )
    cut = copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "cut")
    header, lines = lines_of(capsys, tmp_path / "log")
    assert (len(lines), header["closed"]) == (4, False)
    observer.close()
    (segment,) = cut.glob("*.seg")
    content = segment.read_bytes()
    segment.write_bytes(content[: len(content.rstrip(b"\0")) - 2])
    status, out, _ = ran(capsys, "export", cut, "--to", "jsonl", "-o", tmp_path / "x.jsonl")
    assert (status, "3 events" in out, "unreadable end was dropped" in out) == (0, True, True)


def test_what_salvage_left_out_is_told(tmp_path, capsys):
    """The damaged segment, from its first event on; what follows the next snapshot is written."""
    crowded_engine(tmp_path / "log", seed=1, close=False).log.wait()
    (folder,) = (tmp_path / "log").iterdir()
    segment = sorted(folder.glob("*.segz"))[1]
    segment.write_bytes(segment.read_bytes()[:-9])
    first_seq = int(segment.stem.split("-")[1])
    output = tmp_path / "out.jsonl"
    _, told = answered(capsys, "export", folder, "--to", "jsonl", "-o", output, "--salvage")
    assert json.loads(output.read_text().splitlines()[-1])["seq"] > first_seq
    note = f"salvage left out events from seq {first_seq} to "
    assert any(text.startswith(note) for text in told["notes"])


@pytest.mark.parametrize(("target", "extra"), [("perfetto", "perfetto"), ("parquet", "arrow")])
def test_missing_extra_is_named(tmp_path, capsys, monkeypatch, target, extra):
    """Without the extra that a target needs, the command says which to install."""
    log = told_run(tmp_path / "log")
    monkeypatch.setattr(export_command, "find_spec", lambda _name: None)
    output = tmp_path / "out"
    status, out, err = ran(capsys, "export", log, "--to", target, "-o", output)
    assert (status, out) == (2, "")
    assert f"pip install 'kvlife[{extra}]'" in err
    assert not output.exists()


def test_what_cannot_be_exported_is_told(tmp_path, capsys):
    """A target that is none, a place where nothing is written, a log that is none."""
    log = told_run(tmp_path / "log")
    (run,) = log.iterdir()
    before = sorted(run.iterdir())
    for arguments, said in (
        ([log, "--to", "pdf", "-o", tmp_path / "x"], "there are perfetto, chrome, parquet, jsonl"),
        ([log, "--to", "jsonl", "-o", run / "x"], "lies in a run's folder"),
        ([log, "--to", "jsonl", "-o", tmp_path], "is a folder"),
        ([log, "--to", "jsonl", "-o", tmp_path / "no" / "x"], "there is no folder"),
        ([tmp_path / "nowhere", "--to", "jsonl", "-o", tmp_path / "x"], "there is no such folder"),
    ):
        status, out, err = ran(capsys, "export", *arguments)
        assert (status, out) == (2, "")
        assert said in err
    assert sorted(run.iterdir()) == before
