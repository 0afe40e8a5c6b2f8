"""Small simulated runs under pressure, and what their replay must say."""

import zlib

import attrs
import numpy as np

from kvlife.log import LogWriter, Retention, open_run
from kvlife.replay.replaying.session import Settings, replay_run
from kvlife.simulation import (
    SchedulerConfig,
    SimulationPlan,
    SyntheticConfig,
    VirtualClock,
    generate,
    least_pages,
    simulate,
    size_pools,
)

PAGE_SIZE = 4

# Every way of running that has events of its own: steps in flight, sessions, aborts, a window
# group, roll-backs after drafts.
KINDS = (
    {"num_pages": 90},
    {"num_pages": 160, "overlap": True, "session_rate": 0.5, "abort_rate": 0.15},
    {"num_pages": 120, "window": 24, "draft": 2},
    {"num_pages": 200, "window": 40, "overlap": True, "draft": 3, "session_rate": 0.3},
)


def small_workload(num_requests, seed):
    """Conversations of short prompts, so that a run of few events sees many lives."""
    return generate(
        SyntheticConfig(
            num_requests=num_requests,
            seed=seed,
            vocab_size=500,
            max_context_len=640,
            conversations_per_s=40.0,
            pause_s_mean=0.3,
            turns_mean=3.0,
            num_system_prompts=3,
            system_len_median=16,
            user_len_median=8,
            answer_len_median=12,
            user_len_sigma=0.7,
            answer_len_sigma=0.6,
        )
    )


def plan_of(log, *, kind=0, num_requests=60, seed=0, clock=None, level="event", **changes):
    """A simulation of a kind (an index into `KINDS`), writing to `log`."""
    options = {**KINDS[kind], **changes}
    num_pages, window = options.pop("num_pages"), options.pop("window", None)
    config = SchedulerConfig(
        **{"max_running": 8, "chunk_tokens": 128, "headroom_tokens": 4, "seed": seed, **options}
    )
    workload = small_workload(num_requests, seed)
    num_pages = max(num_pages, least_pages(workload, config, PAGE_SIZE))
    return SimulationPlan(
        workload=workload,
        pools=size_pools(workload, config, page_size=PAGE_SIZE, num_pages=num_pages, window=window),
        config=config,
        log=log,
        key_seed=seed,
        level=level,
        clock=VirtualClock() if clock is None else clock,
    )


def writer_of(path, *, kind=LogWriter, **options):
    """A log whose segments end and whose snapshots fall due within a small run."""
    options.setdefault("segment_bytes", 1 << 14)
    options.setdefault("snapshot_every_bytes", 1 << 12)
    return kind(path, clock_ns=lambda: 0, **options)


def recorded_run(path, **options):
    """Simulate into `path`, and return the outcome."""
    return simulate(plan_of(writer_of(path), **options))


def replayed_run(path, *, salvage=False, **settings):
    """The outcome of the replay as a library, the same as the command's."""
    run = open_run(path, salvage=salvage)
    return replay_run(run, Settings(salvage=salvage, **settings))


def assert_clean(outcome, run, *, compared):
    """A replay that found nothing, left out nothing and compared what there was to compare."""
    assert outcome.found == ()
    assert outcome.differences == ()
    assert outcome.holes == ()
    assert not outcome.lost
    assert outcome.compared is compared
    assert outcome.first_seq == run.begins_at
    assert outcome.next_seq == run.next_seq
    assert outcome.num_events == outcome.checked.events == run.next_seq - run.begins_at
    known = [seq for seq in run.snapshots if seq > run.begins_at]
    assert outcome.num_snapshots == len(known)
    assert outcome.digest_ok is (True if compared or known else None)


def fingerprint(recorded):
    """32 bits of one recorded event: its kind, its place and everything that stands in it."""
    crc = zlib.crc32(repr((recorded.seq, recorded.step, recorded.time_ns)).encode())
    for name in recorded.event.__slots__:
        crc = zlib.crc32(_bytes_of(getattr(recorded.event, name, None)), crc)
    return zlib.crc32(type(recorded.event).__name__.encode(), crc)


def _bytes_of(value):
    if isinstance(value, np.ndarray):
        return value.dtype.str.encode() + len(value).to_bytes(4, "little") + value.tobytes()
    if isinstance(value, tuple):
        return b"(" + b",".join(map(_bytes_of, value)) + b")"
    if attrs.has(type(value)):
        return _bytes_of(attrs.astuple(value, recurse=False))
    return repr(value).encode()


def fingerprints(run):
    """Those of all events in a run, in order."""
    return [fingerprint(recorded) for recorded in run.events()]


KEEP_ALL, KEEP_SOME, RING = "all", "some", "ring"


def retention_of(word):
    """How much history a run keeps, by name."""
    return {
        KEEP_ALL: None,
        KEEP_SOME: Retention(keep_bytes=1 << 12),
        RING: Retention(ring_bytes=1 << 16),
    }[word]
