"""`make faults`: puts each fault into random places of simulated runs, and writes what was found.

The table stands in docs/faults.md. KVLIFE_SEED repeats the runs and the places; without it they are
new each time. Exit status 1 where a fault was missed, or found late or by another invariant.
"""

from __future__ import annotations

import argparse
import os
import re
import secrets
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from fault_runs import courses
from tables import DOCS, table

from kvlife.invariants import CATALOGUE
from kvlife.testing.faults import FAULTS, Tally, place_all

PAGE = DOCS / "faults.md"
MARKS = re.compile(r"(<!-- faults: (\w+) -->\n).*?(<!-- end of faults -->)", re.DOTALL)


def table_of_faults(tallies: Sequence[Tally]) -> str:
    """List each fault with what must find it and when, and at how many places that was so."""
    rows = [
        (
            f"`{tally.fault.name}`",
            tally.fault.kind.value,
            tally.fault.sentence,
            ", ".join(f"`{name}`" for name in tally.fault.fires),
            tally.fault.when.value,
            *(_share(num, tally) for num in (tally.caught, tally.rightly, tally.at_once)),
        )
        for tally in tallies
    ]
    head = ("fault", "kind", "what goes wrong", "must fire first", "at")
    return table((*head, "caught", "by the right invariant", "at that event"), rows)


def _share(num: int, tally: Tally) -> str:
    return f"{num} of {len(tally.verdicts)}"


def table_of_catchers() -> str:
    """List each invariant with the faults that it catches first, or why there are none."""
    first: Counter[str] = Counter()
    for fault in FAULTS.values():
        first.update(set(fault.fires))
    rows = [
        (f"`{inv.id}`", inv.kind, str(first[inv.id]) if inv.built else f"none: {inv.why_not}")
        for inv in CATALOGUE
    ]
    return table(("invariant", "kind", "faults that it catches first"), rows)


def summary(tallies: Sequence[Tally], seed: int, num_events: int) -> str:
    """Say in one paragraph what was done, and what came of it."""
    num = sum(len(tally.verdicts) for tally in tallies)
    caught, rightly, at_once = (
        sum(getattr(tally, name) for tally in tallies) for name in ("caught", "rightly", "at_once")
    )
    return (
        f"{len(tallies)} faults at {num} places of runs with {num_events} events, under seed"
        f" {seed}: caught {_percent(caught, num)}, first by the right invariant"
        f" {_percent(rightly, num)}, at the first event that is wrong in itself"
        f" {_percent(at_once, num)}.\n"
    )


def _percent(num: int, whole: int) -> str:
    return f"{num} ({100 * num / max(whole, 1):.4g}%)"


def show_failures(tallies: Sequence[Tally]) -> int:
    """Print each way in which a fault was not found as it must be; return how many there are."""
    wrong = 0
    for tally in tallies:
        if not tally.verdicts:
            print(f"{tally.fault.name}: applied nowhere")
            wrong += 1
        for verdict in tally.verdicts:
            if not (verdict.rightly and verdict.at_once):
                print(f"{tally.fault.name}: {verdict}")
                wrong += 1
    return wrong


def main() -> int:
    """Run all faults, print the table and write it into the docs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=200, help="random places for each fault")
    parser.add_argument("--requests", type=int, default=80, help="requests of each run")
    asked = parser.parse_args()
    seed = int(os.environ.get("KVLIFE_SEED", secrets.randbits(32)))
    print(f"KVLIFE_SEED={seed} repeats this")
    begun = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        runs = list(courses(Path(folder), asked.requests, seed))
    num_events = sum(len(run.items) for run in runs)
    print(f"{len(runs)} runs with {num_events} events, after {perf_counter() - begun:.0f} s")
    tallies = place_all(FAULTS.values(), runs, num_places=asked.places, seed=seed)
    parts = {
        "summary": summary(tallies, seed, num_events),
        "table": table_of_faults(tallies),
        "catchers": table_of_catchers(),
    }
    print(parts["table"], parts["summary"], f"{perf_counter() - begun:.0f} s in all", sep="\n")
    page = PAGE.read_text(encoding="utf-8")
    page = MARKS.sub(lambda found: found[1] + parts[found[2]] + found[3], page)
    PAGE.write_text(page, encoding="utf-8")
    return 1 if show_failures(tallies) else 0


if __name__ == "__main__":
    sys.exit(main())
