"""Lives under content checks, their logs, and the replay of a log with buffers."""

import attrs
import numpy as np
import pytest
from content_runs import (
    FULL,
    LAYOUT,
    SLIDING,
    RandomLife,
    Run,
    checking_pools,
    config,
    write_again,
)

from kvlife import Checker, LogWriter, Observer
from kvlife.errors import ConfigError, LogError
from kvlife.events import Committed, Digested
from kvlife.log import open_run
from kvlife.pools import DevicePools
from kvlife.pools.layouts import MultiHead
from kvlife.replay.contents import replay_contents
from kvlife.replay.finding.state_difference import difference_of
from kvlife.replay.replaying.session import Settings, replay_run

TOKENS = list(range(100, 118))
BOTH = pytest.mark.parametrize("groups", [FULL, SLIDING], ids=["full", "sliding"])


def recorded(path, groups, seed, *, num_acts=150, pools=None, close=True):
    """A random life, every event checked, and contents too; any finding ends it."""
    checker = Checker(audit_every=50)
    run = Run(groups, path=path, checker=checker, host_pages=8, pools=pools)
    life = RandomLife(run, seed)
    life.live(num_acts)
    if close:
        life.end()
    return run


@BOTH
def test_sound_lives_are_never_accused_and_replay(tmp_path, seed, groups):
    """Shared prefixes, retraction with and without backup, sessions, windows, steps in flight."""
    recorded(tmp_path, groups, seed)
    run = open_run(tmp_path)
    digested = [item.event for item in run.events() if isinstance(item.event, Digested)]
    assert {event.group for event in digested} == set(range(len(groups)))
    outcome = replay_run(run, Settings())
    assert outcome.digest_ok
    assert not outcome.found
    contents = replay_contents(run, DevicePools(LAYOUT), write_again)
    assert contents.first is None
    assert contents.num_digests == sum(event.pages.size for event in digested)
    assert contents.next_seq == run.next_seq
    assert contents.findings == ()
    assert contents.text == f"{contents.num_digests:,} digests are those of the run"


@BOTH
def test_a_life_ends_in_the_same_state_without_digests(tmp_path, seed, groups):
    """Digests change no state: only the seqs of what follows them."""
    runs = [
        recorded(tmp_path / name, groups, seed, num_acts=120, pools=pools, close=False)
        for name, pools in (("with", checking_pools()), ("without", DevicePools(LAYOUT)))
    ]
    assert runs[0].engine.next_seq > runs[1].engine.next_seq
    assert difference_of(*(run.ledger for run in runs)).is_empty
    for run in runs:
        run.engine.close()


def complete_pages(run):
    """The pages whose digests are kept, each with its group."""
    kept = run.pools._content._kept
    return [
        (group, page) for group, known in enumerate(kept) for page in np.flatnonzero(known.there)
    ]


@BOTH
def test_a_bit_that_flips_in_a_life_is_always_found(tmp_path, seed, groups):
    """Whatever becomes of the page: at its next reading, or in the audit at the end."""
    run = Run(groups, path=tmp_path, host_pages=8)
    life = RandomLife(run, seed)
    life.live(150)
    chosen = complete_pages(run)
    while not chosen:
        life.live(10)
        chosen = complete_pages(run)
    group, page = chosen[np.random.default_rng(seed).integers(len(chosen))]
    flipped = run.engine.next_seq
    run.flip(int(page), groups[group].name)
    life.live(100)
    life.end()
    (found,) = run.found
    assert found.id == "content-unchanged"
    assert found.seq >= flipped - 1
    assert found.evidence["pages"] == [page]
    assert found.evidence["group"] == groups[group].name
    assert found.evidence["completed_at"][0] < flipped


@pytest.mark.parametrize("group", ["full", "swa"])
def test_a_replay_names_the_first_page_that_differs(tmp_path, group):
    """One bit of one token: seq, page, group and holder, and the tokens that the page is for."""
    run = Run(SLIDING, path=tmp_path)
    run.published("r1", TOKENS[:8])
    run.admitted("r2", TOKENS)
    pages = run.pages("r2", 0 if group == "full" else 1)
    run.engine.close()
    log = open_run(tmp_path)
    pools = DevicePools(LAYOUT)

    def flipping(writing):
        write_again(writing)
        if writing.holders == ("request r2",) and writing.stop_lens[0] == len(TOKENS):
            slot = int(writing.slots(group)[5])  # token 13: the first 8 are r1's
            buffers = pools.buffers(group)
            plane = buffers.planes.planes[0]
            page, offset = divmod(slot, 4)
            row_bytes = plane.page_bytes // 4
            at = plane.offset + page * plane.page_stride + offset * row_bytes
            buffers.arena[at] ^= 1

    contents = replay_contents(log, pools, flipping)
    digested = [
        (item.seq, item.event)
        for item in log.events()
        if isinstance(item.event, Digested) and pages[3] in item.event.pages
    ]
    seq, event = next(
        (seq, event) for seq, event in digested if event.group == (0 if group == "full" else 1)
    )
    first = contents.first
    assert (first.seq, first.group, first.page) == (seq, group, pages[3])
    assert first.holders == ("request r2",)
    assert first.positions == (12, 16)
    assert first.recorded == int(event.digests[event.pages == pages[3]][0]) != first.found
    assert f"page {pages[3]} of {group} (request r2, tokens 12 to 15)" in contents.text


