"""What random lives do on the host: backups, and what is restored from them."""

import attrs
from short_events import ints

from kvlife import transitions
from kvlife.events import Resumed, Retracted
from kvlife.ledger import RowState, derive, kept_pages


class HostLives:
    """The part of `Lives` that takes KV away, with a backup or without, and brings it back."""

    def resume(self):
        rows = self.rows_in(RowState.FREE)
        if not rows or not self.ledger.waiting:
            return None
        rid = self.rng.choice(sorted(self.ledger.waiting))
        more = {"restored_len": 0, "restored": self.no_pages()}
        event = self._bind(Resumed, rid, rows, **more)
        return self._restoring(event) or event

    def _restoring(self, event):
        """Mostly, the event with what the backup adds to its prefix, if the backup has it all."""
        end = self.ledger.waiting[event.rid].committed_len
        if self.ledger.host is None or end <= event.prefix_len or self.rng.random() < 0.2:
            return None
        cursors = tuple(
            max(cursor, int(transitions.cursor_bound(end, group.window, group.page_size)))
            if event.prefix_len == 0
            else cursor
            for cursor, group in zip(event.evicted_len, self.layout.window_groups, strict=True)
        )
        event = attrs.evolve(event, restored_len=end, evicted_len=cursors)
        taken = self._taking(event)
        if taken is None:
            return None
        event = attrs.evolve(event, restored=taken)
        restored = derive(self.ledger, event).restored
        return event if restored is not None and restored.host_pages.all() else None

    def _backup(self, row):
        """Mostly, host pages for what only the row has, where there is room for it."""
        host, num = self.ledger.host, kept_pages(self.ledger, row).pages.size
        if host is None or num > host.free.num_free or self.rng.random() < 0.2:
            return None
        return ints(*host.free.head(num).tolist())

    def retract(self):
        owners = {pin.owner for pin in self.ledger.pins.values()}
        rids = sorted(self.ledger.requests.keys() - owners)
        if not rids:
            return None
        rid = self.rng.choice(rids)
        row = self.ledger.requests[rid]
        return self._whole(Retracted(rid, row, self._backup(row), self.no_pages()))
