"""The scheduler's loop with pools attached: tensors for slots, under pressure, to the end."""

import pytest
import torch

from kvlife import Checker, KvEngine
from kvlife.pools import DevicePools, MultiHead
from kvlife.simulation import (
    Scheduler,
    SchedulerConfig,
    SyntheticConfig,
    VirtualClock,
    generate,
    size_pools,
)

WORKLOAD = generate(
    SyntheticConfig(
        num_requests=25,
        seed=11,
        max_context_len=2048,
        system_len_median=40,
        user_len_median=20,
        answer_len_median=12,
        conversations_per_s=40.0,
        pause_s_mean=0.5,
    )
)
LONGEST = int((WORKLOAD.prompt_len + WORKLOAD.output_len).max())
LAYOUT = MultiHead(num_layers=1, num_kv_heads=1, k_dim=4, dtype="fp16")


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("window", [None, 24])
def test_a_loop_under_pressure_ends_with_a_device_that_agrees(overlap, window):
    """Drafts, sessions, aborts and retractions; an audit every twenty events and at the end."""
    config = SchedulerConfig(
        max_running=8,
        chunk_tokens=128,
        headroom_tokens=0,
        overlap=overlap,
        draft=3 if overlap else 0,
        session_rate=0.4,
        abort_rate=0.2,
        session_idle_ns=10**9,
        seed=3,
    )
    num_pages = 6 + (LONGEST + config.reserve_len) // 16
    sizes = size_pools(WORKLOAD, config, page_size=16, num_pages=num_pages, window=window)
    clock, pools = VirtualClock(), DevicePools(LAYOUT, poison=255)
    engine = KvEngine(sizes, checker=Checker(audit_every=20), pools=pools, key_seed=1, clock=clock)
    tally = Scheduler(engine, WORKLOAD, config, clock=clock).run()
    engine.close()
    assert tally.completed + tally.aborts.total() == len(WORKLOAD)
    assert engine.stats().violations == {}
    assert not bool((pools.state.allocated > 0).any())


def inside(call):
    """What a call gives in inference mode."""
    with torch.inference_mode():
        return call()


@pytest.mark.parametrize("made", [lambda call: call(), inside])
@pytest.mark.parametrize("content", [None, "check"])
def test_inference_mode_may_come_and_go(made, content):
    """Pools made inside it or outside it are driven inside it and outside it, in turns."""
    pools = DevicePools(LAYOUT, content=content, poison=255)
    sizes = size_pools(WORKLOAD, SchedulerConfig(), page_size=16, num_pages=40)
    engine = made(lambda: KvEngine(sizes, pools=pools))
    k, v = torch.zeros(2, 20, 1, 4)
    steps = [
        lambda: engine.admit("r", list(range(20))),
        lambda: pools.store(0, k, v, engine.allocate(["r"], [20])),
        lambda: engine.commit(["r"]),
        *[lambda: pools.store(0, k[:1], v[:1], engine.decode(engine.batch(["r"])))] * 4,
        lambda: engine.resize(50),
        lambda: engine.decode(engine.batch(["r"])),
        lambda: engine.retract("r"),
        engine.audit,
    ]
    for turn, step in enumerate(steps):
        inside(step) if turn % 2 else step()
    engine.close()
