"""What an Observer costs beside an allocator: a decode step's facts, against the least loop."""

import sys
import tempfile

import numpy as np
from bench_decode import PAGE_SIZE, PAIRS, STEPS, Loop
from measure import ratio

from kvlife import Checker, LogWriter, Observer, PoolConfig
from kvlife.events import Admitted, Allocated, Committed

NONE = np.empty(0, np.int32)


class Reporter:
    """Reports `Allocated` and `Committed` for N rows a step, as an allocator of one's own would."""

    def __init__(self, num, observer):
        self.observer = observer
        # Read-only, an array is taken as it is: the same one names the same batch.
        self.rows = np.arange(1, num + 1, dtype=np.int32)
        self.rows.setflags(write=False)
        self.lengths = np.zeros(num, np.int32)
        self.next_page = 1
        for row in self.rows.tolist():
            observer.observe(Admitted(f"r{row}", row, 0, 1, 0, 0, (), (NONE,)))
        # So that each step crosses the border of a page in one row of sixteen.
        self.grow(1 + np.arange(num, dtype=np.int32) % PAGE_SIZE)

    def grow(self, lengths):
        new = -(-lengths // PAGE_SIZE) + self.lengths // -PAGE_SIZE
        num = int(new.sum())
        pages = np.arange(self.next_page, self.next_page + num, dtype=np.int32)
        self.next_page += num
        self.lengths = lengths
        self.observer.observe(Allocated(self.rows, lengths, (pages,)))
        self.observer.observe(Committed(self.rows, lengths))

    def step(self):
        self.grow(self.lengths + 1)


def measure(num, folder, level):
    """Ratio of reporting a decode step of `num` rows to the loop of as many objects."""
    steps = (PAIRS + 3) * STEPS
    config = PoolConfig(
        page_size=PAGE_SIZE,
        num_pages=num * (steps // PAGE_SIZE + 4),
        max_requests=num,
        max_context_len=steps + 64,
    )
    observer = Observer(config, log=LogWriter(folder), checker=Checker(level=level))
    reporter, loop = Reporter(num, observer), Loop(num)
    for _ in range(STEPS):
        reporter.step()
        loop.step()
    observer.log.wait()
    measured = ratio(reporter.step, loop.step, PAIRS, STEPS)
    observer.close()
    return measured


def main():
    """Print the table; there is no bar."""
    for level, what in (("off", "log on, checks off"), ("event", "log on, all checks on")):
        for num in (16, 256, 1024):
            with tempfile.TemporaryDirectory() as folder:
                median, low, high = measure(num, folder, level)
            print(
                f"a decode step's facts, N={num}, {what:24s} {median:7.3f}  [{low:.3f}, {high:.3f}]"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
