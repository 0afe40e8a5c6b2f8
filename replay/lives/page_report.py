"""The life of a page, for people and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kvlife.config import GroupLayout
from kvlife.ledger import PageState
from kvlife.replay.history.refused import Refused, refused_event
from kvlife.replay.history.selecting import names_page
from kvlife.replay.history.touches import Touch
from kvlife.replay.history.view import View
from kvlife.replay.lives.page_life import PageLife, PageNow
from kvlife.replay.output.columns import Line, aligned, counted, noted
from kvlife.replay.output.event_words import HOST
from kvlife.replay.output.moments import clock
from kvlife.replay.output.quoting import printable

MAX_HOLDERS = 4


def page_lines(
    view: View,
    group: GroupLayout | None,
    page: int,
    now: PageNow,
    life: PageLife,
    limit: int | None,
) -> Iterator[Line]:
    """Who owns the page since when, and then what happened to it, in order.

    A page without a cache group is one of the host's.
    """
    yield "bold", f"page {page} of {_place(view, group, now)} {_standing(view, now, life)}"
    shown, num_hidden = _cut(life, limit)
    cells = [
        (
            f"{touch.seq:,}",
            f"step {touch.step:,}",
            clock(touch.time_ns),
            touch.event,
            printable(touch.text),
        )
        for touch in shown
    ]
    if cells:
        yield "", ""
    lines = aligned(cells, "rrrll")
    hole = f"{counted(num_hidden, 'touch', 'touches')} left out: use --all"
    behind = next((idx + 1 for idx, touch in enumerate(shown) if touch is life.origin), 0)
    seq = 0
    for idx, (touch, line) in enumerate(zip(shown, lines, strict=True)):
        yield from (("dim", f"  ...  {text}") for text in _unread(life, seq, touch.seq))
        if idx == behind and num_hidden:
            yield "dim", f"  ...  {hole}"
        yield "", line
        seq = touch.seq
    refused = _refused(view, group, page)
    if refused is not None:
        yield "red", refused.line
    for trouble in life.troubles:
        yield from noted("yellow", "not read: ", trouble)
    for note in view.notes:
        yield from noted("yellow", "note: ", note)


def _unread(life: PageLife, start: int, stop: int) -> Iterator[str]:
    for first, end in life.unread:
        if start < first <= stop:
            yield f"seqs {first:,} to {end - 1:,} were not read, and may tell more: use --all"


def _place(view: View, asked: GroupLayout | None, now: PageNow) -> str:
    """The group whose page it is, and the space where several groups share one."""
    if asked is None:
        return HOST
    layout = view.ledger.layout
    space = f"space {layout.spaces[asked.space_idx].name}"
    if now.group is None:
        return space
    name = layout.groups[now.group].name
    shared = sum(group.space_idx == asked.space_idx for group in layout.groups) > 1
    return f"{name}, in {space}," if shared else name


def _refused(view: View, group: GroupLayout | None, page: int) -> Refused | None:
    refused = refused_event(view)
    layout, space_idx = view.ledger.layout, None if group is None else group.space_idx
    named = refused is not None and names_page(refused.item.event, space_idx, page, layout)
    return refused if named else None


def _standing(view: View, now: PageNow, life: PageLife) -> str:
    if not now.in_use:
        return _free(view, life)
    since = _since(view, life)
    named = [
        f"{printable(holder)} (row {row})"
        for row, holder in zip(now.rows, now.holders, strict=True)
    ]
    more = len(named) - MAX_HOLDERS
    holders = ", ".join(named[:MAX_HOLDERS]) + (f" and {more} more" if more > 0 else "")
    if now.state is PageState.QUARANTINED:
        what = [f"pin {printable(pin)}" for pin in now.pins]
        what += [f"step {step} in flight" for step in now.steps]
        return f"is QUARANTINED: its owner is gone, {', '.join(what)} holds it; in use {since}"
    if now.state is PageState.CACHED:
        who = f"{holders} reference" + ("s it" if len(named) == 1 else " it")
        who = who if named else "nobody references it, it can be evicted"
        pinned = f", pinned by {', '.join(map(printable, now.pins))}" if now.pins else ""
        return f"is CACHED: {who}{pinned}; in use {since}"
    if now.waiting:
        who = ", ".join(f"request {printable(rid)}" for rid in now.waiting)
        return f"is {now.state.name}: the backup of {who} lies there {since}"
    if not named:
        return f"is {now.state.name}, and no row references it; in use {since}"
    return f"is {now.state.name}: {holders} own{'s' if len(named) == 1 else ''} it {since}"


def _since(view: View, life: PageLife) -> str:
    if life.origin is None:
        return f"since before seq {view.timeline.first_seq:,}, where the log begins to tell"
    origin = life.origin
    return f"since seq {origin.seq:,} (step {origin.step:,}, {clock(origin.time_ns)})"


def _free(view: View, life: PageLife) -> str:
    first = view.timeline.first_seq
    if not life.touches:
        where = f"from seq {first:,} " if first else ""
        return f"is FREE, and was never in use {where}up to seq {view.seq:,}"
    last = life.touches[-1]
    return f"is FREE: nobody owns it since seq {last.seq:,} (step {last.step:,}, {last.event})"


def _cut(life: PageLife, limit: int | None) -> tuple[Sequence[Touch], int]:
    """The origin of the present life and the last touches, and how many are left out."""
    touches = life.touches
    if limit is None or len(touches) <= limit:
        return touches, 0
    last = touches[len(touches) - limit :]
    origin = life.origin
    if origin is not None and all(touch is not origin for touch in last):
        last = (origin, *last[1:])
    return last, len(touches) - len(last)


def page_json(
    view: View, group: GroupLayout | None, page: int, now: PageNow, life: PageLife
) -> dict[str, object]:
    """The same as one object, with every touch that was read."""
    refused = _refused(view, group, page)
    return {
        "log": str(view.run.path),
        "seq": view.seq,
        "page": page,
        "group": None if now.group is None else view.ledger.layout.groups[now.group].name,
        "space": HOST if group is None else view.ledger.layout.spaces[group.space_idx].name,
        "state": now.state.name,
        "refs": now.refs,
        "pins": now.num_pins,
        "key": f"{now.key:016x}" if now.key else None,
        "holders": [
            {"row": row, "holder": holder}
            for row, holder in zip(now.rows, now.holders, strict=True)
        ],
        "waiting": list(now.waiting),
        "held_by_pins": list(now.pins),
        "held_by_steps": list(now.steps),
        "since": None if life.origin is None or not now.in_use else _touch_json(life.origin),
        "touches": [_touch_json(touch) for touch in life.touches],
        "refused": None if refused is None else refused.as_json,
        "unread": [list(part) for part in life.unread],
        "troubles": list(life.troubles),
        "notes": list(view.notes),
    }


def _touch_json(touch: Touch) -> dict[str, object]:
    return {
        "seq": touch.seq,
        "step": touch.step,
        "time_ns": touch.time_ns,
        "event": touch.event,
        "text": touch.text,
        "begins": touch.begins,
    }
