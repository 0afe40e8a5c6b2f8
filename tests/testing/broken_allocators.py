"""Block allocators that each get one thing wrong: kinds of faults that serving engines have had.

Each class overrides what its fault needs and nothing else. `test_gallery` holds for each the
smallest program that shows it, and which invariant that program breaks.
"""

from kvlife.errors import CommandRefused
from kvlife.testing import BlockAllocator, BlockAllocatorAdapter


class LeaksTheTail(BlockAllocator):
    """A release counts whole blocks, so the last, partial one is never given back."""

    def free(self, rid):
        sequence = self._end(rid)
        for block in sequence.table[: len(sequence.tokens) // self.block_size]:
            self._let_go(block)


class RecomputesTheLength(BlockAllocator):
    """A release works out the length again, as prompt and output less the last token."""

    def free(self, rid):
        sequence = self._end(rid)
        for block in sequence.table[: self._num_blocks(len(sequence.tokens) - 1)]:
            self._let_go(block)


class FreesTwice(BlockAllocator):
    """The abort gives the blocks back, and then calls the release, which does so again."""

    def abort(self, rid):
        self.free_blocks += self._sequence(rid).table
        self.free(rid)


class MissesTheUnlock(BlockAllocator):
    """A release takes published blocks for the cache's own, and does not let them go."""

    def free(self, rid):
        for block in reversed(self._end(rid).table):
            if block not in self.hash_of:
                self._let_go(block)


class EvictsTheHeld(BlockAllocator):
    """An eviction takes the oldest published blocks, whoever holds them."""

    def evict(self, num_blocks):
        for block in list(self.hash_of)[:num_blocks]:
            self.idle[block] = None
            self._evict_oldest()


class FlushesTheHeld(BlockAllocator):
    """A reset takes every published block back, without a look at who is live."""

    def reset(self):
        for block in list(self.hash_of):
            self.idle[block] = None
            self._evict_oldest()


class ForgetsOnReset(BlockAllocator):
    """A reset forgets the hashes, and the idle blocks with them."""

    def reset(self):
        if self.sequences or self.pinned:
            raise CommandRefused("requests or pins hold blocks")
        self.block_of.clear()
        self.hash_of.clear()
        self.idle.clear()


class ForgetsTheGrant(BlockAllocator):
    """An extension takes blocks, and does not write them into the table."""

    def extend(self, rid, tokens):
        sequence = self._sequence(rid)
        wanted = self._num_blocks(len(sequence.tokens) + len(tokens)) - len(sequence.table)
        self._check_room(wanted)
        for _ in range(wanted):
            self._take()
        sequence.tokens += tokens


class KeepsTheHashOfTheEvicted(BlockAllocator):
    """An evicted block can still be looked up, and is matched when it holds something else."""

    def _evict_oldest(self):
        block = next(iter(self.idle))
        del self.idle[block]
        self.free_blocks.append(block)


class KeepsTheHashOfTheFreed(BlockAllocator):
    """A published block goes to the free list like any other, and its hash stays."""

    def _keep_or_free(self, block):
        self.free_blocks.append(block)


class ForgetsToRebind(BlockAllocator):
    """A duplicate is given back while the table goes on naming it."""

    def _rebind(self, sequence, idx, known):
        self._hold(known)
        self._let_go(sequence.table[idx])


class RebindsWithoutLettingGo(BlockAllocator):
    """A duplicate leaves the table, and nobody gives it back."""

    def _rebind(self, sequence, idx, known):
        self._hold(known)
        sequence.table[idx] = known


class KeepsAStaleTable(BlockAllocator):
    """A roll-back gives the tail's blocks back, and leaves them in the table."""

    def roll_back(self, rid, length):
        sequence = self._sequence(rid)
        for block in sequence.table[self._num_blocks(length) :]:
            self._let_go(block)
        del sequence.tokens[length:]


class SharesTheTail(BlockAllocator):
    """A fork shares the partial block as well, which both go on to write."""

    def fork(self, rid, child):
        self.publish(rid)
        parent = self._sequence(rid)
        for block in parent.table:
            self._hold(block)
        self.sequences[child] = type(parent)(list(parent.tokens), list(parent.table))


class ForksWithoutCounting(BlockAllocator):
    """A fork shares blocks, and their counts stay below their holders."""

    def fork(self, rid, child):
        super().fork(rid, child)
        for block in self.sequences[child].table:
            if self.num_refs[block] > 1:
                self.num_refs[block] -= 1


class LeavesHitsEvictable(BlockAllocator):
    """A block that is hit is counted, and stays in line for eviction."""

    def _hold(self, block):
        self.num_refs[block] += 1


class HandsOutTwice(BlockAllocator):
    """A block that is taken stays in the free list."""

    def _take(self):
        block = super()._take()
        self.free_blocks.append(block)
        return block


class AdmitsByHalves(BlockAllocator):
    """An admission takes block after block, and keeps them when there is no other."""

    def _check_room(self, wanted, keep=None):
        pass

    def _evict_oldest(self):
        if not self.idle:
            raise CommandRefused("no block is free")
        super()._evict_oldest()


class HashesNoTokens(BlockAllocator):
    """A block is named by its place alone, so that prompts of one length look alike."""

    def _name(self, before, tokens):
        return super()._name(before, [0] * len(tokens))


class PublishesThePartial(BlockAllocator):
    """The length that is published is rounded up to a block, not down."""

    def _hashes(self, tokens):
        return super()._hashes(tokens + [0] * (-len(tokens) % self.block_size))


class FreesUnderThePin(BlockAllocator):
    """A copy in flight is noted, and its blocks are not held."""

    def pin(self, pin_id, rid):
        self._sequence(rid)
        self.pinned[pin_id] = []


class KeepsABlockOfThePreempted(BlockAllocator):
    """A preemption keeps the block that was being written, and nobody remembers it."""

    def preempt(self, rid):
        for block in self._end(rid).table[:-1]:
            self._let_go(block)


class FreesTheOldTable(BlockAllocator):
    """A request that comes back from a preemption has its old blocks given back once more."""

    def __init__(self, num_blocks, block_size):
        super().__init__(num_blocks, block_size)
        self.old_tables = {}

    def preempt(self, rid):
        self.old_tables[rid] = list(self._sequence(rid).table)
        super().preempt(rid)

    def admit(self, rid, tokens):
        found = super().admit(rid, tokens)
        self.free_blocks += self.old_tables.pop(rid, [])
        return found


def adapter_of(allocator_type):
    """The adapter of a broken allocator: the look at the books is the sound one's."""
    bases = (BlockAllocatorAdapter, allocator_type)
    return type(f"{allocator_type.__name__}Adapter", bases, {})
