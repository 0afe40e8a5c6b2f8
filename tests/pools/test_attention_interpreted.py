"""The toy attention layer with every kernel in Triton, as Triton's interpreter runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="triton is not installed")

ROOT = Path(__file__).resolve().parents[2]
# Each takes as long as fifty on torch: one of the layouts and dtypes, which stores all there is.
CASE = "test_attention.py::test_outputs_are_those_over_contiguous_kv[nvfp4-latent-layer]"


def test_outputs_are_those_of_the_kernels_too():
    """Events, stores, copies and reads run in Triton, in a process that interprets kernels."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_XDIST")}
    environment |= {"TRITON_INTERPRET": "1", "KVLIFE_KERNELS": "triton", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/pools/{CASE}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
