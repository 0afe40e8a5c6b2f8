"""Watching a replay for its report: nothing is checked or folded here a second time."""

from __future__ import annotations

from collections.abc import Sequence

from kvlife.config import Layout
from kvlife.events import Recorded
from kvlife.ledger import Ledger
from kvlife.replay.report_page.axis import Axis
from kvlife.replay.report_page.columns import Columns, spaces_of
from kvlife.replay.report_page.heat_map import MAX_BANDS, HeatMap, Holders, Look
from kvlife.replay.report_page.tally import Tally

# Page spaces that get a heat map, the largest first.
MAX_MAPS = 8


class Watcher:
    """Told of each group of events ahead of its fold, and of the state then.

    The state is looked at where a column of the axis ends. Events are counted as they come, those
    of a group that a violation keeps from being applied as well. `reached` is the last border
    that the replay came to.
    """

    def __init__(self, axis: Axis, layout: Layout) -> None:
        """Nothing is looked at before the first group."""
        self.axis = axis
        self.reached = 0
        self.columns = Columns(axis.num_columns, len(layout.spaces) + bool(layout.host_pages))
        self.tally = Tally(layout, self.columns, axis.start)
        self.holders = Holders()
        largest = sorted(layout.spaces, key=lambda space: -space.num_pages)[:MAX_MAPS]
        bands = max(MAX_BANDS // len(largest), 1)
        self.maps = {
            space.idx: HeatMap(axis.num_columns, bands, space.num_pages)
            for space in sorted(largest, key=lambda space: space.idx)
        }
        self._by_time = axis.kind == "time"
        self._noted = -1
        self._next_border = axis.start

    def before(self, group: Sequence[Recorded], ledger: Ledger) -> None:
        """A group is about to be folded into this state."""
        tally = self.tally
        place = group[0].time_ns if self._by_time else group[0].seq
        if place >= self._next_border:
            self._go_to(place, ledger)
        # A clock that went back counts as one that stood still.
        tally.place = max(place, tally.place)
        takes = tally.takes
        for item in group:
            take = takes.get(item.event.__class__)
            if take is not None:
                take(item)

    def end(self, ledger: Ledger) -> None:
        """The replay ends in this state."""
        if not self._by_time:
            self.tally.place = max(self.tally.place, ledger.next_seq - 1)
        self.reached = self.axis.column_of(self.tally.place) + 1
        self._note(self.reached, ledger)
        for lives, space in zip(self.tally.lives, spaces_of(ledger), strict=True):
            lives.finish(space)
        self.tally.tenures.finish(self.tally.place)

    def _go_to(self, place: int, ledger: Ledger) -> None:
        column = self.axis.column_of(place)
        self._note(column, ledger)
        self.tally.column = column
        last = column + 1 == self.axis.num_columns
        self._next_border = self.axis.stop if last else self.axis.border(column + 1)

    def _note(self, border: int, ledger: Ledger) -> None:
        """The state at the borders behind the last one noted, up to this one."""
        if border <= self._noted:
            return
        look = Look(ledger, self.holders)
        self.tally.tenures.see(look.index, look.held)
        self.columns.note(self._noted + 1, border + 1, ledger)
        if self._noted < 0:
            self.tally.tenures.adopt(ledger, self.axis.start)
        for space_idx, heat_map in self.maps.items():
            heat_map.note(border - max(self._noted, 0), ledger, space_idx, look)
        self._noted = border
