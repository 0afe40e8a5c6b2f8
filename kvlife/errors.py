"""Every error kvlife raises, under one root: `KvLifeError`.

The family tells the caller what to do: `CommandRefused` (ask for something else, nothing changed),
`EventError` (the event is ill-formed), `InvariantViolation` (a bug was found), `EngineClosed`
(start a new run), `LogError` (the files), `ConfigError` (the configuration).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class KvLifeError(Exception):
    """The root of all errors of kvlife."""


class ConfigError(KvLifeError):
    """A configuration that cannot be built; the message lists what is known or possible."""


class BudgetTooSmall(ConfigError):
    """A memory budget that holds no plan; `least_bytes` available would, if that is known."""

    def __init__(self, message: str, least_bytes: int | None = None) -> None:
        self.least_bytes = least_bytes
        super().__init__(message)


class WorkloadError(KvLifeError):
    """A workload file that cannot be read; the message names file, line and what is wrong there."""


class CaptureError(KvLifeError):
    """A capture that cannot be read; the message names file, line and what is wrong there."""


class EventError(KvLifeError):
    """An ill-formed event: ids out of range, wrong dtype, arrays whose lengths disagree."""


class EngineClosed(KvLifeError):
    """The engine ended its run (closed, a violation, a failed log); only reading is possible."""


class CommandRefused(KvLifeError):
    """The caller asked for something impossible; nothing changed, the log included."""


class OutOfPages(CommandRefused):
    """No room for the pages asked for, even after evicting all that can go.

    Attributes: `group` (its name), `asked`, `free`, `evictable` (pages) and `held` (pages that
    cannot go, by holder: request ids, `session <id>`, `pinned`, `draining`).
    """

    def __init__(
        self, group: str, asked: int, free: int, evictable: int, held: Mapping[str, int]
    ) -> None:
        self.group = group
        self.asked = asked
        self.free = free
        self.evictable = evictable
        self.held = dict(held)
        top = sorted(self.held.items(), key=lambda item: (-item[1], item[0]))[:5]
        who = ", ".join(f"{name} {num}" for name, num in top) or "nobody"
        super().__init__(
            f"{asked} pages of group {group!r} asked for, {free} free and {evictable} evictable;"
            f" held by {who}: retract or finish a request, close a session, or enlarge the pool"
        )


class OutOfRows(CommandRefused):
    """Every request row is in use; retract or finish a request, or close a session."""


class UnknownRequest(CommandRefused):
    """No live request has this id."""


class DuplicateRequest(CommandRefused):
    """The request id is in use, or was aborted before it was admitted."""


class UnknownSession(CommandRefused):
    """No session has this id."""


class SessionBusy(CommandRefused):
    """The session is in a turn, or the request runs on a session's row."""


class BadLength(CommandRefused):
    """A length that is negative, shrinks, passes its bound, or does not match its list."""


class BadTokens(CommandRefused):
    """Tokens that are no integers in [0, 2^31), or that contradict what was published."""


class BadArgument(CommandRefused):
    """An argument that is empty, of a wrong type, or names one thing twice."""


class StaleBatch(CommandRefused):
    """A row of the batch has changed hands since the batch was made; make a new batch."""


class StepOrder(CommandRefused):
    """A step was dispatched twice, or settled out of order."""


class PinRefused(CommandRefused):
    """A pin id that is in use or unknown, or pages that cannot be pinned."""


class WrongThread(CommandRefused):
    """The engine is driven by one thread of one process; this call came from another."""


class InvariantViolation(KvLifeError):
    """A bug was found: an event breaks an invariant.

    Attributes: `id` (of the catalogue), `seq` (of the event), `event`, `evidence` (rows, pages and
    numbers, by name) and `applied` (whether the event was applied before it was found).
    """

    def __init__(
        self,
        invariant: str,
        seq: int,
        event: object,
        evidence: Mapping[str, object],
        *,
        applied: bool,
    ) -> None:
        self.id = invariant
        self.seq = seq
        self.event = event
        self.evidence = dict(evidence)
        self.applied = applied
        facts = "; ".join(f"{name}: {value}" for name, value in self.evidence.items())
        super().__init__(f"{invariant} broken at seq {seq} by {type(event).__name__}: {facts}")


class LogError(KvLifeError):
    """A log that cannot be read or written; the message names the file and the offset."""


class LogCorrupt(LogError):
    """A bad record with valid ones after it, or contents that contradict themselves."""


class LogTruncated(LogError):
    """A log that ends where a part of it must still follow."""


class LogVersionError(LogError):
    """A log written in a newer format version than this reader knows."""


class LogInUse(LogError):
    """Another writer holds the run."""


class LogFull(LogError):
    """No space left for the log; the engine stopped before anything was applied."""
