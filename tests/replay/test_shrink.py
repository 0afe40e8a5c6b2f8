"""`kvlife shrink`: the smallest log that still breaks the same, what it prints, what it refuses."""

import json
import subprocess
import sys

import numpy as np
import pytest
from recorded_runs import (
    CONFIG,
    admitted,
    allocated,
    committed,
    ints,
    life_of,
    observe,
    released,
    replayed,
)

from kvlife import Checker
from kvlife.events import Evicted, Marked, Protected, StepDispatched, StepSettled
from kvlife.log import open_run
from kvlife.replay.cli import main
from kvlife.replay.shrinking import Shrinker

NO_LINKS = np.empty((0, 4), np.int32)


def busy_run(path, *last, checker=None):
    """Three requests come and go, two stay, steps go by; then what a test wants."""
    groups = [
        life_of("r1", 1, [1, 2]),
        [admitted("r2", 1, 30), admitted("r3", 2, 20)],
        [allocated([1, 2], [9, 8], [1, 2, 3, 4, 5])],
        [StepDispatched(0, ints(1, 2))],
        [StepSettled(0, ints(), (ints(),))],
        [committed([1, 2], [9, 8])],
        [Protected(1, 8, (np.array([71, 72], np.uint64),), NO_LINKS)],
        life_of("r4", 3, [7, 6]),
        [allocated([2, 1], [13, 17], [8, 9, 10, 11])],
    ]
    return observe(path, [*groups, *[[event] for event in last]], checker=checker)


