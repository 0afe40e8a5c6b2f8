"""`kvlife leaks`: what is held and since when, and what is lost and by whom."""

import attrs
import held_runs as held
import numpy as np
import pytest
import recorded_runs as made

from kvlife import CacheGroup, LogWriter
from kvlife.events import Admitted, Marked, Pinned, Released, Resumed
from kvlife.ledger import PageState, RowState
from kvlife.log import Retention, open_run
from kvlife.replay.history.timeline import Timeline
from kvlife.replay.history.view import look
from kvlife.replay.holding.holdings import Holdings
from kvlife.replay.holding.leaks import find_leaks
from kvlife.simulation import (
    SchedulerConfig,
    SimulationPlan,
    SyntheticConfig,
    VirtualClock,
    generate,
    simulate,
    size_pools,
)


def test_a_full_cache_is_no_leak(tmp_path, capsys):
    """All pages in use are cached and held by nobody: nothing is lost, and the status is 0."""
    config = attrs.evolve(held.CONFIG, num_pages=3)
    life = made.life_of("r1", 1, [1, 2])
    facts = [life[:3], [held.protected(1, 8, 11, 12), made.released("r1", 1, [1, 2])]]
    made.observe(tmp_path, [*facts, held.IDLE], config=config)
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["lost_pages"], seen["num_holders"], seen["idle"]) == (0, 0, 0, None)
    counts = {name: count["pages"] for name, count in seen["pages"]["full"].items()}
    assert (counts["free"], counts["cached, evictable"]) == (0, 2)
    _, out, _ = made.ran(capsys, "leaks", tmp_path)
    assert "a full cache is no leak" in out


def test_what_is_held_is_ranked_by_age(tmp_path, capsys):
    """Each holder with the event since when: admissions, a pin, a drain, steps, a session."""
    held.every_kind(tmp_path)
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert status == 0
    ranked = [(h["since_seq"], h["what"], h["row"], h["pages"]) for h in seen["holders"]]
    assert ranked == [
        (0, "request r1", 1, 3),
        (9, "pin p1 (copy)", None, 1),
        (12, "step 7 (1 row)", None, 0),
        (13, "DRAINING: request r3, released", 2, 1),
        (14, "request r4", 3, 1),
        (16, "step 8 (1 row)", None, 1),
        (21, "session s1", 4, 1),
    ]
    assert all(h["exact"] and h["since"]["seq"] == h["since_seq"] for h in seen["holders"])
    in_flight = {name: count["in_flight"] for name, count in seen["pages"]["full"].items()}
    assert {name for name, num in in_flight.items() if num} == {"live", "draining", "quarantined"}


def test_pages_that_a_release_forgot_are_named(tmp_path, capsys):
    """Pages 2 and 3: taken at seq 1 by r1, lost at seq 3, when it was released without them."""
    held.faulty(tmp_path, held.SHORT_RELEASE)
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["lost_pages"]) == (1, 2)
    (lot,) = seen["lost"]
    assert (lot["pages"], lot["why"]) == ([2, 3], "PRIVATE, and no row references it")
    assert (lot["last_event"]["event"], lot["last_seq"]) == ("Allocated", 1)
    assert (lot["lost_by"]["event"], lot["lost_by"]["seq"]) == ("Released", 3)
    assert lot["had_by"] == ["request r1 (row 1)"]
    status, out, _ = made.ran(capsys, "leaks", tmp_path)
    assert "pages 2-3 of full: PRIVATE, and no row references it" in out
    assert "lost by    Released at seq 3" in out


@pytest.mark.parametrize(
    ("facts", "page", "event", "seq"),
    [(held.SHORT_DRAIN, 2, "StepSettled", 4), (held.SHORT_SHARE, 2, "Released", 5)],
    ids=["drained", "shared"],
)
def test_the_event_that_lost_a_page_is_found(tmp_path, facts, page, event, seq):
    """A drained row's, and a shared one's whose last event came after the one that lost it."""
    held.faulty(tmp_path, facts)
    (lot,) = find_leaks(look(tmp_path, None), None).lots
    assert lot.pages == (page,)
    assert (type(lot.story.lost.event).__name__, lot.story.lost.seq) == (event, seq)
    assert lot.story.holders == ("request r1 (row 1)",)


