"""Table entries go from a row's own pages to the canonical ones."""

from kvlife.kernels.rebind.contract import rebind

__all__ = ["rebind"]
