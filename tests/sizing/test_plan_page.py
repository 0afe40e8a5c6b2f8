"""The commands on the page on sizing print what it says they print."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
FIRST = re.compile(r"<!-- runs: bytes -->\n```python\n(.*?)```", re.DOTALL)
# A line of the page may leave out what follows.
SHOWN = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
WRITE = "import json, pathlib; pathlib.Path('config.json').write_text(json.dumps(config))"


def shown():
    """The page's commands, and what it has below each."""
    for block in CONSOLE.findall(PAGE.read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            yield shlex.split(command), printed


def ran(words, folder):
    """What a fresh interpreter prints in a folder, on a terminal of many columns."""
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_commands_print_what_the_page_says(tmp_path):
    """Each command on the page, in a folder with the config of the first example."""
    config = FIRST.findall(PAGE.read_text(encoding="utf-8"))[0]
    ran([sys.executable, "-c", f"{config}\n{WRITE}"], tmp_path)
    commands = list(shown())
    assert len(commands) >= 3
    checker = doctest.OutputChecker()
    for words, printed in commands:
        assert words[:2] == ["kvlife", "plan"]
        out = ran([sys.executable, "-m", "kvlife.replay", *words[1:]], tmp_path)
        assert checker.check_output(printed, out, SHOWN), out
