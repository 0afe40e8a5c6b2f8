"""Memory of a large ledger, events at any size of pool and log, the longest wait of a command."""

import statistics
import sys
import tempfile
import time
import tracemalloc

import numpy as np
from measure import report

from kvlife import Checker, KvEngine, LogWriter, Observer, PoolConfig
from kvlife.events import Marked
from kvlife.ledger import Ledger

PAGE_SIZE = 16
PAIRS = 15


def ledger_megabytes():
    """Memory of 1,000,000 pages and 4,096 rows of 131,072 tokens, every cell touched."""
    tracemalloc.start()
    ledger = Ledger(
        PoolConfig(
            page_size=PAGE_SIZE,
            num_pages=1_000_000,
            max_requests=4_096,
            max_context_len=131_072,
        )
    )
    for table in ledger.tables:
        table.fill(1)
    for space in ledger.spaces:
        for name in ("state", "group", "refs", "pins", "key", "link", "last_use", "last_event"):
            getattr(space, name).fill(1)
        space.free.slots.fill(1)
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return used / 1e6


def engine_of(num_pages, log=None):
    """An engine with a quarter of its pages in use by one row, and one row to work with."""
    config = PoolConfig(
        page_size=PAGE_SIZE,
        num_pages=num_pages,
        max_requests=8,
        max_context_len=num_pages * PAGE_SIZE,
    )
    engine = KvEngine(config, log=log, checker=Checker(), key_seed=1)
    engine.admit("large", [1])
    engine.allocate(["large"], [num_pages // 4 * PAGE_SIZE])
    engine.commit(["large"])
    engine.admit("small", [2])
    return engine


def touching(engine):
    """One event that takes 64 pages and one that gives them back; returns the mean seconds."""
    begun = time.perf_counter()
    for _ in range(20):
        engine.allocate(["small"], [64 * PAGE_SIZE])
        engine.roll_back(["small"], [0])
    return (time.perf_counter() - begun) / 40


def in_turns(left, right):
    """Median and quartiles of left / right, measured in turns."""
    for engine in (left, right):
        touching(engine)
    ratios = [touching(left) / touching(right) for _ in range(PAIRS)]
    quarters = statistics.quantiles(ratios, n=4)
    return statistics.median(ratios), quarters[0], quarters[2]


def grown_log(folder, num_events):
    """An engine whose log holds that many events."""
    engine = engine_of(65_536, LogWriter(folder))
    note = Marked("filler", idle=False)
    group = [note] * 1000
    while engine.next_seq < num_events:
        Observer.observe(engine, *group)
    return engine


def longest_wait_ms(folder):
    """The longest snapshot and the longest append, at 1,000,000 pages with 100,000 index nodes."""
    log = LogWriter(folder)
    engine = KvEngine(
        PoolConfig(
            page_size=PAGE_SIZE, num_pages=1_000_000, max_requests=256, max_context_len=4096
        ),
        log=log,
        checker=Checker(level="off"),
        key_seed=1,
    )
    waits = {"snapshot": [], "append": []}
    timed(log, "snapshot", waits["snapshot"])
    timed(log, "append", waits["append"])
    snap = engine.ledger.snapshot
    engine.ledger.snapshot = lambda: timed_call(snap, waits["snapshot"])
    tokens = np.arange(160, dtype=np.int32)
    for idx in range(100_000):
        tokens[:8] = idx
        rid = f"r{idx}"
        engine.admit(rid, tokens)
        engine.allocate([rid], [160])
        engine.commit([rid])
        engine.finish(rid, tokens)
    nodes = engine.index.num_nodes
    engine.close()
    return {name: 1e3 * max(found) for name, found in waits.items()}, nodes


def timed_call(call, found, *args):
    """Call, and note the seconds it took."""
    begun = time.perf_counter()
    result = call(*args)
    found.append(time.perf_counter() - begun)
    return result


def timed(log, name, found):
    """Let a method of the log note how long each call takes."""
    method = getattr(log, name)
    setattr(log, name, lambda *args: timed_call(method, found, *args))


def main():
    """Print the figures; exit 1 if a bar is not met."""
    used = ledger_megabytes()
    met = report("ledger, 1,000,000 pages, 4,096 rows (MB)", (used, used, used), 170)
    small, large = engine_of(1_000), engine_of(1_000_000)
    met &= report("64 pages: pool of 1,000,000 to 1,000", in_turns(large, small), 1.2)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        short, long = grown_log(first, 10_000), grown_log(second, 10_000_000)
        met &= report("64 pages: log of 10,000,000 to 10,000", in_turns(long, short), 1.2)
        short.close()
        long.close()
    with tempfile.TemporaryDirectory() as folder:
        waits, nodes = longest_wait_ms(folder)
    print(f"index nodes: {nodes}")
    for name, wait in waits.items():
        met &= report(f"longest {name} (ms)", (wait, wait, wait), 5.0)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
