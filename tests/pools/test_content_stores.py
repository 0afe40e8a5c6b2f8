"""Stores into pages that their rows do not hold, and reads of pages that were freed."""

import pytest
import torch
from content_runs import LAYOUT, SLIDING, Run, checking_pools, write

from kvlife import InvariantViolation
from kvlife.invariants import Checker
from kvlife.pools import DevicePools
from kvlife.pools.layouts import Latent, MultiHead

TOKENS = list(range(100, 118))
ROWS = torch.zeros(1, dtype=torch.int32)


def kv(num):
    return torch.ones(num, 2, 4), torch.ones(num, 2, 6)


def store(run, slots, **more):
    for layer in range(2):
        run.pools.store(layer, *kv(slots.numel()), slots, **more)


def told(run):
    """The finding behind the next event."""
    run.engine.mark("whatever comes next")
    return [each for each in run.found if each.id == "content-unchanged"]


def started(rid, run, num=6):
    run.engine.admit(rid, TOKENS)
    return run.engine.allocate([rid], [num])


def test_a_row_stores_to_the_slots_that_it_was_given():
    """Of allocations, of decode steps over batches, of padded slots, in every group."""
    run = Run(SLIDING)
    slots = started("r1", run)
    store(run, slots)
    run.engine.commit(["r1"], [6])
    started("r2", run)
    run.engine.commit(["r2"], [6])
    batch = run.engine.batch(["r1", "r2"])
    for _ in range(5):
        slots = run.engine.decode(batch)
        store(run, slots)
        store(run, run.engine.last_slots(batch, "swa"), group="swa")
        store(run, torch.zeros(3, dtype=torch.int32))
        run.engine.commit(batch)
    assert told(run) == []


def test_a_store_into_another_rows_page_is_flagged():
    """Behind the last event, with both rows named, and long before it would show in a digest."""
    run = Run()
    started("r1", run)
    started("r2", run)
    theirs = int(run.pages("r1")[1])
    seq = run.last_seq
    rows = torch.tensor([run.ledger.requests["r2"]], dtype=torch.int32)
    store(run, torch.tensor([theirs * 4 + 1], dtype=torch.int32), rows=rows)
    (found,) = told(run)
    assert found.seq == seq
    assert found.evidence["pages"] == [theirs]
    assert found.evidence["slots"] == [theirs * 4 + 1]
    assert found.evidence["rows"] == rows.tolist()
    assert found.evidence["holders"] == ["request r2"]
    assert found.evidence["held_by"] == ["request r1"]
    assert found.evidence["what"] == "stored"


def test_slots_of_one_row_are_no_slots_of_another():
    """The slots that a batch was given know which row each is of."""
    run = Run()
    slots = started("r1", run)
    run.engine.commit(["r1"], [6])
    second = started("r2", run)
    slots.copy_(second)
    store(run, slots)
    (found,) = told(run)
    assert found.evidence["holders"] == ["request r1"]
    assert found.evidence["held_by"] == ["request r2"]


def test_a_slot_that_was_freed_is_flagged():
    """The request is gone, and its page free, or another's by now."""
    run = Run()
    slots = started("r1", run)
    run.engine.abort("r1")
    store(run, slots)
    (found,) = told(run)
    assert found.evidence["states"] == ["FREE", "FREE"]
    assert found.evidence["held_by"] == []
    run.found.clear()
    started("r2", run)
    assert run.ledger.requests["r2"] == 1  # the same row, and the same pages
    store(run, slots)
    taken, found = told(run)
    assert taken.evidence["what"] == "taken"  # what was stored to a poisoned page shows there
    assert (found.evidence["rows"], found.evidence["held_by"]) == ([], ["request r2"])
    run.found.clear()
    run.engine.allocate(["r2"], [8])
    fresh = run.engine.slots(["r2"], [0], [8], "full")
    store(run, fresh)
    assert told(run) == []


def test_a_published_page_is_nobodys_to_store_to():
    """Not even of the row that published it; what it holds beyond is its own still."""
    run = Run()
    run.admitted("r1", TOKENS)
    run.engine.protect("r1", TOKENS)
    write(run.pools, "full", run.engine.slots(["r1"], [16], [18], "full"), ["r1"], [16], [18])
    assert told(run) == []
    write(run.pools, "full", run.engine.slots(["r1"], [0], [4], "full"), ["r1"], [0], [4])
    (found,) = told(run)
    assert (found.evidence["pages"], found.evidence["states"]) == ([1], ["CACHED"])
    run.found.clear()
    run.engine.finish("r1", TOKENS)
    assert [each.evidence["what"] for each in run.found] == ["let go"]