def test_the_loss_is_found_behind_snapshots(tmp_path):
    """With a snapshot between the loss and the page's last event, an earlier one is tried."""
    facts = list(held.SHORT_SHARE)
    facts.insert(4, "snapshot")
    facts.insert(2, "snapshot")
    held.faulty(tmp_path, facts)
    (lot,) = find_leaks(look(tmp_path, None), None).lots
    assert (lot.story.lost.seq, lot.last_seq) == (5, 6)


def test_at_looks_at_a_moment(tmp_path, capsys):
    """Behind seq 2 nothing is lost yet."""
    held.faulty(tmp_path, held.SHORT_RELEASE)
    status, seen = made.answered(capsys, "leaks", tmp_path, "--at", 2)
    assert (status, seen["lost_pages"], seen["holders"][0]["what"]) == (0, 0, "request r1")


def test_a_pin_whose_owner_is_gone_is_lost(tmp_path, capsys):
    """r1 ends and leaves its pin, which quarantines page 2 for ever."""
    life = made.life_of("r1", 1, [1, 2])
    pin = Pinned("p1", "copy", True, "r1", 0, made.ints(2))
    held.faulty(tmp_path, [life[:3], [pin], life[3:]])
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["lost_pages"]) == (1, 1)
    (holder,) = seen["lost_holders"]
    assert (holder["what"], holder["why"]) == ("pin p1", "its owner, request r1, is gone")
    assert seen["lost"][0]["pages"] == [2]


def test_a_row_whose_holder_is_gone_is_lost(tmp_path, capsys):
    """r1 is bound to a second row: nobody can give back the first, nor its pages."""
    facts = [
        [made.admitted("r1", 1), made.allocated([1], [8], [1, 2])],
        [made.admitted("r1", 2), made.allocated([2], [4], [3])],
    ]
    held.faulty(tmp_path, facts)
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert status == 1
    assert [holder["row"] for holder in seen["lost_holders"]] == [1]
    assert [lot["pages"] for lot in seen["lost"]] == [[1, 2]]


def test_what_is_held_at_an_idle_mark_is_a_leak(tmp_path, capsys):
    """The run says that it is idle, and r1 is still there: idle-no-leak's evidence, status 1."""
    held.faulty(tmp_path, [made.life_of("r1", 1, [1, 2])[:3], held.IDLE])
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["idle_mark"], seen["lost_pages"]) == (1, True, 0)
    assert seen["idle"]["holders"] == ["request r1"]
    status, seen = made.answered(capsys, "leaks", tmp_path, "--at", 2)
    assert (status, seen["idle"]) == (0, None)


def test_an_idle_mark_that_ended_the_run_is_one_too(tmp_path, capsys):
    """Under raise the mark is the last event, and was not applied."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])[:3], held.IDLE])
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["idle_mark"]) == (1, True)


def test_what_is_held_at_the_close_is_listed(tmp_path, capsys):
    """A closed run that still holds something: a candidate, which alone is no finding."""
    made.observe(tmp_path, [made.life_of("r1", 1, [1, 2])[:3]])
    status, out, _ = made.ran(capsys, "leaks", tmp_path)
    assert status == 0
    assert "the run was closed, and something is still held" in out


def test_a_run_that_a_guard_stopped_names_the_event_and_its_page(tmp_path, capsys):
    """r1's release leaves out page 3 and is refused: r1 and r2 hold what they may, and no leak."""
    life = [*held.SHORT_RELEASE[0], made.admitted("r2", 2)]
    made.observe(tmp_path, [life, [made.released("r1", 1, [1, 2])]], close=False)
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert (status, seen["idle"], seen["lost_pages"], seen["num_holders"]) == (0, None, 0, 2)
    refused = seen["refused"]
    assert (refused["seq"], refused["event"]) == (4, "Released")
    assert refused["invariant"] == "refs-balance"
    assert refused["evidence"]["pages"] == [3]
    _, out, _ = made.ran(capsys, "leaks", tmp_path)
    assert "stopped     by Released at seq 4" in out
    assert "refs-balance, page 3 of full: " in out
    assert f"next        kvlife page {seen['log']} 3 --group full" in out
    assert "candidate for a leak" not in out
    assert made.answered(capsys, "leaks", tmp_path, "--at", 1)[1]["refused"] is None


