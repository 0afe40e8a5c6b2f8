"""Rows let go of pages on the device."""

from kvlife.kernels.release_pages.contract import release_pages

__all__ = ["release_pages"]
