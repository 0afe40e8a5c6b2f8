"""The three commands that show why an invariant was broken, chosen from its evidence."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kvlife.errors import KvLifeError
from kvlife.events import Recorded
from kvlife.ledger import Ledger, RowState
from kvlife.log import LogRun
from kvlife.replay.history.evidence import each_evidence, host_pages_named, pages_named, rows_named
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.history.whence import where_named
from kvlife.replay.output.quoting import command_line
from kvlife.replay.replaying.outcome import Found

NUM_COMMANDS = 3
# What these break is a matter of the whole state more than of one page or request.
_OF_THE_STATE = frozenset({"idle-no-leak", "page-conservation", "row-conservation"})


def next_commands(run: LogRun, found: Found) -> tuple[str, ...]:
    """Three command lines, to be typed as they are: a page, its holder, the state before the event.

    Where the evidence names no page or holder, the others look at the state as a whole.
    """
    asking = _Asking(run, found)
    whole = [asking.line("leaks", at=asking.at), asking.line("why", "reset", at=asking.at)]
    state = asking.line("inspect", at=asking.at)
    lines = [*asking.about_pages(), *asking.about_holders(), state]
    if found.id in _OF_THE_STATE:
        lines.insert(0, whole[0])
    return tuple(dict.fromkeys([*lines, *whole]))[:NUM_COMMANDS]


@attrs.define(init=False)
class _Asking:
    """The run, the violation, the state before it (None where it is not known), and its seq."""

    run: LogRun
    found: Found
    ledger: Ledger | None
    at: int

    def __init__(self, run: LogRun, found: Found) -> None:
        self.run, self.found, self.ledger = run, found, None
        behind = found.event is None or found.id in _OF_THE_STATE
        self.at = found.seq if behind else max(found.seq - 1, 0)
        try:
            timeline = Timeline(run)
            self.at = max(self.at, timeline.first_seq - 1, 0)
            self.ledger = timeline.state(min(self.at + 1, timeline.last_seq))
        except KvLifeError:
            # The replay has said what is wrong with the log; the evidence alone is left.
            pass

    def line(self, name: str, *words: str, **options: object) -> str:
        if self.run.salvage:
            options["salvage"] = None
        return command_line(name, str(self.run.path), *words, options=options)

    def about_pages(self) -> Iterator[str]:
        """The page that the evidence names first."""
        layout = self.run.layout if self.ledger is None else self.ledger.layout
        for evidence in each_evidence(self.found):
            for space_idx, page in pages_named(layout, evidence):
                if 0 < page < layout.spaces[space_idx].num_pages:
                    group = self._group_of(space_idx, page, evidence.get("group"))
                    yield self.line("page", str(page), group=group)
                    return
            for page in host_pages_named(layout, evidence):
                if 0 < page < layout.host_pages:
                    yield self.line("page", str(page), host=None)
                    return

    def _group_of(self, space_idx: int, page: int, named: object) -> str:
        groups = [group for group in self.run.layout.groups if group.space_idx == space_idx]
        for group in groups:
            if group.name == named:
                return group.name
        columns = None if self.ledger is None else self.ledger.spaces[space_idx]
        if columns is not None and page < columns.num_pages:
            for group in groups:
                if group.idx == columns.group[page]:
                    return group.name
        return groups[0].name

    def about_holders(self) -> Iterator[str]:
        """The request, session or row that the evidence, or else the event, names first."""
        for row in self._rows():
            line = self._about_row(row)
            if line is not None:
                yield line
                return
        rids = [evidence.get("rid") for evidence in each_evidence(self.found)]
        culprit = None if self.found.event is None else self._culprit()
        if culprit is not None:
            rids.append(getattr(culprit.event, "rid", None))
        for rid in rids:
            # One that was never there has no life to show.
            if isinstance(rid, str) and self._was_there(rid):
                yield self.line("request", rid)
                return

    def _was_there(self, rid: str) -> bool:
        try:
            return where_named(self.run, "request", rid, self.found.seq).first is not None
        except KvLifeError:
            return False

    def _rows(self) -> Iterator[int]:
        for evidence in each_evidence(self.found):
            yield from rows_named(evidence)
        yield from self.found.rows

    def _about_row(self, row: int) -> str | None:
        if self.ledger is None or not 0 < row < self.ledger.layout.num_rows:
            return None
        rid, session = self.ledger.rows.rid[row], self.ledger.rows.session[row]
        if rid is not None:
            return self.line("request", rid)
        if session in self.ledger.sessions:
            return self.line("inspect", session=session, at=self.at)
        if self.ledger.rows.state[row] != RowState.FREE:
            return self.line("inspect", row=row, at=self.at)
        return None

    def _culprit(self) -> Recorded | None:
        try:
            return self.run.event(self.found.seq)
        except KvLifeError:
            return None