def test_columns_that_were_spoilt_are_told_apart():
    """Each column, changed by hand in a sound state, is found under its own words."""
    for spoil, why in (
        (lambda space: space.refs.__setitem__(3, 2), "more refs than rows"),
        (lambda space: space.refs.__setitem__(3, 0), "fewer refs than rows"),
        (lambda space: space.pins.__setitem__(3, 1), "more pins than are open"),
        (lambda space: space.key.__setitem__(3, 9), "a key on a page that is not CACHED"),
        (lambda space: space.key.__setitem__(1, 0), "CACHED without a key"),
        (lambda space: space.state.__setitem__(3, PageState.FREE), "FREE, and a row"),
        (lambda space: space.free.take_head(space.free.head(1)), "FREE, and not in the free list"),
        (lambda space: space.refs.__setitem__(0, 1), "page 0"),
        (lambda space: space.state.__setitem__(20, 4), "in no state that is"),
        (lambda space: space.pins.__setitem__(20, 1), "refs or pins on a page that is FREE"),
    ):
        ledger = spoilt_ledger()
        assert not Holdings(ledger).lost.anything
        spoil(ledger.spaces[0])
        lost = Holdings(ledger).lost
        assert why in " ".join(found.why for found in lost.pages)


def spoilt_ledger():
    """The state of the run in which something is held in every way."""
    from kvlife.ledger import Ledger  # beside its one use

    ledger, seq = Ledger(held.CONFIG), 0
    for group in held.EVERY_KIND:
        for event in group:
            ledger.apply(event, seq)
            seq += 1
    return ledger


def test_a_row_without_a_page_is_found():
    """A table entry that the lengths ask for and that is 0 is named with its row."""
    ledger = spoilt_ledger()
    ledger.tables[0][ledger.layout.groups[0].table_width + 2] = 0
    told = [(holder.what, holder.why) for holder in Holdings(ledger).lost.holders]
    assert told == [("row 1", "lacks 1 page of full that its lengths ask for")]


GROUPS = (
    (CacheGroup("full"),),
    (CacheGroup("full"), CacheGroup("swa", window=8)),
    (CacheGroup("full", num_pages=160, space="all"), CacheGroup("swa", window=8, space="all")),
)


@pytest.mark.soak
@pytest.mark.parametrize("groups", GROUPS, ids=["full", "window", "shared-space"])
def test_a_sound_run_never_loses_a_page(tmp_path, seed, groups):
    """At any event of a crowded run nothing is lost, and each page is of one kind."""
    made.crowded_engine(tmp_path, seed=seed, num_steps=150, groups=groups)
    for moment in Timeline(open_run(tmp_path)).walk():
        if moment.item.seq % 7 == 0:
            expect_sound(moment.ledger)


def expect_sound(ledger):
    holdings = Holdings(ledger)
    assert not holdings.lost.anything
    for space_idx, space in enumerate(ledger.spaces):
        groups = [group.idx for group in ledger.layout.groups if group.space_idx == space_idx]
        counts = [holdings.kinds(group) for group in groups]
        used = sum(
            count.pages for kinds in counts for name, count in kinds.items() if name != "free"
        )
        assert used + counts[0]["free"].pages == space.num_pages - 1
        assert counts[0]["free"].pages == space.free.num_free
    for place, row in enumerate(holdings.rows.tolist()):
        tables = [ledger.pages_of(row, group.idx) for group in ledger.layout.groups]
        assert holdings.pages[place] == sum(np.count_nonzero(table) for table in tables)


@pytest.mark.soak
def test_a_simulated_run_with_everything_loses_nothing(tmp_path, seed):
    """Overlap, drafts, sessions, aborts and windows: whatever is held has a holder, at any time."""
    simulated(tmp_path, seed % 1000)
    seen = set()
    for moment in Timeline(open_run(tmp_path)).walk():
        if moment.item.seq % 23 == 0:
            expect_sound(moment.ledger)
            seen.update(moment.ledger.rows.state.tolist())
    assert RowState.HELD in seen


def simulated(path, seed):
    """A short run of the simulator on small pools, with its log at the path."""
    workload = generate(
        SyntheticConfig(
            num_requests=40,
            seed=seed,
            max_context_len=1600,
            conversations_per_s=80,
            system_len_median=20,
            user_len_median=20,
            answer_len_median=60,
            pause_s_mean=0.5,
            answer_ns_per_token=2_000_000,
        )
    )
    config = SchedulerConfig(
        max_running=24,
        chunk_tokens=256,
        headroom_tokens=0,
        overlap=True,
        draft=3,
        session_rate=0.3,
        abort_rate=0.15,
        seed=seed,
    )
    pools = size_pools(workload, config, page_size=16, num_pages=400, window=32)
    clock = VirtualClock()
    log = LogWriter(path, snapshot_every_bytes=1 << 14, clock_ns=clock)
    simulate(
        SimulationPlan(
            workload=workload, pools=pools, config=config, key_seed=1, log=log, clock=clock
        )
    )


