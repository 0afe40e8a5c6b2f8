"""The page on fuzzing: its test finds what it says, and its mend mends.

Its contracts are run by `test_conformance`.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvlife.replay.cli import main
from kvlife.testing.adapter import LOOKS, VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "fuzzing.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- file: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
OUTPUT = re.search(r"<!-- output: pytest -->\n```text\n(.*?)```", PAGE, re.DOTALL)[1]
MEND = re.search(r"<!-- mend -->\n```python\n(.*?)```", PAGE, re.DOTALL)[1]


def run_pytest(folder, name, **files):
    """Write the page's files, some of them changed, and run one of them as a user would."""
    for file, content in {**FILES, **files}.items():
        (folder / file).write_text(content, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)])}
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", "--rootdir", str(folder)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def mended():
    """The allocator with the lines of the mend in place of those that they mend."""
    source = FILES["pages.py"]
    first = "        if wanted > len(self.free_list):\n            self.drop_unused()\n"
    last = "        self.tables[name] = table\n"
    start, stop = source.index(first), source.index(last) + len(last)
    return source[:start] + MEND + source[stop:]


def test_the_page_s_test_finds_the_fault(tmp_path, capsys):
    """The run ends with the lines that the page shows, and the log shows the same violation."""
    done = run_pytest(tmp_path, "test_pages.py")
    assert done.returncode == 1
    shown = [line.removeprefix("E").strip() for line in done.stdout.splitlines() if line[:1] == "E"]
    first, *promised = OUTPUT.splitlines()
    assert shown[0].startswith(first)
    assert shown[1:] == promised
    assert main(["replay", str(tmp_path / "fuzz-logs" / "run-000001")]) == 1
    assert "page-double-alloc at seq 6" in capsys.readouterr().out


def test_the_mend_mends(tmp_path):
    """With the mend the page's test passes."""
    done = run_pytest(tmp_path, "test_pages.py", **{"pages.py": mended()})
    assert done.returncode == 0, done.stdout


def test_a_refusal_that_changes_something_is_found(tmp_path):
    """Without the lines that take the counts back, the page's test fails again."""
    back = "            for page in table:\n                self.users[page] -= 1\n"
    source = mended()
    assert source.count(back) == 1
    done = run_pytest(tmp_path, "test_pages.py", **{"pages.py": source.replace(back, "")})
    assert done.returncode == 1
    assert "ContractBroken: refused" in done.stdout


@pytest.mark.parametrize("kind", ["verb", "look"])
def test_the_tables_of_the_page_have_every_name(kind):
    """Each verb and look that the kit knows stands in the page's tables."""
    protocols = VERBS if kind == "verb" else LOOKS
    names = {name for p in protocols for name in vars(p) if not name.startswith("_")}
    assert [name for name in sorted(names) if f"`{name}(" not in PAGE] == []
