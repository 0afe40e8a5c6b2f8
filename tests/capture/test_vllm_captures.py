"""The published captures of vLLM: imported whole, agreed with, and replayed without an alarm."""

from collections import Counter

import attrs
import pytest
from capture_faults import NAMES

from kvlife.capture import import_vllm
from kvlife.events import Evicted, Protected, Released, Retracted, RolledBack, WindowEvicted
from kvlife.log import open_run
from kvlife.replay.replaying.session import Settings, replay_run


@attrs.frozen(kw_only=True)
class Published:
    """What the captures' README counts: lines and calls of each workload."""

    lines: int
    snapshots: int
    ended: int
    preempted: int
    removed: int
    hashed: int
    windows: int


# Lines without the header; `hashed` are BlockStored by groups, `windows` free_blocks besides free.
PUBLISHED = {
    "shared-prefix": Published(
        lines=11_293, snapshots=41, ended=61, preempted=0, removed=0, hashed=191, windows=0
    ),
    "pressure": Published(
        lines=30_852, snapshots=210, ended=81, preempted=64, removed=606, hashed=550, windows=0
    ),
    "swa-uniform": Published(
        lines=6_334, snapshots=40, ended=31, preempted=0, removed=28, hashed=153, windows=123
    ),
    "swa-hybrid": Published(
        # Three groups: each end and preemption frees in each of them, and three hash as one.
        lines=8_813,
        snapshots=46,
        ended=31,
        preempted=5,
        removed=368,
        hashed=564 // 3,
        windows=256,
    ),
    "ngram-spec": Published(
        lines=5_765, snapshots=35, ended=25, preempted=11, removed=138, hashed=135, windows=0
    ),
    "reset": Published(
        lines=2_866, snapshots=28, ended=25, preempted=19, removed=0, hashed=92, windows=0
    ),
    "priority": Published(
        lines=34_734, snapshots=233, ended=91, preempted=112, removed=768, hashed=741, windows=0
    ),
}


@pytest.fixture(scope="module", params=NAMES)
def imported(request, traces, tmp_path_factory):
    """A capture's name, the folder of its log, and the outcome of its import."""
    folder = tmp_path_factory.mktemp(request.param)
    trace = traces / "vllm" / f"{request.param}.trace.jsonl.gz"
    return request.param, folder, import_vllm(trace, log=folder)


def test_a_capture_agrees_with_its_log(imported):
    """No invariant is broken, and every line and snapshot says what the ledger says."""
    name, _folder, outcome = imported
    assert outcome.violations == ()
    assert outcome.contradictions == ()
    assert outcome.clean
    assert outcome.num_lines == PUBLISHED[name].lines + 1
    assert outcome.num_snapshots == PUBLISHED[name].snapshots
    assert outcome.num_audits > PUBLISHED[name].snapshots
    assert outcome.stats.checked["events"] == outcome.stats.events


def test_the_log_has_an_event_for_each_call_that_changes_memory(imported):
    """Ends, preemptions, evictions, hashes and moves of windows are as many as vLLM's calls."""
    name, folder, _outcome = imported
    kinds, removed = Counter(), 0
    for recorded in open_run(folder).events():
        event = recorded.event
        kinds[type(event)] += 1
        if isinstance(event, Evicted) and event.reason == "pressure":
            removed += sum(map(len, event.pages))
    wanted = PUBLISHED[name]
    assert kinds[Released] == wanted.ended
    assert kinds[Retracted] == wanted.preempted
    assert kinds[Protected] == wanted.hashed
    assert kinds[WindowEvicted] == wanted.windows
    assert removed == wanted.removed
    assert (kinds[RolledBack] > 0) == (name == "ngram-spec")


def test_the_log_replays_to_the_same_state(imported):
    """A replay checks every event anew, finds nothing, and ends in the same digest."""
    _name, folder, outcome = imported
    replayed = replay_run(open_run(folder), Settings())
    assert not replayed.found
    assert not replayed.differences
    assert replayed.digest_ok
    assert replayed.digest == outcome.digest
    assert replayed.num_events == outcome.stats.events
