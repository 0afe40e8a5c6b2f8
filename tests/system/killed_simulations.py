"""Kills simulations again and again, and replays what they left: `killed_simulations.py DIR NUM`.

A third argument is the seed. Each trial forks a child that simulates and reports each seq on a pipe
once the log has returned from `append`; it is killed after a random number of reports. Prints one
line of JSON.
"""

import json
import os
import random
import shutil
import signal
import struct
import sys
from pathlib import Path

from small_runs import (
    KEEP_ALL,
    KEEP_SOME,
    KINDS,
    RING,
    assert_clean,
    fingerprints,
    plan_of,
    replayed_run,
    retention_of,
    writer_of,
)

from kvlife.log import LogWriter, open_run
from kvlife.simulation import simulate

REPORT = struct.Struct("<Q")


class ReportingLog(LogWriter):
    """Tells a pipe the next seq after each append that has returned."""

    pipe = -1

    def append(self, seq, step, time_ns, events):
        super().append(seq, step, time_ns, events)
        os.write(self.pipe, REPORT.pack(seq + len(events)))


def simulate_in_child(path, pipe, kind, history, compress):
    log = writer_of(
        path, kind=ReportingLog, retention=retention_of(history), compress=compress,
        segment_bytes=1 << 12,
    )  # fmt: skip
    log.pipe = pipe
    simulate(plan_of(log, kind=kind))


def killed(path, num_reports, *choices):
    """Kill a simulation after so many reports; returns the last seq that it reported."""
    source, pipe = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.close(source)
            simulate_in_child(path, pipe, *choices)
            status = 0
        finally:
            os._exit(status)
    os.close(pipe)
    with os.fdopen(source, "rb") as reports:
        content = reports.read(REPORT.size * num_reports)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        content += reports.read()
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the simulation failed"
    return REPORT.unpack_from(content, len(content) - REPORT.size)[0] if content else 0


def check(path, last_seq, wanted):
    """All that was reported is there, is a part of the whole run, and replays clean."""
    run = open_run(path)
    assert not run.live
    assert run.next_seq >= last_seq, f"{last_seq} reported, the log ends at {run.next_seq}"
    got = fingerprints(run)
    assert got == wanted[run.begins_at : run.next_seq], "other events than the run's"
    outcome = replayed_run(path)
    assert_clean(outcome, run, compared=run.closed is not None)
    return run


def whole_runs(folder):
    """What each kind of run would write if nobody killed it; warms this process up as well."""
    found = []
    for kind in range(len(KINDS)):
        path = folder / f"whole-{kind}"
        simulate(plan_of(writer_of(path), kind=kind))
        replayed_run(path)
        found.append(fingerprints(open_run(path)))
    return found


def main():
    folder, num, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    choice = random.Random(seed)
    wholes = whole_runs(folder)
    found = dict.fromkeys(("trials", "reported", "events", "snapshots", "closed", "cut"), 0)
    for idx in range(num):
        kind, history = choice.randrange(len(KINDS)), choice.choice((KEEP_ALL, KEEP_SOME, RING))
        path = folder / str(idx)
        most = len(wholes[kind])
        last_seq = killed(path, choice.randrange(1, most), kind, history, choice.random() < 0.7)
        try:
            run = check(path, last_seq, wholes[kind])
        except BaseException:
            print(f"trial {idx}: kind {kind}, history {history}, {path}", file=sys.stderr)
            raise
        found["trials"] += 1
        found["reported"] += last_seq
        found["events"] += run.next_seq
        found["snapshots"] += len(run.snapshots)
        found["closed"] += run.closed is not None
        found["cut"] += run.begins_at > 0
        shutil.rmtree(path)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
