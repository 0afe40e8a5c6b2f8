"""Draws docs/report.png: parts of the report of a simulated run in which a release forgets a page.

Run `make picture`. It needs a Chromium (`make browser`).
"""

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import attrs
from browser import chromium, find_chromium

from kvlife import Checker, LogWriter, Observer
from kvlife.events import Event, Recorded, Released
from kvlife.log import open_run
from kvlife.replay.cli import FOUND, main

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "report.png"
SIMULATE = "simulate --synthetic 900 --num-pages 1536 --seed 7 --abort-rate 0.03"
# The fault comes behind this part of the events.
PLACE = 0.7
WIDTH = 1120
# What the picture leaves out, so that it stays small.
SHOWN = """
section:not(.verdict):not(:has([data-chart="pages"])):not(:has([data-chart="map"])), footer {
    display: none;
}
main { padding-bottom: 24px; }
"""


def forgetful(group: list[Recorded]) -> list[Event] | None:
    """The events of a group, with one page less in a release; None where it has no such release."""
    events = [item.event for item in group]
    for number, event in enumerate(events):
        if isinstance(event, Released) and event.reason == "finished" and event.pages[0].size > 4:
            events[number] = attrs.evolve(event, pages=(event.pages[0][:-1], *event.pages[1:]))
            return events
    return None


def with_fault(sound: Path, faulty: Path) -> None:
    """Report the facts of a run once more, up to the end, with a fault in one of them."""
    run = open_run(sound)
    now = 0
    checker = Checker(policy="collect")
    observer = Observer(
        run.header.config, log=LogWriter(faulty), checker=checker, clock=lambda: now
    )
    is_done = False
    for group in run.groups():
        now, observer.step = group[0].time_ns, group[0].step
        late = group[0].seq > PLACE * run.next_seq
        changed = forgetful(group) if late and not is_done else None
        is_done = is_done or changed is not None
        observer.observe(*(changed or [item.event for item in group]))
    observer.close()


def draw(folder: Path, browser: str) -> bytes:
    """Simulate, report and take the picture."""
    sound, faulty, page = folder / "sound", folder / "faulty", folder / "report.html"
    with contextlib.redirect_stdout(io.StringIO()):
        main([*SIMULATE.split(), "--log", str(sound), "--json"])
        with_fault(sound, faulty)
        status = main(["report", str(faulty), "-o", str(page), "--json"])
    if status != FOUND:
        sys.exit("the fault of the picture was not found")
    with chromium(browser) as opened:
        opened.look(width=WIDTH)
        opened.open(page)
        opened.value(
            "document.head.append(Object.assign(document.createElement('style'),"
            f" {{textContent: `{SHOWN}`}}))"
        )
        if opened.troubles:
            sys.exit(f"the page has errors: {opened.troubles}")
        return opened.screenshot()


def run() -> None:
    """Draw the picture, and say how large it is."""
    browser = find_chromium()
    if browser is None:
        sys.exit("no Chromium: run `make browser`, or name one: KVLIFE_CHROMIUM=/path/to/chromium")
    with tempfile.TemporaryDirectory() as folder:
        PICTURE.write_bytes(draw(Path(folder), browser))
    print(f"{PICTURE}: {PICTURE.stat().st_size:,} bytes")


if __name__ == "__main__":
    run()
