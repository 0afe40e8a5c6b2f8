"""Who does an operation: CUDA and HIP tensors take Triton, CPU tensors take torch."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
from typing import Any

# The lowest versions that the tests have run with.
OLDEST = {"torch": (2, 11), "triton": (3, 6)}
VARIABLE = "KVLIFE_KERNELS"
CHOICES = ("torch", "triton")


class KernelError(ValueError):
    """An operation was asked for what it cannot do; nothing was written."""


class MissingLibrary(KernelError, ImportError):
    """torch or triton is absent, or older than what the kernels need."""


def require(name: str) -> None:
    """Raise `MissingLibrary` unless torch or triton, as named, is there and new enough."""
    oldest = ".".join(map(str, OLDEST[name]))
    remedy = f"install it: pip install '{name}>={oldest}', or kvlife[pools] for all of it"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise MissingLibrary(
            f"kvlife.kernels needs {name} {oldest} or newer, and there is none here; {remedy}"
        ) from None
    if version_of(found) < OLDEST[name]:
        raise MissingLibrary(
            f"kvlife.kernels needs {name} {oldest} or newer, and {found} is installed; {remedy}"
        )


def version_of(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (2, 11, 0) of 2.11.0+cu130."""
    return tuple(int(number) for number in re.findall(r"\d+", text.split("+", maxsplit=1)[0])[:3])


require("torch")

# Only after torch is known to be there, and new enough.
import torch  # noqa: E402  # as above
from torch import Tensor  # noqa: E402  # as above


def uses_triton(tensor: Tensor) -> bool:
    """Whether Triton works on this tensor; torch does where not.

    `KVLIFE_KERNELS=torch` takes torch everywhere; `KVLIFE_KERNELS=triton` takes Triton everywhere,
    on CPU tensors only under its interpreter (TRITON_INTERPRET=1, set before the first import).
    Raises `KernelError` for another value, and `MissingLibrary` where Triton is to run and cannot.
    """
    return _uses_triton(tensor.device.type, os.environ.get(VARIABLE) or None)


@functools.cache
def _uses_triton(device: str, choice: str | None) -> bool:
    if choice is not None and choice not in CHOICES:
        raise KernelError(
            f"{VARIABLE}={choice} names no way to run kernels: it is {' or '.join(CHOICES)}, or "
            f"unset (Triton on GPUs, torch on CPUs)"
        )
    if choice == "torch" or (choice is None and device == "cpu"):
        return False
    if device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise KernelError(
            f"{VARIABLE}=triton was asked for on CPU tensors, where only Triton's interpreter "
            f"runs: set TRITON_INTERPRET=1 before Python starts, or leave {VARIABLE} unset"
        )
    require("triton")
    return True


def run_kernel(
    kernel: Any,  # Any: triton has no types
    grid: tuple[int, ...],
    first: Tensor,
    *others: object,
    **constants: object,
) -> None:
    """Launch a Triton kernel on the device of its first argument.

    By itself it would run on the current device, which need not be that of the tensors.
    """
    with torch.cuda.device_of(first):
        kernel[grid](first, *others, **constants)
