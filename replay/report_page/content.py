"""What the charts of a report are drawn from: one JSON object of a bounded size."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from kvlife.config import Layout
from kvlife.replay.output.quoting import printable
from kvlife.replay.replaying.outcome import Outcome
from kvlife.replay.report_page.columns import Count, Level, PageUse, names_of_spaces
from kvlife.replay.report_page.heat_map import FIRST_HOLDER, HeatMap
from kvlife.replay.report_page.watcher import Watcher

Json = dict[str, Any]  # Any: JSON

# The names of holders may take so much of the page; those that show in the fewest cells go first.
MAX_NAME_BYTES = 400_000
MAX_MARKED = 500


def content_of(watcher: Watcher, outcome: Outcome, layout: Layout) -> Json:
    """All that the charts show; nothing in it grows with the log."""
    axis, tally, stop = watcher.axis, watcher.tally, watcher.reached + 1
    maps = {idx: heat_map.cells() for idx, heat_map in watcher.maps.items()}
    return {
        "axis": {
            "kind": axis.kind,
            "start": axis.start,
            "stop": axis.stop,
            "columns": axis.num_columns,
        },
        "levels": _by_name(Level, watcher.columns.levels, stop),
        "counts": _by_name(Count, watcher.columns.counts, stop - 1),
        "spaces": [
            {
                "name": name,
                "uses": _by_name(PageUse, watcher.columns.pages[idx], stop),
                "lifetimes": tally.lives[idx].lifetimes.as_json(),
                "reuse_gaps": tally.lives[idx].reuse_gaps.as_json(),
                "map": None if idx not in maps else _map(watcher.maps[idx], *maps[idx], stop - 1),
            }
            for idx, name in enumerate(names_of_spaces(layout))
        ],
        "stays": tally.tenures.stays.as_json(),
        "holders": _names(watcher.holders.names, [cells for cells, _ in maps.values()]),
        "violations": _violations(watcher, outcome),
        "notes": [[column, seq, printable(note)] for column, seq, note in tally.notes],
    }


def _by_name(names: Any, rows: npt.NDArray[np.int64], stop: int) -> Mapping[str, list[int]]:
    # Any: an enum of the rows, which mypy does not let one iterate over as a parameter
    return {name.name.lower(): rows[name, :stop].tolist() for name in names}


def _map(
    heat_map: HeatMap, cells: npt.NDArray[np.uint16], shares: npt.NDArray[np.uint8], stop: int
) -> Json:
    return {
        "bands": cells.shape[0],
        "columns": stop,
        "pages_per_band": heat_map.per_band,
        "num_pages": heat_map.num_pages,
        "cells": _packed(cells[:, :stop].astype("<u2")),
        "shares": _packed(shares[:, :stop]),
    }


def _packed(values: npt.NDArray[Any]) -> str:  # Any: any dtype
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")


def _names(names: list[str], cells: list[npt.NDArray[np.uint16]]) -> list[str | None]:
    """The names by number; None for those that there is no room for."""
    shown = np.zeros(FIRST_HOLDER + len(names) + 1, np.int64)
    for part in cells:
        counts = np.bincount(np.minimum(part.ravel(), shown.size - 1), minlength=shown.size)
        shown += counts
    room = MAX_NAME_BYTES
    kept: list[str | None] = [None] * len(names)
    for number in np.argsort(-shown[FIRST_HOLDER:-1], kind="stable").tolist():
        shown_name = printable(names[number])
        room -= len(shown_name.encode("utf-8", "replace")) + 3
        if room < 0:
            break
        kept[number] = shown_name
    return kept


def _violations(watcher: Watcher, outcome: Outcome) -> list[list[object]]:
    """Column, seq, id and kind of event of each violation that was kept."""
    seqs = watcher.columns.levels[Level.NEXT_SEQ, 1 : watcher.reached + 1]
    return [
        [
            min(int(np.searchsorted(seqs, found.seq, side="right")), max(watcher.reached - 1, 0)),
            found.seq,
            found.id,
            found.event or "an audit",
        ]
        for found in outcome.found[:MAX_MARKED]
    ]
