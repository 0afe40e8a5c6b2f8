"""Faults of the host's pages: backups on pages of others, given back in part, twice, or never."""

from __future__ import annotations

from typing import TypeVar

import attrs
import numpy as np

from kvlife.events import Released, Resumed, Retracted
from kvlife.events.arrays import I32, ints
from kvlife.ledger import Ledger, PageState, derive
from kvlife.ledger.spans import num_at
from kvlife.testing.faults.columns import ANYWHERE, Edit, found_by_audit
from kvlife.testing.faults.fault import Faults, Injection, Kind, When
from kvlife.testing.faults.spot import Spot, changed

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION
_COLUMNS, _AUDIT = Kind.COLUMNS, When.AUDIT
HostEvent = TypeVar("HostEvent", Released, Retracted)


def _host_pages(spot: Spot, state: PageState) -> I32:
    """The host pages in a state; none without a host space."""
    host = spot.ledger.host
    found = np.empty(0, np.intp) if host is None else np.flatnonzero(host.state == state)
    return found.astype(np.int32)


def _backup(spot: Spot) -> I32 | None:
    """The backup of the retraction at hand, where it takes host pages."""
    backup: I32 | None = spot.event.backup
    known = spot.ledger.host is not None and backup is not None and backup.size > 0
    return backup if known else None


def _waiting(spot: Spot) -> I32 | None:
    """The backup of the waiting request that the release at hand names."""
    waiting = spot.ledger.waiting.get(spot.event.rid)
    known = spot.ledger.host is not None and waiting is not None and spot.event.row is None
    return waiting.backup if known and waiting is not None else None


def _on_page(spot: Spot, page: int | None) -> Retracted | None:
    """The retraction, with this host page in place of one of its backup's."""
    backup = _backup(spot)
    if backup is None or page is None:
        return None
    at = spot.rng.randrange(backup.size)
    wrong: Retracted = attrs.evolve(spot.event, backup=changed(backup, at, page))
    return wrong


def _as_fault(event: HostEvent | None, invariant: str) -> Injection | None:
    return None if event is None else Injection(events=(event,), invariant=invariant)


@FAULTS.at("backup-on-a-host-page-in-use", _DECISION, "page-double-alloc", Retracted)
def _backup_on_a_host_page_in_use(spot: Spot) -> Injection | None:
    """A backup takes a host page that another request waits on."""
    page = spot.one(_host_pages(spot, PageState.PRIVATE))
    return _as_fault(_on_page(spot, page), "page-double-alloc")


@FAULTS.at("backup-names-a-host-page-twice", _DECISION, "page-double-alloc", Retracted)
def _backup_names_a_host_page_twice(spot: Spot) -> Injection | None:
    """Two pages of a request are to be kept on the same host page."""
    backup = _backup(spot)
    if backup is None or backup.size < 2:
        return None
    first, second = spot.rng.sample(range(backup.size), 2)
    wrong = attrs.evolve(spot.event, backup=changed(backup, first, int(backup[second])))
    return Injection(events=(wrong,), invariant="page-double-alloc")


@FAULTS.at("backup-on-host-page-0", _DECISION, "reserved-untouched", Retracted)
def _backup_on_host_page_0(spot: Spot) -> Injection | None:
    """A backup takes the reserved page of the host."""
    return _as_fault(_on_page(spot, 0), "reserved-untouched")


@FAULTS.at("backup-one-page-too-few", _STREAM, "allocated-covers-pages", Retracted)
def _backup_one_page_too_few(spot: Spot) -> Injection | None:
    """The last page of a backup is not named: its tokens would never come back."""
    backup = _backup(spot)
    if backup is None:
        return None
    wrong = attrs.evolve(spot.event, backup=ints(backup.tolist()[:-1]))
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("backup-one-page-too-many", _STREAM, "allocated-covers-pages", Retracted)
def _backup_one_page_too_many(spot: Spot) -> Injection | None:
    """A backup takes a host page for which there is nothing to keep."""
    backup, free = _backup(spot), _host_pages(spot, PageState.FREE)
    page = spot.one(free if backup is None else np.setdiff1d(free, backup))
    if backup is None or page is None:
        return None
    wrong = attrs.evolve(spot.event, backup=ints([*backup.tolist(), page]))
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("restored-below-the-backup", _DECISION, "settled-bound", Retracted)
def _restored_below_the_backup(spot: Spot) -> Injection | None:
    """A request resumes without its published prefix, as if the backup had that as well."""
    event, rows = spot.event, spot.ledger.rows
    backup, row, group = _backup(spot), spot.event.row, spot.base
    committed = int(rows.committed[row])
    if backup is None or rows.in_flight[row] or not rows.protected[row]:
        return None
    if len(spot.layout.groups) > 1:
        return None
    none = spot.ledger.no_pages
    wrong = Resumed(event.rid, row, 0, committed, 0, 0, (), none, committed, none)
    at = derive(spot.ledger, wrong).taken_at
    pages = None if at is None else spot.free(group, num_at(at[group.idx]))
    if pages is None:
        return None
    restored = attrs.evolve(wrong, restored=(ints(pages),))
    return Injection(events=(event, restored), invariant="settled-bound")


@FAULTS.at("host-page-given-back-twice", _STREAM, "page-double-free", Released)
def _host_page_given_back_twice(spot: Spot) -> Injection | None:
    """An abort names one host page of its backup twice."""
    backup = _waiting(spot)
    page = None if backup is None else spot.one(backup)
    return _giving(spot, page, "page-double-free")


