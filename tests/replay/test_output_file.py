"""What a command writes: whole or not at all, and not into a run."""

import errno

import pytest

from kvlife.errors import ConfigError
from kvlife.replay.output.output_file import (
    new_file,
    new_folder,
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


def test_places_that_are_taken_are_refused(tmp_path):
    """A folder for a file, a file for a folder, a run's folder, a folder that is not there."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "header.json").write_text("{}")
    (tmp_path / "file").write_text("x")
    for place, said in (
        (tmp_path, "is a folder: name the page"),
        (tmp_path / "run" / "x", "lies in a run's folder"),
        (tmp_path / "no" / "x", "there is no folder"),
    ):
        with pytest.raises(ConfigError, match=said):
            refuse_output(place, "page")
    for place in (tmp_path / "file", tmp_path / "run"):
        with pytest.raises(ConfigError, match="is there already"):
            refuse_output_folder(place)
    (tmp_path / "empty").mkdir()
    refuse_output_folder(tmp_path / "empty")
    with new_folder(tmp_path / "empty") as folder:
        (folder / "x").write_text("x")
    assert (tmp_path / "empty" / "x").read_text() == "x"
