"""Small recorded runs, made by hand, that the tests of the replay go by."""

import json

import numpy as np

from kvlife import CacheGroup, CommandRefused, KvEngine, LogWriter, Observer, PoolConfig
from kvlife.errors import InvariantViolation
from kvlife.events import Admitted, Allocated, Committed, Released
from kvlife.replay.cli import main

CONFIG = PoolConfig(page_size=4, num_pages=32, max_requests=4, max_context_len=64)


def ints(*values):
    array = np.array(values, np.int32)
    array.setflags(write=False)
    return array


def admitted(rid, row, prompt_len=8):
    return Admitted(rid, row, 0, prompt_len, 0, 0, (), (ints(),))


def allocated(rows, lengths, pages):
    return Allocated(ints(*rows), ints(*lengths), (ints(*pages),))


def committed(rows, lengths):
    return Committed(ints(*rows), ints(*lengths))


def released(rid, row, pages, reason="finished"):
    return Released(rid, row, reason, (ints(*pages),), ints())


def life_of(rid, row, pages):
    """A request of two pages, from admission to its end, as four facts."""
    return [
        admitted(rid, row),
        allocated([row], [8], pages),
        committed([row], [8]),
        released(rid, row, pages),
    ]


def observe(path, groups, *, config=CONFIG, checker=None, close=True, writer=None):
    """Report groups of facts, one after another, and return the observer.

    A group may be the word "snapshot". A violation ends the run, as it would a live one.
    """
    writer = writer or LogWriter(path, snapshot_every_bytes=1 << 20)
    observer = Observer(config, log=writer, checker=checker, clock=lambda: 0)
    try:
        for group in groups:
            if group == "snapshot":
                write_snapshot(observer)
            else:
                observer.observe(*group)
    except InvariantViolation:
        return observer
    if close:
        observer.close()
    return observer


def write_snapshot(observer):
    """Have a snapshot of the present state written, after one that still is being written."""
    observer.log.wait()
    observer.log.snapshot(observer.ledger.snapshot())
    observer.log.wait()


def observe_rest(observer):
    """Close a run whose last audit finds something under raise."""
    try:
        observer.close()
    except InvariantViolation:
        return
    raise AssertionError("the last audit found nothing")


def copy_of_unclosed(log, path, target):
    """What a killed process leaves behind of what `log` wrote: the files, without an end mark."""
    log.wait()
    (run,) = path.iterdir()
    target.mkdir()
    for file in run.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def crowded_engine(path, *, seed, num_steps=400, groups=None, close=True, checker=None):
    """A small engine under pressure: admissions, steps, evictions, aborts; returns it closed."""
    config = PoolConfig(
        page_size=4,
        num_pages=96,
        max_requests=8,
        max_context_len=128,
        groups=groups or (CacheGroup("full"),),
    )
    # Snapshots as close as they may be, so that there is something to split at.
    writer = LogWriter(path, segment_bytes=1 << 14, snapshot_every_bytes=512)
    engine = KvEngine(config, log=writer, clock=lambda: 0, key_seed=1, checker=checker)
    rng = np.random.default_rng(seed)
    running = []
    for number in range(num_steps):
        if number % 16 == 0:
            writer.wait()  # however busy the machine is, snapshots get written
        tokens = rng.integers(0, 2, rng.integers(1, 60)).astype(np.int32)
        try:
            rid = f"r{number}"
            engine.admit(rid, tokens)
            running.append((rid, tokens))
            engine.allocate([rid], [len(tokens)])
            engine.commit([rid], [len(tokens)])
            batch = engine.batch([rid for rid, _ in running])
            engine.decode(batch)
            engine.commit(batch)
        except CommandRefused:
            end_one(engine, running, abort=bool(rng.integers(2)))
    if close:
        engine.close()
    return engine


def end_one(engine, running, *, abort):
    rid, tokens = running.pop(0)
    record = engine.record(rid)
    if abort or record.kv_committed_len < len(tokens):
        engine.abort(rid)
    else:
        engine.finish(rid, tokens)


def replayed(capsys, *arguments):
    """Run `kvlife replay --json` and return its exit status and object."""
    status = main(["replay", *map(str, arguments), "--json"])
    out, err = capsys.readouterr()
    assert not err
    return status, json.loads(out)


def shown(capsys, *arguments):
    """Run `kvlife replay` and return its exit status, output and complaints."""
    status = main(["replay", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def ran(capsys, *arguments):
    """Run `kvlife` with these arguments and return its exit status, output and complaints."""
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def answered(capsys, *arguments):
    """Run a command with --json and return its exit status and object."""
    status, out, err = ran(capsys, *arguments, "--json")
    assert not err
    return status, json.loads(out)
