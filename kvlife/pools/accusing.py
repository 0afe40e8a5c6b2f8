"""What is said of pages whose content is not what it was: who had them, and since when."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
from torch import Tensor

from kvlife.invariants.effect import holder_of, page_evidence
from kvlife.invariants.finding import MAX_NAMED
from kvlife.pools.contract import DeviceFinding

if TYPE_CHECKING:
    from kvlife.kernels.violations import Violation
    from kvlife.ledger import Ledger
    from kvlife.pools.kept_digests import KeptDigests
    from kvlife.pools.readings import Reading

CONTENT = "content-unchanged"

I32 = npt.NDArray[np.int32]
Objects = npt.NDArray[np.object_]


@attrs.frozen(eq=False)
class Look:
    """Pages that were held against digests at an event: which were expected, since when, for whom.

    `holders` are those of the reading's rows then, one for each page that the reading names; `kept`
    is where the digests were kept, None for those of a copy's source.
    """

    seq: int
    reading: Reading
    holders: Objects | None
    pages: I32
    since: npt.NDArray[np.int64]
    owner: Objects
    expected: Tensor
    found: Tensor
    kept: KeptDigests | None = None


@attrs.frozen(kw_only=True)
class _Accused:
    """One page: the look that showed it, and its digests."""

    page: int
    look: Look
    place: int
    expected: int
    found: int

    @property
    def since(self) -> int:
        return int(self.look.since[self.place])

    @property
    def owner(self) -> str:
        return self.look.owner[self.place] or "nobody"


def changed(ledger: Ledger, entries: Sequence[Violation], looks: Sequence[Look]) -> DeviceFinding:
    """The finding for what one event showed of one group's pages."""
    group = ledger.layout.groups[entries[0].group]
    accused = list(itertools.islice(_accused(entries, looks), MAX_NAMED))
    pages = list(dict.fromkeys(entry.page for entry in entries))
    rows: dict[int, str] = {}
    for each in accused:
        rows |= _rows_of(ledger, group.idx, each)
    evidence: dict[str, object] = {
        "why": "; ".join(_sentence(group.name, each) for each in accused[:1])
        or f"pages of group {group.name!r} do not hold what their digests say",
    }
    evidence |= page_evidence(ledger, group.space_idx, pages)
    evidence |= {
        "group": group.name,
        "what": accused[0].look.reading.what if accused else "read",
        "rows": list(rows),
        "holders": list(rows.values()),
        "completed_at": [each.since for each in accused],
        "completed_for": [each.owner for each in accused],
        "digests": [f"{each.expected:016x}" for each in accused],
        "found": [f"{each.found:016x}" for each in accused],
    }
    return DeviceFinding(invariant=CONTENT, seq=entries[0].seq, evidence=evidence)


def _accused(entries: Sequence[Violation], looks: Sequence[Look]) -> Iterator[_Accused]:
    seen: set[int] = set()
    for entry in entries:
        for look in looks:
            places = np.flatnonzero(look.pages == entry.page)
            if look.reading.group != entry.group or not places.size or entry.page in seen:
                continue
            expected, found = (
                _unsigned(int(digests[int(places[0])])) for digests in (look.expected, look.found)
            )
            # An event may look at a page twice, of which once in vain.
            if found != _unsigned(entry.where) or found == expected:
                continue
            seen.add(entry.page)
            yield _Accused(
                page=entry.page,
                look=look,
                place=int(places[0]),
                expected=expected,
                found=found,
            )


def _rows_of(ledger: Ledger, group: int, accused: _Accused) -> dict[int, str]:
    """The rows that let go of the page or got it at the event, and those that reference it now."""
    reading, look = accused.look.reading, accused.look
    rows: dict[int, str] = {}
    if reading.rows is not None and look.holders is not None:
        num = min(reading.rows.size, reading.pages.size)
        for place in np.flatnonzero(reading.pages[:num] == accused.page).tolist():
            rows[int(reading.rows[place])] = look.holders[place] or "nobody"
    width = ledger.layout.groups[group].table_width
    for spot in np.flatnonzero(ledger.tables[group] == accused.page)[:MAX_NAMED].tolist():
        rows.setdefault(spot // width, holder_of(ledger, spot // width))
    return rows


_FILLED = "was filled when it was freed (seq {since}; {expected})"
_SINCE = {
    "made as a copy": "is a copy of a page that held {expected}",
    "restored from the host": "comes from the host, where it held {expected}"
    " (seq {since}, {owner})",
    "taken": _FILLED,
    "audited while FREE": _FILLED,
}
_HELD = "held {expected} when it was wholly committed (seq {since}, {owner})"


def _sentence(group: str, accused: _Accused) -> str:
    what = accused.look.reading.what
    before = _SINCE.get(what, _HELD).format(
        expected=f"{accused.expected:016x}", since=accused.since, owner=accused.owner
    )
    return f"page {accused.page} of {group} {before}, and holds {accused.found:016x} when {what}"


def _unsigned(digest: int) -> int:
    return digest & 0xFFFF_FFFF_FFFF_FFFF
