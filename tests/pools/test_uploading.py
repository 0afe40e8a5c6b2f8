"""Arrays of the host as tensors: the same values, and none that changes with the array."""

import numpy as np
import pytest
import torch

from kvlife.pools.uploading import Uploads

ARRAYS = (
    np.arange(5, dtype=np.int32),
    np.array([], np.int32),
    np.array([-(1 << 40), 7], np.int64),
    np.arange(40, dtype=np.int32)[::3],
    np.array([255], np.uint8),
    np.arange(3, dtype=np.int64),
)


@pytest.mark.parametrize("is_packed", [False, True])
def test_several_arrays_arrive_as_they_were(is_packed):
    """Of any dtype and stride, empty ones too, each for itself or packed into one copy."""
    uploads = Uploads(torch.device("cpu"))
    uploads._direct = not is_packed
    arrays = [array.copy() if array.flags.contiguous else array for array in ARRAYS]
    there = uploads.several(*arrays)
    wanted = [array.tolist() for array in arrays]
    for array in arrays:
        array[...] = 1
    assert [tensor.tolist() for tensor in there] == wanted
    assert [str(tensor.dtype).removeprefix("torch.") for tensor in there] == [
        str(array.dtype) for array in arrays
    ]


def test_a_read_only_array_can_be_sent():
    """What a batch and an event hold is read-only, and torch would warn of it."""
    rows = np.arange(4, dtype=np.int64)
    rows.setflags(write=False)
    assert Uploads(torch.device("cpu")).one(rows).tolist() == [0, 1, 2, 3]
