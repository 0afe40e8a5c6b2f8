"""`make docs`: writes the tables that stand in docs/ again, from the code that they describe.

A page holds a table between `<!-- table: NAME -->` and `<!-- end of table -->`. With `--check`
nothing is written, and a table that differs from the code is an error.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from kvlife import CacheGroup, PoolConfig, events
from kvlife.config import compile_layout
from kvlife.invariants import table_of_invariants
from kvlife.replay.exporting.columns import LIFE_COLUMNS, REQUEST_COLUMNS, Column
from kvlife.replay.exporting.events_table import events_columns
from kvlife.replay.finding.metrics import table_of_metrics

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLE = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Lay out a Markdown table; a bar inside a cell is escaped."""
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    cells = ([cell.replace("|", "\\|").replace("\n", " ") for cell in line] for line in lines)
    return "".join(f"| {' | '.join(line)} |\n" for line in cells)


def table_of_events() -> str:
    """List each event with its code and what it does."""
    rows = [
        (f"`{event.__name__}`", str(event.CODE), inspect.getdoc(event) or "")
        for event in events.EVENT_TYPES
    ]
    return table(("event", "code", "what it does"), rows)


def table_of_fields() -> str:
    """List each field of each event with its kind and meaning."""
    rows = [
        (f"`{event.__name__}`", f"`{field.name}`", field.kind.value, field.doc)
        for event in events.EVENT_TYPES
        for field in events.FIELDS[event]
    ]
    return table(("event", "field", "kind", "meaning"), rows)


def table_of_columns(columns: Iterable[Column]) -> str:
    """List each column of an exported table."""
    rows = [(f"`{column.name}`", column.kind.value, column.doc) for column in columns]
    return table(("column", "type", "meaning"), rows)


def table_of_event_columns() -> str:
    """List those of the table of events, for pools of two groups."""
    groups = (CacheGroup("full"), CacheGroup("swa", window=16))
    config = PoolConfig(
        page_size=16, num_pages=2, max_requests=1, max_context_len=16, groups=groups
    )
    return table_of_columns(events_columns(compile_layout(config)))


TABLES: dict[str, Callable[[], str]] = {
    "event-columns": table_of_event_columns,
    "events": table_of_events,
    "fields": table_of_fields,
    "invariants": table_of_invariants,
    "life-columns": lambda: table_of_columns(LIFE_COLUMNS),
    "metrics": table_of_metrics,
    "request-columns": lambda: table_of_columns(REQUEST_COLUMNS),
}


def rewritten(page: str) -> str:
    """Return the page with each of its tables made anew; an unknown name is a `KeyError`."""
    return TABLE.sub(lambda found: found[1] + TABLES[found[2]]() + found[3], page)


def main() -> int:
    """Rewrite the pages, or check them; 1 where a check finds a difference."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, report differences")
    check = parser.parse_args().check
    num_tables = 0
    stale = []
    for path in sorted(DOCS.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        num_tables += len(TABLE.findall(page))
        if rewritten(page) != page:
            stale.append(path.name)
            if not check:
                path.write_text(rewritten(page), encoding="utf-8")
    outcome = "not what the code says, run `make docs`" if check else "written again"
    print(f"{num_tables} tables in docs/; {outcome}: {', '.join(stale) or 'none'}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
