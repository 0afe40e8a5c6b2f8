"""What the tests of content checks share: an engine over pools, and a toy model that writes KV.

The model's KV depends on who writes it and where, so that equal tokens need not have equal KV: what
a page holds is what its first writer put there.
"""

import zlib

import numpy as np
import torch

from kvlife import (
    CacheGroup,
    Checker,
    CommandRefused,
    KvEngine,
    LogWriter,
    Observer,
    PoolConfig,
)
from kvlife.invariants.effect import holder_of
from kvlife.kernels.digest_pages import digest_pages
from kvlife.pools import DevicePools
from kvlife.pools.layouts import MultiHead

# NaN in every dtype of a KV layout, and as a scale of any.
POISON = 0xFF
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


class Tape:
    """A log in memory."""

    wants_snapshot = False
    log_bytes = num_gaps = 0

    def __init__(self):
        self.events = []

    def start(self, header):
        self.header = header

    def append(self, _first, _step, _now, events):
        self.events += events

    def close(self, digest):
        self.digest = digest


def observer(pools, config, **more):
    """Facts over pools; only what is found of contents ends the run."""
    policies = {"content-unchanged": "raise"}
    checker = Checker(policy="collect", policies=policies)
    return Observer(config, pools=pools, checker=checker, clock=lambda: 0, **more)


def events_of(run):
    """Record what a run's engine writes from now on."""
    tape = Tape()
    run.engine._log = tape
    return tape.events


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


def found_once(run, seq, page, group="full"):
    """The one finding of a run: at this event, about this page."""
    assert [(each.id, each.seq) for each in run.found] == [("content-unchanged", seq)]
    evidence = run.found[0].evidence
    assert evidence["pages"] == [page]
    assert evidence["group"] == group
    return evidence


class RandomLife:
    """A small engine under pressure, with everything that moves pages or their content."""

    def __init__(self, run, seed):
        self.run = run
        self.rng = np.random.default_rng(seed)
        self.running = {}
        self.waiting = {}
        self.sessions = {}
        self.number = 0
        self.steps = []

    def live(self, num_acts):
        acts = (
            self.come, self.come, self.decode, self.decode, self.decode, self.roll_back,
            self.finish, self.retract, self.resume, self.save, self.restore, self.close,
            self.fly, self.settle, self.shrink_cache,
        )  # fmt: skip
        for _ in range(num_acts):
            try:
                acts[self.rng.integers(len(acts))]()
            except CommandRefused:
                self.relieve()

    def relieve(self):
        """Whoever is oldest goes, so that life goes on."""
        self.settle()
        for rid in list(self.running)[:1]:
            self.running.pop(rid)
            self.run.engine.abort(rid)

    def tokens(self):
        return self.rng.integers(0, 2, self.rng.integers(1, 30)).astype(np.int32)

    def any_of(self, names):
        names = list(names)
        return names[self.rng.integers(len(names))] if names else None

    def come(self):
        self.number += 1
        rid, tokens = f"r{self.number}", self.tokens()
        self.run.engine.admit(rid, tokens)
        self.running[rid] = tokens
        self.run.compute([rid], [len(tokens)])
        if self.rng.random() < 0.5:
            self.run.engine.protect(rid, tokens)

    def decode(self):
        """One token for each; their rows may be in flight, and then commit what has settled."""
        rids = [rid for rid in self.running if self.full(rid) < 60]
        if rids and not self.steps:
            lens = [self.full(rid) + 1 for rid in rids]
            self.run.compute(rids, lens)
            for rid, length in zip(rids, lens, strict=True):
                missing = max(length - len(self.running[rid]), 0)
                more = self.rng.integers(0, 2, missing).astype(np.int32)
                self.running[rid] = np.concatenate((self.running[rid], more))
            self.run.engine.evict_window(rids)

    def full(self, rid):
        return self.run.engine.record(rid).kv_allocated_len

    def roll_back(self):
        rid = self.any_of(self.running)
        if rid is not None and not self.steps:
            record = self.run.engine.record(rid)
            low = record.cache_protected_len
            length = int(self.rng.integers(low, record.kv_committed_len + 1))
            self.run.engine.roll_back([rid], [length])
            self.running[rid] = self.running[rid][:length]

    def finish(self):
        rid = self.any_of(self.running)
        if rid is not None:
            record, tokens = self.run.engine.record(rid), self.running.pop(rid)
            if record.kv_committed_len >= record.prompt_len and self.rng.random() < 0.7:
                self.run.engine.finish(rid, tokens)
            else:
                self.run.engine.abort(rid)

    def retract(self):
        rid = self.any_of(self.running)
        if rid is not None:
            self.waiting[rid] = self.running.pop(rid)
            if self.rng.random() < 0.7:
                self.run.engine.retract_with_backup(rid)
            else:
                self.run.engine.retract(rid)

    def resume(self):
        rid = self.any_of(self.waiting)
        if rid is not None and len(self.waiting[rid]):
            tokens = self.waiting[rid]
            self.run.engine.resume(rid, tokens)
            self.running[rid] = self.waiting.pop(rid)
            have = self.run.engine.record(rid).kv_allocated_len
            self.run.compute([rid], [max(len(tokens), have)])

    def save(self):
        rid = self.any_of(self.running)
        if rid is not None and not self.steps:
            session_id = f"s{rid}"
            kept = self.run.engine.record(rid).kv_committed_len
            self.run.engine.session_save(session_id, rid, kept)
            self.sessions[session_id] = self.running.pop(rid)[:kept]

    def restore(self):
        session_id = self.any_of(self.sessions)
        if session_id is not None:
            tokens = self.sessions[session_id]
            self.number += 1
            rid = f"r{self.number}"
            wanted = int(self.rng.integers(0, len(tokens) + 1))
            turn = self.run.engine.session_restore(session_id, rid, wanted)
            more = int(self.rng.integers(0, 4))
            try:
                self.run.compute([rid], [turn.kept_len + more])
            except CommandRefused:
                more = 0
            self.run.engine.session_save(session_id, rid, turn.kept_len + more)
            kept = tokens[: turn.kept_len]
            self.sessions[session_id] = np.concatenate((kept, np.zeros(more, np.int32)))

    def close(self):
        session_id = self.any_of(self.sessions)
        if session_id is not None:
            del self.sessions[session_id]
            self.run.engine.session_close(session_id)

    def fly(self):
        if self.running and len(self.steps) < 2:
            self.number += 1
            self.run.engine.dispatch(self.number, list(self.running))
            self.steps.append(self.number)

    def settle(self):
        while self.steps:
            self.run.engine.settle(self.steps.pop(0))

    def shrink_cache(self):
        self.run.engine.evict(int(self.rng.integers(1, 4)))

    def end(self):
        """Everything goes, and the last audits see it gone."""
        self.settle()
        for rid in [*self.running, *self.waiting]:
            self.run.engine.abort(rid)
        for session_id in self.sessions:
            self.run.engine.session_close(session_id)
        self.run.engine.mark("idle", idle=True)
        self.run.engine.close()
