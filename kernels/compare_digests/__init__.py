"""Digests of pages held against what they should be."""

from kvlife.kernels.compare_digests.contract import compare_digests

__all__ = ["compare_digests"]
