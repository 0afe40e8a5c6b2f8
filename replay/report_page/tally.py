"""What a report counts of each event: admissions, evictions, lives of pages, tenures of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kvlife.config import Layout
from kvlife.events import (
    Admitted,
    Allocated,
    Event,
    Evicted,
    Marked,
    PageLists,
    Protected,
    Recorded,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepSettled,
    Unpinned,
    WindowEvicted,
)
from kvlife.replay.report_page.columns import Columns, Count
from kvlife.replay.report_page.page_lives import HIT, I32, LET_GO, TAKEN, PageLives
from kvlife.replay.report_page.tenures import Tenures, shortened

MAX_NOTES = 200

Take = Callable[[Recorded], None]


class Tally:
    """Goes by the events alone, as they stand in the log, and is total on faulty ones.

    `column` and `place` say where on the axis the next event lies. `notes` are the first marks:
    column, seq and text. `lives` are those of the page spaces, and last of the host where there is
    one.
    """

    def __init__(self, layout: Layout, columns: Columns, start: int) -> None:
        self.column = 0
        self.place = start
        self.lives = [PageLives(space.num_pages) for space in layout.spaces]
        self._host: PageLives | None = None
        if layout.host_pages:
            self._host = PageLives(layout.host_pages)
            self.lives.append(self._host)
        self._backups: dict[str, I32] = {}
        self.tenures = Tenures(layout.num_rows)
        self.notes: list[tuple[int, int, str]] = []
        self._counts = columns.counts
        self._spaces = [group.space_idx for group in layout.groups]
        # What is not here changes lengths only, and shows in the state.
        self.takes: dict[type[Event], Take] = {
            Admitted: self._admitted,
            Resumed: self._resumed,
            Allocated: self._allocated,
            Protected: self._protected,
            RolledBack: self._rolled_back,
            WindowEvicted: self._of_one_group,
            Unpinned: self._of_one_group,
            Evicted: self._evicted,
            Released: self._released,
            Retracted: self._retracted,
            SessionSaved: self._saved,
            SessionRestored: self._restored,
            SessionClosed: self._closed,
            StepSettled: self._settled,
            Marked: self._marked,
        }

    def _count(self, what: Count, num: int = 1) -> None:
        self._counts[what, self.column] += num

    def _touch(self, kind: int, lists: PageLists) -> int:
        num = 0
        for space_idx, pages in zip(self._spaces, lists, strict=True):
            if pages.size:
                self.lives[space_idx].touch(kind, pages, self.place)
                num += pages.size
        return num

    def _touch_host(self, kind: int, pages: I32 | None) -> None:
        if self._host is not None and pages is not None and pages.size:
            self._host.touch(kind, pages, self.place)

    def _touch_links(self, links: np.ndarray, old: int, new: int) -> None:
        """Rows of (group, ..., page that is let go, page that is got)."""
        for group, _, gone, got in links.tolist():
            lives = self.lives[self._spaces[group]]
            lives.touch(old, np.array([gone], np.int32), self.place)
            lives.touch(new, np.array([got], np.int32), self.place)

    def _admitted(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Admitted)
        self._count(Count.ADMITTED)
        self._count(Count.PROMPT_TOKENS, event.prompt_len)
        self._count(Count.HIT_TOKENS, event.prefix_len)
        self._touch(HIT, event.pages)
        self._begin(event.row, f"request {event.rid}", item)

    def _resumed(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Resumed)
        self._count(Count.RESUMED)
        self._touch(HIT, event.pages)
        self._touch(TAKEN, event.restored)
        self._touch_host(LET_GO, self._backups.pop(event.rid, None))
        self._begin(event.row, f"request {event.rid}", item)

    def _begin(self, row: int, holder: str, item: Recorded, *, of_request: bool = True) -> None:
        self.tenures.begin(row, holder, item.seq, self.place, of_request=of_request)

    def _allocated(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Allocated)
        self._touch(TAKEN, event.pages)

    def _protected(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Protected)
        if event.rebinds.size:
            self._touch_links(event.rebinds, LET_GO, HIT)

    def _rolled_back(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, RolledBack)
        self._touch(LET_GO, event.pages)
        if event.copies.size:
            self._touch_links(event.copies, LET_GO, TAKEN)

    def _of_one_group(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, WindowEvicted | Unpinned)
        if event.pages.size:
            self.lives[self._spaces[event.group]].touch(LET_GO, event.pages, self.place)

    def _evicted(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Evicted)
        self._count(Count.EVICTED_PAGES, self._touch(LET_GO, event.pages))

    def _released(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Released)
        self._count(Count.FINISHED if event.reason == "finished" else Count.ABORTED)
        self._backups.pop(event.rid, None)
        self._touch_host(LET_GO, event.host_pages)
        self._end(event.row, event.reason, event.pages)

    def _retracted(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Retracted)
        self._count(Count.RETRACTED)
        if event.backup is not None:
            self._backups[event.rid] = event.backup
            self._touch_host(TAKEN, event.backup)
        self._end(event.row, "retracted", event.pages)

    def _end(self, row: int | None, how: str, pages: PageLists) -> None:
        num = self._touch(LET_GO, pages)
        if row is not None:
            self.tenures.end(row, how, self.place, num)

    def _saved(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, SessionSaved)
        self._count(Count.FINISHED)
        self._end(event.row, "saved", event.pages)
        self._begin(event.row, f"session {event.session_id}", item, of_request=False)

    def _restored(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, SessionRestored)
        self._count(Count.ADMITTED)
        self._count(Count.PROMPT_TOKENS, event.prompt_len)
        self._count(Count.HIT_TOKENS, event.kept_len)
        self._end(event.row, "next turn", event.pages)
        self._begin(event.row, f"request {event.rid} of session {event.session_id}", item)

    def _closed(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, SessionClosed)
        self._end(event.row, "closed", event.pages)

    def _settled(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, StepSettled)
        self._touch(LET_GO, event.pages)

    def _marked(self, item: Recorded) -> None:
        event = item.event
        assert isinstance(event, Marked)
        self._count(Count.NOTES)
        if len(self.notes) < MAX_NOTES:
            text = f"{event.text} (idle)" if event.idle else event.text
            self.notes.append((self.column, item.seq, shortened(text)))
