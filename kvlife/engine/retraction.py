"""Commands that take a request's KV away and bring it back: retract, with a backup, resume."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.engine.admission import AdmissionCommands
from kvlife.engine.arguments import as_id
from kvlife.engine.core import command
from kvlife.engine.granting import PageGranting
from kvlife.engine.publishing import PublishingCommands
from kvlife.engine.results import Admission, Retraction
from kvlife.errors import BadArgument
from kvlife.events import Event, Pinned, Resumed, Retracted
from kvlife.ledger import HostCopy, holding, kept_pages
from kvlife.ledger.entries import span_entries
from kvlife.ledger.spans import indices
from kvlife.prefix import Match
from kvlife.prefix.tokens import TokensLike

if TYPE_CHECKING:
    from kvlife.config import GroupLayout
    from kvlife.ledger import Waiting

I32 = npt.NDArray[np.int32]

COPY = "copy"


@attrs.frozen(eq=False)
class Restore:
    """What a resumption brings back: up to `end_len` tokens, `need[g]` pages of each group."""

    end_len: int
    cursors: tuple[int, ...]
    need: tuple[int, ...]


class RetractionCommands(AdmissionCommands, PageGranting, PublishingCommands):
    """retract, retract_with_backup, resume, num_free_host, host_pages_required."""

    @command
    def retract(self, rid: str) -> None:
        """Take a request's KV away; it waits to be resumed. What it published stays cached.

        On a session's row the session's KV goes with it, and its next turn is a first turn.
        """
        row, rid = self._row(rid), as_id("a request id", rid)
        self._retract(rid, row, None, ())

    @command
    def retract_with_backup(self, rid: str) -> Retraction:
        """As `retract`, and what only this request has of its KV is copied to the host.

        That is what is committed and not published, [protected, committed), in every group as far
        as the row references it. All or nothing, decided before anything changes: where it cannot
        be kept, this is a plain retraction, the result says why, and `resume` computes again.

        The copied pages stay under pins of kind "copy" until the pools say that the copy is
        complete; the engine ends them by itself, at once where there is no device to wait for. One
        of several ranks waits for its copies, so that all of them write the same events.

        A request in flight may be backed up: it drains as ever, and its pages stay under their
        pins. A step in flight writes only above what is committed, and that is not brought back,
        so it does not matter whether the copy runs before or after it.
        """
        row, rid = self._row(rid), as_id("a request id", rid)
        kept = kept_pages(self.ledger, row)
        why_not = self._why_no_backup(kept)
        if why_not is not None or self.ledger.host is None:
            self._retract(rid, row, None, ())
            return Retraction(rid, None, why_not)
        host_pages = self.ledger.host.free.head(kept.pages.size)
        copied = [kept.pages_of(group.idx) for group in self.ledger.layout.groups]
        self._retract(rid, row, host_pages, self._copy_pins(copied))
        record = self.ledger.record(rid)
        assert record is not None  # it waits now
        return Retraction(rid, record.retraction_backup, None)

    @command
    def resume(self, rid: str, tokens: TokensLike, *, evict_floor: int = 0) -> Admission:
        """Bring a retracted request back: as `admit`, with all its tokens, in its namespace.

        What its backup holds beyond the matched prefix is restored into new pages, which are under
        a write pin of kind "copy" until the pools have brought it back; a command that needs them
        sooner waits for that. Where prefix and backup together have a gap, because what the request
        had published was evicted meanwhile, nothing is restored and the result says so. Either way
        the host pages are given back. The last token is always computed again. Raises as `admit`,
        and `OutOfPages` where the restored pages do not fit: then it goes on waiting.
        """
        rid = self._check_unused(rid)
        waiting = self.ledger.waiting.get(rid)
        if waiting is None:
            raise BadArgument(f"request {rid!r} does not wait: only a retracted one resumes")
        namespace = self._namespaces.get(waiting.namespace, b"")
        prompt, floor = self._fitting(rid, tokens, evict_floor)
        match = self._look_up(prompt, namespace, floor)
        restore = self._restore(rid, waiting, match, len(prompt) - 1, floor)
        key = self._namespace_key(namespace)
        if isinstance(restore, Restore):
            return self._resume_restored(rid, prompt, match, restore, key, floor)
        event = self._binding(rid, prompt, match, key, floor, Resumed)
        return self._bound(event, match, why_recomputed=restore)

    def num_free_host(self) -> int:
        """FREE host pages; with `host_pages_required`, what ranks agree on before a backup."""
        host = self.ledger.host
        return 0 if host is None else host.free.num_free

    def host_pages_required(self, rid: str) -> int:
        """How many host pages a backup of this request would take now."""
        return int(kept_pages(self.ledger, self._row(rid)).pages.size)

    def _retract(self, rid: str, row: int, backup: I32 | None, pins: Sequence[Event]) -> None:
        retracted = Retracted(rid, row, backup, self._row_pages(row))
        self._decide([*self._owned_pins(rid), *pins, retracted])
        self._after_row(row)
        self._counts["retractions"] += 1
        self._follow_copies(pins)

    def _why_no_backup(self, kept: HostCopy) -> str | None:
        """Why these pages cannot be kept on the host, or None where they can."""
        if self.ledger.host is None:
            return "the pools have no host pages: set host_pages"
        need, free = int(kept.pages.size), self.num_free_host()
        if not need:
            return "it has nothing committed that is not published"
        if need > free:
            return f"it takes {need} host pages, and {free} are free"
        for pin_id, pin in self.ledger.pins.items():
            # The engine's own copies run in order, so one to the host sees what came from there.
            if pin.writes and pin_id not in self._copies:
                hit = np.intersect1d(pin.pages, kept.pages_of(pin.group))
                if hit.size:
                    return f"page {hit[0]} is being written under pin {pin_id!r}"
        return None

    def _copy_pins(self, pages: Sequence[I32], *, writes: bool = False) -> list[Event]:
        """A pin for each group that copies pages; its id is new and tells the event's place."""
        pins: list[Event] = []
        for group, copied in enumerate(pages):
            if copied.size:
                pin_id = f"copy {self.next_seq}.{group}"
                while pin_id in self.ledger.pins:
                    pin_id += "+"
                pins.append(Pinned(pin_id, COPY, writes, None, group, copied))
        return pins

    def _follow_copies(self, pins: Sequence[Event]) -> None:
        """End these pins when the pools say so, which may be now."""
        for pin in pins:
            assert isinstance(pin, Pinned)  # _copy_pins made them
            self._copies[pin.pin_id] = None
        if self._waits_for_copies:
            self._finish_copies()
        else:
            self._end_copies()

    def _restore(
        self, rid: str, waiting: Waiting, match: Match, limit: int, floor: int
    ) -> Restore | str | None:
        """What the backup adds to a match, or why it cannot; None where there is nothing to add."""
        end_len = min(waiting.committed_len, limit)
        if waiting.backup is None or self.ledger.host is None or end_len <= match.matched_len:
            return None
        cursors: list[int] = []
        need: list[int] = []
        for group in self.ledger.layout.groups:
            cursor = self._first_cursor(rid, group, match.matched_len, end_len)
            if group.window_idx is not None:
                cursors.append(cursor)
            at = span_entries(group, 0, match.matched_len, end_len, floor, cursor)
            wanted = indices(at).astype(np.int32)
            found = self._host_pages(rid, group, wanted)
            if not found.all():
                lost_len = int(wanted[np.flatnonzero(found == 0)[0]]) * group.page_size
                return (
                    f"the cache has {match.matched_len} tokens of it, and the backup lacks"
                    f" token {lost_len} in group {group.name!r}"
                )
            need.append(int(wanted.size))
        return Restore(end_len, tuple(cursors), tuple(need))

    def _first_cursor(self, rid: str, group: GroupLayout, match_len: int, end_len: int) -> int:
        """Where a restored row's window begins in a group: where an admitted one's does, or later.

        A backup begins at the cursor that the row had. Where the match ends before that, the pages
        between are nowhere, and no query after `end_len` tokens needs them:

            match  )        gone        [ cursor       backup       end )
        """
        if group.window is None:
            return 0
        size = group.page_size
        cursor = transitions.cursor_bound(match_len, group.window, size)
        wanted = np.arange(match_len // size, -(-end_len // size), dtype=np.int32)
        lacking = np.flatnonzero(self._host_pages(rid, group, wanted) == 0)
        if not lacking.size:
            return cursor
        later = (int(wanted[lacking[-1]]) + 1) * size
        return later if later <= transitions.cursor_bound(end_len, group.window, size) else cursor

    def _host_pages(self, rid: str, group: GroupLayout, table_idx: I32) -> I32:
        groups = np.full(table_idx.size, group.idx, np.uint8)
        return holding(self.ledger, rid, groups, table_idx)

    def _resume_restored(
        self, rid: str, prompt: I32, match: Match, restore: Restore, namespace: int, floor: int
    ) -> Admission:
        event = self._binding(rid, prompt, match, namespace, floor, Resumed, restore.cursors)
        assert isinstance(event, Resumed)  # as was asked for
        grant = self._grant(restore.need, spared=event.pages)
        event.restored_len, event.restored = restore.end_len, grant.pages
        pins = self._copy_pins(grant.pages, writes=True)
        admission = self._bound(event, match, grant=grant, pins=pins)
        self._counts["restored_tokens"] += restore.end_len - match.matched_len
        self._follow_copies(pins)
        return admission
