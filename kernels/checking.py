"""The checks of a contract: each raises `KernelError` before anything is written."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from kvlife.kernels.dispatch import KernelError


def refuse(operation: str, asked: str, case: str, remedy: str) -> NoReturn:
    """Raise `KernelError`: what was asked, what is the case, what to do."""
    raise KernelError(f"{operation}: {asked}, but {case}; {remedy}")


def check_tensor(
    operation: str,
    name: str,
    tensor: Tensor,
    *,
    dtype: torch.dtype | tuple[torch.dtype, ...],
    shape: tuple[int | None, ...],
    device: torch.device | None = None,
    contiguous: bool = False,
) -> None:
    """Raise `KernelError` unless the tensor has this dtype, shape (None: any), device, layout."""
    # On every step's path: what is amiss is only looked into where something is.
    if (
        isinstance(tensor, Tensor)
        and (tensor.dtype is dtype or (isinstance(dtype, tuple) and tensor.dtype in dtype))
        and _fits(tensor.shape, shape)
        and (device is None or tensor.device == device)
        and (not contiguous or tensor.is_contiguous())
    ):
        return
    dtypes = dtype if isinstance(dtype, tuple) else (dtype,)
    if not isinstance(tensor, Tensor):
        refuse(operation, f"{name} is a tensor", f"it is {type(tensor).__name__}", "pass a tensor")
    if tensor.dtype not in dtypes:
        wanted = " or ".join(str(one).removeprefix("torch.") for one in dtypes)
        found = str(tensor.dtype).removeprefix("torch.")
        refuse(operation, f"{name} is {wanted}", f"it is {found}", f"convert it to {wanted}")
    if not _fits(tensor.shape, shape):
        wanted = ", ".join("*" if size is None else str(size) for size in shape)
        case = f"it has {list(tensor.shape)}"
        refuse(operation, f"{name} has the shape [{wanted}]", case, "pass that shape")
    if device is not None and tensor.device != device:
        case = f"{name} is on {tensor.device}"
        refuse(operation, f"all tensors are on {device}", case, f"move it to {device}")
    case = f"it has strides {tuple(tensor.stride())}"
    refuse(operation, f"{name} is contiguous", case, "it is written in place: pass it whole")


def _fits(found: torch.Size, wanted: tuple[int | None, ...]) -> bool:
    if None not in wanted:
        return tuple(found) == wanted
    return len(found) == len(wanted) and all(
        want is None or want == have for want, have in zip(wanted, found, strict=True)
    )
