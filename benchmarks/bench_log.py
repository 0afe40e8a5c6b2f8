"""The log against its bars: bytes a token, time an append and a read, waits at a new segment.

Run `python benchmarks/bench_log.py`. A step of decoding is two appends, `Allocated` and
`Committed`; the pages of its crossings are at random places, so that no list of pages is a run.
Times are the thread's own, so that what else the machine does counts little. They stand beside
ratios to "the loop": for each of N slotted objects, add 1 to two fields, on a page crossing take a
page from a list and append it to the object's table, and return the slot.
"""

import shutil
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import thread_time_ns

import numpy as np
from measure import ratio, report

from kvlife.config import PoolConfig
from kvlife.events import Allocated, Committed
from kvlife.log import LogWriter, RunHeader, open_run

PAGE_SIZE = 16
NUM_PAGES = 65_536
NUM_STEPS = 400
CONFIG = PoolConfig(
    page_size=PAGE_SIZE, num_pages=NUM_PAGES, max_requests=4096, max_context_len=131_072
)
APPEND_BARS_US = {256: 4.0, 4096: 8.0}
READ_BAR_US = 6.0
BYTES_BARS = {16: 6.0, 256: 0.8}
WAIT_BAR_MS = 5.0


class Request:
    """What the loop keeps of one request."""

    __slots__ = ("allocated", "committed", "table")

    def __init__(self, length):
        self.allocated = self.committed = length
        self.table = []


def the_loop(num):
    """The least that bookkeeping with an object for each request does in one step."""
    lengths = np.random.default_rng(1).integers(1, 5000, num).tolist()
    requests = [Request(length) for length in lengths]
    free = list(range(1 << 20))

    def step():
        if len(free) < num:
            free.extend(range(1 << 20))
        slots = []
        for request in requests:
            length = request.allocated
            if not length % PAGE_SIZE:
                request.table.append(free.pop())
            request.allocated = length + 1
            request.committed += 1
            slots.append(length)
        return slots

    return step


def decode_steps(num, num_steps):
    """The events of so many steps over one batch."""
    random = np.random.default_rng(2)
    rows = fixed(np.arange(1, num + 1))
    lengths = random.integers(1, 5000, num)
    steps = []
    for _ in range(num_steps):
        crossing = int((lengths % PAGE_SIZE == 0).sum())
        lengths = lengths + 1
        now = fixed(lengths)
        pages = fixed(random.integers(1, NUM_PAGES, crossing))
        steps.append(([Allocated(rows, now, (pages,))], [Committed(rows, now)]))
    return steps


def fixed(values):
    """A read-only int32 array."""
    array = np.array(values, np.int32)
    array.setflags(write=False)
    return array


class Appending:
    """Appends the steps one after another, over and over, as a decode loop does."""

    def __init__(self, folder, num):
        self.writer = LogWriter(folder)
        self.run = self.writer.start(RunHeader(config=CONFIG))
        self.steps = decode_steps(num, NUM_STEPS)
        self.seq = self.step = 0

    def __call__(self):
        allocated, committed = self.steps[self.step % NUM_STEPS]
        time_ns = self.step * 8_000_000
        self.writer.append(self.seq, self.step, time_ns, allocated)
        self.writer.append(self.seq + 1, self.step, time_ns + 3_000_000, committed)
        self.seq += 2
        self.step += 1


def own_us(call, turns=15):
    """Median and quartiles of the thread's own time for a call, in us."""
    times = []
    for _ in range(turns):
        begun = thread_time_ns()
        for _ in range(NUM_STEPS):
            call()
        times.append((thread_time_ns() - begun) / NUM_STEPS / 1e3)
    quarters = quantiles(times, n=4)
    return median(times), quarters[0], quarters[2]


def bench_appends(folder, num):
    """An append's time, two appends against one step of the loop, and what a token takes."""
    append, loop = Appending(folder, num), the_loop(num)
    met = True
    if num in APPEND_BARS_US:
        each = tuple(time_us / 2 for time_us in own_us(append))
        met = report(f"us an append, N = {num}", each, APPEND_BARS_US[num])
        middle, low, high = ratio(append, loop, pairs=9, repeat=NUM_STEPS)
        print(f"{f'two appends / the loop, N = {num}':58s} {middle:7.3f}  [{low:.3f}, {high:.3f}]")
    for _ in range(NUM_STEPS):
        append()
    if num in BYTES_BARS:
        size = append.writer.log_bytes / append.step / num
        met &= report(f"bytes a decoded token, N = {num}", (size, size, size), BYTES_BARS[num])
    append.writer.close()
    return met


def bench_reads(folder):
    """The time of reading one event."""
    append = Appending(folder, 256)
    for _ in range(10 * NUM_STEPS):
        append()
    append.writer.close()
    events = iter(open_run(append.run).events())
    return report("us an event read, N = 256", own_us(lambda: next(events)), READ_BAR_US)


def bench_waits(folder):
    """The longest time that an append which changes segments keeps its thread busy."""
    append = Appending(folder, 4096)
    waits = []
    while len(waits) < 5:
        place = append.writer._run.tape.idx
        begun = thread_time_ns()
        append()
        if append.writer._run.tape.idx != place:
            waits.append((thread_time_ns() - begun) / 1e6)
    append.writer.close()
    waits.sort()
    return report("ms of its thread at a new segment", (waits[-1], *waits[:2]), WAIT_BAR_MS)


def main():
    folder = Path(tempfile.mkdtemp())
    try:
        met = [bench_appends(folder / str(num), num) for num in (16, 256, 4096)]
        met.append(bench_reads(folder / "reads"))
        met.append(bench_waits(folder / "waits"))
    finally:
        shutil.rmtree(folder)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
