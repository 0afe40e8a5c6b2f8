"""For references: whole pages in numpy, on views of CPU tensors.

A run of a page's bytes is one element, however long, so that numpy copies it at once; torch's own
indexing would take ten times as long. Tensors of a device are copied here and back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from torch import Tensor

from kvlife.kernels.planes import Planes, runs_of

Bytes = npt.NDArray[np.uint8]
Runs = npt.NDArray[np.void]
Ids = npt.NDArray[np.int64]


@contextlib.contextmanager
def on_host(tensor: Tensor) -> Iterator[Bytes]:
    """A tensor of bytes as a numpy array; what is written to it is in the tensor afterwards."""
    host = tensor.cpu()
    yield host.numpy()
    if host is not tensor:
        tensor.copy_(host)


def ids(pages: Tensor) -> Ids:
    """Page ids in numpy."""
    there: Ids = pages.cpu().numpy().astype(np.int64)
    return there


def contents(arena: Bytes, planes: Planes, unit: int = 1) -> Iterator[Runs]:
    """For each run of the content of a page, in order, an array of it in all pages."""
    for run in runs_of(planes, unit):
        yield np.ndarray(
            (planes.num_pages,),
            dtype=f"V{run.num_bytes}",
            buffer=arena,
            offset=run.start,
            strides=(run.page_stride,),
        )


def staged(staging: Bytes, planes: Planes) -> Iterator[Runs]:
    """For each run, an array of it in all rows of staging."""
    low = 0
    for run in runs_of(planes):
        high = low + run.num_bytes
        yield staging[:, low:high].view(f"V{run.num_bytes}")[:, 0]
        low = high


def rows_of(pages: Tensor, rows: Tensor | None) -> tuple[Ids, Ids]:
    """The pages that are not padding, and the staging row of each."""
    there = ids(pages)
    real = np.flatnonzero(there)
    return there[real], real if rows is None else ids(rows)[real]
