"""What docs/importing.md says to somebody with an engine of their own is so."""

import json
import re
import runpy
from pathlib import Path

import msgspec
import pytest
from capture_faults import Capture
from stream_files import WIRE_HEADER, message, stored, write_events, write_lines, write_wire

from kvlife import CaptureError
from kvlife.capture import check_events, import_vllm
from kvlife.capture import vllm_lines as ops
from kvlife.capture.event_stream import EVENTS_FORMAT, WIRE_FORMAT
from kvlife.replay.cli import main

PAGE = (Path(__file__).parent.parent.parent / "docs" / "importing.md").read_text(encoding="utf-8")
FORMATS = (ops.FORMAT, EVENTS_FORMAT, WIRE_FORMAT)

ARRIVED = ["BlockStored", [-5, 7], None, [1, 2, 3, 4], 2, None, "GPU"]
GONE = ["BlockRemoved", [7], "GPU"]


def shown(name):
    """A file that the page shows."""
    (text,) = re.findall(rf"<!-- file: {re.escape(name)} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    return text


def table(what):
    """The rows of a marked table of the page, each as the names in backticks of each cell."""
    (body,) = re.findall(rf"<!-- {what} -->\n(.*?)<!-- end", PAGE, re.DOTALL)
    return [
        [re.findall(r"`([^`]+)`", cell) for cell in line.strip("|\n").split("|")]
        for line in body.splitlines()[2:]
    ]


@pytest.fixture
def record(tmp_path):
    """The function of the page's program that writes; only the other one needs a socket."""
    path = tmp_path / "record_events.py"
    path.write_text(shown(path.name))
    return runpy.run_path(path)["record"]


def frames(*batches, first=0):
    """Messages as a socket hands them out: topic, number, payload."""
    for seq, batch in enumerate(batches, first):
        yield b"kv", seq.to_bytes(8, "big"), msgspec.msgpack.encode(batch)


def test_the_recorder_of_the_page_writes_what_the_import_reads(tmp_path, record):
    """Messages of an engine, through the page's program and the import."""
    path = tmp_path / "own.kvwire.jsonl.gz"
    batches = [1.5, [ARRIVED], 0], [1.6, [GONE], 0]
    record(frames(*batches), path, engine="SGLang", num_blocks=3)
    outcome = check_events(path)
    assert outcome.clean
    assert dict(outcome.num_events) == {"BlockStored": 1, "BlockRemoved": 1}
    assert (outcome.header.engine, outcome.header.num_blocks) == ("SGLang", 3)
    assert outcome.num_hashes == 1


def test_an_interrupted_recording_is_whole(tmp_path, record):
    """The file is closed when the person at the keyboard ends the program."""

    def interrupted():
        yield from frames([1.5, [ARRIVED], 0])
        raise KeyboardInterrupt

    path = tmp_path / "own.kvwire.jsonl.gz"
    with pytest.raises(KeyboardInterrupt):
        record(interrupted(), path)
    assert check_events(path).num_messages == 1


def test_a_recording_that_began_late_says_so(tmp_path, record):
    """What was sent before is missing, and nothing is held against it."""
    path = tmp_path / "own.kvwire.jsonl.gz"
    record(frames([1.6, [GONE], 0], first=7), path)
    outcome = check_events(path)
    assert [item.what for item in outcome.contradictions] == ["0 to 6 are missing in the sequence"]


def test_a_header_needs_no_more_than_its_format(tmp_path, capsys):
    """What it lacks is fewer proofs, and the report names them."""
    lines = [{"format": WIRE_FORMAT}, message(0, msgspec.msgpack.encode([1.5, [ARRIVED], 0]))]
    del lines[1]["topic"]
    path = write_lines(tmp_path / "w", lines)
    outcome = check_events(path)
    assert outcome.clean
    for field in ("block_size", "num_blocks"):
        assert any(field in line for line in outcome.not_proven)
    assert main(["import", "kv-events", str(path)]) == 0
    assert "None" not in capsys.readouterr().out
    assert main(["import", "kv-events", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["workload"] is None


def test_a_header_with_sizes_leaves_nothing_of_them_unproven(tmp_path):
    """With both in the header, neither is among what cannot be proven."""
    outcome = check_events(write_events(tmp_path / "e", stored(1)))
    assert not any("block_size" in line or "num_blocks" in line for line in outcome.not_proven)


def test_event_lines_need_no_more_than_the_events(tmp_path):
    """Batch, times and places in a capture are compared where they are there."""
    needed = ("type", "hashes", "parent", "block_size", "token_ids")
    bare = [{"seq": seq} | {name: stored(seq)[name] for name in needed} for seq in (0, 1)]
    outcome = check_events(write_lines(tmp_path / "e", [{"format": EVENTS_FORMAT}, *bare]))
    assert outcome.clean
    assert outcome.num_copies == 2


def test_arrays_may_have_all_that_maps_have(tmp_path):
    """The places after the medium: adapter, extra keys, group, kind."""
    windows = [*ARRIVED, None, None, 1, "sliding_window"]
    gone = ["BlockRemoved", [7], "GPU", 1]
    outcome = check_events(write_wire(tmp_path / "w", [1.5, [windows, gone], 0]))
    assert outcome.clean
    outcome = check_events(write_wire(tmp_path / "w", [1.5, [windows, GONE], 0]))
    assert [item.what for item in outcome.contradictions] == [
        "hash 7 is removed from group 0, and has no copy left"
    ]


@pytest.mark.parametrize("read", [check_events, import_vllm])
@pytest.mark.parametrize(
    "first",
    ['{"type": "BlockStored", "block_hashes": [1]}', "[1.5, [], 0]", "saved", '{"format": 3}'],
)
def test_a_file_without_a_format_is_told_which_there_are(tmp_path, read, first):
    """Saved events, a list, text: the message has the three formats and the page about them."""
    path = tmp_path / "events.jsonl"
    path.write_text(first + "\n")
    with pytest.raises(CaptureError) as refusal:
        read(path)
    for word in (*FORMATS, "docs/importing.md", f"{path}, line 1"):
        assert word in str(refusal.value)
    assert "capture it again" not in str(refusal.value)


def test_an_unknown_format_is_told_which_there_are(tmp_path):
    """A format of somebody else."""
    with pytest.raises(CaptureError, match="'theirs/1'") as refusal:
        check_events(write_lines(tmp_path / "w", [{"format": "theirs/1"}]))
    for word in (*FORMATS, "docs/importing.md"):
        assert word in str(refusal.value)


def test_a_line_that_lacks_a_field_points_at_the_page(tmp_path):
    """It names the one format that the header has."""
    with pytest.raises(CaptureError, match=r"line 2.*`seq`") as refusal:
        check_events(write_lines(tmp_path / "w", [WIRE_HEADER, {"payload_b64": ""}]))
    assert WIRE_FORMAT in str(refusal.value)
    assert EVENTS_FORMAT not in str(refusal.value)
    assert "docs/importing.md" in str(refusal.value)


def fields_of(kind):
    return {field.encode_name for field in msgspec.structs.fields(kind)}


def test_the_page_has_every_field_of_a_capture():
    """The table of lines is what the reader decodes, op by op, and the header too."""
    common = fields_of(ops.Line)
    listed = {op[0]: set(fields) for op, _call, fields in table("lines: capture")}
    known = {kind.__struct_config__.tag: fields_of(kind) - common for kind in ops.AnyLine.__args__}
    assert listed == known
    assert {name for names, _what in table("header: capture") for name in names} == (
        fields_of(ops.Header) | fields_of(ops.Group)
    )
    assert {name for names, _what in table("every line: capture") for name in names} == (
        common | {"op"}
    )


def test_the_sample_of_the_page_is_a_whole_capture(tmp_path):
    """It is imported, and nothing is found."""
    path = tmp_path / "sample.trace.jsonl"
    path.write_text(shown("sample.trace.jsonl"))
    outcome = import_vllm(path, log=tmp_path / "log")
    assert outcome.clean
    assert {op for op, num in outcome.num_calls.items() if num} >= {"schedule", "free_blocks"}


def is_optional(lines, at):
    """A snapshot, a refused allocation in which nothing happened, a lookup that led nowhere."""
    line = lines[at]
    if line["op"] == "snapshot":
        return True
    if line["op"] == "allocate_slots":
        return not line["ok"] and all(other["parent"] != line["call"] for other in lines[:at])
    if line["op"] != "get_computed_blocks":
        return False
    later = (other for other in lines[at + 1 :] if other.get("req") == line["req"])
    return not next(later, {}).get("ok", True)


def test_optional_lines_may_be_left_out(traces, tmp_path):
    """A published capture without them, and numbered so, is whole and clean."""
    capture = Capture.named(traces, "ngram-spec")
    lines = [json.loads(text) for text in capture.texts]
    kept = [line for at, line in enumerate(lines) if not is_optional(lines, at)]
    assert len({line["op"] for line in lines} - {line["op"] for line in kept}) == 1
    assert len(lines) - len(kept) > 100
    numbers = {call: num for num, call in enumerate(sorted(line["call"] for line in kept), 1)}
    counts = {}
    for seq, line in enumerate(kept):
        parent = line["parent"]
        line |= {"seq": seq, "call": numbers[line["call"]], "parent": parent and numbers[parent]}
        counts[line["op"]] = counts.get(line["op"], 0) + 1
    kept[-1] |= {"counts": {op: num for op, num in counts.items() if op != "end"}}
    header = msgspec.to_builtins(capture.header)
    outcome = import_vllm(write_lines(tmp_path / "short.gz", [header, *kept]))
    assert outcome.clean
    assert outcome.num_snapshots == 0
