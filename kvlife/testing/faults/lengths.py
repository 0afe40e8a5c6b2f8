"""Faults in lengths: off by one, by a page, or taken from the wrong length."""

from __future__ import annotations

import attrs
import numpy as np

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Event,
    Protected,
    Released,
    Resumed,
    RolledBack,
    SessionRestored,
    SessionSaved,
)
from kvlife.events.arrays import ints
from kvlife.ledger import Ledger
from kvlife.testing.faults.fault import Faults, Injection, Kind, When
from kvlife.testing.faults.publishing import new_keys
from kvlife.testing.faults.spot import Spot, changed

FAULTS = Faults()
_STREAM, _DECISION = Kind.STREAM, Kind.DECISION


@FAULTS.at("allocated-beyond-the-row", _DECISION, "ladder-order", Allocated)
def _allocated_beyond_the_row(spot: Spot) -> Injection | None:
    """A reserve for drafts ends behind the end of the row."""
    at = spot.rng.randrange(spot.event.rows.size)
    lens = changed(spot.event.allocated_len, at, spot.layout.capacity + 1)
    return Injection(
        events=(attrs.evolve(spot.event, allocated_len=lens),), invariant="ladder-order"
    )


@FAULTS.at("allocated-len-one-up", _STREAM, "allocated-covers-pages", Allocated)
def _allocated_len_one_up(spot: Spot) -> Injection | None:
    """An allocated length is one token more than its pages hold."""
    return _off_by_one(spot, 0, 1)


@FAULTS.at("allocated-len-one-down", _STREAM, "allocated-covers-pages", Allocated)
def _allocated_len_one_down(spot: Spot) -> Injection | None:
    """An allocated length is one token less than asks for its last page."""
    return _off_by_one(spot, 1, -1)


def _off_by_one(spot: Spot, over: int, shift: int) -> Injection | None:
    """A length that lies so far over a page border is moved across it."""
    event, rows = spot.event, spot.ledger.rows
    size = min(group.page_size for group in spot.layout.groups)
    lens = event.allocated_len.astype(np.int64) + shift
    crossing = event.allocated_len % size == over % size
    crossing &= (lens <= spot.layout.capacity) & (lens >= rows.committed[event.rows])
    if shift < 0:
        # Below its old length it would shrink, which is another fault.
        crossing &= lens >= rows.allocated[event.rows]
    at = spot.where(crossing)
    if at is None:
        return None
    wrong = attrs.evolve(event, allocated_len=changed(event.allocated_len, at, int(lens[at])))
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("allocation-shrinks", _STREAM, "allocated-covers-pages", Allocated)
def _allocation_shrinks(spot: Spot) -> Injection | None:
    """An allocation sets a row back, and lets nothing go."""
    rows = spot.ledger.rows
    row = spot.one(
        row for row in spot.ledger.requests.values() if rows.allocated[row] > rows.committed[row]
    )
    if row is None:
        return None
    lens = ints([int(rows.allocated[row]) - 1])
    wrong = Allocated(ints([row]), lens, spot.ledger.no_pages)
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("committed-beyond-allocated", _STREAM, "ladder-order", Committed)
def _committed_beyond_allocated(spot: Spot) -> Injection:
    """A bonus token is committed that was never allocated."""
    at = spot.rng.randrange(spot.event.rows.size)
    length = int(spot.ledger.rows.allocated[spot.event.rows[at]]) + 1
    lens = changed(spot.event.committed_len, at, length)
    return Injection(
        events=(attrs.evolve(spot.event, committed_len=lens),), invariant="ladder-order"
    )


@FAULTS.at("committed-before-its-result", _DECISION, "settled-bound", Committed)
def _committed_before_its_result(spot: Spot) -> Injection | None:
    """A length that is only scheduled is committed, before its step has settled."""
    event, rows = spot.event, spot.ledger.rows
    ahead = rows.allocated[event.rows] > rows.settled[event.rows]
    at = spot.where(ahead)
    if at is None:
        return None
    length = int(rows.allocated[event.rows[at]])
    wrong = attrs.evolve(event, committed_len=changed(event.committed_len, at, length))
    return Injection(events=(wrong,), invariant="settled-bound")


