"""What the tests of content checks share: an engine over pools, and a toy model that writes KV.

The model's KV depends on who writes it and where, so that equal tokens need not have equal KV: what
a page holds is what its first writer put there.
"""

import zlib

import numpy as np
import torch

from kvlife import CacheGroup, Checker, KvEngine, LogWriter, PoolConfig
from kvlife.invariants.effect import holder_of
from kvlife.kernels.digest_pages import digest_pages
from kvlife.pools import DevicePools
from kvlife.pools.content import POISON
from kvlife.pools.layouts import MultiHead

LAYERS = 2
LAYOUT = MultiHead(num_layers=LAYERS, num_kv_heads=2, k_dim=4, v_dim=6, dtype="bf16")
FULL = (CacheGroup("full"),)
SLIDING = (CacheGroup("full"), CacheGroup("swa", window=8))


def config(groups=FULL, **more):
    sizes = {"page_size": 4, "num_pages": 24, "max_requests": 6, "max_context_len": 64}
    return PoolConfig(groups=groups, **(sizes | more))


def checking_pools(layout=LAYOUT, **more):
    return DevicePools(layout, content="check", **({"poison": POISON} | more))


def kv_of(holder, layer, positions, heads, width, what):
    """The toy model's KV: small whole numbers, which every dtype of these tests holds exactly."""
    salt = zlib.crc32(f"{holder} {layer} {what}".encode())
    grid = np.arange(heads * width, dtype=np.int64)
    mixed = (positions[:, None] * 7919 + grid * 104729 + salt) * 2654435761 % (1 << 32)
    return torch.from_numpy((mixed >> 27).astype(np.float32)).reshape(-1, heads, width)


def write(pools, group, slots, holders, start_lens, stop_lens):
    """Store the KV of positions [start, stop) of each holder, all layers, into a group."""
    layout = pools.buffers(group).layout
    for layer in range(layout.num_layers):
        parts = {
            what: torch.cat(
                [
                    kv_of(holder, layer, np.arange(start, stop), layout.num_kv_heads, width, what)
                    for holder, start, stop in zip(holders, start_lens, stop_lens, strict=True)
                ]
            )
            for what, width in (("k", layout.k_dim), ("v", layout.v_dim or layout.k_dim))
        }
        pools.store(layer, parts["k"], parts["v"], slots, group=group)


def write_again(writing):
    """The same writer for a replay."""
    for group in writing.pools.ledger.layout.groups:
        write(
            writing.pools, group.name, writing.slots(group.name),
            writing.holders, writing.start_lens, writing.stop_lens,
        )  # fmt: skip


class Run:
    """An engine with pools that check contents, and the model that fills them."""

    def __init__(self, groups=FULL, *, path=None, pools=None, checker=None, **more):
        self.pools = checking_pools() if pools is None else pools
        self.found = []
        log = None if path is None else LogWriter(path, snapshot_every_bytes=1 << 20)
        self.engine = KvEngine(
            config(groups, **more),
            pools=self.pools,
            log=log,
            checker=checker or Checker(policy="collect", on_violation=self.found.append),
            clock=lambda: 0,
            key_seed=1,
        )

    @property
    def ledger(self):
        return self.engine.ledger

    @property
    def last_seq(self):
        return self.engine.next_seq - 1

    def compute(self, rids, lens):
        """Allocate, store as the model does, and commit."""
        start = [self.engine.record(rid).kv_allocated_len for rid in rids]
        self.engine.allocate(rids, lens)
        holders = [holder_of(self.ledger, self.ledger.requests[rid]) for rid in rids]
        for group in self.ledger.layout.groups:
            slots = self.engine.slots(rids, start, lens, group.name)
            write(self.pools, group.name, slots, holders, start, lens)
        self.engine.commit(rids, lens)

    def admitted(self, rid, tokens):
        """A request whose prompt is computed."""
        self.engine.admit(rid, tokens)
        self.compute([rid], [len(tokens)])

    def published(self, rid, tokens):
        """A request that came, published and went."""
        self.admitted(rid, tokens)
        self.engine.finish(rid, tokens)

    def pages(self, rid, group=0):
        return self.ledger.pages_of(self.ledger.requests[rid], group).tolist()

    def flip(self, page, group="full", *, bit=3):
        """Change one bit of a page."""
        buffers = self.pools.buffers(group)
        plane = buffers.planes.planes[-1]
        last_layer = (plane.num_layers - 1) * plane.layer_stride
        buffers.arena[plane.offset + last_layer + page * plane.page_stride + 1] ^= 1 << bit

    def digest(self, page, group="full"):
        return digest_of(self.pools.buffers(group), page)


def digest_of(buffers, page):
    """The digest of a page as it is now."""
    there = torch.tensor([page], dtype=torch.int32)
    return int(digest_pages(buffers.arena, buffers.planes, there)) & 0xFFFF_FFFF_FFFF_FFFF
