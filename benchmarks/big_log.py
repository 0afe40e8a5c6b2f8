"""A log of ten million events, made once, that the speed of the debugger is measured on.

Run `python benchmarks/big_log.py [FOLDER]`. Without a folder the log goes into a cache below the
temporary directory, and stays there; a log that is there already is not made again. The run is one
of the simulated scheduler: 256 running requests and more that wait, long answers, conversations,
streaming sessions, overlapped steps, aborts, evictions and retractions, on a pool that is full most
of the time. Nothing is checked while it is made, so that it takes minutes.

Other benchmarks call `big_log`.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from kvlife.engine import KvEngine
from kvlife.invariants import Checker
from kvlife.simulation import (
    Scheduler,
    SchedulerConfig,
    SteadyLog,
    SyntheticConfig,
    VirtualClock,
    generate,
    size_pools,
)

NUM_EVENTS = 10_000_000
NUM_PAGES = 65_536
# A request takes about 40 events; there must be enough of them.
EVENTS_PER_REQUEST = 25
REPORT_EVERY = 500_000


def big_log(num_events=NUM_EVENTS, num_pages=NUM_PAGES, folder=None):
    """The folder of such a log, which is made where it is not there yet."""
    if folder is None:
        cache = Path(tempfile.gettempdir()) / "kvlife-big-logs"
        folder = cache / f"{num_events}-events-{num_pages}-pages"
    if folder.exists():
        print(f"{folder}: is there already", file=sys.stderr)
        return folder
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    write_log(unfinished, num_events, num_pages)
    unfinished.rename(folder)
    return folder


def write_log(folder, num_events, num_pages):
    """Simulate into `folder` until so many events are in the log."""
    engine, scheduler = _begin(folder, num_events, num_pages)
    begun, reported = perf_counter(), 0
    while engine.ledger.next_seq < num_events:
        if not scheduler.advance():
            raise SystemExit(f"the workload ended after {engine.ledger.next_seq:,} events")
        if engine.ledger.next_seq - reported >= REPORT_EVERY:
            reported = engine.ledger.next_seq
            print(f"{reported:,} events, {perf_counter() - begun:.0f} s", file=sys.stderr)
    engine.close()
    tally = scheduler.tally
    print(
        f"{engine.ledger.next_seq:,} events in {perf_counter() - begun:.0f} s:"
        f" {tally.steps:,} steps, {tally.completed:,} requests completed,"
        f" {tally.aborts.total():,} aborted, {tally.sessions:,} sessions,"
        f" {tally.retractions:,} retractions; {engine.log.log_bytes / 1e6:,.0f} MB before"
        f" compression, {engine.log.disk_bytes / 1e6:,.0f} MB on the disk",
        file=sys.stderr,
    )


def _begin(folder, num_events, num_pages):
    # More pages get more requests, so that they do not lie idle.
    crowd = max(1, min(4, num_pages // NUM_PAGES))
    workload = generate(
        SyntheticConfig(
            num_requests=max(num_events // EVENTS_PER_REQUEST, 1000),
            seed=1,
            conversations_per_s=2.3 * crowd,
            turns_mean=3.0,
            answer_len_median=1200,
        )
    )
    config = SchedulerConfig(
        max_running=256 * crowd, overlap=True, session_rate=0.2, abort_rate=0.03, seed=1
    )
    clock = VirtualClock()
    engine = KvEngine(
        size_pools(workload, config, page_size=16, num_pages=num_pages),
        log=SteadyLog(folder, clock_ns=clock),
        checker=Checker(level="off"),
        key_seed=1,
        clock=clock,
    )
    return engine, Scheduler(engine, workload, config, clock=clock)


def main():
    """Make the log that the arguments ask for, and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path, nargs="?", help="where it goes; must not exist")
    parser.add_argument("--events", type=int, default=NUM_EVENTS)
    parser.add_argument("--pages", type=int, default=NUM_PAGES, help="of the pool")
    options = parser.parse_args()
    print(big_log(options.events, options.pages, options.folder))


if __name__ == "__main__":
    main()
