"""Faults at the end of a request or a session: releases lost, doubled, of others, too large."""

from __future__ import annotations

import attrs

from kvlife.events import Committed, Released, Retracted, SessionClosed, SessionSaved
from kvlife.events.arrays import ints
from kvlife.ledger import PageState, RowState
from kvlife.testing.faults.fault import Faults, Injection, Kind
from kvlife.testing.faults.spot import Spot

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION


def _lets_go(spot: Spot) -> bool:
    """Whether the row of the event is HELD, out of flight, and has pages to let go."""
    row, rows = spot.event.row, spot.ledger.rows
    return (
        row is not None
        and rows.state[row] == RowState.HELD
        and rows.in_flight[row] == 0
        and any(map(len, spot.event.pages))
    )


@FAULTS.at("release-doubled", _STREAM, "release-once", Released)
def _release_doubled(spot: Spot) -> Injection:
    """A release is told twice."""
    return Injection(events=(spot.event, spot.event), invariant="release-once")


@FAULTS.at("release-of-the-wrong-row", _DECISION, "release-once", Released)
def _release_of_the_wrong_row(spot: Spot) -> Injection | None:
    """A release names the row of another request, and lets all of that row's pages go."""
    row = spot.other_row(spot.event.row)
    if spot.event.row is None or row is None:
        return None
    wrong = spot.naming_gone(attrs.evolve(spot.event, row=row))
    return Injection(events=(wrong,), invariant="release-once")


@FAULTS.at("release-of-nobody", _STREAM, "release-once", Released)
def _release_of_nobody(spot: Spot) -> Injection:
    """A release names a request that never was."""
    wrong = attrs.evolve(spot.event, rid=spot.event.rid + "'")
    return Injection(events=(wrong,), invariant="release-once")


@FAULTS.at("retraction-doubled", _STREAM, "release-once", Retracted)
def _retraction_doubled(spot: Spot) -> Injection:
    """A retraction is told twice."""
    return Injection(events=(spot.event, spot.event), invariant="release-once")


@FAULTS.at("session-closed-twice", _STREAM, "release-once", SessionClosed)
def _session_closed_twice(spot: Spot) -> Injection:
    """The end of a session is told twice."""
    return Injection(events=(spot.event, spot.event), invariant="release-once")


@FAULTS.at("session-closed-in-its-turn", _DECISION, "release-once", Released, SessionSaved)
def _session_closed_in_its_turn(spot: Spot) -> Injection | None:
    """A session is closed with its row while a request runs on it."""
    row = spot.event.row
    session = None if row is None else spot.ledger.rows.session[row]
    if session is None or spot.ledger.sessions[session].rid is None:
        return None
    wrong = spot.naming_gone(SessionClosed(session, row, spot.ledger.no_pages))
    return Injection(events=(wrong,), invariant="release-once")


@FAULTS.at("release-one-page-too-few", _STREAM, "refs-balance", Released)
def _release_one_page_too_few(spot: Spot) -> Injection | None:
    """A release leaves out one of the row's pages."""
    return _one_too_few(spot)


@FAULTS.at("retraction-one-page-too-few", _STREAM, "refs-balance", Retracted)
def _retraction_one_page_too_few(spot: Spot) -> Injection | None:
    """A retraction leaves out one of the row's pages."""
    return _one_too_few(spot)


@FAULTS.at("session-closed-one-page-too-few", _STREAM, "refs-balance", SessionClosed)
def _session_closed_one_page_too_few(spot: Spot) -> Injection | None:
    """The end of a session leaves out one of the row's pages."""
    return _one_too_few(spot)


def _one_too_few(spot: Spot) -> Injection | None:
    wrong = spot.leaving_one_out() if _lets_go(spot) else None
    return None if wrong is None else Injection(events=(wrong,), invariant="refs-balance")


@FAULTS.at("session-closed-without-its-row", _STREAM, "refs-balance", SessionClosed)
def _session_closed_without_its_row(spot: Spot) -> Injection | None:
    """An idle session is forgotten, and its row with its pages stays behind."""
    if spot.event.row is None:
        return None
    wrong = SessionClosed(spot.event.session_id, None, spot.ledger.no_pages)
    return Injection(events=(wrong,), invariant="refs-balance")


@FAULTS.at("release-leaves-a-pin", _STREAM, "refs-balance", Released)
def _release_leaves_a_pin(spot: Spot) -> Injection | None:
    """A look-up pins pages for a request, and the request ends without ending the pin."""
    row = spot.event.row
    if row is None or not (pages := spot.own(row, spot.base)).size:
        return None
    pinned = spot.pinned(pages.tolist(), owner=spot.event.rid)
    return Injection(events=(pinned, spot.event), invariant="refs-balance")


