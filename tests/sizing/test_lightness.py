"""Sizing is arithmetic: it loads nothing heavy, and asks nothing of the machine."""

import ast
import subprocess
import sys
from pathlib import Path

import kvlife.sizing

HEAVY = ("torch", "triton", "rich", "cyclopts", "structlog", "hypothesis")
ASKS = ("os", "environ", "subprocess", "socket", "time", "random", "secrets", "torch")


def test_importing_it_loads_nothing_heavy():
    """Neither torch nor anything of the command line is loaded with `kvlife.sizing`."""
    code = f"import sys, kvlife.sizing;print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_asks_nothing_of_the_machine():
    """No module of it imports the environment, a clock, chance or a device."""
    folder = Path(kvlife.sizing.__file__).parent
    modules = sorted(folder.rglob("*.py"))
    assert len(modules) > 10
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert [name for name in names if name.partition(".")[0] in ASKS] == [], module
