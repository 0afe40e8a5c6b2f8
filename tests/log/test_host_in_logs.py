"""The host's page space in a log: header, events, snapshots, and what a forged one says."""

import json

import attrs
import msgspec
import pytest

from kvlife import CacheGroup, KvEngine, LogWriter, PoolConfig, open_run
from kvlife.errors import LogCorrupt
from kvlife.ledger import FrozenState, Ledger, state_digest
from kvlife.log.header import RunHeader, decode_header, encode_header

CONFIG = PoolConfig(
    page_size=4,
    num_pages=40,
    max_requests=4,
    max_context_len=40,
    groups=(CacheGroup("full"), CacheGroup("swa", window=6, page_size=2)),
    host_pages=20,
)


@pytest.fixture
def run(tmp_path):
    """r1 waits with a backup, r2 came back from one, r3 was aborted while it waited."""
    with KvEngine(CONFIG, log=LogWriter(tmp_path), key_seed=1, clock=lambda: 0) as engine:
        for rid in ("r1", "r2", "r3"):
            engine.admit(rid, list(range(10)))
            engine.allocate([rid], [10])
            engine.commit([rid])
            engine.retract_with_backup(rid)
            if rid == "r2":
                engine.resume(rid, list(range(11)))
        engine.abort("r3")
        digest = engine.ledger.digest()
    return open_run(tmp_path), digest


@pytest.fixture
def ledger(run):
    """What the log's events fold to."""
    folded = Ledger(run[0].header.config)
    for item in run[0].events():
        folded.apply(item.event, item.seq, item.time_ns)
    return folded


def test_the_header_has_host_pages_only_where_there_are_some():
    """A run without a host space writes the header that it always wrote, and old ones read as 0."""
    without = RunHeader(config=attrs.evolve(CONFIG, host_pages=0))
    fields = json.loads(encode_header(without))
    assert "host_pages" not in fields["config"]
    assert decode_header(encode_header(without), "here") == without
    with_some = RunHeader(config=CONFIG)
    assert json.loads(encode_header(with_some))["config"]["host_pages"] == 20
    assert decode_header(encode_header(with_some), "here").config.host_pages == 20


def test_a_header_with_one_host_page_is_refused():
    """Page 0 is reserved, so that one page is none."""
    fields = json.loads(encode_header(RunHeader(config=CONFIG)))
    fields["config"]["host_pages"] = 1
    with pytest.raises(LogCorrupt, match="host_pages is 1"):
        decode_header(json.dumps(fields).encode(), "here")


def test_the_events_fold_to_the_same_host(run, ledger):
    """3 pages of the full group and 5 of the window's are kept for r1, and nothing else."""
    assert ledger.digest() == run[1]
    assert ledger.host.state.tolist().count(1) == 8
    frozen = ledger.snapshot().freeze()
    again = Ledger.restore(CONFIG, frozen)
    assert again.digest() == ledger.digest()
    assert again.host.link.tolist()[1:9] == ledger.host.link.tolist()[1:9]


def test_a_state_without_a_host_has_no_columns_of_it():
    """So the digests of logs that were written before are what they were."""
    frozen = Ledger(attrs.evolve(CONFIG, host_pages=0)).snapshot().freeze()
    assert not [name for name in frozen.arrays if "host" in name]


def _backup_beyond(_arrays, books):
    books["waiting"][0][4][0] = 20


def _page_twice(arrays, _books):
    arrays["free.host"] = arrays["free.host"].copy()
    arrays["free.host"][0] = arrays["page.host.idx"][0]


def _no_column(arrays, _books):
    del arrays["page.host.refs"]


def _other_group(arrays, _books):
    arrays["page.host.group"] = arrays["page.host.group"] + 9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_backup_beyond, "a host page is 20, out of"),
        (_page_twice, "pages of space host stands twice"),
        (_no_column, "no column 'page.host.refs'"),
        (_other_group, "the group of a page"),
    ],
)
def test_a_forged_host_is_refused(ledger, change, said):
    """A state that no run can be in is no state to start from, and the error says why."""
    state = ledger.snapshot().freeze()
    arrays, books = dict(state.arrays), msgspec.msgpack.decode(state.meta)
    change(arrays, books)
    meta = msgspec.msgpack.encode(books)
    with pytest.raises(LogCorrupt, match=said):
        Ledger.restore(CONFIG, FrozenState(arrays, meta, state_digest(arrays, meta)))
