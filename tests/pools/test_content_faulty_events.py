"""Content checks are total: whatever an event says, they follow it, and go on."""

import random

import pytest
from device_events import Twins
from pool_configs import POOLS
from random_lives import Lives
from random_pools import CONFIGS
from senseless_events import Nonsense
from spoiled_events import spoil

from kvlife.pools.layouts import MultiHead

NUM_RUNS = 2
NUM_EVENTS = 60
SMALL = MultiHead(num_layers=1, num_kv_heads=1, k_dim=4, v_dim=4, dtype="bf16")
# Groups that share a space have one layout and one page size.
ONE_SIZE = [
    config
    for config in CONFIGS
    if len({group.space for group in config.groups}) == len(config.groups)
    or len({group.page_size for group in config.groups}) == 1
]


def followed(twins, events):
    """Apply events, and ask after each as an observer does; the findings and digests."""
    found, taken = [], 0
    for event in events:
        twins.apply(event)
        found += twins.pools.drain()
        taken += sum(note.pages.size for note in twins.pools.notes())
        twins.pools.audit()
        found += twins.pools.drain(wait=True)
    return found, taken


@pytest.mark.soak
@pytest.mark.parametrize("name", POOLS)
def test_senseless_events(name, seed):
    """Events that mean nothing: no error, and nothing is said of pages that nobody wrote."""
    rng = random.Random(seed)
    for _ in range(NUM_RUNS):
        twins = Twins(POOLS[name], SMALL, content="check", poison=0xFF)
        nonsense = Nonsense(rng.getrandbits(40), twins.ledger)
        followed(twins, (nonsense.event() for _ in range(NUM_EVENTS)))


@pytest.mark.soak
@pytest.mark.parametrize("config", ONE_SIZE)
def test_sound_lives_that_write_nothing(config, seed):
    """Pages whose bytes stay what they are are never accused; every whole one has a digest."""
    rng = random.Random(seed)
    total = 0
    for _ in range(NUM_RUNS):
        twins = Twins(config, SMALL, content="check")
        lives = Lives(twins.ledger, rng, writers=True)
        found, taken = followed(twins, (lives.propose() for _ in range(NUM_EVENTS)))
        assert not found
        total += taken
    assert total


@pytest.mark.soak
@pytest.mark.parametrize("config", ONE_SIZE)
def test_lives_with_faults(config, seed):
    """One event in ten is spoiled."""
    rng = random.Random(seed)

    def spoiled(lives, ledger):
        for _ in range(NUM_EVENTS):
            event = lives.propose()
            yield spoil(event, ledger, rng) or event if rng.random() < 0.1 else event

    for _ in range(NUM_RUNS):
        twins = Twins(config, SMALL, content="check", poison=0xFF)
        followed(twins, spoiled(Lives(twins.ledger, rng, writers=True), twins.ledger))
