"""What a command writes: whole or not at all, and not into a run."""

import errno
import os
import subprocess
import sys

import pytest
import recorded_runs as made

from kvlife.errors import ConfigError
from kvlife.replay.cli import main
from kvlife.replay.output.output_file import (
    new_file,
    new_folder,
    refuse_log,
    refuse_new_file,
    refuse_output,
    refuse_output_folder,
)


def test_a_file_gets_its_name_at_the_end(tmp_path):
    """Until all is written there is nothing under the name; then it replaces what was there."""
    output = tmp_path / "out"
    output.write_text("old")
    with new_file(output) as file:
        file.write(b"new")
        assert output.read_text() == "old"
    assert output.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_error_leaves_nothing(tmp_path):
    """A file or folder that was not finished is gone, and the error is the one that was raised."""
    with pytest.raises(KeyboardInterrupt), new_file(tmp_path / "out"):
        raise KeyboardInterrupt
    with pytest.raises(FileNotFoundError), new_folder(tmp_path / "out") as folder:
        folder.joinpath("x").write_bytes(tmp_path.joinpath("missing").read_bytes())
    assert list(tmp_path.iterdir()) == []


def test_errors_are_told_apart(tmp_path):
    """A full disk is the output's; a file of the log that cannot be read is not."""
    full = OSError(errno.ENOSPC, "No space left on device")
    with (
        pytest.raises(ConfigError, match="cannot be written"),
        new_file(tmp_path / "out"),
    ):
        raise full
    foreign = PermissionError(errno.EACCES, "Permission denied", "/log/00000000.seg")
    with pytest.raises(PermissionError), new_file(tmp_path / "out"):
        raise foreign
    with pytest.raises(PermissionError), new_folder(tmp_path / "out"):
        raise foreign


@pytest.fixture
def run(tmp_path):
    """The log of a small run."""
    made.observe(tmp_path / "log", [made.life_of("r1", 1, [1, 2])])
    return tmp_path / "log" / "run-000001"


@pytest.fixture
def places(tmp_path, run):
    """One path of each sort that there is, by name."""
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to-fifo").symlink_to("fifo")
    (tmp_path / "to-run").symlink_to(run)
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "to-new").symlink_to("new")
    (run / "deep").mkdir()
    return tmp_path


def vetted(refuse, *arguments, **options):
    """What is said against an output; nothing where nothing is."""
    try:
        refuse(*arguments, **options)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("empty", "is a folder: name the page"),
        ("log/run-000001/x", "lies in a run's folder"),
        ("log/run-000001/deep/x", "lies in a run's folder"),
        ("to-run/x", "lies in a run's folder"),
        ("no/x", "there is no folder"),
        ("file/x", "is a file, not a folder"),
        ("fifo", "is a device or a pipe"),
        ("to-fifo", "is a device or a pipe"),
        ("ring", "leads back to itself"),
        ("new", ""),
        ("to-new", ""),
        ("file", ""),
    ],
)
def test_a_file_has_its_place(places, place, said):
    """Not a folder, nor in a run, nor where there is no folder, nor over a pipe, through links."""
    told = vetted(refuse_output, places / place, "page", source=places / "log")
    assert said in told
    assert bool(said) == bool(told)


@pytest.mark.parametrize("place", ["file", "fifo", "ring", "to-new", "empty", "no/x", "to-run/x"])
def test_a_file_that_must_be_new_replaces_nothing(places, place):
    """What is there already, a link that leads nowhere too, is refused as a place for a new one."""
    assert vetted(refuse_new_file, places / place, "test", option="--pytest").startswith("--pytest")
    assert not vetted(refuse_new_file, places / "new", "test")


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file", "is there already"),
        ("log", "is there already"),
        ("fifo", "is there already"),
        ("log/run-000001/x", "lies in a run's folder"),
        ("log/run-000001/deep", "lies in a run's folder"),
        ("no/x", "there is no folder"),
        ("empty", ""),
        ("new", ""),
    ],
)
def test_a_folder_is_new_or_empty(places, place, said):
    """Nothing of a folder is replaced, and none is made in a run."""
    told = vetted(refuse_output_folder, places / place)
    assert said in told
    assert bool(said) == bool(told)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file", "is a file, not a folder"),
        ("file/x", "is a file, not a folder"),
        ("log/run-000001", "lies in a run's folder"),
        ("log/run-000001/x/y", "lies in a run's folder"),
        ("to-run/x", "lies in a run's folder"),
        ("log", ""),
        ("no/x", ""),
    ],
)
def test_a_log_gets_runs_and_its_folders(places, place, said):
    """A run is added to a log; the folders above a new log are made, but none in a run."""
    told = vetted(refuse_log, places / place)
    assert said in told
    assert bool(said) == bool(told)
    assert "is there already" in vetted(refuse_log, places / "log", new=True)


