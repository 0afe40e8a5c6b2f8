"""docs/pools.md: its examples print what the page says that they print."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pools.md").read_text(encoding="utf-8")


EXAMPLES = re.findall(
    r"<!-- file: (\S+) -->\n```python\n(.*?)```\n.*?<!-- output -->\n```text\n(.*?)```",
    PAGE,
    re.DOTALL,
)


@pytest.mark.parametrize(
    ("name", "source", "output"), EXAMPLES, ids=[name for name, _, _ in EXAMPLES]
)
def test_the_examples_print_what_the_page_shows(tmp_path, name, source, output):
    """The files of the page run as a user would run them, without warnings."""
    tmp_path.joinpath(name).write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", name],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, output), done.stderr


def test_every_file_of_the_page_is_run():
    """Each one stands before what it prints."""
    assert [name for name, _, _ in EXAMPLES] == re.findall(r"<!-- file: (\S+) -->", PAGE)
    assert EXAMPLES
