"""`kvlife page`: who owns a page since when, and what happened to it."""

import attrs
import held_runs as held
import numpy as np
import pytest
import recorded_runs as made
import told_runs

from kvlife import CacheGroup, open_run
from kvlife.events import Admitted, Allocated, Committed, SessionRestored, SessionSaved
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.history.touches import PageWatch
from kvlife.replay.lives.page_life import present_life, whole_history

WINDOWED = (CacheGroup("full"), CacheGroup("swa", window=16, num_pages=64))


@pytest.fixture
def run(tmp_path):
    """The run in which something is held in every way."""
    held.every_kind(tmp_path / "log")
    return tmp_path / "log"


def told(answer):
    return [(touch["seq"], touch["event"]) for touch in answer["touches"]]


def first_line(capsys, *arguments):
    status, out, _ = made.ran(capsys, "page", *arguments)
    assert status == 0
    return out.splitlines()[0]


def test_the_first_line_says_who_owns_the_page_since_when(run, capsys):
    """Page 9 was taken by r5 at seq 19, whose session s1 keeps it; page 7 is r4's since seq 15."""
    line = first_line(capsys, run, 9)
    assert line == (
        "page 9 of full is PRIVATE: session s1 (row 4) owns it since seq 19 (step 0, 0.000000 s)"
    )
    assert "request r4 (row 3) owns it since seq 15" in first_line(capsys, run, 7)


def test_a_published_page_has_those_who_reference_it(run, capsys):
    """r1 published page 2 with event 3 and goes on to reference it."""
    status, seen = made.answered(capsys, "page", run, 2)
    assert (status, seen["state"], seen["refs"]) == (0, "CACHED", 1)
    assert seen["key"] == f"{12:016x}"
    assert seen["holders"] == [{"row": 1, "holder": "request r1"}]
    assert told(seen) == [(1, "Allocated"), (3, "Protected")]
    assert seen["since"]["seq"] == 1
    assert "CACHED: request r1 (row 1) references it; in use since seq 1" in first_line(
        capsys, run, 2
    )


def test_a_cached_page_that_nobody_references_can_be_evicted(run, capsys):
    """Page 4 was taken at seq 5, published at seq 7 and let go at seq 8."""
    assert "nobody references it, it can be evicted; in use since seq 5" in first_line(
        capsys, run, 4
    )
    assert told(made.answered(capsys, "page", run, 4)[1]) == [
        (5, "Allocated"),
        (7, "Protected"),
        (8, "Released"),
    ]
    assert "pinned by p1" in first_line(capsys, run, 5)


def test_a_page_that_a_step_holds_names_the_step(run, capsys):
    """Page 8 left r4 by a roll-back while step 8 was in flight."""
    line = first_line(capsys, run, 8)
    assert "QUARANTINED: its owner is gone, step 8 in flight holds it; in use since seq 15" in line


def test_a_free_page_tells_its_last_life(run, capsys):
    """r6 gave page 10 back when it was retracted."""
    assert "page 10 of full is FREE: nobody owns it since seq 25 (step 0, Retracted)" in first_line(
        capsys, run, 10
    )
    status, seen = made.answered(capsys, "page", run, 10)
    assert (status, seen["since"], told(seen)) == (0, None, [(23, "Allocated"), (25, "Retracted")])


def test_an_earlier_life_is_told_where_all_are_asked_for(tmp_path, capsys):
    """Page 1 is taken at seq 1 by r1 and given back at seq 3; r2 has it from seq 5 to seq 7."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2]), made.life_of("r2", 2, [1, 2])])
    lives = [(1, "Allocated"), (3, "Released"), (5, "Allocated"), (7, "Released")]
    for at, present in ((7, lives[2:]), (6, lives[2:3]), (4, lives[:2])):
        assert told(made.answered(capsys, "page", tmp_path, 1, "--at", at)[1]) == present
    assert told(made.answered(capsys, "page", tmp_path, 1, "--all")[1]) == lives


def test_a_page_that_never_was_in_use_says_so(run, capsys):
    """No event takes page 20."""
    assert first_line(capsys, run, 20) == (
        "page 20 of full is FREE, and was never in use up to seq 25"
    )


def test_an_earlier_moment_is_told_as_it_was(run, capsys):
    """After event 6 page 4 is r2's alone; after event 4 nobody has taken it yet."""
    line = first_line(capsys, run, 4, "--at", 6)
    assert "PRIVATE: request r2 (row 2) owns it since seq 5" in line
    assert "never in use up to seq 4" in first_line(capsys, run, 4, "--at", 4)


@pytest.mark.parametrize(("page", "words"), [(0, "reserved"), (32, "[1, 32)"), (10**12, "[1, 32)")])
def test_a_page_that_is_none_is_refused(run, capsys, page, words):
    """Page 0 is handed to nobody, and the pool ends before page 32."""
    status, out, err = made.ran(capsys, "page", run, page)
    assert (status, out) == (2, "")
    assert words in err


def test_an_unknown_group_is_refused_with_the_known_ones(run, capsys):
    """The run has one group."""
    status, _, err = made.ran(capsys, "page", run, 1, "--group", "swa")
    assert status == 2
    assert "full" in err


