"""`kvlife import`: what it prints, what it writes, and its exit status."""

import json
import sys
from pathlib import Path

import pytest

from kvlife.replay.cli import main

sys.path.insert(0, str(Path(__file__).parent.parent / "capture"))

from small_captures import one_request
from stream_files import removed, stored, write_events


@pytest.fixture
def capture(tmp_path):
    """The path of a capture of one request."""
    return one_request().write(tmp_path / "c.trace.jsonl.gz")


def test_a_capture_becomes_a_log_that_other_commands_read(capture, tmp_path, capsys):
    """The import says what it checked; a replay of its log finds the same digest."""
    log = tmp_path / "log"
    assert main(["import", "vllm", str(capture), "-o", str(log), "--json"]) == 0
    imported = json.loads(capsys.readouterr().out)
    assert imported["clean"]
    assert imported["lines"] == 21
    assert imported["events"] == 14
    assert imported["snapshots"] == 2
    assert main(["replay", str(log), "--json"]) == 0
    replayed = json.loads(capsys.readouterr().out)
    assert replayed["digest"] == imported["digest"]


def test_the_report_says_what_was_not_proven(capture, capsys):
    """What nobody can check stands in the text, beside what was found."""
    assert main(["import", "vllm", str(capture)]) == 0
    printed = capsys.readouterr().out
    assert "vLLM 0.32.0, workload by hand" in printed
    assert "not proven: the order of the free list" in printed
    assert "no violation, and the capture agrees" in printed


def test_a_contradiction_is_printed_with_its_line(tmp_path, capsys):
    """Exit status 1, the line's number, and both values."""
    capture = one_request()
    capture.lines[-1]["steps"] = 3
    path = capture.write(tmp_path / "c.gz")
    assert main(["import", "vllm", str(path)]) == 1
    printed = capsys.readouterr().out
    assert "contradiction: line 21, end: steps is 3, and by what came before it is 2" in printed


def test_a_violation_is_printed_with_its_evidence(tmp_path, capsys):
    """A block kept back at the end of a request: the invariant, and the block."""
    capture = one_request()
    (line,) = [line for line in capture.lines if line["op"] == "free_blocks"]
    for field in ("blocks", "refs", "hashes", "freed"):
        line[field] = line[field][:1]
    log = tmp_path / "log"
    assert main(["import", "vllm", str(capture.write(tmp_path / "c.gz")), "-o", str(log)]) == 1
    printed = capsys.readouterr().out
    assert "violation: refs-balance" in printed
    assert "pages: [1]" in printed
    assert main(["replay", str(log)]) == 1
    assert "refs-balance" in capsys.readouterr().out


def test_a_stream_is_checked(tmp_path, capsys):
    """What it proves decides the status; what it cannot stands in the text."""
    good = write_events(tmp_path / "good.gz", stored(1), removed(1))
    assert main(["import", "kv-events", str(good)]) == 0
    printed = capsys.readouterr().out
    assert "nothing is proven wrong" in printed
    assert "cannot be proven by this stream: block tables" in printed
    bad = write_events(tmp_path / "bad.gz", removed(1))
    assert main(["import", "kv-events", str(bad), "--json"]) == 1
    (item,) = json.loads(capsys.readouterr().out)["contradictions"]
    assert item["line"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ["vllm", "{nowhere}"],
        ["kv-events", "{nowhere}"],
        ["kv-events", "{capture}"],
        ["vllm", "{capture}", "--policy", "ignore"],
        ["sglang", "{capture}"],
    ],
)
def test_unusable_input_has_a_status_of_its_own(capture, tmp_path, capsys, arguments):
    """No file, another format, an unknown policy or kind: status 2 and a message."""
    given = [word.format(capture=capture, nowhere=tmp_path / "nowhere.gz") for word in arguments]
    assert main(["import", *given]) == 2
    assert capsys.readouterr().err
