"""Content checks: digests are taken and held to; each fault is found at the event it meets."""

import numpy as np
import pytest
from content_runs import (
    LAYOUT,
    SLIDING,
    Run,
    Tape,
    checking_pools,
    digest_of,
    events_of,
    found_once,
    observer,
)

from kvlife import Checker, InvariantViolation, KvEngine
from kvlife.errors import ConfigError
from kvlife.events import (
    Admitted,
    Committed,
    Digested,
    Evicted,
    Pinned,
    Protected,
    Released,
    Retracted,
    RolledBack,
    SessionClosed,
)
from kvlife.pools import DevicePools, Pools

TOKENS = list(range(100, 118))
NONE = np.empty(0, np.int32)


def test_a_digest_is_taken_when_a_page_becomes_whole():
    """Commits that end inside a page take none, and one that passes its end takes it once."""
    run = Run()
    events = events_of(run)
    run.engine.admit("r1", TOKENS)
    run.compute(["r1"], [3])
    run.compute(["r1"], [4])
    run.compute(["r1"], [7])
    run.compute(["r1"], [16])
    told = [(i, event) for i, event in enumerate(events) if isinstance(event, Digested)]
    assert [event.pages.tolist() for _, event in told] == [[1], [2, 3, 4]]
    assert all(isinstance(events[i - 1], Committed) for i, _ in told)
    wanted = [run.digest(page) for page in (1, 2, 3, 4)]
    assert [int(digest) for _, event in told for digest in event.digests] == wanted
    assert len(set(wanted)) == 4


def test_a_digest_is_of_one_group():
    """Groups have pages, and digests, of their own; a window's skipped pages have none."""
    run = Run(SLIDING)
    events = events_of(run)
    run.admitted("r1", TOKENS)
    told = [(event.group, event.pages.tolist()) for event in events if isinstance(event, Digested)]
    assert told == [(0, run.pages("r1")[:4]), (1, run.pages("r1", 1)[:4])]


def test_a_shared_page_is_digested_once():
    """A page that a second request matches keeps the digest of the first."""
    run = Run()
    run.published("r1", TOKENS)
    events = events_of(run)
    run.admitted("r2", TOKENS)
    own = run.pages("r2")[4:]
    told = [event.pages.tolist() for event in events if isinstance(event, Digested)]
    assert told == []
    assert len(own) == 1
    run.compute(["r2"], [20])
    told = [event.pages.tolist() for event in events if isinstance(event, Digested)]
    assert told == [own]


def _match(run, page):
    run.published("r1", TOKENS)
    run.flip(page)
    run.engine.admit("r2", TOKENS)
    return Admitted


def _finish(run, page):
    run.admitted("r1", TOKENS)
    run.flip(page)
    run.engine.abort("r1")
    return Released


def _evict(run, page):
    run.published("r1", TOKENS)
    run.flip(page)
    run.engine.flush()
    return Evicted


def _roll_back(run, page):
    run.admitted("r1", TOKENS)
    run.flip(page)
    run.engine.roll_back(["r1"], [0])
    return RolledBack


def _cut_inside(run, page):
    """The page stays with its row, and its last token goes."""
    run.admitted("r1", TOKENS)
    run.flip(page)
    run.engine.roll_back(["r1"], [4 * page - 1])
    return RolledBack


def _retract(run, page):
    run.admitted("r1", TOKENS)
    run.flip(page)
    run.engine.retract("r1")
    return Retracted


def _close_session(run, page):
    run.admitted("r1", TOKENS)
    run.engine.session_save("s1", "r1", len(TOKENS))
    run.flip(page)
    run.engine.session_close("s1")
    return SessionClosed


def _pin(run, page):
    run.admitted("r1", TOKENS)
    run.flip(page)
    run.engine.pin("p1", [page], "transfer")
    return Pinned


def _duplicate(run, page):
    """Two requests compute the same tokens; the second is rebound to the first one's pages."""
    run.engine.admit("r1", TOKENS)
    run.engine.admit("r2", TOKENS)
    for rid in ("r1", "r2"):
        run.compute([rid], [len(TOKENS)])
    run.engine.protect("r1", TOKENS)
    run.flip(page)
    run.engine.protect("r2", TOKENS)
    return Protected


