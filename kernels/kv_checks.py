"""What `store_kv` and `load_kv` check of their arguments before anything is written."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.kv_target import KvPart, KvTarget
from kvlife.kernels.numerics import COMPUTE_FORMATS
from kvlife.kernels.table_checks import is_count

COMPUTE_DTYPES = tuple(COMPUTE_FORMATS)
SLOT_DTYPES = (torch.int32, torch.int64)


def check_place(operation: str, arena: Tensor, target: object, layer: int) -> None:
    """Raise `KernelError` unless the arena holds the target and the target has the layer."""
    if not isinstance(target, KvTarget):
        case = f"it is {type(target).__name__}"
        refuse(operation, "target says where tokens lie", case, "pass layout.target(...)")
    check_tensor(operation, "arena", arena, dtype=torch.uint8, shape=(None,), contiguous=True)
    if arena.numel() < target.num_bytes:
        case = f"the arena has {arena.numel()} bytes"
        refuse(operation, f"a layout of {target.num_bytes} bytes", case, "pass the whole arena")
    if not is_count(layer) or layer >= target.num_layers:
        case = f"the layout has layers 0 to {target.num_layers - 1}"
        refuse(operation, f"layer {layer!r}", case, "name one of these (from 0, in this group)")


def check_source(
    operation: str, arena: Tensor, target: KvTarget, k: Tensor, v: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor]:
    """K and V as [n, heads, width] views; raises `KernelError` for what cannot be stored."""
    check_tensor(operation, "slots", slots, dtype=SLOT_DTYPES, shape=(None,), device=arena.device)
    first, second = target.parts
    rows = (
        _check_part(operation, first, k, slots.shape[0], COMPUTE_DTYPES, arena.device),
        _check_part(operation, second, v, slots.shape[0], COMPUTE_DTYPES, arena.device),
    )
    if k.dtype != v.dtype:
        case = f"{first.name} is {k.dtype} and {second.name} is {v.dtype}"
        refuse(operation, "one dtype for both", case, "convert one of them")
    return rows


def _check_part(
    operation: str,
    part: KvPart,
    tensor: Tensor,
    num: int,
    dtypes: tuple[torch.dtype, ...],
    device: torch.device,
) -> Tensor:
    flat = isinstance(tensor, Tensor) and tensor.ndim == 2 and len(part.shape) > 1
    shape = (num, part.width) if flat else (num, *part.shape)
    check_tensor(operation, part.name, tensor, dtype=dtypes, shape=shape, device=device)
    heads = math.prod(part.shape[:-1])
    return tensor.unflatten(1, (heads, part.shape[-1])) if tensor.ndim == 2 else tensor


def check_slots(operation: str, slots: Tensor, target: KvTarget) -> None:
    """For slots on the CPU: raise `KernelError`, naming the first ones outside the pool."""
    if slots.device.type != "cpu" or not slots.numel():
        return
    low, high = torch.aminmax(slots)
    if int(low) < 0 or int(high) >= target.num_slots:
        outside = slots[(slots < 0) | (slots >= target.num_slots)]
        refuse(
            operation,
            f"slots in [0, {target.num_slots})",
            f"{outside.numel()} lie outside: {outside[:8].tolist()}",
            "take slots from the engine that has this pool",
        )
