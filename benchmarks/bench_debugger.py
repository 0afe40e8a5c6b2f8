"""The commands that look into a log, against their bars, on a log of ten million events.

Run `python benchmarks/bench_debugger.py [--log FOLDER]`; the log is made where it is not there (see
big_log.py), which takes minutes. `--events` and `--pages` make another one. Each command is a
process of its own, the files in the cache of the system; seconds are wall time, and CPU time beside
it tells how much of that was another process's doing. A state costs what it costs more than the
opening of the log; seqs, pages and requests are drawn under a seed.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from big_log import NUM_EVENTS, NUM_PAGES, big_log

from kvlife.log import open_run
from kvlife.replay.history.timeline import Timeline

ROOT = Path(__file__).resolve().parents[1]
LIFE_BAR_S = 5.0
MEMORY_BAR_MB = 1000.0
STATE_BARS_S = {65_536: 1.0, 1_000_000: 2.0}


def kvlife(*arguments):
    """Run a command; wall and CPU seconds, the most memory in MB, and the first line it prints."""
    command = [sys.executable, "-m", "kvlife.replay", *map(str, arguments)]
    begun = time.perf_counter()
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    seconds = time.perf_counter() - begun
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, said.split("\n", 1)[0]


def middle(figures):
    """Median, and the worst."""
    return statistics.median(figures), max(figures)


def report(name, figures, bar):
    """Print one figure, its median and worst, and whether both meet the bar."""
    half, worst = middle(figures)
    verdict = "met" if worst <= bar else "met in the median" if half <= bar else "NOT met"
    print(f"{name:52s} {half:8.2f}  worst {worst:8.2f}  at most {bar:g}: {verdict}", flush=True)
    return half <= bar


def bench_states(folder, rng, rounds):
    """The state at random seqs about the middle, in this process, against the opening."""
    begun = time.process_time()
    run = open_run(folder)
    opening = time.process_time() - begun
    print(f"{'CPU s to open the log':52s} {opening:8.2f}")
    timeline = Timeline(run)
    third = run.next_seq // 3
    times = []
    for seq in rng.integers(third, 2 * third, rounds).tolist():
        begun = time.process_time()
        timeline.state(seq)
        times.append(time.process_time() - begun)
    num_pages = run.layout.spaces[0].num_pages
    bar = STATE_BARS_S.get(num_pages, 2.0)
    return report(f"CPU s more for a state, {num_pages:,} pages", times, bar)


def bench_command(name, folder, subjects):
    """Wall seconds, CPU seconds and memory of a command about some pages or requests."""
    measured = [kvlife(name, folder, subject) for subject in subjects]
    walls, cpus, memories, said = zip(*measured, strict=True)
    print(f"  {said[0][:110]}")
    half, worst = middle(cpus)
    print(f"{f'{name}: CPU s':52s} {half:8.2f}  worst {worst:8.2f}")
    met = report(f"{name}: s", walls, LIFE_BAR_S)
    return report(f"{name}: MB", memories, MEMORY_BAR_MB) and met


def rid_after(run, seq):
    """The request that the next event about one request names."""
    rids = (getattr(item.event, "rid", None) for item in run.events(int(seq)))
    return next(rid for rid in rids if rid)


def main():
    """Print the figures; exit 1 if a bar is not met."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--log", type=Path, help="a log that is there")
    parser.add_argument("--events", type=int, default=NUM_EVENTS)
    parser.add_argument("--pages", type=int, default=NUM_PAGES)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    folder = options.log or big_log(options.events, options.pages)
    rng = np.random.default_rng(1)
    run = open_run(folder)
    pages = rng.integers(1, run.layout.spaces[0].num_pages, options.rounds).tolist()
    requests = [rid_after(run, seq) for seq in rng.integers(0, run.next_seq - 2000, options.rounds)]
    met = [
        bench_states(folder, rng, options.rounds),
        bench_command("page", folder, pages),
        bench_command("request", folder, requests),
    ]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
