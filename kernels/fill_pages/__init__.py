"""Pages filled with one byte: the poison of freed pages."""

from kvlife.kernels.fill_pages.contract import fill_pages

__all__ = ["fill_pages"]
