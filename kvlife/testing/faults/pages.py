"""Faults in which pages are taken, shared, rolled back and evicted."""

from __future__ import annotations

import attrs
import numpy as np

from kvlife.events import (
    Admitted,
    Allocated,
    Event,
    Evicted,
    Released,
    Resized,
    Resumed,
    RolledBack,
    SessionSaved,
)
from kvlife.events.arrays import ints
from kvlife.ledger import PageState
from kvlife.testing.faults.fault import Faults, Injection, Kind
from kvlife.testing.faults.spot import Spot, links

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION


def _taking(spot: Spot, page: int | None, invariant: str) -> Injection | None:
    """One of the pages that the event takes or shares in the base group is this one instead."""
    pages = spot.event.pages[spot.layout.base].tolist()
    if page is None or not pages:
        return None
    pages[spot.rng.randrange(len(pages))] = page
    wrong = spot.with_list(spot.event, spot.base, pages)
    return Injection(events=(wrong,), invariant=invariant)


@FAULTS.at("allocated-a-page-in-use", _DECISION, "page-double-alloc", Allocated)
def _allocated_a_page_in_use(spot: Spot) -> Injection | None:
    """A page that a row writes on is handed out again."""
    return _taking(spot, spot.one(spot.pages_in(spot.base, PageState.PRIVATE)), "page-double-alloc")


@FAULTS.at("allocated-a-page-not-evicted", _DECISION, "page-double-alloc", Allocated)
def _allocated_a_page_not_evicted(spot: Spot) -> Injection | None:
    """A cached page is handed out, and was not evicted before."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED, locked=False))
    return _taking(spot, page, "page-double-alloc")


@FAULTS.at("allocated-a-page-twice", _STREAM, "page-double-alloc", Allocated)
def _allocated_a_page_twice(spot: Spot) -> Injection | None:
    """Two table entries get one page, in one event."""
    pages = spot.event.pages[spot.layout.base].tolist()
    if len(pages) < 2:
        return None
    first, second = spot.rng.sample(range(len(pages)), 2)
    pages[first] = pages[second]
    return Injection(
        events=(spot.with_list(spot.event, spot.base, pages),), invariant="page-double-alloc"
    )


@FAULTS.at("allocated-the-rows-own-page", _DECISION, "page-double-alloc", Allocated)
def _allocated_the_rows_own_page(spot: Spot) -> Injection | None:
    """A row gets a page of its own once more, for other positions."""
    own = [page for row in spot.event.rows.tolist() for page in spot.own(row, spot.base).tolist()]
    return _taking(spot, spot.one(own), "page-double-alloc")


@FAULTS.at("allocated-without-a-page", _STREAM, "allocated-covers-pages", Allocated)
def _allocated_without_a_page(spot: Spot) -> Injection | None:
    """A row grows, and one of the pages for it is missing."""
    wrong = spot.leaving_one_out()
    return None if wrong is None else Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("allocated-a-page-too-many", _DECISION, "allocated-covers-pages", Allocated)
def _allocated_a_page_too_many(spot: Spot) -> Injection | None:
    """A page is taken that no length covers, as a reserve that is not written down."""
    free = spot.free(spot.base, 1)
    if free is None:
        return None
    pages = spot.event.pages[spot.layout.base].tolist()
    wrong = spot.with_list(spot.event, spot.base, [*pages, *free])
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("allocated-page-0", _DECISION, "reserved-untouched", Allocated)
def _allocated_page_0(spot: Spot) -> Injection | None:
    """The page of padded writes is handed out."""
    return _taking(spot, 0, "reserved-untouched")


@FAULTS.at("hit-on-a-private-page", _DECISION, "allocated-covers-pages", Admitted, Resumed)
def _hit_on_a_private_page(spot: Spot) -> Injection | None:
    """A hit shares a page that another row still writes on."""
    page = spot.one(spot.pages_in(spot.base, PageState.PRIVATE))
    return _taking(spot, page, "allocated-covers-pages")


@FAULTS.at("hit-on-an-evicted-page", _DECISION, "allocated-covers-pages", Admitted, Resumed)
def _hit_on_an_evicted_page(spot: Spot) -> Injection | None:
    """A hit shares a page that was evicted and is FREE."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _taking(spot, page, "allocated-covers-pages")


@FAULTS.at("hit-one-page-too-few", _STREAM, "allocated-covers-pages", Admitted, Resumed)
def _hit_one_page_too_few(spot: Spot) -> Injection | None:
    """A hit locks one page less than its length says."""
    group = spot.group(spot.event.pages)
    if group is None:
        return None
    wrong = spot.with_list(spot.event, group, spot.event.pages[group.idx][:-1].tolist())
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("hit-on-page-0", _DECISION, "reserved-untouched", Admitted, Resumed)
def _hit_on_page_0(spot: Spot) -> Injection | None:
    """A hit shares the page of padded writes."""
    return _taking(spot, 0, "reserved-untouched")


def _tail_lists(spot: Spot) -> bool:
    """Whether the event cuts a tail with pages; one in flight pins what it lets go."""
    return any(map(len, spot.event.pages))


@FAULTS.at("roll-back-one-page-too-few", _STREAM, "refs-balance", RolledBack, SessionSaved)
def _roll_back_one_page_too_few(spot: Spot) -> Injection | None:
    """A tail is cut, and one of its pages is not let go."""
    wrong = spot.leaving_one_out() if _tail_lists(spot) else None
    return None if wrong is None else Injection(events=(wrong,), invariant="refs-balance")


