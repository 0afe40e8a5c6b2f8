"""A whole state for people, in lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from kvlife.invariants.effect import holder_of
from kvlife.ledger import RowState
from kvlife.replay.history.view import View
from kvlife.replay.holding.holdings import (
    DRAINING,
    EVICTABLE,
    FREE,
    LIVE,
    LOST,
    PINNED,
    QUARANTINED,
    REFERENCED,
    Holdings,
    PageCount,
)
from kvlife.replay.output.columns import (
    Line,
    Signs,
    aligned,
    counted,
    ladder_bar,
    noted,
    share_bar,
    window_bar,
)
from kvlife.replay.output.event_words import HOST
from kvlife.replay.output.quoting import printable

BAR = 22
NAME = 28
_OTHERS = (PINNED, QUARANTINED, DRAINING, LOST)


@attrs.frozen(kw_only=True)
class Shown:
    """How a state is shown: `sort` of the rows, `limit` of each list (None: no limit)."""

    sort: str
    limit: int | None
    signs: Signs

    def cut(self, num: int) -> int:
        """How many of so many are listed."""
        return num if self.limit is None else min(num, self.limit)


def state_lines(view: View, holdings: Holdings, shown: Shown) -> Iterator[Line]:
    """The state in lines."""
    yield "bold", f"{printable(str(view.run.path))}, {view.moment}"
    yield from run_lines(view)
    yield from _page_lines(view, holdings, shown.signs)
    yield from _row_lines(view, holdings, shown)
    yield from _book_lines(view, shown)
    lost = holdings.lost
    if lost.anything:
        pages, holders = counted(lost.num_pages, "page"), counted(len(lost.holders), "holder")
        text = f"{pages} and {holders} that nothing accounts for: see `kvlife leaks`"
        yield "bold red", f"lost        {text}"


def run_lines(view: View) -> Iterator[Line]:
    """What is missing, how the run stands, and how it was checked."""
    for note in view.notes:
        yield from noted("yellow", "note        ", printable(note))
    run, header = view.run, view.run.header
    yield (
        "",
        f"run         {printable(view.outcome)}, {counted(run.next_seq - run.begins_at, 'event')}",
    )
    checks = f"level {header.level}, {_policies(header.policies)}"
    yield from noted("", "checks      ", printable(checks))
    if header.world_size > 1 or header.group:
        group = printable(header.group)
        yield "", f"rank        {header.rank} of {header.world_size}, group {group or '(no name)'}"
    yield from noted("", "layout      ", "; ".join(_groups(view)))


def _policies(policies: Mapping[str, str]) -> str:
    """The policy of most invariants, and the names of those that have another."""
    if not policies:
        return "no policies named"
    ((most, _num),) = Counter(policies.values()).most_common(1)
    others = [f"{policy} for {name}" for name, policy in policies.items() if policy != most]
    return f"policy {most}" + "".join(f", {other}" for other in others)


def _groups(view: View) -> Iterator[str]:
    layout = view.ledger.layout
    for group in layout.groups:
        told = f"{group.name}: pages of {counted(group.page_size, 'token')}"
        if group.window is not None:
            told += f", window {group.window:,}"
        space = layout.spaces[group.space_idx].name
        yield told if space == group.name else f"{told}, of space {space}"


def _page_lines(view: View, holdings: Holdings, signs: Signs) -> Iterator[Line]:
    """One line for each space, and for each group of one that several share."""
    yield "", ""
    cells: list[Sequence[str]] = [
        ("pages", "all", "free", "evictable", "referenced", "live", "other")
    ]
    bars = [""]
    for space, groups in holdings.groups_by_space:
        total = view.ledger.spaces[space.idx].num_pages - 1
        whole = holdings.space_kinds(space.idx)
        name = space.name if len(groups) > 1 else groups[0].name
        cells.append((name, f"{total:,}", *_page_cells(whole)))
        bars.append(_page_bar(whole, total, signs))
        for group in groups if len(groups) > 1 else ():
            kinds = holdings.kinds(group.idx)
            # What is FREE is nobody's: any of these groups may take it.
            cells.append((f"  {group.name}", "", "", *_page_cells(kinds)[1:]))
            bars.append(_page_bar(kinds, total, signs))
    if holdings.host is not None:
        host = holdings.host
        numbers = (f"{num:,}" for num in (host.pages, host.free, 0, 0, host.kept, host.lost))
        cells.append((HOST, *numbers))
        bars.append(share_bar(((signs.committed, host.kept + host.lost),), host.pages, BAR))
    for number, (line, bar) in enumerate(zip(aligned(cells, "lrrrrrr"), bars, strict=True)):
        yield "" if number else "dim", f"{line}  {bar}".rstrip()
    yield (
        "dim",
        (
            f"            {signs.protected} cached, referenced  {signs.committed} live and other "
            f" {signs.allocated} evictable (refs 0, pins 0)  blank: free"
        ),
    )
    for group in view.ledger.layout.groups:
        counts = holdings.kinds(group.idx)
        some = [(name, counts[name].pages) for name in _OTHERS]
        told = ", ".join(f"{num:,} {name}" for name, num in some if num)
        if told:
            yield "", f"other       {group.name}: {told}"


def _page_cells(kinds: Mapping[str, PageCount]) -> tuple[str, ...]:
    numbers = [kinds[name].pages for name in (FREE, EVICTABLE, REFERENCED, LIVE)]
    return tuple(f"{number:,}" for number in (*numbers, _others(kinds)))


def _page_bar(kinds: Mapping[str, PageCount], total: int, signs: Signs) -> str:
    parts = (
        (signs.protected, kinds[REFERENCED].pages),
        (signs.committed, kinds[LIVE].pages + _others(kinds)),
        (signs.allocated, kinds[EVICTABLE].pages),
    )
    return share_bar(parts, total, BAR)


def _others(kinds: Mapping[str, PageCount]) -> int:
    return sum(kinds[name].pages for name in _OTHERS)


def _row_lines(view: View, holdings: Holdings, shown: Shown) -> Iterator[Line]:
    ledger, signs = view.ledger, shown.signs
    rows, states = holdings.rows, np.bincount(ledger.rows.state[1:], minlength=len(RowState))
    yield "", ""
    yield (
        "",
        (
            f"rows        {states[RowState.HELD]:,} held, {states[RowState.DRAINING]:,} draining,"
            f" {states[RowState.FREE]:,} free of {ledger.layout.num_rows - 1:,}"
        ),
    )
    if not rows.size:
        return
    scale = max(int(ledger.rows.allocated[rows].max()), 1)
    order = holdings.order(shown.sort)[: shown.cut(rows.size)]
    heads = ("row", "holder", "pages", f"|{scale:,} tokens".ljust(BAR), "protected", "committed")
    cells: list[Sequence[str]] = [(*heads, "allocated")]
    for place in order.tolist():
        cells += _cells_of_row(view, int(rows[place]), int(holdings.pages[place]), scale, signs)
    for number, line in enumerate(aligned(cells, "rlrlrrr")):
        yield "" if number else "dim", line
    told = f"{signs.protected} protected  {signs.committed} committed  {signs.allocated} allocated"
    gone = f"  {signs.gone} passed by the window" if ledger.layout.window_groups else ""
    yield "dim", f"            {told}{gone}"
    if order.size < rows.size:
        yield "dim", f"            {counted(rows.size - order.size, 'row')} more: --all"


def _cells_of_row(
    view: View, row: int, num_pages: int, scale: int, signs: Signs
) -> Iterator[Sequence[str]]:
    record = view.ledger.row_record(row)
    bar = ladder_bar(record, scale, BAR, signs)
    holder = printable(holder_of(view.ledger, row), NAME)
    lengths = (record.cache_protected_len, record.kv_committed_len, record.kv_allocated_len)
    yield (str(row), holder, f"{num_pages:,}", bar, *(f"{length:,}" for length in lengths))
    windows = zip(view.ledger.layout.window_groups, record.swa_evicted_seqlens, strict=True)
    for group, cursor in windows:
        floor = record.swa_evict_floor
        told = f"from {cursor:,}" + (f", floor {floor:,}" if floor else "")
        drawn = window_bar(bar, floor, cursor, scale, BAR, signs)
        yield ("", printable(f"  {group.name} {told}", NAME), "", drawn, "", "", "")


def _sessions(view: View) -> Iterator[Sequence[str]]:
    yield ("session", "turn", "row", "kept", "since seq")
    sessions = sorted(view.ledger.sessions.items(), key=lambda item: item[1].seq)
    for name, held in sessions:
        turn = "idle" if held.rid is None else f"request {printable(held.rid, NAME)}"
        turn = f"{turn} (turns: {held.num_turns:,})"
        yield (printable(name, NAME), turn, str(held.row), f"{held.kept_len:,}", str(held.seq))


def _waiting(view: View) -> Iterator[Sequence[str]]:
    yield ("waiting", "prompt", "committed", "host pages", "since seq")
    waiting = sorted(view.ledger.waiting.items(), key=lambda item: item[1].seq)
    for rid, left in waiting:
        backup = "none" if left.backup is None else f"{left.backup.size:,}"
        lengths = (f"{left.prompt_len:,}", f"{left.committed_len:,}", backup)
        yield (printable(rid, NAME), *lengths, str(left.seq))


def _pins(view: View) -> Iterator[Sequence[str]]:
    yield ("pin", "kind", "", "owner", "pages", "since seq", "events ago")
    pins = sorted(view.ledger.pins.items(), key=lambda item: item[1].seq)
    for name, pin in pins:
        owner = "nobody" if pin.owner is None else f"request {printable(pin.owner, NAME)}"
        group = view.ledger.layout.groups[pin.group].name
        yield (
            printable(name, NAME),
            f"{printable(pin.kind, 12)} {'writes' if pin.writes else 'reads'}",
            group,
            owner,
            f"{pin.pages.size:,}",
            str(pin.seq),
            f"{view.seq - pin.seq:,}",
        )


def _steps(view: View) -> Iterator[Sequence[str]]:
    yield ("step", "rows", "pages held for it", "since seq", "events ago")
    for step, opened in view.ledger.steps.items():
        held = sum(pages.size for _group, pages in opened.pinned)
        ago = f"{view.seq - opened.seq:,}"
        yield (str(step), f"{opened.rows.size:,}", f"{held:,}", str(opened.seq), ago)


def _book_lines(view: View, shown: Shown) -> Iterator[Line]:
    empty = []
    for title, cells, sides in (
        ("sessions", list(_sessions(view)), "llrrr"),
        ("requests waiting", list(_waiting(view)), "lrrrr"),
        ("pins", list(_pins(view)), "llllrrr"),
        ("steps in flight", list(_steps(view)), "rrrrr"),
    ):
        num = len(cells) - 1
        if not num:
            empty.append(title)
            continue
        yield "", ""
        listed = shown.cut(num)
        for number, line in enumerate(aligned(cells[: listed + 1], sides)):
            yield "" if number else "dim", line
        if listed < num:
            yield "dim", f"            {num - listed:,} {title} more: --all"
    if empty:
        yield "", ""
        yield "", f"none        {', '.join(empty)}"
