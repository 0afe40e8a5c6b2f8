"""Retraction with a backup, and resumption: what is kept, what comes back, and when it cannot."""

import pytest
from backup_runs import TOKENS, engine_of, host_states, pools, refold, run, table

from kvlife import CacheGroup
from kvlife.errors import ConfigError, OutOfPages
from kvlife.events import Pinned


def test_what_is_committed_and_not_published_is_kept():
    """8 of 14 tokens are published, 13 committed: pages 2 and 3 are kept, and 13 come back."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:14], 13)
    assert engine.protect("r1", TOKENS[:8]) == 8
    assert engine.host_pages_required("r1") == 2
    done = engine.retract_with_backup("r1")
    assert (done.backup.host_pages, done.backup.kept_len, done.why_not) == ((1, 2), 13, None)
    assert engine.record("r1").retraction_backup == done.backup
    assert host_states(engine) == [4, 1, 1, 0, 0, 0, 0, 0, 0]
    refold(engine, engine.config)
    back = engine.resume("r1", TOKENS[:14])
    assert (back.prefix_len, back.restored_len, back.why_recomputed) == (8, 13, None)
    record = engine.record("r1")
    assert (record.cache_protected_len, record.kv_committed_len, record.kv_allocated_len) == (
        *(8, 13),
        13,
    )
    assert engine.num_free_host() == 8
    refold(engine, engine.config)
    assert engine.stats().restored_tokens == 5


def test_the_groups_of_a_backup_and_of_a_restore():
    """Pins, then the retraction, in one group; the copy is complete at once where nothing waits."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:6])
    engine.retract_with_backup("r1")
    engine.resume("r1", TOKENS[:6])
    assert engine.log.groups[3:] == [
        ["Pinned", "Retracted"],
        ["Unpinned"],
        ["Resumed", "Pinned"],
        ["Unpinned"],
    ]
    pins = [event for event in engine.log.events if isinstance(event, Pinned)]
    assert [(pin.kind, pin.writes, pin.owner, pin.pages.tolist()) for pin in pins] == [
        ("copy", False, None, [1, 2]),
        ("copy", True, None, [1, 2]),
    ]


def test_the_last_token_is_computed_again():
    """All 8 tokens were committed; with no token more, 7 of them are restored."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    assert engine.resume("r1", TOKENS[:8]).restored_len == 7
    engine.retract_with_backup("r1")
    assert engine.resume("r1", TOKENS[:9]).restored_len == 7
    refold(engine, engine.config)


def test_the_cache_may_have_more_than_was_published():
    """Another request published 12 of the 14 tokens meanwhile: only the rest is restored."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:14])
    engine.retract_with_backup("r1")
    run(engine, "r2", TOKENS[:12])
    engine.finish("r2", TOKENS[:12])
    back = engine.resume("r1", TOKENS[:15])
    assert (back.prefix_len, back.restored_len) == (12, 14)
    assert engine.num_free_host() == 8
    refold(engine, engine.config)


