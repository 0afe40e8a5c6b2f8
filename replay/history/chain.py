"""How a violation came about: the events that put pages and rows where its evidence finds them.

The log is folded once more, without checks, from snapshots back to where each page was last taken
and each row last bound; the events that touched them on the way are the chain.
"""

from __future__ import annotations

from collections import deque

import attrs

from kvlife.errors import KvLifeError
from kvlife.events import Recorded
from kvlife.ledger import Change, Ledger
from kvlife.log import LogRun
from kvlife.replay.history.evidence import each_evidence, host_pages_named, pages_named, rows_named
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.history.touches import PageWatch, RowWatch, Touch
from kvlife.replay.replaying.known import known_states
from kvlife.replay.replaying.outcome import Found

# What is watched, and shown, at most; the violation itself takes the last line.
MAX_PAGES = 4
MAX_ROWS = 3
MAX_LINKS = 19
# The search goes back at most so many events.
MAX_WALKED = 1_000_000


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
        self.watch, self.room = watch, room
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
    watches = _watches(run, found)
    room = max(MAX_LINKS // max(len(watches), 1), 2)
    stories = [_Story(watch, room) for watch in watches]
    stop = found.seq if found.event is not None else found.seq + 1
    complete = not stories or _go_back(run, stop, stories)
    links = {(link.seq, link.where): link for story in stories for link in story.links}
    ordered = sorted(links.values(), key=lambda link: (link.seq, link.where))[-MAX_LINKS:]
    return Chain(links=(*ordered, _last(found)), complete=complete)


def _go_back(run: LogRun, stop: int, stories: list[_Story]) -> bool:
    """Go back from `stop` until each story has its origin; False where one was not found."""
    try:
        timeline = Timeline(run)
    except KvLifeError:
        return False  # the log is damaged behind what was replayed
    ends = stop
    for start in reversed([seq for seq in known_states(run) if seq < stop]):
        earlier = [_Story(story.watch, story.room) for story in stories]
        _walk(timeline, start, ends, earlier)
        for story, before in zip(stories, earlier, strict=True):
            story.put_before(before)
        if all(story.origin is not None for story in stories):
            return True
        ends = start
        if stop - start >= MAX_WALKED:
            break
    return False


def _last(found: Found) -> Link:
    named = "an audit" if found.event is None else found.event
    how = "applied" if found.applied else "not applied"
    if found.event is None:
        how = "found behind it"
    return Link(
        seq=found.seq,
        step=found.step,
        event=named,
        where=found.id,
        text=f"{found.id} is broken: {found.evidence.get('why', found.sentence)} ({how})",
    )


def _watches(run: LogRun, found: Found) -> list[PageWatch | RowWatch]:
    pages: dict[tuple[int | None, int], None] = {}
    rows: dict[int, None] = {}
    for evidence in each_evidence(found):
        pages.update(dict.fromkeys(pages_named(run.layout, evidence)))
        pages.update(dict.fromkeys((None, page) for page in host_pages_named(run.layout, evidence)))
        rows.update(dict.fromkeys(rows_named(evidence)))
        if pages and rows:
            break
    rows.update(dict.fromkeys(found.rows))
    culprit = None if found.event is None else run.event(found.seq)
    if culprit is not None:
        row = getattr(culprit.event, "row", None)
        if isinstance(row, int):
            rows.setdefault(row)
    return [
        *[PageWatch(space, page) for space, page in pages if page > 0][:MAX_PAGES],
        *[RowWatch(row) for row in rows if 0 < row < run.layout.num_rows][:MAX_ROWS],
    ]


def _walk(timeline: Timeline, start: int, stop: int, stories: list[_Story]) -> None:
    """Fold [start, stop) and collect."""
    expected = -1

    def before(ledger: Ledger, item: Recorded, change: Change) -> None:
        for story in stories:
            if item.seq != expected:
                story.watch.begin(ledger)
            story.watch.before(ledger, change)

    try:
        for moment in timeline.walk(start, stop, before=before):
            expected = moment.item.seq + 1
            for story in stories:
                for touch in story.watch.after(moment.ledger, moment.item, moment.change):
                    story.add(_link(touch), begins=touch.begins)
    except KvLifeError:
        # What this stretch has left to tell is lost; the replay has already said what is wrong.
        pass
    for story in stories:
        last = story.watch.pending()
        if last is not None:
            story.add(_link(last), begins=last.begins)


def _link(touch: Touch) -> Link:
    return Link(
        seq=touch.seq, step=touch.step, event=touch.event, where=touch.where, text=touch.text
    )
