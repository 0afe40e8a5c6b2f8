"""Finds the child of a node by the tokens of its first unit, without an object per child."""

import numpy as np
import numpy.typing as npt

MIN_SLOTS = 64
TAG_BITS = 32
NODE_MASK = (1 << TAG_BITS) - 1


def tag_of(parent: int, first_unit: bytes) -> int:
    """Hash a child's key to 32 bits; the tokens' hash is keyed by the interpreter."""
    return hash((parent, first_unit)) & NODE_MASK


class ChildTable:
    """An open-addressing table of entries `tag << 32 | node`, 0 where a slot is empty.

    The candidates for a tag lie from slot `tag * num_homes >> TAG_BITS` on, up to the first empty
    one; who looks up reads `entry_at` there and compares the tokens. The home slot grows with the
    tag, so a rehash is one sort, and a removal closes the gap (no tombstones).
    """

    def __init__(self) -> None:
        """Make an empty table."""
        self.clear()

    def clear(self) -> None:
        """Drop all entries and give the memory back."""
        self.num_entries = 0
        self._place(np.zeros(0, np.uint64), MIN_SLOTS)

    def add(self, tag: int, node: int) -> None:
        """Add a child; the caller knows that its key is new."""
        if self.num_entries * 10 >= self.num_homes * 7:
            self._rehash(self.num_homes + self.num_homes // 4)
        slot = tag * self.num_homes >> TAG_BITS
        while self.entry_at[slot]:
            slot += 1
        self.entry_at[slot] = tag << TAG_BITS | node
        self.num_entries += 1
        if slot >= len(self.entry_at) - 2:
            # The last slot stays empty: it is what ends a search without wrapping around.
            self._rehash(self.num_homes + self.num_homes // 4)

    def replace(self, tag: int, node: int, other: int) -> None:
        """Let the key of `node` lead to `other`."""
        self.entry_at[self._slot_of(tag, node)] = tag << TAG_BITS | other

    def remove(self, tag: int, node: int) -> None:
        """Forget a child, and shrink the table where it has become far too large."""
        entry_at, num_homes = self.entry_at, self.num_homes
        gap = slot = self._slot_of(tag, node)
        slot += 1
        while entry := entry_at[slot]:
            home = (entry >> TAG_BITS) * num_homes >> TAG_BITS
            if home <= gap:
                entry_at[gap] = entry
                gap = slot
            slot += 1
        entry_at[gap] = 0
        self.num_entries -= 1
        if num_homes > MIN_SLOTS and self.num_entries * 8 < num_homes:
            self._rehash(max(MIN_SLOTS, num_homes // 2))

    def _slot_of(self, tag: int, node: int) -> int:
        slot = tag * self.num_homes >> TAG_BITS
        wanted = tag << TAG_BITS | node
        while self.entry_at[slot] != wanted:
            slot += 1
        return slot

    def _rehash(self, num_homes: int) -> None:
        entries = np.frombuffer(self.entry_at, np.uint64)
        self._place(np.sort(entries[entries != 0]), num_homes)

    def _place(self, ordered: npt.NDArray[np.uint64], num_homes: int) -> None:
        # Each entry goes to its home, or right after the one before it where that is taken.
        tags = ordered >> np.uint64(TAG_BITS)
        homes = (tags * np.uint64(num_homes) >> np.uint64(TAG_BITS)).astype(np.int64)
        ranks = np.arange(len(ordered))
        slots = np.maximum.accumulate(homes - ranks) + ranks if len(ordered) else ranks
        last = int(slots[-1]) if len(ordered) else 0
        entries = np.zeros(max(num_homes, last + 1) + MIN_SLOTS, np.uint64)
        entries[slots] = ordered
        self.num_homes = num_homes
        self.entry_at = entries.data
