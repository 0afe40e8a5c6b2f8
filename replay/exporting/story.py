"""What a timeline tells of a log: who held rows and pins, from when to when, and what happened.

Steps of a whole batch show in the counters alone: a slice for each row of each step would bury the
rest. Whatever a faulty event says, slices stay nested, and no flow ends twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvlife.config import Layout
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Marked,
    PageLists,
    Pinned,
    Protected,
    Recorded,
    Released,
    Resized,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepSettled,
    Unpinned,
    Violated,
)
from kvlife.ledger import Change, Ledger, RowState
from kvlife.replay.exporting.gauges import Gauges
from kvlife.replay.exporting.tracks import Args, Sink, Track, Tracks
from kvlife.replay.history.timeline import Moment
from kvlife.replay.output.event_words import kind_of

PREFILL, DECODE, WAITING, DRAINING = "prefill", "decode", "waiting", "draining"


class Story:
    """Writes a log to a sink as it is followed; times are those of the events, or their seqs."""

    def __init__(self, sink: Sink, layout: Layout, num_events: int, *, by_seq: bool) -> None:
        """With `by_seq` an event takes a microsecond."""
        self._sink = sink
        self._by_seq = by_seq
        self._layout = layout
        tracks = self._tracks = Tracks(sink)
        self._log = tracks.slices(tracks.group("log"), "notes")
        pools = tracks.group("pools")
        self._pools = [tracks.slices(pools, space.name) for space in layout.spaces]
        self._gauges = Gauges(tracks, sink, pools, num_events)
        self._requests = tracks.group("requests")
        self._sessions = tracks.group("sessions")
        self._pins = tracks.group("pins")
        self._start: int | None = None
        self._at = 0
        self._open: dict[Track, int] = {}
        self._prefilling: dict[int, Track] = {}
        self._unallocated: set[int] = set()
        self._flows: dict[int, int] = {}
        self._num_flows = 0
        self._draining: dict[int, Track] = {}
        self._session_id: str | None = None
        self._tells: dict[type, Callable[[Any], None]] = {  # Any: each takes its own event
            Admitted: self._bound,
            Resumed: self._bound,
            Protected: self._protected,
            RolledBack: self._rolled_back,
            Released: self._released,
            Retracted: self._retracted,
            SessionSaved: self._saved,
            SessionRestored: self._restored,
            SessionClosed: self._closed,
            Evicted: self._evicted,
            Resized: self._resized,
            Pinned: self._pinned,
            Unpinned: self._unpinned,
            Marked: self._marked,
        }

    def begin(self, ledger: Ledger, seq: int, time_ns: int) -> None:
        """Show who holds what in a state; what was open before it is closed."""
        missing = self._start is not None
        self._move(seq, time_ns)
        self._seq, self._ledger = seq, ledger
        if missing:
            self._note(self._log, "events are missing before this")
        for track in list(self._open):
            self._end_all(track)
        self._prefilling, self._unallocated, self._flows, self._draining = {}, set(), {}, {}
        for row in ledger.rows.in_use().tolist():
            self._found(ledger, row)
        for rid in ledger.waiting:
            self._begin(self._request(rid), WAITING)
        for pin_id, pin in ledger.pins.items():
            self._begin(self._tracks.slices(self._pins, pin_id), pin.kind)
        self._gauges.read(ledger, self._at)

    def before(self, ledger: Ledger, _item: Recorded, change: Change) -> None:
        """Note whose session runs on the event's row, as the event may end that."""
        row = change.row
        self._session_id = None if row is None else ledger.rows.session[row]

    def after(self, moment: Moment) -> None:
        """Tell of one event."""
        item, event = moment.item, moment.item.event
        self._move(item.seq, item.time_ns)
        self._seq, self._ledger = item.seq, moment.ledger
        tell = self._tells.get(type(event))
        if tell is not None:
            tell(event)
        elif isinstance(event, Violated):
            # Under a policy that lets the run go on.
            self.refused(item)
        elif isinstance(event, Allocated):
            if self._unallocated:
                self._allocated(event)
        elif isinstance(event, Committed):
            if self._prefilling:
                self._committed(event)
        elif isinstance(event, StepSettled) and event.drained.size:
            self._drained(event)
        self._gauges.step(moment.ledger, self._at)

    def refused(self, item: Recorded) -> None:
        """Tell of what ended the run."""
        event = item.event
        self._move(item.seq, item.time_ns)
        self._seq = item.seq
        if isinstance(event, Violated):
            self._note(self._log, f"VIOLATED: {event.invariant}", {"by seq": event.seq})
        else:
            self._note(self._log, f"not applied: {kind_of(event)}")

    def finish(self) -> None:
        """The log ends, and what is open stays open."""
        self._sink.finish()

    def _move(self, seq: int, time_ns: int) -> None:
        place = seq * 1000 if self._by_seq else time_ns
        if self._start is None:
            self._start = place
        # A clock that went back counts as one that stood still.
        self._at = max(self._at, place - self._start)

    # Slices, of which any number may be open on a track.

    def _begin(self, track: Track, name: str, args: Args | None = None) -> None:
        self._open[track] = self._open.get(track, 0) + 1
        self._sink.begin(track, self._at, name, {"seq": self._seq} | dict(args or {}))

    def _end_all(self, track: Track) -> None:
        for _ in range(self._open.pop(track, 0)):
            self._sink.end(track, self._at)

    def _note(self, track: Track, name: str, args: Args | None = None, **flow: int) -> None:
        self._sink.instant(track, self._at, name, {"seq": self._seq} | dict(args or {}), **flow)

    def _request(self, rid: str) -> Track:
        return self._tracks.slices(self._requests, rid)

    def _session(self, session_id: str) -> Track:
        return self._tracks.slices(self._sessions, session_id)

    # Rows and their holders.

    def _found(self, ledger: Ledger, row: int) -> None:
        """A row that is in use where the timeline begins."""
        rid, session_id = ledger.rows.rid[row], ledger.rows.session[row]
        if session_id is not None:
            self._begin(self._session(session_id), "idle" if rid is None else f"turn of {rid}")
        if rid is not None:
            track = self._request(rid)
            self._begin(track, f"row {row}")
            self._begin(track, PREFILL if self._is_prefilling(row) else DECODE)
            if self._is_prefilling(row):
                self._prefilling[row] = track
        elif ledger.rows.state[row] == RowState.DRAINING:
            self._draining[row] = self._log

    def _is_prefilling(self, row: int) -> bool:
        rows = self._ledger.rows
        return bool(rows.committed[row] < rows.prompt_len[row])

    def _bound(self, event: Admitted | Resumed) -> None:
        args = {"prompt_len": event.prompt_len, "prefix_len": event.prefix_len}
        self._on_row(event.rid, event.row, args)
        self._flows.pop(event.row, None)
        if isinstance(event, Resumed) and _num_pages(event.restored):
            self._flow_begins(event.row, event.rid, event.restored)
        else:
            self._unallocated.add(event.row)

    def _on_row(self, rid: str, row: int, args: Args) -> None:
        track = self._request(rid)
        self._end_all(track)
        self._begin(track, f"row {row}", args)
        self._begin(track, PREFILL)
        self._prefilling[row] = track

    def _off_row(self, track: Track, row: int | None) -> None:
        self._end_all(track)
        if row is not None:
            self._prefilling.pop(row, None)
            self._unallocated.discard(row)
            if self._ledger.rows.state[row] == RowState.DRAINING:
                self._draining[row] = track
                self._begin(track, DRAINING)

    def _end_session(self) -> None:
        """The pages of a session go with the request that runs on its row."""
        if self._session_id is not None:
            self._end_all(self._session(self._session_id))

    def _allocated(self, event: Allocated) -> None:
        """The first pages of a holder begin its flow."""
        for row in self._unallocated.intersection(event.rows.tolist()):
            self._unallocated.discard(row)
            rid = self._ledger.rows.rid[row]
            self._flow_begins(row, rid or f"row {row}", event.pages)

    def _committed(self, event: Committed) -> None:
        for row in self._prefilling.keys() & set(event.rows.tolist()):
            if not self._is_prefilling(row):
                track = self._prefilling.pop(row)
                if self._open.get(track, 0) > 1:
                    self._open[track] -= 1
                    self._sink.end(track, self._at)
                    self._begin(track, DECODE)

    def _flow_begins(self, row: int, holder: str, pages: PageLists) -> None:
        self._num_flows += 1
        self._flows[row] = self._num_flows
        track = self._pool_of(pages)
        self._note(track, f"first pages of {holder}", {"row": row}, flow=self._num_flows)

    def _flow_ends(self, row: int | None, what: str, pages: PageLists) -> None:
        """The pages of a row go; until a draining row's do, nothing is told."""
        if row is None or row in self._draining:
            return
        flow = self._flows.pop(row, None)
        args = {"row": row, "pages": _num_pages(pages)}
        if flow is None:
            self._note(self._pool_of(pages), what, args)
        else:
            self._note(self._pool_of(pages), what, args, ends_flow=flow)

    def _pool_of(self, pages: PageLists) -> Track:
        """The pool of the first group that has pages in an event, or of the base group."""
        layout = self._layout
        spaces = [group.space_idx for group in layout.groups]
        found = (space for space, listed in zip(spaces, pages, strict=True) if listed.size)
        return self._pools[next(found, spaces[layout.base])]

    def _released(self, event: Released) -> None:
        track = self._request(event.rid)
        self._note(track, event.reason)
        self._off_row(track, event.row)
        self._end_session()
        self._flow_ends(event.row, f"{event.rid} released", event.pages)

    def _retracted(self, event: Retracted) -> None:
        track = self._request(event.rid)
        self._off_row(track, event.row)
        self._end_session()
        self._flow_ends(event.row, f"{event.rid} retracted", event.pages)
        self._begin(track, WAITING)

    def _drained(self, event: StepSettled) -> None:
        for row in event.drained.tolist():
            track = self._draining.pop(row, None)
            if track is not None:
                self._end_all(track)
            self._flow_ends(row, f"row {row} drained", event.pages)

    def _saved(self, event: SessionSaved) -> None:
        self._off_row(self._request(event.rid), event.row)
        session = self._session(event.session_id)
        self._end_all(session)
        self._begin(session, "idle", {"row": event.row, "kept_len": event.kept_len})

    def _restored(self, event: SessionRestored) -> None:
        session = self._session(event.session_id)
        self._end_all(session)
        args = {"row": event.row, "kept_len": event.kept_len, "prompt_len": event.prompt_len}
        self._begin(session, f"turn of {event.rid}", args)
        self._on_row(event.rid, event.row, args)

    def _closed(self, event: SessionClosed) -> None:
        session = self._session(event.session_id)
        self._off_row(session, event.row)
        self._note(session, "closed")
        self._flow_ends(event.row, f"{event.session_id} closed", event.pages)

    # What happens at one moment.

    def _protected(self, event: Protected) -> None:
        rid, session_id = (
            self._ledger.rows.rid[event.row],
            self._ledger.rows.session[event.row],
        )
        args = {"protected_len": event.protected_len}
        if rid is not None:
            self._note(self._request(rid), "published", args)
        elif session_id is not None:
            self._note(self._session(session_id), "published", args)

    def _rolled_back(self, event: RolledBack) -> None:
        if event.rows.size == 1:
            rid = self._ledger.rows.rid[int(event.rows[0])]
            if rid is not None:
                args = {"allocated_len": int(event.allocated_len[0])}
                self._note(self._request(rid), "rolled back", args)

    def _evicted(self, event: Evicted) -> None:
        args: dict[str, int | str] = {
            "reason": event.reason,
            "pages": _num_pages(event.pages),
        }
        self._note(self._pool_of(event.pages), f"evicted for {event.reason}", args)

    def _resized(self, event: Resized) -> None:
        self._note(self._pools[event.space], "resized", {"num_pages": event.num_pages})

    def _pinned(self, event: Pinned) -> None:
        args: dict[str, int | str] = {
            "pages": int(event.pages.size),
            "writes": int(event.writes),
            "owner": event.owner or "",
        }
        track = self._tracks.slices(self._pins, event.pin_id)
        self._end_all(track)
        self._begin(track, event.kind, args)

    def _unpinned(self, event: Unpinned) -> None:
        self._end_all(self._tracks.slices(self._pins, event.pin_id))

    def _marked(self, event: Marked) -> None:
        self._note(self._log, event.text or "mark", {"idle": int(event.idle)})


def _num_pages(pages: PageLists) -> int:
    return sum(listed.size for listed in pages)
