"""Transitions of pages on the device that touch no table."""

from kvlife.kernels.change_pages.contract import change_pages
from kvlife.kernels.change_pages.transitions import Transition

__all__ = ["Transition", "change_pages"]
