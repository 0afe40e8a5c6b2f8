"""docs/pools.md: its example prints what the page says that it prints."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pools.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_shows(tmp_path):
    """The file of the page runs as a user would run it, without warnings."""
    ((name, source),) = re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    (output,) = re.findall(r"<!-- output -->\n```text\n(.*?)```", PAGE, re.DOTALL)
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
