"""What all commands of the engine stand on: rows by request, room for pages, the command frame."""

from __future__ import annotations

import functools
import secrets
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import attrs
import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.config import compile_layout
from kvlife.engine.arguments import is_name
from kvlife.engine.batch import Batch
from kvlife.engine.observer import Observer, forks
from kvlife.errors import (
    BadArgument,
    CommandRefused,
    OutOfPages,
    PinRefused,
    StaleBatch,
    UnknownRequest,
)
from kvlife.events import Event, Evicted, PageLists, Unpinned
from kvlife.ledger import EMPTY, MEMBERSHIP_BITS, PageState, RowState
from kvlife.ledger.entries import rows_entries
from kvlife.ledger.spans import indices
from kvlife.prefix import IndexLayout, PageKeys, PrefixIndex, Victims

if TYPE_CHECKING:
    from kvlife.config import GroupLayout, PoolConfig
    from kvlife.invariants import Checker
    from kvlife.log import LogWriter
    from kvlife.pools import Pools

I32 = npt.NDArray[np.int32]
Index = npt.NDArray[np.intp]
P = ParamSpec("P")
R = TypeVar("R")
Self = TypeVar("Self", bound="EngineCore")

# Ids that were aborted before they were admitted are remembered up to this many.
_MAX_ABORTED = 1 << 16


def command(
    method: Callable[Concatenate[Self, P], R],
) -> Callable[Concatenate[Self, P], R]:
    """A command: only from the engine's thread, on an open engine; refusals are counted.

    Any other error, or an interrupt, ends the run where the command had begun to act.
    """

    @functools.wraps(method)
    def framed(self: Self, *args: P.args, **kwargs: P.kwargs) -> R:
        first = self.next_seq
        try:
            # `_enter` says what is wrong; asking here first spares its call.
            if self._closed or get_ident() != self._thread or self._fork != forks[0]:
                self._enter()
            if self._posted:
                self._do_posted()
            return method(self, *args, **kwargs)
        except CommandRefused as refusal:
            self._refusals[type(refusal).__name__] += 1
            raise
        except BaseException as error:
            self._break_off(first, error)
            raise

    return framed  # type: ignore[return-value]  # functools.wraps names the first parameter away


@attrs.define(eq=False)
class Grant:
    """Pages for a command: the evictions that must come first, and what is taken per group."""

    events: list[Event]
    victims: tuple[Victims, ...]
    pages: PageLists


