"""A plain block allocator: ref-counted block tables, and hashes by which prefixes are shared.

It is what most serving engines have at their core, written to be read and to be broken: each rule
that it keeps is a method of a few lines, and the tests hold a gallery of allocators that get one of
them wrong.
"""

from __future__ import annotations

import hashlib

import attrs

from kvlife.errors import CommandRefused, UnknownRequest


@attrs.define
class Sequence:
    """A request: its tokens, and the blocks that they lie in."""

    tokens: list[int]
    table: list[int]


class BlockAllocator:
    """Blocks 1 to `num_blocks` of `block_size` tokens; block 0 is left to padded writes.

    A block is free, held (`num_refs` says by how many), or idle: published, held by nobody, and
    kept for the next request with the same prefix until a block is wanted and none is free.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.free_blocks = list(range(num_blocks, 0, -1))
        self.num_refs = [0] * (num_blocks + 1)
        self.idle: dict[int, None] = {}  # in the order in which they became idle
        self.block_of: dict[bytes, int] = {}
        self.hash_of: dict[int, bytes] = {}
        self.sequences: dict[str, Sequence] = {}
        self.pinned: dict[str, list[int]] = {}

    # -- what a scheduler asks for ---------------------------------------------------------

    def admit(self, rid: str, tokens: list[int]) -> int:
        """Begin a request; returns how many tokens were found in shared blocks."""
        shared = self._find(tokens)
        self._check_room(self._num_blocks(len(tokens)) - len(shared), keep=shared)
        for block in shared:
            self._hold(block)
        own = [self._take() for _ in range(self._num_blocks(len(tokens)) - len(shared))]
        self.sequences[rid] = Sequence(list(tokens), shared + own)
        return len(shared) * self.block_size

    def extend(self, rid: str, tokens: list[int]) -> None:
        """Blocks for more tokens."""
        sequence = self._sequence(rid)
        length = len(sequence.tokens) + len(tokens)
        wanted = self._num_blocks(length) - len(sequence.table)
        self._check_room(wanted)
        sequence.table += [self._take() for _ in range(wanted)]
        sequence.tokens += tokens

    def publish(self, rid: str) -> None:
        """Let others share the whole blocks; one that is known already gives way to that one."""
        sequence = self._sequence(rid)
        for idx, name in enumerate(self._hashes(sequence.tokens)):
            own, known = sequence.table[idx], self.block_of.get(name)
            if known is None:
                self.block_of[name], self.hash_of[own] = own, name
            elif known != own:
                self._rebind(sequence, idx, known)

    def roll_back(self, rid: str, length: int) -> None:
        """Cut the tail off above `length` tokens, which is not below what is published."""
        sequence = self._sequence(rid)
        kept = self._num_blocks(length)
        for block in sequence.table[kept:]:
            self._let_go(block)
        del sequence.table[kept:], sequence.tokens[length:]

    def fork(self, rid: str, child: str) -> None:
        """A child that shares the whole blocks, and has its own copy of the last, partial one."""
        parent = self._sequence(rid)
        whole = len(parent.tokens) // self.block_size
        self._check_room(len(parent.table) - whole)
        self.publish(rid)
        for block in parent.table[:whole]:
            self._hold(block)
        copies = [self._take() for _ in parent.table[whole:]]
        self.sequences[child] = Sequence(list(parent.tokens), parent.table[:whole] + copies)

    def free(self, rid: str) -> None:
        """End a request; the tail becomes idle first, so that it is evicted first."""
        for block in reversed(self._end(rid).table):
            self._let_go(block)

    def abort(self, rid: str) -> None:
        """End a request that has not come to its end."""
        self.free(rid)

    def preempt(self, rid: str) -> None:
        """Take a request's blocks away; it is admitted anew when there is room."""
        self.free(rid)

    def evict(self, num_blocks: int) -> None:
        """Make up to `num_blocks` idle blocks free."""
        for _ in range(min(num_blocks, len(self.idle))):
            self._evict_oldest()

    def reset(self) -> None:
        """Forget everything that is published; only while nothing is held."""
        if self.sequences or self.pinned:
            raise CommandRefused("requests or pins hold blocks: free them first")
        self.evict(len(self.idle))

    def pin(self, pin_id: str, rid: str) -> None:
        """Keep the blocks of a request while something outside reads them."""
        self.pinned[pin_id] = list(self._sequence(rid).table)
        for block in self.pinned[pin_id]:
            self._hold(block)

    def unpin(self, pin_id: str) -> None:
        """The reader is done."""
        for block in self.pinned.pop(pin_id):
            self._let_go(block)

    # -- the rules -------------------------------------------------------------------------

    def _sequence(self, rid: str) -> Sequence:
        if rid not in self.sequences:
            raise UnknownRequest(f"no request {rid!r}: admit it first")
        return self.sequences[rid]

    def _end(self, rid: str) -> Sequence:
        self._sequence(rid)
        return self.sequences.pop(rid)

    def _num_blocks(self, length: int) -> int:
        return -(-length // self.block_size)

    def _hashes(self, tokens: list[int]) -> list[bytes]:
        """The names of the whole blocks: each stands for all tokens up to the block's end."""
        names = [b""]
        for end in range(self.block_size, len(tokens) + 1, self.block_size):
            names.append(self._name(names[-1], tokens[end - self.block_size : end]))
        return names[1:]

    def _name(self, before: bytes, tokens: list[int]) -> bytes:
        """The hash of a block whose tokens follow the block named `before`."""
        return hashlib.blake2b(before + repr(tokens).encode(), digest_size=16).digest()

    def _find(self, tokens: list[int]) -> list[int]:
        """The shared blocks of a prompt, of which one token at least is left to compute."""
        found = []
        for name in self._hashes(tokens[:-1]):
            if name not in self.block_of:
                break
            found.append(self.block_of[name])
        return found

    def _check_room(self, wanted: int, keep: list[int] | None = None) -> None:
        """Refuse before anything is taken; idle blocks that are about to be held do not count."""
        there = len(self.free_blocks) + len(self.idle.keys() - set(keep or ()))
        if wanted > there:
            raise CommandRefused(f"{wanted} blocks asked for, {there} are free or idle")

    def _take(self) -> int:
        if not self.free_blocks:
            self._evict_oldest()
        block = self.free_blocks.pop()
        self.num_refs[block] = 1
        return block

    def _hold(self, block: int) -> None:
        self.idle.pop(block, None)
        self.num_refs[block] += 1

    def _let_go(self, block: int) -> None:
        self.num_refs[block] -= 1
        if self.num_refs[block] == 0:
            self._keep_or_free(block)

    def _keep_or_free(self, block: int) -> None:
        if block in self.hash_of:
            self.idle[block] = None
        else:
            self.free_blocks.append(block)

    def _evict_oldest(self) -> None:
        block = next(iter(self.idle))
        del self.idle[block]
        del self.block_of[self.hash_of.pop(block)]
        self.free_blocks.append(block)

    def _rebind(self, sequence: Sequence, idx: int, known: int) -> None:
        """Point the table at the block that others share, then let the own one go."""
        own = sequence.table[idx]
        self._hold(known)
        sequence.table[idx] = known
        self._let_go(own)