def all_touches(timeline, space_idx):
    """What happens to each page, by watching them all at once over the whole log."""
    num_pages = timeline.state(0).spaces[space_idx].num_pages
    watches = [PageWatch(space_idx, page) for page in range(num_pages)]
    found = [[] for _ in watches]
    begun = False

    def before(ledger, _item, change):
        nonlocal begun
        for watch in watches:
            if not begun:
                watch.begin(ledger)
            watch.before(ledger, change)
        begun = True

    for moment in timeline.walk(before=before):
        for page, watch in enumerate(watches):
            found[page] += watch.after(moment.ledger, moment.item, moment.change)
    return found


@pytest.mark.soak
@pytest.mark.parametrize("groups", [None, WINDOWED])
@pytest.mark.parametrize("named", [True, False])
def test_a_page_is_told_whole_with_and_without_names(tmp_path, seed, groups, named):
    """All touches of any page, and of its present life the first and those that came last."""
    made.crowded_engine(tmp_path, seed=seed, num_steps=100, groups=groups)
    if not named:
        for path in tmp_path.glob("*/*.names"):
            path.unlink()
    timeline = Timeline(open_run(tmp_path))
    end = timeline.state()
    rng = np.random.default_rng(seed)
    for space in timeline.run.layout.spaces:
        expected = all_touches(timeline, space.idx)
        for page in rng.choice(np.arange(1, space.num_pages), 4, replace=False).tolist():
            whole = whole_history(timeline, space.idx, page, end.next_seq, lambda _num: None)
            assert list(whole.touches) == expected[page]
            life = present_life(timeline, space.idx, page, end, lambda _num: None)
            begins = [touch for touch in expected[page] if touch.begins]
            assert life.origin == (begins[-1] if begins else None)
            assert set(life.touches) <= set(expected[page])
            assert life.touches[-1:] == tuple(expected[page][-1:])


def test_a_long_life_is_told_from_both_ends(tmp_path, capsys):
    """Page 1 is taken at seq 1, and read again in a passage that lies five snapshots later."""
    facts = [
        [made.admitted("r0", 1), made.allocated([1], [8], [1, 2]), made.committed([1], [8])],
        [held.protected(1, 8, 11, 12), made.released("r0", 1, [1, 2])],
        "snapshot",
    ]
    for number in range(1, 6):
        facts += [*([fact] for fact in made.life_of(f"r{number}", 2, [3, 4])), "snapshot"]
    again = made.Admitted("last", 1, 0, 12, 8, 0, (), (made.ints(1, 2),))
    made.observe(tmp_path, [*facts, [again]])
    status, seen = made.answered(capsys, "page", tmp_path, 1)
    assert (status, told(seen)[0], told(seen)[-1]) == (0, (1, "Allocated"), (25, "Admitted"))
    assert seen["unread"] == [[5, 25]]
    _, out, _ = made.ran(capsys, "page", tmp_path, 1)
    assert "seqs 5 to 24 were not read, and may tell more: use --all" in out
    assert made.answered(capsys, "page", tmp_path, 1, "--all")[1]["unread"] == []
    # What was not read stands where it lies.
    starts = [line.split()[:2] for line in out.splitlines()[2:]]
    assert starts == [["1", "step"], ["3", "step"], ["4", "step"], ["...", "seqs"], ["25", "step"]]
    _, out, _ = made.ran(capsys, "page", tmp_path, 1, "--limit", 2)
    starts = [line.split()[:2] for line in out.splitlines()[2:]]
    assert starts == [["1", "step"], ["...", "seqs"], ["...", "2"], ["25", "step"]]


def test_a_hit_names_the_request_that_it_is_of(tmp_path, capsys):
    """Rows 3 and 2 were FREE before r4 was admitted and resumed; r4 has them behind that."""
    log = told_runs.told_run(tmp_path)
    touches = made.answered(capsys, "page", log, 4, "--all")[1]["touches"]
    texts = {touch["seq"]: touch["text"] for touch in touches}
    assert texts[15].endswith("by row 2 (request r3)")
    assert texts[16].endswith("refs 0 -> 1, by row 3 (request r4)")
    assert texts[19].endswith("refs 0 -> 1, by row 2 (request r4)")


def test_a_turn_that_gives_back_pages_names_its_request(tmp_path, capsys):
    """The second turn of s1 keeps 4 of 8 tokens, so that r2 gives back page 2 at seq 4."""
    facts = [
        [made.admitted("r1", 1), made.allocated([1], [8], [1, 2]), made.committed([1], [8])],
        [SessionSaved("s1", "r1", 1, 8, (made.ints(),))],
        [SessionRestored("s1", "r2", 1, 4, 12, (made.ints(2),))],
    ]
    made.observe(tmp_path, facts)
    touch = made.answered(capsys, "page", tmp_path, 2)[1]["touches"][-1]
    assert (touch["seq"], touch["event"]) == (4, "SessionRestored")
    assert touch["text"].endswith("by row 1 (request r2 of session s1)")


