"""Captures of other engines, checked, and as kvlife logs."""

from kvlife.capture.contradictions import Contradiction
from kvlife.capture.event_check import StreamOutcome, check_events
from kvlife.capture.vllm_import import ImportOutcome, import_vllm

__all__ = ["Contradiction", "ImportOutcome", "StreamOutcome", "check_events", "import_vllm"]
