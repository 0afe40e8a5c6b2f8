"""Which part of a log to replay, and how it is split at snapshots."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import attrs

from kvlife.errors import ConfigError, LogError
from kvlife.log import LogRun
from kvlife.replay.replaying.known import known_states, restored

# Parts for each process: more even out how long they take, fewer save reading snapshots.
PARTS_PER_JOB = 4


@attrs.frozen(kw_only=True)
class Part:
    """Events [start, stop) of a run; the state at `start` is a snapshot's, or empty at seq 0.

    `last` says that no part follows.
    """

    start: int
    stop: int
    last: bool


def whole(run: LogRun, first_seq: int | None, last_seq: int | None) -> Part:
    """All that is asked for, as one part: from the newest snapshot at or before `first_seq`.

    Raises `ConfigError` for a range that holds nothing, `LogError` where no state is known to
    start from.
    """
    start = _start(run, first_seq)
    stop = run.next_seq if last_seq is None else min(last_seq + 1, run.next_seq)
    if last_seq is not None and last_seq < max(first_seq or 0, start):
        raise ConfigError(
            f"--to {last_seq} lies before the replay's first event, {max(first_seq or 0, start)}"
        )
    return Part(start=start, stop=max(stop, start), last=True)


def _start(run: LogRun, first_seq: int | None) -> int:
    known = known_states(run)
    if not known:
        raise LogError(
            f"{run.path}: history begins at seq {run.begins_at} without a snapshot:"
            " there is no state to start from"
        )
    if first_seq is None:
        return next((seq for seq in known if can_start(run, seq)), known[0])
    if not 0 <= first_seq < max(run.next_seq, 1):
        raise ConfigError(f"--from {first_seq}: the log's events are [0, {run.next_seq})")
    fitting = [seq for seq in known if seq <= first_seq]
    if not fitting:
        raise ConfigError(f"--from {first_seq} is gone: history begins at seq {known[0]}")
    return next((seq for seq in reversed(fitting) if can_start(run, seq)), fitting[-1])


def can_start(run: LogRun, seq: int) -> bool:
    """Whether a part may begin at a known state: under salvage, not where it cannot be read."""
    if seq == 0 or not run.salvage:
        return True
    try:
        restored(run, run.snapshot(seq), seq)
    except LogError:
        return False
    return True


def split(run: LogRun, part: Part, num_parts: int) -> list[Part]:
    """The same events as up to `num_parts` parts of about equal length, cut at snapshots."""
    inner = [seq for seq in run.snapshots if part.start < seq < part.stop]
    cuts: list[int] = []
    for number in range(1, num_parts):
        wanted = part.start + (part.stop - part.start) * number // num_parts
        place = bisect_left(inner, wanted)
        near = inner[max(place - 1, 0) : place + 1]
        cuts += sorted(near, key=lambda seq: abs(seq - wanted))[:1]
    bounds = [part.start, *(seq for seq in sorted(set(cuts)) if can_start(run, seq)), part.stop]
    return [
        Part(start=low, stop=high, last=high == part.stop and part.last)
        for low, high in pairwise(bounds)
    ]
