"""Transitions of pages on the device that touch no table."""

from kvlife.kernels.change_pages.contract import Transition, change_pages

__all__ = ["Transition", "change_pages"]