@FAULTS.at("committed-len-one-up", _STREAM, "settled-bound", Committed)
def _committed_len_one_up(spot: Spot) -> Injection | None:
    """A committed length is one token more than a result has confirmed."""
    event, rows = spot.event, spot.ledger.rows
    lens = event.committed_len.astype(np.int64) + 1
    one_more = (lens > rows.settled[event.rows]) & (lens <= rows.allocated[event.rows])
    at = spot.where(one_more)
    if at is None:
        return None
    wrong = attrs.evolve(event, committed_len=changed(event.committed_len, at, int(lens[at])))
    return Injection(events=(wrong,), invariant="settled-bound")


@FAULTS.at("committed-goes-back", _STREAM, "settled-bound", Committed)
def _committed_goes_back(spot: Spot) -> Injection | None:
    """A commit sets a row back by a token, as only a roll-back may."""
    event, rows = spot.event, spot.ledger.rows
    old = rows.committed[event.rows]
    at = spot.where(old > rows.protected[event.rows])
    if at is None:
        return None
    wrong = attrs.evolve(event, committed_len=changed(event.committed_len, at, int(old[at]) - 1))
    return Injection(events=(wrong,), invariant="settled-bound")


@FAULTS.at("protected-len-one-up", _STREAM, "protected-aligned", Protected)
def _protected_len_one_up(spot: Spot) -> Injection | None:
    """A published length is one token more than whole pages."""
    length = spot.event.protected_len + 1
    if spot.layout.align == 1 or length > spot.ledger.rows.committed[spot.event.row]:
        return None
    wrong = attrs.evolve(spot.event, protected_len=length)
    return Injection(events=(wrong,), invariant="protected-aligned")


@FAULTS.at("protected-len-one-down", _STREAM, "protected-aligned", Protected)
def _protected_len_one_down(spot: Spot) -> Injection | None:
    """A published length is one token less than whole pages."""
    if spot.layout.align == 1:
        return None
    wrong = attrs.evolve(spot.event, protected_len=spot.event.protected_len - 1)
    return Injection(events=(wrong,), invariant="protected-aligned")


@FAULTS.at("published-beyond-committed", _DECISION, "ladder-order", Protected)
def _published_beyond_committed(spot: Spot) -> Injection | None:
    """Whole pages are published up to the scheduled length."""
    event, rows, align = spot.event, spot.ledger.rows, spot.layout.align
    if spot.layout.scheduled:
        return None
    length = int(rows.committed[event.row]) // align * align + align
    keys = []
    for group, given in zip(spot.layout.groups, event.keys, strict=True):
        more = length // group.page_size - event.protected_len // group.page_size
        keys.append(np.concatenate((given, new_keys(spot, more))))
    wrong = attrs.evolve(event, protected_len=length, keys=tuple(keys))
    return Injection(events=(wrong,), invariant="ladder-order")


@FAULTS.at("publish-forgets-the-prefix", _DECISION, "protected-monotone", Protected)
def _publish_forgets_the_prefix(spot: Spot) -> Injection | None:
    """A row that began with a hit publishes only as much as it has added itself."""
    event, old = spot.event, int(spot.ledger.rows.protected[spot.event.row])
    length = event.protected_len - old
    if not 0 < length < old:
        return None
    wrong = attrs.evolve(event, protected_len=length)
    return Injection(events=(wrong,), invariant="protected-monotone")


@FAULTS.at("published-len-goes-back", _STREAM, "protected-monotone", Protected)
def _published_len_goes_back(spot: Spot) -> Injection | None:
    """A published length is a page less than what the row has published before."""
    length = int(spot.ledger.rows.protected[spot.event.row]) - spot.layout.align
    if length < 0:
        return None
    none = tuple(keys[:0] for keys in spot.event.keys)
    wrong = attrs.evolve(
        spot.event, protected_len=length, keys=none, rebinds=spot.event.rebinds[:0]
    )
    return Injection(events=(wrong,), invariant="protected-monotone")


