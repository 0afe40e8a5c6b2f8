"""Slots that are about to be stored to, held against the rows that may write there."""

from kvlife.kernels.check_stores.contract import check_stores

__all__ = ["check_stores"]
