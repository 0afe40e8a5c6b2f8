"""One row, request or session of a state, in full; or why it is not there."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Self

import attrs
import numpy as np

from kvlife.errors import ConfigError
from kvlife.events import Recorded
from kvlife.invariants.effect import holder_of
from kvlife.ledger import PageState, RowState
from kvlife.records import ReqKvInfo
from kvlife.replay.history.view import View
from kvlife.replay.history.whence import bindings, events_at, where_named
from kvlife.replay.holding.inspect_json import pin_json, view_json
from kvlife.replay.holding.inspect_state import run_lines
from kvlife.replay.output.columns import (
    Line,
    Signs,
    counted,
    duration,
    ladder_bar,
    noted,
    ranges,
    window_bar,
)
from kvlife.replay.output.event_json import item_json
from kvlife.replay.output.quoting import printable

BAR = 72


@attrs.frozen
class Subject:
    """What is asked for: `kind` is row, request or session."""

    kind: str
    name: str | int

    @classmethod
    def of(cls, **named: str | int | None) -> Self | None:
        """The one that is named; None where none is, `ConfigError` where several are."""
        given = [(kind, name) for kind, name in named.items() if name is not None]
        if len(given) > 1:
            options = " and ".join(f"--{kind}" for kind, _name in given)
            raise ConfigError(f"{options} exclude each other: name one")
        return cls(*given[0]) if given else None

    def __str__(self) -> str:
        return f"{self.kind} {printable(str(self.name))}"


@attrs.frozen(kw_only=True)
class Held:
    """A subject that was found: its row, or None for a request that waits."""

    subject: Subject
    row: int | None
    bound: Recorded | None
    touched: Recorded | None


def find_subject(view: View, subject: Subject) -> Held:
    """Raises `ConfigError` where the state has no such row, request or session."""
    row = _row_of(view, subject)
    rid = subject.name if row is None else view.ledger.rows.rid[row]
    if row is None:
        seq = view.ledger.waiting[str(rid)].seq
        event = events_at(view.run, [seq]).get(seq)
        return Held(subject=subject, row=None, bound=event, touched=event)
    last = int(view.ledger.rows.last_event[row])
    bound = None if rid is None else bindings(view.run, {str(rid): last}).get(str(rid))
    session = view.ledger.sessions.get(view.ledger.rows.session[row] or "")
    if bound is None and session is not None:
        bound = events_at(view.run, [session.seq]).get(session.seq)
    return Held(
        subject=subject, row=row, bound=bound, touched=events_at(view.run, [last]).get(last)
    )


def _row_of(view: View, subject: Subject) -> int | None:
    ledger, name = view.ledger, subject.name
    if isinstance(name, int):
        if not 0 < name < ledger.layout.num_rows:
            raise ConfigError(f"no row {name}: the rows are 1 to {ledger.layout.num_rows - 1}")
        if ledger.rows.state[name] == RowState.FREE:
            used = ledger.rows.in_use()
            which = ranges(used[:20].tolist()) or "none"
            more = f" and {used.size - 20} more" if used.size > 20 else ""
            raise ConfigError(f"row {name} is FREE {view.moment}; in use: {which}{more}")
        return name
    if subject.kind == "request":
        if name in ledger.requests:
            return ledger.requests[name]
        if name in ledger.waiting:
            return None
        known = [*ledger.requests, *ledger.waiting]
    else:
        if name in ledger.sessions:
            return ledger.sessions[name].row
        known = list(ledger.sessions)
    raise ConfigError(_not_there(view, subject, known))


def _not_there(view: View, subject: Subject, known: list[str]) -> str:
    told = f"no {subject} {view.moment}"
    named = where_named(view.run, subject.kind, str(subject.name))
    if named.first is not None:
        seqs = f"from seq {named.first} to {named.last}"
        return f"{told}; the log names it {seqs}: give --at a seq in between"
    told += ", nor anywhere in the log" if named.whole else ", nor where it was looked for"
    near = difflib.get_close_matches(str(subject.name), known, n=3, cutoff=0.5)
    return f"{told}; near it are {', '.join(map(printable, near))}" if near else told


def subject_lines(view: View, held: Held, signs: Signs) -> Iterator[Line]:
    """The subject in lines."""
    yield "bold", f"{held.subject} of {printable(str(view.run.path))}, {view.moment}"
    yield from run_lines(view)
    yield "", ""
    if held.row is None:
        yield from _waiting_lines(view, held)
        return
    ledger, row = view.ledger, held.row
    columns, record = ledger.rows, ledger.row_record(row)
    state = RowState(int(columns.state[row])).name
    yield "", f"row         {row}, {state}: {printable(holder_of(ledger, row))}"
    yield "", f"bound       {_event_words(view, held.bound)}"
    yield "", f"last event  {_event_words(view, held.touched)}"
    flying = int(columns.in_flight[row])
    newest = f", the newest is step {columns.newest_step[row]}" if flying else ""
    yield "", f"in flight   {counted(flying, 'step')}{newest}"
    yield (
        "",
        (
            f"lengths     protected {record.cache_protected_len:,}, committed"
            f" {record.kv_committed_len:,}, allocated {record.kv_allocated_len:,} tokens;"
            f" prompt {record.prompt_len:,}, settled {record.settled_len:,}"
        ),
    )
    yield from _drawn(view, record, signs)
    for group in ledger.layout.groups:
        yield from _group_lines(view, row, group.idx)
    session = ledger.sessions.get(columns.session[row] or "")
    if session is not None:
        name = printable(columns.session[row] or "")
        yield (
            "",
            f"session     {name}: {counted(session.num_turns, 'turn')}, kept {session.kept_len:,}",
        )
    for name in _pins_of(view, row):
        pin = ledger.pins[name]
        yield "", f"pin         {printable(name)}: {printable(pin.kind)}, since seq {pin.seq}"


def _drawn(view: View, record: ReqKvInfo, signs: Signs) -> Iterator[Line]:
    scale = max(record.kv_allocated_len, record.kv_committed_len, record.cache_protected_len, 1)
    bar = ladder_bar(record, scale, BAR, signs)
    yield "", f"            {bar}"
    windows = zip(view.ledger.layout.window_groups, record.swa_evicted_seqlens, strict=True)
    for group, cursor in windows:
        floor = record.swa_evict_floor
        told = f"{group.name}: window {group.window:,}, cursor {cursor:,}, floor {floor:,}"
        yield "", f"            {window_bar(bar, floor, cursor, scale, BAR, signs)}"
        yield "", f"            {told}"
    told = f"{signs.protected} protected  {signs.committed} committed  {signs.allocated} allocated"
    yield "dim", f"            {told}; {scale:,} tokens wide"


def _group_lines(view: View, row: int, group_idx: int) -> Iterator[Line]:
    """The pages of the row in one group, as runs of entries whose pages are in the same state."""
    group = view.ledger.layout.groups[group_idx]
    space = view.ledger.spaces[group.space_idx]
    pages = view.ledger.pages_of(row, group_idx)
    yield "", ""
    held = counted(int(np.count_nonzero(pages)), "page")
    yield "", f"{group.name:<12}{held} of {counted(group.page_size, 'token')}"
    state = np.where(pages > 0, space.state[pages], 255).astype(np.int64)
    shared = np.where(pages > 0, space.refs[pages], 0).astype(np.int64)
    pinned = np.where(pages > 0, space.pins[pages], 0).astype(np.int64)
    kind = (state << 48) | (np.minimum(shared, (1 << 24) - 1) << 24) | pinned
    starts = np.flatnonzero(np.diff(kind, prepend=-1))
    for low, high in zip(starts.tolist(), [*starts[1:].tolist(), pages.size], strict=False):
        first, last = low * group.page_size, high * group.page_size
        where = f"  [{first:,}, {last:,})"
        if state[low] == 255:
            yield "dim", f"{where}  not referenced"
            continue
        name = PageState(int(state[low])).name if state[low] < len(PageState) else "no state"
        held = f"refs {shared[low]}" + (f", pins {pinned[low]}" if pinned[low] else "")
        yield from noted("", f"{where}  {name}, {held}: pages ", ranges(pages[low:high].tolist()))
        keys = space.key[pages[low:high]]
        if keys.any():
            yield "dim", f"      keys {_ends([f'{key:016x}' for key in keys.tolist()])}"
        seqs = space.last_event[pages[low:high]].astype(np.int64) + view.ledger.seq_base
        yield "dim", f"      last events: seq {seqs.min()} to {seqs.max()}"


def _ends(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 4 else f"{names[0]}, {names[1]} ... {names[-1]}"


def _waiting_lines(view: View, held: Held) -> Iterator[Line]:
    left = view.ledger.waiting[str(held.subject.name)]
    yield "", f"waits       retracted, without a row: {_event_words(view, held.bound)}"
    yield (
        "",
        f"lengths     prompt {left.prompt_len:,}, committed {left.committed_len:,} at that time",
    )
    if left.backup is None:
        yield "", "backup      none: its KV is computed again, but for what the cache still has"
    else:
        yield from noted("", "host pages  ", ranges(left.backup.tolist()))


def _pins_of(view: View, row: int) -> list[str]:
    """Pins that the row's request owns, or that hold one of its pages."""
    ledger, rid = view.ledger, view.ledger.rows.rid[row]
    return [
        name
        for name, pin in ledger.pins.items()
        if (pin.owner is not None and pin.owner == rid)
        or np.isin(ledger.pages_of(row, pin.group), pin.pages).any()
    ]