@FAULTS.at("prefix-len-one-up", _STREAM, "protected-aligned", Admitted, Resumed)
def _prefix_len_one_up(spot: Spot) -> Injection | None:
    """A hit is one token longer than its pages."""
    length = spot.event.prefix_len + 1
    if spot.layout.align == 1 or length > spot.layout.capacity:
        return None
    return _other_prefix(spot, length)


@FAULTS.at("prefix-len-one-down", _STREAM, "protected-aligned", Admitted, Resumed)
def _prefix_len_one_down(spot: Spot) -> Injection | None:
    """A hit is one token shorter than its pages."""
    if spot.layout.align == 1 or spot.event.prefix_len < 1:
        return None
    return _other_prefix(spot, spot.event.prefix_len - 1)


def _other_prefix(spot: Spot, length: int) -> Injection:
    wrong = attrs.evolve(spot.event, prefix_len=length)
    if isinstance(wrong, Resumed):
        wrong = attrs.evolve(wrong, restored_len=max(wrong.restored_len, length))
    return Injection(events=(wrong,), invariant="protected-aligned")


@FAULTS.at("prefix-len-one-page-up", _DECISION, "allocated-covers-pages", Admitted, Resumed)
def _prefix_len_one_page_up(spot: Spot) -> Injection | None:
    """A hit is counted a page longer than the pages that were locked."""
    length = spot.event.prefix_len + spot.layout.align
    if length > spot.layout.capacity:
        return None
    wrong = attrs.evolve(spot.event, prefix_len=length)
    if isinstance(wrong, Resumed):
        wrong = attrs.evolve(wrong, restored_len=max(wrong.restored_len, length))
    return Injection(events=(wrong,), invariant="allocated-covers-pages")


@FAULTS.at("prompt-len-negative", _STREAM, "ladder-order", Admitted)
def _prompt_len_negative(spot: Spot) -> Injection:
    """A prompt is one token shorter than nothing."""
    return Injection(events=(attrs.evolve(spot.event, prompt_len=-1),), invariant="ladder-order")


@FAULTS.at("prompt-len-too-long", _STREAM, "settled-bound", Admitted, when=When.LATER)
def _prompt_len_too_long(spot: Spot) -> Injection:
    """A prompt is counted as long as the whole row; its request finishes with less."""
    rid, row = spot.event.rid, spot.event.row

    def later(ledger: Ledger, event: Event) -> str | None:
        if not isinstance(event, Released) or (event.rid, event.row) != (rid, row):
            return None
        short = ledger.rows.committed[row] < ledger.rows.prompt_len[row]
        return "settled-bound" if short and event.reason == "finished" else None

    return Injection(
        events=(attrs.evolve(spot.event, prompt_len=spot.layout.capacity),), later=later
    )


@FAULTS.at("restored-without-a-backup", _DECISION, "settled-bound", Resumed)
def _restored_without_a_backup(spot: Spot) -> Injection | None:
    """A request resumes with tokens that no backup holds."""
    event = spot.event
    length = event.prefix_len + 1
    if event.restored_len != event.prefix_len or length > spot.layout.capacity:
        return None
    waiting = spot.ledger.waiting[event.rid]
    if waiting.backup is not None and waiting.committed_len >= length:
        return None
    taken = [spot.free(group, 1) for group in spot.layout.groups]
    if None in taken or spot.shares_spaces:
        return None
    restored = tuple(ints(pages or ()) for pages in taken)
    wrong = attrs.evolve(event, restored_len=length, restored=restored)
    return Injection(events=(wrong,), invariant="settled-bound")


