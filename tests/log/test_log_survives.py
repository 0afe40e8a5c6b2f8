"""What `append` has returned from survives: SIGKILL, a fork, and where asked for a power loss."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from log_samples import HEADER, ONE_GROUP, append_all, plain_groups, same_events, settled, start

from kvlife.errors import LogInUse
from kvlife.events import Marked
from kvlife.log import LogWriter, open_run

HERE = Path(__file__).resolve().parent


def run_script(name, *arguments):
    """Run a script beside this file in a process of its own, and return what it printed."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)])}
    command = [sys.executable, "-W", "error", str(HERE / name), *map(str, arguments)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.soak
def test_a_killed_writer_loses_nothing_it_returned_from(tmp_path, seed, request):
    """Writers are killed after a random append; each log holds all that was reported."""
    num = 200 if request.config.getoption("hypothesis_profile") == "soak" else 40
    found = run_script("kill_trials.py", tmp_path, num, seed)
    assert found["trials"] == num
    assert found["segments"] > 2 * num
    # How many get written before the kill is up to the machine, as another thread writes them.
    assert found["snapshots"] > num // 4
    assert found["reported"] > 100 * num


def test_a_forked_child_may_not_write(tmp_path):
    """The child's writer refuses, its close does nothing, and the parent's log is untouched."""
    script = f"""
import os, sys
from log_samples import *
from kvlife.errors import LogInUse
writer = start({str(tmp_path)!r}, ONE_GROUP, segment_bytes=4096)
groups = plain_groups(400)
append_all(writer, groups[:200])
child = os.fork()
if not child:
    code = 0
    for group in (groups[200], groups[201]):
        try:
            writer.append(200, 0, 0, group)
            code |= 1
        except LogInUse as error:
            code |= 0 if "belongs to the parent" in str(error) else 2
    writer.close()
    os._exit(code)
status = os.waitpid(child, 0)[1]
append_all(writer, groups[200:], step=200)
writer.close(5)
print(status)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)])}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "0\n", done.stderr
    run = open_run(tmp_path)
    assert run.closed.digest == 5
    wanted = [group[0] for group in plain_groups(400)]
    assert same_events([r.event for r in run.events()], wanted)


def test_a_fork_is_seen_without_python_noticing(tmp_path, monkeypatch):
    """Where another library forked, the process number gives the child away."""
    writer = start(tmp_path)
    writer._run._pid += 1
    with pytest.raises(LogInUse, match="belongs to the parent"):
        writer.append(0, 0, 0, [Marked("x", False)])
    writer._run._pid -= 1
    writer.close()


@pytest.fixture
def synced(monkeypatch):
    """How often files were brought to the disk."""
    calls = []
    whole = os.fdatasync
    monkeypatch.setattr("os.fdatasync", lambda fd: calls.append(fd) or whole(fd))
    return calls


def test_sync_none_never_waits_for_the_disk(tmp_path, synced):
    """The default survives the death of the process only."""
    with start(tmp_path, ONE_GROUP) as writer:
        append_all(writer, plain_groups(20))
    assert not synced


def test_sync_group_waits_for_each_append(tmp_path, synced):
    """Each append ends with its segment on the disk."""
    with start(tmp_path, ONE_GROUP, sync="group") as writer:
        for num, group in enumerate(plain_groups(20)):
            writer.append(num, num, num, group)
            assert len(synced) == num + 1
    assert open_run(tmp_path).next_seq == 20


def test_sync_by_time_happens_in_the_background(tmp_path, synced):
    """With a number of milliseconds the log's own thread brings the segment to the disk."""
    writer = start(tmp_path, ONE_GROUP, sync=1)
    append_all(writer, plain_groups(20))
    for _ in range(1000):
        settled(writer)
        if synced:
            break
    writer.close()
    assert synced


def test_an_abandoned_writer_ends_with_its_process(tmp_path):
    """A process that never closes its log still ends, and the log is there."""
    script = f"""
from log_samples import *
append_all(start({str(tmp_path)!r}, ONE_GROUP), plain_groups(20))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)])}
    subprocess.run([sys.executable, "-c", script], env=environment, check=True, timeout=60)
    run = open_run(tmp_path)
    assert (run.next_seq, run.closed, run.live) == (20, None, False)


def test_a_writer_that_was_never_started_closes(tmp_path):
    """Closing before the start does nothing, and the writer can still be started."""
    writer = LogWriter(tmp_path)
    writer.close()
    writer.start(HEADER)
    writer.close()
    assert open_run(tmp_path).closed is not None
