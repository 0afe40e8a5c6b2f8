"""`load_kv` reads K and V of slots back, in a compute dtype."""

from kvlife.kernels.load_kv.contract import load_kv

__all__ = ["load_kv"]
