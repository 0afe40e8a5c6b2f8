"""`kvlife simulate` on the command line."""

import json

import numpy as np
import pytest

from kvlife.engine import KvEngine
from kvlife.events import Allocated
from kvlife.log import open_run
from kvlife.replay.cli import FINE, FOUND, UNUSABLE, main

SMALL = ["simulate", "--synthetic", "40", "--seed", "2"]
# What the summary promises to machines.
PROMISED = [
    "requests", "prompt_tokens", "hit_tokens", "output_tokens", "evicted_pages", "retractions",
    "aborts", "sessions", "events", "violations", "checked", "log_bytes", "digest", "seconds",
]  # fmt: skip


def as_object(capsys, arguments, status=FINE):
    assert main([*arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_one_object_with_all_that_is_promised(capsys, tmp_path):
    """Each entry is there, and the digest is the one at the end of the log."""
    summary = as_object(capsys, [*SMALL, "--log", str(tmp_path)])
    assert [name for name in PROMISED if name not in summary] == []
    assert summary["requests"] == 40
    assert summary["violations"] == []
    assert summary["checked"] == summary["events"]
    run = open_run(tmp_path)
    assert summary["digest"] == f"{run.closed.digest:016x}"
    assert summary["events"] == run.next_seq


def test_without_a_log_nothing_is_written(capsys, tmp_path, monkeypatch):
    """The run leaves no file where none was asked for."""
    monkeypatch.chdir(tmp_path)
    assert as_object(capsys, SMALL)["log_bytes"] == 0
    assert list(tmp_path.iterdir()) == []


def test_a_summary_for_people(capsys):
    """It names the work, the pressure, what was checked, and what was not."""
    assert main([*SMALL, "--session-rate", "0.5", "--draft", "2"]) == FINE
    shown = capsys.readouterr().out
    for words in (
        "hit tokens", "evicted pages", "retractions", "peak CACHED", "sessions", "drafted tokens",
        "no violation found", "not checked: 5 invariants", "device-agrees",
    ):  # fmt: skip
        assert words in shown


def test_a_run_that_checks_nothing_says_so(capsys):
    """With the checker off the summary does not look like a clean bill."""
    assert main([*SMALL, "--check", "off"]) == FINE
    assert "checked NOTHING" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate"], "name one workload"),
        ([*SMALL, "--trace", "somewhere"], "name one workload"),
        (["simulate", "--trace", "no-such-file.jsonl"], "no-such-file.jsonl"),
        ([*SMALL, "--sequential", "--overlap"], "leave out --overlap"),
        ([*SMALL, "--sequential", "--host-pages", "9"], "--host-pages"),
        ([*SMALL, "--host-pages", "1"], "host_pages is 1"),
        ([*SMALL, "--num-pages", "3"], "num_pages is 3"),
        ([*SMALL, "--policy", "newest"], "newest"),
        ([*SMALL, "--check", "some"], "some"),
        ([*SMALL, "--session-rate", "2"], "session_rate"),
        (["simulate", "--synthetic", "0"], "num_requests"),
        ([*SMALL, "--page-size", "0"], "page_size"),
        ([*SMALL, "--window", "0"], "window"),
        ([*SMALL, "--limit", "0"], "0"),
    ],
)
def test_unusable_arguments_are_named(capsys, arguments, words):
    """Status 2 and one message that says what is wrong; no traceback, and no output."""
    assert main(arguments) == UNUSABLE
    shown = capsys.readouterr()
    assert words in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""


def test_a_violation_is_reported_and_gives_status_1(capsys, monkeypatch, tmp_path):
    """An allocator that hands a page out twice is caught, with the summary of the run so far."""
    sound = KvEngine._record

    def record(engine, events, _changes=()):
        for event in events:
            if isinstance(event, Allocated):
                event.pages = tuple(np.repeat(pages[:1], pages.size) for pages in event.pages)
        sound(engine, events)

    monkeypatch.setattr(KvEngine, "_record", record)
    summary = as_object(capsys, [*SMALL, "--log", str(tmp_path)], FOUND)
    first = summary["violations"][0]
    assert first["id"] == "page-double-alloc"
    assert first["evidence"]
    assert first["seq"] < summary["events"]
    assert main(SMALL) == FOUND
    assert "violation: page-double-alloc" in capsys.readouterr().out


def test_sequential_sizes_its_pool(capsys):
    """Without a size given the pool never evicts."""
    summary = as_object(capsys, [*SMALL, "--sequential"])
    assert summary["evicted_pages"] == 0
    assert summary["completed"] == 40
