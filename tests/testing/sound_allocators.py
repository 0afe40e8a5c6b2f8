"""Allocators of other makings, all of them sound, each with the adapter that shows its books."""

from collections import OrderedDict

from kvlife.errors import CommandRefused
from kvlife.testing import BlockAllocator, BlockAllocatorAdapter


class NoRoom(Exception):
    """An error of an allocator's own."""


class ListAllocator:
    """Pages 0 to n - 1 from a list; nothing is shared, and requests only grow and end."""

    refusals = (NoRoom,)

    def __init__(self, config):
        self._size = config.page_size
        self._free = list(range(config.num_pages - 1))
        self._tables, self._lens = {}, {}

    def admit(self, rid, tokens):
        self._tables[rid], self._lens[rid] = [], 0
        try:
            self.extend(rid, tokens)
        except NoRoom:
            del self._tables[rid], self._lens[rid]
            raise

    def extend(self, rid, tokens):
        length = self._lens[rid] + len(tokens)
        need = -(-length // self._size) - len(self._tables[rid])
        if need > len(self._free):
            raise NoRoom
        self._tables[rid] += [self._free.pop() for _ in range(need)]
        self._lens[rid] = length

    def free(self, rid):
        self._free += self._tables.pop(rid)
        del self._lens[rid]

    def table(self, rid):
        return self._tables[rid]

    def free_pages(self):
        return self._free


class AheadAllocator(ListAllocator):
    """Takes pages for tokens that are not there yet: one page ahead, as a speculative step does."""

    def extend(self, rid, tokens):
        length = self._lens[rid] + len(tokens)
        need = -(-length // self._size) + 1 - len(self._tables[rid])
        if need > len(self._free):
            raise NoRoom
        self._tables[rid] += [self._free.pop() for _ in range(need)]
        self._lens[rid] = length

    def allocated_len(self, rid):
        return len(self._tables[rid]) * self._size


class QueueBlocks:
    """One queue of free blocks, hashed ones among them; a block is hashed when it is full.

    Duplicates stay under one hash, and a hashed block is forgotten when it is handed out: the way
    of vLLM. The first block of the pool is 0.
    """

    def __init__(self, config):
        self._size = config.page_size
        self._queue = OrderedDict.fromkeys(range(config.num_pages - 1))
        self._refs, self._hash_of, self._blocks_of = {}, {}, {}
        self._tables, self._tokens = {}, {}

    def admit(self, rid, tokens):
        shared = []
        for end in range(self._size, len(tokens), self._size):
            blocks = self._blocks_of.get(tuple(tokens[:end]))
            if not blocks:
                break
            shared.append(min(blocks))
        need = -(-len(tokens) // self._size) - len(shared)
        if need > len(self._queue.keys() - set(shared)):
            raise CommandRefused("no blocks")
        for block in shared:
            self._queue.pop(block, None)
            self._refs[block] = self._refs.get(block, 0) + 1
        self._tables[rid], self._tokens[rid] = list(shared), list(tokens)
        self._grow(rid, need)
        return len(shared) * self._size

    def extend(self, rid, tokens):
        length = len(self._tokens[rid]) + len(tokens)
        need = -(-length // self._size) - len(self._tables[rid])
        if need > len(self._queue):
            raise CommandRefused("no blocks")
        self._tokens[rid] += tokens
        self._grow(rid, need)

    def _grow(self, rid, need):
        table, tokens = self._tables[rid], self._tokens[rid]
        for _ in range(need):
            block, _ = self._queue.popitem(last=False)
            if block in self._hash_of:
                self._blocks_of[self._hash_of.pop(block)].discard(block)
            self._refs[block] = 1
            table.append(block)
        for idx in range(len(tokens) // self._size):
            if table[idx] not in self._hash_of:
                name = tuple(tokens[: (idx + 1) * self._size])
                self._hash_of[table[idx]] = name
                self._blocks_of.setdefault(name, set()).add(table[idx])

    def free(self, rid):
        del self._tokens[rid]
        for block in reversed(self._tables.pop(rid)):
            self._refs[block] -= 1
            if not self._refs[block]:
                self._queue[block] = None

    preempt = free

    def reset(self):
        if self._tables:
            raise CommandRefused("requests are live")
        self._hash_of.clear()
        self._blocks_of.clear()

    def table(self, rid):
        return self._tables[rid]

    def free_pages(self):
        return list(self._queue)

    def published(self):
        return [(name, block) for block, name in self._hash_of.items()]


class LiveSharing:
    """Pages are shared among live requests only: with its last holder a page is forgotten."""

    def __init__(self, config):
        self._size = config.page_size
        self._free = list(range(1, config.num_pages))
        self._refs, self._page_of, self._tables = {}, {}, {}

    def admit(self, rid, tokens):
        names = [tuple(tokens[:end]) for end in range(self._size, len(tokens) + 1, self._size)]
        hits = 0
        while hits < len(names) and names[hits] in self._page_of:
            hits += 1
        need = -(-len(tokens) // self._size) - hits
        if need > len(self._free):
            raise CommandRefused("no pages")
        table = [self._page_of[name] for name in names[:hits]]
        table += [self._free.pop() for _ in range(need)]
        for page in table:
            self._refs[page] = self._refs.get(page, 0) + 1
        self._page_of.update(zip(names, table, strict=False))
        self._tables[rid] = table
        return hits * self._size

    def free(self, rid):
        for page in self._tables.pop(rid):
            self._refs[page] -= 1
            if not self._refs[page]:
                self._free.append(page)
                self._page_of = {n: p for n, p in self._page_of.items() if p != page}

    def table(self, rid):
        return self._tables[rid]

    def free_pages(self):
        return self._free

    def published(self):
        return self._page_of.items()


class EagerBlocks(BlockAllocator):
    """Publishes at once what is full, so that a duplicate is given back before anyone sees it."""

    def admit(self, rid, tokens):
        found = super().admit(rid, tokens)
        self.publish(rid)
        return found

    def extend(self, rid, tokens):
        super().extend(rid, tokens)
        self.publish(rid)


class EagerAdapter(BlockAllocatorAdapter, EagerBlocks):
    """The adapter of `EagerBlocks`."""
