"""Tests of pools use what drives the ledger, the checker and the engine in their tests."""

import sys
from pathlib import Path

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / name) for name in ("engine", "invariants", "ledger")]
