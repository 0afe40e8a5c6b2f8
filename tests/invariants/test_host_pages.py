"""The host's pages: each rule is broken by an event of its own, or found by an audit."""

import attrs
import numpy as np
import pytest
from short_events import (
    Bench,
    admit,
    allocate,
    commit,
    full,
    idle,
    ints,
    protect,
    release,
    resume,
    retract,
    windowed,
)

from kvlife.errors import EventError

# r1 has 4/7/7 on pages 1 and 2, r2 0/7/7 on pages 3 and 4; pages of 4 tokens.
TWO = (
    admit("r1", 1),
    allocate(1, 7, [1, 2]),
    commit(1, 7),
    protect(1, 4, [11]),
    admit("r2", 2),
    allocate(2, 7, [3, 4]),
    commit(2, 7),
)
# r1 waits with page 2 on host page 5, r2 with pages 3 and 4 on host pages 1 and 2.
WAIT = (*TWO, retract("r1", 1, [1, 2], backup=[5]), retract("r2", 2, [3, 4], backup=[1, 2]))


def bench(**more):
    return Bench(full(host_pages=8, **more))


def first(*events):
    found = bench().do(*events)
    return None if found is None else found.id


def test_backups_are_kept_and_given_back():
    """A sound life: two backups, one restored, one released while it waits."""
    made = bench()
    assert made.do(*WAIT) is None
    host = made.ledger.host
    assert host.state.tolist() == [4, 1, 1, 0, 0, 1, 0, 0]
    assert host.link[[5, 1, 2]].tolist() == [1, 0, 1]
    assert made.do(resume("r1", 1, 4, [1], restored=7, new=[6])) is None
    assert made.do(release("r2", None, host=[1, 2]), release("r1", 1, [1, 6]), idle()) is None
    assert host.free.num_free == 7
    assert made.checker.audit(made.ledger) == []


@pytest.mark.parametrize(
    ("faulty", "id_", "named"),
    [
        (retract("r2", 2, [3, 4], backup=[5, 6]), "page-double-alloc", [5]),
        (retract("r2", 2, [3, 4], backup=[6, 6]), "page-double-alloc", [6]),
        (retract("r2", 2, [3, 4], backup=[6]), "allocated-covers-pages", [6]),
        (retract("r2", 2, [3, 4], backup=[1, 2, 3]), "allocated-covers-pages", [1, 2, 3]),
        (retract("r2", 2, [3, 4], backup=[0, 2]), "reserved-untouched", [0]),
    ],
)
def test_what_a_backup_takes(faulty, id_, named):
    """A backup takes FREE host pages, each once, never page 0, one for each page it keeps."""
    found = bench().do(*WAIT[:-1], faulty)
    assert (found.id, found.evidence["host_pages"]) == (id_, named)


@pytest.mark.parametrize(
    ("faulty", "id_", "named"),
    [
        (release("r2", None, host=[1, 2, 3]), "page-double-free", [3]),
        (release("r2", None, host=[1, 2, 2]), "page-double-free", [2]),
        (release("r2", None, host=[1, 2, 5]), "page-freed-by-stranger", [5]),
        (release("r2", None, host=[1]), "refs-balance", [1]),
        (release("r2", None), "refs-balance", []),
    ],
)
def test_what_a_release_gives_back(faulty, id_, named):
    """A release gives back its backup's host pages, all of them and no others."""
    found = bench().do(*WAIT, faulty)
    assert (found.id, found.evidence["host_pages"]) == (id_, named)


def test_a_running_request_has_no_host_pages_to_give():
    """Host pages that another request waits on are not given back with a row."""
    found = bench().do(*WAIT[:-1], release("r2", 2, [3, 4], host=[5]))
    assert found.id == "page-freed-by-stranger"
    assert found.evidence["waiting"] == [["r1"]]


