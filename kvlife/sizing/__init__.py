"""Sizing: from a model's shape and a GPU's memory to pools, with the arithmetic shown."""

from kvlife.sizing.cells import Cell, CellPart, GroupBytes, group_bytes
from kvlife.sizing.derivation import Derivation
from kvlife.sizing.drafts import Draft
from kvlife.sizing.dtypes import (
    CPU,
    CUDA,
    HIP,
    KvDtype,
    Platform,
    ScaleLayout,
    configure_kv_cache_dtype,
)
from kvlife.sizing.geometry import (
    Compressed,
    CompressorState,
    FullAttention,
    Heads,
    Latent,
    LatentIndexed,
    LayerCache,
    ModelGeometry,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
    SparseIndexed,
)
from kvlife.sizing.parallel import Parallel
from kvlife.sizing.reading.quantization import checkpoint_quantization

__all__ = [
    "CPU",
    "CUDA",
    "HIP",
    "Cell",
    "CellPart",
    "Compressed",
    "CompressorState",
    "Derivation",
    "Draft",
    "FullAttention",
    "GroupBytes",
    "Heads",
    "KvDtype",
    "Latent",
    "LatentIndexed",
    "LayerCache",
    "ModelGeometry",
    "Parallel",
    "Platform",
    "RecurrentState",
    "ScaleLayout",
    "SharedWindow",
    "SlidingWindow",
    "SparseIndexed",
    "checkpoint_quantization",
    "configure_kv_cache_dtype",
    "group_bytes",
]
