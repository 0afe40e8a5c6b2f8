"""Gives an engine and its model the same commands, and holds the two together."""

from collections import Counter
from typing import ClassVar

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize
from model import Batch, EngineModel, Group

from kvlife import CacheGroup, KvEngine, PoolConfig
from kvlife.errors import CommandRefused
from kvlife.ledger import Ledger, PageState

RIDS = tuple(f"r{n}" for n in range(7))
SESSIONS = ("s0", "s1")
PINS = ("p0", "p1", "p2")
NAMESPACES = ("", "", "", "salt")
# Numbers that rules turn into choices; small ones shrink to the first of what there is.
PICK = st.integers(0, 4095)


def rare(pick, num):
    """One choice in `num`; never the smallest, so that shrinking leads to what is usual."""
    return pick % num == num - 1


class Recorder:
    """A log in memory: the calls that an engine makes to a log, kept as they come."""

    wants_snapshot = False
    log_bytes = num_gaps = 0

    def __init__(self):
        self.recorded = []
        self.digest = None

    def start(self, header):
        self.header = header

    def append(self, first_seq, step, time_ns, events):
        assert first_seq == len(self.recorded)
        self.recorded += [(step, time_ns, event) for event in events]

    def close(self, digest):
        self.digest = digest


class Look:
    """Shows the model which pages an engine chose."""

    def __init__(self, ledger):
        self.ledger = ledger

    def page(self, row, g, k):
        return int(self.ledger.tables[g][row * self.ledger.layout.groups[g].table_width + k])

    def victims(self, model):
        return [
            {
                key
                for key, page in published.items()
                if self.space(g).state[page] != PageState.CACHED
            }
            for g, published in enumerate(model.published)
        ]

    def space(self, g):
        return self.ledger.spaces[self.ledger.layout.groups[g].space_idx]


