"""A run that broke an invariant breaks the same one in the replay, at the same seq."""

import numpy as np
import pytest
import recorded_runs as made

from kvlife import Checker, LogWriter
from kvlife.events import Marked, Violated
from kvlife.invariants import CATALOGUE, Invariant
from kvlife.log import RunHeader

SOUND = [
    [made.admitted("r1", 1)],
    [made.allocated([1], [8], [1, 2])],
    [made.committed([1], [8])],
    [made.admitted("r2", 2)],
]
# Seq 4 takes page 1, which r1 has held since seq 1; seqs 5 and 6 stand in the same group.
TWICE = [made.allocated([2], [8], [1, 3]), made.committed([2], [8]), made.released("r2", 2, [1, 3])]
AFTER = [[made.released("r1", 1, [1, 2])]]


def first_of(seen):
    return [(found["id"], found["seq"], found["applied"]) for found in seen["violations"]][:1]


def test_a_guard_stops_the_replay_where_it_stopped_the_run(tmp_path, capsys):
    """Under raise the faulty event and the rest of its group are not applied, here as there."""
    observer = made.observe(tmp_path, [*SOUND, TWICE])
    assert observer.ledger.next_seq == 4
    status, seen = made.replayed(capsys, tmp_path)
    assert status == 1
    assert first_of(seen) == [("page-double-alloc", 4, False)]
    assert seen["events"] == 4
    assert seen["digest_ok"] is True
    assert seen["differences"] == []


def test_the_evidence_and_the_chain_name_page_rows_and_events(tmp_path, capsys):
    """Page 1 was taken at seq 1 by row 1, whose request was admitted at seq 0."""
    made.observe(tmp_path, [*SOUND, TWICE])
    _, seen = made.replayed(capsys, tmp_path)
    assert seen["violations"][0]["evidence"]["pages"] == [1]
    chain = [(link["seq"], link["event"], link["where"]) for link in seen["chain"]]
    assert (1, "Allocated", "page 1 of full") in chain
    assert (3, "Admitted", "row 2") in chain
    assert chain[-1] == (4, "Allocated", "page-double-alloc")
    taken = next(link["text"] for link in seen["chain"] if link["seq"] == 1)
    assert taken == "FREE -> PRIVATE, refs 0 -> 1, page 0 of row 1 (request r1)"


def test_the_report_explains_the_first_violation(tmp_path, capsys):
    """The text has the sentence, the evidence, the chain, the violation last, and what to ask."""
    made.observe(tmp_path, [*SOUND, TWICE])
    status, out, _ = made.shown(capsys, tmp_path)
    assert status == 1
    assert "violation   page-double-alloc at seq 4, step 0, by Allocated" in out
    assert "pages: [1]" in out
    story, _, commands = out[out.index("how it came about") :].partition("what shows why\n")
    last = story.splitlines()[-1]
    assert last.startswith("  seq 4  step 0  Allocated: page-double-alloc is broken")
    assert len(commands.splitlines()) == 3


def test_collect_goes_on_behind_what_ended_the_run(tmp_path, capsys):
    """With --collect the whole group is applied; the digest compared is that of the run's end."""
    observer = made.observe(tmp_path, [*SOUND, TWICE])
    status, seen = made.replayed(capsys, tmp_path, "--collect")
    assert status == 1
    assert first_of(seen) == [("page-double-alloc", 4, True)]
    assert seen["events"] == 7
    assert seen["digest"] == f"{observer.ledger.digest():016x}"
    assert seen["digest_ok"] is True
    assert all(found["after_first"] for found in seen["violations"][1:])


def test_an_ignored_violation_still_ends_the_run(tmp_path, capsys):
    """With --ignore the recorded violation is not looked for; the state is that of the run."""
    made.observe(tmp_path, [*SOUND, TWICE])
    ignored = ["page-double-alloc", "write-exclusive", "refs-balance"]
    options = [part for name in ignored for part in ("--ignore", name)]
    status, seen = made.replayed(capsys, tmp_path, *options)
    assert (status, seen["violations"], seen["digest_ok"]) == (0, [], True)
    assert any("page-double-alloc at seq 4" in note for note in seen["notes"])


