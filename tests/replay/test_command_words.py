"""Words of a command line that cannot be what they stand for: 2, a message, and no traceback."""

import os
import subprocess
import sys

import pytest
import recorded_runs as made

from kvlife.replay.cli import COMMANDS, main


@pytest.fixture
def log(tmp_path):
    """The log of a small run."""
    made.observe(tmp_path / "log", [made.life_of("r1", 1, [1, 2])])
    return tmp_path / "log"


def refused(capsys, *words):
    """What is said against a command line."""
    status, out, err = made.ran(capsys, *words)
    assert (status, out) == (2, "")
    return err


@pytest.mark.parametrize("word", ["1.5", "2.0", "1e3", "0x10", "1_000", "one", "", "٣"])
@pytest.mark.parametrize(
    "words", [("page",), ("page", 1, "--at"), ("log", "--row"), ("inspect", "--row")]
)
def test_a_whole_number_is_asked_for(log, capsys, words, word):
    """Nothing is rounded, nor read in another notation."""
    name, *rest = words
    said = refused(capsys, name, log, *rest[:-1], *([f"{rest[-1]}={word}"] if rest else [word]))
    assert "whole number" in said
    assert (rest[-1] if rest else "PAGE") in said


@pytest.mark.parametrize("number", [str(2**63), str(-(2**63) - 1), "9" * 5000], ids=len)
def test_a_number_has_64_bits(log, capsys, number):
    """What nothing counts up to is out of range; the largest number is one."""
    assert "out of range" in refused(capsys, "log", log, f"--limit={number}")
    status, out, _ = made.ran(capsys, "log", log, "--limit", 2**63 - 1)
    assert (status, len(out.splitlines())) == (0, 4)


@pytest.mark.parametrize(
    "words", [("request", "\udcff"), ("log", "--request", "\udcff"), ("leaks", "--at", "\udcff")]
)
def test_a_name_is_text(log, capsys, words):
    """Bytes that are not UTF-8 name nothing in a log."""
    name, *rest = words
    assert "\\udcff" in refused(capsys, name, log, *rest)


@pytest.mark.parametrize(
    "words", [("log", ""), ("diff", "x", ""), ("import", "vllm", "x", "-o", "")]
)
def test_an_empty_path_is_none(capsys, words):
    """It is not taken for the folder one is in."""
    assert "is no path" in refused(capsys, *words)


def test_a_path_may_be_any_bytes(log, capsys):
    """A file whose name is not UTF-8 is written, and the name told in escapes."""
    target = log.parent / "\udcff.jsonl"
    status, out, _ = made.ran(capsys, "export", log, "--to", "jsonl", "-o", target)
    assert status == 0
    assert "\\udcff.jsonl: 4 events" in out
    assert target.exists()


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (("export", "x", "-o", "y"), "--to is missing: What to write: perfetto, chrome"),
        (("why", "x"), "WHAT is missing, one of reset, evict, admit: "),
        (("page", "x"), "PAGE is missing: "),
        (("report", "x"), "--output is missing: The HTML file"),
    ],
)
def test_what_is_missing_is_named(capsys, words, missing):
    """Its name stands there, as the help has it, with what it is and what it may be."""
    assert missing in refused(capsys, *words)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_shows_what_there_is(capsys, name):
    """No options that nobody made, no arguments without a name, no defaults that say nothing."""
    assert main([name, "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: kvlife {name}")
    for noise in ("--empty", "--no-", "ARGS", "[default: False]", "[default: ()]"):
        assert noise not in shown


@pytest.mark.parametrize(
    ("closed", "status"), [((1,), 2), ((2,), 0), ((1, 2), 2), ((0, 2), 0), ((0, 1, 2), 2)]
)
def test_a_closed_output_is_no_finding(log, closed, status):
    """Without a standard output there is nothing to say; other closed files change nothing."""
    program = (
        f"import os, sys; [os.close(fd) for fd in {closed}];"
        f"os.execv(sys.executable, [sys.executable, '-m', 'kvlife.replay', 'leaks', {str(log)!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, env=dict(os.environ)
    )
    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    assert bool(done.stdout) == (1 not in closed)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_the_narrowest_terminal_gets_its_help(columns):
    """With one or two columns the page went on for ever."""
    done = subprocess.run(
        [sys.executable, "-m", "kvlife.replay", "page", "--help"],
        env={**os.environ, "COLUMNS": str(columns)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