def _event_words(view: View, item: Recorded | None) -> str:
    if item is None:
        return "not in the log, or too far back"
    ago = duration(view.since(item.time_ns))
    return f"seq {item.seq}, step {item.step}, {ago} ago: {type(item.event).__name__}"


def subject_json(view: View, held: Held) -> dict[str, object]:
    """The subject as one object."""
    found: dict[str, object] = {
        **view_json(view),
        "subject": {"kind": held.subject.kind, "name": held.subject.name},
        "bound": item_json(held.bound),
        "last_event": item_json(held.touched),
    }
    ledger, row = view.ledger, held.row
    if row is None:
        left = ledger.waiting[str(held.subject.name)]
        backup = None if left.backup is None else left.backup.tolist()
        lengths = {"prompt_len": left.prompt_len, "committed_len": left.committed_len}
        return found | {"waiting": lengths | {"host_pages": backup, "since_seq": left.seq}}
    session = ledger.sessions.get(ledger.rows.session[row] or "")
    return found | {
        "row": row,
        "state": RowState(int(ledger.rows.state[row])).name,
        "request": ledger.rows.rid[row],
        "session": ledger.rows.session[row],
        "turns": None if session is None else session.num_turns,
        "generation": int(ledger.rows.generation[row]),
        "in_flight": int(ledger.rows.in_flight[row]),
        "namespace": f"{int(ledger.rows.namespace[row]):016x}",
        "record": attrs.asdict(ledger.row_record(row)),
        "pages": {group.name: _pages_json(view, row, group.idx) for group in ledger.layout.groups},
        "pins": {name: pin_json(view, name) for name in _pins_of(view, row)},
    }


def _pages_json(view: View, row: int, group_idx: int) -> list[dict[str, object]]:
    group = view.ledger.layout.groups[group_idx]
    space = view.ledger.spaces[group.space_idx]
    return [
        {
            "table_idx": idx,
            "page": page,
            "state": PageState(int(space.state[page])).name,
            "refs": int(space.refs[page]),
            "pins": int(space.pins[page]),
            "key": f"{int(space.key[page]):016x}",
            "last_seq": int(space.last_event[page]) + view.ledger.seq_base,
        }
        for idx, page in enumerate(view.ledger.pages_of(row, group_idx).tolist())
        if page
    ]
