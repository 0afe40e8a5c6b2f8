"""The README's examples run, and print what it says they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parent.parent / "README.md"
PAGE = README.parent / "docs" / "debugging.md"
STORY = re.compile(r"```console\n(.*?)```", re.DOTALL)
BLOCK = re.compile(r"<!-- (runs|prints): (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)


def blocks(kind):
    """The marked blocks of one kind, by name."""
    found = BLOCK.findall(README.read_text(encoding="utf-8"))
    return {name: body for what, name, body in found if what == kind}


def run(source):
    """What a fresh interpreter prints for a block."""
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", sorted(blocks("runs")))
def test_example_prints_what_the_readme_says(name):
    """Each marked example runs in a fresh interpreter and prints the text that stands below it."""
    printed = run(blocks("runs")[name])
    promised = blocks("prints").get(name)
    assert printed.strip()
    if promised is not None:
        assert printed.strip() == promised.strip()


def test_the_allocator_without_its_bug_is_quiet():
    """The same block manager with the partial block returned raises nothing and prints nothing."""
    source = blocks("runs")["watch"]
    faulty = "self.lengths.pop(rid) // self.size "
    mended = source.replace(faulty, "-(-self.lengths.pop(rid) // self.size) ")
    assert mended != source
    assert run(mended).strip() == ""


def test_the_story_is_that_of_the_debugging_page():
    """Each line of the story on the front page stands on the page that a test runs."""
    (story,) = STORY.findall(README.read_text(encoding="utf-8"))
    whole = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in story.splitlines() if line not in whole] == []
