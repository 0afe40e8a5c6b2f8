"""Content checks through the Triton kernels, under the interpreter, in a process of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

HERE = Path(__file__).resolve().parent
CHOSEN = "match or evict-1 or another_rows or was_freed or swapped or copied_wrongly"


def test_contents_are_checked_by_the_kernels_too():
    """Some of the tests of these folders pass where every operation is done by its kernel."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "KVLIFE_KERNELS": "triton"}
    # The coordinates of xdist's worker would make the process one too.
    environment = {k: v for k, v in environment.items() if not k.startswith("PYTEST_XDIST")}
    files = [HERE / f"test_content{part}.py" for part in ("", "_copies", "_stores")]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", CHOSEN, *files],
        cwd=HERE.parent.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 8