WAYS = (
    _match, _finish, _evict, _roll_back, _cut_inside, _retract, _close_session, _pin, _duplicate,
)  # fmt: skip


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
@pytest.mark.parametrize("page", [1, 3])
def test_a_flipped_bit_is_found_where_the_page_is_read_next(way, page):
    """At that very event, with page, group, holder, both digests and where it was completed."""
    run = Run()
    sound = []
    flip = run.flip
    run.flip = lambda of: (sound.append(run.digest(of)), flip(of))
    events = events_of(run)
    kind = way(run, page)
    seq = next(i for i, event in reversed(list(enumerate(events))) if isinstance(event, kind))
    evidence = found_once(run, seq, page)
    completed = next(i for i, event in enumerate(events) if isinstance(event, Committed))
    assert evidence["completed_at"] == [completed]
    assert evidence["completed_for"] == ["request r1"]
    assert evidence["digests"] == [f"{sound[0]:016x}"]
    assert evidence["found"] != evidence["digests"]
    assert f"page {page} of full held {sound[0]:016x}" in evidence["why"]


def test_who_matches_a_page_is_named():
    """By the name that its row has now, whoever had the row before."""
    run = Run()
    _match(run, 2)
    evidence = found_once(run, run.last_seq, 2)
    assert (evidence["rows"], evidence["holders"]) == ([1], ["request r2"])
    assert (evidence["what"], evidence["completed_for"]) == ("matched", ["request r1"])


def test_a_holder_is_named():
    """Who lets the page go, and who references it still."""
    run = Run()
    run.published("r1", TOKENS)
    run.engine.admit("r2", TOKENS)
    run.engine.admit("r3", TOKENS)
    run.flip(2)
    run.engine.abort("r3")
    evidence = found_once(run, run.last_seq, 2)
    assert sorted(evidence["holders"]) == ["request r2", "request r3"]
    assert evidence["states"] == ["CACHED"]


def test_a_window_eviction_looks_at_what_it_lets_go():
    """In the window group, by its name."""
    run = Run(SLIDING)
    run.admitted("r1", TOKENS)
    page = run.pages("r1", 1)[0]
    run.flip(page, "swa")
    run.engine.evict_window(["r1"])
    evidence = found_once(run, run.last_seq, page, "swa")
    assert evidence["holders"] == ["request r1"]


def test_an_audit_looks_at_every_page():
    """Pages that nothing reads are found by an audit, those of one group in one finding."""
    run = Run()
    run.published("r1", TOKENS)
    run.flip(1)
    run.flip(4)
    run.engine.audit()
    assert run.found[0].evidence["pages"] == [1, 4]
    assert run.found[0].evidence["completed_for"] == ["request r1", "request r1"]
    run.engine.audit()
    assert len(run.found) == 1  # what was found once is not told again


def test_a_violation_ends_the_run_under_raise(tmp_path):
    """Recorded as applied, with the engine closed behind it."""
    run = Run(checker=Checker())
    run.published("r1", TOKENS)
    run.flip(2)
    with pytest.raises(InvariantViolation) as caught:
        run.engine.admit("r2", TOKENS)
    assert caught.value.id == "content-unchanged"
    assert caught.value.evidence["pages"] == [2]
    assert run.engine.closed


def test_a_freed_page_is_forgotten():
    """What happens to a page that nobody has is nobody's concern, and its next digest is new."""
    run = Run(pools=checking_pools(poison=None))
    run.admitted("r1", TOKENS)
    run.engine.abort("r1")
    for page in range(1, 6):
        run.flip(page)
    run.admitted("r2", TOKENS)
    run.engine.audit()
    assert not run.found


def test_tokens_that_are_rolled_back_may_be_written_again():
    """The digest of a page that is cut is forgotten, and taken again when it is whole again."""
    run = Run()
    run.admitted("r1", TOKENS)
    events = events_of(run)
    run.engine.roll_back(["r1"], [6])
    before = run.digest(2)
    run.flip(2)
    run.compute(["r1"], [8])
    run.engine.audit()
    run.engine.abort("r1")
    assert not run.found
    (told,) = [event for event in events if isinstance(event, Digested)]
    assert told.pages.tolist() == [2]
    assert int(told.digests[0]) not in (before, 0)


