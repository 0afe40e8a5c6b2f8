"""Commands of streaming sessions: a row outlives its request and serves the next turn."""

from __future__ import annotations

import numpy as np

from kvlife import transitions
from kvlife.engine.allocation import AllocationCommands
from kvlife.engine.arguments import as_id, as_length, is_name
from kvlife.engine.core import command
from kvlife.engine.publishing import PublishingCommands
from kvlife.engine.results import SessionTurn
from kvlife.errors import SessionBusy, UnknownSession
from kvlife.events import (
    Event,
    PageLists,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
)
from kvlife.events.arrays import NO_LINKS
from kvlife.ledger import Session
from kvlife.ledger.entries import row_entries


class SessionCommands(AllocationCommands, PublishingCommands):
    """session_save, session_restore, session_close."""

    @command
    def session_save(self, session_id: str, rid: str, kv_len: int) -> None:
        """End a turn: the row passes to the session, cut to `kv_len` tokens.

        `kv_len` is what the client has seen of it: at most what is committed, at least what is
        published. Raises `BadLength`, `SessionBusy`, `UnknownRequest`.
        """
        session_id = as_id("a session id", session_id)
        ledger, row = self.ledger, self._row(rid)
        self._check_saves(session_id, rid, row)
        committed, protected = int(ledger.rows.committed[row]), int(ledger.rows.protected[row])
        what = f"kv_len (published to committed of {rid!r})"
        kv_len = as_length(what, kv_len, protected, committed)
        events: list[Event] = []
        end = int(ledger.rows.allocated[row])
        rows, lens = np.array([row], np.int32), np.array([kv_len], np.int32)
        rows.setflags(write=False)
        self._check_windows_kept(rows, lens, lens)
        if kv_len < committed:
            events.append(RolledBack(rows, lens, lens, self._tail(row, kv_len, end), NO_LINKS))
            end = kv_len
        tail = self._tail(row, kv_len, end)
        events += [*self._owned_pins(rid), SessionSaved(session_id, rid, row, kv_len, tail)]
        self._decide(events)

    @command
    def session_restore(
        self, session_id: str, rid: str, prefix_len: int, *, prompt_len: int | None = None
    ) -> SessionTurn:
        """Begin a turn on a session's row, keeping `prefix_len` tokens of it.

        Less is kept where a window has let go of what the rewind needs, and where a rewind ends
        inside a published page; the result says how much. `prompt_len` is the turn's whole prompt.
        Raises `UnknownSession`, `SessionBusy`, `DuplicateRequest`, `BadLength`.
        """
        rid, session = self._check_new(rid), self._session(session_id)
        session_id = as_id("a session id", session_id)
        if session.rid is not None:
            raise SessionBusy(f"session {session_id!r} is in the turn of request {session.rid!r}")
        row, capacity = session.row, self.ledger.layout.capacity
        saved = int(self.ledger.rows.committed[row])
        prefix_len = as_length(f"prefix_len of session {session_id!r}", prefix_len, 0, saved)
        if prompt_len is not None:
            prompt_len = as_length("prompt_len", prompt_len, prefix_len, capacity)
        kept = self._rewind_len(row, prefix_len)
        pages = self._tail(row, kept, int(self.ledger.rows.allocated[row]))
        whole = kept if prompt_len is None else prompt_len
        self._decide([SessionRestored(session_id, rid, row, kept, whole, pages)])
        return SessionTurn(rid, row, prefix_len, kept)

    @command
    def session_close(self, session_id: str) -> None:
        """Let an idle session's KV go; one in a turn is forgotten, its row goes with the turn."""
        session = self._session(session_id)
        if session.rid is not None:
            self._decide([SessionClosed(session_id, None, self.ledger.no_pages)])
            return
        self._decide([SessionClosed(session_id, session.row, self._row_pages(session.row))])
        self._after_row(session.row)

    def _session(self, session_id: str) -> Session:
        session = self.ledger.sessions.get(session_id) if is_name(session_id) else None
        if session is None:
            known = ", ".join(map(repr, sorted(self.ledger.sessions)[:5])) or "none"
            raise UnknownSession(f"no session {session_id!r}; open ones: {known}")
        return session

    def _check_saves(self, session_id: str, rid: str, row: int) -> None:
        bound = self.ledger.rows.session[row]
        if bound != session_id and (bound is not None or session_id in self.ledger.sessions):
            raise SessionBusy(
                f"request {rid!r} runs on session {bound!r}, not on {session_id!r}"
                if bound is not None
                else f"session {session_id!r} holds another row: close it, or save under its turn"
            )

    def _rewind_len(self, row: int, wanted: int) -> int:
        """How much a rewind can keep: what was wanted, or the longest prefix that has its window.

        Below protected the prefix is whole pages, since what is published is not written again.
        """
        rows, layout = self.ledger.rows, self.ledger.layout
        protected, floor = int(rows.protected[row]), int(rows.floor[row])
        kept = wanted if wanted >= protected else transitions.page_floor(wanted, layout.align)
        groups = list(layout.window_groups)
        while groups:
            group = groups.pop()
            cursor, size = int(rows.cursors[group.window_idx, row]), group.page_size
            if transitions.window_lack(cursor, floor, kept, kept, group.window or 1, size) <= 0:
                continue
            if kept > protected or kept % layout.align:
                kept = transitions.page_floor(min(protected, kept), layout.align)
            else:
                # Down to what the floor covers, each shorter prefix lacks as much of its window.
                covered = transitions.page_ceil(floor, size)
                kept = transitions.page_floor(min(covered, kept), layout.align)
            groups = list(layout.window_groups)
        return kept

    def _tail(self, row: int, low_len: int, high_len: int) -> PageLists:
        """The pages of a row above `low_len` and up to `high_len` tokens."""
        if high_len <= low_len:
            return self.ledger.no_pages
        return self.ledger.pages_at(row_entries(self.ledger, row, low_len, high_len))
