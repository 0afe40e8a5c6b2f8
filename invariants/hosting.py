"""Guards and audits over the host's pages: what a backup takes, and who gives it back.

A host page is FREE, or PRIVATE to one request that waits. The ids are those of the rules for pages
on a device, of which these are the same; evidence names the pages as `host_pages`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvlife.events import Released, Resumed, Retracted
from kvlife.invariants.effect import repeated, state_names
from kvlife.invariants.finding import MAX_NAMED, Evidence, few, naming
from kvlife.ledger import PageState

if TYPE_CHECKING:
    from kvlife.invariants.census import Census
    from kvlife.invariants.effect import Effect
    from kvlife.ledger import Ledger, PageSpace

I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]


def host_evidence(ledger: Ledger, pages: npt.ArrayLike, **more: object) -> Evidence:
    """Host pages, their states and refs, the seq of the last event of each, and who waits on it."""
    evidence: Evidence = naming(host_pages=pages)
    host = ledger.host
    if host is not None:
        known = [page for page in few(pages) if 0 <= page < host.num_pages]
        evidence["states"] = state_names(host.state[known])
        evidence["refs"] = few(host.refs[known])
        evidence["last_events"] = [int(host.last_event[page]) + ledger.seq_base for page in known]
        evidence["waiting"] = [waiting_on(ledger, page) for page in known]
    return evidence | more


def waiting_on(ledger: Ledger, page: int) -> list[str]:
    """The waiting requests whose backup names this host page."""
    return [
        rid
        for rid, waiting in ledger.waiting.items()
        if waiting.backup is not None and page in waiting.backup
    ][:MAX_NAMED]


def _saved(effect: Effect) -> I32 | None:
    """The host pages that a retraction fills; None where it fills none that are known."""
    event = effect.event
    if not isinstance(event, Retracted) or effect.ledger.host is None:
        return None
    return event.backup


def double_alloc(effect: Effect) -> Evidence | None:
    """A host page that a backup takes was FREE, and stands once."""
    pages, host = _saved(effect), effect.ledger.host
    if pages is None or host is None:
        return None
    state = host.state[pages]
    owned = pages[(state != PageState.FREE) & (state != PageState.RESERVED)]
    twice = repeated(pages)
    if not owned.size and not twice.size:
        return None
    why = "the host page was not FREE" if owned.size else "the host page stands twice"
    return host_evidence(effect.ledger, owned if owned.size else twice, why=why)


def double_free(effect: Effect) -> Evidence | None:
    """A host page that is given back was not FREE, and stands once."""
    pages, host = effect.change.host_gone, effect.ledger.host
    if pages is None or host is None or not pages.size:
        return None
    free = pages[host.state[pages] == PageState.FREE]
    twice = repeated(pages)
    if not free.size and not twice.size:
        return None
    why = "the host page was given back before" if free.size else "the host page stands twice"
    return host_evidence(effect.ledger, free if free.size else twice, why=why)


def freed_by_stranger(effect: Effect) -> Evidence | None:
    """A release gives back no host page but those of its own backup."""
    event, host = effect.event, effect.ledger.host
    if not isinstance(event, Released) or host is None:
        return None
    foreign = np.setdiff1d(event.host_pages, backup_of(effect.ledger, event.rid))
    # One that is FREE was given back before: page-double-free says so.
    foreign = foreign[host.state[foreign] != PageState.FREE]
    if not foreign.size:
        return None
    why = "the host page is not of this request's backup"
    return host_evidence(effect.ledger, foreign, why=why, rid=event.rid)


def backup_of(ledger: Ledger, rid: str) -> I32:
    """The host pages of a waiting request, none where it has no backup."""
    waiting = ledger.waiting.get(rid)
    backup = None if waiting is None else waiting.backup
    return np.empty(0, np.int32) if backup is None else backup


def covers_backup(effect: Effect) -> Evidence | None:
    """A backup has a host page for each page that only the request has, and no other."""
    saved = effect.change.saved
    if saved is None or saved.host_pages.size == saved.pages.size:
        return None
    why = f"{saved.host_pages.size} host pages for a backup of {saved.pages.size} pages"
    pages = naming(pages_to_keep=saved.pages)
    return host_evidence(effect.ledger, saved.host_pages, why=why, rows=few(effect.rows)) | pages


def restored_from_backup(effect: Effect) -> Evidence | None:
    """What is restored was in the backup, page by page."""
    event, restored = effect.event, effect.change.restored
    if restored is None or not isinstance(event, Resumed) or restored.host_pages.all():
        return None
    groups, lost = effect.ledger.layout.groups, restored.host_pages == 0
    return {
        "why": "the backup does not hold what is restored",
        "rid": event.rid,
        "group": groups[int(restored.groups[lost][0])].name,
        **naming(pages=restored.pages[lost], table_idx=restored.table_idx[lost]),
        **naming(host_pages=backup_of(effect.ledger, event.rid)),
    }


def reserved(effect: Effect) -> Evidence | None:
    """Page 0 of the host is never handed out."""
    pages = _saved(effect)
    if pages is None or pages.all():
        return None
    return {"why": "host page 0 is taken", "host_pages": [0]}


def lost_on_host(ledger: Ledger) -> Evidence | None:
    """The host pages in use that no waiting request's backup names."""
    host = ledger.host
    if host is None:
        return None
    used = (host.state == PageState.PRIVATE) | (host.refs > 0) | (host.pins > 0)
    lost = np.flatnonzero(used & (times_named(ledger, host) == 0))
    if not lost.size:
        return None
    return host_evidence(ledger, lost, why="host pages are held by nobody")


