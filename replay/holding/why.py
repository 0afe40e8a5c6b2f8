"""What stands in the way of a reset, an eviction or an admission, by holder.

The prefix index is not in the log: what a prompt would hit is not known, and whether a page's
children in the index go before it is not either.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.config import GroupLayout, Layout
from kvlife.errors import ConfigError
from kvlife.invariants.effect import holder_of
from kvlife.ledger import Ledger, PageState, RowState
from kvlife.replay.history.selecting import find_group
from kvlife.replay.holding.holdings import EVICTABLE, FREE, Holdings
from kvlife.replay.output.columns import counted

Bools = npt.NDArray[np.bool_]


@attrs.frozen(kw_only=True)
class Blocker:
    """A holder in the way: `pages` it holds there, `alone` those that come back if it goes."""

    what: str
    why: str
    pages: int
    alone: int


@attrs.frozen(kw_only=True)
class Room:
    """A page space: what it has, what is asked of it, and who holds the rest, the most first.

    Where `cached_only`, `total` and the holders are those of CACHED pages.
    """

    space: str
    groups: tuple[str, ...]
    total: int
    free: int
    evictable: int
    asked: int
    lost: int
    cached_only: bool
    blockers: tuple[Blocker, ...]

    @property
    def short(self) -> int:
        """How many pages lack, whatever is evicted."""
        return max(self.asked - self.free - self.evictable, 0)


@attrs.frozen(kw_only=True)
class Answer:
    """Whether it can be done; `reasons` against it and `notes` in words, and the spaces' rooms."""

    question: str
    possible: bool
    verdict: str
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    rooms: tuple[Room, ...] = ()


def why_reset(holdings: Holdings) -> Answer:
    """A flush of the whole cache, which needs an idle engine."""
    ledger = holdings.ledger
    rooms = tuple(_room(holdings, idx, 0) for idx in range(len(ledger.spaces)))
    draining = int(np.count_nonzero(ledger.rows.state == RowState.DRAINING))
    busy = [
        counted(num, what)
        for num, what in (
            (len(ledger.requests), "live request"),
            (sum(item.rid is None for item in ledger.sessions.values()), "idle session"),
            (draining, "draining row"),
            (len(ledger.pins), "pin"),
            (len(ledger.steps), "open step"),
        )
        if num
    ]
    lost = sum(room.lost for room in rooms)
    if lost:
        pages = counted(lost, "lost page")
        busy.append(f"{pages}, which no holder's end gives back: see `kvlife leaks`")
    cached = sum(room.evictable for room in rooms)
    verdict = f"a reset would free {counted(cached, 'cached page')}: nothing stands in its way"
    if busy:
        verdict = "a reset needs that nothing is held"
    return Answer(
        question="reset",
        possible=not busy,
        verdict=verdict,
        reasons=tuple(busy),
        rooms=rooms,
    )


def why_evict(holdings: Holdings, num_pages: int, group: str | None) -> Answer:
    """An eviction of so many cached pages of a group (None: the base group)."""
    layout = holdings.ledger.layout
    asked = find_group(layout, group)
    rooms = [_cache_room(holdings, asked, num_pages)]
    notes = [
        "pages that are PRIVATE are not cached: they come back when their rows end, not by eviction"
    ]
    if len(layout.groups) > 1:
        rooms += [_cache_room(holdings, other, 0) for other in layout.groups if other is not asked]
        notes.append(
            "a page of the base group takes the other groups' pages at its position along; one of"
            " those that is pinned keeps it, and the log does not say which belong together"
        )
    evictable = rooms[0].evictable
    going = min(num_pages, evictable)
    lacking = f"{num_pages:,} are asked for, and {evictable:,} are evictable"
    return Answer(
        question=f"evict {num_pages}",
        possible=num_pages <= evictable,
        verdict=f"{going:,} of {counted(num_pages, 'page')} of {asked.name} could go now",
        reasons=() if num_pages <= evictable else (lacking,),
        notes=tuple(notes),
        rooms=tuple(rooms),
    )


def _cache_room(holdings: Holdings, group: GroupLayout, asked: int) -> Room:
    """The CACHED pages of one group, and who holds them."""
    space, kinds = holdings.ledger.spaces[group.space_idx], holdings.kinds(group.idx)
    cached = (space.state == PageState.CACHED) & (space.group == group.idx)
    return Room(
        space=holdings.ledger.layout.spaces[group.space_idx].name,
        groups=(group.name,),
        total=int(np.count_nonzero(cached)),
        free=kinds[FREE].pages,
        evictable=kinds[EVICTABLE].pages,
        asked=asked,
        lost=int(np.count_nonzero(cached & holdings.lost.masks[group.space_idx])),
        cached_only=True,
        blockers=_blockers(holdings, group.space_idx, cached),
    )


