"""`kvlife why`: what stands in the way of a reset, an eviction or an admission."""

import re

import attrs
import held_runs as held
import numpy as np
import pytest
import recorded_runs as made

from kvlife import CacheGroup, CommandRefused, KvEngine, PoolConfig
from kvlife.replay.holding.holdings import Holdings
from kvlife.replay.holding.why import why_admit, why_evict, why_reset


@pytest.fixture
def run(tmp_path):
    """The run in which something is held in every way."""
    held.every_kind(tmp_path / "log")
    return tmp_path / "log"


def test_a_reset_is_kept_by_each_kind_of_holder(run, capsys):
    """Two requests, a session, a draining row, a pin and two steps; their pages, most first."""
    status, seen = made.answered(capsys, "why", run, "reset")
    assert (status, seen["possible"]) == (0, False)
    assert seen["reasons"] == [
        "2 live requests",
        "1 idle session",
        "1 draining row",
        "1 pin",
        "2 open steps",
    ]
    (room,) = seen["rooms"]
    assert (room["free"], room["evictable"], room["total"]) == (22, 1, 31)
    blockers = {
        blocker["what"]: (blocker["pages"], blocker["alone"]) for blocker in room["blockers"]
    }
    assert blockers == {
        "request r1": (3, 3),
        "request r4": (1, 1),
        "row 2": (1, 1),
        "session s1": (1, 1),
        "pin p1": (1, 1),
        "step 8": (1, 1),
    }
    assert room["blockers"][0]["what"] == "request r1"


def test_a_reset_of_an_idle_run_is_possible(tmp_path, capsys):
    """Two pages are cached, and nobody holds a page."""
    life = made.life_of("r1", 1, [1, 2])
    made.observe(tmp_path, [life[:3], [held.protected(1, 8, 11, 12), life[3]]])
    status, out, _ = made.ran(capsys, "why", tmp_path, "reset")
    assert status == 0
    assert "a reset would free 2 cached pages: nothing stands in its way" in out
    assert "nobody holds a page" in out


def test_lost_pages_are_in_the_way_of_a_reset(tmp_path, capsys):
    """What nobody holds, nobody gives back."""
    held.faulty(tmp_path, held.SHORT_RELEASE)
    _, out, _ = made.ran(capsys, "why", tmp_path, "reset")
    assert "2 lost pages, which no holder's end gives back" in out


def test_an_eviction_is_kept_by_who_references_the_cache(run, capsys):
    """Of the four cached pages one can go; r1 has two, and a pin the fourth."""
    status, seen = made.answered(capsys, "why", run, "evict", 3)
    assert (status, seen["possible"]) == (0, False)
    (room,) = seen["rooms"]
    assert (room["total"], room["evictable"]) == (4, 1)
    assert [(b["what"], b["pages"]) for b in room["blockers"]] == [("request r1", 2), ("pin p1", 1)]
    _, seen = made.answered(capsys, "why", run, "evict", 1)
    assert seen["possible"] is True


def test_an_admission_is_measured_against_rows_and_pages(run, capsys):
    """22 pages are free and one evictable: 92 tokens would fit, were a row as long; 64 are."""
    _, seen = made.answered(capsys, "why", run, "admit", "--tokens", 64)
    assert (seen["possible"], seen["rooms"][0]["asked"]) == (True, 16)
    _, out, _ = made.ran(capsys, "why", run, "admit", "--tokens", 64)
    assert "a request of 64 tokens would fit; rows free: 2" in out
    _, out, _ = made.ran(capsys, "why", run, "admit", "--tokens", 100)
    assert "a row holds 64 tokens at most: it can never fit" in out
    assert "full lacks 2 pages: 25 are needed, 22 are free and 1 evictable" in out


