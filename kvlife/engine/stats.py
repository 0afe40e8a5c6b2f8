"""`stats()`: one frozen record of counts, read together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import attrs
import numpy as np

from kvlife.ledger import PageSpace, PageState, RowState

if TYPE_CHECKING:
    from kvlife.engine.observer import Observer


@attrs.frozen(kw_only=True)
class Stats:
    """What an observer or engine holds and has done; counts of one moment.

    `pages`: state name to count, for each page space by name, and `group_pages` the pages in use
    by state for each cache group; `host_pages` the host's pages by state, empty without a host
    space. Of those `waiting`, `backups` have one. `oldest_pin_ns` is how long the oldest pin has
    been held by the clock of the events. `refusals` counts by error name, `violations` by
    invariant id.
    """

    pages: Mapping[str, Mapping[str, int]]
    group_pages: Mapping[str, Mapping[str, int]]
    host_pages: Mapping[str, int]
    rows: Mapping[str, int]
    requests: int
    waiting: int
    backups: int
    sessions: int
    sessions_in_turn: int
    pins: int
    oldest_pin_ns: int | None
    steps_in_flight: int
    admissions: int
    prompt_tokens: int
    hit_tokens: int
    evicted_pages: int
    retractions: int
    restored_tokens: int
    finished: int
    aborts: int
    refusals: Mapping[str, int]
    violations: Mapping[str, int]
    events: int
    checked: Mapping[str, int]
    not_checked: tuple[str, ...]
    check_ns: int
    log_ns: int
    log_bytes: int
    gaps: int


def count_pages(observer: Observer) -> dict[str, dict[str, int]]:
    """Pages by state of each page space."""
    counted = {}
    for layout, space in zip(observer.ledger.layout.spaces, observer.ledger.spaces, strict=True):
        counted[layout.name] = _by_state(space)
    return counted


def count_host_pages(observer: Observer) -> dict[str, int]:
    """The host's pages by state; empty without a host space."""
    host = observer.ledger.host
    return {} if host is None else _by_state(host)


def _by_state(space: PageSpace) -> dict[str, int]:
    counts = np.bincount(space.state, minlength=len(PageState))
    return {state.name: int(counts[state]) for state in PageState}


def _count_group_pages(observer: Observer) -> dict[str, dict[str, int]]:
    counted = {}
    for group in observer.ledger.layout.groups:
        space = observer.ledger.spaces[group.space_idx]
        used = (space.state != PageState.FREE) & (space.group == group.idx)
        counts = np.bincount(space.state[used], minlength=len(PageState))
        counted[group.name] = {
            state.name: int(counts[state])
            for state in (PageState.PRIVATE, PageState.CACHED, PageState.QUARANTINED)
        }
    return counted


def collect_stats(observer: Observer) -> Stats:
    """Gather the record."""
    ledger, checked = observer.ledger, observer.checker.stats
    counts: Mapping[str, int] = getattr(observer, "_counts", {})
    refusals: Mapping[str, int] = getattr(observer, "_refusals", {})
    log = observer.log
    oldest = min((pin.time_ns for pin in ledger.pins.values()), default=None)
    rows = np.bincount(ledger.rows.state, minlength=len(RowState))
    return Stats(
        pages=count_pages(observer),
        group_pages=_count_group_pages(observer),
        host_pages=count_host_pages(observer),
        rows={state.name: int(rows[state]) for state in RowState},
        requests=len(ledger.requests),
        waiting=len(ledger.waiting),
        backups=sum(waiting.backup is not None for waiting in ledger.waiting.values()),
        sessions=len(ledger.sessions),
        sessions_in_turn=sum(item.rid is not None for item in ledger.sessions.values()),
        pins=len(ledger.pins),
        oldest_pin_ns=None if oldest is None else max(ledger.time_ns - oldest, 0),
        steps_in_flight=len(ledger.steps),
        admissions=counts.get("admissions", 0),
        prompt_tokens=counts.get("prompt_tokens", 0),
        hit_tokens=counts.get("hit_tokens", 0),
        evicted_pages=counts.get("evicted_pages", 0),
        retractions=counts.get("retractions", 0),
        restored_tokens=counts.get("restored_tokens", 0),
        finished=counts.get("finished", 0),
        aborts=counts.get("aborts", 0),
        refusals=dict(refusals),
        violations=dict(checked.violations),
        events=observer.next_seq,
        checked={"events": checked.events, "rows": checked.rows, "pages": checked.pages},
        not_checked=tuple(observer.checker.names_off()),
        check_ns=observer.check_ns,
        log_ns=observer.log_ns,
        log_bytes=0 if log is None else log.log_bytes,
        gaps=0 if log is None else log.num_gaps,
    )
