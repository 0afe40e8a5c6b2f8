"""Copies to the host and from it: pins until the pools say that they are complete."""

import numpy as np
import pytest
from backup_runs import TOKENS, engine_of, refold, run, table

from kvlife.errors import EngineClosed, PinRefused
from kvlife.events import Resumed, Retracted, Unpinned
from kvlife.pools import Pools


class SlowCopies(Pools):
    """Pools whose copies are complete when the test says so, or when they are waited for."""

    def __init__(self):
        self.done, self.waits, self.changes = False, 0, []

    def attach(self, ledger):
        self.ledger = ledger

    def apply(self, event, change, seq):
        if isinstance(event, Retracted | Resumed):
            self.changes.append(change)

    def copy_done(self, pin_id):
        return self.done

    def finish_copies(self):
        self.waits += 1
        self.done = True

    def slots(self, group, rows, low, high):
        return np.empty(0, np.int32)


def test_copies_are_pins_until_they_complete():
    """Pages being copied are in quarantine: free when the pools say that the copy is complete."""
    slow = SlowCopies()
    engine = engine_of(pools=slow)
    run(engine, "r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    assert engine.stats().pages["full"]["QUARANTINED"] == 2
    assert slow.changes[0].saved.pages.tolist() == [1, 2]
    assert slow.changes[0].saved.host_pages.tolist() == [1, 2]
    (pin_id,) = engine.ledger.pins
    with pytest.raises(PinRefused, match="ends with its copy"):
        engine.unpin(pin_id)
    engine.post_unpin(pin_id)
    engine.mark("it is the engine's own")
    assert pin_id in engine.ledger.pins
    assert engine.stats().refusals["PinRefused"] == 2
    slow.done = True
    engine.match([1])
    assert engine.num_free() == 11
    assert not engine.ledger.pins
    refold(engine, engine.config)


def test_a_request_aborted_while_its_backup_runs():
    """Its host pages are free at once, its device pages when the copy is complete; C23."""
    slow = SlowCopies()
    engine = engine_of(pools=slow)
    run(engine, "r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    engine.abort("r1")
    assert engine.num_free_host() == 8
    assert engine.num_free() == 9
    slow.done = True
    engine.mark("idle", idle=True)
    assert engine.num_free() == 11


def test_what_is_being_restored_is_waited_for():
    """A dispatch of pages that are still being restored waits for the copy, and is not refused."""
    slow = SlowCopies()
    engine = engine_of(pools=slow)
    run(engine, "r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    slow.done = True
    engine.match([1])
    slow.done = False
    engine.resume("r1", TOKENS[:9])
    restored = slow.changes[1].restored
    assert restored.host_pages.tolist() == [1, 2]
    assert restored.pages.tolist() == table(engine, "r1")
    assert len(engine.ledger.pins) == 1
    engine.allocate(["r1"], [9])
    assert slow.waits == 0
    engine.dispatch(1, ["r1"])
    assert slow.waits == 1
    assert not engine.ledger.pins
    refold(engine, engine.config)


def test_a_restore_that_is_let_go_early_stays_in_quarantine():
    """An abort while pages are being restored: nobody gets them before the copy has ended."""
    slow = SlowCopies()
    engine = engine_of(pools=slow)
    run(engine, "r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    engine.resume("r1", TOKENS[:9])
    engine.abort("r1")
    assert engine.stats().pages["full"]["QUARANTINED"] == 4
    assert len(engine.ledger.pins) == 2
    engine.close()
    assert slow.waits == 1
    assert engine.num_free() == 11
    assert [type(event) for event in engine.log.events[-2:]] == [Unpinned, Unpinned]


def test_a_rank_waits_for_its_copies():
    """One of two ranks ends the pin at once: what it writes does not go by its device."""
    slow = SlowCopies()
    engine = engine_of(pools=slow, world_size=2)
    run(engine, "r1", TOKENS[:8])
    engine.retract_with_backup("r1")
    assert slow.waits == 1
    assert not engine.ledger.pins
    assert engine.num_free() == 11


class FailingCopies(SlowCopies):
    """Pools whose device fails while it copies."""

    def copy_done(self, pin_id):
        raise RuntimeError("the device is lost")


def test_pools_that_fail_at_a_copy_end_the_run():
    """As any error of the pools: it is raised, and the engine is closed."""
    engine = engine_of(pools=FailingCopies())
    run(engine, "r1", TOKENS[:8])
    with pytest.raises(RuntimeError, match="the device is lost"):
        engine.retract_with_backup("r1")
    with pytest.raises(EngineClosed, match="the pools failed"):
        engine.match([1])
