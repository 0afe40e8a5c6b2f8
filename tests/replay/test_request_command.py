"""`kvlife request`: its events, its lengths and its pages after each, its steps in a line."""

import held_runs as held
import numpy as np
import pytest
import recorded_runs as made

from kvlife import CacheGroup, KvEngine, LogWriter, PoolConfig, open_run
from kvlife.events import Committed, SessionRestored, SessionSaved
from kvlife.replay.history.selecting import Selection
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.lives.request_life import read_request

CONFIG = PoolConfig(page_size=4, num_pages=64, max_requests=8, max_context_len=128)


@pytest.fixture
def run(tmp_path):
    """The run in which something is held in every way."""
    held.every_kind(tmp_path / "log")
    return tmp_path / "log"


def told(answer):
    return [(entry["first_seq"], entry["event"]) for entry in answer["entries"]]


def ladders(answer):
    """Protected, committed, allocated and pages behind each entry; None without a row."""
    return [
        None
        if (ladder := entry["ladder"]) is None
        else (
            ladder["protected"],
            ladder["committed"],
            ladder["allocated"],
            *ladder["pages"].values(),
        )
        for entry in answer["entries"]
    ]


def test_the_ladder_stands_behind_each_event(run, capsys):
    """r2: admitted, two pages of four tokens, committed, published, released."""
    status, seen = made.answered(capsys, "request", run, "r2")
    assert (status, seen["state"], seen["row"]) == (0, "gone", None)
    assert told(seen) == [
        (4, "Admitted"),
        (5, "Allocated"),
        (6, "Committed"),
        (7, "Protected"),
        (8, "Released"),
    ]
    assert ladders(seen) == [(0, 0, 0, 0), (0, 0, 8, 2), (0, 8, 8, 2), (8, 8, 8, 2), None]
    assert seen["max_pages"] == 2


def test_the_first_line_says_what_became_of_it(run, capsys):
    """Gone, waiting for a row, on a row, and given to a session."""
    _, out, _ = made.ran(capsys, "request", run, "r2")
    assert out.startswith("request r2 is gone: finished at seq 8 (step 0)")
    _, out, _ = made.ran(capsys, "request", run, "r6")
    assert out.startswith("request r6 waits without a row, up to seq 25")
    assert "1 retraction" in out
    _, out, _ = made.ran(capsys, "request", run, "r1")
    assert out.startswith("request r1 holds row 1 (request r1), up to seq 25")
    _, out, _ = made.ran(capsys, "request", run, "r5")
    assert out.startswith("request r5 is gone: session s1 keeps its row with 4 tokens at seq 21")


def test_a_row_that_drains_is_followed_to_its_end(run, capsys):
    """r3 is released at seq 13 with its row in flight, and lets go of nothing yet."""
    seen = made.answered(capsys, "request", run, "r3")[1]
    assert told(seen)[-2:] == [(12, "StepDispatched"), (13, "Released")]
    assert "no page let go yet" in seen["entries"][-1]["text"]


def decoded(path, *, draft=0):
    """A request of 10 prompt tokens that decodes 30 in batches, with another that joins midway."""
    writer = LogWriter(path, snapshot_every_bytes=512, segment_bytes=1 << 13)
    engine = KvEngine(CONFIG, log=writer, clock=lambda: 0, key_seed=1)
    tokens = np.arange(10, dtype=np.int32)
    rids = ["r1"]
    engine.admit("r1", tokens)
    engine.allocate(["r1"], [10])
    engine.commit(["r1"], [10])
    for step in range(30):
        if step == 12:
            engine.admit("r2", tokens + 50)
            engine.allocate(["r2"], [10])
            engine.commit(["r2"], [10])
            rids.append("r2")
        batch = engine.batch(rids)
        engine.decode(batch)
        engine.dispatch(step, batch)
        engine.settle(step)
        engine.commit(batch)
    engine.finish("r1", np.arange(40, dtype=np.int32))
    engine.abort("r2")
    engine.close()


