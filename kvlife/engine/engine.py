"""`KvEngine`: the commands a scheduler gives, together."""

from __future__ import annotations

from kvlife.engine.admission import AdmissionCommands
from kvlife.engine.arguments import is_name
from kvlife.engine.core import command
from kvlife.engine.flight import FlightCommands
from kvlife.engine.reclaim import ReclaimCommands
from kvlife.engine.sessions import SessionCommands
from kvlife.errors import UnknownRequest
from kvlife.records import ReqKvInfo


class KvEngine(AdmissionCommands, SessionCommands, FlightCommands, ReclaimCommands):
    """Owns the life of KV-cache memory for one scheduler; driven by one thread.

    Each command is refused (`CommandRefused`, and nothing has changed, the log included), or its
    events are logged as one group, checked, and applied.
    """

    @command
    def record(self, rid: str) -> ReqKvInfo:
        """The immutable record of a live or retracted request."""
        record = self.ledger.record(rid) if is_name(rid) else None
        if record is None:
            raise UnknownRequest(self._why_unknown(rid))
        return record