def test_a_writer_gets_what_is_committed(tmp_path):
    """Row by row, in the order of the log, the committed tokens and no others."""
    run = Run(path=tmp_path, pools=DevicePools(LAYOUT))
    run.admitted("r1", TOKENS[:6])
    run.admitted("r2", TOKENS[:4])
    run.compute(["r1", "r2"], [8, 5])
    run.engine.roll_back(["r1"], [7])
    run.compute(["r1"], [9])
    run.engine.close()
    told = []
    replay_contents(
        open_run(tmp_path),
        DevicePools(LAYOUT),
        lambda w: told.append((w.holders, w.start_lens.tolist(), w.stop_lens.tolist())),
    )
    assert told == [
        (("request r1",), [0], [6]),
        (("request r2",), [0], [4]),
        (("request r1", "request r2"), [6, 4], [8, 5]),
        (("request r1",), [7], [9]),
    ]


def test_nothing_compared_is_said(tmp_path):
    """A log without digests shows nothing."""
    Run(path=tmp_path, pools=DevicePools(LAYOUT)).engine.close()
    contents = replay_contents(tmp_path, DevicePools(LAYOUT), write_again)
    assert "NOTHING WAS COMPARED" in contents.text


def test_a_replay_that_cannot_be(tmp_path):
    """Pools without buffers, of other groups, or a log whose beginning is gone."""
    run = Run(SLIDING, path=tmp_path / "whole")
    run.published("r1", TOKENS)
    run.engine.close()
    for pools in (DevicePools(None), DevicePools({"full": LAYOUT})):
        with pytest.raises(ConfigError):
            replay_contents(tmp_path / "whole", pools, write_again)
    log = open_run(tmp_path / "whole")
    log.begins_at = 4
    with pytest.raises(LogError, match="history begins at seq 4"):
        replay_contents(log, DevicePools(LAYOUT), write_again)


def test_events_that_are_missing_end_a_replay(tmp_path, monkeypatch):
    """Behind a gap nobody knows what pages hold, though the state is known."""
    writer = LogWriter(tmp_path, snapshot_every_bytes=1 << 20)
    observer = Observer(config(), log=writer, pools=checking_pools(), clock=lambda: 0)
    observer.mark("before")
    writer.skip(3)
    observer.next_seq += 3
    observer.ledger.next_seq += 3
    writer.wait()
    writer.snapshot(observer.ledger.snapshot())
    writer.wait()
    observer.mark("behind")
    observer.close()
    with pytest.raises(LogError, match="missing"):
        replay_contents(tmp_path, DevicePools(LAYOUT), write_again)


@pytest.mark.parametrize(
    "layout",
    [
        MultiHead(num_layers=3, num_kv_heads=1, k_dim=64, v_dim=32, dtype="mxfp8", order="page"),
        MultiHead(num_layers=1, num_kv_heads=4, k_dim=16, v_dim=16, dtype="nvfp4"),
    ],
    ids=["mxfp8", "nvfp4"],
)
def test_quantised_contents_replay_too(tmp_path, layout):
    """What is stored is what is digested: values and scales of every block."""
    run = Run(path=tmp_path, pools=checking_pools(layout))
    run.published("r1", TOKENS)
    run.admitted("r2", TOKENS)
    run.engine.close()
    contents = replay_contents(tmp_path, DevicePools(layout), write_again)
    assert (contents.first, contents.num_digests) == (None, 4)


def test_a_log_of_other_bytes_differs_from_the_first_digest_on(tmp_path):
    """The same life in another dtype: the very first page."""
    run = Run(path=tmp_path)
    run.published("r1", TOKENS)
    run.engine.close()
    other = attrs.evolve(LAYOUT, dtype="fp16")
    contents = replay_contents(tmp_path, DevicePools(other), write_again)
    first = next(item for item in open_run(tmp_path).events() if isinstance(item.event, Digested))
    assert (contents.first.seq, contents.first.page) == (first.seq, int(first.event.pages[0]))
    before = [item for item in open_run(tmp_path).events() if isinstance(item.event, Committed)]
    assert contents.first.seq == before[0].seq + 1
