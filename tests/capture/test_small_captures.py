"""Captures of a few lines: the facts that come of them, and the faults that they may hold."""

import pytest
from small_captures import (
    FIRST_HASH,
    SmallCapture,
    asked,
    end_request,
    first_step,
    give_back,
    got,
    grant_prompt,
    look_up,
    one_request,
    scheduled,
)

from kvlife.capture import import_vllm
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Marked,
    Protected,
    Released,
    StepDispatched,
    StepSettled,
)
from kvlife.log import open_run


def import_lines(capture, tmp_path, **options):
    return import_vllm(capture.write(tmp_path / "capture.gz"), **options)


def begun():
    """A capture up to the end of the first step of `a`, on blocks 1 and 2."""
    capture = SmallCapture()
    capture.arrive("a", [1, 2, 3, 4, 5, 6], [FIRST_HASH], free=7)
    first_step(capture)
    return capture


def found_in(outcome):
    return [(item.line, item.op) for item in outcome.contradictions]


def hit_by_another(capture, *, refs, free):
    """A request `b` that begins as `a` does hits block 1, and runs in a step of its own."""
    capture.arrive("b", [1, 2, 3, 4, 9, 9], [FIRST_HASH], free=free)
    running = ["a", "b"] if refs else ["b"]
    tokens = scheduled({"b": 2}, dict.fromkeys(running, 0) | {"b": 6})
    left = free - 1 - (not refs)
    with capture.call("schedule", **tokens, running=running, free=left) as line:
        line |= {"new": ["b"], "usage": round(1 - left / 7, 6)}
        line["waiting"] = [] if refs else ["a"]
        look_up(capture, "b", 6, free=free, blocks=[1], refs=[refs], hashes=[FIRST_HASH])
        with capture.call(
            "allocate_slots",
            **asked("b", status="WAITING", new=2, computed=0, tokens=6, hit=4),
            new_blocks=[[3]],
            table=[[1, 3]],
            free_before=free,
            free=left,
        ):
            capture.put(
                "touch",
                req="b",
                group=0,
                blocks=[1],
                refs=[refs + 1],
                hashes=[FIRST_HASH],
                was_free=[] if refs else [1],
                free=left + 1,
            )
            with capture.call(
                "get_new_blocks", req="b", group=0, n=1, blocks=[3], refs=[1], free=left
            ):
                capture.put(
                    "maybe_evict_cached_block",
                    req="b",
                    group=0,
                    blocks=[3],
                    refs=[0],
                    evicted=False,
                    free=left,
                )


def test_a_capture_becomes_the_events_that_its_calls_mean(tmp_path):
    """One request, admitted, computed in two steps and ended: each fact in its place."""
    outcome = import_lines(one_request(), tmp_path, log=tmp_path / "log")
    assert outcome.clean
    assert outcome.whole
    events = [recorded.event for recorded in open_run(tmp_path / "log").events()]
    assert [type(event) for event in events] == [
        Marked,  # where it comes from
        Marked,  # idle at the start
        Admitted,
        Allocated,
        Protected,
        StepDispatched,
        StepSettled,
        Committed,
        Allocated,
        StepDispatched,
        StepSettled,
        Committed,
        Released,
        Marked,  # idle at the end
    ]
    admitted, allocated, protected = events[2:5]
    assert (admitted.rid, admitted.row, admitted.prompt_len, admitted.prefix_len) == ("a", 1, 6, 0)
    assert (allocated.allocated_len.tolist(), allocated.pages[0].tolist()) == ([6], [1, 2])
    assert protected.protected_len == 4
    assert [f"{key:016x}" for key in protected.keys[0].tolist()] == [FIRST_HASH]
    assert events[7].committed_len.tolist() == [6]
    assert (events[8].allocated_len.tolist(), events[8].pages[0].tolist()) == ([7], [])
    assert events[11].committed_len.tolist() == [7]
    assert (events[12].reason, events[12].pages[0].tolist()) == ("finished", [1, 2])


def test_times_and_steps_of_the_log_are_those_of_the_capture(tmp_path):
    """An event stands at the end of the call that it comes from, and in its step."""
    capture = one_request()
    import_lines(capture, tmp_path, log=tmp_path / "log")
    (dispatched, _second) = [
        recorded
        for recorded in open_run(tmp_path / "log").events()
        if isinstance(recorded.event, StepDispatched)
    ]
    (line, _second) = [line for line in capture.lines if line["op"] == "schedule"]
    assert (dispatched.time_ns, dispatched.step, dispatched.event.step) == (line["t_ns"], 1, 1)


