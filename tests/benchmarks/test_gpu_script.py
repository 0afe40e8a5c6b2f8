"""gpu.py runs where there is nothing but torch, Triton, numpy and attrs, and says what it did."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu.py"

# Runs the script where nothing of kvlife but kernels, and none of its other libraries, can be had.
BARE = f"""
import runpy, sys

ALLOWED = ("kvlife", "kvlife.kernels")
BLOCKED = {{"msgspec", "structlog", "cyclopts", "rich", "hypothesis", "zstandard", "backports"}}

class Bare:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        foreign = top == "kvlife" and name not in ALLOWED and not name.startswith("kvlife.kernels.")
        if top in BLOCKED or foreign:
            raise ImportError(name + " is not to be had here")

sys.meta_path.insert(0, Bare())
sys.argv = [{str(SCRIPT)!r}, *sys.argv[1:]]
sys.path.insert(0, {str(SCRIPT.parent)!r})
runpy.run_path({str(SCRIPT)!r}, run_name="__main__")
"""


def run(*arguments, bare=False):
    start = ["-c", BARE] if bare else [str(SCRIPT)]
    return subprocess.run(
        [sys.executable, *start, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path):
    """Exit status 2, what is the case and what to do, and no file."""
    out = tmp_path / "gpu.json"
    done = run("--out", out)
    assert done.returncode == 2
    assert "there is no GPU here" in done.stderr
    assert "--dry-run" in done.stderr
    assert not out.exists()


def test_a_rehearsal_checks_every_kernel_and_claims_no_speed(tmp_path, seed):
    """All of it runs on the CPU, with no library that a GPU machine may lack."""
    out = tmp_path / "gpu.json"
    done = run("--dry-run", "--seed", seed % 2**31, "--out", out, bare=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was measured" in done.stdout
    found = json.loads(out.read_text())
    assert found["passed"]
    assert found["checks"]["complete"]
    checked = found["checks"]["operations"]
    contracts = {path.parent.name for path in (ROOT / "kernels").glob("*/contract.py")}
    assert {"store_kv", "decode_step", "audit_refs", "digest_pages"} <= set(checked) == contracts
    assert all(tally["equal"] for tally in checked.values())
    measured = {record["what"].split()[0].strip(",") for record in found["bandwidth"]}
    assert measured == {"store_kv", "copy_pages", "gather_pages", "scatter_pages", "digest_pages"}
    launched = {record["what"].split(",")[0] for record in found["launches"]}
    assert launched == {"empty launch", "decode_step", "bind_pages", "release_pages", "slots_of"}
    for record in found["bandwidth"] + found["launches"]:
        assert not {"failed", "skipped", "gb_per_s", "met"} & set(record), record


def test_what_there_was_no_time_for_is_said(tmp_path):
    """With no time at all nothing is checked, and that is not passed off as right."""
    out = tmp_path / "gpu.json"
    done = run("--dry-run", "--seconds", 0, "--out", out)
    assert done.returncode == 1
    assert "NOT checked" in done.stdout
    found = json.loads(out.read_text())
    assert not found["passed"]
    assert not found["checks"]["complete"]
    assert {record["skipped"] for record in found["bandwidth"]} == {"no time left"}
