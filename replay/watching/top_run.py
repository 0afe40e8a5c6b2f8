"""One run as `kvlife top` sees it: a state that follows the log, and what was counted."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from kvlife.config import refuse_beyond_memory
from kvlife.errors import EventError, KvLifeError
from kvlife.events import (
    Admitted,
    Evicted,
    Recorded,
    Released,
    Retracted,
    SessionRestored,
    SessionSaved,
    Violated,
)
from kvlife.invariants import Checker
from kvlife.ledger import Ledger, RowState
from kvlife.log.following import FollowedRun, Overtaken
from kvlife.replay.replaying.fold import Fold
from kvlife.replay.replaying.follow import recorded_end
from kvlife.replay.replaying.known import KNOWN_KINDS
from kvlife.replay.report_page.columns import PageUse, names_of_spaces, page_uses, spaces_of

# The rate is that of so many seconds.
RATE_SECONDS = 5.0
# The clock is looked at after so many groups.
_GROUPS_PER_LOOK = 64


@attrs.frozen(kw_only=True)
class Sight:
    """What a run looks like at one moment; counts are of the events from `since_seq` on.

    `status` is live, closed, ended (by a violation) or left (by a writer that died). `behind` says
    that the log has more than was read so far. `trouble` is why a run is followed no further.
    """

    run: str
    path: str
    status: str
    seq: int
    since_seq: int
    behind: bool
    events_per_second: float | None
    log_bytes: int
    pages: dict[str, dict[str, int]]
    rows_held: int
    rows_draining: int
    rows: int
    requests: int
    waiting: int
    sessions: int
    pins: int
    steps_in_flight: int
    admitted: int
    finished: int
    aborted: int
    retracted: int
    evicted_pages: int
    prompt_tokens: int
    hit_tokens: int
    checked: int
    violations: int
    last_violation: str
    trouble: str


class WatchedRun:
    """Follows a run group by group, and checks it on the way unless `level` is off."""

    def __init__(self, path: Path, level: str) -> None:
        """Begin at the newest snapshot; raises `KvLifeError` for a run that cannot be read."""
        self.log = FollowedRun(path)
        refuse_beyond_memory(self.log.layout)
        self._checker = Checker(level=level, policy="collect")
        self._fold = Fold(Ledger(self.log.header.config), self._checker)
        self._counts: Counter[str] = Counter()
        self._behind = True
        self._ended = ""
        self._trouble = ""
        self._looks: deque[tuple[float, int]] = deque()
        self._start()

    def read_on(self, until: float, clock: Callable[[], float]) -> None:
        """Fold what was written since, or as much of it as can be folded up to a time."""
        if self._trouble:
            return
        self._behind = True
        try:
            self._behind = not self._read_on(until, clock)
        except Overtaken as lost:
            if self.log.has_newer_snapshot():
                self._start()
            elif not self.log.is_live:
                self._trouble = str(lost)
        except KvLifeError as error:
            self._trouble = str(error)
        now = clock()
        self._looks.append((now, self.log.seq))
        while len(self._looks) > 2 and self._looks[1][0] <= now - RATE_SECONDS:
            self._looks.popleft()

    @property
    def is_up_to_date(self) -> bool:
        """Whether there was nothing more to read when it was last tried."""
        return not self._behind or bool(self._trouble)

    def _start(self) -> None:
        """Take up the newest known state; counts begin anew."""
        state = self.log.start()
        if state is not None:
            self._fold.start_from(Ledger.restore(self.log.header.config, state))
        self._since_seq = self.log.seq
        self._counts.clear()
        self._looks.clear()

    def _read_on(self, until: float, clock: Callable[[], float]) -> bool:
        """Whether all that is there was read."""
        for number, (group, following) in enumerate(_with_following(self.log.groups())):
            self._take(group, following)
            if number % _GROUPS_PER_LOOK == 0 and clock() > until:
                if following is not None:
                    self._take(following, None)
                return False
        return True

    def _take(self, group: list[Recorded], following: list[Recorded] | None) -> None:
        end = recorded_end(group, following)
        refused = None if end is None or end.applied else end
        for item in group:
            if refused is not None and item.seq >= refused.seq:
                break
            if type(item.event) not in KNOWN_KINDS:
                raise EventError(
                    f"seq {item.seq}: {item.event} is of a kind that this kvlife does not know:"
                    " follow it with a newer one"
                )
            count = _COUNTED.get(type(item.event))
            if count is not None:
                count(self._counts, item.event)
            elif isinstance(item.event, Violated):
                self._ended = f"{item.event.invariant} at seq {item.event.seq}"
        if refused is not None:
            # As the run's guard did it: the state stays what it was.
            self._checker.policies[refused.invariant] = "raise"
            self._fold.group(group, refused, went_on=True)
        elif not self._fold.ended:
            self._fold.group(group, None, went_on=True)

    def sight(self) -> Sight:
        """What there is to see now."""
        ledger, stats, counts = self._fold.ledger, self._checker.stats, self._counts
        rows = np.bincount(ledger.rows.state, minlength=len(RowState))
        names = names_of_spaces(ledger.layout)
        return Sight(
            run=self.log.path.name,
            path=str(self.log.path),
            status=self._status(),
            seq=self.log.seq,
            since_seq=self._since_seq,
            behind=self._behind,
            events_per_second=self._rate(),
            log_bytes=self.log.size_bytes,
            pages={
                name: {
                    use.name.lower(): int(num)
                    for use, num in zip(PageUse, page_uses(space), strict=True)
                }
                for name, space in zip(names, spaces_of(ledger), strict=True)
            },
            rows_held=int(rows[RowState.HELD]),
            rows_draining=int(rows[RowState.DRAINING]),
            rows=ledger.layout.num_rows - 1,
            requests=len(ledger.requests),
            waiting=len(ledger.waiting),
            sessions=len(ledger.sessions),
            pins=len(ledger.pins),
            steps_in_flight=len(ledger.steps),
            admitted=counts["admitted"],
            finished=counts["finished"],
            aborted=counts["aborted"],
            retracted=counts["retracted"],
            evicted_pages=counts["evicted_pages"],
            prompt_tokens=counts["prompt_tokens"],
            hit_tokens=counts["hit_tokens"],
            checked=stats.events,
            violations=sum(stats.violations.values()),
            last_violation=self._last_violation(),
            trouble=self._trouble,
        )

    def _status(self) -> str:
        if self._ended:
            return "ended"
        if self.log.closed is not None:
            return "closed"
        return "live" if self.log.is_live else "left"

    def _last_violation(self) -> str:
        if self._fold.found:
            found = self._fold.found[-1]
            by = "an audit" if found.event is None else found.event
            return f"{found.id} at seq {found.seq}, by {by}"
        return self._ended

    def _rate(self) -> float | None:
        if len(self._looks) < 2 or self._looks[-1][0] <= self._looks[0][0]:
            return None
        (before, first), (now, last) = self._looks[0], self._looks[-1]
        return (last - first) / (now - before)


def _with_following(
    groups: Iterator[list[Recorded]],
) -> Iterator[tuple[list[Recorded], list[Recorded] | None]]:
    """Each group with the one behind it, as far as they can be read."""
    before = None
    try:
        for group in groups:
            if before is not None:
                yield before, group
            before = group
    except KvLifeError:
        if before is not None:
            yield before, None
        raise
    if before is not None:
        yield before, None


def _count_admitted(counts: Counter[str], event: Admitted) -> None:
    counts["admitted"] += 1
    counts["prompt_tokens"] += event.prompt_len
    counts["hit_tokens"] += event.prefix_len


def _count_restored(counts: Counter[str], event: SessionRestored) -> None:
    counts["admitted"] += 1
    counts["prompt_tokens"] += event.prompt_len
    counts["hit_tokens"] += event.kept_len


def _count_released(counts: Counter[str], event: Released) -> None:
    counts["finished" if event.reason == "finished" else "aborted"] += 1


def _count_saved(counts: Counter[str], _event: SessionSaved) -> None:
    counts["finished"] += 1


def _count_retracted(counts: Counter[str], _event: Retracted) -> None:
    counts["retracted"] += 1


def _count_evicted(counts: Counter[str], event: Evicted) -> None:
    counts["evicted_pages"] += sum(pages.size for pages in event.pages)


# Any: each takes events of its own class, by which it is found here.
_COUNTED: dict[type, Callable[[Counter[str], Any], None]] = {
    Admitted: _count_admitted,
    SessionRestored: _count_restored,
    Released: _count_released,
    SessionSaved: _count_saved,
    Retracted: _count_retracted,
    Evicted: _count_evicted,
}