def test_a_request_that_ends_before_it_was_admitted_makes_no_event(tmp_path):
    """What never had a block was never in the ledger."""
    capture = SmallCapture()
    capture.arrive("a", [1, 2], [], free=7)
    with (
        capture.call("finish_requests", free=7),
        capture.call(
            "free_request",
            req="a",
            status="FINISHED_ABORTED",
            num_prompt_tokens=2,
            num_output_tokens=0,
            num_computed_tokens=0,
            num_preemptions=0,
            free_before=7,
            free=7,
        ),
        capture.call("free", req="a", table=[[]], why="abort", free=7),
    ):
        capture.put(
            "free_blocks", req="a", group=0, why="abort", blocks=[], refs=[], hashes=[], freed=[],
            free=7,
        )  # fmt: skip
    capture.end(free=7)
    outcome = import_lines(capture, tmp_path, log=tmp_path / "log")
    assert outcome.clean
    assert [type(r.event) for r in open_run(tmp_path / "log").events()] == [Marked]


def test_a_running_request_that_is_aborted_from_outside_is_released(tmp_path):
    """An abort between two steps lets the request's blocks go."""
    capture = begun()
    with capture.call("finish_requests", free=7):
        end_request(capture, "FINISHED_ABORTED", 1, 6, "abort")
    capture.end(free=7)
    outcome = import_lines(capture, tmp_path, log=tmp_path / "log")
    assert outcome.clean
    (released,) = [
        recorded.event
        for recorded in open_run(tmp_path / "log").events()
        if isinstance(recorded.event, Released)
    ]
    assert (released.rid, released.reason) == ("a", "aborted")


def test_a_block_that_is_not_given_back_breaks_an_invariant(tmp_path):
    """A request that ends and keeps block 1 leaks it, and the end is named as the event."""
    capture = begun()
    with capture.call("finish_requests", free=6):
        end_request(capture, "FINISHED_ABORTED", 1, 6, "abort", keep=(1,))
    outcome = import_lines(capture, tmp_path)
    (violation,) = outcome.violations
    assert violation.id == "refs-balance"
    assert isinstance(violation.event, Released)
    assert violation.evidence["pages"] == [1]


def test_a_hit_on_a_block_that_nobody_writes_breaks_an_invariant(tmp_path):
    """`a` got a hash for a block and was left out of the step; `b` reads that block in the next."""
    capture = SmallCapture()
    capture.arrive("a", [1, 2, 3, 4, 5, 6], [FIRST_HASH], free=7)
    first_step(capture, shown=False)
    hit_by_another(capture, refs=1, free=5)
    outcome = import_lines(capture, tmp_path, policy="collect")
    (violation,) = outcome.violations
    assert violation.id == "written-before-shared"
    assert violation.evidence["pages"] == [1]
    assert violation.evidence["holders"] == ["request a"]


def test_a_hit_on_a_block_whose_writer_is_gone_is_found(tmp_path):
    """`a` gets a hash and is preempted before its step runs; its block keeps the hash."""
    capture = SmallCapture()
    capture.arrive("a", [1, 2, 3, 4, 5, 6], [FIRST_HASH], free=7)
    with capture.call("schedule", **scheduled({}, {}), running=[], usage=0.0, free=7) as schedule:
        schedule |= {"preempted": ["a"], "waiting": ["a"]}
        grant_prompt(capture)
        with capture.call(
            "preempt_request",
            req="a",
            num_computed_tokens_before=0,
            num_tokens=6,
            num_output_tokens=0,
            num_preemptions=1,
            free_before=5,
            status="PREEMPTED",
            free=7,
        ):
            give_back(capture, "preempt")
    capture.put("update_from_output", running=[], waiting=["a"], computed_after={}, free=7)
    hit_by_another(capture, refs=0, free=7)
    outcome = import_lines(capture, tmp_path)
    (item,) = outcome.contradictions
    assert item.what == "the hit has block 1, which a was to write and never did"
    assert outcome.violations == ()


def test_under_raise_the_first_contradiction_ends_the_import(tmp_path):
    """A wrong count ends it, and the log holds what came before, and a note of the reason."""
    capture = one_request()
    (first, second) = [line for line in capture.lines if line["op"] == "append_tokens"]
    first["num_tokens"] += 1
    second["num_computed_tokens"] += 1
    outcome = import_lines(capture, tmp_path, log=tmp_path / "log")
    assert found_in(outcome) == [(first["seq"] + 2, "append_tokens")]
    assert not outcome.whole
    run = open_run(tmp_path / "log")
    *_before, last = run.events()
    assert last.event.text.startswith(f"the import stopped: line {first['seq'] + 2}, append_tokens")


def test_under_collect_every_contradiction_is_found(tmp_path):
    """Two wrong counts are two findings, and the capture is read to its end."""
    capture = one_request()
    wrong = [line for line in capture.lines if line["op"] == "append_tokens"]
    for line in wrong:
        line["free"] += 1
    outcome = import_lines(capture, tmp_path, policy="collect")
    assert found_in(outcome) == [(line["seq"] + 2, "append_tokens") for line in wrong]
    assert outcome.num_contradictions == 2
    assert outcome.whole


