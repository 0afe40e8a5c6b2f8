"""What an engine's own stream of cache events proves, and what it cannot.

The stream names hashes, not blocks: it knows no table, no count of references, no owner. What it
can prove is that nothing is removed that was not stored, that no message is missing, that blocks
hang on parents that are there, and that hashes are those of the tokens, where they come whole.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import attrs
import msgspec

from kvlife.capture.block_hashes import block_hash
from kvlife.capture.contradictions import Contradiction, Contradictions
from kvlife.capture.event_stream import (
    Cleared,
    EventStream,
    Message,
    Removed,
    Stored,
    StreamHeader,
)

# Hexadecimal digits of a whole SHA-256.
_WHOLE_HASH = 64

NEVER_PROVEN = (
    "which blocks the hashes stand on: the stream names hashes, never blocks",
    "block tables, counts of references and owners: a block freed while in use is not seen",
    "blocks without a hash: their allocation and loss leave no trace in the stream",
    "that a stored block was ever written, or a removed one not in use",
    "hits, preemptions, ends of requests and free blocks",
)


@attrs.frozen(kw_only=True)
class StreamOutcome:
    """What a stream held, what was found in it, and what it does not prove.

    `num_events` counts by kind, `num_recomputed` the hashes computed again from their tokens, and
    `num_unproven_parents` the parents of which nothing can be said.
    """

    header: StreamHeader
    num_messages: int
    num_events: Mapping[str, int]
    num_hashes: int
    num_copies: int
    num_recomputed: int
    num_unproven_parents: int
    contradictions: tuple[Contradiction, ...]
    num_contradictions: int
    not_proven: tuple[str, ...]

    @property
    def clean(self) -> bool:
        """Whether nothing is proven wrong."""
        return not self.num_contradictions


def check_events(
    path: Path, reached: Callable[[int], None] = lambda _num_lines: None
) -> StreamOutcome:
    """Check a stream; raises `CaptureError` for what is none, with file and line."""
    stream = EventStream(path)
    check = EventCheck(stream.header)
    for message in stream.messages():
        if not message.number % 512:
            reached(message.number)
        check.take(message)
    return check.outcome()


class EventCheck:
    """Follows a stream: the copies of each hash, by medium and group, and what was ever stored."""

    def __init__(self, header: StreamHeader) -> None:
        """No message has come."""
        self._header = header
        self._found = Contradictions(stop_at_first=False)
        self._copies: dict[tuple[str, int], Counter[str]] = {}
        self._contents: dict[str, bytes] = {}
        self._known: set[str] = set()
        self._sizes: dict[int, int] = {}
        self._events: Counter[str] = Counter()
        self._last: Message | None = None
        self._num_messages = 0
        self._incomplete = False
        self._open_ends = 0
        self._unproven_parents = 0
        self._recomputed = 0
        self._differing: list[tuple[int, str]] = []

    def take(self, message: Message) -> None:
        """One message: its place in the sequence, then its events."""
        self._num_messages += 1
        self._found.place = (message.number, "message")
        self._in_order(message)
        self._last = message
        for event in message.events:
            name = {Stored: "BlockStored", Removed: "BlockRemoved"}.get(
                type(event), "AllBlocksCleared"
            )
            self._events[name] += 1
            self._found.place = (message.number, name)
            match event:
                case Stored():
                    self._store(event)
                case Removed():
                    self._remove(event)
                case Cleared():
                    self._copies.clear()
        self._within_pool()

    def _in_order(self, message: Message) -> None:
        last = self._last
        wanted = 0 if last is None else last.seq + 1
        if message.seq > wanted:
            self._incomplete = True
            self._found.note(f"{_span(wanted, message.seq)} missing in the sequence")
        elif message.seq < wanted:
            self._found.note(f"number {message.seq} comes where {wanted} is due")
        batch = -1 if last is None or last.batch is None else last.batch
        if message.batch is not None and message.batch not in (batch, batch + 1):
            self._found.note(f"batch {message.batch} comes after batch {batch}")
        if last is None:
            return
        for what, now, then in zip(
            ("t_ns", "step", "trace_seq"), message.order, last.order, strict=False
        ):
            if now is not None and then is not None and now < then:
                self._found.note(f"{what} falls from {then} to {now}")
        if message.rank != last.rank:
            self._found.note(f"the rank changes from {last.rank} to {message.rank}")

    def _store(self, event: Stored) -> None:
        size = self._sizes.setdefault(event.group, self._header.block_size or event.block_size)
        self._found.same(f"block_size of group {event.group}", event.block_size, size)
        blocks = [
            event.tokens[at : at + event.block_size]
            for at in range(0, len(event.tokens), event.block_size)
        ]
        covered = len(blocks) == len(event.hashes)
        if len(event.tokens) % event.block_size or len(blocks) < len(event.hashes):
            covered = False
            self._misfit(event)
        elif event.full and not covered:
            self._misfit(event)
        self._same_parent(event)
        chain = self._recompute(event, blocks, covered=covered)
        if covered:
            self._same_contents(event, blocks)
        if not covered and not chain:
            self._open_ends += 1
        copies = self._copies.setdefault((event.medium, event.group), Counter())
        copies.update(event.hashes)
        self._known.update(event.hashes, chain)

    def _misfit(self, event: Stored) -> None:
        self._found.note(
            f"{len(event.tokens)} tokens for {len(event.hashes)} hashes of blocks of"
            f" {event.block_size}"
        )

    def _same_parent(self, event: Stored) -> None:
        parent = event.parent
        if parent is None or self._incomplete:
            self._unproven_parents += parent is not None and parent not in self._known
            return
        if event.full:
            if not self._copies.get((event.medium, event.group), Counter())[parent]:
                self._found.note(f"its parent {parent} is not stored in group {event.group}")
        elif parent not in self._known:
            if self._open_ends:
                # The parent may be a block that was stored without its hash.
                self._unproven_parents += 1
            else:
                self._found.note(f"its parent {parent} was never stored")

    def _recompute(self, event: Stored, blocks: list[list[int]], *, covered: bool) -> list[str]:
        """The hashes of the whole range, where they can be computed; what differs is kept."""
        wholes = (*event.hashes, event.parent or "")
        if not event.plain or not blocks or not all(len(h) in (0, _WHOLE_HASH) for h in wholes):
            return []
        if event.parent is None:
            # The parent of all first blocks is not in the stream, so the first hash is taken.
            if not covered:
                return []
            chain, rest = [event.hashes[0]], blocks[1:]
        else:
            chain, rest = [], blocks
        before = chain[-1] if chain else str(event.parent)
        for tokens in rest:
            before = block_hash(bytes.fromhex(before), tokens).hex()
            chain.append(before)
        self._compare(event, chain)
        return chain

    def _compare(self, event: Stored, chain: list[str]) -> None:
        left = iter(chain)
        for stored in event.hashes:
            if stored not in left:
                self._differing.append(
                    (self._found.place[0], f"hash {stored} is not that of its tokens and parent")
                )
                return
        self._recomputed += len(event.hashes) - (event.parent is None)

    def _same_contents(self, event: Stored, blocks: list[list[int]]) -> None:
        for stored, tokens in zip(event.hashes, blocks, strict=True):
            content = hashlib.blake2b(msgspec.msgpack.encode(tokens), digest_size=8).digest()
            if self._contents.setdefault(stored, content) != content:
                self._found.note(f"hash {stored} was stored before with other tokens")

    def _remove(self, event: Removed) -> None:
        copies = self._copies.setdefault((event.medium, event.group), Counter())
        if not event.hashes:
            self._found.note("it removes nothing")
        for removed in event.hashes:
            if copies[removed] > 0:
                copies[removed] -= 1
            elif not self._incomplete:
                known = "has no copy left" if removed in self._known else "was never stored"
                self._found.note(f"hash {removed} is removed from group {event.group}, and {known}")

    def _within_pool(self) -> None:
        if self._header.num_blocks is None:
            return
        held = self.num_copies
        if held > self._header.num_blocks - 1:
            self._found.note(
                f"{held} blocks have a hash, in a pool of {self._header.num_blocks - 1}"
            )

    @property
    def num_copies(self) -> int:
        """Blocks that have a hash now, by the stream."""
        return sum(copies.total() for copies in self._copies.values())

    def outcome(self) -> StreamOutcome:
        """What the stream has proven so far."""
        if self._recomputed:
            for number, what in self._differing:
                self._found.place = (number, "BlockStored")
                self._found.note(what)
            self._differing.clear()
        hashes = {h for copies in self._copies.values() for h, num in copies.items() if num}
        return StreamOutcome(
            header=self._header,
            num_messages=self._num_messages,
            num_events=dict(self._events),
            num_hashes=len(hashes),
            num_copies=self.num_copies,
            num_recomputed=self._recomputed,
            num_unproven_parents=self._unproven_parents,
            contradictions=tuple(self._found.found),
            num_contradictions=self._found.num_found,
            not_proven=tuple(self._not_proven()),
        )

    def _not_proven(self) -> Iterator[str]:
        if self._incomplete:
            yield "anything about blocks that a missing message may have stored or removed"
        if self._unproven_parents:
            yield (
                f"{self._unproven_parents} parents: they may be blocks that were stored without"
                " their hash, or in a message that is missing"
            )
        if not self._recomputed:
            yield "that hashes are those of the tokens: they are cut, or of an unknown algorithm"
        else:
            yield "the hashes of first blocks: what they hang on is not in the stream"
        if self._header.block_size is None:
            yield "more of block sizes than that each group has one: the header has no block_size"
        if self._header.num_blocks is None:
            yield "that no more blocks have a hash than there are: the header has no num_blocks"
        yield from NEVER_PROVEN


def _span(first: int, end: int) -> str:
    return f"{first} is" if end == first + 1 else f"{first} to {end - 1} are"
