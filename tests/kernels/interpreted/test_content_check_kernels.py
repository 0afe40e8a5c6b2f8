"""The kernels of content checks find what their references find, on random inputs."""

import pytest
import torch
from twice import assert_same, strided

from kvlife.kernels import Violations
from kvlife.kernels.check_stores import check_stores
from kvlife.kernels.compare_digests import compare_digests

SIZES = (0, 1, 3, 256, 1000)


def apart(tensor, step):
    return strided(tensor, step) if step > 1 else tensor


@pytest.mark.axes(num=SIZES, step=(1, 3), dtype=(torch.int32, torch.int64), share=(0.0, 0.1, 1.0))
def test_compare_digests(case, seed):
    """Some digests differ, none, or all; strided or not."""
    random = torch.Generator().manual_seed(seed)
    num, step = case["num"], case["step"]
    found = torch.randint(-(1 << 62), 1 << 62, (num,), generator=random, dtype=torch.int64)
    differs = torch.rand(num, generator=random) < case["share"]
    bits = torch.randint(0, 63, (num,), generator=random)
    expected = found ^ (differs.long() << bits)
    pages = torch.randint(0, 1 << 20, (num,), generator=random).to(case["dtype"])
    assert_same(
        compare_digests, apart(found, step), apart(expected, step), apart(pages, step),
        violations=Violations.create("cpu", 2048), seq=(1 << 31) + 5, group=3,
    )  # fmt: skip


@pytest.mark.axes(
    num=SIZES, step=(1, 2), dtype=(torch.int32, torch.int64), page_size=(1, 16, 64, 256),
    named=(True, False),
)  # fmt: skip
def test_check_stores(case, seed):
    """Slots inside and outside the pool, of few rows, so that some are right."""
    random = torch.Generator().manual_seed(seed)
    num, step, size = case["num"], case["step"], case["page_size"]
    writers = torch.randint(0, 3, (20,), generator=random, dtype=torch.int32)
    slots = torch.randint(-2 * size, 22 * size, (num,), generator=random).to(case["dtype"])
    rows = torch.randint(0, 3, (num,), generator=random, dtype=torch.int32)
    assert_same(
        check_stores, apart(slots, step), apart(rows, step) if case["named"] else None, writers,
        size, violations=Violations.create("cpu", 2048), seq=7, group=1,
    )  # fmt: skip
