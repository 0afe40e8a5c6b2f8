"""The page on sizing: its examples run, and print what it says they print."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kvlife.errors import ConfigError
from kvlife.sizing import ModelGeometry

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
BLOCK = re.compile(r"<!-- (runs|prints): (\w+) -->\n```\w+\n(.*?)```", re.DOTALL)


def blocks(kind):
    found = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return {name: body for what, name, body in found if what == kind}


def test_there_are_examples():
    """Each example that runs has what it prints beside it."""
    assert blocks("runs").keys() == blocks("prints").keys() != set()


@pytest.mark.parametrize("name", blocks("runs"))
def test_examples_print_what_the_page_says(name):
    """Each marked example, in a fresh interpreter."""
    code = [sys.executable, "-c", blocks("runs")[name]]
    done = subprocess.run(code, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == blocks("prints")[name].strip()


def test_the_error_on_the_page_is_the_one_that_is_raised():
    """A window that no layer is said to have."""
    config = {
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "head_dim": 64,
        "sliding_window": 4096,
        "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    }
    with pytest.raises(ConfigError) as refused:
        ModelGeometry.from_config(config)
    assert str(refused.value) in re.sub(r"\s+", " ", PAGE.read_text(encoding="utf-8"))