def make_groups(page_size, num_groups, variant):
    """One group or two; the kind, the window, the smaller page size and shared spaces vary."""
    window = (2, page_size, page_size + 1, 2 * page_size, 3 * page_size - 1)[variant % 5]
    window = max(2, window)
    kind = variant // 5
    if num_groups == 1:
        return (CacheGroup("full"),) if kind % 4 else (CacheGroup("swa", window=window),)
    small = page_size if kind % 3 else max(1, page_size // 2)
    space = "one" if kind % 5 == 1 else None
    first = CacheGroup("full", space=space)
    if kind % 7 == 2:
        first = CacheGroup("wide", window=window + page_size, space=space)
    return first, CacheGroup("swa", window=window, page_size=small, space=space)


class EngineDriver(RuleBasedStateMachine):
    """Gives commands to both; `num_commands` and `tally` count them over all runs of a class."""

    page_size = 1
    num_groups = 1
    num_commands = 0
    # (command, "done" or the error) -> how often.
    tally: ClassVar = Counter()

    @initialize(variant=PICK, num_pages=st.integers(8, 30), fifo=st.booleans(), policy=PICK)
    def begin(self, variant, num_pages, fifo, policy):
        size = self.page_size
        groups = make_groups(size, self.num_groups, variant)
        config = PoolConfig(
            page_size=size,
            num_pages=num_pages,
            max_requests=4,
            max_context_len=7 * size + size // 2,
            groups=groups,
            free_order="fifo" if fifo else "lifo",
            host_pages=(0, 3, 9, 60)[policy // 4 % 4],
        )
        self.log, self.time_ns = Recorder(), 0
        self.engine = KvEngine(
            config,
            log=self.log,
            clock=self.tick,
            key_seed=7,
            policy=("lru", "lfu", "fifo", "slru")[policy % 4],
        )
        layout = self.engine.ledger.layout
        self.model = EngineModel(
            [
                Group(g.name, g.page_size, g.window, layout.spaces[g.space_idx].name)
                for g in layout.groups
            ],
            {space.name: space.num_pages for space in layout.spaces},
            num_rows=5,
            capacity=config.max_context_len,
            host_pages=config.host_pages,
        )
        self.model.look = Look(self.engine.ledger)
        self.grain = min(group.size for group in self.model.groups)
        self.contents, self.batches, self.config = {}, [], config
        self.digest = self.engine.ledger.digest()

    def tick(self):
        self.time_ns += 1
        return self.time_ns

    # -- choosing --------------------------------------------------------------------------

    def tokens(self, content, length):
        """Tokens of a content, which names by its bits what stands in each third page."""
        at = np.arange(length, dtype=np.int32)
        return (content >> (at // self.grain % 3) & 1) * 1000 + at % self.grain

    def own_tokens(self, rid, length):
        return self.tokens(self.contents.get(rid, 0), length)

    def some(self, names, live, pick):
        """A live name fifteen times out of sixteen, if there is one; else any."""
        live = [name for name in names if name in live]
        if live and not rare(pick, 16):
            return live[pick // 16 % len(live)]
        return names[pick // 16 % len(names)]

    def some_rids(self, pick):
        live = list(self.model.requests)
        if not live or rare(pick, 32):
            return [RIDS[pick // 32 % 7], RIDS[pick // 224 % 7]][: pick // 1568 + 1]
        num = min(len(live), 1 + pick // 32 % 3)
        first = pick // 96 % len(live)
        return (live + live)[first : first + num]

    def length(self, low, high, pick):
        """A length in [low, high], its ends and page borders more often; at times one outside."""
        kind, rest = pick % 16, pick // 16
        if kind == 15:
            return (low - 1, high + 1, -1, low)[rest % 4]
        if kind < 3 or high <= low:
            return (low, high)[rest % 2]
        if kind < 9:
            return min(high, (low // self.page_size + 1 + rest % 3) * self.page_size)
        return low + rest % (high - low + 1)

    # -- running ---------------------------------------------------------------------------

    def run(self, name, *args, **options):
        """Give one command to both; a refusal leaves all as it was, a success fits the model."""
        type(self).num_commands += 1
        self.run_posted()
        self.model.spared = {}
        command = getattr(self.model, name)(*args, **options)
        errors = next(command)
        before = (self.digest, self.engine.next_seq, len(self.log.recorded))
        native = [arg.engine_batch if isinstance(arg, Batch) else arg for arg in args]
        refusal, got = None, None
        try:
            got = getattr(self.engine, name)(*native, **options)
        except CommandRefused as error:
            refusal = error
        self.tally[name, "done" if refusal is None else type(refusal).__name__] += 1
        if refusal is not None:
            self.check_refusal(name, args, refusal, errors, before)
            return None
        assert not errors, f"{name}{args} {options} went through, the model says {errors}"
        if name == "retract_with_backup" and got.backup is not None:
            self.tally["backup", "done"] += 1
        if name == "resume" and got.restored_len > got.prefix_len:
            self.tally["restore", "done"] += 1
        try:
            command.send(got)
        except StopIteration:
            self.compare()
        return got

    def run_posted(self):
        """Posted unpins happen before the next command, and are no part of it."""
        if self.model.posted:
            self.engine.batch([next(iter(self.model.requests))]) if self.model.requests else (
                self.engine.match(self.tokens(0, 1))
            )
            self.model.end_posted()
            self.compare()

    def check_refusal(self, name, args, refusal, errors, before):
        """The refusal is one of those that the model expects, and nothing has changed."""
        kinds = {cls.__name__ for cls in type(refusal).__mro__}
        assert kinds & set(errors), f"{name}{args}: refused by {refusal!r}, not by one of {errors}"
        after = (self.engine.ledger.digest(), self.engine.next_seq, len(self.log.recorded))
        assert after == before, f"{name} was refused, and something changed"
        if type(refusal).__name__ == "OutOfPages":
            space = next(g.space for g in self.model.groups if g.name == refusal.group)
            mine = self.model.groups_of(space)
            assert refusal.free == len(self.model.free(space))
            assert refusal.evictable == sum(len(self.model.evictable(g)) for g in mine)
            held = sum(len(row.tables[g]) for row in self.model.rows.values() for g in mine)
            held += self.model.states(space).count("QUARANTINED")
            assert sum(refusal.held.values()) == held

    def compare(self):
        """The engine's whole state is the model's, and an audit finds nothing."""
        ledger, model = self.engine.ledger, self.model
        assert ledger.requests == {rid: row.number for rid, row in model.requests.items()}
        assert list(ledger.waiting) == list(model.waiting)
        self.compare_host()
        assert list(ledger.pins) == list(model.pins)
        assert list(ledger.steps) == list(model.steps)
        assert {sid: (s.row, s.num_turns) for sid, s in ledger.sessions.items()} == {
            sid: (s.row.number, s.num_turns) for sid, s in model.sessions.items()
        }
        for number in range(1, model.num_rows):
            row = model.rows.get(number)
            if row is None:
                assert ledger.rows.state[number] == 0
            else:
                self.compare_row(row)
        for layout, space in zip(ledger.layout.spaces, ledger.spaces, strict=True):
            name = layout.name
            assert [PageState(state).name for state in space.state.tolist()] == model.states(name)
            refs, pins = model.refs(name), model.num_pins(name)
            assert {p: n for p, n in enumerate(space.refs.tolist()) if n} == refs
            assert {p: n for p, n in enumerate(space.pins.tolist()) if n} == pins
            assert set(space.free.pages().tolist()) == model.free(name)
        for g, published in enumerate(model.published):
            assert self.engine.index.pages(g).tolist() == sorted(published.values())
        assert self.engine.audit() == []
        self.digest = ledger.digest()

    def compare_host(self):
        """Host pages are those of the backups, and each is noted with the entry that it holds."""
        ledger, host = self.engine.ledger, self.engine.ledger.host
        states = [] if host is None else [PageState(state).name for state in host.state.tolist()]
        assert states == self.model.host_states()
        for rid, waits in self.model.waiting.items():
            backup = ledger.waiting[rid].backup
            assert (None if backup is None else backup.tolist()) == (
                list(waits.backup.values()) or None
            )
            for (g, k), page in waits.backup.items():
                assert (host.group[page], host.link[page], host.refs[page]) == (g, k, 1)
        if host is not None:
            free = {page for page, name in enumerate(states) if name == "FREE"}
            assert set(host.free.pages().tolist()) == free

    def compare_row(self, row):
        ledger = self.engine.ledger
        draining = row.rid is None and row.session is None
        assert ledger.rows.state[row.number] == (2 if draining else 1)
        record = ledger.row_record(row.number)
        settled = row.allocated if row.settled is None else min(row.settled, row.allocated)
        assert (
            record.cache_protected_len,
            record.kv_committed_len,
            record.kv_allocated_len,
            record.settled_len,
            record.swa_evict_floor,
            record.swa_evicted_seqlens,
        ) == (
            row.protected,
            row.committed,
            row.allocated,
            settled,
            row.floor,
            tuple(row.cursors.values()),
        )
        if not draining:
            assert record.prompt_len == row.prompt_len
        for g in range(len(self.model.groups)):
            pages = ledger.pages_of(row.number, g).tolist()
            assert {k: page for k, page in enumerate(pages) if page} == row.tables[g]

    def teardown(self):
        """What was recorded folds to the same state, and so does a snapshot of it."""
        if not hasattr(self, "engine") or self.engine.closed:
            return
        self.run_posted()
        self.engine.close()
        assert self.log.digest == self.engine.ledger.digest()
        again = Ledger(self.config)
        for seq, (_, time_ns, event) in enumerate(self.log.recorded):
            again.apply(event, seq, time_ns)
        assert again.digest() == self.log.digest
        frozen = self.engine.ledger.snapshot().freeze()
        assert Ledger.restore(self.config, frozen).digest() == self.log.digest