def test_a_hit_needs_fewer_pages_and_locks_others(run, capsys):
    """Of 3 pages one is hit: 2 new ones, and the hit is no longer evictable."""
    options = ("--tokens", 12, "--prefix-pages", 1)
    _, seen = made.answered(capsys, "why", run, "admit", *options)
    (room,) = seen["rooms"]
    assert (room["asked"], room["evictable"]) == (2, 0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evict"], "evict PAGES"),
        (["evict", 0], "at least 1"),
        (["admit"], "--tokens N"),
        (["admit", "--tokens", 0], "at least 1"),
        (["admit", 5, "--tokens", 4], "PAGES: is no part of this question"),
        (["reset", 5], "PAGES: is no part of this question"),
        (["reset", "--tokens", 4], "--tokens: is no part of this question"),
        (["reset", "--prefix-pages", 0], "--prefix-pages: is no part of this question"),
        (["admit", "--tokens", 4, "--group", "full"], "why LOG admit takes --tokens and --prefix"),
        (["evict", 5, "--tokens", 4], "why LOG evict takes PAGES and --group"),
        (["reset", "--limit", -1], "--limit is how many are listed, at least 0, got -1\n"),
        (["admit", "--tokens", 4, "--prefix-pages", 1], "the last token is always computed"),
        (["admit", "--tokens", 4, "--prefix-pages", -1], "at least 0"),
        (["evict", 1, "--group", "swa"], "cache groups are full"),
        (["reset", "--at", 99], "up to seq 25"),
    ],
)
def test_questions_that_make_no_sense_are_refused(run, capsys, arguments, said):
    """Exit status 2, and what would make sense."""
    status, out, err = made.ran(capsys, "why", run, *arguments)
    assert (status, out) == (2, "")
    assert said in err


def test_a_hit_is_whole_pages_of_the_largest_size(tmp_path, capsys):
    """With pages of 4 and 8 tokens, one page of 4 is no hit."""
    groups = (CacheGroup("full"), CacheGroup("wide", page_size=8))
    made.observe(tmp_path, [], config=attrs.evolve(made.CONFIG, groups=groups))
    options = ("--tokens", 20, "--prefix-pages", 1)
    status, _, err = made.ran(capsys, "why", tmp_path, "admit", *options)
    assert status == 2
    assert "whole pages of 8 tokens" in err


def test_the_text_is_readable_at_100_columns(run, capsys):
    """Whatever is asked, no line is wider."""
    for arguments in (["reset"], ["evict", 9], ["admit", "--tokens", 400]):
        _, out, _ = made.ran(capsys, "why", run, *arguments)
        assert max(len(line.replace(str(run), "")) for line in out.splitlines()) <= 100
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", out)


@pytest.mark.soak
def test_answers_are_what_an_engine_does(seed):
    """In random states an engine admits, evicts and flushes exactly where the answer says so."""
    rng = np.random.default_rng(seed)
    config = PoolConfig(page_size=4, num_pages=48, max_requests=6, max_context_len=96)
    engine = KvEngine(config, clock=lambda: 0, key_seed=1)
    running, asked = [], {"fits": 0, "not": 0}
    for number in range(400):
        holdings = Holdings(engine.ledger)
        wanted = int(rng.integers(1, 96))
        answer = why_admit(holdings, wanted, 0)
        # No prompt begins as another does, so that there is no hit.
        tokens = np.concatenate(([1000 + number], rng.integers(0, 9, wanted - 1))).astype(np.int32)
        try:
            engine.admit(f"r{number}", tokens)
            engine.allocate([f"r{number}"], [wanted])
        except CommandRefused:
            if f"r{number}" in engine.ledger.requests:
                engine.abort(f"r{number}")
            assert not answer.possible
            asked["not"] += 1
        else:
            assert answer.possible
            asked["fits"] += 1
            engine.commit([f"r{number}"], [wanted])
            running.append((f"r{number}", tokens))
        if running and (rng.integers(3) == 0 or not answer.possible):
            engine.finish(*running.pop(int(rng.integers(len(running)))))
        expect_eviction(engine, int(rng.integers(1, 30)), really=rng.integers(8) == 0)
    assert min(asked.values()) > 20
    while running:
        assert not why_reset(Holdings(engine.ledger)).possible
        engine.finish(*running.pop())
    answer = why_reset(Holdings(engine.ledger))
    assert answer.possible
    assert engine.flush() == answer.rooms[0].evictable


def expect_eviction(engine, num_pages, *, really):
    answer = why_evict(Holdings(engine.ledger), num_pages, None)
    assert answer.possible == (engine.num_evictable() >= num_pages)
    if really:
        assert engine.evict(num_pages) == min(num_pages, answer.rooms[0].evictable)
