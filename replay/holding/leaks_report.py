"""What is held and what is lost for people, in lines, and for machines, as one JSON object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs

from kvlife.events import Recorded
from kvlife.replay.history.evidence import pages_named
from kvlife.replay.history.next_commands import next_commands
from kvlife.replay.history.view import View
from kvlife.replay.holding.holdings import EVICTABLE, FREE, KINDS, LOST, PageCount
from kvlife.replay.holding.hosted import HostCount
from kvlife.replay.holding.inspect_json import host_json, view_json
from kvlife.replay.holding.leaks import Holder, Leaks, Lot
from kvlife.replay.output.columns import Line, aligned, counted, duration, noted, ranges
from kvlife.replay.output.event_json import item_json
from kvlife.replay.output.event_words import HOST, kind_of
from kvlife.replay.output.quoting import printable
from kvlife.replay.replaying.outcome import Found

Kinds = Mapping[str, PageCount]

NAME = 34
_MEANS = {
    EVICTABLE: "a full cache is no leak",
    "live": "PRIVATE, of rows that are held",
    "cached, referenced": "of rows that are held",
    "cached, pinned": "referenced by no row",
    "quarantined": "left by their row, and still read or written",
    "draining": "of rows whose last step is in flight",
    LOST: "nothing accounts for them",
}


def leaks_lines(view: View, leaks: Leaks) -> Iterator[Line]:
    """What was found, in lines."""
    yield "bold", f"{printable(str(view.run.path))}, {view.moment}"
    for note in view.notes:
        yield from noted("yellow", "note        ", printable(note))
    for space, groups in leaks.holdings.groups_by_space:
        yield "", ""
        total = view.ledger.spaces[space.idx].num_pages - 1
        whole = leaks.holdings.space_kinds(space.idx)
        if len(groups) == 1:
            yield from _kind_lines(groups[0].name, total, whole, {})
        else:
            shares = {group.name: leaks.holdings.kinds(group.idx) for group in groups}
            yield from _kind_lines(space.name, total, whole, shares)
    if leaks.holdings.host is not None:
        yield from _host_lines(leaks.holdings.host)
    yield from _refused_lines(view, leaks)
    yield from _idle_lines(view, leaks)
    yield from _holder_lines(view, leaks)
    yield from _lost_lines(view, leaks)


def _kind_lines(name: str, total: int, kinds: Kinds, shares: Mapping[str, Kinds]) -> Iterator[Line]:
    """The pages of a space by kind; `shares` are those of its groups, where it has several."""
    shared = f"shared by {' and '.join(shares)}" if shares else ""
    cells: list[tuple[str, ...]] = [
        (f"pages of {name}", f"{total:,}", "in flight", "pinned", shared)
    ]
    for kind, count in kinds.items():
        parts = ("", "") if kind == FREE else (f"{count.in_flight:,}", f"{count.pinned:,}")
        means = _MEANS.get(kind, "")
        if kind != FREE and shares and count.pages:
            own = [f"{mine[kind].pages:,} {group}" for group, mine in shares.items()]
            means = f"{means} ({', '.join(own)})"
        cells.append((f"  {kind}", f"{count.pages:,}", *parts, means))
    for line, kind in zip(aligned(cells, "lrrrl"), ("", *kinds), strict=True):
        lost = kind == LOST and kinds[LOST].pages > 0
        yield "bold red" if lost else ("" if kind else "dim"), line


def _host_lines(count: HostCount) -> Iterator[Line]:
    cells = [
        (f"pages of {HOST}", f"{count.pages:,}", ""),
        ("  free", f"{count.free:,}", ""),
        ("  kept", f"{count.kept:,}", "backups of requests that wait"),
        (f"  {LOST}", f"{count.lost:,}", _MEANS[LOST]),
    ]
    yield "", ""
    styles = ("dim", "", "", "bold red" if count.lost else "")
    yield from zip(styles, aligned(cells, "lrl"), strict=True)


def _refused_lines(view: View, leaks: Leaks) -> Iterator[Line]:
    """What stopped the run, and the pages that it is about: what is held is not to blame."""
    refused, found = leaks.refused, leaks.objection
    if refused is None:
        return
    item = refused.item
    text = f"by {kind_of(item.event)} at seq {item.seq}, step {item.step}, which was not applied:"
    text += f" {refused.invariant}"
    if found is not None:
        about = "".join(f", {pages}" for pages in _pages_of(view, found))
        why = found.evidence.get("why", found.sentence)
        text += f"{about}: {why}" if why else about
    yield "", ""
    yield from noted("bold red", "stopped     ", printable(text))
    for command in () if found is None else next_commands(view.run, found):
        yield "", f"next        {command}"


def _pages_of(view: View, found: Found) -> Iterator[str]:
    """The pages that the evidence names, by space."""
    layout = view.ledger.layout
    by_space: dict[int, list[int]] = {}
    for space_idx, page in pages_named(layout, found.evidence):
        by_space.setdefault(space_idx, []).append(page)
    for space_idx, pages in by_space.items():
        yield f"{_named_pages(sorted(pages))} of {layout.spaces[space_idx].name}"


def _idle_lines(view: View, leaks: Leaks) -> Iterator[Line]:
    if leaks.idle is None:
        return
    when = "the run says that it is idle" if view.idle_mark else "the run was closed"
    yield "", ""
    style = "bold red" if view.idle_mark else "yellow"
    which = "each holder below" if leaks.num_holders else "what is lost below"
    text = f"{when}, and {leaks.idle['why']}: {which} is a candidate for a leak (idle-no-leak)"
    yield from noted(style, "idle        ", text)


def _holder_lines(view: View, leaks: Leaks) -> Iterator[Line]:
    yield "", ""
    if not leaks.num_holders:
        yield "", "held        nothing is held by a request, session, pin or step"
        return
    cells: list[tuple[str, ...]] = [
        ("since seq", "step", "ago", "held by", "row", "pages", "alone", "")
    ]
    cells += [_holder_cells(view, holder) for holder in leaks.holders]
    for number, line in enumerate(aligned(cells, "rrrlrrrl")):
        yield "" if number else "dim", line
    left = leaks.num_holders - len(leaks.holders)
    if left:
        yield "dim", f"            {counted(left, 'holder')} more, not as old: --all"
    if any(not holder.exact for holder in leaks.holders):
        yield (
            "dim",
            "            <= at that seq or before: the event is not in the log, or far back",
        )


def _holder_cells(view: View, holder: Holder) -> tuple[str, ...]:
    item = holder.item
    return (
        f"{'' if holder.exact else '<= '}{holder.since_seq}",
        "?" if item is None else str(item.step),
        "?" if item is None else duration(view.since(item.time_ns)),
        printable(holder.what, NAME),
        "" if holder.row is None else str(holder.row),
        f"{holder.pages:,}",
        f"{holder.alone:,}",
        holder.kind,
    )


def _lost_lines(view: View, leaks: Leaks) -> Iterator[Line]:
    lost = leaks.holdings.lost
    yield "", ""
    if not lost.anything:
        yield "green", "lost        nothing"
        return
    yield "bold red", f"lost        {counted(lost.num_pages, 'page')}"
    for lot in leaks.lots:
        yield from _lot_lines(view, lot)
    left = leaks.num_lots - len(leaks.lots)
    if left:
        yield "dim", f"            {counted(left, 'lot')} more: --all"
    for holder in lost.holders:
        yield (
            "red",
            f"  {printable(holder.what)}: {printable(holder.why)} (last event {holder.seq})",
        )


def _lot_lines(view: View, lot: Lot) -> Iterator[Line]:
    pages = _named_pages(sorted(lot.pages))
    yield from noted("red", "  ", f"{pages} of {lot.space or HOST}: {lot.why}")
    story = lot.story
    if story.lost is not None:
        had = " and ".join(map(printable, story.holders)) or "nobody"
        yield from noted("", "      lost by    ", f"{_when(view, story.lost)}: had by {had}")
    if story.item is None:
        yield "", f"      last event seq {lot.last_seq}: not in the log, or too far back"
    else:
        what = "" if story.touched is None else f": {printable(story.touched.text)}"
        yield from noted("", "      last event ", f"{_when(view, story.item)}{what}")


def _named_pages(pages: Sequence[int]) -> str:
    """Pages in words, by their numbers."""
    return f"{'page' if len(pages) == 1 else 'pages'} {ranges(pages)}"


def _when(view: View, item: Recorded) -> str:
    ago = duration(view.since(item.time_ns))
    return f"{kind_of(item.event)} at seq {item.seq}, step {item.step}, {ago} ago"


def leaks_json(view: View, leaks: Leaks) -> dict[str, object]:
    """What was found, as one object."""
    return {
        **view_json(view),
        "pages": {
            group.name: {
                name: attrs.asdict(count) for name, count in leaks.holdings.kinds(group.idx).items()
            }
            for group in view.ledger.layout.groups
        },
        "space_pages": {
            space.name: {
                name: attrs.asdict(count)
                for name, count in leaks.holdings.space_kinds(space.idx).items()
            }
            for space in view.ledger.layout.spaces
        },
        "kinds": list(KINDS),
        "host_pages": host_json(leaks.holdings),
        "refused": _refused_json(leaks),
        "idle": leaks.idle,
        "idle_mark": view.idle_mark,
        "num_holders": leaks.num_holders,
        "holders": [_holder_json(holder) for holder in leaks.holders],
        "lost_pages": leaks.holdings.lost.num_pages,
        "num_lots": leaks.num_lots,
        "lost": [_lot_json(lot) for lot in leaks.lots],
        "lost_holders": [attrs.asdict(holder) for holder in leaks.holdings.lost.holders],
    }


def _refused_json(leaks: Leaks) -> dict[str, object] | None:
    if leaks.refused is None:
        return None
    evidence = {} if leaks.objection is None else dict(leaks.objection.evidence)
    return {**leaks.refused.as_json, "evidence": evidence}


def _holder_json(holder: Holder) -> dict[str, object]:
    return {
        "what": holder.what,
        "kind": holder.kind,
        "row": holder.row,
        "pages": holder.pages,
        "alone": holder.alone,
        "since_seq": holder.since_seq,
        "exact": holder.exact,
        "since": item_json(holder.item),
    }


def _lot_json(lot: Lot) -> dict[str, object]:
    return {
        "space": lot.space,
        "pages": list(lot.pages),
        "why": lot.why,
        "last_seq": lot.last_seq,
        "last_event": item_json(lot.story.item),
        "did": None if lot.story.touched is None else lot.story.touched.text,
        "lost_by": item_json(lot.story.lost),
        "had_by": list(lot.story.holders),
    }
