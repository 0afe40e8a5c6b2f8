"""Small engines with host pages, whose log is kept, for the tests of backups."""

from kvlife import KvEngine, PoolConfig
from kvlife.ledger import Ledger

TOKENS = list(range(100, 140))


class Tape:
    """A log in memory."""

    wants_snapshot = False
    log_bytes = num_gaps = 0

    def __init__(self):
        self.events, self.groups = [], []

    def start(self, header):
        self.header = header

    def append(self, _first, _step, _now, events):
        self.events += events
        self.groups.append([type(event).__name__ for event in events])

    def close(self, digest):
        self.digest = digest


def pools(**more):
    sizes = {"page_size": 4, "num_pages": 12, "max_requests": 4, "max_context_len": 40}
    return PoolConfig(**{**sizes, "host_pages": 9, **more})


def engine_of(config=None, **more):
    made = config or pools()
    return KvEngine(made, log=Tape(), key_seed=1, clock=lambda: 0, **more)


def run(engine, rid, tokens, committed=None):
    """Admit, allocate all tokens, commit some of them."""
    got = engine.admit(rid, tokens)
    engine.allocate([rid], [len(tokens)])
    engine.commit([rid], [len(tokens) if committed is None else committed])
    return got


def host_states(engine):
    return engine.ledger.host.state.tolist()


def table(engine, rid, group=0):
    return engine.ledger.pages_of(engine.ledger.requests[rid], group).tolist()


def refold(engine, config):
    """The state that the log folds to, and that a snapshot gives back, is the engine's."""
    again = Ledger(config)
    for seq, event in enumerate(engine.log.events):
        again.apply(event, seq)
    assert again.digest() == engine.ledger.digest()
    frozen = engine.ledger.snapshot().freeze()
    assert Ledger.restore(config, frozen).digest() == engine.ledger.digest()
    assert engine.audit() == []
