"""Device pools on a CPU: decode steps against a loop over objects, `store_kv` against a copy."""

import sys
import tempfile

import torch
from bench_decode import measure
from measure import ratio, report

from kvlife import Checker, LogWriter
from kvlife.pools import DevicePools
from kvlife.pools.buffers import KvBuffers
from kvlife.pools.layouts import MultiHead

PAGE_SIZE = 16
NUM_PAGES = 513
HEADS, WIDTH = 8, 128
TOKENS = 1024


def store_bar():
    """bf16, one layer of 8 heads of 128, 1,024 tokens on shuffled pages."""
    torch.manual_seed(0)
    layout = MultiHead(num_layers=1, num_kv_heads=HEADS, k_dim=WIDTH)
    buffers = KvBuffers(layout, PAGE_SIZE, NUM_PAGES)
    pages = 1 + torch.randperm(NUM_PAGES - 1)[: TOKENS // PAGE_SIZE]
    slots = (pages[:, None] * PAGE_SIZE + torch.arange(PAGE_SIZE)).flatten()
    k = torch.randn(TOKENS, HEADS, WIDTH).bfloat16()
    v = torch.randn(TOKENS, HEADS, WIDTH).bfloat16()
    plain = [torch.ones(NUM_PAGES * PAGE_SIZE, HEADS, WIDTH, dtype=torch.bfloat16) for _ in "kv"]
    buffers.arena.fill_(1)

    def store():
        buffers.store(0, k, v, slots)

    def copy():
        plain[0].index_copy_(0, slots, k)
        plain[1].index_copy_(0, slots, v)

    store()
    copy()
    measured = ratio(store, copy, pairs=15, repeat=50)
    return report("store_kv bf16, 1,024 tokens / index_copy_ of both", measured, 0.4)


def decode_bar():
    """A decode step of 1,024 with pools, all checks and the log, as in bench_decode without."""
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(1024, LogWriter(folder), Checker(), DevicePools())
    return report("decode + commit, N=1024, CPU pools, all checks on, log on", measured, 0.8)


def main():
    """Print the table; exit 1 if a bar is not met."""
    met = [store_bar(), decode_bar()]
    return 0 if all(met) else 1


if __name__ == "__main__":
    # One thread: with several, torch's time for a copy this small is mostly waiting for them.
    torch.set_num_threads(1)
    sys.exit(main())
