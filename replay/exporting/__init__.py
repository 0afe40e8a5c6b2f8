"""A log for other programs: as a timeline, as tables, or as text; one module for each target."""

from kvlife.replay.exporting.following import Following, Onlooker
from kvlife.replay.exporting.jsonl import write_jsonl

__all__ = ["Following", "Onlooker", "write_jsonl"]
