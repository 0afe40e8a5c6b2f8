"""Sizing: from a model's shape and a GPU's memory to pools, with the arithmetic shown."""

from kvlife.sizing.admission import demand_pages, refuse_unservable
from kvlife.sizing.buffers import Buffer
from kvlife.sizing.cells import Cell, CellPart, GroupBytes, group_bytes
from kvlife.sizing.configurator import KVCacheConfigurator
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
from kvlife.sizing.figures import Figure, Figures
from kvlife.sizing.geometry import ModelGeometry
from kvlife.sizing.layers import (
    Compressed,
    CompressorState,
    FullAttention,
    Heads,
    Latent,
    LatentIndexed,
    LayerCache,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
    SparseIndexed,
)
from kvlife.sizing.parallel import Parallel
from kvlife.sizing.pools import build_pools
from kvlife.sizing.ranks import plan_pipeline
from kvlife.sizing.reading.quantization import checkpoint_quantization
from kvlife.sizing.resize import PostCaptureKVResize, ResizeCall, compute_post_capture_kv_resize
from kvlife.sizing.result import KVCacheConfigResult
from kvlife.sizing.states import StateSizing
from kvlife.sizing.tables import Table
from kvlife.sizing.units import parse_bytes, size_text
from kvlife.sizing.windows import ByRatio, ByRequests

__all__ = [
    "CPU",
    "CUDA",
    "HIP",
    "Buffer",
    "ByRatio",
    "ByRequests",
    "Cell",
    "CellPart",
    "Compressed",
    "CompressorState",
    "Draft",
    "Figure",
    "Figures",
    "FullAttention",
    "GroupBytes",
    "Heads",
    "KVCacheConfigResult",
    "KVCacheConfigurator",
    "KvDtype",
    "Latent",
    "LatentIndexed",
    "LayerCache",
    "ModelGeometry",
    "Parallel",
    "Platform",
    "PostCaptureKVResize",
    "RecurrentState",
    "ResizeCall",
    "ScaleLayout",
    "SharedWindow",
    "SlidingWindow",
    "SparseIndexed",
    "StateSizing",
    "Table",
    "build_pools",
    "checkpoint_quantization",
    "compute_post_capture_kv_resize",
    "configure_kv_cache_dtype",
    "demand_pages",
    "group_bytes",
    "parse_bytes",
    "plan_pipeline",
    "refuse_unservable",
    "size_text",
]
