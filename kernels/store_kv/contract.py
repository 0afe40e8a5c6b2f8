"""`store_kv`: what it takes, checks and does."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.kv_checks import check_place, check_slots, check_source
from kvlife.kernels.kv_target import KvTarget
from kvlife.kernels.page_checks import check_report
from kvlife.kernels.store_kv.reference import store_kv_reference
from kvlife.kernels.violations import Violations

NAME = "store_kv"


def store_kv(
    arena: Tensor,
    target: KvTarget,
    layer: int,
    k: Tensor,
    v: Tensor,
    slots: Tensor,
    *,
    violations: Violations | None = None,
    seq: int = 0,
    group: int = 0,
) -> None:
    """Write K and V of n tokens of one layer to their slots, narrowing and quantising on the way.

    `arena` uint8 [bytes], contiguous, changed in place. `k` and `v` are bf16, fp16 or fp32 of one
    dtype, [n, heads, width] or [n, heads * width] as the target's parts say (a latent layout takes
    the latent part and the rope part), of any stride; `slots` int32 or int64 [n]; all on the
    device of the arena. Where the stored dtype is the one that comes, the bits are copied; into
    fp32 values go exactly; else infinity becomes the largest finite value, and the rules are those
    of `numerics.reference`.

    Slots of the reserved page 0 are padding, and writing there is legal, by several tokens too; any
    other slot stands once. On the CPU a slot outside the pool is a `KernelError`, and nothing is
    written. On a GPU looking would stop the stream: the kernel skips such a token and reports it,
    as OUTSIDE (page: -1, where: the slot), to `violations` where given. Raises `KernelError`.
    """
    check_place(NAME, arena, target, layer)
    check_report(NAME, violations, arena, seq, group)
    rows = check_source(NAME, arena, target, k, v, slots)
    check_slots(NAME, slots, target)
    if not slots.numel():
        return
    if uses_triton(arena):
        # Triton is loaded where it is used.
        from kvlife.kernels.store_kv.kernel import store_kv_triton

        store_kv_triton(arena, target, layer, rows, slots, violations, seq=seq, group=group)
    else:
        store_kv_reference(arena, target, layer, rows, slots)
