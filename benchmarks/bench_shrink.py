"""Shrinking, for each fault that lies in events: in a log of 100,000 events, at a random place.

Run `python benchmarks/bench_shrink.py [--events N] [--seed S] [FAULT ...]`. Each fault is put into
the first of the simulated runs that has a place for it, and the log up to its violation is shrunk.
Seconds are CPU seconds of the shrinking alone. Exit status 1 where a bar is not met: at most 12
events, in 20 s.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from time import process_time

import attrs

from kvlife.errors import ConfigError
from kvlife.log import open_run
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.shrinking import Shrinker, recorded_culprit, slice_run
from kvlife.testing.faults import FAULTS, Kind, write_faulty_run

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from fault_runs import KINDS, record, record_backups

# The longest requests of a long run need as many.
LEAST_SLOTS = 2000
BAR_EVENTS, BAR_SECONDS = 12, 20.0


class SoundRun:
    """The first events of a run, read once for all the faults that are put into it."""

    def __init__(self, path, num_events):
        run = open_run(path)
        self.path, self.header, self.log_groups = path, run.header, list(run.groups(0, num_events))
        self.items = [item for group in self.log_groups for item in group]

    def events(self, start):
        return self.items[start:]

    def groups(self, _start):
        return iter(self.log_groups)


def sound_runs(folder, num_events, seed):
    """One run of each kind, made when it is first asked for, with about so many events."""
    kinds = [attrs.evolve(kind, num_slots=max(kind.num_slots, LEAST_SLOTS)) for kind in KINDS]
    writers = [lambda path, num, kind=kind: record(path, kind, num, seed) for kind in kinds]
    writers += [
        lambda path, num, window=window: record_backups(path, window, num, seed)
        for window in (None, 6)
    ]
    for idx, write in enumerate(writers):
        sample = open_run(write(folder / f"sample-{idx}", 200)).next_seq
        yield SoundRun(write(folder / f"run-{idx}", 220 * num_events // sample), num_events)


def shrink(path):
    """Shrink a log to its recorded violation; events and CPU seconds."""
    begun = process_time()
    timeline = Timeline(open_run(path))
    culprit = recorded_culprit(timeline, None)
    shrinker = Shrinker(slice_run(timeline, culprit, lambda _num: None))
    shrinker.run()
    whole = "" if shrinker.complete else ", not complete"
    return len(shrinker.trial.events) + 1, process_time() - begun, whole


@attrs.frozen
class Shrunk:
    """What became of one fault."""

    name: str
    num_events: int
    seconds: float


def main():
    """Print a line for each fault, and what is true of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("faults", nargs="*", help="some, by name; else all that lie in events")
    asked = parser.parse_args()
    in_events = [name for name, fault in FAULTS.items() if fault.kind != Kind.COLUMNS]
    left, found = asked.faults or in_events, []
    with tempfile.TemporaryDirectory() as folder:
        for run in sound_runs(Path(folder), asked.events, asked.seed):
            num = len(run.items)
            print(f"a run of {num:,} events, {len(left)} faults left", flush=True)
            for name in tuple(left):
                path = Path(folder) / name
                try:
                    placed = write_faulty_run(run, FAULTS[name], path, seed=asked.seed)
                except ConfigError:
                    continue
                left.remove(name)
                num_events, seconds, whole = shrink(placed.path)
                found.append(Shrunk(name, num_events, seconds))
                print(
                    f"{name:48s} at {placed.wrong_seq:7,}: {num_events:2d} events,"
                    f" {seconds:5.1f} s{whole}",
                    flush=True,
                )
    most = max(one.num_events for one in found)
    slowest = max(one.seconds for one in found)
    print(
        f"{len(found)} faults: at most {most} events, median"
        f" {statistics.median(one.num_events for one in found):g}; at most {slowest:.1f} s, median"
        f" {statistics.median(one.seconds for one in found):.1f} s; no place: {left or 'none'}"
    )
    return 0 if most <= BAR_EVENTS and slowest <= BAR_SECONDS and not left else 1


if __name__ == "__main__":
    sys.exit(main())
