"""device-agrees: the device's tensors held against the ledger's columns, and what kernels report.

A tensor is compared by a digest, the sum of its entries under odd weights modulo 2^64. A difference
in one entry, of however few bits, always changes it: an odd weight has an inverse, and what
differs is not 0 modulo 2^64. The digests are computed on the stream and read at the next step;
where one differs, the tensor itself is read, and entries are named.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.invariants.finding import MAX_NAMED, few
from kvlife.kernels.violations import SENTENCES, violations_in
from kvlife.pools.contract import DeviceFinding

if TYPE_CHECKING:
    from kvlife.kernels.violations import Violation, Violations
    from kvlife.ledger import Ledger
    from kvlife.pools.device_state import DeviceState

I32 = npt.NDArray[np.int32]

AGREES = "device-agrees"
# Entries that are widened to 64 bits at a time, and so the memory that a digest takes.
_BLOCK = 1 << 20
_COLUMNS = 1 << 10


def digests_of(tensors: list[Tensor]) -> Tensor:
    """The digest of each int32 tensor, int64, on their device; nothing waits."""
    weights = _odd_weights(tensors[0].device)
    return torch.stack([_digest(tensor.reshape(-1), weights) for tensor in tensors])


@functools.cache
def _odd_weights(device: torch.device) -> Tensor:
    """Odd numbers that no short sum relates to one another, from a fixed seed.

    Kept for each device: sending them there waits for what is on its stream.
    """
    drawn = np.random.default_rng(0).integers(0, 1 << 63, 2 * _COLUMNS, dtype=np.int64)
    return torch.from_numpy(drawn | 1).to(device).reshape(2, _COLUMNS)


def _digest(entries: Tensor, weights: Tensor) -> Tensor:
    total = torch.zeros((), dtype=torch.int64, device=entries.device)
    for number, block in enumerate(entries.split(_BLOCK)):
        whole = block.numel() // _COLUMNS * _COLUMNS
        rows = block[:whole].reshape(-1, _COLUMNS).to(torch.int64)
        sums = (rows * weights[0]).sum(1)
        part = (sums * weights[1, : sums.numel()]).sum()
        part = part + (block[whole:].to(torch.int64) * weights[1, : block.numel() - whole]).sum()
        # A block's own odd weight: the sums above treat all blocks alike.
        total = total + part * (2 * number + 1)
    return total


@attrs.frozen(eq=False)
class _Asked:
    """A comparison that was begun at `seq`; `done` is the event behind the copy of the digests."""

    seq: int
    theirs: list[int]
    mine: Tensor
    done: torch.cuda.Event

    def is_ready(self, *, wait: bool) -> bool:
        if not self.done.query():
            if not wait:
                return False
            self.done.synchronize()
        return True


class Agreement:
    """Compares a device state with its ledger, one comparison at a time.

    On a CPU nothing is in flight and nothing has to travel, so that entries are compared at once.
    """

    def __init__(self, state: DeviceState, ledger: Ledger) -> None:
        """Compare nothing yet."""
        self._state = state
        self._ledger = ledger
        self._asked: _Asked | None = None

    def begin(self) -> list[DeviceFinding]:
        """Compare both as they are now; what this or an earlier comparison has found by now."""
        found = self.outcome(wait=True)
        pairs = self._state.beside(self._ledger)
        seq = max(self._ledger.next_seq - 1, 0)
        if self._state.device.type == "cpu":
            differ = [not np.array_equal(mine.numpy(), theirs) for mine, theirs in pairs.values()]
            return found + self._named(differ, seq)
        theirs = digests_of([_as_tensor(array) for _tensor, array in pairs.values()])
        mine, done = _to_host(digests_of([tensor for tensor, _array in pairs.values()]))
        self._asked = _Asked(seq, theirs.tolist(), mine, done)
        return found

    def outcome(self, *, wait: bool) -> list[DeviceFinding]:
        """What the comparison found that was begun; nothing where it is not yet known."""
        asked = self._asked
        if asked is None or not asked.is_ready(wait=wait):
            return []
        self._asked = None
        mine = asked.mine.tolist()
        differ = [here != there for here, there in zip(mine, asked.theirs, strict=True)]
        return self._named(differ, asked.seq)

    def _named(self, differ: list[bool], seq: int) -> list[DeviceFinding]:
        """One finding for each tensor that differs."""
        if True not in differ:
            return []
        pairs = self._state.beside(self._ledger).items()
        return [
            _difference(name, mine, theirs, seq, self._ledger)
            for (name, (mine, theirs)), is_other in zip(pairs, differ, strict=True)
            if is_other
        ]


def _as_tensor(array: npt.NDArray[np.generic]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array, np.int32))


def _to_host(tensor: Tensor) -> tuple[Tensor, torch.cuda.Event]:
    """A copy of a GPU's tensor for the host, and the event behind which it is complete."""
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    done = torch.cuda.Event()
    done.record(torch.cuda.current_stream(tensor.device))
    return host, done


