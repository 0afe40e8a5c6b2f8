"""Pages copied to pages, over all layers and planes."""

from kvlife.kernels.copy_pages.contract import copy_pages

__all__ = ["copy_pages"]