def test_the_cache_may_have_all_of_it():
    """Where the match reaches the end of the backup, nothing is restored, and it is let go."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    run(engine, "r2", TOKENS[:12])
    engine.finish("r2", TOKENS[:12])
    back = engine.resume("r1", TOKENS[:10])
    assert (back.prefix_len, back.restored_len, back.why_recomputed) == (8, 8, None)
    assert engine.num_free_host() == 8


def test_a_gap_between_cache_and_backup_is_computed_again():
    """What was published is evicted: the backup begins at token 8, the cache has none of it."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:14])
    engine.protect("r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    assert engine.evict(2) == 2
    back = engine.resume("r1", TOKENS[:14])
    assert (back.prefix_len, back.restored_len) == (0, 0)
    assert "the cache has 0 tokens of it" in back.why_recomputed
    assert "token 0 in group 'full'" in back.why_recomputed
    assert engine.num_free_host() == 8
    refold(engine, engine.config)


@pytest.mark.parametrize(
    ("config", "length", "why"),
    [
        (pools(host_pages=0), 8, "host_pages"),
        (pools(host_pages=2), 8, "it takes 2 host pages, and 1 are free"),
        (pools(), 0, "nothing committed that is not published"),
    ],
)
def test_where_nothing_can_be_kept_it_is_computed_again(config, length, why):
    """The result says why there is no backup, and the retraction is a plain one."""
    engine = engine_of(config)
    run(engine, "r1", TOKENS[:8], length)
    done = engine.retract_with_backup("r1")
    assert done.backup is None
    assert why in done.why_not
    assert engine.record("r1").retraction_backup is None
    back = engine.resume("r1", TOKENS[:8])
    assert (back.restored_len, back.why_recomputed) == (0, None)


def test_pages_that_are_being_written_are_not_kept():
    """A transfer still writes a page that would be copied: the content is not there yet."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:8])
    engine.pin("transfer", [2], "transfer", writes=True)
    done = engine.retract_with_backup("r1")
    assert done.why_not == "page 2 is being written under pin 'transfer'"
    engine.unpin("transfer")
    assert engine.num_free_host() == 8


def test_restoring_evicts_but_not_what_it_matches():
    """The pool is full of cache: the restore takes other pages than the prefix that it locks."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:14])
    engine.protect("r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    run(engine, "r2", list(range(36)))
    engine.finish("r2", list(range(36)))
    assert engine.num_free() == 0
    assert engine.admit("r3", [*TOKENS[:4], 1]).prefix_len == 4
    engine.abort("r3")
    back = engine.resume("r1", TOKENS[:14])
    assert (back.prefix_len, back.restored_len) == (8, 13)
    refold(engine, engine.config)


def test_a_restore_that_does_not_fit_is_refused_and_waits_on():
    """Others hold the pages: OutOfPages, nothing changes, and the backup stays."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:14])
    engine.protect("r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    run(engine, "r2", list(range(32)))
    before = (engine.ledger.digest(), engine.next_seq)
    with pytest.raises(OutOfPages) as caught:
        engine.resume("r1", TOKENS[:14])
    assert (caught.value.asked, caught.value.free, caught.value.evictable) == (2, 1, 0)
    assert (engine.ledger.digest(), engine.next_seq) == before
    engine.abort("r2")
    assert engine.resume("r1", TOKENS[:14]).restored_len == 13


WINDOWS = pools(
    num_pages=30,
    host_pages=20,
    groups=(CacheGroup("full"), CacheGroup("swa", window=6, page_size=2)),
)


def test_a_window_is_kept_as_far_as_the_row_has_it():
    """20 committed, cursor at 14: 5 full pages and 3 window pages, and the window comes back."""
    engine = engine_of(WINDOWS)
    run(engine, "r1", TOKENS[:20])
    engine.evict_window(["r1"])
    assert engine.record("r1").swa_evicted_seqlen == 14
    done = engine.retract_with_backup("r1")
    assert len(done.backup.host_pages) == 5 + 3
    back = engine.resume("r1", TOKENS[:21])
    assert (back.prefix_len, back.restored_len) == (0, 20)
    record = engine.record("r1")
    assert (record.swa_evicted_seqlen, record.kv_committed_len) == (14, 20)
    assert [page != 0 for page in table(engine, "r1", 1)] == [False] * 7 + [True] * 3
    refold(engine, WINDOWS)


def test_a_window_that_the_match_reaches_begins_where_an_admitted_one_does():
    """8 tokens are matched: the window begins at 2, where one admitted with 8 would begin."""
    engine = engine_of(WINDOWS)
    run(engine, "r1", TOKENS[:14])
    engine.protect("r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    back = engine.resume("r1", TOKENS[:15])
    assert (back.prefix_len, back.restored_len) == (8, 14)
    assert engine.record("r1").swa_evicted_seqlen == 2
    refold(engine, WINDOWS)


def test_a_floor_is_kept_and_asked_for_again():
    """[0, 4) is never taken by the window: it is kept with the backup, and restored."""
    engine = engine_of(WINDOWS)
    engine.admit("r1", TOKENS[:20], evict_floor=4)
    engine.allocate(["r1"], [20])
    engine.commit(["r1"])
    engine.evict_window(["r1"])
    assert len(engine.retract_with_backup("r1").backup.host_pages) == 5 + 2 + 3
    assert engine.resume("r1", TOKENS[:21], evict_floor=4).restored_len == 20
    assert [page != 0 for page in table(engine, "r1", 1)] == [True] * 2 + [False] * 5 + [True] * 3
    engine.retract_with_backup("r1")
    back = engine.resume("r1", TOKENS[:21], evict_floor=8)
    assert back.restored_len == 0
    assert "group 'swa'" in back.why_recomputed
    refold(engine, WINDOWS)


def test_a_request_in_flight_is_backed_up_and_drains():
    """The step may write above 6 committed tokens: 6 come back, and the row drains as ever."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:8], 6)
    engine.dispatch(1, ["r1"])
    done = engine.retract_with_backup("r1")
    assert done.backup.kept_len == 6
    assert engine.stats().rows["DRAINING"] == 1
    assert engine.num_free() == 9
    assert engine.resume("r1", TOKENS[:8]).restored_len == 6
    engine.settle(1)
    assert engine.num_free() == 9
    refold(engine, engine.config)


def test_a_session_ends_with_its_retraction():
    """The row of a session's turn is backed up like any other, and the session is gone."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:8])
    engine.session_save("s1", "r1", 8)
    engine.session_restore("s1", "r2", 8, prompt_len=9)
    done = engine.retract_with_backup("r2")
    assert done.backup.kept_len == 8
    assert engine.stats().sessions == 0
    assert engine.resume("r2", TOKENS[:9]).restored_len == 8
    refold(engine, engine.config)


def test_pins_of_the_request_end_and_ids_do_not_clash():
    """A pin that the request owns ends first; a caller's pin of the same name stands aside."""
    engine = engine_of()
    run(engine, "r1", TOKENS[:8])
    engine.pin("mine", [1], "read", owner="r1")
    engine.pin(f"copy {engine.next_seq + 1}.0", [2], "read")
    engine.retract_with_backup("r1")
    assert list(engine.ledger.pins) == ["copy 5.0"]
    assert [pin.pin_id for pin in engine.log.events[-4:] if isinstance(pin, Pinned)] == [
        "copy 5.0+"
    ]
    refold(engine, engine.config)


@pytest.mark.parametrize("num", [1, -1, True, 1 << 40, "9", None])
def test_host_pages_that_cannot_be(num):
    """0 for none, else at least 2, as page 0 is reserved; the error names the field."""
    with pytest.raises(ConfigError, match="host_pages"):
        pools(host_pages=num)