def _difference(
    name: str, tensor: Tensor, array: npt.NDArray[np.generic], seq: int, ledger: Ledger
) -> DeviceFinding:
    """Which entries of a tensor differ by now, with both values."""
    here, there = tensor.cpu().numpy().ravel(), np.asarray(array, np.int32).ravel()
    spots = np.flatnonzero(here != there)
    evidence: dict[str, object] = {"tensor": name}
    if not spots.size:
        evidence["since"] = "it differed at this event and does not any more"
    else:
        evidence |= _places(name, spots[:MAX_NAMED], ledger)
        evidence |= {"device": few(here[spots]), "ledger": few(there[spots])}
        if spots.size > MAX_NAMED:
            evidence["num_differing"] = int(spots.size)
    return DeviceFinding(invariant=AGREES, seq=seq, evidence=evidence)


def _places(name: str, spots: npt.NDArray[np.intp], ledger: Ledger) -> dict[str, object]:
    """Entries of a tensor as rows and indices of a page table, as pages, or as rows."""
    for group in ledger.layout.groups:
        if name == f"table of group {group.name!r}":
            rows, table_idx = np.divmod(spots, group.table_width)
            return {"rows": few(rows), "table_idx": few(table_idx)}
    return {"pages" if " of space " in name else "rows": few(spots)}


Explain = Callable[[Sequence["Violation"]], DeviceFinding]


class ViolationWatch:
    """Reads the violation buffer without waiting for the device, at most one step late."""

    def __init__(self, violations: Violations, explain: Explain | None = None) -> None:
        """Nothing is read yet; `explain` makes a finding of what one event and group is told of."""
        self._violations = violations
        self._explain = _reported if explain is None else explain
        self._on_host = violations.count.device.type == "cpu"
        # On a CPU the counter is looked at directly, at each event.
        self._count = violations.count.numpy() if self._on_host else None
        self._asked: tuple[Tensor, torch.cuda.Event] | None = None

    def begin(self) -> list[DeviceFinding]:
        """Ask for the counter, at the start of a step; what was found before the last one."""
        if self._on_host:
            return []
        found = self.outcome(wait=True)
        self._asked = _to_host(self._violations.count)
        return found

    def outcome(self, *, wait: bool) -> list[DeviceFinding]:
        """What kernels have reported, as far as that is known."""
        if self._count is not None:
            return self._read() if self._count[0] else []
        asked = self._asked
        if asked is None:
            return []
        count, done = asked
        if not done.query():
            if not wait:
                return []
            done.synchronize()
        self._asked = None
        return self._read() if int(count[0]) else []

    def _read(self) -> list[DeviceFinding]:
        """Take all findings out of the buffer; one for each event and kind of finding."""
        violations = self._violations
        count = int(violations.count.item())
        num = min(count, violations.capacity)
        entries = violations_in(violations.entries[:num].cpu())
        violations.clear()
        grouped: dict[tuple[int, int, int], list[Violation]] = {}
        for entry in entries:
            grouped.setdefault((entry.seq, entry.code, entry.group), []).append(entry)
        found = [self._explain(several) for several in grouped.values()]
        if count > num:
            lost = {"num_not_kept": count - num}
            found[-1] = attrs.evolve(found[-1], evidence=found[-1].evidence | lost)
        return found


def _reported(entries: Sequence[Violation]) -> DeviceFinding:
    code, seq = entries[0].code, entries[0].seq
    evidence: dict[str, object] = {
        "code": code.name,
        "what": SENTENCES[code],
        "group": entries[0].group,
        "pages": few([entry.page for entry in entries]),
        "where": few([entry.where for entry in entries]),
    }
    if len(entries) > MAX_NAMED:
        evidence["num_found"] = len(entries)
    return DeviceFinding(invariant=AGREES, seq=seq, evidence=evidence, is_echo=True)