@pytest.mark.soak
def test_since_when_is_that_of_the_last_binding(tmp_path, seed):
    """For each request on a row, the seq is that of its last admission, read off the log."""
    made.crowded_engine(tmp_path, seed=seed, num_steps=200)
    run = open_run(tmp_path)
    rng = np.random.default_rng(seed)
    for at in sorted(rng.integers(10, run.next_seq, 8).tolist()):
        view = look(tmp_path, at)
        bound = {}
        for item in run.events(0, at + 1):
            if isinstance(item.event, Admitted | Resumed):
                bound[f"request {item.event.rid}"] = item.seq
        leaks = find_leaks(view, None)
        assert all(h.exact and h.since_seq == bound[h.what] for h in leaks.holders)
        assert len(leaks.holders) == len(view.ledger.requests)


@pytest.mark.soak
def test_any_release_that_forgets_a_page_is_found(tmp_path, seed):
    """In a crowded run one release names a page too few: the page and the release are found."""
    made.crowded_engine(tmp_path / "log", seed=seed, num_steps=120)
    items = list(open_run(tmp_path / "log").events())
    ending = [i for i in items if isinstance(i.event, Released) and i.event.pages[0].size]
    chosen = ending[int(np.random.default_rng(seed).integers(len(ending)))]
    (pages,) = chosen.event.pages
    short = attrs.evolve(chosen.event, pages=(pages[:-1],))
    writer = LogWriter(tmp_path / "short")
    made.observe(
        tmp_path / "short",
        [],
        config=open_run(tmp_path / "log").header.config,
        writer=writer,
        close=False,
    )
    for item in items[: chosen.seq]:
        writer.append(item.seq, item.step, item.time_ns, [item.event])
    writer.append(chosen.seq, 0, 0, [short])
    writer.append(chosen.seq + 1, 0, 0, [Marked("the run goes on", False)])
    writer.close()
    leaks = find_leaks(look(tmp_path / "short", None), None)
    (lot,) = leaks.lots
    assert lot.pages == (int(pages[-1]),)
    assert lot.story.lost.seq == chosen.seq
    assert lot.story.holders == (f"request {short.rid} (row {short.row})",)


def test_what_the_log_no_longer_has_is_said(tmp_path, capsys):
    """Where history begins behind the events in question, seqs are bounds, and the text says so."""
    first = [made.admitted("r1", 1), made.allocated([1], [8], [1, 2])]
    pin = Pinned("p1", "copy", False, None, 0, made.ints(2))
    lives = [made.life_of(f"s{number}", 2, [3, 4]) for number in range(600)]
    retention = Retention(keep_bytes=9000)
    writer = LogWriter(tmp_path, retention=retention, segment_bytes=4096, compress=False)
    facts = [first, [pin]]
    for number, life in enumerate(lives):
        facts += [life] if number % 50 else [life, "snapshot"]
    made.observe(tmp_path, facts, writer=writer, close=False)
    writer.wait()
    run = open_run(tmp_path)
    assert run.begins_at > 10
    status, seen = made.answered(capsys, "leaks", tmp_path)
    assert status == 0
    assert [(h["what"], h["since_seq"], h["exact"]) for h in seen["holders"]] == [
        ("request r1", 1, False),
        ("pin p1 (copy)", 2, True),
    ]
    assert [h["since"] for h in seen["holders"]] == [None, None]
    _, out, _ = made.ran(capsys, "leaks", tmp_path)
    assert "<= 1" in out
    assert f"history begins at seq {run.begins_at}" in out
    _, out, _ = made.ran(capsys, "inspect", tmp_path, "--request", "r1")
    assert "bound       not in the log, or too far back" in out


@pytest.mark.parametrize("command", [["leaks"], ["why"]])
def test_odd_arguments_are_refused(tmp_path, capsys, command):
    """A limit below 0 ends in a message and status 2."""
    held.every_kind(tmp_path)
    more = ["reset"] if command == ["why"] else []
    status, out, err = made.ran(capsys, *command, tmp_path, *more, "--limit", -1)
    assert (status, out) == (2, "")
    assert "limit" in err
