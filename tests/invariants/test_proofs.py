"""The fast proofs against the guards that they stand for, on random lives, sound and faulty."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_lives import Lives
from random_pools import CONFIGS
from spoiled_events import spoil

from kvlife.events import EVENT_TYPES
from kvlife.invariants import CATALOGUE, Checker, Effect
from kvlife.invariants.compiled import compile_plans
from kvlife.invariants.proofs import Proofs
from kvlife.ledger import Ledger, derive


def broken_by(checks, ledger, event, change):
    found = ((inv.id, check(Effect(ledger, event, change))) for inv, check in checks)
    return {invariant: evidence for invariant, evidence in found if evidence is not None}


def live(seed, config, *, faults, num_events=70):
    """Live a random life; for each event, before and after, whether it was proven, what broke."""
    rng = random.Random(seed)
    ledger = Ledger(config)
    lives = Lives(ledger, rng, writers=faults)
    proofs = Proofs(lambda: ledger.next_seq)
    plans = compile_plans([inv for inv in CATALOGUE if inv.built], EVENT_TYPES, proofs)
    for seq in range(num_events):
        event = lives.propose()
        if faults and rng.random() < 0.25:
            event = spoil(event, ledger, rng) or event
        plan = plans[type(event)]
        change = derive(ledger, event)
        proven = plan.proof(ledger, event, change)
        broken = broken_by(plan.guards, ledger, event, change)
        if broken:
            proofs.forget()  # as the checker does when it finds a fault
        yield seq, event, proven, broken
        ledger.apply(event, seq, 0, change)
        proven = plan.post_proof(ledger, event, change)
        broken = broken_by(plan.posts, ledger, event, change)
        if broken:
            proofs.forget()
        yield seq, event, proven, broken


@pytest.mark.soak
@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=80)
@given(seed=st.integers(0, 1 << 32))
def test_what_is_proven_breaks_no_guard(config, seed):
    """Where a proof answers True no guard finds a fault, in sound states and in broken ones."""
    with np.errstate(over="ignore"):
        for seq, event, proven, broken in live(seed, config, faults=True):
            assert not (proven and broken), (seq, event, broken)


@pytest.mark.soak
@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 32))
def test_a_sound_life_raises_no_alarm(config, seed):
    """A life without a fault breaks no guard, event by event."""
    for seq, event, _proven, broken in live(seed, config, faults=False):
        assert not broken, (seq, event, broken)


@pytest.mark.soak
@pytest.mark.parametrize("config", CONFIGS)
@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 32))
def test_no_audit_fires_before_a_guard(config, seed):
    """Up to the first fault that a guard names, the whole state passes each audit."""
    rng = random.Random(seed)
    ledger = Ledger(config)
    lives = Lives(ledger, rng)
    checker = Checker(policy="collect", audit_every=None)
    for seq in range(50):
        event = lives.propose()
        if rng.random() < 0.25:
            event = spoil(event, ledger, rng) or event
        change = derive(ledger, event)
        with np.errstate(over="ignore"):
            found = checker.guard(ledger, event, change, seq)
        ledger.apply(event, seq, 0, change)
        if found or checker.post(ledger, event, change, seq):
            return
        assert checker.audit(ledger) == [], (seq, event)


@pytest.mark.parametrize("config", CONFIGS)
def test_most_sound_events_are_proven(config):
    """The proofs are no empty promise: they settle nearly every event of a sound life."""
    count = Counter(
        (type(event).__name__, proven)
        for seed in range(12)
        for _seq, event, proven, _broken in live(seed, config, faults=False)
    )
    total = sum(count.values())
    assert sum(num for (_name, proven), num in count.items() if proven) > 0.9 * total, count
