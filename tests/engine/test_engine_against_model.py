"""The engine against a model of dicts and sets: all commands, refusals included."""

import random
from collections import Counter

import hypothesis
import pytest
from engine_driver import PICK
from engine_machine import ACTIONS, EngineMachine
from hypothesis.stateful import run_state_machine_as_test

# Eight machines of at least 2,500 commands each make 20,000.
MIN_COMMANDS = 2500
NUM_RUNS = 80
NUM_STEPS = 50
NUM_WALKS = 10
NUM_WALK_STEPS = 120
COMMANDS = {
    *("match", "admit", "resume", "batch", "allocate", "decode", "commit", "roll_back"),
    *("evict_window", "protect", "finish", "abort", "retract", "dispatch", "settle"),
    *("session_save", "session_restore", "session_close", "pin", "unpin", "evict", "flush"),
    *("resize", "tokens_required_next_decode", "retract_with_backup"),
    *("backup", "restore"),
}
REFUSALS = {
    *("BadLength", "BadTokens", "DuplicateRequest", "OutOfPages", "OutOfRows", "PinRefused"),
    *("SessionBusy", "StaleBatch", "StepOrder", "UnknownRequest"),
}


def _settings():
    """In a soak four times the runs of four times the steps: minutes a round, under new seeds."""
    times = 4 if hypothesis.settings.get_current_profile_name() == "soak" else 1
    return hypothesis.settings(
        max_examples=times * NUM_RUNS,
        stateful_step_count=times * NUM_STEPS,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


@pytest.mark.soak
@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("page_size", [1, 2, 16, 64])
def test_every_command_does_what_the_model_says(page_size, num_groups, seed):
    """Lengths, hits, page states, tables and refusals are the model's after every command."""
    name = f"EngineMachine{page_size}x{num_groups}"
    fields = {"page_size": page_size, "num_groups": num_groups, "tally": Counter()}
    machine = type(name, (EngineMachine,), fields)
    run_state_machine_as_test(hypothesis.seed(seed)(machine), settings=_settings())
    assert machine.num_commands >= MIN_COMMANDS


@pytest.mark.parametrize("num_groups", [1, 2])
@pytest.mark.parametrize("page_size", [1, 16])
def test_the_rules_reach_every_command_and_every_refusal(page_size, num_groups):
    """Walks from fixed seeds do all commands, and meet all refusals that are known here."""
    fields = {"page_size": page_size, "num_groups": num_groups, "tally": Counter()}
    machine = type("Walker", (EngineMachine,), fields)
    for seed in range(NUM_WALKS):
        walk(machine, random.Random(seed))
    done = {command for command, how in machine.tally if how == "done"}
    refusals = {how for _, how in machine.tally} - {"done"}
    assert (COMMANDS - done, REFUSALS - refusals) == (set(), set())


def walk(machine, rng):
    """One run of the rules, each as likely as any other."""
    state = machine()
    picks = {name: rng.randrange(4096) for name in ("variant", "policy")}
    state.begin(num_pages=rng.randint(8, 22), fifo=rng.random() < 0.5, **picks)
    for _ in range(NUM_WALK_STEPS):
        possible = [item for item in ACTIONS if item[1] is None or item[1](state)]
        function, _, strategies = rng.choice(possible)
        drawn = {
            name: rng.randrange(4096) if strategy is PICK else rng.random() < 0.5
            for name, strategy in strategies.items()
        }
        function(state, **drawn)
    state.teardown()
