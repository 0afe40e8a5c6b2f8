"""The number formats of stored KV, and narrowing to them: in torch here, in Triton beside it."""

from kvlife.kernels.numerics.bounds import error_bound
from kvlife.kernels.numerics.formats import (
    BF16,
    E2M1,
    E4M3,
    E5M2,
    FP16,
    FP32,
    STORAGE_FORMATS,
    FloatFormat,
    StorageFormat,
    storage_format,
)
from kvlife.kernels.numerics.reference import (
    COMPUTE_FORMATS,
    dequantise,
    narrow,
    narrow_to,
    quantise,
    widen,
)

__all__ = [
    "BF16",
    "COMPUTE_FORMATS",
    "E2M1",
    "E4M3",
    "E5M2",
    "FP16",
    "FP32",
    "STORAGE_FORMATS",
    "FloatFormat",
    "StorageFormat",
    "dequantise",
    "error_bound",
    "narrow",
    "narrow_to",
    "quantise",
    "storage_format",
    "widen",
]
