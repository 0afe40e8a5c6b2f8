"""Pages filled from a contiguous staging buffer, over all layers and planes."""

from kvlife.kernels.scatter_pages.contract import scatter_pages

__all__ = ["scatter_pages"]
