"""`fuzz` makes a test of an adapter, `find` looks for one failing program and returns it."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections import deque
from pathlib import Path
from unittest import TestCase

import attrs

from kvlife.testing.adapter import Allocator, check_adapter
from kvlife.testing.extra import hypothesis, stateful
from kvlife.testing.machine import LifecycleMachine
from kvlife.testing.strategies import PAGE_SIZES

_NUM_STEPS = 30
_MAX_LOGS = 8
_REPLAY = "kvlife replay "


@attrs.frozen(kw_only=True, eq=False)
class Found:
    """A failing run, as small as it could be made.

    `program` is the run as Python, one call a line; `error` what came of it (mostly an
    `InvariantViolation`), `log` the folder that `kvlife replay` takes.
    """

    program: str
    error: Exception
    log: Path


def machine_of(
    adapter_type: type[Allocator], *, page_sizes: tuple[int, ...] = PAGE_SIZES
) -> type[LifecycleMachine]:
    """The machine that drives one adapter; raises `ConfigError` for an adapter that cannot be."""
    check_adapter(adapter_type)
    fields = {
        "adapter_type": adapter_type,
        "page_sizes": page_sizes,
        "failed": deque(maxlen=_MAX_LOGS),
        "__doc__": f"Random lives of requests, given to {adapter_type.__name__}.",
    }
    return type(f"{adapter_type.__name__}Machine", (LifecycleMachine,), fields)


def fuzz(
    adapter_type: type[Allocator],
    *,
    page_sizes: tuple[int, ...] = PAGE_SIZES,
    log_root: str | Path | None = None,
    settings: hypothesis.settings | None = None,
) -> type[TestCase]:
    """A test case for pytest or unittest of the allocator behind an adapter.

    One line of a test module will do: `TestMine = fuzz(MyAdapter)`. `page_sizes` are those that
    the allocator can have, `log_root` is where a failing run leaves its log (by default a new
    folder for temporary files), `settings` are Hypothesis' own (how many runs, how many steps).
    """
    machine = machine_of(adapter_type, page_sizes=page_sizes)
    chosen = settings or _settings(hypothesis.settings().max_examples)

    def run(_case: TestCase) -> None:
        run_machine(machine, chosen, log_root)

    # What Hypothesis' own plugin for pytest knows its tests by.
    run.is_hypothesis_test = True  # type: ignore[attr-defined]
    fields = {"runTest": run, "__doc__": machine.__doc__, "__module__": adapter_type.__module__}
    return type(f"{machine.__name__}Case", (TestCase,), fields)


def find(
    adapter_type: type[Allocator],
    *,
    max_examples: int = 200,
    num_steps: int = _NUM_STEPS,
    page_sizes: tuple[int, ...] = PAGE_SIZES,
    log_root: str | Path | None = None,
) -> Found | None:
    """The smallest failing program that so many runs of so many steps lead to, or None.

    It is the same at each call: nothing is random here.
    """
    machine = machine_of(adapter_type, page_sizes=page_sizes)
    settings = hypothesis.settings(
        _settings(max_examples, num_steps),
        derandomize=True,
        database=None,
        print_blob=False,
        report_multiple_bugs=False,
        # To explain which arguments do not matter takes longer than to find the program.
        phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
    )
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            run_machine(machine, settings, log_root)
    except Exception as error:
        notes = [line for note in getattr(error, "__notes__", ()) for line in note.splitlines()]
        logs = [line.removeprefix(_REPLAY) for line in notes if line.startswith(_REPLAY)]
        if not logs:
            raise
        steps = [line for line in notes if line.startswith("state")]
        return Found(program="\n".join(steps) + "\n", error=error, log=Path(logs[-1]))
    return None


def run_machine(
    machine: type[LifecycleMachine],
    settings: hypothesis.settings,
    log_root: str | Path | None = None,
) -> None:
    """Run a machine as a test; a failure leaves a log for each bug, and its note says where."""
    machine.failed.clear()
    try:
        stateful.run_state_machine_as_test(machine, settings=settings)
    except Exception as error:
        bugs = list(error.exceptions) if isinstance(error, ExceptionGroup) else [error]
        # Hypothesis runs the smallest program of each bug once more at the end.
        tapes = list(machine.failed)[-len(bugs) :]
        for tape, bug in zip(tapes, bugs, strict=False):
            root = log_root or tempfile.mkdtemp(prefix=f"kvlife-{machine.__name__}-")
            bug.add_note(f"{_REPLAY}{tape.save(root)}")
        raise


def _settings(max_examples: int, num_steps: int = _NUM_STEPS) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=max_examples,
        stateful_step_count=num_steps,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
