"""Logs of well-formed events drawn at random: named violations, never a crash."""

import attrs
import numpy as np
import pytest
import recorded_runs as made

from kvlife import CacheGroup, Checker, LogWriter, Observer, PoolConfig
from kvlife.events import (
    EVENT_TYPES,
    FIELDS,
    Admitted,
    Allocated,
    Committed,
    FieldKind,
    Protected,
    Released,
    Violated,
)
from kvlife.log import RunHeader, open_run
from kvlife.replay.history.chain import explain
from kvlife.replay.replaying import session
from kvlife.replay.replaying.session import Settings, replay_run
from kvlife.simulation import SteadyLog

CONFIG = PoolConfig(
    page_size=4,
    num_pages=12,
    max_requests=4,
    max_context_len=32,
    groups=(CacheGroup("full"), CacheGroup("swa", window=8, page_size=2)),
)
TYPES = [kind for kind in EVENT_TYPES if kind is not Violated]


class Draw:
    """Draws events field by field, with ids and lengths that are likely to meet."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def event(self):
        kind = TYPES[self.rng.integers(len(TYPES))]
        self.kind = kind
        self.drawn = {}
        for field in FIELDS[kind]:
            self.drawn[field.name] = self.field(field)
        return kind(**self.drawn)

    def number(self, high, low=0):
        return int(self.rng.integers(low, high))

    def array(self, num, high, low=0):
        return made.ints(*self.rng.integers(low, high, num))

    def name(self, letter):
        return f"{letter}{self.number(4)}"

    def pages(self):
        return self.array(self.number(4), 12)

    def field(self, field):
        return DRAWS[field.kind](self, field)

    def count(self, field):
        # Pools that shrink make most of what follows ill-formed, so they only grow.
        return self.number(16, 12) if field.name == "num_pages" else self.number(4)

    def or_none(self, value):
        return None if self.number(3) == 0 else value

    def lengths(self, high=40):
        return self.array(len(self.drawn["rows"]), high, -4)

    def keys(self):
        return self.rng.integers(0, 5, self.number(5)).astype(np.uint64)

    def digests(self):
        return self.rng.integers(0, 1 << 63, len(self.drawn["pages"])).astype(np.uint64)

    def links(self):
        num = self.number(3)
        second = 8 if self.kind is Protected else 5
        links = np.stack(
            [self.array(num, high) for high in (2, second, 12, 12)], axis=1, dtype=np.int32
        )
        links.setflags(write=False)
        return links


DRAWS = {
    FieldKind.TEXT: lambda draw, field: draw.name(field.name[0]),
    FieldKind.MAYBE_TEXT: lambda draw, _field: draw.or_none(draw.name("r")),
    FieldKind.REASON: lambda draw, _field: draw.kind.REASONS[draw.number(len(draw.kind.REASONS))],
    FieldKind.FLAG: lambda draw, _field: draw.number(2) == 1,
    FieldKind.COUNT: Draw.count,
    FieldKind.U64: lambda draw, _field: draw.number(3),
    FieldKind.LENGTH: lambda draw, _field: draw.number(40, -4),
    FieldKind.ROW: lambda draw, _field: draw.number(5),
    FieldKind.MAYBE_ROW: lambda draw, _field: draw.or_none(draw.number(5)),
    FieldKind.GROUP: lambda draw, _field: draw.number(2),
    FieldKind.SPACE: lambda draw, _field: draw.number(2),
    FieldKind.ROWS: lambda draw, _field: made.ints(*draw.rng.permutation(5)[: draw.number(5)]),
    FieldKind.LENGTHS: lambda draw, _field: draw.lengths(),
    FieldKind.PAGES: lambda draw, _field: (draw.pages(), draw.pages()),
    FieldKind.GROUP_PAGES: lambda draw, _field: draw.pages(),
    FieldKind.DIGESTS: lambda draw, _field: draw.digests(),
    FieldKind.HOST_PAGES: lambda draw, _field: draw.pages(),
    FieldKind.MAYBE_HOST_PAGES: lambda draw, _field: draw.or_none(draw.pages()),
    FieldKind.KEYS: lambda draw, _field: (draw.keys(), draw.keys()),
    FieldKind.CURSORS: lambda draw, _field: (draw.number(20, -2),),
    FieldKind.CURSOR_ARRAYS: lambda draw, _field: draw.or_none((draw.lengths(20),)),
    FieldKind.LINKS: lambda draw, _field: draw.links(),
}


@pytest.mark.soak
@pytest.mark.parametrize("number", range(10))
def test_random_facts_are_told_as_violations(tmp_path, seed, number):
    """Nearly every random event is wrong: whatever they do together, the replay says so."""
    draw = Draw([seed, number])
    writer = LogWriter(tmp_path, snapshot_every_bytes=1 << 20)
    writer.start(RunHeader(config=CONFIG))
    for seq in range(300):
        writer.append(seq, seq // 10, 0, [draw.event()])
    writer.close()
    run = open_run(tmp_path)
    for settings in (Settings(collect=True), Settings(collect=True, level="step")):
        outcome = replay_run(run, settings)
        assert outcome.found
        assert (outcome.next_seq, outcome.lost) == (300, "")
        assert explain(run, outcome.found[0]).links[-1].seq == outcome.found[0].seq


@pytest.mark.soak
@pytest.mark.parametrize("number", range(4))
def test_a_broken_run_is_told_the_same_in_parts(tmp_path, monkeypatch, seed, number):
    """Behind a fault a snapshot is not the whole state: parts must not be replayed from it.

    The last events of rows and pages that are not in use are known from a part's start on only.
    """
    draw = Draw([seed, number])
    log = SteadyLog(tmp_path, snapshot_every_bytes=200, clock_ns=lambda: 0)
    observer = Observer(CONFIG, log=log, checker=Checker(policy="collect"), clock=lambda: 0)
    for part in range(20):
        observer.observe(*sound_life(part))
    for _ in range(150):
        observer.observe(draw.event())
    observer.close()
    run = open_run(tmp_path)
    assert len(run.snapshots) > 1
    monkeypatch.setattr(session, "_in_processes", one_after_another)
    alone = replay_run(run, Settings())
    together = replay_run(run, Settings(jobs=2))
    assert together.jobs == 2
    assert alone.digest_ok is True
    assert alone.digest == observer.ledger.digest()
    assert [known_of(item) for item in together.found] == [known_of(item) for item in alone.found]
    assert attrs.evolve(together, jobs=1, found=()) == attrs.evolve(alone, found=())


def sound_life(number):
    """A request with two pages of the full group and four of the window's."""
    rid, pages = f"sound-{number}", (made.ints(1, 2), made.ints(1, 2, 3, 4))
    nothing = (made.ints(), made.ints())
    return [
        Admitted(rid, 1, 0, 8, 0, 0, (0,), nothing),
        Allocated(made.ints(1), made.ints(8), pages),
        Committed(made.ints(1), made.ints(8)),
        Released(rid, 1, "finished", pages, made.ints()),
    ]


def one_after_another(run, settings, parts, _jobs, _advance):
    """The parts in this process, as other processes would replay them."""
    yield from (session.follow_part(str(run.path), settings, part) for part in parts)


def known_of(found):
    """A finding without what a snapshot cannot know."""
    evidence = {name: value for name, value in found.evidence.items() if name != "last_events"}
    return (found.id, found.seq, found.event, found.applied, found.after_first, evidence)