def times_named(ledger: Ledger, host: PageSpace) -> I64:
    """How many waiting requests name each host page."""
    counts = np.zeros(host.num_pages, np.int64)
    for waiting in ledger.waiting.values():
        if waiting.backup is not None:
            np.add.at(counts, waiting.backup, 1)
    return counts


def audit_refs(census: Census) -> Evidence | None:
    """Refs equal the waiting requests that name the page, and no pin holds a host page."""
    ledger, host = census.ledger, census.ledger.host
    if host is None:
        return None
    named = times_named(ledger, host)
    # Page 0 is nobody's: reserved-untouched says so.
    named[0] = host.refs[0]
    bad = np.flatnonzero((host.refs != named) | (host.pins != 0))
    if not bad.size:
        return None
    why = "refs of host pages do not equal the backups that name them, or pins stand on them"
    return host_evidence(ledger, bad, why=why, holders=few(named[bad]))


def audit_reserved(census: Census) -> Evidence | None:
    """Page 0 of the host is RESERVED, without refs or pins, and no backup names it."""
    ledger, host = census.ledger, census.ledger.host
    if host is None:
        return None
    touched = bool(host.refs[0] or host.pins[0] or host.key[0] or times_named(ledger, host)[0])
    if host.state[0] != PageState.RESERVED or touched:
        return host_evidence(ledger, [0])
    stray = np.flatnonzero(host.state[1:] == PageState.RESERVED) + 1
    return host_evidence(ledger, stray) if stray.size else None


def audit_aliased(census: Census) -> Evidence | None:
    """A host page is one request's."""
    ledger, host = census.ledger, census.ledger.host
    if host is None:
        return None
    bad = np.flatnonzero((host.state == PageState.PRIVATE) & (times_named(ledger, host) > 1))
    return host_evidence(ledger, bad, why="two backups share it") if bad.size else None


def audit_use_after_free(census: Census) -> Evidence | None:
    """No backup names a host page that is FREE."""
    ledger, host = census.ledger, census.ledger.host
    if host is None:
        return None
    bad = np.flatnonzero((host.state == PageState.FREE) & (times_named(ledger, host) > 0))
    return host_evidence(ledger, bad, why="a backup names a FREE host page") if bad.size else None


def audit_conservation(census: Census) -> Evidence | None:
    """Each host page is FREE or PRIVATE, and the free list is the FREE ones, each once."""
    ledger, host = census.ledger, census.ledger.host
    if host is None:
        return None
    unknown = np.flatnonzero(host.state[1:] > PageState.PRIVATE) + 1
    if unknown.size:
        return host_evidence(ledger, unknown, why="no such state of a host page")
    listed = np.bincount(host.free.pages(), minlength=host.num_pages)
    bad = np.flatnonzero(listed != (host.state == PageState.FREE))
    if not bad.size:
        return None
    why = "the host's free list is not its FREE pages, each once"
    return host_evidence(ledger, bad, why=why, times_listed=few(listed[bad]))
