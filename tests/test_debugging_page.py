"""docs/debugging.md tells one story, and every command in it does what the page shows."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from kvlife.replay.cli import COMMANDS

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "debugging.md"
FILE = re.compile(r"<!-- file: (\S+) -->\n```python\n(.*?)```", re.DOTALL)
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
STATUS = re.compile(r"\s+# exit status (\d)$")
SUBSTITUTE = re.compile(r"^sed -i 's/(.*)/(.*)/' (\S+)$")

# A line of the page may leave out parts of what is printed.
SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
# What a run of the engine, an import or a plan shows stands on other pages.
ELSEWHERE = {"simulate", "import", "plan"}


@attrs.frozen
class Shown:
    """A command of the page, the exit status it must have, and what it must print."""

    words: tuple[str, ...]
    status: int
    printed: str


def shown():
    """The page's commands, in order."""
    for block in CONSOLE.findall(PAGE.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            status = STATUS.search(command)
            yield Shown(
                tuple(shlex.split(STATUS.sub("", command))),
                0 if status is None else int(status[1]),
                printed,
            )


def started(words):
    """The words of a command as this environment has them."""
    programs = {
        "kvlife": [sys.executable, "-m", "kvlife.replay"],
        "python": [sys.executable],
    }
    return [*programs[words[0]], *words[1:]]


def ran(words, folder):
    """The finished process of a command in the folder."""
    environment = os.environ | {"COLUMNS": "100", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        started(words), cwd=folder, env=environment, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip


def write_files(folder):
    """The files that the page shows."""
    for name, source in FILE.findall(PAGE.read_text(encoding="utf-8")):
        folder.joinpath(name).write_text(source, encoding="utf-8")


def test_the_story_is_as_it_stands(tmp_path):
    """Each command, run after those before it, ends and prints as the page says."""
    write_files(tmp_path)
    checker = doctest.OutputChecker()
    commands = list(shown())
    assert len(commands) > 10
    for command in commands:
        done = ran(command.words, tmp_path)
        name = shlex.join(command.words)
        assert done.returncode == command.status, f"{name}\n{done.stdout}{done.stderr}"
        if command.printed:
            told = f"{name}\n{done.stdout}{done.stderr}"
            assert checker.check_output(command.printed, done.stdout, SHOWN), told


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - ELSEWHERE))
def test_every_command_is_in_the_story(name):
    """The page shows each command of the debugger."""
    assert any(command.words[:2] == ("kvlife", name) for command in shown())
