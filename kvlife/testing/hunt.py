"""`fuzz` makes a test of an adapter, `find` looks for one failing program and returns it."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from unittest import TestCase

import attrs

from kvlife.testing.adapter import Allocator, BacksUp, check_adapter
from kvlife.testing.extra import hypothesis, stateful
from kvlife.testing.machine import BackingUpMachine, LifecycleMachine
from kvlife.testing.minimize import minimize
from kvlife.testing.program import text_of
from kvlife.testing.strategies import PAGE_SIZES

_NUM_STEPS = 30


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
        "failing": [],
        "__doc__": f"Random lives of requests, given to {adapter_type.__name__}.",
    }
    base = BackingUpMachine if issubclass(adapter_type, BacksUp) else LifecycleMachine
    return type(f"{adapter_type.__name__}Machine", (base,), fields)


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
    chosen = _without_shrinking(settings or _settings(hypothesis.settings().max_examples))

    def run(_case: TestCase) -> None:
        found = hunt(machine, chosen, log_root)
        if found is not None:
            found.error.add_note(f"{found.program}kvlife replay {found.log}")
            raise found.error

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

    Nothing is random here: it is the same at each call, while the same modules are loaded (from
    whose source Hypothesis takes some of its numbers).
    """
    machine = machine_of(adapter_type, page_sizes=page_sizes)
    settings = hypothesis.settings(
        _settings(max_examples, num_steps), derandomize=True, database=None
    )
    return hunt(machine, _without_shrinking(settings), log_root)


def hunt(
    machine: type[LifecycleMachine],
    settings: hypothesis.settings,
    log_root: str | Path | None = None,
) -> Found | None:
    """Run a machine under Hypothesis; what it finds is cut down and its log written."""
    machine.failing.clear()
    try:
        # What Hypothesis prints is the program before it is cut down.
        with contextlib.redirect_stdout(io.StringIO()):
            stateful.run_state_machine_as_test(machine, settings=settings)
    except Exception:
        # A run that fails by chance, or before its first call, cannot be cut down.
        if not machine.failing or machine.run(machine.failing[0])[1] is None:
            raise
    else:
        return None
    program = minimize(machine.failing[0], lambda smaller: machine.run(smaller)[1] is not None)
    run, error = machine.run(program)
    assert error is not None  # it failed a moment ago
    root = log_root or tempfile.mkdtemp(prefix=f"kvlife-{machine.__name__}-")
    return Found(program=text_of(program, machine.__name__), error=error, log=run.log.save(root))


def _settings(max_examples: int, num_steps: int = _NUM_STEPS) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=max_examples,
        stateful_step_count=num_steps,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
    )


def _without_shrinking(settings: hypothesis.settings) -> hypothesis.settings:
    """Programs are cut down here, see `minimize`; and a run may take its time."""
    ours = {hypothesis.Phase.shrink, hypothesis.Phase.explain}
    return hypothesis.settings(
        settings,
        deadline=None,
        phases=[phase for phase in settings.phases if phase not in ours],
    )
