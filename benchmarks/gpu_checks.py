"""Each kernel against its reference: the same call twice, and everything it touched compared."""

import contextlib
import os
import warnings

import attrs
import torch
from gpu_cases import all_cases

from kvlife.kernels import Violations

VARIABLE = "KVLIFE_KERNELS"


@attrs.define
class Tally:
    """Of one operation: calls that agreed, and what is to be said of those that did not."""

    num_agreed: int = 0
    differences: list[str] = attrs.field(factory=list)


@attrs.frozen(kw_only=True)
class Checked:
    """What a run of checks found, by operation, and what it left out for want of time."""

    tallies: dict[str, Tally]
    complete: bool

    @property
    def passed(self):
        """Whether each operation was checked, and nothing differed."""
        return all(t.num_agreed and not t.differences for t in self.tallies.values())


def check_all(device, sizes, seed, budget, operations, say):
    """Run the cases until they, or the time for them, end."""
    tallies = {name: Tally() for name in operations}
    for case in all_cases(seed, sizes):
        tally = tallies.setdefault(case.operation.__name__, Tally())
        if budget.is_over:
            return Checked(tallies=tallies, complete=False)
        difference = difference_of(case, device)
        if difference is None:
            tally.num_agreed += 1
        else:
            tally.differences.append(f"{case.name}: {difference}")
            say(f"DIFFERS  {case.operation.__name__}, {case.name}: {difference}")
    return Checked(tallies=tallies, complete=True)


def difference_of(case, device):
    """What kernel and reference disagree about, in words; None where in nothing."""
    try:
        expected = outcome(case, torch.device("cpu"), "torch")
        found = outcome(case, device, "triton")
    # Whatever goes wrong in one kernel is a finding about it, and the others are checked still.
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    for name, value in expected.items():
        difference = compared(value, found[name])
        if difference is not None:
            return f"{name}: {difference}"
    return None


def outcome(case, device, choice):
    """What a call returns, and what it leaves in its arguments, on the CPU, by name."""
    arguments, options = given(case, device)
    with kernels(choice), poisoned():
        result = case.operation(*arguments, **options)
    results = result if isinstance(result, tuple) else (result,)
    named = {f"result {i}": value for i, value in enumerate(results)}
    named |= {f"argument {i}": value for i, value in enumerate(arguments)}
    return {name: values_of(value) for name, value in {**named, **options}.items()}


def given(case, device):
    """Copies of a case's arguments and options, on the device."""
    arguments = [placed(value, device) for value in case.arguments]
    return arguments, {name: placed(value, device) for name, value in case.options.items()}


def placed(value, device):
    """A copy of a tensor, or of a buffer of findings, on the device; anything else as it is."""
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=device
        ).copy_(value)
    if isinstance(value, Violations):
        return Violations.create(device, value.capacity)
    return value


def values_of(value):
    """What is compared of a value: a tensor's bits, or the findings in any order."""
    if isinstance(value, torch.Tensor):
        bits = {2: torch.int16, 4: torch.int32}.get(value.element_size())
        return value.cpu().view(bits) if value.is_floating_point() else value.cpu()
    if isinstance(value, Violations):
        return int(value.count), sorted(value.read(), key=attrs.astuple)
    return None


def compared(expected, found):
    """How two values differ, in words; None where they do not."""
    if isinstance(expected, torch.Tensor):
        if torch.equal(expected, found):
            return None
        wrong = torch.nonzero((expected != found).flatten()).flatten()
        first = int(wrong[0])
        return (
            f"{wrong.numel()} of {expected.numel()} differ, the first at {first}:"
            f" {found.flatten()[first]} for {expected.flatten()[first]}"
        )
    if expected == found:
        return None
    (num, findings), (other_num, others) = expected, found
    odd = [f for f in others if f not in findings] or [f for f in findings if f not in others]
    return f"{other_num} findings for {num}; {odd[:1]}"


@contextlib.contextmanager
def kernels(choice):
    """Within it, operations run in torch or in Triton, as chosen."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = choice
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


@contextlib.contextmanager
def poisoned():
    """Within it, memory that torch hands out is filled, so that what nobody wrote is seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode("default")
