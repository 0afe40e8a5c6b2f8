"""Where a log says since when something is held: the events behind the seqs of a state.

Each search reads what it must and no more than a bound, so that it ends on any log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kvlife.errors import LogError
from kvlife.events import Admitted, Recorded, Resumed, SessionRestored
from kvlife.log import LogRun
from kvlife.replay.parts import known_states

# A search reads at most so many events.
MAX_READ = 1_000_000

_BINDS = (Admitted, Resumed, SessionRestored)


def events_at(run: LogRun, seqs: Iterable[int]) -> dict[int, Recorded]:
    """The events at some seqs, as far as the log still has them."""
    stretches: dict[int | None, list[int]] = {}
    for seq in sorted(set(seqs), reverse=True):
        if run.begins_at <= seq < run.next_seq:
            stretches.setdefault(run.snapshot_before(seq), []).append(seq)
    found: dict[int, Recorded] = {}
    left = MAX_READ
    for wanted in stretches.values():
        chosen = set(wanted)
        left -= wanted[0] - wanted[-1]
        if left < 0:
            break
        try:
            found.update(
                (item.seq, item)
                for item in run.events(wanted[-1], wanted[0] + 1)
                if item.seq in chosen
            )
        except LogError:
            continue  # what is damaged there is not shown; the rest is
    return found


def bindings(run: LogRun, latest: Mapping[str, int]) -> dict[str, Recorded]:
    """The events that gave requests the rows they hold; `latest` has a seq by which each had one.

    A request whose event is not in the log, or too far back, is left out.
    """
    found: dict[str, Recorded] = {}
    ends, left = run.next_seq, MAX_READ
    for start in reversed(known_states(run)):
        wanted = {rid: seq for rid, seq in latest.items() if rid not in found and seq >= start}
        last = min(max(wanted.values(), default=-1) + 1, ends)
        ends = start
        if last <= start:
            continue
        left -= last - start
        if left < 0:
            break
        try:
            for item in run.events(start, last):
                if isinstance(item.event, _BINDS) and item.event.rid in wanted:
                    found[item.event.rid] = item
        except LogError:
            continue  # as above
    return found
