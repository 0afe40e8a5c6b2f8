"""Forks in the middle of a simulated run: `forked_engine.py DIR KIND`; prints what happened."""

import json
import os
import sys
import warnings

from small_runs import plan_of, recorded_run, writer_of

from kvlife import Checker, KvEngine
from kvlife.errors import LogInUse, WrongThread
from kvlife.events import Marked
from kvlife.simulation import Scheduler


def in_child(engine, log, path, kind):
    """Try everything on the parent's engine, then run an engine of the child's own."""
    commands = (
        lambda: engine.admit("child", [1, 2, 3]),
        lambda: engine.match([1, 2, 3]),
        lambda: engine.evict(1),
        lambda: engine.mark("from the child"),
        engine.flush,
        engine.audit,
        engine.close,
    )
    refused = 0
    for command in commands:
        try:
            command()
        except WrongThread:
            refused += 1
    try:
        log.append(engine.next_seq, 0, 0, [Marked("from the child", False)])
    except LogInUse:
        refused += 1
    log.close(1)
    digest = recorded_run(path, kind=kind, num_requests=20, seed=9).digest
    return {"asked": len(commands) + 1, "refused": refused, "child": digest}


def main():
    path, kind = sys.argv[1], int(sys.argv[2])
    log = writer_of(path)
    plan = plan_of(log, kind=kind, num_requests=40)
    engine = KvEngine(plan.pools, log=log, checker=Checker(), key_seed=1, clock=plan.clock)
    loop = Scheduler(engine, plan.workload, plan.config, clock=plan.clock)
    while engine.next_seq < 300:
        loop.advance()
    source, pipe = os.pipe()
    with warnings.catch_warnings():
        # The log's thread runs: just that is tried here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        status = 1
        try:
            os.write(pipe, json.dumps(in_child(engine, log, path, kind)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(pipe)
    with os.fdopen(source, "rb") as answer:
        found = json.loads(answer.read())
    assert os.waitpid(child, 0)[1] == 0
    while loop.advance():
        pass
    engine.close()
    print(json.dumps({**found, "parent": engine.ledger.digest()}))


if __name__ == "__main__":
    main()
