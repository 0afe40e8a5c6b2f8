"""The device's state equals the ledger's after every event, faulty ones included."""

import random

import pytest
from device_events import Twins
from pool_configs import POOLS
from random_lives import Lives
from random_pools import CONFIGS
from senseless_events import Nonsense
from spoiled_events import spoil

NUM_RUNS = 30
NUM_EVENTS = 80


@pytest.mark.soak
@pytest.mark.parametrize("name", POOLS)
def test_senseless_events_leave_the_same_state(name, seed):
    """Events that mean nothing change the device's tensors as they change the ledger's."""
    rng = random.Random(seed)
    for _ in range(NUM_RUNS):
        twins = Twins(POOLS[name])
        nonsense = Nonsense(rng.getrandbits(40), twins.ledger)
        for _ in range(NUM_EVENTS):
            event = nonsense.event()
            twins.apply(event)
            assert not twins.differing(), event


@pytest.mark.soak
@pytest.mark.parametrize("config", CONFIGS)
def test_lives_with_faults_leave_the_same_state(config, seed):
    """So do the events of random lives, one in ten of them spoiled."""
    rng = random.Random(seed)
    for _ in range(NUM_RUNS):
        twins = Twins(config)
        lives = Lives(twins.ledger, rng, writers=True)
        for _ in range(NUM_EVENTS):
            event = lives.propose()
            if rng.random() < 0.1:
                event = spoil(event, twins.ledger, rng) or event
            twins.apply(event)
            assert not twins.differing(), event
