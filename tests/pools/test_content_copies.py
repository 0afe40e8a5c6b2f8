"""Copies under content checks: roll-backs into shared pages, backups on the host and back."""

import numpy as np
import pytest
import torch
from content_runs import FULL, SLIDING, Run, checking_pools, events_of, observer

from kvlife import InvariantViolation
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Digested,
    Protected,
    Resumed,
    Retracted,
    RolledBack,
)
from kvlife.pools import backup, device_pools

TOKENS = list(range(100, 118))
NONE = (np.empty(0, np.int32),)


def ints(*values):
    return np.array(values, np.int32)


@pytest.mark.parametrize("place", [0, 1])
def test_a_page_that_is_copied_wrongly_is_found_at_the_roll_back(monkeypatch, place):
    """The new page must hold what the shared one held."""
    pools = checking_pools()
    config = Run(publish="scheduled").engine.config
    watched = observer(pools, config)
    watched.observe(Admitted("r1", 1, 0, 8, 0, 0, (), NONE))
    watched.observe(Allocated(ints(1), ints(8), (ints(1, 2),)))
    k = torch.ones(8, 2, 4)
    pools.store(0, k, torch.ones(8, 2, 6), pools.slots(0, ints(1), ints(0), ints(8)))
    watched.observe(Committed(ints(1), ints(6)))
    keys = (np.array([7, 8], np.uint64),)
    watched.observe(Protected(1, 8, keys, np.empty((0, 4), np.int32)))
    sound = device_pools.copy_pages

    def copy(arena, planes, source, target):
        sound(arena, planes, source, target)
        if place:
            arena[planes.planes[0].offset + int(target) * planes.planes[0].page_stride] ^= 1

    monkeypatch.setattr(device_pools, "copy_pages", copy)
    copies = np.array([(0, 1, 2, 3)], np.int32)
    fact = RolledBack(ints(1), ints(7), ints(6), NONE, copies)
    if not place:
        watched.observe(fact)
        return
    with pytest.raises(InvariantViolation) as caught:
        watched.observe(fact)
    assert caught.value.evidence["pages"] == [3]
    assert caught.value.evidence["what"] == "made as a copy"
    assert caught.value.seq == watched.next_seq - 1


@pytest.mark.parametrize("groups", [FULL, SLIDING], ids=["full", "sliding"])
def test_a_backup_comes_back_as_it_was(groups):
    """Sound copies are never accused, whole pages or not, and get their digests again."""
    run = Run(groups, host_pages=16)
    run.admitted("r1", TOKENS)
    run.engine.evict_window(["r1"])
    assert run.engine.retract_with_backup("r1").why_not is None
    run.published("r2", list(range(50)))
    events = events_of(run)
    run.engine.resume("r1", TOKENS)
    run.engine.mark("the copy is done")
    assert not run.found
    told = {event.group: event.pages.size for event in events if isinstance(event, Digested)}
    assert told[0] == 4
    run.engine.abort("r1")
    assert not run.found


@pytest.mark.parametrize("fault", ["swapped", "stale", "flipped"])
def test_a_backup_that_comes_back_to_the_wrong_page_is_found(monkeypatch, fault):
    """At the resumption, with the page, and when and for whom it was copied to the host."""
    run = Run(host_pages=16)
    run.admitted("r1", TOKENS)
    events = events_of(run)
    run.engine.retract_with_backup("r1")
    retracted = next(i for i, event in enumerate(events) if isinstance(event, Retracted))
    seq_of_first = run.engine.next_seq - len(events)
    kept = run.pools._backup
    if fault == "flipped":
        kept.arena[int(run.ledger.waiting["r1"].backup[1]), 0] ^= 1
    else:
        sound = backup.HostBackup.restore

        def restore(self, copy):
            order = [1, 0, 2, 3, 4] if fault == "swapped" else [0, 0, 2, 3, 4]
            wrong = type(copy)(copy.groups, copy.table_idx, copy.pages, copy.host_pages[order])
            sound(self, wrong)

        monkeypatch.setattr(backup.HostBackup, "restore", restore)
    run.engine.resume("r1", TOKENS)
    resumed = next(i for i, event in enumerate(events) if isinstance(event, Resumed))
    pages = run.pages("r1")
    wrong = pages[:2] if fault == "swapped" else [pages[1]]
    assert run.found[0].id == "content-unchanged"
    assert run.found[0].seq == seq_of_first + resumed
    evidence = run.found[0].evidence
    assert sorted(evidence["pages"]) == sorted(wrong)
    assert set(evidence["completed_at"]) == {seq_of_first + retracted}
    assert set(evidence["completed_for"]) == {"request r1"}
    assert evidence["what"] == "restored from the host"
