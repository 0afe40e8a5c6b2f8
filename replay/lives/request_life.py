"""The life of one request, read from as little of a log as tells it."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches

import attrs

from kvlife.errors import KvLifeError
from kvlife.events import (
    Admitted,
    Recorded,
    Released,
    Resumed,
    Retracted,
    SessionRestored,
    SessionSaved,
)
from kvlife.ledger import Change, Ledger
from kvlife.log import LogRun
from kvlife.replay.history.passages import Passage, passages_of
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.lives.request_watch import Entry, RequestWatch

Advance = Callable[[int], None]

# Names that are near another are looked for among so many events at either end of a log.
_SEARCHED = 20_000


@attrs.frozen(kw_only=True)
class RequestLife:
    """What happened to a request, in order; `row` is the one that it holds at the end.

    `begun_before` says that its admission lies before the history that the log has.
    """

    rid: str
    entries: tuple[Entry, ...]
    row: int | None
    waits: bool
    begun_before: bool
    troubles: tuple[str, ...]

    @property
    def is_known(self) -> bool:
        """Whether the log says anything of the request."""
        return bool(self.entries) or self.row is not None or self.waits

    def count(self, *kinds: str) -> int:
        """How many events of these kinds there were."""
        return sum(entry.kinds.get(kind, 0) for entry in self.entries for kind in kinds)


def read_request(
    timeline: Timeline, rid: str, end: Ledger, advance: Advance, *, whole: bool
) -> RequestLife:
    """The life of a request up to the state `end`."""
    reader = _Reader(timeline, rid, whole=whole)
    begun_before = False
    if timeline.first_seq:
        start = timeline.state(timeline.first_seq)
        begun_before = rid in start.requests or rid in start.waiting
        reader.watch.begin(start)
    for passage in passages_of(timeline, end.next_seq):
        if reader.wants(passage):
            reader.read(passage)
        advance(passage.stop - passage.start)
    row = end.requests.get(rid)
    if reader.whole_to == end.next_seq:
        reader.watch.end_run(end, row)
    return RequestLife(
        rid=rid,
        entries=tuple(reader.watch.entries),
        row=row,
        waits=rid in end.waiting,
        begun_before=begun_before,
        troubles=tuple(reader.troubles),
    )


class _Reader:
    """Walks passages and watches the request; `whole_to` is up to where it could read."""

    def __init__(self, timeline: Timeline, rid: str, *, whole: bool) -> None:
        self.watch = RequestWatch(rid, whole=whole)
        self.troubles: list[str] = []
        self.whole_to = -1
        self._timeline = timeline
        self._rid = rid

    def wants(self, passage: Passage) -> bool:
        """Whether the passage may hold events of the request."""
        if self.watch.follower.goes_on:
            return True
        if any(names is not None and names.names_request(self._rid) for names in passage.names):
            return True
        return None in passage.names and self._is_named(passage)

    def _is_named(self, passage: Passage) -> bool:
        """Look for its name where no names are known, which is faster than a fold."""
        try:
            return any(
                _rid_of(item) == self._rid
                for item in self._timeline.run.events(passage.start, passage.stop)
            )
        except KvLifeError:
            return True  # reading the passage says what is wrong

    def read(self, passage: Passage) -> None:
        """What happens to the request in a passage, as far as it can be read."""
        watch, expected = self.watch, self.whole_to

        def before(ledger: Ledger, item: Recorded, _change: Change) -> None:
            if item.seq != expected:
                watch.begin(ledger)
            watch.before(ledger, item)

        try:
            for moment in self._timeline.walk(passage.start, passage.stop, before=before):
                watch.after(moment.ledger, moment.item, moment.change)
                expected = self.whole_to = moment.item.seq + 1
        except KvLifeError as error:
            self.troubles.append(
                f"seqs {max(expected, passage.start)} to {passage.stop - 1}: {error}"
            )


def _rid_of(item: Recorded) -> str | None:
    event = item.event
    if isinstance(
        event, Admitted | Resumed | Released | Retracted | SessionSaved | SessionRestored
    ):
        return event.rid
    return getattr(event, "owner", None)


def near_names(run: LogRun, rid: str, end: Ledger) -> list[str]:
    """Names of requests that are near to one that is not there, the nearest first."""
    known = dict.fromkeys([*end.requests, *end.waiting])
    bounds = ((run.begins_at, _SEARCHED + run.begins_at), (end.next_seq - _SEARCHED, end.next_seq))
    for start, stop in bounds:
        try:
            for item in run.events(max(start, run.begins_at), max(stop, run.begins_at)):
                if isinstance(item.event, Admitted):
                    known.setdefault(item.event.rid)
        except KvLifeError:
            continue  # what can be read there is enough for a hint
    return get_close_matches(rid, list(known), 3)
