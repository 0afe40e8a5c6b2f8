"""Arrays of the host as tensors on a device, without waiting for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

# Each array begins at a multiple of this in a packed upload, so that any dtype can be viewed there.
_ALIGNMENT = 16

_DTYPES = {
    np.dtype(np.int32): torch.int32,
    np.dtype(np.int64): torch.int64,
    np.dtype(np.uint8): torch.uint8,
}


class Uploads:
    """Copies arrays of int32, int64 or uint8 to one device; the arrays may change afterwards.

    For a GPU all arrays of a call travel together from pinned memory, which torch hands out again
    only when the copy is done.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._direct = device.type == "cpu"

    def one(self, array: npt.NDArray[Any]) -> Tensor:  # Any: the dtypes named above
        """A copy of one array."""
        if self._direct:
            return torch.from_numpy(array.copy())
        return self.several(array)[0]

    def several(self, *arrays: npt.NDArray[Any]) -> list[Tensor]:  # Any: as in `one`
        """A copy of each array."""
        if self._direct:
            return [torch.from_numpy(array.copy()) for array in arrays]
        starts, end = [], 0
        for array in arrays:
            starts.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        host = torch.empty(end, dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        room = host.numpy()
        for start, array in zip(starts, arrays, strict=True):
            room[start : start + array.nbytes] = np.ascontiguousarray(array).view(np.uint8)
        there = host.to(self.device, non_blocking=True)
        return [
            there[start : start + array.nbytes].view(_DTYPES[array.dtype])
            for start, array in zip(starts, arrays, strict=True)
        ]