def test_what_is_read_is_not_written_over(places):
    """The source is known by whatever name it goes."""
    (places / "linked").symlink_to("file")
    (places / "twin").hardlink_to(places / "file")
    for name in ("file", "linked", "twin", "empty/../file"):
        assert "is what is read" in vetted(
            refuse_output, places / name, "page", source=places / "file"
        )
        assert "is what is read" in vetted(
            refuse_output, places / "file", "page", source=places / name
        )


def test_what_the_command_says_is_not_written_over(places):
    """A file that standard output goes to keeps what stands in it, and its place."""
    program = [sys.executable, "-m", "kvlife.replay", "report", places / "log", "-o", places / "x"]
    with (places / "x").open("w+") as both:
        done = subprocess.run(program, stdout=both, stderr=subprocess.PIPE, check=False)
        assert done.returncode == 2
        assert b"is where the output of the command itself goes" in done.stderr
        assert os.path.samestat(os.fstat(both.fileno()), (places / "x").stat())


def test_a_folder_that_may_not_be_written_to_is_told_at_once(places, monkeypatch):
    """Who may not write to a folder hears so before any work is done."""
    monkeypatch.setattr(os, "access", lambda path, mode: path != places)
    for refuse, arguments in ((refuse_log, ()), (refuse_new_file, ("test",))):
        assert "may not be written to" in vetted(refuse, places / "new", *arguments)


def test_a_link_is_followed(places):
    """What a link leads to is made or replaced, and the link stays."""
    for content in (b"first", b"second"):
        with new_file(places / "to-new") as file:
            file.write(content)
        assert (places / "new").read_bytes() == content
    assert (places / "to-new").is_symlink()
    (places / "to-empty").symlink_to("empty")
    refuse_output_folder(places / "to-empty")
    with new_folder(places / "to-empty") as folder:
        (folder / "x").write_text("x")
    assert (places / "empty" / "x").read_text() == "x"
    assert (places / "to-empty").is_symlink()


@pytest.mark.parametrize("command", [["report"], ["export", "--to", "jsonl"], ["pack"]])
def test_commands_spare_what_they_read_and_what_is_no_file(places, capsys, command):
    """A pack that is the source of a command, a pipe and a run are as they were."""
    packed = places / "a.kvpack"
    assert main(["pack", str(places / "log"), "-o", str(packed)]) == 0
    before = packed.read_bytes()
    (places / "b.kvpack").symlink_to("a.kvpack")
    name, *options = command
    for output in ("a.kvpack", "b.kvpack", "fifo", "to-fifo", "to-run/x"):
        assert main([name, str(packed), *options, "-o", str(places / output)]) == 2
        assert f"-o {places / output}: " in capsys.readouterr().err
    assert packed.read_bytes() == before
    assert (places / "fifo").is_fifo()
    assert not (places / "to-run" / "x").exists()


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        (["-o", "log/run-000001/out"], "-o"),
        (["-o", "small", "--pytest", "log/run-000001/t.py"], "--pytest"),
        (["-o", "small", "--pytest", "no/t.py"], "--pytest"),
        (["-o", "small", "--pytest", "fifo"], "--pytest"),
        (["-o", "small", "--pytest", "empty/../small"], "--pytest"),
    ],
)
def test_shrink_looks_at_its_outputs_first(places, capsys, monkeypatch, options, refused):
    """Where one of its outputs cannot be, shrink reads nothing and writes nothing."""
    monkeypatch.chdir(places)
    assert main(["shrink", "nothing", *options]) == 2
    assert f"kvlife: {refused} {options[-1]}: " in capsys.readouterr().err
    assert not (places / "small").exists()
    assert not (places / "log" / "run-000001" / "out").exists()


def test_runs_are_not_written_into_runs(places, capsys, monkeypatch):
    """An import and a simulation refuse a run's folder as the place for a log."""
    monkeypatch.chdir(places)
    for command in (["import", "vllm", "file", "-o"], ["simulate", "--synthetic", "1", "--log"]):
        assert main([*command, "to-run/x"]) == 2
        assert "lies in a run's folder" in capsys.readouterr().err
    assert not (places / "to-run" / "x").exists()
