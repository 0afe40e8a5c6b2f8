"""Freed pages that are filled stay as they were filled, until somebody takes them."""

import pytest
from content_runs import Run, found_once

from kvlife import CacheGroup

TOKENS = list(range(100, 118))


@pytest.mark.parametrize("taken", [True, False])
def test_a_poisoned_page_stays_as_it_was_filled(taken):
    """A write into a page after it was freed is found when the page is taken, or by an audit."""
    run = Run()
    run.admitted("r1", TOKENS)
    run.engine.abort("r1")
    freed = run.last_seq
    run.flip(4)
    if taken:
        run.engine.admit("r2", TOKENS)
        run.engine.allocate(["r2"], [len(TOKENS)])
        evidence = found_once(run, run.last_seq, 4)
        assert (evidence["what"], evidence["holders"]) == ("taken", ["request r2"])
    else:
        run.engine.audit()
        evidence = found_once(run, run.last_seq, 4)
        assert (evidence["what"], evidence["holders"]) == ("audited while FREE", [])
    assert (evidence["completed_at"], evidence["completed_for"]) == ([freed], ["request r1"])
    assert "was filled when it was freed" in evidence["why"]
    run.engine.close()
    assert len(run.found) == 1


def test_a_poisoned_page_may_be_taken_by_another_group_of_its_space():
    """What one group has freed is free for all of them; in an audit a page is told once."""
    shared = (CacheGroup("full", space="one"), CacheGroup("swa", window=8, space="one"))
    run = Run(shared)
    run.admitted("r1", TOKENS[:5])
    freed = run.pages("r1", 1)
    run.engine.abort("r1")
    run.admitted("r2", TOKENS)
    assert set(freed) & set(run.pages("r2", 0))
    run.engine.abort("r2")
    run.engine.resize(30)
    run.engine.audit()
    assert not run.found
    run.flip(4)
    run.engine.audit()
    assert found_once(run, run.last_seq, 4)["what"] == "audited while FREE"
