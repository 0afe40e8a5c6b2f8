"""`simulate` of a whole trace, `replay` of its log, and `replay` in two processes, in turns.

Each is a process of its own. What `simulate` takes is CPU time of all its threads, so that two of
them on two cores do not count as one; two processes against one are compared by wall time.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import report

ROOT = Path(__file__).resolve().parents[1]
TRACES = Path(os.environ.get("KVLIFE_TRACES", ROOT.parent / "shared" / "traces"))
TRACE = TRACES / "mooncake" / "conversation.jsonl.gz"
LIMITS = {
    "simulate, CPU seconds": 40,
    "replay / simulate, CPU": 0.5,
    "replay with 2 jobs / replay, wall": 1 / 1.7,
    "log before compression, MB": 160,
}


def kvlife(*arguments):
    """Run one command; its JSON object, CPU seconds and wall seconds."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "kvlife.replay", *map(str, arguments), "--json"],
        check=True,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return json.loads(done.stdout), cpu, wall


def one_round(limit):
    """The figures of one round, in the order of LIMITS."""
    with tempfile.TemporaryDirectory() as log:
        first = [] if limit is None else ["--limit", limit]
        simulated, cpu, _ = kvlife("simulate", "--trace", TRACE, "--log", log, *first)
        replayed, replay_cpu, replay_wall = kvlife("replay", log)
        split, _, split_wall = kvlife("replay", log, "--jobs", 2)
    for outcome in (simulated, replayed, split):
        assert outcome["digest"] == simulated["digest"], "the replay ended in another state"
        assert not outcome["violations"], "a violation was found"
        assert outcome["checked"] == simulated["events"], "not every event was checked"
    steps, events = simulated["steps"], simulated["events"]
    print(f"  {steps:,} steps, {events:,} events, {cpu:.1f} s", flush=True)
    return cpu, replay_cpu / cpu, split_wall / replay_wall, simulated["log_bytes"] / 1e6


def main():
    """Print the figures; exit 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="how often all three run, at least 2")
    parser.add_argument("--limit", type=int, help="only the first requests; then no bar applies")
    options = parser.parse_args()
    if not TRACE.exists():
        print("skipped: no traces found; set KVLIFE_TRACES to their folder")
        return 0
    rounds = [one_round(options.limit) for _ in range(options.rounds)]
    met = True
    for (name, bar), values in zip(LIMITS.items(), zip(*rounds, strict=True), strict=True):
        quarters = statistics.quantiles(values, n=4)
        measured = (statistics.median(values), quarters[0], quarters[2])
        met = report(name, measured, bar) and met
    return 0 if met or options.limit is not None else 1


if __name__ == "__main__":
    sys.exit(main())