def test_decode_steps_are_told_in_one_line(tmp_path, capsys):
    """30 steps from 10 tokens to 40, which take 10 pages of 4; then it is published."""
    decoded(tmp_path)
    seen = made.answered(capsys, "request", tmp_path, "r1")[1]
    assert [entry["event"] for entry in seen["entries"]] == [
        "Admitted",
        "Allocated",
        "Committed",
        "steps",
        "Protected",
        "Released",
    ]
    steps = seen["entries"][3]
    assert steps["text"] == "30 decode steps, allocated 10 -> 40, committed 10 -> 40"
    assert steps["kinds"] == {"Allocated": 30, "StepDispatched": 30, "Committed": 30}
    assert ladders(seen)[3] == (0, 40, 40, 10)
    assert seen["decode_steps"] == 30
    _, out, _ = made.ran(capsys, "request", tmp_path, "r1")
    assert "1 admission, 30 decode steps" in out
    assert "at most 10" in out


def test_each_step_is_told_on_request(tmp_path, capsys):
    """With --all: three events before, ninety of thirty steps, two behind."""
    decoded(tmp_path)
    seen = made.answered(capsys, "request", tmp_path, "r1", "--all")[1]
    assert len(seen["entries"]) == 95
    assert ladders(seen)[3] == (0, 10, 11, 3)
    _, out, _ = made.ran(capsys, "request", tmp_path, "r1", "--all")
    assert "left out" not in out


def test_a_session_is_told_by_its_turns(tmp_path, capsys):
    """r1's row goes to session s1, and from it to r2."""
    made.observe(
        tmp_path,
        [
            [made.admitted("r1", 1), made.allocated([1], [8], [1, 2]), made.committed([1], [8])],
            [SessionSaved("s1", "r1", 1, 8, (made.ints(),))],
            [SessionRestored("s1", "r2", 1, 8, 12, (made.ints(),))],
            [made.allocated([1], [12], [3])],
            [Committed(made.ints(1), made.ints(12))],
        ],
    )
    seen = made.answered(capsys, "request", tmp_path, "r2")[1]
    assert told(seen) == [(4, "SessionRestored"), (5, "Allocated"), (6, "Committed")]
    assert seen["row"] == 1
    assert "turn of session s1" in seen["entries"][0]["text"]
    assert told(made.answered(capsys, "request", tmp_path, "r1")[1])[-1] == (3, "SessionSaved")


def test_a_request_that_never_was_is_refused_with_near_names(tmp_path, capsys):
    """Exit status 2, and what may have been meant."""
    decoded(tmp_path)
    status, out, err = made.ran(capsys, "request", tmp_path, "r11")
    assert (status, out) == (2, "")
    assert "did you mean r1" in err


def test_an_earlier_moment_is_told_as_it_was(run, capsys):
    """After event 5, r2 has two pages and has committed nothing."""
    seen = made.answered(capsys, "request", run, "r2", "--at", 5)[1]
    assert (seen["state"], seen["row"], told(seen)[-1]) == ("held", 2, (5, "Allocated"))


@pytest.mark.soak
@pytest.mark.parametrize(
    "groups", [None, (CacheGroup("full"), CacheGroup("swa", window=16, num_pages=64))]
)
@pytest.mark.parametrize("named", [True, False])
def test_a_request_is_told_whole_with_and_without_names(tmp_path, seed, groups, named):
    """All events that concern it, and behind each the lengths that the state has for its row."""
    made.crowded_engine(tmp_path, seed=seed, num_steps=120, groups=groups)
    if not named:
        for path in tmp_path.glob("*/*.names"):
            path.unlink()
    run = open_run(tmp_path)
    timeline = Timeline(run)
    end = timeline.state()
    rng = np.random.default_rng(seed)
    for number in rng.choice(100, 5, replace=False).tolist():
        rid = f"r{number}"
        seqs = [item.seq for item in Selection(request=rid).select(run, 0, run.next_seq)]
        life = read_request(timeline, rid, end, lambda _num: None, whole=True)
        assert [entry.first.seq for entry in life.entries] == seqs
        for entry in life.entries[:: max(len(seqs) // 4, 1)]:
            record = timeline.state(entry.last.seq + 1).record(rid)
            if record is None:
                assert entry.ladder is None
            else:
                assert entry.ladder.allocated == record.kv_allocated_len
                assert entry.ladder.committed == record.kv_committed_len
        folded = read_request(timeline, rid, end, lambda _num: None, whole=False)
        assert sum(sum(entry.kinds.values()) for entry in folded.entries) == len(seqs)
