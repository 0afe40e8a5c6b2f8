"""Simulates under a limit on file sizes: `limited_run.py DIR HARD`, and says how it ended."""

import json
import resource
import sys

from small_runs import plan_of, writer_of

from kvlife import Checker, KvEngine
from kvlife.errors import LogFull
from kvlife.simulation import Scheduler


def main():
    path, hard = sys.argv[1], int(sys.argv[2])
    log = writer_of(path, segment_bytes=1 << 14)
    plan = plan_of(log, kind=1, num_requests=200)
    engine = KvEngine(plan.pools, log=log, checker=Checker(), key_seed=1, clock=plan.clock)
    loop = Scheduler(engine, plan.workload, plan.config, clock=plan.clock)
    log.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 13, hard))
    try:
        while loop.advance():
            pass
    except LogFull as error:
        said = f"{type(error).__name__}: {error}"
    print(
        json.dumps(
            {
                "error": said,
                "next_seq": engine.next_seq,
                "digest": f"{engine.ledger.digest():016x}",
            }
        )
    )


if __name__ == "__main__":
    main()
