"""A whole decode step on the device, in one launch."""

from kvlife.kernels.decode_step.contract import DecodeStep, decode_step

__all__ = ["DecodeStep", "decode_step"]
