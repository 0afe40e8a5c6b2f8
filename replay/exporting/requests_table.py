"""The table of requests: a row for each turn of each, written when it ends."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from kvlife.events import (
    Admitted,
    Recorded,
    Released,
    Resumed,
    Retracted,
    SessionRestored,
    SessionSaved,
)
from kvlife.ledger import Ledger
from kvlife.replay.history.timeline import Moment

OPEN = "open"
Put = Callable[[dict[str, object]], None]


@attrs.define
class _Life:
    """A request between its two ends."""

    request: str
    session: str | None
    namespace: int
    row: int | None
    begun_seq: int | None
    begun_time_ns: int | None
    prompt_len: int
    prefix_len: int | None
    committed_len: int = 0
    allocated_len: int = 0
    retractions: int = 0
    waited_ns: int = 0
    waits_since: int | None = None


class RequestRows:
    """Follows requests from their admission, or the session's next turn, to the end of it."""

    def __init__(self, put: Put) -> None:
        self._put = put
        self._lives: dict[str, _Life] = {}

    def begin(self, ledger: Ledger) -> None:
        """Go on from a state; what is known of a life that goes on in it stays."""
        for rid, life in list(self._lives.items()):
            if rid not in ledger.requests and rid not in ledger.waiting:
                # It ended among events that are missing.
                self._end(life, None, OPEN)
        for rid, row in ledger.requests.items():
            if rid not in self._lives:
                rows = ledger.rows
                self._lives[rid] = _Life(
                    rid, rows.session[row], int(rows.namespace[row]), row, None, None,
                    int(rows.prompt_len[row]), None,
                )  # fmt: skip
        for rid, waiting in ledger.waiting.items():
            if rid not in self._lives:
                self._lives[rid] = _Life(
                    rid, None, waiting.namespace, None, None, None, waiting.prompt_len, None
                )

    def before(self, ledger: Ledger, item: Recorded) -> None:
        """Note the lengths of a holder that the event may end."""
        if isinstance(item.event, Released | Retracted | SessionSaved):
            life = self._lives.get(item.event.rid)
            row = item.event.row
            if life is not None and row is not None:
                life.committed_len = int(ledger.rows.committed[row])
                life.allocated_len = int(ledger.rows.allocated[row])

    def after(self, moment: Moment) -> None:
        """Take up what an event begins or ends."""
        item, event = moment.item, moment.item.event
        if isinstance(event, Admitted):
            self._begin(item, event, None, event.namespace, event.prefix_len)
        elif isinstance(event, SessionRestored):
            namespace = int(moment.ledger.rows.namespace[event.row])
            self._begin(item, event, event.session_id, namespace, event.kept_len)
        elif isinstance(event, Resumed):
            self._resumed(item, event)
        elif isinstance(event, Retracted):
            life = self._lives.get(event.rid)
            if life is not None:
                life.retractions += 1
                life.waits_since = item.time_ns
        elif isinstance(event, Released | SessionSaved):
            life = self._lives.get(event.rid)
            if life is not None:
                if isinstance(event, SessionSaved):
                    life.session = event.session_id
                    self._end(life, item, "saved")
                else:
                    self._end(life, item, event.reason)

    def finish(self, ledger: Ledger) -> None:
        """Write the lives that go on behind the last event."""
        for life in list(self._lives.values()):
            row = ledger.requests.get(life.request)
            if row is not None:
                life.committed_len = int(ledger.rows.committed[row])
                life.allocated_len = int(ledger.rows.allocated[row])
            self._end(life, None, OPEN)

    def _begin(
        self,
        item: Recorded,
        event: Admitted | SessionRestored,
        session: str | None,
        namespace: int,
        prefix_len: int,
    ) -> None:
        before = self._lives.get(event.rid)
        if before is not None:
            # A faulty log binds a request twice.
            self._end(before, item, OPEN)
        self._lives[event.rid] = _Life(
            event.rid, session, namespace, event.row, item.seq, item.time_ns, event.prompt_len,
            prefix_len,
        )  # fmt: skip

    def _resumed(self, item: Recorded, event: Resumed) -> None:
        life = self._lives.get(event.rid)
        if life is not None:
            life.row = event.row
            if life.waits_since is not None:
                life.waited_ns += max(item.time_ns - life.waits_since, 0)
                life.waits_since = None

    def _end(self, life: _Life, item: Recorded | None, how: str) -> None:
        self._lives.pop(life.request, None)
        row = attrs.asdict(life)
        row["ended_seq"] = None if item is None else item.seq
        row["ended_time_ns"] = None if item is None else item.time_ns
        row["ended"] = how
        self._put(row)
