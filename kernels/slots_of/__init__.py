"""Slots of token ranges of many rows."""

from kvlife.kernels.slots_of.contract import slots_of

__all__ = ["slots_of"]
