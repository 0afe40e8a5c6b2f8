"""The engine's commands with pools attached: the device agrees with the ledger at every event."""

import sys
from collections import Counter
from functools import partial
from pathlib import Path

import hypothesis
import pytest
from hypothesis.stateful import run_state_machine_as_test

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS / "engine")]

import engine_driver
from engine_machine import EngineMachine

from kvlife import Checker, KvEngine
from kvlife.pools import DevicePools, MultiHead

NUM_RUNS = 12
NUM_STEPS = 40
LAYOUT = MultiHead(num_layers=2, num_kv_heads=1, k_dim=4, dtype="fp16")


class PooledEngine(KvEngine):
    """An engine that audits after each event; its slots are those that the ledger's tables give."""

    def __init__(self, config, **options):
        self.num_slots = 0
        pools = DevicePools(LAYOUT, poison=255)
        super().__init__(config, pools=pools, checker=Checker(audit_every=1), **options)

    def allocate(self, which, lens, **options):
        rows = self._rows(which)
        old = self.ledger.rows.allocated[rows]
        slots = super().allocate(which, lens, **options)
        self.check_slots(
            slots, self.ledger.layout.base, rows, old, self.ledger.rows.allocated[rows]
        )
        return slots

    def decode(self, batch):
        slots = super().decode(batch)
        ends = self.ledger.rows.allocated[batch.rows]
        self.check_slots(slots, self.ledger.layout.base, batch.rows, ends - 1, ends)
        for group in self.ledger.layout.groups:
            slots = self.last_slots(batch, group.name)
            self.check_slots(slots, group.idx, batch.rows, ends - 1, ends)
        return slots

    def check_slots(self, slots, group, rows, low, high):
        layout, table = self.ledger.layout.groups[group], self.ledger.tables[group]
        wanted = [
            int(table[row * layout.table_width + at // layout.page_size]) * layout.page_size
            + at % layout.page_size
            for row, first, stop in zip(rows.tolist(), low.tolist(), high.tolist(), strict=True)
            for at in range(first, stop)
        ]
        in_use = [slot if slot >= layout.page_size else 0 for slot in wanted]
        found = [slot if slot >= layout.page_size else 0 for slot in slots.tolist()]
        assert found == in_use
        self.num_slots += len(wanted)


@pytest.mark.soak
@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_device_agrees_after_each_event_of_every_command(
    page_size, num_groups, seed, monkeypatch
):
    """Commands, refusals and faults of callers leave the device's tables as the ledger's."""
    monkeypatch.setattr(engine_driver, "KvEngine", PooledEngine)
    fields = {"page_size": page_size, "num_groups": num_groups, "tally": Counter()}
    machine = type(f"Pooled{page_size}x{num_groups}", (EngineMachine,), fields)
    times = 4 if hypothesis.settings.get_current_profile_name() == "soak" else 1
    settings = hypothesis.settings(
        max_examples=times * NUM_RUNS,
        stateful_step_count=times * NUM_STEPS,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=settings)
    assert machine.num_commands >= 10 * NUM_RUNS