@FAULTS.at("roll-back-one-page-too-many", _DECISION, "allocated-covers-pages", RolledBack)
def _roll_back_one_page_too_many(spot: Spot) -> Injection | None:
    """A roll-back lets the page go that its new end still lies on."""
    event, group = spot.event, spot.base
    gone = event.pages[group.idx].tolist()
    kept = [
        int(page)
        for row in event.rows.tolist()
        for page in spot.own(row, group).tolist()
        if page not in gone and spot.space(group).refs[page] == 1
    ]
    page = spot.one(kept)
    if page is None:
        return None
    wrong = spot.with_list(event, group, [*gone, page])
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("roll-back-of-a-free-page", _STREAM, "page-double-free", RolledBack)
def _roll_back_of_a_free_page(spot: Spot) -> Injection | None:
    """A roll-back lets a page go that is FREE already."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    if page is None:
        return None
    pages = spot.event.pages[spot.layout.base].tolist()
    wrong = spot.with_list(spot.event, spot.base, [*pages, page])
    return Injection(events=(wrong,), invariant="page-double-free")


@FAULTS.at("roll-back-copies-onto-a-page-in-use", _DECISION, "page-double-alloc", RolledBack)
def _roll_back_copies_onto_a_page_in_use(spot: Spot) -> Injection | None:
    """A copy that a roll-back makes is written to a page that another row has."""
    event, group = spot.event, spot.base
    at = spot.rng.randrange(event.rows.size)
    row, length = int(event.rows[at]), int(event.committed_len[at])
    other = spot.other_row(*event.rows.tolist())
    if other is None or length % group.page_size == 0:
        return None
    shared = int(spot.ledger.pages_of(row, group.idx)[length // group.page_size])
    page = spot.one(spot.own(other, group))
    if page is None or page == shared or event.copies.size:
        return None
    wrong = attrs.evolve(event, copies=links([(group.idx, row, shared, page)]))
    return Injection(events=(wrong,), invariant="page-double-alloc")


def _evicting(spot: Spot, page: int | None, invariant: str, *before: Event) -> Injection | None:
    """An eviction takes this page as well."""
    if page is None:
        return None
    pages = spot.event.pages[spot.layout.base].tolist()
    if page in pages:
        return None
    wrong = spot.with_list(spot.event, spot.base, [*pages, page])
    return Injection(events=(*before, wrong), invariant=invariant)


@FAULTS.at("evicted-while-referenced", _DECISION, "evicted-while-locked", Evicted)
def _evicted_while_referenced(spot: Spot) -> Injection | None:
    """A cached page is evicted that a row references."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED, locked=True))
    return _evicting(spot, page, "evicted-while-locked")


@FAULTS.at("evicted-a-private-page", _DECISION, "evicted-while-locked", Evicted)
def _evicted_a_private_page(spot: Spot) -> Injection | None:
    """A page is evicted that a row writes on and nobody has published."""
    page = spot.one(spot.pages_in(spot.base, PageState.PRIVATE))
    return _evicting(spot, page, "evicted-while-locked")


@FAULTS.at("flushed-while-in-use", _DECISION, "evicted-while-locked", Evicted, Released)
def _flushed_while_in_use(spot: Spot) -> Injection | None:
    """The whole cache is flushed while rows read some of it."""
    lists = tuple(ints(spot.pages_in(group, PageState.CACHED)) for group in spot.layout.groups)
    refs = [spot.space(group).refs[lists[group.idx]] for group in spot.layout.groups]
    if not any(column.any() for column in refs):
        return None
    return Injection(events=(Evicted("flush", lists),), invariant="evicted-while-locked")


@FAULTS.at("evicted-a-free-page", _STREAM, "page-double-free", Evicted)
def _evicted_a_free_page(spot: Spot) -> Injection | None:
    """A page is evicted that is FREE."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    return _evicting(spot, page, "page-double-free")


@FAULTS.at("eviction-doubled", _STREAM, "page-double-free", Evicted)
def _eviction_doubled(spot: Spot) -> Injection:
    """An eviction is told twice."""
    return Injection(events=(spot.event, spot.event), invariant="page-double-free")


@FAULTS.at("evicted-a-page-twice", _STREAM, "page-double-free", Evicted)
def _evicted_a_page_twice(spot: Spot) -> Injection | None:
    """One page stands twice in an eviction."""
    group = spot.group(spot.event.pages)
    if group is None:
        return None
    pages = spot.event.pages[group.idx].tolist()
    wrong = spot.with_list(spot.event, group, [*pages, spot.one(pages) or 0])
    return Injection(events=(wrong,), invariant="page-double-free")


@FAULTS.at("resized-over-pages-in-use", _DECISION, "allocated-covers-pages", Allocated, Evicted)
def _resized_over_pages_in_use(spot: Spot) -> Injection | None:
    """A pool shrinks over a page that a row references."""
    space_idx = spot.base.space_idx
    page = spot.where(spot.ledger.spaces[space_idx].refs > 0)
    if page is None:
        return None
    wrong = Resized(space_idx, page)
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("resized-over-cached-pages", _DECISION, "index-agrees", Allocated, Evicted, Released)
def _resized_over_cached_pages(spot: Spot) -> Injection | None:
    """A pool shrinks over cached pages, and does not evict them before."""
    space_idx = spot.base.space_idx
    space = spot.ledger.spaces[space_idx]
    used = np.flatnonzero((space.refs > 0) | (space.pins > 0))
    lowest = int(used.max(initial=0)) + 1
    cached = np.flatnonzero(space.state[lowest:] == PageState.CACHED) + lowest
    if not cached.size:
        return None
    wrong = Resized(space_idx, int(cached[0]))
    return Injection(events=(wrong,), invariant="index-agrees")
