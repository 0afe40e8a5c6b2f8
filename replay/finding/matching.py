"""Two streams of events held against each other, in constant memory.

While they say the same, they are compared one by one. Where they part, a window of each is searched
for the nearest place from which on three events belong together: they are of one kind, and have the
same names and rows. Pages and lengths may have come to differ, and are then told as changes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import attrs

from kvlife.errors import EventError, LogError
from kvlife.events import Recorded
from kvlife.log import LogRun
from kvlife.replay.finding.sameness import Ignored, Sameness, agreement, shape_of
from kvlife.replay.output.event_words import kind_of

# So many events of each log are searched for a place where they agree again.
WINDOW = 2048
# So many are searched for a place where they say the same, though they still belong together.
NEAR = 64
# So many places where logs part are kept to be shown.
MAX_KEPT = 12


class Stream:
    """The events of a run from `start` on; a hole in them ends a stretch, until it is crossed.

    `hole` is the hole that the stretch ends at, as [first_seq, next_seq), and `trouble` what the
    log could not be read for behind the last event.
    """

    def __init__(self, run: LogRun, start: int, kinds: frozenset[str]) -> None:
        self.run = run
        self._source = run.events(start)
        self._kinds = kinds
        self._buffer: deque[Recorded] = deque()
        self._held: Recorded | None = None
        self._next_seq = start
        self.hole: tuple[int, int] | None = None
        self.trouble: LogError | EventError | None = None

    def peek(self) -> Recorded | None:
        """The next event of the stretch, or None at its end."""
        if not self._buffer:
            item = self._read()
            if item is None:
                return None
            self._buffer.append(item)
        return self._buffer[0]

    def pop(self) -> Recorded:
        """Take the event that `peek` has shown."""
        return self._buffer.popleft()

    def window(self, num: int) -> list[Recorded]:
        """The next `num` events of the stretch, fewer at its end; none is taken."""
        while len(self._buffer) < num:
            item = self._read()
            if item is None:
                break
            self._buffer.append(item)
        return list(self._buffer)

    @property
    def seq(self) -> int:
        """The seq that comes next."""
        return self._buffer[0].seq if self._buffer else self._next_seq

    def cross(self) -> None:
        """Go on behind the hole."""
        self.hole = None
        item, self._held = self._held, None
        if item is not None:
            self._next_seq = item.seq + 1
            if kind_of(item.event) not in self._kinds:
                self._buffer.append(item)

    def _read(self) -> Recorded | None:
        if self.hole is not None or self.trouble is not None:
            return None
        try:
            for item in self._source:
                if item.seq != self._next_seq:
                    self.hole = (self._next_seq, item.seq)
                    self._held = item
                    return None
                self._next_seq = item.seq + 1
                if not self._kinds or kind_of(item.event) not in self._kinds:
                    return item
        except (LogError, EventError) as error:
            self.trouble = error
        return None


@attrs.frozen(kw_only=True)
class Parting:
    """A place where two logs part: events that only one of them has, or one that both differ in.

    `left` and `right` are the next event of each, None at the end of a log; `num_left` and
    `num_right` say how many it has that the other has not. Both are 0 for events that belong
    together and differ in fields. The seqs are those of each log from here to behind the place.
    """

    left: Recorded | None
    right: Recorded | None
    num_left: int
    num_right: int
    left_seqs: tuple[int, int]
    right_seqs: tuple[int, int]


@attrs.define
class Matched:
    """What a comparison has found so far.

    `partings` are the first places where the logs part, `num_partings` all of them. `only_left`
    and `only_right` count events by kind that the other log has not, `changed` events that
    differ in fields. `together` is where the same events began, in each log, that have lasted
    since, and `num_together` how many they are. `uncompared` are the seqs that one log misses.
    """

    num_same: int = 0
    partings: list[Parting] = attrs.field(factory=list)
    num_partings: int = 0
    only_left: Counter[str] = attrs.field(factory=Counter)
    only_right: Counter[str] = attrs.field(factory=Counter)
    changed: Counter[str] = attrs.field(factory=Counter)
    together: tuple[int, int] | None = None
    num_together: int = 0
    uncompared: list[tuple[str, int, int]] = attrs.field(factory=list)

    def part(self, parting: Parting) -> None:
        """Take up a place where the logs part."""
        self.num_partings += 1
        self.together, self.num_together = None, 0
        if len(self.partings) < MAX_KEPT:
            self.partings.append(parting)

    def go_on(self, parting: Parting) -> None:
        """Take up more of the place where the logs parted last."""
        if self.num_partings <= MAX_KEPT:
            last = self.partings[-1]
            self.partings[-1] = attrs.evolve(
                last,
                num_left=last.num_left + parting.num_left,
                num_right=last.num_right + parting.num_right,
                left_seqs=(last.left_seqs[0], parting.left_seqs[1]),
                right_seqs=(last.right_seqs[0], parting.right_seqs[1]),
            )


class Matcher:
    """Holds a run against another from seq `start` on; `found` is what it has found."""

    def __init__(
        self,
        left: LogRun,
        right: LogRun,
        start: int,
        ignored: Ignored,
        advance: Callable[[int], None] = lambda _num: None,
    ) -> None:
        self.left = Stream(left, start, ignored.kinds)
        self.right = Stream(right, start, ignored.kinds)
        self.found = Matched()
        self._sameness = Sameness(ignored.fields)
        self._shift = 0
        self._waits = 0
        self._advance = advance

    def match(self) -> Matched:
        """Compare to the end of both, or to where one of them cannot be read."""
        self._stretch()
        while self._cross():
            self._stretch()
        self._drain()
        return self.found

    def _stretch(self) -> None:
        left, right, found, same = self.left, self.right, self.found, self._sameness.same
        num = 0
        while (mine := left.peek()) is not None and (other := right.peek()) is not None:
            if same(mine, other):
                left.pop()
                right.pop()
                found.num_same += 1
                if found.together is None:
                    found.together = (mine.seq, other.seq)
                    self._shift = other.seq - mine.seq
                found.num_together += 1
            elif shape_of(mine) != shape_of(other):
                self._realign()
            elif not self._slipped():
                self._change()
            num += 1
            if not num % 4096:
                self._advance(4096)
        self._advance(num % 4096)

    def _slipped(self) -> bool:
        """Leave out steps of a batch that one log has not, where both then say the same.

        They belong together with the steps that follow them, as these have the same rows. Where
        nothing says the same any more, this is tried only now and then.
        """
        if self._waits and self.found.num_together < NEAR:
            self._waits -= 1
            return False
        self._waits = NEAR
        marks = [
            list(map(self._sameness.mark, side.window(NEAR)[:NEAR]))
            for side in (self.left, self.right)
        ]
        place = agreement(*marks, ended=False)
        if place is None or place[0] == place[1]:
            return False
        self.found.part(self._left_out(*place))
        self._waits = 0
        return True

    def _change(self) -> None:
        """Take up two events that belong together and differ."""
        mine, other = self.left.pop(), self.right.pop()
        self._shift = other.seq - mine.seq
        self.found.changed[kind_of(mine.event)] += 1
        self.found.part(
            Parting(
                left=mine,
                right=other,
                num_left=0,
                num_right=0,
                left_seqs=(mine.seq, mine.seq + 1),
                right_seqs=(other.seq, other.seq + 1),
            )
        )

    def _realign(self) -> None:
        """Leave out what one of the logs has not, up to where they agree again."""
        take_up = self.found.part
        while True:
            mine, others = self.left.window(WINDOW), self.right.window(WINDOW)
            place = self._agreement(mine, others)
            if place is not None:
                take_up(self._left_out(*place))
                return
            # Nothing agrees: where there is more to come, half of what was seen stays behind.
            nums = [len(mine), len(others)]
            if WINDOW in nums:
                nums = [num // 2 if num == WINDOW else 0 for num in nums]
            take_up(self._left_out(*nums))
            if self.left.peek() is None or self.right.peek() is None:
                return
            take_up = self.found.go_on

    def _agreement(self, mine: list[Recorded], others: list[Recorded]) -> tuple[int, int] | None:
        """The nearest place where they belong together, or say the same if that is about as near.

        Steps of one batch all belong together, whichever of them is missing.
        """
        cut_short = any(side.hole or side.trouble for side in (self.left, self.right))
        ended = len(mine) < WINDOW and len(others) < WINDOW and not cut_short
        near, same = (
            agreement(list(map(mark, mine)), list(map(mark, others)), ended=ended)
            for mark in (shape_of, self._sameness.mark)
        )
        if near is None or same is None:
            return near
        return same if sum(same) <= 2 * sum(near) + 8 else near

    def _left_out(self, num_left: int, num_right: int) -> Parting:
        left, right, found = self.left, self.right, self.found
        first, other, at, other_at = left.peek(), right.peek(), left.seq, right.seq
        found.only_left.update([kind_of(left.pop().event) for _ in range(num_left)])
        found.only_right.update([kind_of(right.pop().event) for _ in range(num_right)])
        return Parting(
            left=first,
            right=other,
            num_left=num_left,
            num_right=num_right,
            left_seqs=(at, left.seq),
            right_seqs=(other_at, right.seq),
        )

    def _cross(self) -> bool:
        """Go on behind a hole of either log: what the other has of it is not compared."""
        left, right = self.left, self.right
        crossed = False
        for side, other, name, shift in (
            (left, right, "left", self._shift),
            (right, left, "right", -self._shift),
        ):
            if side.hole is None or side.peek() is not None:
                continue
            low, high = side.hole
            self.found.uncompared.append((name, low, high))
            side.cross()
            crossed = True
            while (item := other.peek()) is not None and item.seq < high + shift:
                other.pop()
        return crossed

    def _drain(self) -> None:
        """Take up what one log has behind the end of the other."""
        left, right, found = self.left, self.right, self.found
        if left.trouble is not None or right.trouble is not None:
            return
        if (left.peek() is None) == (right.peek() is None):
            return
        if (left if left.peek() is None else right).run.live:
            # It may be written yet.
            return
        longer, only = (right, found.only_right) if left.peek() is None else (left, found.only_left)
        first, other, at, other_at = left.peek(), right.peek(), left.seq, right.seq
        num = 0
        while longer.peek() is not None:
            only[kind_of(longer.pop().event)] += 1
            num += 1
            if longer.peek() is None and longer.hole is not None:
                longer.cross()
        found.part(
            Parting(
                left=first,
                right=other,
                num_left=num if longer is left else 0,
                num_right=num if longer is right else 0,
                left_seqs=(at, left.seq),
                right_seqs=(other_at, right.seq),
            )
        )
