"""The published traces: sums and prefix hits against the figures that were counted elsewhere."""

from pathlib import Path

import numpy as np
import pytest

from kvlife.simulation.mooncake import read_mooncake
from kvlife.simulation.workload import Workload

PAGE_LEN = 16


def prefix_hashes(tokens: np.ndarray) -> np.ndarray:
    """One 64-bit hash a whole page, of all tokens up to its end."""
    num_pages = len(tokens) // PAGE_LEN
    pairs = np.ascontiguousarray(tokens[: num_pages * PAGE_LEN]).view(np.uint64)
    places = np.arange(1, len(pairs) + 1, dtype=np.uint64) * np.uint64(0xD6E8_FEB8_6659_FD93)
    mixed = (pairs ^ places) * np.uint64(0xBF58_476D_1CE4_E5B9)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0x94D0_49BB_1331_11EB)
    mixed ^= mixed >> np.uint64(32)
    by_page = mixed.reshape(num_pages, PAGE_LEN // 2)
    return np.cumsum(by_page.sum(axis=1, dtype=np.uint64), dtype=np.uint64)


def count_hit_tokens(workload: Workload) -> int:
    """Prompt tokens in whole pages whose prefix an earlier request had, nothing being evicted."""
    hashes = [prefix_hashes(workload.prompt(idx)) for idx in range(len(workload))]
    owners = np.repeat(np.arange(len(workload)), [len(pages) for pages in hashes])
    _, first, which = np.unique(np.concatenate(hashes), return_index=True, return_inverse=True)
    return int((owners[first][which] < owners).sum()) * PAGE_LEN


@pytest.mark.parametrize(
    ("name", "num_requests", "num_prompt_tokens", "num_hit_tokens"),
    [
        ("conversation", 12_031, 144_793_823, 54_097_552),
        ("synthetic", 3_993, 61_194_628, 39_850_976),
    ],
)
def test_prefix_hits_are_those_of_the_trace(
    traces: Path, name: str, num_requests: int, num_prompt_tokens: int, num_hit_tokens: int
) -> None:
    """The tokens made from hash ids share exactly the prefixes that the trace's ids share."""
    workload = read_mooncake(traces / "mooncake" / f"{name}.jsonl.gz")
    assert len(workload) == num_requests
    assert workload.num_prompt_tokens == num_prompt_tokens
    assert count_hit_tokens(workload) == num_hit_tokens
