"""For Triton kernels: what happens to a page's state, references and pins, a page in each lane.

Each function works on the lanes where `live` holds; there `page` lies in the space.
Several lanes, of one program or of many, may name one page: counters are atomic, and of those that
would make the same transition exactly one does. What was wrong comes back as a code, 0 for nothing.
"""

import triton
import triton.language as tl

from kvlife.kernels.page_states import PageState
from kvlife.kernels.violations import ViolationCode

FREE = tl.constexpr(int(PageState.FREE))
PRIVATE = tl.constexpr(int(PageState.PRIVATE))
CACHED = tl.constexpr(int(PageState.CACHED))
QUARANTINED = tl.constexpr(int(PageState.QUARANTINED))
NO_STATE = tl.constexpr(-1)

NOT_FREE = tl.constexpr(int(ViolationCode.NOT_FREE))
NOT_SHARED = tl.constexpr(int(ViolationCode.NOT_SHARED))
DOUBLE_FREE = tl.constexpr(int(ViolationCode.DOUBLE_FREE))
NOT_PUBLISHABLE = tl.constexpr(int(ViolationCode.NOT_PUBLISHABLE))
NOT_EVICTABLE = tl.constexpr(int(ViolationCode.NOT_EVICTABLE))
NOT_PINNABLE = tl.constexpr(int(ViolationCode.NOT_PINNABLE))
NOT_PINNED = tl.constexpr(int(ViolationCode.NOT_PINNED))
RESERVED_TOUCHED = tl.constexpr(int(ViolationCode.RESERVED_TOUCHED))
OUTSIDE = tl.constexpr(int(ViolationCode.OUTSIDE))


@triton.jit
def is_inside(number, end):
    """Whether a page or an entry is one of [0, end)."""
    return (number >= 0) & (number < end)


@triton.jit
def entered(table, table_len, num_pages, spot, page, new, live):
    """Write `new` to the entries `spot`, -1 apart; returns the lanes whose page and entry exist."""
    exists = live & is_inside(page, num_pages) & ((spot == -1) | is_inside(spot, table_len))
    tl.store(table + spot, new, mask=exists & (spot >= 0))
    return exists


@triton.jit
def finding(code, page, exists, live):
    """The code of an entry, once it is known whether it exists and names the reserved page."""
    code = tl.where(live & (page == 0), RESERVED_TOUCHED, code)
    return tl.where(live & ~exists, OUTSIDE, code)


@triton.jit
def swap(state, page, old, new, live):
    """Where the state is `old` make it `new`; returns what it was before."""
    # A compare-and-swap takes no mask: idle lanes look for a state that no page has.
    spot = state + tl.where(live, page, 0)
    return tl.atomic_cas(
        spot, tl.where(live, old, NO_STATE), tl.zeros_like(page) + new, sem="relaxed"
    )


@triton.jit
def take(state, refs, page, live):
    """FREE becomes PRIVATE; what rows hold gains a reference."""
    # FREE is the least state, and PRIVATE the next. A swap takes no mask, and most lanes of a
    # decode step are idle: they would all queue up at one page.
    was = tl.atomic_max(state + page, PRIVATE, mask=live, sem="relaxed")
    owned = live & (was <= CACHED)
    tl.atomic_add(refs + page, 1, mask=owned, sem="relaxed")
    return tl.where(live & (was != FREE), NOT_FREE, 0)


@triton.jit
def join(state, refs, page, live):
    """PRIVATE and CACHED pages gain a reference."""
    is_now = tl.load(state + page, mask=live, other=FREE)
    shared = (is_now == PRIVATE) | (is_now == CACHED)
    tl.atomic_add(refs + page, 1, mask=live & shared, sem="relaxed")
    return tl.where(live & ~shared, NOT_SHARED, 0)


@triton.jit
def let_go(state, refs, pins, page, live):
    """One reference less, not below 0; a PRIVATE page's last frees it. Returns freed lanes, code.

    Nothing but lowering happens in one launch, so that once a counter has come to 0 each later lane
    finds 0 or less there, and puts back the 0.
    """
    held = tl.atomic_add(refs + page, -1, mask=live, sem="relaxed")
    spent = live & (held <= 0)
    tl.atomic_max(refs + page, 0, mask=spent, sem="relaxed")
    last = live & (held == 1)
    pinned = tl.load(pins + page, mask=last, other=0) > 0
    was = swap(state, page, PRIVATE, tl.where(pinned, QUARANTINED, FREE), last)
    freed = last & (was == PRIVATE) & ~pinned
    return freed, tl.where(spent, DOUBLE_FREE, 0)


@triton.jit
def publish(state, page, live):
    """PRIVATE becomes CACHED."""
    was = swap(state, page, PRIVATE, CACHED, live)
    return tl.where(live & (was != PRIVATE) & (was != CACHED), NOT_PUBLISHABLE, 0)


@triton.jit
def evict(state, refs, pins, page, live):
    """CACHED becomes FREE, whatever still refers to it. Returns freed lanes, code."""
    was = swap(state, page, CACHED, FREE, live)
    freed = live & (was == CACHED)
    held = tl.atomic_xchg(refs + page, 0, mask=freed, sem="relaxed")
    pinned = tl.load(pins + page, mask=freed, other=0)
    locked = freed & ((held != 0) | (pinned > 0))
    return freed, tl.where((live & ~freed) | locked, NOT_EVICTABLE, 0)


@triton.jit
def pin(state, pins, page, live):
    """One pin more, whatever the state."""
    tl.atomic_add(pins + page, 1, mask=live, sem="relaxed")
    is_now = tl.load(state + page, mask=live, other=PRIVATE)
    return tl.where(live & (is_now == FREE), NOT_PINNABLE, 0)


@triton.jit
def unpin(state, pins, page, live):
    """One pin less, not below 0; QUARANTINED and unpinned becomes FREE. Returns freed, code."""
    held = tl.atomic_add(pins + page, -1, mask=live, sem="relaxed")
    spent = live & (held <= 0)
    tl.atomic_max(pins + page, 0, mask=spent, sem="relaxed")
    was = swap(state, page, QUARANTINED, FREE, live & (held == 1))
    return live & (held == 1) & (was == QUARANTINED), tl.where(spent, NOT_PINNED, 0)
