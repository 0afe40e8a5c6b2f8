"""`fill_pages` without Triton."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from kvlife.kernels.page_runs import contents, ids, on_host
from kvlife.kernels.planes import Planes


def fill_pages_reference(arena: Tensor, planes: Planes, pages: Tensor, byte: int) -> None:
    """Fill pages as the contract says; pages lie in the pool."""
    named = ids(pages)
    with on_host(arena) as there:
        for run in contents(there, planes):
            run[named[named != 0]] = np.full(run.itemsize, byte, np.uint8).view(run.dtype)
