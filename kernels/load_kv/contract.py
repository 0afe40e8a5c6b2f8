"""`load_kv`: what it takes, checks and does."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.kv_checks import COMPUTE_DTYPES, check_place, check_slots
from kvlife.kernels.kv_target import KvTarget
from kvlife.kernels.load_kv.reference import load_kv_reference
from kvlife.kernels.page_checks import check_report
from kvlife.kernels.violations import Violations

NAME = "load_kv"


def load_kv(
    arena: Tensor,
    target: KvTarget,
    layer: int,
    slots: Tensor,
    dtype: torch.dtype = torch.bfloat16,
    *,
    violations: Violations | None = None,
    seq: int = 0,
    group: int = 0,
) -> tuple[Tensor, Tensor]:
    """K and V of the tokens in these slots of one layer, in a compute dtype.

    `arena` uint8 [bytes], contiguous; `slots` int32 or int64 [n] on its device; `dtype` bf16, fp16
    or fp32. Gives new contiguous tensors [n, heads, width] (latent: [n, width]). A stored value is
    multiplied by its scale in fp32 and rounded to nearest even; beyond the range of `dtype` it
    becomes the largest finite value, as in `store_kv`. Where the stored dtype is the one asked for,
    the bits are copied.

    A slot outside the pool is a `KernelError` on the CPU. On a GPU its token reads as zeros, and is
    reported as OUTSIDE to `violations` where given (page: -1, where: the slot). Raises
    `KernelError`.
    """
    check_place(NAME, arena, target, layer)
    check_report(NAME, violations, arena, seq, group)
    if dtype not in COMPUTE_DTYPES:
        refuse(NAME, f"KV in {dtype}", "it is no compute dtype", "ask for bf16, fp16 or fp32")
    check_tensor(
        NAME, "slots", slots, dtype=(torch.int32, torch.int64), shape=(None,), device=arena.device
    )
    check_slots(NAME, slots, target)
    if slots.numel() and uses_triton(arena):
        # Triton is loaded where it is used.
        from kvlife.kernels.load_kv.kernel import load_kv_triton

        return load_kv_triton(arena, target, layer, slots, dtype, violations, seq=seq, group=group)
    return load_kv_reference(arena, target, layer, slots, dtype)