@FAULTS.at("free-host-page-given-back", _STREAM, "page-double-free", Released)
def _free_host_page_given_back(spot: Spot) -> Injection | None:
    """An abort gives back a host page that is FREE, as if its backup had been longer."""
    return _giving(spot, spot.one(_host_pages(spot, PageState.FREE)), "page-double-free")


@FAULTS.at("host-page-of-another-given-back", _STREAM, "page-freed-by-stranger", Released)
def _host_page_of_another_given_back(spot: Spot) -> Injection | None:
    """A release gives back a host page that another request waits on."""
    used, backup = _host_pages(spot, PageState.PRIVATE), _waiting(spot)
    page = spot.one(used if backup is None else np.setdiff1d(used, backup))
    return _giving(spot, page, "page-freed-by-stranger")


def _giving(spot: Spot, page: int | None, invariant: str) -> Injection | None:
    """The release with one more host page."""
    if page is None:
        return None
    pages = ints([*spot.event.host_pages.tolist(), page])
    return Injection(events=(attrs.evolve(spot.event, host_pages=pages),), invariant=invariant)


@FAULTS.at("host-pages-left-by-an-abort", _STREAM, "refs-balance", Retracted)
def _host_pages_left_by_an_abort(spot: Spot) -> Injection | None:
    """A request that waits is aborted, and none of its host pages is given back."""
    if _backup(spot) is None:
        return None
    wrong = Released(spot.event.rid, None, "aborted", spot.ledger.no_pages, ints(()))
    return Injection(events=(spot.event, wrong), invariant="refs-balance")


def _audited(spot: Spot, page: int | None, invariant: str, edit: Edit) -> Injection | None:
    """An edit of the host's columns that an audit must find, where there is such a page."""
    if spot.ledger.host is None or page is None:
        return None
    return found_by_audit(invariant, edit)


def _column(
    spot: Spot, name: str, page: int | None, value: int, invariant: str
) -> Injection | None:
    def edit(ledger: Ledger) -> None:
        getattr(ledger.host, name)[page] = value

    return _audited(spot, page, invariant, edit)


@FAULTS.at("host-refs-one-up", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
def _host_refs_one_up(spot: Spot) -> Injection | None:
    """A host page counts a request that does not wait on it."""
    page = spot.one(_host_pages(spot, PageState.PRIVATE))
    return _column(spot, "refs", page, 2, "refs-balance")


@FAULTS.at("host-pages-leaked", _COLUMNS, "refs-balance", *ANYWHERE, when=_AUDIT)
def _host_pages_leaked(spot: Spot) -> Injection | None:
    """A request that waits is in no book any more, and its host pages are still in use."""
    kept = [rid for rid, w in spot.ledger.waiting.items() if w.backup is not None and w.backup.size]
    rid = spot.one(kept)
    if spot.ledger.host is None or rid is None:
        return None

    def edit(ledger: Ledger) -> None:
        del ledger.waiting[rid]

    return found_by_audit("refs-balance", edit)


@FAULTS.at("host-page-free-and-kept", _COLUMNS, "page-use-after-free", *ANYWHERE, when=_AUDIT)
def _host_page_free_and_kept(spot: Spot) -> Injection | None:
    """A host page is FREE that a request waits on."""
    page = spot.one(_host_pages(spot, PageState.PRIVATE))
    return _column(spot, "state", page, PageState.FREE, "page-use-after-free")


@FAULTS.at("host-page-cached", _COLUMNS, "page-conservation", *ANYWHERE, when=_AUDIT)
def _host_page_cached(spot: Spot) -> Injection | None:
    """A host page is in the cache, which there is none of on the host."""
    page = spot.one(_host_pages(spot, PageState.PRIVATE))
    return _column(spot, "state", page, PageState.CACHED, "page-conservation")


@FAULTS.at("host-page-0-not-reserved", _COLUMNS, "reserved-untouched", *ANYWHERE, when=_AUDIT)
def _host_page_0_not_reserved(spot: Spot) -> Injection | None:
    """Page 0 of the host is a page like all others."""
    return _column(spot, "state", 0, PageState.PRIVATE, "reserved-untouched")


@FAULTS.at("host-free-list-loses-a-page", _COLUMNS, "page-conservation", *ANYWHERE, when=_AUDIT)
def _host_free_list_loses_a_page(spot: Spot) -> Injection | None:
    """A FREE host page is in no free list, so that no backup is ever put there again."""
    page = spot.one(_host_pages(spot, PageState.FREE))

    def edit(ledger: Ledger) -> None:
        assert ledger.host is not None  # _audited looked
        ledger.host.free.remove(np.array([page], np.int32))

    return _audited(spot, page, "page-conservation", edit)


@FAULTS.at("host-page-of-two-backups", _COLUMNS, "page-aliased", *ANYWHERE, when=_AUDIT)
def _host_page_of_two_backups(spot: Spot) -> Injection | None:
    """Two requests wait on one host page, and it counts both."""
    kept = [rid for rid, w in spot.ledger.waiting.items() if w.backup is not None and w.backup.size]
    if spot.ledger.host is None or len(kept) < 2:
        return None
    rid, other = spot.rng.sample(kept, 2)

    def edit(ledger: Ledger) -> None:
        host, mine, theirs = ledger.host, ledger.waiting[rid].backup, ledger.waiting[other].backup
        assert host is not None  # both have a backup there
        assert mine is not None
        assert theirs is not None
        old, page = mine[:1], int(theirs[0])
        ledger.waiting[rid] = attrs.evolve(ledger.waiting[rid], backup=changed(mine, 0, page))
        host.refs[page] = 2
        host.set_free(old.copy())

    return found_by_audit("page-aliased", edit)
