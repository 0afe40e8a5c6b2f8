"""Captures of other engines as kvlife logs."""

from kvlife.capture.contradictions import Contradiction
from kvlife.capture.vllm_import import ImportOutcome, import_vllm

__all__ = ["Contradiction", "ImportOutcome", "import_vllm"]
