"""The checks that the operations on page tables share."""

from __future__ import annotations

import torch
from torch import Tensor

from kvlife.kernels.checking import check_tensor, refuse
from kvlife.kernels.tables import NUM_COLUMNS as NUM_GROUP_COLUMNS
from kvlife.kernels.violations import NUM_COLUMNS, Violations

INTS = (torch.int32, torch.int64)


def check_columns(operation: str, **columns: Tensor) -> None:
    """Columns of a space: int32, contiguous, of one length above 0, on one device."""
    (first, column), *others = columns.items()
    check_tensor(operation, first, column, dtype=torch.int32, shape=(None,), contiguous=True)
    if not column.numel():
        refuse(operation, f"{first} has a page", "it is empty", "give the columns of a page space")
    for name, other in others:
        check_tensor(
            operation,
            name,
            other,
            dtype=torch.int32,
            shape=(column.numel(),),
            device=column.device,
            contiguous=True,
        )


def check_table(
    operation: str, table: Tensor, device: torch.device, *, name: str = "table"
) -> None:
    """A flat page table, or the arena of several: int32, contiguous."""
    check_tensor(
        operation, name, table, dtype=torch.int32, shape=(None,), device=device, contiguous=True
    )


def check_entries(operation: str, device: torch.device, at: Tensor, **pages: Tensor) -> None:
    """Entries int64 [n] and their pages int32 [n], of any stride."""
    check_tensor(operation, "at", at, dtype=torch.int64, shape=(None,), device=device)
    for name, named in pages.items():
        check_tensor(operation, name, named, dtype=torch.int32, shape=(at.numel(),), device=device)


def check_findings(
    operation: str, device: torch.device, violations: Violations, seq: int, group: int
) -> None:
    """The buffer lies on the device, and what the findings say of event and group are numbers."""
    check_buffer(operation, device, violations)
    for name, number in (("seq", seq), ("group", group)):
        if not is_count(number):
            case = f"it is {number!r}"
            refuse(operation, f"{name} is a number from 0 to 2^63 - 1", case, "pass such a number")


def is_count(number: object) -> bool:
    """Whether it is a number from 0 to 2^63 - 1; types are not what every caller checks."""
    return isinstance(number, int) and 0 <= number < 1 << 63


def check_buffer(operation: str, device: torch.device, violations: object) -> None:
    """The buffer of findings lies on the device."""
    if not isinstance(violations, Violations):
        case = f"it is {type(violations).__name__}"
        refuse(operation, "violations is a buffer of findings", case, "pass Violations.create(...)")
    check_tensor(
        operation,
        "violations.count",
        violations.count,
        dtype=torch.int32,
        shape=(1,),
        device=device,
    )
    check_tensor(
        operation,
        "violations.entries",
        violations.entries,
        dtype=torch.int64,
        shape=(None, NUM_COLUMNS),
        device=device,
        contiguous=True,
    )


def check_groups(operation: str, groups: Tensor, device: torch.device) -> None:
    """What `describe` makes."""
    check_tensor(
        operation,
        "groups",
        groups,
        dtype=torch.int64,
        shape=(None, NUM_GROUP_COLUMNS),
        device=device,
        contiguous=True,
    )


def check_rows_table(operation: str, table: Tensor, width: int, page_size: int) -> None:
    """A flat page table of whole rows, `width` entries each, of pages of `page_size` tokens."""
    check_tensor(operation, "table", table, dtype=torch.int32, shape=(None,), contiguous=True)
    are_sizes = all(is_count(size) and size for size in (width, page_size))
    if not are_sizes or table.numel() % width:
        refuse(
            operation,
            f"a table of rows of {width} entries, pages of {page_size} tokens",
            f"the table has {table.numel()} entries",
            "give the width and page size of the group that the table is of",
        )