class EngineCore(Observer):
    """An observer with a prefix index and the means to decide."""

    def __init__(
        self,
        config: PoolConfig,
        *,
        log: LogWriter | None = None,
        checker: Checker | None = None,
        pools: Pools | None = None,
        policy: str = "lru",
        key_seed: int | None = None,
        clock: Callable[[], int] = time.time_ns,
        group: str = "",
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Start a run; `policy` orders evictions, `key_seed` makes page keys repeatable."""
        seed = secrets.randbits(128) if key_seed is None else key_seed
        keys = {
            size: PageKeys(seed, size)
            for size in {group.page_size or config.page_size for group in config.groups}
        }
        groups = compile_layout(config).groups
        index = PrefixIndex(
            IndexLayout(
                page_sizes=[group.page_size for group in groups],
                windows=[group.window for group in groups],
            ),
            policy,
        )
        super().__init__(
            config,
            log=log,
            checker=checker,
            pools=pools,
            clock=clock,
            group=group,
            rank=rank,
            world_size=world_size,
            key_fingerprint=next(iter(keys.values())).fingerprint(),
        )
        self._keys = keys
        self._index = index
        self._capacity = np.array(self.ledger.layout.capacity, np.int32)
        self._free_rows = list(range(self.ledger.layout.num_rows - 1, 0, -1))
        self._namespaces: dict[int, bytes] = {}
        self._most_namespaces = 0
        self._aborted: OrderedDict[str, None] = OrderedDict()
        self._posted: deque[str] = deque()
        self._refusals: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._newest_step: int | None = None
        self._slots_kept: tuple[I32, I32] | None = None
        self._evictable_at: tuple[int, int, int] | None = None

    @property
    def index(self) -> PrefixIndex:
        """The prefix index; reading it is fine, changing it is not."""
        return self._index

    @command
    def mark(self, text: str, *, idle: bool = False) -> None:
        """Write a note, after the unpins that were posted; see `Observer.mark`."""
        super().mark(text, idle=idle)

    def close(self) -> None:
        """End the run, after the unpins that were posted; see `Observer.close`."""
        if not self._closed:
            self._enter()
            self._do_posted()
        super().close()

    def _do_posted(self) -> None:
        """End the pins that other threads have posted; one that is gone already is counted."""
        while self._posted:
            pin_id = self._posted.popleft()
            pin = self.ledger.pins.get(pin_id) if is_name(pin_id) else None
            if pin is None:
                self._refusals["PinRefused"] += 1
            else:
                self._decide([Unpinned(pin_id, pin.group, pin.pages)])

    def _decide(self, events: Sequence[Event], *victims: Victims) -> None:
        """Record the events of one command, then follow them in the prefix index."""
        self._record(events)
        if victims:
            self._index.remove(*victims)
            self._counts["evicted_pages"] += sum(sum(v.num_found) for v in victims)

    def _row(self, rid: str) -> int:
        row = self.ledger.requests.get(rid) if is_name(rid) else None
        if row is None:
            raise UnknownRequest(self._why_unknown(rid))
        return row

    def _why_unknown(self, rid: object) -> str:
        if not isinstance(rid, str):
            return f"a request id is a str, got {rid!r}"
        if rid in self.ledger.waiting:
            return f"request {rid!r} is retracted and waits: resume it first"
        if rid in self._aborted:
            return f"request {rid!r} was aborted before it was admitted"
        return f"no live request {rid!r}: admit it first"

    def _rows(self, which: Batch | Sequence[str]) -> I32:
        """The rows of a batch or of request ids, checked; one read-only array a batch."""
        if type(which) is Batch:
            if which.membership != self.ledger.membership:
                self._check_fresh(which)
            return which.rows
        return self._rows_of_ids(which)  # type: ignore[arg-type]  # narrowed by the type above

    def _check_fresh(self, batch: Batch) -> None:
        rows = self.ledger.rows
        if batch.membership >> MEMBERSHIP_BITS != self.ledger.membership >> MEMBERSHIP_BITS:
            raise StaleBatch("the batch is another engine's: make one here")
        now = rows.generation.take(batch.index)
        if now.tobytes() != batch.generations:
            made = np.frombuffer(batch.generations, np.uint32)
            stale = [batch.rids[idx] for idx in np.flatnonzero(now != made)[:5].tolist()]
            raise StaleBatch(
                f"rows of {', '.join(map(repr, stale))} have changed hands since the batch was"
                " made: make a new one from the requests that still run"
            )
        batch.membership = self.ledger.membership

    def _rows_of_ids(self, rids: Sequence[str]) -> I32:
        if isinstance(rids, (str, bytes)) or not isinstance(rids, Sequence):
            raise BadArgument(f"wanted a batch or a list of request ids, got {rids!r}")
        if not rids:
            raise BadArgument("an empty batch was asked for: name at least one request")
        rows = np.array([self._row(rid) for rid in rids], np.int32)
        if len(set(rids)) != len(rids):
            twice = next(rid for rid in rids if list(rids).count(rid) > 1)
            raise BadArgument(f"request {twice!r} is named twice in one command")
        rows.setflags(write=False)
        return rows

    def _rid_at(self, rows: I32, wrong: npt.NDArray[np.bool_]) -> tuple[int, str]:
        idx = int(np.flatnonzero(wrong)[0])
        return idx, str(self.ledger.rows.rid[int(rows[idx])])

    def _locked(self, group: int, pages: I32) -> npt.NDArray[np.bool_]:
        space = self.ledger.spaces[self.ledger.layout.groups[group].space_idx]
        return (space.refs.take(pages) | space.pins.take(pages)) > 0

    def _grant(self, need: Sequence[int]) -> Grant:
        """Choose `need[g]` pages of each group, evicting what must go; or raise `OutOfPages`."""
        ledger = self.ledger
        if len(need) == 1:
            free = ledger.spaces[0].free
            if need[0] <= free.num_free:
                return Grant([], (), (free.head(need[0]),))
        spaces = [0] * len(ledger.spaces)
        for group, num in zip(ledger.layout.groups, need, strict=True):
            spaces[group.space_idx] += num
        short = [num - s.free.num_free for num, s in zip(spaces, ledger.spaces, strict=True)]
        victims: tuple[Victims, ...] = ()
        if max(short) > 0:
            victims = self._choose_victims(short, need)
        events: list[Event] = []
        gone: list[list[I32]] = [[] for _ in ledger.spaces]
        for chosen in victims:
            if any(pages.size for pages in chosen.pages):
                events.append(Evicted("pressure", chosen.pages))
                for group in ledger.layout.groups:
                    if chosen.pages[group.idx].size:
                        gone[group.space_idx].append(chosen.pages[group.idx])
        heads = [self._head_after(idx, gone[idx], spaces[idx]) for idx in range(len(spaces))]
        pages = []
        for group, num in zip(ledger.layout.groups, need, strict=True):
            head = heads[group.space_idx]
            pages.append(head[:num])
            heads[group.space_idx] = head[num:]
        return Grant(events, victims, tuple(pages))

    def _head_after(self, space_idx: int, gone: list[I32], num: int) -> I32:
        """The head of the free list once these pages, in this order, have gone back into it."""
        free = self.ledger.spaces[space_idx].free
        if free.fifo:
            return np.concatenate((free.head(num), *gone))[:num]
        newest_first = np.concatenate((*reversed(gone), EMPTY))[:num]
        return np.concatenate((newest_first, free.head(num - newest_first.size)))

    def _choose_victims(self, short: list[int], need: Sequence[int]) -> tuple[Victims, ...]:
        """Whole units from leaf tails for spaces with a full group, window pages for the others."""
        groups = self.ledger.layout.groups
        chosen: list[Victims] = []
        left = list(short)
        leading: dict[int, GroupLayout] = {}
        for group in groups:
            if group.window is None and short[group.space_idx] > 0:
                leading.setdefault(group.space_idx, group)
        if leading:
            chosen.append(self._leaf_tails(short, leading))
        _subtract(left, chosen, groups)
        for group in groups:
            if group.window is not None and left[group.space_idx] > 0:
                besides = chosen[0] if chosen else None
                more = self._index.window_victims(
                    group.idx, left[group.space_idx], self._locked, besides=besides
                )
                chosen.append(more)
                _subtract(left, [more], groups)
        if max(left) > 0:
            self._refuse_pages(left.index(max(left)), need)
        return tuple(chosen)

    def _leaf_tails(self, short: list[int], leading: dict[int, GroupLayout]) -> Victims:
        """As few units as give each space what it is short of, or all that can go.

        A unit gives back the pages of all groups of a space, fewer where a window has holes: so
        the first question takes it for whole, and the next ones ask for what is left.
        """
        layout = self.ledger.layout
        per_unit = [0] * len(short)
        for group in layout.groups:
            per_unit[group.space_idx] += layout.align // group.page_size
        wanted, left = [0] * len(layout.groups), list(short)
        while True:
            for idx, lead in leading.items():
                units = -(-max(left[idx], 0) // per_unit[idx])
                wanted[lead.idx] += units * (layout.align // lead.page_size)
            victims = self._index.victims(wanted, self._locked)
            left = list(short)
            _subtract(left, [victims], layout.groups)
            if not any(
                left[idx] > 0 and victims.pages[lead.idx].size >= wanted[lead.idx]
                for idx, lead in leading.items()
            ):
                return victims

    def _refuse_pages(self, space_idx: int, need: Sequence[int]) -> None:
        groups = [g for g in self.ledger.layout.groups if g.space_idx == space_idx]
        group = max(groups, key=lambda g: need[g.idx])
        raise OutOfPages(
            group.name,
            sum(need[g.idx] for g in groups),
            self.ledger.spaces[space_idx].free.num_free,
            sum(self._index.evictable(g.idx, self._locked) for g in groups),
            self._held_pages(space_idx),
        )

    def _held_pages(self, space_idx: int) -> dict[str, int]:
        """Pages that cannot go, by who holds them; a shared page counts for each."""
        ledger, held = self.ledger, Counter[str]()
        for row in np.flatnonzero(
            (ledger.rows.state == RowState.HELD) | (ledger.rows.state == RowState.DRAINING)
        ).tolist():
            session = ledger.rows.session[row]
            holder = ledger.rows.rid[row] or (f"session {session}" if session else "draining")
            for group in ledger.layout.groups:
                num = int(np.count_nonzero(ledger.pages_of(row, group.idx)))
                if num and group.space_idx == space_idx:
                    held[holder] += num
        space = ledger.spaces[space_idx]
        quarantined = int(np.count_nonzero(space.state == PageState.QUARANTINED))
        if quarantined:
            held["pinned"] = quarantined
        return held

    def _refuse_writing(self, index: Index, low_len: I32, high_len: I32, what: str) -> None:
        """Refuse where a pin writes a page that positions [low, high) of these rows lie on."""
        ledger = self.ledger
        if not any(pin.writes for pin in ledger.pins.values()):
            return
        for group in ledger.layout.groups:
            # A page that is partly below `low` is touched as well, but not by a row that stays.
            floored = transitions.page_floor(low_len, group.page_size)
            low = np.where(low_len < high_len, floored, high_len)
            at = rows_entries(ledger, index, low, high_len)[group.idx]
            self._refuse_written(group.idx, ledger.tables[group.idx][indices(at)], what)

    def _refuse_written(self, group: int, pages: I32, what: str) -> None:
        """Pages under a write pin are not committed, published or dispatched."""
        for pin_id, pin in self.ledger.pins.items():
            if pin.writes and pin.group == group:
                hit = np.intersect1d(pin.pages, pages)
                if hit.size:
                    raise PinRefused(
                        f"page {hit[0]} is being written under pin {pin_id!r}, so it cannot be"
                        f" {what}: unpin it first"
                    )

    def _remember_aborted(self, rid: str) -> None:
        self._aborted[rid] = None
        if len(self._aborted) > _MAX_ABORTED:
            self._aborted.popitem(last=False)


def _subtract(left: list[int], chosen: Sequence[Victims], groups: Sequence[GroupLayout]) -> None:
    for victims in chosen:
        for group, pages in zip(groups, victims.pages, strict=True):
            left[group.space_idx] -= pages.size
