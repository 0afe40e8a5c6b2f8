"""Matched pages on the device: pages that others hold go into table entries."""

from kvlife.kernels.share_pages.contract import share_pages

__all__ = ["share_pages"]
