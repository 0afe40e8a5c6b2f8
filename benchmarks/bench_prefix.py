"""The prefix index against its bars: match times, memory, and what eviction and keys cost.

Run `python benchmarks/bench_prefix.py`. Matches are ratios to one `numpy.array_equal` over the
prompt; memory is that of an index of 100,000 nodes over 1,000,000 pages of 16 tokens.
"""

import hashlib
import subprocess
import sys
import tracemalloc
from pathlib import Path
from time import perf_counter

import numpy as np
from measure import ratio, report

from kvlife.prefix import IndexLayout, PageKeys, PrefixIndex
from kvlife.prefix import index as index_module

PROMPT_LEN = 100_000
NUM_NODES = 100_000
UNITS_PER_NODE = 10
PAGE_SIZE = 16
MB = 1_000_000


def none_locked(group, pages):
    """Say that every page may go."""
    return np.zeros(len(pages), np.bool_)


def chain(page_size, num_nodes):
    """Make an index that holds one prompt in so many nodes; return it with the prompt."""
    units = PROMPT_LEN // page_size
    tokens = np.random.default_rng(1).integers(0, 150_000, units * page_size, dtype=np.int32)
    index = PrefixIndex(IndexLayout((page_size,), (None,)))
    limits = index_module.MAX_COPY_BYTES, index_module.MAX_COPY_RATIO
    # Without this a node would be extended in place rather than followed by another.
    index_module.MAX_COPY_BYTES, index_module.MAX_COPY_RATIO = -1, 0
    position = None
    for i in range(1, num_nodes + 1):
        extent = index.extent(
            tokens, b"", start=position, upto_len=units * i // num_nodes * page_size
        )
        first = extent.start_len // page_size
        pages = np.arange(first + 1, units * i // num_nodes + 1, dtype=np.int32)
        position = index.insert(extent, tokens, [pages], i)
    index_module.MAX_COPY_BYTES, index_module.MAX_COPY_RATIO = limits
    assert index.num_nodes == num_nodes
    return index, tokens


def match_ratio(page_size, num_nodes, pairs=15):
    """Time of a whole match over that of one `numpy.array_equal`: median and quartiles."""
    index, tokens = chain(page_size, num_nodes)
    asked = tokens.copy()
    assert index.match(asked, b"").matched_len == len(tokens)
    # Both sides must run about as long: on a busy machine the longer one alone is interrupted.
    rounds = 20 if num_nodes > 1 else 1

    def compare():
        for _ in range(rounds):
            # Distinct arrays, so that the baseline reads as much memory as a match does.
            np.array_equal(tokens, asked)

    measured = ratio(lambda: index.match(asked, b""), compare, pairs=pairs, repeat=40)
    return tuple(figure * rounds for figure in measured)


def fill():
    """Make the index of the memory bar: prompts of one node each."""
    index = PrefixIndex(IndexLayout((PAGE_SIZE,), (None,)))
    rng = np.random.default_rng(2)
    for i in range(NUM_NODES):
        tokens = rng.integers(0, 150_000, UNITS_PER_NODE * PAGE_SIZE, dtype=np.int32)
        first = i * UNITS_PER_NODE + 1
        pages = np.arange(first, first + UNITS_PER_NODE, dtype=np.int32)
        index.insert(index.extent(tokens, b""), tokens, [pages], i)
    assert index.num_nodes == NUM_NODES
    assert index.num_pages == (NUM_NODES * UNITS_PER_NODE,)
    return index


def traced_bytes():
    """Bytes that the index of the memory bar holds, as `tracemalloc` counts them."""
    tracemalloc.start()
    index = fill()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del index
    return held


def resident_bytes():
    """Growth of the resident memory of a fresh process that makes that index (Linux)."""
    found = subprocess.run(
        [sys.executable, __file__, "--resident"], check=True, capture_output=True, text=True
    )
    return int(found.stdout)


def print_resident_growth():
    """Print how much resident memory making the index took."""
    warm, _ = chain(PAGE_SIZE, 1)
    before = _resident()
    index = fill()
    print(_resident() - before)
    del index, warm


def _resident():
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


def eviction_seconds(index, num_pages):
    """Median seconds to choose and remove so many pages from the tails of leaves."""
    times = []
    for _ in range(200):
        begun = perf_counter()
        index.remove(index.victims([num_pages], none_locked))
        times.append(perf_counter() - begun)
    return sorted(times)[len(times) // 2]


def keys_ratio(pairs=15):
    """Page keys of a prompt of 13,733 tokens over chained sha256 of its pages."""
    tokens = np.random.default_rng(3).integers(0, 150_000, 13_733, dtype=np.int32)
    namer = PageKeys(7, PAGE_SIZE)
    start = namer.initial(b"")
    step = PAGE_SIZE * 4

    def chained():
        body, digest = tokens.tobytes(), b""
        for first in range(0, len(body) - step + 1, step):
            digest = hashlib.sha256(digest + body[first : first + step]).digest()

    return ratio(lambda: namer.extend(tokens, start), chained, pairs=pairs, repeat=20)


def main():
    """Print every figure; exit with 1 where a bar is not met."""
    met = []
    for num_nodes, bar in ((1, 3), (200, 30)):
        for page_size in (1, 16, 256):
            name = f"match of 100,000 tokens, {num_nodes} nodes, page size {page_size}"
            met.append(report(f"{name} / array_equal", match_ratio(page_size, num_nodes), bar))
    for name, held in (("traced", traced_bytes()), ("resident", resident_bytes())):
        met.append(held <= 80 * MB)
        print(f"index of 100,000 nodes, 1,000,000 pages: {held / MB:.1f} MB {name}, at most 80")
    report("page keys / chained sha256 (13,733 tokens)", keys_ratio(), 0.5)
    index = fill()
    for num_pages in (16, 64, 256):
        spent = eviction_seconds(index, num_pages)
        print(f"evicting {num_pages} pages, 100,000 nodes: {spent * 1e6:.0f} us")
    sys.exit(0 if all(met) else 1)


if __name__ == "__main__":
    if "--resident" in sys.argv:
        print_resident_growth()
    else:
        main()
