"""What `kvlife replay` says to input that it cannot use: status 2, a message, no traceback."""

import json
import os
import subprocess
import sys

import pytest
import recorded_runs as made

from kvlife import open_run


def refused(capsys, *arguments):
    """The complaint of a command that must end with 2."""
    status, out, err = made.shown(capsys, *arguments)
    assert status == 2
    assert not out
    assert "Traceback" not in err
    assert err.startswith("kvlife: ")
    return err


def test_no_such_folder(tmp_path, capsys):
    """A path that is not there is named."""
    assert str(tmp_path / "none") in refused(capsys, tmp_path / "none")


def test_a_file_in_place_of_a_folder(tmp_path, capsys):
    """A file is no run."""
    (tmp_path / "file").write_text("events")
    assert "file" in refused(capsys, tmp_path / "file")


def test_an_empty_folder(tmp_path, capsys):
    """A folder without runs says what to name."""
    assert "no run in it" in refused(capsys, tmp_path)


def test_a_run_without_its_header(tmp_path, capsys):
    """A run folder that has lost its header cannot be read, and is named."""
    (tmp_path / "run-000001").mkdir()
    assert "header.json" in refused(capsys, tmp_path)


COMMANDS = (
    ["replay"],
    ["replay", "--jobs", "2"],
    ["inspect"],
    ["log"],
    ["page", "1"],
    ["request", "r1"],
    ["leaks"],
    ["why", "reset"],
    ["bisect", "rows_held > 0"],
    ["top", "--once"],
    ["report", "-o", "OUT"],
    ["export", "--to", "jsonl", "-o", "OUT"],
    ["pack", "-o", "OUT"],
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_run_that_never_began_is_passed_over(tmp_path, capsys, words):
    """An engine killed before its header stands leaves a folder: the run before it is opened."""
    root = tmp_path / "root"
    made.observe(root, [made.life_of("r1", 1, [1, 2])])
    (root / "run-000002").mkdir()
    command, *rest = [str(tmp_path / word) if word == "OUT" else word for word in words]
    status, out, err = made.ran(capsys, command, root, *rest)
    assert status == 0
    assert err == (
        f"kvlife: {root}/run-000002 has no header.json (its engine was killed while it started, or"
        f" is starting) and was left out: this is {root}/run-000001\n"
    )
    assert out
    assert open_run(root).left_out == (root / "run-000002",)


def test_a_difference_passes_over_runs_that_never_began(tmp_path, capsys):
    """Both sides of a comparison are the newest runs that have a header."""
    for side in ("a", "b"):
        made.observe(tmp_path / side, [made.life_of("r1", 1, [1, 2])])
    (tmp_path / "b" / "run-000002").mkdir()
    status, _, err = made.ran(capsys, "diff", tmp_path / "a", tmp_path / "b")
    assert status == 0
    assert err.count("\n") == 1
    assert err.startswith(f"kvlife: {tmp_path}/b/run-000002 has no header.json ")


def test_shrink_passes_over_a_run_that_never_began(tmp_path, capsys):
    """The run that is made small is the newest that has a header."""
    facts = made.life_of("r1", 1, [1, 2])
    made.observe(tmp_path / "root", [[*facts, facts[-1]]])
    (tmp_path / "root" / "run-000002").mkdir()
    status, out, err = made.ran(capsys, "shrink", tmp_path / "root", "-o", tmp_path / "small")
    assert (status, err.count("\n")) == (0, 1)
    assert "run-000001" in out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_run_that_began(tmp_path, capsys, words):
    """Where no run has a header, or the one that is named has none, that is said."""
    (tmp_path / "run-000001").mkdir()
    command, *rest = [str(tmp_path / word) if word == "OUT" else word for word in words]
    for path, said in (
        (tmp_path, "none of its runs has a header.json: "),
        (tmp_path / "run-000001", "no header.json in it: "),
    ):
        status, out, err = made.ran(capsys, command, path, *rest)
        assert (status, out) == (2, "")
        assert err.startswith(f"kvlife: {path}: {said}")
        assert err.count("\n") == 1


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"[]", b"{}", b'{"format_version": 1}'])
def test_a_header_that_is_none(tmp_path, capsys, content):
    """What is no header of this format is refused as such."""
    made.observe(tmp_path, [])
    (run,) = tmp_path.iterdir()
    (run / "header.json").write_bytes(content)
    assert "header.json" in refused(capsys, tmp_path)


@pytest.mark.parametrize("command", ["replay", "inspect", "top"])
@pytest.mark.parametrize("pattern", ["header.json", "*.segz", "*.snap"])
def test_a_pipe_in_place_of_a_file(tmp_path, capsys, pattern, command):
    """What stands in a run under the name of a file and is none is named, and not waited for."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2]), "snapshot"])
    path = next(tmp_path.rglob(pattern))
    path.unlink()
    os.mkfifo(path)
    options = ["--once"] if command == "top" else []
    status, _, err = made.ran(capsys, command, tmp_path, *options)
    assert status == 2
    assert f"{path}: is no file" in err


def test_a_newer_format(tmp_path, capsys):
    """A log of a newer format version is refused, and both versions are named."""
    made.observe(tmp_path, [])
    change_header(tmp_path, format_version=2)
    err = refused(capsys, tmp_path)
    assert "format 2" in err
    assert "up to 1" in err


def test_pools_larger_than_memory(tmp_path, capsys):
    """A header that asks for a ledger beyond the machine's memory is refused before it is made."""
    made.observe(tmp_path, [])
    huge = {"page_size": 1, "num_pages": 1 << 26, "max_requests": 1 << 20}
    config = {**header_of(tmp_path)["config"], **huge, "max_context_len": 1 << 26}
    change_header(tmp_path, config=config)
    # Its segments, and what is beside them, are of the header they were written under.
    for path in tmp_path.rglob("0*.*"):
        path.unlink()
    assert "lower num_pages" in refused(capsys, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--jobs", "0"], "--jobs"),
        (["--from", "-1"], "--from"),
        (["--from", "4"], "events are [0, 4)"),
        (["--from", "2", "--to", "1"], "--to 1"),
        (["--to", "-1"], "--to"),
        (["--ignore", "nonsense"], "'nonsense'; there are ladder-order"),
        (["--check", "nonsense"], "'nonsense'; there are event, step, sample, off"),
    ],
)
def test_arguments_that_fit_no_log(tmp_path, capsys, arguments, words):
    """An argument out of range is named with what is possible."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])])
    assert words in refused(capsys, tmp_path, *arguments)


def test_arguments_that_are_none(tmp_path):
    """An unknown option, a word where a number stands and a missing log end with 2."""
    for arguments in (["--nonsense"], [str(tmp_path), "--jobs", "two"], []):
        done = subprocess.run(
            [sys.executable, "-m", "kvlife.replay", "replay", *arguments],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert done.stderr
        assert "Traceback" not in done.stderr


def test_nothing_is_written_beside_a_log_that_is_read(tmp_path, capsys):
    """A replay leaves the log as it found it."""
    made.crowded_engine(tmp_path, seed=3, num_steps=60)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    made.replayed(capsys, tmp_path, "--jobs", 2)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert open_run(tmp_path).closed is not None


def header_of(root):
    (run,) = root.iterdir()
    return json.loads((run / "header.json").read_text())


def change_header(root, **fields):
    (run,) = root.iterdir()
    (run / "header.json").write_text(json.dumps({**header_of(root), **fields}))