def test_slots_of_nobody_knows_whom_must_lie_on_a_page_in_use():
    """A tensor of another making, without rows: free pages and slots outside are flagged still."""
    run = Run()
    started("r1", run)
    ours = int(run.pages("r1")[0]) * 4
    store(run, torch.tensor([ours, ours + 1, 0], dtype=torch.int32))
    assert told(run) == []
    run.pools._content.stores.check(0, torch.tensor([ours, 80, 96, 9999, -3], dtype=torch.int32))
    (found,) = told(run)
    assert found.evidence["slots"] == [80, 96, 9999, -3]
    assert found.evidence["pages"] == [20]


def test_a_step_in_flight_may_store_to_pages_that_their_row_has_left():
    """It was handed to the device before; what is freed with it, is free."""
    run = Run()
    run.admitted("r1", TOKENS)
    slots = run.engine.allocate(["r1"], [24])
    run.engine.dispatch(1, ["r1"])
    run.engine.roll_back(["r1"], [18])
    store(run, slots)
    assert told(run) == []
    run.engine.settle(1)
    store(run, slots)
    assert told(run)[0].evidence["states"] == ["FREE"]


def test_a_step_in_flight_may_store_to_pages_of_a_row_that_drains():
    """The request is gone, and its row holds the pages until the step has settled."""
    run = Run()
    slots = started("r1", run)
    run.engine.dispatch(1, ["r1"])
    run.engine.abort("r1")
    store(run, slots)
    assert told(run) == []
    run.engine.settle(1)
    store(run, slots)
    assert told(run)[0].evidence["states"] == ["FREE", "FREE"]


def test_one_look_does_for_the_layers_of_a_step():
    """The same slots, behind the same event, are looked at once."""
    run = Run()
    slots = started("r1", run)
    stores = run.pools._content.stores
    looked = []
    sound = stores._rows_of
    stores._rows_of = lambda slots: (looked.append(1), sound(slots))[1]
    store(run, slots)
    store(run, slots)
    assert len(looked) == 1
    run.engine.mark("another event")
    store(run, slots)
    assert len(looked) == 2


def test_stores_cost_nothing_where_contents_are_not_checked():
    """The pools hand them on to the buffers, and nothing knows of rows."""
    run = Run(pools=DevicePools(LAYOUT))
    started("r1", run)
    store(run, torch.tensor([80], dtype=torch.int32), rows=ROWS)
    assert told(run) == []
    assert run.pools._content is None


def test_a_strange_store_ends_the_run_under_raise():
    """As any violation does."""
    run = Run(checker=Checker())
    slots = started("r1", run)
    run.engine.abort("r1")
    store(run, slots)
    with pytest.raises(InvariantViolation) as caught:
        run.engine.mark("whatever comes next")
    assert caught.value.id == "content-unchanged"


LAYOUTS = [
    MultiHead(num_layers=2, num_kv_heads=2, k_dim=32, v_dim=64, dtype=dtype, order=order)
    for dtype, order in (
        ("bf16", "layer"), ("fp16", "page"), ("fp32", "layer"), ("fp8_e4m3", "page"),
        ("fp8_e5m2", "layer"), ("mxfp8", "page"), ("nvfp4", "layer"),
    )
]  # fmt: skip
LAYOUTS.append(Latent(num_layers=2, latent_dim=64, rope_dim=32, dtype="bf16"))


@pytest.mark.parametrize(
    "layout", LAYOUTS, ids=lambda layout: f"{type(layout).__name__} {layout.dtype}"
)
def test_a_stale_read_of_a_poisoned_page_is_not_a_number(layout):
    """In every dtype; pages in use, and the reserved page, are left alone."""
    run = Run(pools=checking_pools(layout))
    slots = started("r1", run)
    started("r2", run)
    run.engine.abort("r1")
    for layer in range(2):
        k, v = run.pools.buffers().load(layer, slots)
        assert bool(torch.isnan(k.float()).all())
        assert bool(torch.isnan(v.float()).all())
        mine = run.engine.slots(["r2"], [0], [6], "full")
        for slots_of in (mine, torch.zeros(1, dtype=torch.int32)):
            k, v = run.pools.buffers().load(layer, slots_of)
            assert not bool(torch.isnan(k.float()).any() or torch.isnan(v.float()).any())
