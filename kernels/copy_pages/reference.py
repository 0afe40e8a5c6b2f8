"""`copy_pages` without Triton."""

from __future__ import annotations

from torch import Tensor

from kvlife.kernels.page_runs import contents, ids, on_host
from kvlife.kernels.planes import Planes


def copy_pages_reference(arena: Tensor, planes: Planes, src: Tensor, dst: Tensor) -> None:
    """Copy pages as the contract says; pages lie in the pool."""
    sources, targets = ids(src), ids(dst)
    real = targets != 0
    with on_host(arena) as there:
        for run in contents(there, planes):
            run[targets[real]] = run[sources[real]]