@pytest.mark.parametrize("asked", [("page", 2), ("page", 2, "--all")])
def test_a_run_without_any_segment_has_untouched_pages(run, capsys, asked):
    """With only its header left it is an empty run, of which every page is FREE."""
    for path in run.glob("*/0*"):
        path.unlink()
    status, seen = made.answered(capsys, asked[0], run, *asked[1:])
    assert (status, seen["state"], seen["touches"]) == (0, "FREE", [])
    assert "no segment: the run ended before its first event" in seen["notes"]


def shared_space(path):
    """r1 has pages 1 to 3 of group full and pages 4 to 6 of group swa, all of space all."""
    groups = (CacheGroup("full", space="all"), CacheGroup("swa", window=8, space="all"))
    config = attrs.evolve(made.CONFIG, num_pages=16, groups=groups)
    facts = [
        Admitted("r1", 1, 0, 12, 0, 0, (0,), (made.ints(), made.ints())),
        Allocated(
            made.ints(1), made.ints(12), (made.ints(1, 2, 3), made.ints(4, 5, 6)), (made.ints(0),)
        ),
        Committed(made.ints(1), made.ints(12)),
    ]
    made.observe(path, [facts], config=config)


@pytest.mark.parametrize("asked", [(), ("--group", "full"), ("--group", "swa")])
def test_a_page_of_a_shared_space_is_that_of_the_group_that_took_it(tmp_path, capsys, asked):
    """Page 5 was given to group swa, whichever group is asked for; page 12 to none yet."""
    shared_space(tmp_path)
    assert first_line(capsys, tmp_path, 5, *asked).startswith("page 5 of swa, in space all, is ")
    assert first_line(capsys, tmp_path, 2, *asked).startswith("page 2 of full, in space all, is ")
    assert first_line(capsys, tmp_path, 12, *asked).startswith("page 12 of space all is FREE")
    for page, group in ((5, "swa"), (2, "full"), (12, None)):
        seen = made.answered(capsys, "page", tmp_path, page, *asked)[1]
        assert (seen["group"], seen["space"]) == (group, "all")


def test_the_pages_of_a_shared_space_are_counted_once(tmp_path, capsys):
    """15 pages, of which 6 are r1's and 9 free, for both groups together."""
    shared_space(tmp_path)
    _, out, _ = made.ran(capsys, "inspect", tmp_path)
    lines = [line.split()[:7] for line in out.splitlines()]
    assert ["all", "15", "9", "0", "0", "6", "0"] in lines
    assert ["full", "0", "0", "3", "0"] in [line[:5] for line in lines]
    assert ["swa", "0", "0", "3", "0"] in [line[:5] for line in lines]
    _, out, _ = made.ran(capsys, "leaks", tmp_path)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "pages of all 15 in flight pinned shared by full and swa" in lines
    assert "live 6 0 0 PRIVATE, of rows that are held (3 full, 3 swa)" in lines
    assert sum(line.startswith("pages of") for line in lines) == 1
    for command in ("inspect", "leaks"):
        counts = made.answered(capsys, command, tmp_path)[1]["space_pages"]["all"]
        assert (counts["free"]["pages"], counts["live"]["pages"]) == (9, 6)


def test_many_touches_are_cut_to_the_first_and_the_last(run, capsys):
    """Of three touches two are shown: the one that began the page's life, and the last."""
    _, out, _ = made.ran(capsys, "page", run, 4, "--limit", 2)
    shown = [line for line in out.splitlines() if "step 0" in line and "of full" not in line]
    assert [line.split()[0] for line in shown] == ["5", "8"]
    assert "1 touch left out: use --all" in out


def test_a_log_that_is_cut_tells_what_it_has(tmp_path, capsys):
    """The run was never closed: the page is told up to where the log ends."""
    observer = held.every_kind(tmp_path / "log", close=False)
    copy = made.copy_of_unclosed(observer.log, tmp_path / "log", tmp_path / "copy")
    _, out, _ = made.ran(capsys, "page", copy, 2)
    assert "CACHED: request r1 (row 1)" in out
    assert "note: the run was not closed" in out


def test_the_event_that_was_refused_is_told_of_its_page_and_request(tmp_path, capsys):
    """r2 gives back page 2, which r1 had given back; the guard refused that, so no state has it."""
    facts = [[fact] for fact in made.life_of("r1", 1, [1, 2])]
    facts += [[made.admitted("r2", 2)], [made.allocated([2], [4], [5])]]
    made.observe(tmp_path, [*facts, [made.released("r2", 2, [2], "aborted")]])
    refused = {"seq": 6, "event": "Released", "invariant": "page-double-free"}
    assert made.answered(capsys, "page", tmp_path, 2)[1]["refused"] == refused
    assert made.answered(capsys, "request", tmp_path, "r2")[1]["refused"] == refused
    assert made.answered(capsys, "page", tmp_path, 1)[1]["refused"] is None
    assert made.answered(capsys, "page", tmp_path, 2, "--at", 4)[1]["refused"] is None
    _, out, _ = made.ran(capsys, "page", tmp_path, 2)
    assert "seq 6 (Released, step 0) names it too, and was refused: page-double-free" in out