@FAULTS.at("rolled-back-below-published", _DECISION, "ladder-order", RolledBack)
def _rolled_back_below_published(spot: Spot) -> Injection | None:
    """Drafts are taken back further than the row has published."""
    event, protected = spot.event, spot.ledger.rows.protected
    at = spot.where(protected[event.rows] > 0)
    if at is None:
        return None
    length = int(protected[event.rows[at]]) - 1
    wrong = attrs.evolve(
        event,
        allocated_len=changed(event.allocated_len, at, length),
        committed_len=changed(event.committed_len, at, length),
    )
    return Injection(events=(spot.naming_gone(wrong),), invariant="ladder-order")


@FAULTS.at("rolled-back-forward", _STREAM, "settled-bound", RolledBack)
def _rolled_back_forward(spot: Spot) -> Injection | None:
    """A roll-back commits a draft that no result has confirmed."""
    event, rows = spot.event, spot.ledger.rows
    old = rows.committed[event.rows]
    at = spot.where(rows.allocated[event.rows] > old)
    if at is None:
        return None
    length = int(old[at]) + 1
    wrong = attrs.evolve(
        event,
        allocated_len=changed(event.allocated_len, at, max(length, int(event.allocated_len[at]))),
        committed_len=changed(event.committed_len, at, length),
    )
    return Injection(events=(spot.naming_gone(wrong),), invariant="settled-bound")


@FAULTS.at("roll-back-grows", _STREAM, "allocated-covers-pages", RolledBack)
def _roll_back_grows(spot: Spot) -> Injection | None:
    """A roll-back ends above where the row ended before, and takes no page."""
    event, old = spot.event, spot.ledger.rows.allocated[spot.event.rows]
    at = spot.where(old < spot.layout.capacity)
    if at is None:
        return None
    wrong = attrs.evolve(event, allocated_len=changed(event.allocated_len, at, int(old[at]) + 1))
    return Injection(events=(spot.naming_gone(wrong),), invariant="allocated-covers-pages")


@FAULTS.at("session-kept-beyond-allocated", _STREAM, "ladder-order", SessionSaved, SessionRestored)
def _session_kept_beyond_allocated(spot: Spot) -> Injection | None:
    """A session keeps a token more than its row ever had."""
    length = int(spot.ledger.rows.allocated[spot.event.row]) + 1
    wrong = spot.naming_gone(attrs.evolve(spot.event, kept_len=length))
    return Injection(events=(wrong,), invariant="ladder-order")


@FAULTS.at("session-saved-untrimmed", _DECISION, "settled-bound", SessionSaved)
def _session_saved_untrimmed(spot: Spot) -> Injection | None:
    """A session keeps all that was scheduled, not what was confirmed."""
    rows, row = spot.ledger.rows, spot.event.row
    if rows.allocated[row] <= rows.committed[row]:
        return None
    wrong = spot.naming_gone(attrs.evolve(spot.event, kept_len=int(rows.allocated[row])))
    return Injection(events=(wrong,), invariant="settled-bound")


@FAULTS.at("session-saved-a-token-short", _STREAM, "settled-bound", SessionSaved)
def _session_saved_a_token_short(spot: Spot) -> Injection | None:
    """A session keeps one token less than was confirmed."""
    length = spot.event.kept_len - 1
    if length < spot.ledger.rows.protected[spot.event.row]:
        return None
    wrong = spot.naming_gone(attrs.evolve(spot.event, kept_len=length))
    return Injection(events=(wrong,), invariant="settled-bound")


@FAULTS.at("session-rewound-into-a-page", _DECISION, "protected-aligned", SessionRestored)
def _session_rewound_into_a_page(spot: Spot) -> Injection | None:
    """A session goes back into the middle of a page that it has published."""
    length = int(spot.ledger.rows.protected[spot.event.row]) - 1
    if length < 1 or spot.layout.align == 1:
        return None
    wrong = spot.naming_gone(attrs.evolve(spot.event, kept_len=length))
    return Injection(events=(wrong,), invariant="protected-aligned")