def test_a_contradiction_says_what_is_said_and_what_is_the_case(tmp_path):
    """The message has both numbers, and the name of the field."""
    capture = one_request()
    capture.lines[-1]["steps"] = 5
    (item,) = import_lines(capture, tmp_path).contradictions
    assert item.what == "steps is 5, and by what came before it is 2"


def test_a_capture_without_its_end_is_imported_and_is_not_whole(tmp_path):
    """A server that died leaves no last line; what is there is in the log."""
    outcome = import_lines(begun(), tmp_path, log=tmp_path / "log")
    assert not outcome.whole
    assert not outcome.clean
    assert found_in(outcome) == [(11, "end of file")]  # a header and ten calls
    events = [recorded.event for recorded in open_run(tmp_path / "log").events()]
    assert sum(isinstance(event, Committed) for event in events) == 1


def test_a_capture_that_stops_inside_a_call_says_so(tmp_path):
    """A call whose own line never came is named by its number."""
    capture = one_request()
    at = next(at for at, line in enumerate(capture.lines) if line["op"] == "update_from_output")
    del capture.lines[at:]
    outcome = import_lines(capture, tmp_path, policy="collect")
    whats = [item.what for item in outcome.contradictions]
    assert whats[0].startswith("the capture ends inside call ")


@pytest.mark.parametrize(
    ("op", "field", "value", "why"),
    [
        ("get_new_blocks", "blocks", [1, 9], "block 9 is named, and the pool has 8 blocks"),
        ("cache_full_blocks", "num_full_blocks", (1 << 31) - 1, "at most 8"),
        ("allocate_slots", "req", "nobody", "has not arrived"),
        ("free_blocks", "group", 3, "group 3 of 1"),
        ("schedule", "scheduled", {"a": 1, "b": 1}, "scheduled is"),
    ],
)
@pytest.mark.parametrize("policy", ["raise", "collect"])
def test_what_cannot_be_done_is_a_contradiction(tmp_path, op, field, value, why, policy):
    """A well-formed line that names what is not there ends its call, and never the program."""
    capture = one_request()
    next(line for line in capture.lines if line["op"] == op)[field] = value
    outcome = import_lines(capture, tmp_path, policy=policy)
    assert not outcome.clean
    assert any(why in item.what for item in outcome.contradictions)


def test_an_unknown_hash_algorithm_is_said_and_not_guessed(tmp_path):
    """Hashes of another algorithm are taken as they are, and named as not proven."""
    capture = one_request()
    capture.header["hash_algo"] = "xxhash"
    outcome = import_lines(capture, tmp_path)
    assert outcome.clean
    assert any("'xxhash' is not computed here" in line for line in outcome.not_proven)


def test_a_wrong_token_is_found_by_the_hash_of_its_block(tmp_path):
    """The hashes are computed again from the tokens of the prompt."""
    capture = one_request()
    arrival = next(line for line in capture.lines if line["op"] == "add_request")
    arrival["prompt_token_ids"][3] += 1
    outcome = import_lines(capture, tmp_path)
    assert found_in(outcome) == [(arrival["seq"] + 2, "add_request")]


def test_drafts_that_are_rejected_roll_the_allocated_length_back(tmp_path):
    """Of 3 tokens scheduled two drafts are rejected: 7 stays committed, block 3 stays."""
    capture = begun()
    drafts = {"a": [8, 9, 9]}
    capture.put("draft_tokens", drafts=drafts, free=5)
    tokens = scheduled({"a": 4}, {"a": 10})
    tokens["spec"] = drafts
    with (
        capture.call("schedule", **tokens, running=["a"], usage=0.428571, free=4),
        capture.call(
            "allocate_slots",
            **asked("a", status="RUNNING", new=4, computed=6, tokens=7),
            new_blocks=[[3]],
            table=[[1, 2, 3]],
            free_before=5,
            free=4,
        ),
        capture.call("get_new_blocks", req="a", group=0, n=1, blocks=[3], refs=[1], free=4),
    ):
        capture.put(
            "maybe_evict_cached_block",
            req="a",
            group=0,
            blocks=[3],
            refs=[0],
            evicted=False,
            free=4,
        )
    with capture.call(
        "update_from_output", running=["a"], waiting=[], computed_after={"a": 7}, free=4
    ):
        capture.put("append_tokens", **got("a", [5], 8, 7, "RUNNING"), free=4)
    capture.end(free=4)
    outcome = import_lines(capture, tmp_path, log=tmp_path / "log")
    assert outcome.clean
    rolled = [r.event for r in open_run(tmp_path / "log").events()][-1]
    assert rolled.committed_len.tolist() == [7]
    assert rolled.allocated_len.tolist() == [9]  # block 3 begins at 8, and one position holds it
    assert rolled.pages[0].size == 0
