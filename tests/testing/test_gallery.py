"""A gallery of broken allocators: each is found, and pinned to its smallest program."""

import broken_allocators as broken
import pytest

from kvlife.replay.cli import main
from kvlife.testing import find

# The smallest program of each, worked out by hand. Pages and tokens are as few as can be: a page
# of one token where the fault needs no partial page, of two where it does; `num_pages` counts the
# reserved page. Of verbs that come to the same a program shows the simplest: `free` for all ends.
GALLERY = [
    (
        broken.LeaksTheTail,
        "refs-balance",
        """
        begin(page_size=2, num_pages=2)
        admit(rid='r1', tokens=[0])
        free(rid='r1')
        """,
    ),
    (
        broken.RecomputesTheLength,
        "refs-balance",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        free(rid='r1')
        """,
    ),
    (
        broken.FreesTwice,
        "page-double-free",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        abort(rid='r1')
        """,
    ),
    (
        broken.MissesTheUnlock,
        "refs-balance",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        free(rid='r1')
        """,
    ),
    (
        broken.EvictsTheHeld,
        "evicted-while-locked",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        evict(num_pages=1)
        """,
    ),
    (
        broken.FlushesTheHeld,
        "evicted-while-locked",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        reset()
        """,
    ),
    (
        broken.ForgetsOnReset,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        free(rid='r1')
        reset()
        """,
    ),
    (
        broken.ForgetsTheGrant,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=3)
        admit(rid='r1', tokens=[0])
        extend(rid='r1', tokens=[0])
        """,
    ),
    (
        broken.KeepsTheHashOfTheEvicted,
        "page-double-alloc",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        free(rid='r1')
        admit(rid='r2', tokens=[1])
        """,
    ),
    (
        broken.KeepsTheHashOfTheFreed,
        "page-double-alloc",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        free(rid='r1')
        admit(rid='r2', tokens=[1])
        """,
    ),
    (
        broken.ForgetsToRebind,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=3)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        admit(rid='r2', tokens=[0])
        publish(rid='r2')
        """,
    ),
    (
        broken.RebindsWithoutLettingGo,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=3)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        admit(rid='r2', tokens=[0])
        publish(rid='r2')
        """,
    ),
    (
        broken.KeepsAStaleTable,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=3)
        admit(rid='r1', tokens=[0, 0])
        roll_back(rid='r1', num_tokens=1)
        """,
    ),
    (
        broken.SharesTheTail,
        "page-double-alloc",
        """
        begin(page_size=2, num_pages=2)
        admit(rid='r1', tokens=[0])
        fork(rid='r1', child='r2')
        """,
    ),
    (
        broken.ForksWithoutCounting,
        "evicted-while-locked",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        fork(rid='r1', child='r2')
        free(rid='r1')
        evict(num_pages=1)
        """,
    ),
    (
        broken.LeavesHitsEvictable,
        "evicted-while-locked",
        """
        begin(page_size=1, num_pages=3)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        free(rid='r1')
        admit(rid='r2', tokens=[0, 0])
        evict(num_pages=1)
        """,
    ),
    (
        broken.HandsOutTwice,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        """,
    ),
    (
        broken.AdmitsByHalves,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0, 0])
        """,
    ),
    (
        broken.HashesNoTokens,
        "ContractBroken",
        """
        begin(page_size=1, num_pages=3)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        admit(rid='r2', tokens=[1, 0])
        """,
    ),
    (
        broken.PublishesThePartial,
        "ladder-order",
        """
        begin(page_size=2, num_pages=2)
        admit(rid='r1', tokens=[0])
        publish(rid='r1')
        """,
    ),
    (
        broken.FreesUnderThePin,
        "pinned-page-freed",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        pin(pin_id='p1', rid='r1')
        free(rid='r1')
        admit(rid='r2', tokens=[0])
        """,
    ),
    (
        broken.KeepsABlockOfThePreempted,
        "refs-balance",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        preempt(rid='r1')
        """,
    ),
    (
        broken.FreesTheOldTable,
        "allocated-covers-pages",
        """
        begin(page_size=1, num_pages=2)
        admit(rid='r1', tokens=[0])
        preempt(rid='r1')
        admit(rid='r1', tokens=[0])
        """,
    ),
]


@pytest.mark.parametrize(
    ("allocator_type", "broken_id", "program"),
    GALLERY,
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_a_broken_allocator_is_found(allocator_type, broken_id, program, tmp_path, capsys):
    """Within 200 runs the fault is found, and nothing can be taken from the program it ends in."""
    found = find(broken.adapter_of(allocator_type), log_root=tmp_path)
    assert found is not None
    assert steps_of(found.program) == [line.strip() for line in program.strip().splitlines()]
    assert getattr(found.error, "id", type(found.error).__name__) == broken_id
    replayed = main(["replay", str(found.log)])
    assert replayed == (1 if hasattr(found.error, "id") else 0)
    shown = capsys.readouterr().out
    assert broken_id in shown or not hasattr(found.error, "id")


def steps_of(program):
    """The steps after the machine is made, without `state.`."""
    first, *steps = program.splitlines()
    assert first.startswith("state = ")
    return [step.removeprefix("state.") for step in steps]
