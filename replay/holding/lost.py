"""What no holder accounts for: pages and rows in states that events of a sound run never make.

The whole state is counted from its rows, pins and steps up, and each column held against that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.invariants.census import Census
from kvlife.ledger import Ledger, PageSpace, PageState, RowState
from kvlife.replay.holding.hosted import Hosted
from kvlife.replay.output.columns import counted

Bools = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


@attrs.frozen(eq=False)
class LostPages:
    """Pages of a space (None: the host's) that are wrong in one way, `why` in words."""

    space_idx: int | None
    pages: Index
    why: str


@attrs.frozen(kw_only=True)
class LostHolder:
    """A row, pin, session or request that is not as its books say.

    `row` is that of one that nobody can give back any more.
    """

    what: str
    why: str
    seq: int
    row: int | None = None


class Lost:
    """What is lost in a state. Each page is named once, under the first thing wrong with it."""

    def __init__(self, ledger: Ledger, census: Census | None = None) -> None:
        """Nothing is counted until it is asked for."""
        self.ledger = ledger
        self.census = census or Census(ledger)

    @property
    def num_pages(self) -> int:
        """How many pages are lost."""
        return sum(found.pages.size for found in self.pages)

    @property
    def anything(self) -> bool:
        """Whether a page or a holder is lost."""
        return bool(self.pages or self.holders)

    @cached_property
    def masks(self) -> tuple[Bools, ...]:
        """Per page space, which pages are lost."""
        return tuple(
            self._mask(space_idx, space) for space_idx, space in enumerate(self.ledger.spaces)
        )

    @cached_property
    def host_mask(self) -> Bools | None:
        """Which pages of the host are lost; None without a host space."""
        host = self.ledger.host
        return None if host is None else self._mask(None, host)

    def _mask(self, space_idx: int | None, space: PageSpace) -> Bools:
        mask = np.zeros(space.num_pages, np.bool_)
        for found in self.pages:
            if found.space_idx == space_idx:
                mask[found.pages] = True
        return mask

    @cached_property
    def pages(self) -> tuple[LostPages, ...]:
        """The pages that are lost, by what is wrong with them."""
        found: list[LostPages] = []
        for space_idx in range(len(self.ledger.spaces)):
            found += _each_once(space_idx, self._wrong_pages(space_idx))
        if self.hosted is not None:
            found += _each_once(None, self.hosted.wrong_pages())
        return tuple(found)

    @cached_property
    def hosted(self) -> Hosted | None:
        """The host's pages; None without a host space."""
        host = self.ledger.host
        return None if host is None else Hosted(self.ledger, host)

    def _wrong_pages(self, space_idx: int) -> Iterator[tuple[str, Bools]]:
        space = self.ledger.spaces[space_idx]
        state, refs, pins = space.state, space.refs, space.pins
        rows, holds = self.census.refs[space_idx], self.census.pins[space_idx]
        free, private = state == PageState.FREE, state == PageState.PRIVATE
        cached, quarantined = state == PageState.CACHED, state == PageState.QUARANTINED
        used = private | cached
        yield "page 0, not as it must be, or in no state that is", self._reserved(space_idx)
        yield "PRIVATE, and no row references it", private & (rows == 0)
        yield "QUARANTINED, and no pin or step holds it", quarantined & (holds == 0)
        yield "FREE, and a row references it", free & (rows > 0)
        yield "FREE, and a pin or step holds it", free & (holds > 0)
        yield "QUARANTINED, and a row references it", quarantined & (rows > 0)
        yield "more refs than rows that reference it", used & (refs > rows)
        yield "fewer refs than rows that reference it", used & (refs < rows)
        yield "PRIVATE, and more rows than one reference it", private & (rows > 1)
        yield "refs or pins on a page that is FREE", free & ((refs != 0) | (pins != 0))
        yield "more pins than are open", (pins > holds) & ~free
        yield "fewer pins than are open", (pins < holds) & ~free
        yield "CACHED without a key, so that no prompt finds it", cached & (space.key == 0)
        yield "a key on a page that is not CACHED", ~cached & (space.key != 0)
        listed = np.bincount(space.free.pages(), minlength=space.num_pages)[: space.num_pages]
        yield "FREE, and not in the free list", free & (listed == 0)
        yield "in the free list more than once", free & (listed > 1)
        yield "in the free list, and not FREE", ~free & (listed > 0)
        yield "held by a row that nobody can release", self._of_lost_rows(space_idx)
        yield "held by a pin whose owner is gone", self._of_lost_pins(space_idx)

    def _reserved(self, space_idx: int) -> Bools:
        space = self.ledger.spaces[space_idx]
        wrong: Bools = np.greater_equal(space.state, PageState.RESERVED)
        touched = space.refs[0] or space.pins[0] or space.key[0]
        wrong[0] = bool(space.state[0] != PageState.RESERVED or touched)
        return wrong

    def _of_lost_rows(self, space_idx: int) -> Bools:
        """Pages that rows without a holder reference, and no other row does."""
        space = self.ledger.spaces[space_idx]
        lost, count = self.lost_rows, np.zeros(space.num_pages, np.int64)
        for asked in self.census.asked:
            if asked.group.space_idx == space_idx:
                mine = np.isin(asked.at // asked.group.table_width, lost)
                count += np.bincount(asked.pages[mine], minlength=count.size)
        only_lost: Bools = (count > 0) & (count == self.census.refs[space_idx])
        return only_lost

    def _of_lost_pins(self, space_idx: int) -> Bools:
        """Pages that only pins of owners that are gone hold."""
        space = self.ledger.spaces[space_idx]
        count = np.zeros(space.num_pages, np.int64)
        for pin_id in self.lost_pins:
            pin = self.ledger.pins[pin_id]
            if self.ledger.layout.groups[pin.group].space_idx == space_idx:
                np.add.at(count, pin.pages[pin.pages < count.size], 1)
        only_lost: Bools = (count > 0) & (count == self.census.pins[space_idx])
        only_lost &= self.census.refs[space_idx] == 0
        return only_lost

    @cached_property
    def lost_rows(self) -> Index:
        """Rows in use that no request, session or open step will ever give back."""
        return np.array(
            sorted({found.row for found in self.holders if found.row is not None}), np.intp
        )

    @cached_property
    def lost_pins(self) -> tuple[str, ...]:
        """Pins whose owner is neither on a row nor waiting."""
        known = self.ledger.requests.keys() | self.ledger.waiting.keys()
        return tuple(
            pin_id
            for pin_id, pin in self.ledger.pins.items()
            if pin.owner is not None and pin.owner not in known
        )

    @cached_property
    def holders(self) -> tuple[LostHolder, ...]:
        """Rows, pins, requests and sessions that contradict what else is known of them."""
        return (*self._rows(), *self._entries(), *self._books(), *self._pins())

    def _rows(self) -> Iterator[LostHolder]:
        ledger, rows = self.ledger, self.ledger.rows
        open_rows = np.zeros(ledger.layout.num_rows, np.int64)
        for opened in ledger.steps.values():
            np.add.at(open_rows, opened.rows, 1)
        for row in self.census.live.tolist():
            why, held = "", rows.state[row] == RowState.HELD
            if held and not self._has_holder(row):
                why = "HELD, and no request or session has it"
            elif not held and open_rows[row] == 0:
                why = "DRAINING, and no open step names it"
            elif rows.in_flight[row] != open_rows[row]:
                steps = counted(int(open_rows[row]), "open step")
                why = f"in flight {counted(int(rows.in_flight[row]), 'time')}, in {steps}"
            if why:
                gone = not held or not self._has_holder(row)
                yield LostHolder(
                    what=f"row {row}",
                    why=why,
                    seq=int(rows.last_event[row]),
                    row=row if gone else None,
                )

    def _has_holder(self, row: int) -> bool:
        ledger, rid = self.ledger, self.ledger.rows.rid[row]
        session = ledger.sessions.get(ledger.rows.session[row] or "")
        if rid is not None and ledger.requests.get(rid) == row:
            return True
        return session is not None and session.row == row and session.rid is None

    def _entries(self) -> Iterator[LostHolder]:
        """Rows whose tables are not what their lengths ask for."""
        for asked in self.census.asked:
            for what, at in (("lacks", asked.missing), ("still has", asked.extra)):
                rows, counts = np.unique(at // asked.group.table_width, return_counts=True)
                for row, num in zip(rows.tolist(), counts.tolist(), strict=True):
                    asks = "its lengths ask for" if what == "lacks" else "its window has passed"
                    yield LostHolder(
                        what=f"row {row}",
                        why=f"{what} {counted(num, 'page')} of {asked.group.name} that {asks}",
                        seq=int(self.ledger.rows.last_event[row]),
                    )

    def _books(self) -> Iterator[LostHolder]:
        """Requests and sessions whose row is another's, or nobody's."""
        ledger, rows = self.ledger, self.ledger.rows
        for rid, row in ledger.requests.items():
            if rows.rid[row] != rid or rows.state[row] != RowState.HELD:
                why = f"row {row}, which it should hold, is not its own"
                yield LostHolder(what=f"request {rid}", why=why, seq=int(rows.last_event[row]))
        for session_id, session in ledger.sessions.items():
            row = session.row
            if rows.session[row] != session_id or rows.state[row] != RowState.HELD:
                why = f"row {row}, which it should hold, is not its own"
                yield LostHolder(what=f"session {session_id}", why=why, seq=session.seq)

    def _pins(self) -> Iterator[LostHolder]:
        for pin_id in self.lost_pins:
            pin = self.ledger.pins[pin_id]
            why = f"its owner, request {pin.owner}, is gone"
            yield LostHolder(what=f"pin {pin_id}", why=why, seq=pin.seq)


def _each_once(space_idx: int | None, wrong: Iterator[tuple[str, Bools]]) -> Iterator[LostPages]:
    """Each page under the first thing that is wrong with it."""
    seen: Bools | None = None
    for why, mask in wrong:
        pages = np.flatnonzero(mask if seen is None else mask & ~seen)
        seen = mask if seen is None else seen | mask
        if pages.size:
            yield LostPages(space_idx, pages, why)
