"""The engine's commands with pools attached: the device agrees with the ledger after each."""

import random
from collections import Counter

import engine_driver
import hypothesis
import pytest
from engine_driver import PICK
from engine_machine import ACTIONS, EngineMachine

from kvlife import Checker, KvEngine
from kvlife.pools import DevicePools, MultiHead

NUM_WALKS = 4
NUM_STEPS = 80
LAYOUT = MultiHead(num_layers=2, num_kv_heads=1, k_dim=4, dtype="fp16")


class PooledEngine(KvEngine):
    """An engine whose slots are held against those that the ledger's tables give."""

    num_slots = 0

    def __init__(self, config, **options):
        # Pages of two sizes cannot share the memory of one space; then there are no buffers.
        sizes = {(group.space or group.name, group.page_size or 0) for group in config.groups}
        shares = len({space for space, _ in sizes}) < len(sizes)
        pools = DevicePools(None if shares else LAYOUT, poison=255)
        super().__init__(config, pools=pools, checker=Checker(audit_every=7), **options)

    def allocate(self, which, lens, **options):
        rows = self._rows(which)
        old = self.ledger.rows.allocated[rows]
        slots = super().allocate(which, lens, **options)
        ends = self.ledger.rows.allocated[rows]
        self.check_slots(slots, self.ledger.layout.base, rows, old, ends)
        return slots

    def decode(self, batch):
        slots = super().decode(batch)
        ends = self.ledger.rows.allocated[batch.rows]
        self.check_slots(slots, self.ledger.layout.base, batch.rows, ends - 1, ends)
        for group in self.ledger.layout.groups:
            last = self.last_slots(batch, group.name)
            self.check_slots(last, group.idx, batch.rows, ends - 1, ends)
            same = self.slots(batch, (ends - 1).tolist(), ends.tolist(), group.name)
            self.check_slots(same, group.idx, batch.rows, ends - 1, ends)
        return slots

    def check_slots(self, slots, group, rows, low, high):
        layout, table = self.ledger.layout.groups[group], self.ledger.tables[group]
        size = layout.page_size
        wanted = [
            int(table[row * layout.table_width + at // size]) * size + at % size
            for row, first, stop in zip(rows.tolist(), low.tolist(), high.tolist(), strict=True)
            for at in range(first, stop)
        ]
        # Positions without a page lie somewhere on page 0.
        found = slots.tolist()
        assert [slot if slot >= size else 0 for slot in found] == [
            slot if slot >= size else 0 for slot in wanted
        ]
        type(self).num_slots += len(wanted)


@pytest.mark.soak
@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_device_agrees_after_each_command(page_size, num_groups, seed, monkeypatch):
    """Walks through all commands, with refusals: an audit after each finds no drift, and slots fit.

    The driver audits after every command, and an audit compares the device.
    """
    monkeypatch.setattr(engine_driver, "KvEngine", PooledEngine)
    monkeypatch.setattr(PooledEngine, "num_slots", 0)
    fields = {"page_size": page_size, "num_groups": num_groups, "tally": Counter()}
    machine = type(f"Pooled{page_size}x{num_groups}", (EngineMachine,), fields)
    times = 20 if hypothesis.settings.get_current_profile_name() == "soak" else 1
    rng = random.Random(seed)
    for _ in range(times * NUM_WALKS):
        walk(machine, rng)
    assert machine.tally["decode", "done"] > 2
    assert PooledEngine.num_slots > 50


def walk(machine, rng):
    """One run of the rules, each as likely as any other."""
    state = machine()
    picks = {name: rng.randrange(4096) for name in ("variant", "policy")}
    state.begin(num_pages=rng.randint(8, 22), fifo=rng.random() < 0.5, **picks)
    for _ in range(NUM_STEPS):
        possible = [item for item in ACTIONS if item[1] is None or item[1](state)]
        function, _, strategies = rng.choice(possible)
        drawn = {
            name: rng.randrange(4096) if strategy is PICK else rng.random() < 0.5
            for name, strategy in strategies.items()
        }
        function(state, **drawn)
    state.teardown()
