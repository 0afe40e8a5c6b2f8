"""The checker: levels, policies, registered invariants, counts, and what it says was off."""

import pytest
from short_events import (
    Bench,
    admit,
    allocate,
    commit,
    dispatch,
    full,
    idle,
    protect,
    release,
    roll_back,
)

from kvlife.errors import ConfigError
from kvlife.events import Allocated, Marked
from kvlife.invariants import CATALOGUE, Checker, Invariant, table_of_invariants

RUNNING = (admit("r1", 1), allocate(1, 8, [1, 2]), commit(1, 8))
# Commits what is not allocated: breaks ladder-order and settled-bound.
TOO_FAR = commit(1, 9)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"level": "all"}, "event, step, sample, off"),
        ({"policy": "ignore"}, "raise, collect, log"),
        ({"policies": {"ladder-order": "stop"}}, "raise, collect, log"),
        ({"policies": {"ladder": "log"}}, "ladder-order, protected-aligned"),
        ({"ignore": ["page-aliasing"]}, "ladder-order, protected-aligned"),
        ({"sample_every": 0}, "at least 1"),
        ({"audit_every": 0}, "at least 1"),
    ],
)
def test_what_is_unknown_is_refused(options, named):
    """An unknown level, policy or id is an error that lists the known ones."""
    with pytest.raises(ConfigError, match=named):
        Checker(**options)


def test_policies_by_id():
    """A policy of its own goes before the policy of all."""
    checker = Checker(policy="log", policies={"refs-balance": "collect"})
    assert checker.policy_of("refs-balance") == "collect"
    assert checker.policy_of("ladder-order") == "log"


@pytest.mark.parametrize(("policy", "applied"), [("raise", False), ("collect", True)])
def test_a_guard_says_whether_its_event_is_applied(policy, applied):
    """Under raise an event that fails its guard is not applied; under collect it is."""
    found = Bench(full(), policy=policy).do(*RUNNING, TOO_FAR)
    assert found.applied is applied
    assert found.policy == policy
    assert found.event is TOO_FAR
    assert found.seq == 3


def test_a_finding_names_what_else_is_broken():
    """The first in the catalogue is the finding; the others stand beside it with evidence."""
    found = Bench(full()).do(*RUNNING, TOO_FAR)
    assert found.id == "ladder-order"
    assert list(found.also) == ["settled-bound"]
    assert found.also["settled-bound"]["committed"] == [9]


def test_one_that_raises_goes_first():
    """Where only one of two broken invariants must raise, it is the finding."""
    bench = Bench(full(), policies={"settled-bound": "raise"})
    found = bench.do(*RUNNING, TOO_FAR)
    assert found.id == "settled-bound"
    assert list(found.also) == ["ladder-order"]


def test_later_findings_are_marked():
    """Everything after the first finding may be its consequence, and says so."""
    bench = Bench(full())
    assert not bench.do(*RUNNING, TOO_FAR).after_first
    assert bench.do(commit(1, 10)).after_first
    assert bench.checker.stats.first.seq == 3


def test_the_callback_is_called_once_a_finding():
    """A callback hears of each finding, in order."""
    heard = []
    bench = Bench(full(), on_violation=heard.append)
    found = bench.do(*RUNNING, TOO_FAR)
    assert heard == [found]
    assert bench.do(roll_back(1, 8, 8)) is None
    bench.ledger.rows.protected[1] = 3
    (again,) = bench.checker.audit(bench.ledger)
    assert heard == [found, again]


def test_an_ignored_invariant_is_not_checked():
    """With ladder-order ignored the event breaks what comes next, and the summary says so."""
    bench = Bench(full(), ignore=["ladder-order"])
    assert bench.do(*RUNNING, TOO_FAR).id == "settled-bound"
    assert any("ladder-order: ignored" in line for line in bench.checker.summary())


def test_counts_of_what_was_checked():
    """Events, rows and pages that were checked are counted, and violations by id."""
    bench = Bench(full())
    bench.do(*RUNNING, TOO_FAR)
    stats = bench.checker.stats
    assert (stats.events, stats.rows, stats.pages, stats.audits) == (4, 4, 2, 0)
    assert stats.violations == {"ladder-order": 1, "settled-bound": 1}


def test_a_run_that_checked_nothing_says_so():
    """Level off checks nothing, finds nothing, and does not look clean."""
    bench = Bench(full(), level="off")
    assert bench.do(*RUNNING, TOO_FAR) is None
    assert bench.checker.audit(bench.ledger) == []
    assert bench.checker.stats.events == 0
    summary = "\n".join(bench.checker.summary())
    assert "NOTHING WAS CHECKED" in summary
    assert "level off" in summary
    assert "NOTHING" not in "\n".join(Bench(full()).checker.summary()[2:])


def test_sampling_checks_every_nth_event():
    """Of 16 events one is checked: the faulty one goes unseen, and the audit finds it."""
    bench = Bench(full(), level="sample", sample_every=16)
    assert bench.do(*RUNNING, TOO_FAR) is None
    assert bench.checker.stats.events == 1
    assert [found.id for found in bench.checker.audit(bench.ledger)] == ["ladder-order"]


