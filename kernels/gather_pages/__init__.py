"""Pages copied into a contiguous staging buffer, over all layers and planes."""

from kvlife.kernels.gather_pages.contract import gather_pages

__all__ = ["gather_pages"]
