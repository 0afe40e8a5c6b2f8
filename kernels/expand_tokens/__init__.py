"""The token-level table that some attention kernels want."""

from kvlife.kernels.expand_tokens.contract import expand_tokens

__all__ = ["expand_tokens"]
