"""A 64-bit digest of each page's content, over all layers and planes."""

from kvlife.kernels.digest_pages.contract import digest_pages

__all__ = ["digest_pages"]