@pytest.mark.parametrize("policy", ["collect", "log"])
def test_a_run_that_collects_replays_to_its_digest(tmp_path, capsys, policy):
    """Under collect and log every event is applied as written, in the replay as in the run."""
    observer = made.observe(tmp_path, [*SOUND, TWICE, *AFTER], checker=Checker(policy=policy))
    assert observer.ledger.next_seq == 8
    status, seen = made.replayed(capsys, tmp_path)
    assert status == 1
    assert first_of(seen) == [("page-double-alloc", 4, True)]
    assert (seen["events"], seen["digest_ok"]) == (8, True)


@pytest.mark.parametrize("policy", ["collect", "log"])
def test_policies_of_the_header_are_obeyed(tmp_path, capsys, policy):
    """A policy that the header names for each invariant by id is that of the replay."""
    policies = {invariant.id: policy for invariant in CATALOGUE}
    checker = Checker(policies=policies)
    made.observe(tmp_path, [*SOUND, TWICE, *AFTER], checker=checker)
    status, seen = made.replayed(capsys, tmp_path)
    assert (status, seen["events"], seen["digest_ok"]) == (1, 8, True)


def test_a_named_policy_raise_stops_a_replay_that_the_run_outlived(tmp_path, capsys):
    """Where the run checked nothing, and its header says raise, the replay stops; --collect not."""
    policies = {invariant.id: "raise" for invariant in CATALOGUE}
    checker = Checker(level="off", policies=policies)
    observer = made.observe(tmp_path, [*SOUND, TWICE, *AFTER], checker=checker)
    status, seen = made.replayed(capsys, tmp_path)
    assert (status, seen["events"], seen["digest_ok"]) == (1, 4, None)
    assert first_of(seen) == [("page-double-alloc", 4, False)]
    assert any("the run itself went on to seq 7" in note for note in seen["notes"])
    status, seen = made.replayed(capsys, tmp_path, "--collect")
    assert (status, seen["events"], seen["digest_ok"]) == (1, 8, True)
    assert seen["digest"] == f"{observer.ledger.digest():016x}"


def test_a_recorded_violation_that_is_not_there_is_a_difference(tmp_path, capsys):
    """The run's ledger was spoilt behind its back: its audit says so, the replay cannot."""
    observer = made.observe(tmp_path, SOUND, close=False)
    observer.ledger.spaces[0].refs[2] += 1
    made.observe_rest(observer)
    status, seen = made.replayed(capsys, tmp_path)
    assert status == 1
    assert seen["violations"] == []
    kinds = {difference["kind"] for difference in seen["differences"]}
    assert kinds == {"violation", "digest"}
    assert seen["digest_ok"] is False


def test_another_violation_than_the_recorded_one_is_a_difference(tmp_path, capsys):
    """The log names one invariant, the replay finds another to be the first."""
    writer = LogWriter(tmp_path)
    writer.start(RunHeader(config=made.CONFIG))
    write(writer, *SOUND, TWICE, [Violated(4, "window-cursor", False)])
    writer.close()
    status, seen = made.replayed(capsys, tmp_path)
    assert status == 1
    assert first_of(seen) == [("page-double-alloc", 4, False)]
    (difference,) = seen["differences"]
    assert difference["kind"] == "violation"
    assert "window-cursor at seq 4" in difference["text"]
    assert "it finds page-double-alloc" in difference["text"]


