"""`KvEngine`: the commands a scheduler gives, together."""

from __future__ import annotations

from kvlife.engine.arguments import is_name
from kvlife.engine.core import command
from kvlife.engine.flight import FlightCommands
from kvlife.engine.reclaim import ReclaimCommands
from kvlife.engine.retraction import RetractionCommands
from kvlife.engine.sessions import SessionCommands
from kvlife.errors import BadArgument, UnknownRequest
from kvlife.events import Event, Marked
from kvlife.records import ReqKvInfo


class KvEngine(RetractionCommands, SessionCommands, FlightCommands, ReclaimCommands):
    """Owns the life of KV-cache memory for one scheduler; driven by one thread.

    Each command is refused (`CommandRefused`, and nothing has changed, the log included), or its
    events are logged as one group, checked, and applied.
    """

    @command
    def observe(self, *events: Event) -> None:
        """Take notes (`Marked`) only: an engine decides, and other facts would pass it by.

        Raises `BadArgument` for any other event; report those to an `Observer`.
        """
        for event in events:
            if not isinstance(event, Marked):
                raise BadArgument(
                    f"a {type(event).__name__} was reported to an engine, which decides itself:"
                    " give it commands, or report facts to an Observer"
                )
        super().observe(*events)

    @command
    def record(self, rid: str) -> ReqKvInfo:
        """The immutable record of a live or retracted request."""
        record = self.ledger.record(rid) if is_name(rid) else None
        if record is None:
            raise UnknownRequest(self._why_unknown(rid))
        return record
