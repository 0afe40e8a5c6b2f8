"""What a state holds for machines, as plain objects: whole, or of one row, pin or moment."""

from __future__ import annotations

import attrs
import numpy as np

from kvlife.ledger import RowState
from kvlife.replay.history.view import View
from kvlife.replay.holding.holdings import KINDS, Holdings


def state_json(view: View, holdings: Holdings, sort: str) -> dict[str, object]:
    """The state as one object; all rows and books are in it."""
    ledger = view.ledger
    return {
        **view_json(view),
        "pages": {
            group.name: {
                name: attrs.asdict(count) for name, count in holdings.kinds(group.idx).items()
            }
            for group in ledger.layout.groups
        },
        "space_pages": {
            space.name: {
                name: attrs.asdict(count) for name, count in holdings.space_kinds(space.idx).items()
            }
            for space in ledger.layout.spaces
        },
        "kinds": list(KINDS),
        "host_pages": host_json(holdings),
        "rows": [row_json(view, holdings, place) for place in holdings.order(sort).tolist()],
        "rows_free": int(np.count_nonzero(ledger.rows.state == RowState.FREE)),
        "sessions": {name: attrs.asdict(held) for name, held in ledger.sessions.items()},
        "waiting": {
            rid: {
                "prompt_len": left.prompt_len,
                "committed_len": left.committed_len,
                "host_pages": None if left.backup is None else left.backup.tolist(),
                "since_seq": left.seq,
            }
            for rid, left in ledger.waiting.items()
        },
        "pins": {name: pin_json(view, name) for name in ledger.pins},
        "steps": [
            {"step": step, "rows": opened.rows.tolist(), "since_seq": opened.seq}
            for step, opened in ledger.steps.items()
        ],
        "lost_pages": holdings.lost.num_pages,
        "lost_holders": len(holdings.lost.holders),
    }


def host_json(holdings: Holdings) -> dict[str, int] | None:
    """The host's pages by what they are, page 0 left out; None without a host space."""
    return None if holdings.host is None else attrs.asdict(holdings.host)


def view_json(view: View) -> dict[str, object]:
    """Which state is shown, and of which run."""
    run, layout = view.run, view.ledger.layout
    return {
        "log": str(run.path),
        "seq": view.seq,
        "step": None if view.last is None else view.last.step,
        "time_ns": None if view.last is None else view.last.time_ns,
        "run": view.outcome,
        "notes": list(view.notes),
        "level": run.header.level,
        "policies": dict(run.header.policies),
        "groups": [attrs.asdict(group) for group in layout.groups],
        "spaces": [attrs.asdict(space) for space in layout.spaces],
    }


def row_json(view: View, holdings: Holdings, place: int) -> dict[str, object]:
    """The row at a place of `holdings.rows`."""
    row, columns = int(holdings.rows[place]), view.ledger.rows
    record = view.ledger.row_record(row)
    return {
        "row": row,
        "state": RowState(int(columns.state[row])).name,
        "request": columns.rid[row],
        "session": columns.session[row],
        "pages": {
            group.name: int(counts[place])
            for group, counts in zip(view.ledger.layout.groups, holdings.group_pages, strict=True)
        },
        "protected_len": record.cache_protected_len,
        "committed_len": record.kv_committed_len,
        "allocated_len": record.kv_allocated_len,
        "settled_len": record.settled_len,
        "prompt_len": record.prompt_len,
        "evict_floor": record.swa_evict_floor,
        "cursors": list(record.swa_evicted_seqlens),
        "in_flight": int(columns.in_flight[row]),
        "last_seq": int(columns.last_event[row]),
        "pages_since_seq": int(holdings.since[place]),
    }


def pin_json(view: View, name: str) -> dict[str, object]:
    """A pin that is open."""
    pin = view.ledger.pins[name]
    return {
        "kind": pin.kind,
        "writes": pin.writes,
        "owner": pin.owner,
        "group": view.ledger.layout.groups[pin.group].name,
        "pages": pin.pages.tolist(),
        "since_seq": pin.seq,
    }