@FAULTS.at("backup-not-given-back", _STREAM, "refs-balance", Retracted)
def _backup_not_given_back(spot: Spot) -> Injection | None:
    """A request that waits with a backup is aborted, and its host pages are not given back."""
    rid = spot.event.rid
    retracted, backup = spot.event, spot.event.backup
    if spot.ledger.host is None:
        # Then they are names of pages that the ledger knows nothing of.
        backup = ints(range(7, 11))
        retracted = attrs.evolve(retracted, backup=backup)
    if backup is None or not backup.size:
        return None
    left = ints(backup.tolist()[:-1])
    wrong = Released(rid, None, "aborted", spot.ledger.no_pages, left)
    return Injection(events=(retracted, wrong), invariant="refs-balance")


@FAULTS.at("release-names-a-page-twice", _STREAM, "page-double-free", Released, Retracted)
def _release_names_a_page_twice(spot: Spot) -> Injection | None:
    """Two pieces of code let go of the same page of a row in one event."""
    if not _lets_go(spot):
        return None
    group = spot.group(spot.event.pages)
    assert group is not None  # it lets pages go
    pages = spot.event.pages[group.idx]
    page = spot.one(pages[spot.space(group).refs[pages] == 1])
    if page is None:
        return None
    wrong = spot.with_list(spot.event, group, [*pages.tolist(), page])
    return Injection(events=(wrong,), invariant="page-double-free")


@FAULTS.at("release-names-a-free-page", _STREAM, "page-double-free", Released, Retracted)
def _release_names_a_free_page(spot: Spot) -> Injection | None:
    """A release works out its range again, and names a page that was let go before."""
    page = spot.one(spot.pages_in(spot.base, PageState.FREE))
    if not _lets_go(spot) or page is None:
        return None
    pages = spot.event.pages[spot.base.idx].tolist()
    wrong = spot.with_list(spot.event, spot.base, [*pages, page])
    return Injection(events=(wrong,), invariant="page-double-free")


@FAULTS.at("release-of-another-rows-page", _STREAM, "page-freed-by-stranger", Released)
def _release_of_another_rows_page(spot: Spot) -> Injection | None:
    """A release lets a page go that another row references, beside its own."""
    other = spot.other_row(spot.event.row)
    if not _lets_go(spot) or other is None:
        return None
    mine = set(spot.own(spot.event.row, spot.base).tolist())
    page = spot.one(page for page in spot.own(other, spot.base).tolist() if page not in mine)
    if page is None:
        return None
    pages = spot.event.pages[spot.base.idx].tolist()
    wrong = spot.with_list(spot.event, spot.base, [*pages, page])
    return Injection(events=(wrong,), invariant="page-freed-by-stranger")


@FAULTS.at("release-of-an-unlocked-page", _STREAM, "page-freed-by-stranger", Released, Retracted)
def _release_of_an_unlocked_page(spot: Spot) -> Injection | None:
    """A release unlocks a cached page that nobody has locked."""
    page = spot.one(spot.pages_in(spot.base, PageState.CACHED, locked=False))
    if not _lets_go(spot) or page is None:
        return None
    pages = spot.event.pages[spot.base.idx].tolist()
    wrong = spot.with_list(spot.event, spot.base, [*pages, page])
    return Injection(events=(wrong,), invariant="page-freed-by-stranger")


@FAULTS.at("release-of-a-row-in-flight", _DECISION, "in-flight-fence", Released, Retracted)
def _release_of_a_row_in_flight(spot: Spot) -> Injection | None:
    """A row goes while a step reads it, and lets its pages go at once."""
    row, rows = spot.event.row, spot.ledger.rows
    if row is None or rows.state[row] != RowState.HELD or rows.in_flight[row] == 0:
        return None
    lists = tuple(spot.own(row, group) for group in spot.layout.groups)
    if not any(map(len, lists)):
        return None
    return Injection(events=(attrs.evolve(spot.event, pages=lists),), invariant="in-flight-fence")


@FAULTS.at("finished-before-its-prompt", _DECISION, "settled-bound", Committed)
def _finished_before_its_prompt(spot: Spot) -> Injection | None:
    """A request is finished, as if its prompt had been computed, while chunks are missing."""
    rows = spot.ledger.rows
    rid = spot.one(
        rid
        for rid, row in spot.ledger.requests.items()
        if rows.committed[row] < rows.prompt_len[row]
    )
    if rid is None:
        return None
    row = spot.ledger.requests[rid]
    wrong = spot.naming_gone(Released(rid, row, "finished", spot.ledger.no_pages, ints([])))
    return Injection(events=(wrong,), invariant="settled-bound")
