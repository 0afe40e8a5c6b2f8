"""What is held in a state, by whom and since when, the oldest first; and what is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import attrs
import numpy as np

from kvlife.events import Recorded, Released, Retracted, SessionClosed
from kvlife.invariants.effect import holder_of
from kvlife.invariants.finding import Evidence
from kvlife.invariants.publishing import held_when_idle
from kvlife.ledger import RowState
from kvlife.replay.history.refused import Refused, objection, refused_event
from kvlife.replay.history.view import View
from kvlife.replay.history.whence import bindings, events_at
from kvlife.replay.holding.holdings import Holdings
from kvlife.replay.holding.hosted import host_story
from kvlife.replay.holding.losing import Story, Teller, Wanted
from kvlife.replay.holding.lost import LostPages
from kvlife.replay.output.columns import counted
from kvlife.replay.output.event_words import HOST
from kvlife.replay.replaying.outcome import Found

Advance = Callable[[int], None]


@attrs.frozen(kw_only=True)
class Holder:
    """Who holds pages: `what` in words, `pages` of them, `alone` those that nobody else has.

    `exact` says that it has held since `since_seq`, else since then or before. `item` is the event
    of that seq, where the log still has it.
    """

    what: str
    kind: str
    row: int | None
    pages: int
    alone: int
    since_seq: int
    exact: bool
    item: Recorded | None


@attrs.frozen(kw_only=True)
class Lot:
    """Lost pages of a space (None: the host's) that share what is wrong, last event and story."""

    space: str | None
    pages: tuple[int, ...]
    why: str
    last_seq: int
    story: Story


class Leaks:
    """What was found: `holders` by age and `lots` of lost pages, each up to the limit."""

    def __init__(self, view: View, limit: int | None) -> None:
        """Nothing is looked for until it is asked for."""
        self.view = view
        self.limit = limit
        self.holdings = Holdings(view.ledger)
        self.lots: list[Lot] = []
        self.num_lots = 0

    @property
    def wrong(self) -> bool:
        """Whether something is lost, or held where the run says that it is idle."""
        return self.holdings.lost.anything or (self.view.idle_mark and self.idle is not None)

    @cached_property
    def idle(self) -> Evidence | None:
        """At an idle mark, or where a run was closed that could go on, what idle-no-leak finds."""
        ended = self.view.run.closed is not None and self.view.at_end
        closed = ended and self.view.timeline.violated is None
        return held_when_idle(self.view.ledger) if closed or self.view.idle_mark else None

    @cached_property
    def refused(self) -> Refused | None:
        """The event that a guard refused, which ended the run in this state."""
        return refused_event(self.view)

    @cached_property
    def objection(self) -> Found | None:
        """What the guard had against it, where it is one of kvlife's own."""
        refused = self.refused
        found = None if refused is None else objection(self.view.ledger, refused.item)
        if refused is None or found is None:
            return None
        told = Found.of(found, refused.item.step, applied=False)
        if told.id == refused.invariant:
            return told
        # What ended the run is not the first thing that this version has against the event.
        evidence = told.also.get(refused.invariant)
        if evidence is None:
            return None
        return attrs.evolve(told, id=refused.invariant, sentence="", evidence=evidence, also={})

    @cached_property
    def num_holders(self) -> int:
        """How many rows, pins, steps and backups hold something."""
        ledger = self.view.ledger
        books = len(ledger.pins) + len(ledger.steps) + len(self._backups())
        return self.holdings.rows.size + books

    @cached_property
    def holders(self) -> list[Holder]:
        """The oldest ones, as far as the columns say; of these the log knows the rest."""
        ledger = self.view.ledger
        held = [*self._rows(), *self._pins(), *self._steps(), *self._backups()]
        held = sorted(held, key=lambda holder: holder.since_seq)[: self.limit]
        rids = {
            str(ledger.rows.rid[holder.row]): holder.since_seq
            for holder in held
            if holder.row is not None and ledger.rows.rid[holder.row] and not holder.exact
        }
        bound = bindings(self.view.run, rids)
        at = events_at(self.view.run, [h.since_seq for h in held if h.exact])
        return sorted(
            (self._dated(holder, bound, at) for holder in held), key=lambda h: h.since_seq
        )

    def _rows(self) -> list[Holder]:
        ledger, holdings = self.view.ledger, self.holdings
        alone, found = holdings.pages_alone, []
        for place, row in enumerate(holdings.rows.tolist()):
            session = ledger.sessions.get(ledger.rows.session[row] or "")
            since, exact = int(holdings.since[place]), False
            kind = RowState(int(ledger.rows.state[row])).name
            if kind == "DRAINING":
                since, exact = int(ledger.rows.last_event[row]), True
            elif session is not None and session.row == row:
                since, exact = session.seq, True
            if ledger.rows.in_flight[row] and kind == "HELD":
                kind = "in flight"
            found.append(
                Holder(
                    what=holder_of(ledger, row),
                    kind=kind.lower(),
                    row=row,
                    pages=int(holdings.pages[place]),
                    alone=int(alone[place]),
                    since_seq=since,
                    exact=exact,
                    item=None,
                )
            )
        return found

    def _pins(self) -> list[Holder]:
        found = []
        for name, pin in self.view.ledger.pins.items():
            owner = "" if pin.owner is None else f" of request {pin.owner}"
            space = self.view.ledger.spaces[self.view.ledger.layout.groups[pin.group].space_idx]
            alone = (space.refs[pin.pages] == 0) & (space.pins[pin.pages] == 1)
            found.append(
                Holder(
                    what=f"pin {name} ({pin.kind}){owner}",
                    kind="writes" if pin.writes else "reads",
                    row=None,
                    pages=pin.pages.size,
                    alone=int(np.count_nonzero(alone)),
                    since_seq=pin.seq,
                    exact=True,
                    item=None,
                )
            )
        return found

    def _steps(self) -> list[Holder]:
        """Steps in flight; their rows stand on their own, so the pages are those that left rows."""
        return [
            Holder(
                what=f"step {step} ({counted(opened.rows.size, 'row')})",
                kind="in flight",
                row=None,
                pages=sum(pages.size for _group, pages in opened.pinned),
                alone=sum(pages.size for _group, pages in opened.pinned),
                since_seq=opened.seq,
                exact=True,
                item=None,
            )
            for step, opened in self.view.ledger.steps.items()
        ]

    def _backups(self) -> list[Holder]:
        """Requests that wait, and have pages of the host."""
        return [
            Holder(
                what=f"request {rid}",
                kind=f"waits, pages of {HOST}",
                row=None,
                pages=left.backup.size,
                alone=left.backup.size,
                since_seq=left.seq,
                exact=True,
                item=None,
            )
            for rid, left in self.view.ledger.waiting.items()
            if left.backup is not None and left.backup.size
        ]

    def _dated(self, holder: Holder, bound: dict[str, Recorded], at: dict[int, Recorded]) -> Holder:
        """The holder with the event since when it holds."""
        rid = None if holder.row is None else self.view.ledger.rows.rid[holder.row]
        if holder.exact:
            item = at.get(holder.since_seq)
            what = holder.what
            if holder.kind == "draining" and item is not None:
                what = f"{holder.what}: {_who_left(item)}"
            return attrs.evolve(holder, item=item, what=what)
        item = bound.get(rid or "")
        if item is None:
            return holder
        return attrs.evolve(holder, item=item, since_seq=item.seq, exact=True)

    def look_back(self, advance: Advance) -> None:
        """Find the stories of the lost pages."""
        lots = [lot for found in self.holdings.lost.pages for lot in self._lots_of(found)]
        lots.sort(key=lambda lot: lot[2])
        self.num_lots = len(lots)
        wanted = [
            Wanted(
                space_idx=found.space_idx,
                page=pages[0],
                last_seq=last_seq,
                unheld=self._is_unheld(found.space_idx, pages[0]),
            )
            for found, pages, last_seq in lots[: self.limit]
            if found.space_idx is not None
        ]
        teller = Teller(self.view.timeline, self.view.ledger.next_seq, advance)
        stories = iter(teller.tell(wanted))
        run, stop, spaces = self.view.run, self.view.ledger.next_seq, self.view.ledger.layout.spaces
        self.lots = [
            Lot(
                space=None if found.space_idx is None else spaces[found.space_idx].name,
                pages=tuple(pages),
                why=found.why,
                last_seq=last_seq,
                story=host_story(run, pages[0], last_seq, stop)
                if found.space_idx is None
                else next(stories),
            )
            for found, pages, last_seq in lots[: self.limit]
        ]

    def _lots_of(self, found: LostPages) -> list[tuple[LostPages, list[int], int]]:
        """Pages that were touched last by the same event very likely share their story."""
        host, spaces = self.view.ledger.host, self.view.ledger.spaces
        space = host if found.space_idx is None else spaces[found.space_idx]
        assert space is not None  # what is lost there was found in it
        stamps = space.last_event[found.pages]
        order = np.argsort(stamps, kind="stable")
        starts = np.flatnonzero(np.diff(stamps[order].astype(np.int64), prepend=-1))
        return [
            (found, pages.tolist(), int(space.last_event[pages[0]]) + self.view.ledger.seq_base)
            for pages in np.split(found.pages[order], starts[1:])
        ]

    def _is_unheld(self, space_idx: int, page: int) -> bool:
        refs = self.view.ledger.spaces[space_idx].refs
        return int(refs[page]) != int(self.holdings.census.refs[space_idx][page])


def _who_left(item: Recorded) -> str:
    match item.event:
        case Released() | Retracted():
            kind = type(item.event).__name__.lower()
            return f"request {item.event.rid}, {kind}"
        case SessionClosed():
            return f"session {item.event.session_id}, closed"
    return "left by an event that names no holder"


def find_leaks(view: View, limit: int | None, advance: Advance = lambda _num: None) -> Leaks:
    """What is held and what is lost; with the stories of up to `limit` lots of lost pages."""
    leaks = Leaks(view, limit)
    leaks.look_back(advance)
    return leaks
