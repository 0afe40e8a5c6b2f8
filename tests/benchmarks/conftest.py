"""Puts benchmarks/ where its scripts would find their modules."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _scripts(monkeypatch):
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
