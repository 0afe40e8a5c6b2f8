"""A decode step, `decode` and `commit` of a batch, against the least that objects would cost."""

import sys
import tempfile

import numpy as np
from measure import ratio, report

from kvlife import Checker, KvEngine, LogWriter, PoolConfig

PAGE_SIZE = 16
PAIRS = 15
STEPS = 20


class Loop:
    """For each of N slotted objects: two additions, a page at a crossing, and the slot."""

    class Request:
        """The least an object per request holds."""

        __slots__ = ("allocated", "committed", "table")

        def __init__(self, length, page):
            self.allocated = self.committed = length
            self.table = [page]

    def __init__(self, num):
        self.requests = [self.Request(1 + idx % PAGE_SIZE, idx) for idx in range(num)]
        self.free = list(range(num * 4096))

    def step(self):
        slots = []
        for request in self.requests:
            request.committed += 1
            request.allocated += 1
            if request.allocated % PAGE_SIZE == 0:
                request.table.append(self.free.pop())
            slots.append(request.table[-1] * PAGE_SIZE + request.allocated % PAGE_SIZE)
        return slots


def decoding_engine(num, log, checker, pools=None):
    """An engine with `num` requests, their rows in shuffled order in the batch."""
    steps = (PAIRS + 3) * STEPS
    config = PoolConfig(
        page_size=PAGE_SIZE,
        num_pages=num * (steps // PAGE_SIZE + 4),
        max_requests=num,
        max_context_len=steps + 64,
    )
    engine = KvEngine(config, log=log, checker=checker, pools=pools, key_seed=1)
    rids = [f"r{idx}" for idx in range(num)]
    for idx, rid in enumerate(rids):
        tokens = np.arange(1 + idx % PAGE_SIZE, dtype=np.int32) + idx
        engine.admit(rid, tokens)
        engine.allocate([rid], [len(tokens)])
        engine.commit([rid])
    np.random.default_rng(0).shuffle(rids)
    return engine, engine.batch(rids)


def measure(num, log, checker, pools=None):
    """Ratio of a decode step to the loop of as many objects."""
    engine, batch = decoding_engine(num, log, checker, pools)
    loop = Loop(num)

    def step():
        engine.decode(batch)
        engine.commit(batch)

    for _ in range(STEPS):
        step()
        loop.step()
    if log is not None:
        # A fresh log's thread readies the next segment, once in 200,000 steps of this size.
        log.wait()
    measured = ratio(step, loop.step, PAIRS, STEPS)
    engine.close()
    return measured


def main():
    """Print the table; exit 1 if a bar is not met."""
    met = True
    for num, bar in ((256, 0.55), (1024, 0.18), (4096, 0.08)):
        measured = measure(num, None, Checker(level="off"))
        met &= report(f"decode + commit, N={num}, checks off, log off", measured, bar)
    for num, bar in ((256, 1.0), (1024, 0.3), (4096, 0.12)):
        with tempfile.TemporaryDirectory() as folder:
            measured = measure(num, LogWriter(folder), Checker())
            met &= report(f"decode + commit, N={num}, all checks on, log on", measured, bar)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
