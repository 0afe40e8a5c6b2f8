"""The KV buffers of one cache group: an arena, laid out, with tokens stored and loaded by slot."""

from __future__ import annotations

import os

import torch
from torch import Tensor

from kvlife.errors import ConfigError
from kvlife.kernels.load_kv import load_kv
from kvlife.kernels.store_kv import store_kv
from kvlife.kernels.violations import Violations
from kvlife.pools.layouts import KvLayout

GIB = 1 << 30
VALUE_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": torch.float32,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e2m1": torch.uint8,
}
SCALE_DTYPES = {"e8m0": torch.float8_e8m0fnu, "e4m3": torch.float8_e4m3fn}


class KvBuffers:
    """The memory of `num_pages` pages of a layout on one device, zeroed.

    `arena` is one uint8 tensor, `planes` says where pages lie in it, `target` where tokens do.
    Groups that share a page space, and have the same planes, may share one arena: pass it. Findings
    of kernels go to `violations` (a buffer of its own where none is given) under the index `group`.
    Raises `ConfigError` for a pool that the layout cannot serve, or that is larger than the
    device's memory.
    """

    def __init__(
        self,
        layout: KvLayout,
        page_size: int,
        num_pages: int,
        device: torch.device | str = "cpu",
        *,
        arena: Tensor | None = None,
        violations: Violations | None = None,
        group: int = 0,
    ) -> None:
        self.layout = layout
        self.page_size = page_size
        self.num_pages = num_pages
        self.group = group
        self.planes = layout.planes(page_size, num_pages)
        self.target = layout.target(page_size, num_pages)
        self.num_bytes = self.planes.num_bytes
        self.arena = self._allocate(device) if arena is None else self._accept(arena)
        self.device = self.arena.device
        self.violations = violations or Violations.create(self.device)

    def _allocate(self, device: torch.device | str) -> Tensor:
        free = free_bytes(torch.device(device))
        wanted = f"{self.num_pages} pages of {self.page_size} tokens take {_gib(self.num_bytes)}"
        remedy = "lower num_pages, or take a smaller dtype"
        if self.num_bytes > free:
            raise ConfigError(f"{wanted}, and {device} has {_gib(free)}: {remedy}")
        try:
            return torch.zeros(self.num_bytes, dtype=torch.uint8, device=device)
        except RuntimeError as error:
            raise ConfigError(f"{wanted}, and {device} gave none: {remedy} ({error})") from error

    def _accept(self, arena: Tensor) -> Tensor:
        if arena.dtype != torch.uint8 or arena.ndim != 1 or not arena.is_contiguous():
            raise ConfigError(
                f"an arena is one contiguous row of uint8, got {arena.dtype} of shape"
                f" {list(arena.shape)} and strides {arena.stride()}"
            )
        if arena.numel() < self.num_bytes:
            raise ConfigError(
                f"the arena has {arena.numel()} bytes, and these planes take {self.num_bytes}:"
                " pass one that is as large, or lower num_pages"
            )
        return arena

    def store(self, layer: int, k: Tensor, v: Tensor, slots: Tensor, *, seq: int = 0) -> None:
        """Write the KV of new tokens of a layer to their slots; see `store_kv`."""
        store_kv(
            self.arena,
            self.target,
            layer,
            k,
            v,
            slots,
            violations=self.violations,
            seq=seq,
            group=self.group,
        )

    def load(
        self, layer: int, slots: Tensor, dtype: torch.dtype = torch.bfloat16, *, seq: int = 0
    ) -> tuple[Tensor, Tensor]:
        """The KV of these slots of a layer, in a compute dtype; see `load_kv`."""
        return load_kv(
            self.arena,
            self.target,
            layer,
            slots,
            dtype,
            violations=self.violations,
            seq=seq,
            group=self.group,
        )

    def view(self, plane: str, layer: int) -> Tensor:
        """One layer of a plane as attention kernels take it: [pages, page_size, ...], a view.

        Planes k and v are [..., heads, width], latent is [..., width], both in torch's own dtype of
        that name; e2m1 stands packed, uint8 of half the width. A plane of scales has a block where
        the values have a width, in float8_e8m0fnu or float8_e4m3fn.
        """
        shapes = self.layout.token_shapes()
        if plane not in shapes or not 0 <= layer < self.layout.num_layers:
            raise ConfigError(
                f"layer {layer} of plane {plane!r} asked for; there are planes"
                f" {', '.join(shapes)} of layers 0 to {self.layout.num_layers - 1}"
            )
        storage = self.layout.storage
        scaling = storage.block_scale if plane.endswith("_scales") else None
        dtype = SCALE_DTYPES[scaling] if scaling else VALUE_DTYPES[storage.values.name]
        (place,) = (one for one in self.planes.planes if one.name == plane)
        rows = self.arena.as_strided(
            (self.num_pages, self.page_size, place.page_bytes // self.page_size),
            (place.page_stride, place.page_bytes // self.page_size, 1),
            self.arena.storage_offset() + place.offset + layer * place.layer_stride,
        )
        return rows.view(dtype).unflatten(-1, (*shapes[plane][:-1], -1))


def free_bytes(device: torch.device) -> int:
    """Bytes that a pool on this device can have: free ones of a GPU, all of the host's.

    Raises `ConfigError` for a device that pools cannot lie on, or that is not there.
    """
    if device.type == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    present = torch.cuda.device_count()
    if device.type != "cuda" or (device.index or 0) >= present:
        raise ConfigError(
            f"pools on {device} asked for; they lie on cpu or cuda (HIP's GPUs are cuda to torch),"
            f" and torch sees {present} GPUs here"
        )
    # What torch keeps of earlier tensors is not free to the driver, and is to torch.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
