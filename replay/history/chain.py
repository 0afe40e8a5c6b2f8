"""How a violation came about: the events that put pages and rows where its evidence finds them.

The log is folded once more, without checks, from snapshots back to where each page was last taken
and each row last bound; the events that touched them on the way are the chain.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import attrs

from kvlife.errors import KvLifeError
from kvlife.events import EVENT_TYPES, Allocated, Committed, Recorded, Violated
from kvlife.ledger import Ledger, derive
from kvlife.log import LogRun
from kvlife.replay.history.evidence import each_evidence, pages_named, rows_named
from kvlife.replay.history.touches import PageWatch, RowWatch, Touch
from kvlife.replay.replaying.outcome import Found
from kvlife.replay.replaying.parts import known_states

# What is watched, and shown, at most; the violation itself takes the last line.
MAX_PAGES = 4
MAX_ROWS = 3
MAX_LINKS = 19
# The search goes back at most so many events.
MAX_WALKED = 1_000_000

_KNOWN = frozenset(EVENT_TYPES)
_BATCHES = (Allocated, Committed)


@attrs.frozen(kw_only=True)
class Link:
    """One event of the chain: what it did to a page or a row, `where` in words."""

    seq: int
    step: int
    event: str
    where: str
    text: str


@attrs.frozen(kw_only=True)
class Chain:
    """The links in order, the violation last. `complete` says that each one's origin was found."""

    links: tuple[Link, ...]
    complete: bool


class _Story:
    """The links of one page or row: where its present life began, and what came last."""

    def __init__(self, watch: PageWatch | RowWatch, room: int) -> None:
        self.watch = watch
        self.origin: Link | None = None
        self.recent: deque[Link] = deque(maxlen=max(room - 1, 1))

    def add(self, link: Link, *, begins: bool) -> None:
        """Take up a link; one that begins a life makes the one before it a part of the past."""
        if not begins:
            self.recent.append(link)
            return
        if self.origin is not None:
            self.recent.append(self.origin)
        self.origin = link

    def put_before(self, earlier: _Story) -> None:
        """Take up what an earlier stretch of the log knew."""
        links = [*earlier.recent, *self.recent]
        if self.origin is None:
            self.origin = earlier.origin
        elif earlier.origin is not None:
            links.insert(0, earlier.origin)
        self.recent.clear()
        self.recent.extend(sorted(links, key=lambda link: link.seq))

    @property
    def links(self) -> list[Link]:
        """All of them."""
        return ([] if self.origin is None else [self.origin]) + list(self.recent)


def explain(run: LogRun, found: Found) -> Chain:
    """The chain of events that led to a violation, in at most 20 links.

    Never raises for a log that the replay could follow up to the violation.
    """
    culprit = _culprit(run, found)
    watches = _watches(run, found, culprit)
    room = max(MAX_LINKS // max(len(watches), 1), 2)
    stories = [_Story(watch, room) for watch in watches]
    walked, complete = 0, not stories
    ends = found.seq if found.event is not None else found.seq + 1
    starts = [seq for seq in known_states(run) if seq < ends]
    for start in reversed(starts):
        earlier = [_Story(watch, room) for watch in watches]
        walked += _walk(run, start, ends, earlier)
        for story, before in zip(stories, earlier, strict=True):
            story.put_before(before)
        ends = start
        complete = all(story.origin is not None for story in stories)
        if complete or walked >= MAX_WALKED:
            break
    links = {(link.seq, link.where): link for story in stories for link in story.links}
    ordered = sorted(links.values(), key=lambda link: (link.seq, link.where))[-MAX_LINKS:]
    return Chain(links=(*ordered, _last(found)), complete=complete)


def _last(found: Found) -> Link:
    named = "an audit" if found.event is None else found.event
    how = "found behind it" if found.event is None or found.applied else "not applied"
    if found.event is not None and found.applied:
        how = "applied"
    return Link(
        seq=found.seq,
        step=found.step,
        event=named,
        where=found.id,
        text=f"{found.id} is broken: {found.evidence.get('why', found.sentence)} ({how})",
    )


def _culprit(run: LogRun, found: Found) -> Recorded | None:
    if found.event is None:
        return None
    return run.event(found.seq)


def _watches(run: LogRun, found: Found, culprit: Recorded | None) -> list[PageWatch | RowWatch]:
    pages: dict[tuple[int, int], None] = {}
    rows: dict[int, None] = {}
    for evidence in each_evidence(found):
        pages.update(dict.fromkeys(pages_named(run.layout, evidence)))
        rows.update(dict.fromkeys(rows_named(evidence)))
        if pages and rows:
            break
    rows.update(dict.fromkeys(found.rows))
    if culprit is not None:
        row = getattr(culprit.event, "row", None)
        if isinstance(row, int):
            rows.setdefault(row)
    return [
        *(PageWatch(space, page) for space, page in pages if page > 0),
    ][:MAX_PAGES] + [RowWatch(row) for row in rows if 0 < row < run.layout.num_rows][:MAX_ROWS]


def _walk(run: LogRun, start: int, stop: int, stories: list[_Story]) -> int:
    """Fold [start, stop) and collect; returns how many events that were."""
    ledger = Ledger(run.header.config)
    walked = 0
    try:
        if start:
            ledger = Ledger.restore(run.header.config, run.snapshot(start))
        for story in stories:
            story.watch.begin(ledger)
        for item in _followable(run, ledger, start, stop):
            _fold_one(ledger, item, stories)
            walked += 1
    except KvLifeError:
        # What this stretch has left to tell is lost; the replay has already said what is wrong.
        pass
    for story in stories:
        touch = story.watch.pending()
        if touch is not None:
            story.add(_link(touch), begins=touch.begins)
    return walked


def _followable(run: LogRun, ledger: Ledger, start: int, stop: int) -> Iterator[Recorded]:
    for item in run.events(start, stop):
        if item.seq != ledger.next_seq or type(item.event) not in _KNOWN:
            return
        if not isinstance(item.event, Violated):
            yield item


def _fold_one(ledger: Ledger, item: Recorded, stories: list[_Story]) -> None:
    event = item.event
    change = derive(ledger, event)
    for story in stories:
        story.watch.before(ledger, change)
    ledger.apply(event, item.seq, item.time_ns, change)
    for story in stories:
        for touch in story.watch.after(ledger, item, change):
            story.add(_link(touch), begins=touch.begins)


def _link(touch: Touch) -> Link:
    return Link(
        seq=touch.seq, step=touch.step, event=touch.event, where=touch.where, text=touch.text
    )
