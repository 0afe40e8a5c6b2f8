"""`store_kv` writes K and V of new tokens to their slots, quantising on the way."""

from kvlife.kernels.store_kv.contract import store_kv

__all__ = ["store_kv"]