def shrunk(capsys, log, *arguments):
    """Run `kvlife shrink --json`; its exit status and object."""
    status = main(["shrink", str(log), *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert not err
    return status, json.loads(out)


def refused(capsys, *arguments):
    """What `kvlife shrink` complains of, with exit status 2."""
    assert main(["shrink", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "Traceback" not in err
    return err


def events_in(folder):
    return [type(item.event).__name__ for item in open_run(folder).events()]


def test_a_page_that_a_release_forgets_needs_three_events(tmp_path, capsys):
    """A request, a page of one token, and a release that does not name it: nothing else."""
    busy_run(tmp_path / "log", released("r3", 2, [4, 5, 8], "aborted"))
    status, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert status == 0
    assert (told["invariant"], told["event"], told["seq"]) == ("refs-balance", "Released", 2)
    assert (told["seq_in_log"], told["events"], told["complete"]) == (16, 3, True)
    assert events_in(tmp_path / "small") == ["Admitted", "Allocated", "Released", "Violated"]
    config = open_run(tmp_path / "small").header.config
    # Page 0 is reserved, so that one page makes two.
    assert (config.num_pages, config.max_requests, config.max_context_len) == (2, 1, 1)
    assert config.page_size == CONFIG.page_size


def test_a_row_that_leaves_a_settle_takes_shared_pages_along(tmp_path, capsys):
    """A settle of no step is wrong without the row that it drains, two of whose pages are r2's."""
    links = np.array([[0, 0, 4, 1], [0, 1, 5, 2]], np.int32)
    rebound = Protected(2, 8, (np.array([71, 72], np.uint64),), links)
    busy_run(tmp_path / "log", rebound, StepSettled(1, ints(2), (ints(1, 2, 8, 9),)))
    status, found = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert (status, found["invariant"], found["events"]) == (0, "in-flight-fence", 1)


def test_the_small_log_replays_to_the_same_violation(tmp_path, capsys):
    """A replay of the small log ends where its run ended, with the invariant of the large one."""
    busy_run(tmp_path / "log", allocated([2], [17], [9]))
    _, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert told["invariant"] == "page-double-alloc"
    status, again = replayed(capsys, tmp_path / "small")
    assert status == 1
    assert [found["id"] for found in again["violations"]] == ["page-double-alloc"]
    assert again["violations"][0]["seq"] == told["seq"]
    assert (again["differences"], again["digest_ok"]) == ([], True)


def test_a_faulty_batch_is_cut_to_the_row_that_is_wrong(tmp_path, capsys):
    """Of two rows that commit, one beyond its allocation, the other goes."""
    busy_run(tmp_path / "log", committed([1, 2], [17, 16]))
    shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    *_, last, _ended = open_run(tmp_path / "small").events()
    assert (last.event.rows.tolist(), last.event.committed_len.tolist()) == ([1], [1])


def test_lengths_are_derived_again(tmp_path, capsys):
    """Where a page of a row is published and evicted under it, all other pages of it go."""
    busy_run(tmp_path / "log", Evicted("pressure", (ints(2),)))
    _, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small", "--same-story")
    *sound, last, _ended = [item.event for item in open_run(tmp_path / "small").events()]
    assert [type(event).__name__ for event in sound] == [
        "Admitted",
        "Allocated",
        "Committed",
        "Protected",
    ]
    # One page of four tokens is the least that can be published.
    assert sound[1].allocated_len.tolist() == sound[2].committed_len.tolist() == [4]
    assert sound[3].protected_len == 4
    assert sound[1].pages[0].tolist() == last.pages[0].tolist() == [1]
    assert told["same_story"] is True


def test_a_doubled_release_is_one_event_or_with_its_story_three(tmp_path, capsys):
    """Any release of nobody breaks release-once; with its story the first release stays."""
    gone = released("r3", 2, [4, 5, 8, 9], "aborted")
    busy_run(tmp_path / "log", gone, gone)
    _, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert (told["invariant"], told["events"], told["same_story"]) == ("release-once", 1, False)
    _, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "story", "--same-story")
    assert events_in(tmp_path / "story")[:-1] == ["Admitted", "Released", "Released"]
    assert told["same_story"] is True


def test_what_an_idle_engine_still_holds(tmp_path, capsys):
    """An idle mark is broken by one request that was admitted, and never let go."""
    busy_run(tmp_path / "log", Marked("end of the day", idle=True))
    shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert events_in(tmp_path / "small") == ["Admitted", "Marked", "Violated"]


def test_a_collected_violation_is_found_by_its_invariant(tmp_path, capsys):
    """Of a run that went on, the first violation is taken, or the one that is asked for."""
    faults = (allocated([2], [17], [9]), released("r9", 3, [], "aborted"))
    busy_run(tmp_path / "log", *faults, checker=Checker(policy="collect"))
    _, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "first")
    assert (told["invariant"], told["seq_in_log"]) == ("page-double-alloc", 16)
    chosen = ("--invariant", "release-once")
    _, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "chosen", *chosen)
    assert (told["invariant"], told["seq_in_log"], told["events"]) == ("release-once", 17, 1)


def test_the_log_that_is_shrunk_stays_as_it_is(tmp_path, capsys):
    """Inspecting never writes."""
    busy_run(tmp_path / "log", committed([1, 2], [17, 16]))
    before = {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    after = {path: path.read_bytes() for path in (tmp_path / "log").rglob("*") if path.is_file()}
    assert before == after


def test_the_text_tells_what_is_left(tmp_path, capsys):
    """For people: the violation in the log, the events that are left, and that this is all."""
    busy_run(tmp_path / "log", released("r3", 2, [4, 5, 8], "aborted"))
    assert main(["shrink", str(tmp_path / "log"), "-o", str(tmp_path / "small")]) == 0
    out, err = capsys.readouterr()
    assert not err
    assert "refs-balance at seq 16, by Released" in out
    assert f"3 of 17 events, in {tmp_path / 'small'}" in out
    assert "nothing more can be taken" in out
    assert "seq 2  Released rid r3" in out


def test_a_sound_log_cannot_be_shrunk(tmp_path, capsys):
    """Where nothing is broken there is nothing to do."""
    busy_run(tmp_path / "log")
    err = refused(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert "no event breaks an invariant: there is nothing to shrink" in err
    assert not (tmp_path / "small").exists()


def test_a_state_that_was_written_to_is_no_events_fault(tmp_path, capsys):
    """What came into the columns by no event is in no event of a smaller log."""
    observer = observe(tmp_path / "log", [life_of("r1", 1, [1, 2])], close=False)
    observer.ledger.spaces[0].refs[3] += 1
    with pytest.raises(Exception, match="refs-balance"):
        observer.audit()
    err = refused(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert "the run recorded refs-balance at seq 3, which did not come about by an event" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--invariant", "no-such"], "no such invariant: 'no-such'; there are ladder-order"),
        (["--invariant", "release-once"], "it breaks refs-balance first, and ends"),
        (["--seconds", "0"], "--seconds must be above 0"),
    ],
)
def test_arguments_that_do_not_fit(tmp_path, capsys, arguments, message):
    """What was asked, what is the case: and nothing is written."""
    busy_run(tmp_path / "log", released("r3", 2, [4, 5, 8], "aborted"))
    assert message in refused(capsys, tmp_path / "log", "-o", tmp_path / "small", *arguments)
    assert not (tmp_path / "small").exists()


def test_nothing_is_written_over(tmp_path, capsys):
    """A folder with something in it, or a test that is there, is left alone."""
    busy_run(tmp_path / "log", released("r3", 2, [4, 5, 8], "aborted"))
    assert "is there already" in refused(capsys, tmp_path / "log", "-o", tmp_path / "log")
    taken = tmp_path / "test_taken.py"
    taken.write_text("mine")
    where = ("-o", tmp_path / "small", "--pytest", taken)
    assert "is there already: name a new file" in refused(capsys, tmp_path / "log", *where)
    assert taken.read_text() == "mine"


def test_a_log_that_is_none(tmp_path, capsys):
    """A folder without a run is unusable, and said to be."""
    assert "there is no such folder" in refused(capsys, tmp_path / "no", "-o", tmp_path / "small")


def test_when_the_time_is_up_the_best_so_far_is_written(tmp_path, capsys):
    """A small log of any size breaks the same."""
    busy_run(tmp_path / "log", released("r3", 2, [4, 5, 8], "aborted"))
    small = ("-o", tmp_path / "small", "--seconds", "0.000001")
    status, told = shrunk(capsys, tmp_path / "log", *small)
    assert (status, told["complete"], told["invariant"]) == (0, False, "refs-balance")
    assert events_in(tmp_path / "small")[-2:] == ["Released", "Violated"]


def test_an_interrupt_writes_the_best_so_far(tmp_path, capsys, monkeypatch):
    """Whoever stops waiting gets what there is, and the exit status of an interrupt."""
    busy_run(tmp_path / "log", released("r3", 2, [4, 5, 8], "aborted"))
    tried = Shrinker._tried

    def impatient(self, program):
        if self.num_trials == 5:
            raise KeyboardInterrupt
        return tried(self, program)

    monkeypatch.setattr(Shrinker, "_tried", impatient)
    status, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small")
    assert (status, told["complete"], told["interrupted"]) == (130, False, True)
    assert events_in(tmp_path / "small")[-2:] == ["Released", "Violated"]


FAULTS = {
    "page-double-alloc": allocated([2], [17], [9]),
    "refs-balance": released("r3", 2, [4, 5, 8], "aborted"),
    "index-agrees": Protected(2, 8, (np.array([71, 73], np.uint64),), NO_LINKS),
    "evicted-while-locked": Evicted("pressure", (ints(2),)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_the_test_file_passes_is_formatted_and_needs_the_fault(tmp_path, capsys, name):
    """It passes as it is, a formatter changes nothing, and without its last event it fails."""
    busy_run(tmp_path / "log", FAULTS[name])
    file = tmp_path / f"test_{name.replace('-', '_')}.py"
    _, told = shrunk(capsys, tmp_path / "log", "-o", tmp_path / "small", "--pytest", file)
    assert told["invariant"] == name
    text = file.read_text()
    assert _outcome(text) is None
    for width in (88, 100):
        command = [sys.executable, "-m", "ruff", "format", "--check", "--isolated"]
        done = subprocess.run([*command, "--line-length", str(width), str(file)], check=False)
        assert done.returncode == 0
    head, raises, tail = text.partition("    with pytest.raises(InvariantViolation) as caught:\n")
    assert raises
    faulty, _, asserts = tail.partition("    assert caught")
    assert faulty.lstrip().startswith("observer.observe(")
    without = f"{head}{raises}        observer.observe()\n    assert caught{asserts}"
    assert "DID NOT RAISE" in str(_outcome(without))


def _outcome(text):
    """Run the one test of a file's text; what it raises, or None."""
    names = {}
    exec(compile(text, "test file", "exec"), names)  # noqa: S102  # our own text
    (test,) = (value for name, value in names.items() if name.startswith("test_"))
    try:
        test()
    except (AssertionError, pytest.fail.Exception) as failed:
        return failed
    return None
