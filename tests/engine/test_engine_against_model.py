"""The engine against a model of dicts and sets: all commands, refusals included."""

from collections import Counter

import hypothesis
import pytest
from engine_machine import EngineMachine
from hypothesis.stateful import run_state_machine_as_test

# Eight machines of at least 2,500 commands each make 20,000; a soak takes its profile's numbers.
MIN_COMMANDS = 2500
NUM_RUNS = 80
NUM_STEPS = 50
COMMANDS = {
    *("match", "admit", "resume", "batch", "allocate", "decode", "commit", "roll_back"),
    *("evict_window", "protect", "finish", "abort", "retract", "dispatch", "settle"),
    *("session_save", "session_restore", "session_close", "pin", "unpin", "evict", "flush"),
    *("resize", "tokens_required_next_decode"),
}
# Errors that commands raise in every machine.
REFUSALS = {
    *("BadLength", "BadTokens", "DuplicateRequest", "OutOfPages", "OutOfRows", "PinRefused"),
    *("SessionBusy", "StaleBatch", "StepOrder", "UnknownRequest"),
}


def _settings():
    if hypothesis.settings.get_current_profile_name() == "soak":
        return hypothesis.settings()
    return hypothesis.settings(
        max_examples=NUM_RUNS,
        stateful_step_count=NUM_STEPS,
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
    done = {command for command, how in machine.tally if how == "done"}
    assert done >= COMMANDS, f"never done: {COMMANDS - done}"
    refusals = {how for _, how in machine.tally} - {"done"}
    assert refusals >= REFUSALS, f"never refused by: {REFUSALS - refusals}"
