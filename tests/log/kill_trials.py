"""Kills a writing process again and again, and reads what it left: `kill_trials.py DIR NUM SEED`.

Each trial forks a child that appends group after group and reports each seq on a pipe when `append`
has returned; the parent kills it after a random number of reports. Prints one line of JSON.
"""

import json
import os
import random
import shutil
import signal
import struct
import sys
from pathlib import Path

from log_samples import (
    ONE_GROUP,
    FakeSnapshot,
    plain_groups,
    same_events,
    same_state,
    start,
    state_of,
)

from kvlife.events import Marked
from kvlife.log import open_run

REPORT = struct.Struct("<Q")


def groups_of(seed):
    """3,000 groups: decoding steps, and among them groups of several events."""
    random_groups = random.Random(seed)
    groups = plain_groups(3000, seed=seed)
    for idx in range(0, 3000, 7):
        groups[idx] = [Marked(f"{idx} {n}", False) for n in range(random_groups.randrange(1, 5))]
    return groups


def write(path, groups, pipe):
    """Append all groups, with segments and snapshots changing as often as they can."""
    writer = start(path, ONE_GROUP, segment_bytes=4096, snapshot_every_bytes=1500)
    for step, group in enumerate(groups):
        writer.append(writer.next_seq, step, step, group)
        os.write(pipe, REPORT.pack(writer.next_seq))
        if writer.wants_snapshot:
            writer.snapshot(FakeSnapshot(writer.next_seq, num=20))
    writer.close(1)


def trial(path, groups, num_reports):
    """Kill a writer after so many reports; returns the last seq that it reported."""
    source, pipe = os.pipe()
    child = os.fork()
    if not child:
        os.close(source)
        write(path, groups, pipe)
        os._exit(0)
    os.close(pipe)
    with os.fdopen(source, "rb") as reports:
        content = reports.read(REPORT.size * num_reports)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        content += reports.read()
    return REPORT.unpack_from(content, len(content) - REPORT.size)[0] if content else 0


def check(path, groups, last_seq):
    """Everything reported is there, and what is there is a prefix of what was appended."""
    run = open_run(path)
    assert run.next_seq >= last_seq, f"{last_seq} reported, the log ends at {run.next_seq}"
    assert not run.live
    got = list(run.groups())
    assert [r.seq for group in got for r in group] == list(range(run.next_seq))
    for group, recorded in zip(groups, got, strict=False):
        assert same_events([r.event for r in recorded], group)
    for seq in run.snapshots:
        assert same_state(run.snapshot(seq), state_of(seq, num=20))
    return run


def main():
    folder, num, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    choice = random.Random(seed)
    groups = groups_of(seed)
    found = {"trials": 0, "ended": 0, "snapshots": 0, "segments": 0, "reported": 0}
    for idx in range(num):
        path = folder / str(idx)
        last_seq = trial(path, groups, int(choice.triangular(1, len(groups) + 50, 200)))
        if last_seq:
            run = check(path, groups, last_seq)
            found["ended"] += run.closed is not None
            found["snapshots"] += len(run.snapshots)
            found["segments"] += len(run._files)
        found["trials"] += 1
        found["reported"] += last_seq
        shutil.rmtree(path, ignore_errors=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