def test_level_step_audits_as_each_step_begins():
    """Events go unchecked but for idle marks; the first event of each step asks for an audit."""
    bench = Bench(full(), level="step")
    assert bench.do(*RUNNING, TOO_FAR) is None
    assert bench.do(idle()).id == "idle-no-leak"
    due = [bench.checker.due(seq, step, TOO_FAR) for seq, step in enumerate((0, 0, 1, 1, 2))]
    assert due == [True, False, True, False, True]


def test_audits_are_due_at_a_distance():
    """Every so many events an audit is due, at the same seqs in each run."""
    checker = Checker(audit_every=3)
    assert [checker.due(seq, 0, TOO_FAR) for seq in range(6)] == [
        *(False, False, True),
        *(False, False, True),
    ]
    assert not Checker(audit_every=None).due(99_999, 0, TOO_FAR)
    assert not Checker("off", audit_every=1).due(0, 1, TOO_FAR)


def no_more_than_four(effect):
    most = max(map(len, effect.event.pages))
    return {"pages_taken": most} if most > 4 else None


def test_a_registered_guard_is_asked_every_time():
    """A user's invariant stands below the catalogue, and is asked of sound events too."""
    bench = Bench(full())
    bench.checker.register(
        Invariant(
            "few-pages",
            "no event takes more than 4 pages",
            "guard",
            (Allocated,),
            guard=no_more_than_four,
        )
    )
    assert bench.checker.ids[-1] == "few-pages"
    assert bench.do(*RUNNING) is None
    found = bench.do(allocate(1, 28, range(3, 8)))
    assert (found.id, found.evidence) == ("few-pages", {"pages_taken": 5})
    found = bench.do(allocate(1, 48, range(4, 9)))
    assert list(found.also) == ["few-pages"]


def test_a_registered_post_check_and_audit():
    """A post-check sees the ledger after the event, an audit the census."""
    bench = Bench(full())
    bench.checker.register(
        Invariant(
            "short-rows",
            "no row has more than 8 tokens",
            events=None,
            post=lambda effect: {"len": 9} if (effect.ledger.rows.allocated > 8).any() else None,
            audit=lambda census: {"rows": census.held.tolist()} if census.held.size > 1 else None,
        ),
        policy="raise",
    )
    assert bench.do(*RUNNING) is None
    found = bench.do(allocate(1, 9, [3]))
    assert (found.id, found.applied, found.policy) == ("short-rows", True, "raise")
    assert bench.checker.audit(bench.ledger) == []


def test_what_cannot_be_registered():
    """An id that is there, and an invariant that checks nothing, are refused."""
    checker = Checker()
    with pytest.raises(ConfigError, match="refs-balance"):
        checker.register(Invariant("refs-balance", "again", guard=lambda effect: None))
    with pytest.raises(ConfigError, match="no guard"):
        checker.register(Invariant("mine", "it checks nothing"))


IDS = [
    "ladder-order",
    "protected-aligned",
    "protected-monotone",
    "settled-bound",
    "session-prefix-fixed",
    "row-single-holder",
    "release-once",
    "page-double-alloc",
    "page-double-free",
    "page-freed-by-stranger",
    "allocated-covers-pages",
    "refs-balance",
    "write-exclusive",
    "evicted-while-locked",
    "pinned-page-freed",
    "in-flight-fence",
    "window-cursor",
    "written-before-shared",
    "state-slot-single-owner",
    "state-lookahead",
    "reserved-untouched",
    "idle-no-leak",
    "index-agrees",
    "page-aliased",
    "page-use-after-free",
    "page-conservation",
    "row-conservation",
    "device-agrees",
    "content-unchanged",
    "rank-agreement",
]


def test_the_catalogue_is_complete_and_in_order():
    """Ids never change, and their order says which of several is the first."""
    assert [invariant.id for invariant in CATALOGUE] == IDS


def test_each_invariant_is_checked_or_says_why_not():
    """What is built has a check, and what is not gives its reason in every summary."""
    for invariant in CATALOGUE:
        checks = (invariant.guard, invariant.post, invariant.audit)
        assert any(checks) == invariant.built == (not invariant.why_not)
    off = "\n".join(Checker().names_off())
    for name in (*IDS[18:20], *IDS[27:]):
        assert f"{name}: " in off


def test_the_table_of_the_docs_lists_all():
    """One line an invariant, in order, below two lines of head."""
    lines = table_of_invariants().splitlines()
    assert len(lines) == 2 + len(IDS)
    assert [line.split("`")[1] for line in lines[2:]] == IDS


def test_an_event_of_no_consequence_costs_no_finding():
    """A note, and an event that repeats what is the case, break nothing."""
    bench = Bench(full())
    assert bench.do(*RUNNING, Marked("note", idle=False), commit(1, 8), protect(1, 0, [])) is None
    assert bench.do(dispatch(1, 1), release("r1", 1)) is None