def test_a_violation_recorded_in_passing_must_be_found_too(tmp_path, capsys):
    """A Violated that ends no run is compared as well, and events behind one that does are told."""
    writer = LogWriter(tmp_path)
    writer.start(RunHeader(config=made.CONFIG))
    write(writer, *SOUND, [Marked("a note", False), Violated(0, "refs-balance", True)], *AFTER)
    writer.close()
    status, seen = made.replayed(capsys, tmp_path)
    assert status == 1
    assert [difference["kind"] for difference in seen["differences"]] == ["violation"]
    assert seen["events"] == 7


def test_a_run_that_died_before_it_could_record_is_stopped_in_the_replay(tmp_path, capsys):
    """The log ends with the faulty group and no end mark: the replay finds what killed the run."""
    writer = LogWriter(tmp_path / "log")
    writer.start(RunHeader(config=made.CONFIG))
    write(writer, *SOUND, TWICE)
    killed = made.copy_of_unclosed(writer, tmp_path / "log", tmp_path / "killed")
    writer.close()
    status, seen = made.replayed(capsys, killed)
    assert (status, seen["closed"], seen["events"]) == (1, False, 4)
    assert first_of(seen) == [("page-double-alloc", 4, False)]


def test_an_audit_of_the_user_is_repeated_where_it_ended_the_run(tmp_path, capsys):
    """Policy log lets a leak pass its guard; an audit that was asked for later is found again."""
    lenient = {invariant.id: "log" for invariant in CATALOGUE}
    observer = made.observe(
        tmp_path,
        [*SOUND, TWICE[:2]],
        checker=Checker(policies={**lenient, "page-aliased": "raise"}),
        close=False,
    )
    made.observe_rest(observer)
    status, seen = made.replayed(capsys, tmp_path)
    assert status == 1
    assert seen["differences"] == []
    assert seen["digest_ok"] is True
    assert {"page-aliased"} <= {found["id"] for found in seen["violations"]}


def test_an_invariant_of_the_runs_own_is_named_as_not_checked(tmp_path, capsys):
    """A user's invariant that ended the run is known to the run alone, and is no difference."""
    checker = Checker()
    mine = Invariant(
        "no-marks", "no mark is set", guard=lambda effect: marks_in(effect.event), events=(Marked,)
    )
    checker.register(mine, policy="raise")
    made.observe(tmp_path, [*SOUND, [Marked("here", False)]], checker=checker)
    status, seen = made.replayed(capsys, tmp_path)
    assert (status, seen["digest_ok"], seen["differences"]) == (0, True, [])
    assert any(note.startswith("no-marks") for note in seen["notes"])


@pytest.mark.parametrize("options", [[], ["--collect"]], ids=["raise", "collect"])
def test_processes_find_the_violations_that_one_finds(tmp_path, capsys, options):
    """A fault in the third of five intervals: the same violations, first and later, and digest."""
    lives = [made.life_of(f"r{n}", 1, [1, 2]) for n in range(5)]
    lives[2][3] = made.released("r2", 1, [1, 1])
    facts = [step for life in lives for step in (life, "snapshot")]
    made.observe(tmp_path, facts, checker=Checker(level="off"))
    _, alone = made.replayed(capsys, tmp_path, *options)
    _, together = made.replayed(capsys, tmp_path, *options, "--jobs", 2)
    assert first_of(alone)[0][1] == 11
    for name in ("jobs", "seconds", "events_per_second"):
        del alone[name], together[name]
    assert together == alone


def marks_in(event):
    return {"text": event.text}


def write(writer, *groups):
    """Append groups one after another, as they are."""
    seq = 0
    for group in groups:
        writer.append(seq, 0, 0, group)
        seq += len(group)


def test_evidence_passes_into_json_as_it_is(tmp_path, capsys):
    """Numbers stay numbers, so that a machine can go by them."""
    made.observe(tmp_path, [*SOUND, TWICE])
    evidence = made.replayed(capsys, tmp_path)[1]["violations"][0]["evidence"]
    assert evidence["refs"] == [1]
    assert evidence["last_events"] == [1]
    assert not any(isinstance(value, np.generic) for value in evidence.values())
