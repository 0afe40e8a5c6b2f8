"""What kernels find wrong: a small buffer on the device that the host reads later."""

from __future__ import annotations

import enum

import attrs
import torch
from torch import Tensor

NUM_COLUMNS = 5


class ViolationCode(enum.IntEnum):
    """What was wrong with a page, an entry or a row; see `SENTENCES`."""

    NOT_FREE = 1
    NOT_SHARED = 2
    DOUBLE_FREE = 3
    NOT_REFERENCED = 4
    NOT_PUBLISHABLE = 5
    NOT_EVICTABLE = 6
    NOT_PINNABLE = 7
    NOT_PINNED = 8
    RESERVED_TOUCHED = 9
    OUTSIDE = 10
    PAGE_MISSING = 11
    PAGE_UNASKED = 12
    LENGTH_DISAGREES = 13
    REFS_DISAGREE = 14
    REF_TO_FREE = 15
    ALIASED = 16
    LOST = 17
    STRANGE_STORE = 18
    CONTENT_CHANGED = 19


SENTENCES = {
    ViolationCode.NOT_FREE: "a page was handed out that was not FREE",
    ViolationCode.NOT_SHARED: "a page was matched that is neither PRIVATE nor CACHED",
    ViolationCode.DOUBLE_FREE: "a page was let go that had no reference left",
    ViolationCode.NOT_REFERENCED: "a page was let go by an entry that names another",
    ViolationCode.NOT_PUBLISHABLE: "a page was published that is neither PRIVATE nor CACHED",
    ViolationCode.NOT_EVICTABLE: "a page was evicted that is not CACHED, or referenced, or pinned",
    ViolationCode.NOT_PINNABLE: "a page has a pin while it is FREE",
    ViolationCode.NOT_PINNED: "a page was unpinned that had no pin",
    ViolationCode.RESERVED_TOUCHED: "the reserved page 0 was named as a page to work on",
    ViolationCode.OUTSIDE: "a page, an entry, a row or a slot lies outside the pool",
    ViolationCode.PAGE_MISSING: "a row came to a new page, and none was given",
    ViolationCode.PAGE_UNASKED: "a row was given a page that it did not come to",
    ViolationCode.LENGTH_DISAGREES: "a length is negative or beyond the row's capacity",
    ViolationCode.REFS_DISAGREE: "a page counts more references than the tables hold",
    ViolationCode.REF_TO_FREE: "a table holds a page that is neither PRIVATE nor CACHED",
    ViolationCode.ALIASED: "the tables hold a page more often than it counts references",
    ViolationCode.LOST: "a page is PRIVATE without a reference, or QUARANTINED without a pin",
    ViolationCode.STRANGE_STORE: "a row stored into a page that it does not hold",
    ViolationCode.CONTENT_CHANGED: "a page's content is not what its digest says",
}


@attrs.frozen(kw_only=True)
class Violation:
    """One finding: `where` is the table entry, row or slot that `code` is about, or -1.

    `page` counts from the start of the group's page space, or is -1; `seq` is the event's.
    """

    code: ViolationCode
    group: int
    page: int
    where: int
    seq: int


@attrs.frozen(kw_only=True, eq=False)
class Violations:
    """`count` int32 [1] counts every finding, `entries` int64 [capacity, 5] holds the first ones.

    The columns are code, group, page, where, seq, in the order in which the device found them.
    """

    count: Tensor
    entries: Tensor

    @classmethod
    def create(cls, device: torch.device | str, capacity: int = 1024) -> Violations:
        """An empty buffer for `capacity` findings; those beyond are counted only."""
        return cls(
            count=torch.zeros(1, dtype=torch.int32, device=device),
            entries=torch.zeros((capacity, NUM_COLUMNS), dtype=torch.int64, device=device),
        )

    @property
    def capacity(self) -> int:
        """Findings that there is room for."""
        return int(self.entries.shape[0])

    def read(self) -> list[Violation]:
        """The findings that there was room for; waits for the device."""
        num = min(int(self.count.item()), self.capacity)
        return violations_in(self.entries[:num].cpu())

    def clear(self) -> None:
        """Empty the buffer; waits for nothing."""
        self.count.zero_()


def violations_in(entries: Tensor) -> list[Violation]:
    """Rows of a buffer, copied to the host, as findings."""
    return [
        Violation(code=ViolationCode(code), group=group, page=page, where=where, seq=seq)
        for code, group, page, where, seq in entries.tolist()
    ]


def note(
    violations: Violations,
    code: ViolationCode | Tensor,
    amiss: Tensor,
    *,
    page: int | Tensor,
    where: int | Tensor,
    seq: int | Tensor,
    group: int | Tensor = 0,
) -> None:
    """For references: add a finding for each place where `amiss` (bool) holds, in order.

    The others are numbers, or integer tensors of its shape.
    """
    spots = amiss.nonzero()[:, 0]
    num = int(spots.numel())
    if not num:
        return
    first = int(violations.count.item())
    fitting = spots[: max(violations.capacity - first, 0)]
    fresh = violations.entries[first : first + fitting.numel()]
    for column, values in enumerate((code, group, page, where, seq)):
        each = isinstance(values, Tensor) and values.numel() > 1
        fresh[:, column] = torch.as_tensor(values)[fitting] if each else values
    violations.count.add_(num)


@attrs.frozen(kw_only=True)
class Findings:
    """For references: where one call's findings go, and what they say of the event and group."""

    violations: Violations
    seq: int
    group: int

    def add(self, codes: Tensor, *, page: Tensor, where: int | Tensor) -> None:
        """Add a finding for each code that is not 0, in order."""
        amiss = codes != 0
        note(
            self.violations,
            codes,
            amiss,
            page=page,
            where=where,
            seq=self.seq,
            group=self.group,
        )
