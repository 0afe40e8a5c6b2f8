"""Where a log says since when something is held: the events behind the seqs of a state.

Each search reads what it must and no more than a bound, so that it ends on any log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kvlife.errors import LogError
from kvlife.events import Recorded
from kvlife.log import LogRun
from kvlife.replay.history.selecting import BINDS, stretches_between

# A search reads at most so many events.
MAX_READ = 1_000_000


def events_at(run: LogRun, seqs: Iterable[int]) -> dict[int, Recorded]:
    """The events at some seqs, as far as the log still has them."""
    stretches: dict[int | None, list[int]] = {}
    for seq in sorted(set(seqs), reverse=True):
        if run.begins_at <= seq < run.next_seq:
            stretches.setdefault(run.snapshot_before(seq), []).append(seq)
    found: dict[int, Recorded] = {}
    left = MAX_READ
    for wanted in stretches.values():
        chosen = set(wanted)
        left -= wanted[0] - wanted[-1]
        if left < 0:
            break
        try:
            found.update(
                (item.seq, item)
                for item in run.events(wanted[-1], wanted[0] + 1)
                if item.seq in chosen
            )
        except LogError:
            continue  # what is damaged there is not shown; the rest is
    return found


def bindings(run: LogRun, latest: Mapping[str, int]) -> dict[str, Recorded]:
    """The events that gave requests the rows they hold; `latest` has a seq by which each had one.

    A request whose event is not in the log, or too far back, is left out.
    """
    found: dict[str, Recorded] = {}
    left = MAX_READ
    for start, end, names in reversed([*stretches_between(run, run.begins_at, run.next_seq)]):
        wanted = {
            rid: seq
            for rid, seq in latest.items()
            if seq >= start and rid not in found and (names is None or names.names_request(rid))
        }
        stop = min(max(wanted.values(), default=-1) + 1, end)
        if stop <= start:
            continue
        left -= stop - start
        if left < 0:
            break
        try:
            for item in run.events(start, stop):
                if isinstance(item.event, BINDS) and item.event.rid in wanted:
                    found[item.event.rid] = item
        except LogError:
            continue  # as above
    return found


def next_naming(run: LogRun, rid: str, start: int, stop: int) -> Recorded | None:
    """The first event of [start, stop) that names a request; None where none is found."""
    left = MAX_READ
    for first, end, names in stretches_between(run, start, stop):
        if names is not None and not names.names_request(rid):
            continue
        left -= end - first
        if left < 0:
            return None
        try:
            for item in run.events(max(first, start), end):
                if getattr(item.event, "rid", None) == rid:
                    return item
        except LogError:
            return None  # what follows may not be the next
    return None


@attrs.frozen(kw_only=True)
class Naming:
    """Where a log names somebody: the first and last seq, None where it was not found.

    `whole` says that all of the log was looked at that can be; not so where that takes too long.
    """

    first: int | None
    last: int | None
    whole: bool


def where_named(run: LogRun, kind: str, name: str, stop: int | None = None) -> Naming:
    """Where events below `stop` name a request or a session (`kind`) by its id."""
    field = "rid" if kind == "request" else "session_id"
    seqs: list[int] = []
    left, whole = MAX_READ, True
    stop = run.next_seq if stop is None else stop
    for start, end, names in stretches_between(run, run.begins_at, stop):
        if names is not None:
            named = names.names_request if kind == "request" else names.names_session
            if not named(name):
                continue
        left -= end - start
        if left < 0:
            whole = False
            break
        try:
            for item in run.events(start, end):
                if getattr(item.event, field, None) == name:
                    seqs = [*seqs[:1], item.seq]
        except LogError:
            whole = False
    return Naming(first=seqs[0] if seqs else None, last=seqs[-1] if seqs else None, whole=whole)
