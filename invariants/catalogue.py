"""The catalogue: every invariant of kvlife, in the order in which one event is blamed for them.

The ids never change. Where an event breaks several, the one that stands higher is the first.
"""

from __future__ import annotations

from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Marked,
    Pinned,
    Protected,
    Released,
    Resized,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    SessionRestored,
    SessionSaved,
    StepDispatched,
    StepSettled,
    Unpinned,
    WindowEvicted,
)
from kvlife.invariants import (
    covering,
    fencing,
    giving,
    holding,
    hosting,
    ladder,
    page_audits,
    publishing,
    row_audits,
    windows,
)
from kvlife.invariants.invariant import Invariant, either

_BINDS = (Admitted, Resumed)
_TRIMS = (SessionSaved, SessionRestored)
_LETS_GO = (
    Protected,
    RolledBack,
    WindowEvicted,
    Released,
    Retracted,
    SessionClosed,
    StepSettled,
    *_TRIMS,
)
_NO_STATE_GROUPS = "groups of recurrent state do not exist yet"
# Looked after by the device pools of a run, where it has some.
_NO_POOLS = "no device pools are attached"
_NO_CONTENT = "no device pools that check contents are attached"

CATALOGUE: tuple[Invariant, ...] = (
    Invariant(
        "ladder-order",
        "0 <= protected <= committed <= allocated <= row capacity",
        events=(*_BINDS, Allocated, Committed, Protected, RolledBack, WindowEvicted, *_TRIMS),
        guard=ladder.ladder_order,
        audit=row_audits.audit_ladder,
    ),
    Invariant(
        "protected-aligned",
        "protected is a whole number of pages",
        events=(*_BINDS, Protected, SessionRestored),
        guard=ladder.protected_aligned,
        audit=row_audits.audit_aligned,
    ),
    Invariant(
        "protected-monotone",
        "protected never shrinks while the row is held",
        events=(Protected,),
        guard=ladder.protected_monotone,
    ),
    Invariant(
        "settled-bound",
        "committed <= settled length; publish, save, fork and finish use no more than committed;"
        " a finished request has its whole prompt committed",
        events=(Resumed, Committed, Protected, RolledBack, Released, *_TRIMS),
        guard=either(ladder.settled_bound, hosting.restored_from_backup),
        audit=row_audits.audit_settled,
    ),
    Invariant(
        "session-prefix-fixed",
        "after its first turn a session's protected length does not move",
        events=(Protected,),
        guard=ladder.session_prefix_fixed,
    ),
    Invariant(
        "row-single-holder",
        "a row has one holder, a request or session has at most one row, and a row in use is not"
        " bound again",
        events=(
            *_BINDS,
            Allocated,
            Committed,
            Protected,
            RolledBack,
            WindowEvicted,
            Retracted,
            StepDispatched,
            *_TRIMS,
        ),
        guard=holding.row_single_holder,
        audit=row_audits.audit_holders,
    ),
    Invariant(
        "release-once",
        "a request is released once; a release of what is not held is a fault",
        events=(Released, Retracted, SessionClosed),
        guard=holding.release_once,
    ),
    Invariant(
        "page-double-alloc",
        "an allocated page was FREE, and stands once in the event",
        events=(Allocated, Resumed, RolledBack, Retracted),
        guard=either(giving.page_double_alloc, hosting.double_alloc),
    ),
    Invariant(
        "page-double-free",
        "a page let go or evicted was not FREE, and stands once",
        events=(*_LETS_GO, Evicted, Resumed),
        guard=either(giving.page_double_free, hosting.double_free),
    ),
    Invariant(
        "page-freed-by-stranger",
        "a page is let go only by a row that references it",
        events=_LETS_GO,
        guard=either(giving.page_freed_by_stranger, hosting.freed_by_stranger),
    ),
    Invariant(
        "allocated-covers-pages",
        "after the event a row references exactly the pages that its lengths and cursors ask for",
        events=(*_BINDS, Allocated, *_LETS_GO, Resized),
        guard=either(covering.allocated_covers_pages, hosting.covers_backup),
        audit=page_audits.audit_covers,
    ),
    Invariant(
        "refs-balance",
        "the pages an event lets go are all the pages that it should; in an audit, refs and pins"
        " equal their holders",
        events=(*_BINDS, Allocated, *_LETS_GO),
        guard=giving.refs_balance,
        audit=either(page_audits.audit_refs, hosting.audit_refs),
    ),
    Invariant(
        "write-exclusive",
        "positions [committed, allocated) of a row lie on PRIVATE pages with refs 1",
        events=(Allocated, RolledBack),
        post=covering.write_exclusive,
        audit=row_audits.audit_write_exclusive,
    ),
    Invariant(
        "evicted-while-locked",
        "an evicted or flushed page was CACHED with refs 0 and pins 0",
        events=(Evicted,),
        guard=fencing.evicted_while_locked,
    ),
    Invariant(
        "pinned-page-freed",
        "a page with pins is not FREE: neither pinned while FREE nor freed while pinned",
        events=(Allocated, Resumed, RolledBack, Evicted, Pinned, Unpinned, Resized),
        guard=fencing.pinned_page_freed,
        audit=page_audits.audit_pinned,
    ),
    Invariant(
        "in-flight-fence",
        "what a dispatched step reads is not freed before it settles; a DRAINING row drains exactly"
        " when its count is 0; steps settle in order",
        events=(
            Committed,
            Protected,
            Released,
            Retracted,
            SessionClosed,
            StepDispatched,
            StepSettled,
        ),
        guard=fencing.in_flight_fence,
        audit=row_audits.audit_fence,
    ),
    Invariant(
        "window-cursor",
        "cursor <= page_floor(max(0, committed - W + 1)), except over positions that never had"
        " pages; it goes back only by a roll-back; a roll-back keeps the window of the new end",
        events=(*_BINDS, Allocated, Protected, RolledBack, WindowEvicted, *_TRIMS),
        guard=windows.window_cursor,
        audit=row_audits.audit_cursors,
    ),
    Invariant(
        "written-before-shared",
        "at a dispatch, a referenced page that its publisher has not committed has its publisher in"
        " this step or an earlier open one",
        events=(StepDispatched,),
        guard=fencing.written_before_shared,
    ),
    Invariant(
        "state-slot-single-owner",
        "a state slot is FREE, held by one row, or published",
        built=False,
        why_not=_NO_STATE_GROUPS,
    ),
    Invariant(
        "state-lookahead",
        "a tracked state's length is the committed length or one less",
        built=False,
        why_not=_NO_STATE_GROUPS,
    ),
    Invariant(
        "reserved-untouched",
        "page 0 and row 0 are never handed out",
        events=(*_BINDS, Allocated, Protected, RolledBack, Pinned, Resized, Retracted),
        guard=either(publishing.reserved_untouched, hosting.reserved),
        audit=either(page_audits.audit_reserved, hosting.audit_reserved),
    ),
    Invariant(
        "idle-no-leak",
        "with no row HELD or DRAINING, no session, no pin and no open step, every page is FREE, or"
        " CACHED with refs 0",
        kind="guard (idle marks, close)",
        events=(Marked,),
        guard=publishing.idle_no_leak,
        audit=page_audits.audit_idle,
    ),
    Invariant(
        "index-agrees",
        "a page has a key exactly when it is CACHED; the index's pages are the CACHED pages, each"
        " once; two pages share a key only where the header allows it",
        kind="guard, audit",
        events=(Protected, Resized),
        guard=publishing.index_agrees,
        audit=page_audits.audit_index,
    ),
    # The guards that fire no later than the audits below, on any one faulty event: a page comes to
    # be aliased when it is taken twice (page-double-alloc) or shared while PRIVATE
    # (allocated-covers-pages); referenced while FREE when it is let go early
    # (allocated-covers-pages, page-freed-by-stranger), twice (page-double-free) or evicted
    # (evicted-while-locked); states and free list part when a page is dropped in use (Resized:
    # allocated-covers-pages, pinned-page-freed, index-agrees); rows are lost when they are bound
    # or released out of turn (row-single-holder, release-once, in-flight-fence).
    Invariant(
        "page-aliased",
        "a PRIVATE page is referenced by exactly `refs` rows, more than one only through a fork",
        kind="audit",
        audit=either(page_audits.audit_aliased, hosting.audit_aliased),
    ),
    Invariant(
        "page-use-after-free",
        "no row references a FREE page",
        kind="audit",
        audit=either(page_audits.audit_use_after_free, hosting.audit_use_after_free),
    ),
    Invariant(
        "page-conservation",
        "every page is in one state; the FREE ones are exactly the free list, each once",
        kind="audit",
        audit=either(page_audits.audit_page_conservation, hosting.audit_conservation),
    ),
    Invariant(
        "row-conservation",
        "FREE, HELD and DRAINING rows are all the rows",
        kind="audit",
        audit=row_audits.audit_row_conservation,
    ),
    Invariant(
        "device-agrees",
        "the device's tables and counts equal the ledger's",
        kind="device",
        built=False,
        why_not=_NO_POOLS,
    ),
    Invariant(
        "content-unchanged",
        "the digest of a wholly committed page is the same until it is freed or rolled back",
        kind="device, debug",
        built=False,
        why_not=_NO_CONTENT,
    ),
    Invariant(
        "rank-agreement",
        "the ranks of one group write the same events",
        kind="across logs",
        built=False,
        why_not="it compares logs, and a checker sees one engine",
    ),
)


def table_of_invariants() -> str:
    """The catalogue as a Markdown table: id, kind, sentence, and where it is not built, why."""
    lines = ["| id | kind | sentence |", "| --- | --- | --- |"]
    for invariant in CATALOGUE:
        note = "" if invariant.built else f" (not checked: {invariant.why_not})"
        if invariant.why_not in (_NO_POOLS, _NO_CONTENT):
            note = f" (checked where {invariant.why_not.removeprefix('no ')})"
        lines.append(f"| `{invariant.id}` | {invariant.kind} | {invariant.sentence}{note} |")
    return "\n".join(lines) + "\n"