def test_restored_pages_were_in_the_backup():
    """Without the published prefix, token 0 to 3 are nowhere, so that they cannot come back."""
    assert first(*WAIT, resume("r1", 1, 4, [1], restored=6, new=[6])) is None
    found = bench().do(*WAIT, resume("r1", 1, 0, [], restored=7, new=[6, 7]))
    assert found.id == "settled-bound"
    assert found.evidence["table_idx"] == [0]
    assert first(*WAIT, resume("r1", 1, 4, [1], restored=8, new=[6])) == "settled-bound"


def test_a_page_given_back_twice_is_blamed_on_the_second():
    """Under collect, what a stranger gave back is FREE when its owner resumes."""
    made = bench()
    assert made.do(*WAIT) is None
    assert made.do(release("r2", None, host=[1, 2, 5])).id == "page-freed-by-stranger"
    assert made.do(resume("r1", 1, 4, [1])).id == "page-double-free"


def test_a_host_page_that_cannot_be_is_ill_formed():
    """Host pages lie below host_pages; where there is no host space any name will do."""
    with pytest.raises(EventError, match=r"Retracted\.backup"):
        bench().do(*TWO, retract("r2", 2, [3, 4], backup=[1, 8]))
    assert Bench(full()).do(*TWO, retract("r2", 2, [3, 4], backup=[50, 51])) is None


def test_idle_asks_for_host_pages_too():
    """A host page in use that no waiting request names is a leak; a waiting backup is none."""
    made = bench()
    assert made.do(*WAIT, idle()) is None
    made.ledger.host.take(np.array([3, 4], np.int32), 0, 0)
    found = made.do(idle())
    assert (found.id, found.evidence["host_pages"]) == ("idle-no-leak", [3, 4])


def test_each_group_is_backed_up():
    """A window's pages are kept as far as the row references them, after the full group's."""
    made = Bench(windowed(window=4, host_pages=9))
    bound = admit("r1", 1, 0, [[], []], cursors=[0])
    setup = (bound, allocate(1, 11, [[1, 2, 3], [7]], cursors=[8]), commit(1, 11))
    assert made.do(*setup, retract("r1", 1, [[1, 2, 3], [7]], backup=[1, 2, 3, 4])) is None
    assert made.ledger.host.group[1:5].tolist() == [0, 0, 0, 1]
    assert made.ledger.host.link[1:5].tolist() == [0, 1, 2, 2]
    back = resume("r1", 1, 0, [[], []], restored=11, new=[[4, 5, 6], [8]], cursors=[8])
    assert made.do(back) is None
    assert made.checker.audit(made.ledger) == []


def corrupt(column, at, value):
    def hand(ledger):
        getattr(ledger.host, column)[at] = value

    return hand


def wait_on(ledger, rid, *pages):
    ledger.waiting[rid] = attrs.evolve(ledger.waiting[rid], backup=ints(*pages))


@pytest.mark.parametrize(
    ("hand", "id_"),
    [
        (corrupt("refs", 5, 2), "refs-balance"),
        (corrupt("refs", 6, 1), "refs-balance"),
        (corrupt("pins", 5, 1), "refs-balance"),
        (corrupt("state", 0, 0), "reserved-untouched"),
        (corrupt("refs", 0, 1), "reserved-untouched"),
        (corrupt("state", 6, 4), "reserved-untouched"),
        (lambda ledger: wait_on(ledger, "r1", 1), "page-aliased"),
        (corrupt("state", 5, 0), "page-use-after-free"),
        (corrupt("state", 5, 0), "page-conservation"),
        (corrupt("state", 6, 1), "page-conservation"),
        (corrupt("state", 5, 2), "page-conservation"),
        (
            lambda ledger: ledger.host.free.take_head(ledger.host.free.head(1)),
            "page-conservation",
        ),
    ],
)
def test_an_audit_finds_what_a_hand_has_put_wrong(hand, id_):
    """Each audit of pages recounts the host's as well, and names them as host pages."""
    made = bench()
    assert made.do(*WAIT) is None
    hand(made.ledger)
    found = {found.id: found for found in made.checker.audit(made.ledger)}
    assert id_ in found
    assert found[id_].evidence["host_pages"]
