"""The checks that the operations on whole pages share; each raises `KernelError`."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.dispatch import uses_triton
from kvlife.kernels.planes import Planes
from kvlife.kernels.table_checks import check_findings
from kvlife.kernels.violations import Violations

INTS = (torch.int32, torch.int64)


def may_look(numbers: Tensor) -> bool:
    """Whether values can be looked at without stopping a stream that a kernel is to run on."""
    return numbers.device.type == "cpu" or not uses_triton(numbers)


def check_arena(operation: str, arena: Tensor, planes: object) -> None:
    """The arena is one contiguous tensor of bytes that holds all of the planes."""
    if not isinstance(planes, Planes):
        case = f"it is {type(planes).__name__}"
        refuse(operation, "planes say where pages lie", case, "pass what layout.planes(...) gives")
    check_tensor(operation, "arena", arena, dtype=torch.uint8, shape=(None,), contiguous=True)
    if arena.numel() < planes.num_bytes:
        refuse(
            operation,
            f"planes of {planes.num_bytes} bytes in the arena",
            f"it has {arena.numel()}",
            "give the arena that the planes were laid out for",
        )


def check_byte(operation: str, byte: object) -> None:
    """The value to fill with is one byte."""
    if not isinstance(byte, int) or not 0 <= byte <= 255:
        refuse(operation, "a byte from 0 to 255", f"it is {byte!r}", "give one byte")


def check_report(
    operation: str, violations: Violations | None, arena: Tensor, seq: int, group: int
) -> None:
    """The buffer of findings, where there is one, lies beside the arena."""
    if violations is not None:
        check_findings(operation, arena.device, violations, seq, group)


def check_pages(operation: str, name: str, pages: Tensor, arena: Tensor, num_pages: int) -> None:
    """Page ids are whole numbers beside the arena; where one may look, each lies in the pool."""
    check_tensor(operation, name, pages, dtype=INTS, shape=(None,), device=arena.device)
    _check_range(operation, name, pages, num_pages)


def check_staging(
    operation: str, staging: Tensor, rows: Tensor | None, arena: Tensor, planes: Planes, num: int
) -> None:
    """Staging rows hold a page each, on the arena's device or pinned; `rows` name some of them."""
    check_tensor(operation, "staging", staging, dtype=torch.uint8, shape=(None, None))
    if staging.device != arena.device and not (
        staging.device.type == "cpu" and staging.is_pinned()
    ):
        refuse(
            operation,
            f"staging on {arena.device} or in pinned host memory",
            f"it is on {staging.device}, not pinned",
            "make it with pin_memory=True",
        )
    contiguous = not staging.numel() or staging.shape[1] == 1 or staging.stride(1) == 1
    if staging.shape[1] < planes.page_bytes or not contiguous:
        refuse(
            operation,
            f"staging rows of {planes.page_bytes} contiguous bytes",
            f"its shape is {list(staging.shape)}, its strides {tuple(staging.stride())}",
            "give rows of a page's bytes at least",
        )
    if staging.shape[0] > 1 and staging.stride(0) < planes.page_bytes:
        refuse(operation, "staging rows apart from each other", "they overlap", "give it whole")
    if rows is None:
        if staging.shape[0] < num:
            refuse(
                operation, f"{num} pages", f"staging has {staging.shape[0]} rows", "give a row each"
            )
        return
    check_tensor(operation, "rows", rows, dtype=INTS, shape=(num,), device=arena.device)
    _check_range(operation, "rows", rows, staging.shape[0])


def check_distinct(operation: str, name: str, numbers: Tensor, among: Tensor) -> None:
    """Where one may look, no number stands twice among those where `among` holds."""
    if not may_look(numbers):
        return
    found, times = numbers[among].unique(return_counts=True)
    if bool((times > 1).any()):
        twice = found[times > 1].tolist()[:8]
        refuse(operation, f"{name} to write to", f"{twice} stand there twice", "name each once")


def _check_range(operation: str, name: str, numbers: Tensor, bound: int) -> None:
    if not may_look(numbers) or not numbers.numel():
        return
    low, high = (int(number) for number in numbers.aminmax())
    if low < 0 or high >= bound:
        refuse(
            operation,
            f"{name} in [0, {bound})",
            f"{low if low < 0 else high} is outside",
            "name only what the pool has",
        )
