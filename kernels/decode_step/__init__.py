"""A whole decode step on the device, in one launch."""

from kvlife.kernels.decode_step.contract import decode_step

__all__ = ["decode_step"]