def why_admit(holdings: Holdings, num_tokens: int, prefix_pages: int) -> Answer:
    """A request of so many tokens, `prefix_pages` pages of which (of the base group) are a hit."""
    ledger, layout = holdings.ledger, holdings.ledger.layout
    prefix_len = prefix_pages * layout.groups[layout.base].page_size
    _refuse_prefix(prefix_pages, prefix_len, num_tokens, layout.align)
    asked, hits = [0] * len(layout.spaces), [0] * len(layout.spaces)
    for group in layout.groups:
        hit = prefix_len // group.page_size
        asked[group.space_idx] += transitions.num_pages(num_tokens, group.page_size) - hit
        hits[group.space_idx] += hit
    rooms = tuple(
        _room(holdings, idx, num, hit)
        for idx, (num, hit) in enumerate(zip(asked, hits, strict=True))
    )
    num_free = int(np.count_nonzero(ledger.rows.state == RowState.FREE))
    reasons = list(_never(ledger, num_tokens, asked))
    if not num_free:
        reasons.append(f"all {layout.num_rows - 1:,} rows are in use")
    reasons += [
        f"{room.space} lacks {counted(room.short, 'page')}: {room.asked:,} are needed,"
        f" {room.free:,} are free and {room.evictable:,} evictable"
        for room in rooms
        if room.short
    ]
    told = f"a request of {counted(num_tokens, 'token')}"
    told += f" ({prefix_len:,} of them a hit)" if prefix_len else ""
    return Answer(
        question="admit",
        possible=not reasons,
        verdict=f"{told} would {'not ' if reasons else ''}fit; rows free: {num_free:,}",
        reasons=tuple(reasons),
        notes=tuple(_admit_notes(layout, prefix_pages)),
        rooms=rooms,
    )


def _refuse_prefix(prefix_pages: int, prefix_len: int, num_tokens: int, align: int) -> None:
    told = f"--prefix-pages {prefix_pages} are {prefix_len} tokens"
    if prefix_len >= num_tokens:
        raise ConfigError(
            f"{told} of a prompt of {num_tokens}: the last token is always computed, so a hit is"
            " shorter"
        )
    if prefix_len % align:
        raise ConfigError(f"{told}: a hit is whole pages of {align} tokens, the largest there are")


def _never(ledger: Ledger, num_tokens: int, asked: Sequence[int]) -> list[str]:
    """What no end of a holder would change."""
    layout = ledger.layout
    found = []
    if num_tokens > layout.capacity:
        found.append(f"a row holds {layout.capacity:,} tokens at most: it can never fit")
    for space, num, columns in zip(layout.spaces, asked, ledger.spaces, strict=True):
        if num > columns.num_pages - 1:
            found.append(
                f"{space.name} has {columns.num_pages - 1:,} pages in all, {num:,} are needed: it"
                " can never fit at once"
            )
    return found


def _admit_notes(layout: Layout, prefix_pages: int) -> list[str]:
    notes = []
    if prefix_pages:
        notes.append(
            "the pages of the hit are taken to be among those that are evictable now, and those"
            " that the request locks are evictable no longer"
        )
    else:
        notes.append(
            "the prefix index is not in the log: a hit would need fewer pages; --prefix-pages says"
            " how many it brings"
        )
    if layout.window_groups:
        notes.append(
            "window groups are counted with all pages of the prompt: a prefill in chunks needs"
            " fewer at a time"
        )
    return notes


def _room(holdings: Holdings, space_idx: int, asked: int, hit: int = 0) -> Room:
    layout, space = holdings.ledger.layout, holdings.ledger.spaces[space_idx]
    lost = holdings.lost.masks[space_idx]
    idle = (space.state == PageState.CACHED) & (space.refs == 0) & (space.pins == 0)
    evictable = int(np.count_nonzero(idle & ~lost))
    return Room(
        space=layout.spaces[space_idx].name,
        groups=tuple(group.name for group in layout.groups if group.space_idx == space_idx),
        total=space.num_pages - 1,
        free=space.free.num_free,
        evictable=max(evictable - hit, 0),
        asked=asked,
        lost=int(np.count_nonzero(lost)),
        cached_only=False,
        blockers=_blockers(holdings, space_idx, np.ones(space.num_pages, np.bool_)),
    )


def _blockers(holdings: Holdings, space_idx: int, chosen: Bools) -> tuple[Blocker, ...]:
    """Rows, pins and steps by the chosen pages of a space that they hold, the most first."""
    found = [*_rows(holdings, space_idx, chosen), *_others(holdings.ledger, space_idx, chosen)]
    found = [blocker for blocker in found if blocker.pages]
    return tuple(sorted(found, key=lambda blocker: (-blocker.pages, blocker.what)))


def _rows(holdings: Holdings, space_idx: int, chosen: Bools) -> Iterator[Blocker]:
    rows = holdings.ledger.rows
    pages = holdings.by_row(space_idx, chosen)
    alone = holdings.by_row(space_idx, chosen & holdings.alone(space_idx))
    for place, row in enumerate(holdings.rows.tolist()):
        why = "draining" if rows.state[row] == RowState.DRAINING else "held"
        if rows.in_flight[row]:
            why = f"{why}, in {counted(int(rows.in_flight[row]), 'step')} in flight"
        name = holder_of(holdings.ledger, row)
        yield Blocker(
            what=f"row {row}" if name == "DRAINING" else name,
            why=why,
            pages=int(pages[place]),
            alone=int(alone[place]),
        )


def _others(ledger: Ledger, space_idx: int, chosen: Bools) -> Iterator[Blocker]:
    space, groups = ledger.spaces[space_idx], ledger.layout.groups
    alone = chosen & (space.refs == 0) & (space.pins == 1)
    named = [
        (f"pin {name}", f"{pin.kind}, since seq {pin.seq}", pin.group, pin.pages)
        for name, pin in ledger.pins.items()
    ]
    named += [
        (f"step {step}", "left by a row in flight", group, pages)
        for step, opened in ledger.steps.items()
        for group, pages in opened.pinned
    ]
    for what, why, group, pages in named:
        if groups[group].space_idx == space_idx:
            num, back = np.count_nonzero(chosen[pages]), np.count_nonzero(alone[pages])
            yield Blocker(what=what, why=why, pages=int(num), alone=int(back))
