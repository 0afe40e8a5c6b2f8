"""The slice of a run that a faulty event depends on, as a program: a few lives of many.

What is sliced away is a guess, which a trial proves right; the guesses widen until one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs
import numpy as np

from kvlife.errors import LogError
from kvlife.events import Event, Recorded
from kvlife.invariants import Finding
from kvlife.invariants.effect import Effect
from kvlife.ledger import Change, Ledger, RowState, derive
from kvlife.log import LogRun
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.replaying.known import known_states
from kvlife.replay.shrinking.culprit import EVENTS_PER_REPORT, Culprit, judge
from kvlife.replay.shrinking.lives import UNKNOWN, LifeNotes
from kvlife.replay.shrinking.naming import pages_named
from kvlife.replay.shrinking.narrowing import narrowed, single
from kvlife.replay.shrinking.program import Program
from kvlife.replay.shrinking.reading import Reading
from kvlife.replay.shrinking.trial import run_trial, speaks_of_pages, speaks_of_rows

Advance = Callable[[int], None]

# So many events are kept in memory, to be read a second time; more are decoded again.
MAX_KEPT = 300_000


@attrs.frozen(eq=False, kw_only=True)
class Guess:
    """The faulty event or a part of it, and the rows, pages and requests that it depends on."""

    event: Event
    rows: frozenset[int]
    pages: frozenset[tuple[int, int]]
    rids: frozenset[str]

    def lives(self, ledger: Ledger, notes: LifeNotes) -> set[int]:
        """The lives behind them; `UNKNOWN` among them where one in use began earlier."""
        found = set()
        for row in self.rows:
            life = int(notes.of_row[row])
            if life != UNKNOWN or ledger.rows.state[row] != RowState.FREE:
                found.add(life)
        for space_idx, page in self.pages:
            life = int(notes.of_page[space_idx][page])
            if life != UNKNOWN or ledger.spaces[space_idx].state[page]:
                found.add(life)
        found.update(notes.of_request.get(rid, UNKNOWN) for rid in self.rids)
        # A request is resumed from where an earlier life of it ended.
        new = found
        while new:
            new = {notes.before[life] for life in new if life in notes.before} - found
            found |= new
        return found


def slice_run(timeline: Timeline, culprit: Culprit, advance: Advance) -> Program | None:
    """A program that ends with the culprit and breaks what it breaks, and nothing before.

    The run is read from the newest snapshot behind which all of it lies. None where the culprit
    breaks nothing. Raises `LogError` where what the event depends on is not in the log's history.
    """
    run, item = timeline.run, culprit.item
    starts = list(_starts(run, item.seq))
    pending: list[Guess] | None = None
    for start in starts:
        stretch = _Stretch(timeline, start, item.seq)
        stretch.read(advance)
        if pending is None:
            finding = culprit.finding or judge(timeline, item, stretch.ledger)
            if finding is None or finding.id != culprit.invariant:
                return None
            pending = list(_guesses(stretch.ledger, item.event, finding))
        while pending:
            lives = pending[0].lives(stretch.ledger, stretch.notes)
            if UNKNOWN in lives and start != starts[-1]:
                break
            guess = pending.pop(0)
            program = stretch.program(guess.event, lives - {UNKNOWN})
            found = run_trial(program).finding
            if found is not None and found.id == culprit.invariant:
                return program
    where = f"history begins at seq {starts[-1]}, and" if starts[-1] else "in its events"
    raise LogError(
        f"{run.path}: {culprit.invariant} at seq {item.seq} cannot be shown by a smaller log:"
        f" {where} what it depends on is not there"
    )


class _Stretch:
    """The events [start, stop) of a run: whose lives they are, and the state behind them."""

    def __init__(self, timeline: Timeline, start: int, stop: int) -> None:
        self._timeline, self._start, self._stop = timeline, start, stop
        self.ledger = timeline.state(start)
        self.notes = LifeNotes(self.ledger.layout)
        self._layout = self.ledger.layout
        self._kept: list[Recorded] = []

    def read(self, advance: Advance) -> None:
        """Fold the events, once."""
        if self._start == self._stop:
            return
        moments = self._timeline.walk(
            self._start,
            self._stop,
            before=lambda ledger, item, change: self.notes.see(
                ledger, item.event, change, item.seq
            ),
        )
        keeps = self._stop - self._start <= MAX_KEPT
        for number, moment in enumerate(moments, 1):
            self.ledger = moment.ledger
            if keeps:
                self._kept.append(moment.item)
            if number % EVENTS_PER_REPORT == 0:
                advance(EVENTS_PER_REPORT)

    def program(self, last: Event, lives: set[int]) -> Program:
        """The events of some lives, with the faulty one behind them."""
        reading = Reading(self._layout, lives, self.notes)
        low = min(lives, default=self._stop)
        for item in self._kept or self._timeline.run.events(low, self._stop):
            if item.seq >= low:
                reading.see(item.event, item.seq)
        return Program.behind(self.ledger, self.notes, reading, last)


def _starts(run: LogRun, seq: int) -> Iterator[int]:
    """Known states from which to read, each at least twice as far back as the one before it."""
    known = [start for start in known_states(run) if start <= seq]
    distance = 0
    for start in reversed(known):
        if seq - start >= distance or start == known[0]:
            distance = 2 * (seq - start) or 1
            yield start


def _guesses(ledger: Ledger, event: Event, finding: Finding) -> Iterator[Guess]:
    """From the one row or page that is wrong to all that is in use."""
    change, evidence = derive(ledger, event), finding.evidence
    first = _first_of(evidence)
    least = single(ledger, event, change, finding.id) or (
        narrowed(ledger, event, change, first),
        first,
    )
    more = narrowed(ledger, event, change, evidence)
    for part, named in (least, (more, evidence), (event, evidence)):
        guess = _guess(ledger, part, derive(ledger, part), named)
        yield guess
        yield _with_publishers(ledger, guess)
    for rows in (ledger.rows.in_flight.nonzero()[0], ledger.rows.in_use()):
        wide = attrs.evolve(guess, rows=guess.rows.union(rows.tolist()))
        yield _with_publishers(ledger, wide)


def _first_of(evidence: Mapping[str, object]) -> Mapping[str, object]:
    """Evidence that names no more than one row and one page."""
    return {
        name: value[:1] if isinstance(value, list) else value for name, value in evidence.items()
    }


def _guess(ledger: Ledger, event: Event, change: Change, evidence: Mapping[str, object]) -> Guess:
    rows = {int(row) for row in Effect(ledger, event, change).rows}
    rows.update(row for row in speaks_of_rows(evidence) if row < ledger.layout.num_rows)
    rid, session_id = getattr(event, "rid", None), getattr(event, "session_id", None)
    if rid in ledger.requests:
        rows.add(ledger.requests[rid])
    if session_id in ledger.sessions:
        rows.add(ledger.sessions[session_id].row)
    pages = _pages_named(ledger, event, evidence)
    for group in ledger.layout.groups:
        ours = [page for space_idx, page in pages if space_idx == group.space_idx]
        spots = np.flatnonzero(np.isin(ledger.tables[group.idx], ours))
        rows.update((spots // group.table_width).tolist())
    rids = frozenset([rid] if rid in ledger.waiting else []) | _waiting_on(ledger, evidence)
    return Guess(event=event, rows=frozenset(rows), pages=frozenset(pages), rids=rids)


def _waiting_on(ledger: Ledger, evidence: Mapping[str, object]) -> frozenset[str]:
    """The waiting requests whose backup has one of the host pages that evidence names."""
    named = evidence.get("host_pages")
    pages = named if isinstance(named, list) and ledger.host is not None else []
    return frozenset(
        rid
        for rid, waiting in ledger.waiting.items()
        if waiting.backup is not None and np.isin(pages, waiting.backup).any()
    )


def _pages_named(
    ledger: Ledger, event: Event, evidence: Mapping[str, object]
) -> set[tuple[int, int]]:
    """The pages, by space, that an event, its evidence and their pins name; page 0 left out."""
    groups = ledger.layout.groups
    lists = [(group.space_idx, speaks_of_pages(evidence)) for group in groups]
    lists += [(groups[group].space_idx, pages.tolist()) for group, pages in pages_named(event)]
    # In evidence of pages, `pins` counts them.
    named = evidence.get("pins")
    ids = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    for pin_id in (*ids, getattr(event, "pin_id", "")):
        pin = ledger.pins.get(pin_id)
        if pin is None:
            continue
        lists.append((groups[pin.group].space_idx, pin.pages.tolist()))
    return {
        (space_idx, page)
        for space_idx, part in lists
        for page in part
        if 0 < page < ledger.spaces[space_idx].num_pages
    }


def _with_publishers(ledger: Ledger, guess: Guess) -> Guess:
    """As well the lives that took any page that these rows reference."""
    pages = set(guess.pages)
    for group in ledger.layout.groups:
        for row in guess.rows:
            pages.update(
                (group.space_idx, page) for page in ledger.pages_of(row, group.idx).tolist() if page
            )
    return attrs.evolve(guess, pages=frozenset(pages))