def test_a_page_keeps_its_digest_while_it_is_quarantined():
    """Rows leave pages under a step in flight; they are looked at when the step lets them go."""
    run = Run()
    run.admitted("r1", TOKENS)
    run.engine.dispatch(1, ["r1"])
    run.engine.roll_back(["r1"], [9])
    page = 4  # [12, 16), which the row has let go
    assert run.ledger.spaces[0].pins[page] == 1
    run.flip(page)
    run.engine.mark("nothing looks at it yet")
    assert not run.found
    run.engine.settle(1)
    evidence = found_once(run, run.last_seq, page)
    assert evidence["what"] == "freed with its last pin"
    assert evidence["completed_for"] == ["request r1"]


def test_what_writes_from_outside_is_believed():
    """Under a write pin a whole page may change; its digest is taken again at the end."""
    run = Run()
    run.admitted("r1", TOKENS)
    run.engine.pin("p1", [2], "transfer", writes=True)
    run.flip(2)
    events = events_of(run)
    run.engine.unpin("p1")
    assert [event.pages.tolist() for event in events if isinstance(event, Digested)] == [[2]]
    run.flip(3)
    run.engine.abort("r1")
    found_once(run, run.last_seq, 3)


def test_pools_that_grow_keep_their_digests():
    """A resize moves the buffers; pages of before are looked at, and new ones digested."""
    run = Run()
    run.published("r1", TOKENS)
    run.engine.resize(40)
    run.flip(2)
    run.engine.admit("r2", TOKENS)
    found_once(run, run.last_seq, 2)


@pytest.mark.parametrize("wrong", ["always", 1, ""])
def test_what_cannot_be_checked_is_refused(wrong):
    """Another level, or pools without buffers."""
    with pytest.raises(ConfigError, match="content is checked with 'check', or not with None"):
        DevicePools(LAYOUT, content=wrong)
    with pytest.raises(ConfigError, match="without KV layouts"):
        DevicePools(None, content="check")


def test_a_summary_says_whether_contents_were_checked():
    """Off without pools, off without the level, on with it."""
    line = "content-unchanged: no device pools that check contents are attached"
    for pools, told in ((None, True), (DevicePools(LAYOUT), True), (checking_pools(), False)):
        watched = observer(pools, Run().engine.config)
        assert (line in watched.checker.names_off()) is told


def test_digests_of_pages_do_not_depend_on_the_order_in_memory():
    """The same life over page-major buffers has the same digests."""
    told = []
    for order in ("layer", "page"):
        run = Run(pools=checking_pools(type(LAYOUT)(
            num_layers=2, num_kv_heads=2, k_dim=4, v_dim=6, dtype="bf16", order=order
        )))  # fmt: skip
        run.admitted("r1", TOKENS)
        told.append([digest_of(run.pools.buffers(), page) for page in run.pages("r1")])
    assert told[0] == told[1]


class Noting(Pools):
    """Pools that have a note behind each group of events."""

    def __init__(self):
        self.due = False

    def apply(self, event, _change, _seq):
        self.due = not isinstance(event, Digested)

    def notes(self, *, wait=False):
        due, self.due = self.due, False
        return [Digested(0, NONE, np.empty(0, np.uint64))] if due else []


def test_notes_are_recorded_before_the_command_is_done():
    """Behind its events, and the prefix index, which follows later, is not yet asked then."""
    tape = Tape()
    engine = KvEngine(Run().engine.config, pools=Noting(), log=tape, checker=Checker(audit_every=1))
    for rid in ("r1", "r2"):
        engine.admit(rid, TOKENS)
        engine.allocate([rid], [len(TOKENS)])
        engine.commit([rid], [len(TOKENS)])
        engine.protect(rid, TOKENS)
    engine.evict(2)
    engine.abort("r1")
    engine.finish("r2", TOKENS)
    engine.evict(2)
    engine.close()
    kinds = [type(event) for event in tape.events]
    assert kinds[1::2] == [Digested] * (len(kinds) // 2)
    assert Digested not in kinds[::2]
    assert {Protected, Evicted, Released} <= set(kinds[::2])
