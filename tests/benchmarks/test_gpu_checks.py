"""The checks of gpu.py see each way in which a kernel can differ from its reference."""

import importlib
import os
import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

CPU = torch.device("cpu")


def script(name):
    """A module of benchmarks/, which is no package: a fixture puts it on the path."""
    return importlib.import_module(name)


def by_kernel():
    """Whether the call is the one that Triton would take."""
    return os.environ["KVLIFE_KERNELS"] == "triton"


def same(values, violations):
    """An operation without a fault."""
    values += 1
    violations.count.add_(1)
    violations.entries[0, 0] = 1
    return values * 2


def other_result(values, violations):
    """Returns another element."""
    return same(values, violations) + (torch.arange(3) == 1) * by_kernel()


def other_argument(values, violations):
    """Writes where it should not."""
    result = same(values, violations)
    values[2] += by_kernel()
    return result


def silent(values, violations):
    """Finds nothing."""
    result = same(values, violations)
    violations.count.sub_(int(by_kernel()))
    return result


def broken(values, violations):
    """Does not compile."""
    if by_kernel():
        raise RuntimeError("out of registers\nand more")
    return same(values, violations)


def unwritten(values, violations):
    """Leaves an element of its result as it was."""
    result = torch.empty(3)
    result[: 3 - by_kernel()] = 1.0
    return result


@pytest.mark.parametrize(
    ("operation", "said"),
    [
        (same, None),
        (other_result, "result 0: 1 of 3 differ, the first at 1: 3 for 2"),
        (other_argument, "argument 0: 1 of 3 differ, the first at 2: 2 for 1"),
        (silent, "violations: 0 findings for 1"),
        (broken, "RuntimeError: out of registers"),
        (unwritten, "result 0: 1 of 3 differ, the first at 2"),
    ],
)
def test_differences_are_seen(operation, said):
    """What differs is named: result, argument, findings, or the error."""
    cases, checks = script("gpu_cases"), script("gpu_checks")

    options = {"violations": cases.found()["violations"]}
    case = cases.Case(
        operation=operation,
        name="",
        arguments=(torch.zeros(3, dtype=torch.int64),),
        options=options,
    )
    difference = checks.difference_of(case, CPU)
    assert (difference or "").startswith(said or "")
    assert bool(difference) == bool(said)


def test_the_environment_is_left_as_it_was(monkeypatch):
    """After a comparison the caller's choice of kernels holds again."""
    kernels = script("gpu_checks").kernels
    monkeypatch.setenv("KVLIFE_KERNELS", "torch")
    with pytest.raises(KeyError), kernels("triton"):
        raise KeyError
    assert os.environ["KVLIFE_KERNELS"] == "torch"
    monkeypatch.delenv("KVLIFE_KERNELS")
    with kernels("triton"):
        assert by_kernel()
    assert "KVLIFE_KERNELS" not in os.environ


def test_a_rate_is_that_of_a_copy_of_as_many_bytes():
    """A call that takes twice the time of a copy of as many bytes reaches half of its rate."""

    class Clock:
        """One call takes 2 ms, whichever comes next 1 ms."""

        def __init__(self):
            self.seconds = [2e-3, 1e-3]

        def replayed(self, calls, _reset):
            calls[0]()
            return self.seconds.pop(0)

    record = script("gpu_bandwidth")._measured(lambda: (lambda: None, 4_000_000, 0.9), Clock(), CPU)
    assert record["gb_per_s"] == pytest.approx(2.0)
    assert record["copy_gb_per_s"] == pytest.approx(4.0)
    assert record["of_copy"] == pytest.approx(0.5)
    assert not record["met"]


def test_steps_hand_out_each_free_page_once():
    """The pages for decode steps are FREE ones, each for one crossing; lengths say where."""
    generator = torch.Generator().manual_seed(5)
    pools = script("gpu_pools").Tables.create(20, (4, 2), 30, 8, 100, generator)
    steps = pools.steps(8)
    for idx, group in enumerate(pools.groups):
        taken = steps[:, idx][steps[:, idx] > 0]
        assert len(set(taken.tolist())) == taken.numel()
        state = pools.state[group.page_start :][: group.num_pages]
        assert not state[taken.long()].any()
        for step, row in ((0, 0), (3, 7), (7, 19)):
            crosses = (int(pools.lens[row + 1]) + step) % group.page_size == 0
            assert bool(steps[step, idx, row]) == crosses


def test_values_are_of_all_kinds():
    """Among the values that are stored are zeros, infinities, NaN and magnitudes far apart."""
    random_values = script("gpu_pools").random_values
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values = random_values((4000,), torch.bfloat16, torch.Generator().manual_seed(1)).float()
    assert values.isnan().any()
    assert values.isposinf().any()
    assert values.isneginf().any()
    assert (values == 0).any()
    finite = values[values.isfinite() & (values != 0)].abs()
    assert finite.min() < 1e-3
    assert finite.max() > 1e3
