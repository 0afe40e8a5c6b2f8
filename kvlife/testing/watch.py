"""Turns what an allocator's books show into facts, and tells them to an observer.

After each verb the books are read again. Keys that are gone were evicted, pages that are gone from
a request's table were let go if the free list or the counts say so, pages at its end were taken.
Nothing is assumed to have gone well: what the books do not show is not told, and the observer
says which fact cannot be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from kvlife.config import PoolConfig
from kvlife.engine import Observer
from kvlife.errors import KvLifeError
from kvlife.events import (
    Admitted,
    Allocated,
    Committed,
    Evicted,
    Pinned,
    Protected,
    Released,
    Resumed,
    Retracted,
    RolledBack,
    Unpinned,
)
from kvlife.events.arrays import NO_LINKS, ints
from kvlife.ledger import PageState
from kvlife.testing.adapter import ShowsTables
from kvlife.testing.books import BookReader, Books, Key
from kvlife.testing.deed import Deed
from kvlife.testing.disagreement import facts_of_disagreement


class ContractBroken(KvLifeError):
    """What no event can say: shared pages with other tokens, a refused verb that did something."""


class Watch:
    """Watches one allocator for one observer; tell it each verb that went through."""

    def __init__(self, adapter: ShowsTables, config: PoolConfig, observer: Observer) -> None:
        """Begin with a new allocator, whose pool is all free."""
        self.observer = observer
        self._reader = BookReader(adapter, config.num_pages)
        self._size = config.page_size
        self._before = self._reader.read(())
        self._tokens: dict[str, tuple[int, ...]] = {}
        # What each published page was published under, and what each key stands for.
        self._keys: dict[int, Key] = {}
        self._contents: dict[Key, tuple[int, ...]] = {}
        self._numbers: dict[Key, int] = {}

    def tell(self, deed: Deed) -> None:
        """Report what a verb did; raises `InvariantViolation` or `ContractBroken`."""
        self.observer.step += 1
        rid, tokens = deed.rid, deed.tokens
        gone = rid if rid is not None and tokens is None else None
        live = {other: held for other, held in self._tokens.items() if other != gone}
        if rid is not None and tokens is not None:
            live[rid] = tokens
        books = self._reader.read(live)
        if gone is not None:
            self._publish(gone, self._held(gone), self._tokens[gone], books)
            self._release(gone, deed.verb, books)
        if deed.verb == "unpin":
            self._unpin(deed)
        self._tokens = live
        self._evict(books, deed)
        for other, held in live.items():
            if other != rid:
                self._publish(other, books.tables[other], held, books)
        if rid is not None and tokens is not None:
            if rid not in self.observer.ledger.requests:
                self._admit(rid, tokens, self._hit_len(deed, books), books)
            self._resize(rid, tokens, books)
            self._publish(rid, books.tables[rid], tokens, books)
        if deed.verb == "pin":
            self._pin(deed)
        self._settle(rid, books)

    def tell_refusal(self, why: str) -> None:
        """Report that a verb was refused: the books must be what they were, evictions apart."""
        self.observer.step += 1
        before, books = self._before, self._reader.read(self._tokens)
        self._evict(books, Deed(verb="refused"))
        self._settle(None, books)
        if before.refs is None or books.refs is None:
            return
        for page in sorted(before.refs.keys() | books.refs.keys()):
            if before.refs[page] != books.refs[page]:
                self._break(
                    f"refused ({why}), and yet page {page}, held by {before.refs[page]}, is now"
                    f" held by {books.refs[page]}"
                )

    # -- one kind of fact each -------------------------------------------------------------

    def _release(self, rid: str, verb: str, books: Books) -> None:
        held = self._held(rid)
        pages = self._let_go(held, books)
        pages += self._let_go_by_mistake(held, books)
        row = self._row(rid)
        if verb in ("preempt", "back_up"):
            # Where it is kept, the books do not show.
            self.observer.observe(Retracted(rid, row, None, (ints(pages),)))
        else:
            ledger = self.observer.ledger
            whole = ledger.rows.committed[row] >= ledger.rows.prompt_len[row]
            reason = "finished" if verb == "free" and whole else "aborted"
            self.observer.observe(Released(rid, row, reason, (ints(pages),), ints(())))

    def _evict(self, books: Books, deed: Deed) -> None:
        evicted = [
            page
            for page, key in sorted(self._keys.items())
            if key not in books.keys.get(page, ()) or self._written_again(page, key, books, deed)
        ]
        if not evicted:
            return
        self.observer.observe(Evicted("pressure", (ints(evicted),)))
        for page in evicted:
            key = self._keys.pop(page)
            if key not in self._keys.values():
                del self._contents[key]

    def _written_again(self, page: int, key: Key, books: Books, deed: Deed) -> bool:
        """Whether an idle page was evicted, taken and published with the same tokens, at once."""
        who = [rid for rid, table in books.tables.items() if page in table]
        if who != [deed.rid] or self._is_held(page):
            return False
        idx, tokens = books.tables[who[0]].index(page), deed.tokens or ()
        known = who[0] in self.observer.ledger.requests
        known_len = len(self._held(who[0])) * self._size if known else deed.hit_len
        end = (idx + 1) * self._size
        return end > known_len and tokens[:end] == self._contents[key]

    def _admit(self, rid: str, tokens: tuple[int, ...], hit_len: int, books: Books) -> None:
        ledger = self.observer.ledger
        row = next(row for row in range(1, ledger.layout.num_rows) if not ledger.rows.state[row])
        pages = books.tables[rid][: -(-hit_len // self._size)]
        shared = (ints(pages),)
        if rid in ledger.waiting:
            none = (ints(()),)
            self.observer.observe(
                Resumed(rid, row, 0, len(tokens), hit_len, 0, (), shared, hit_len, none)
            )
        else:
            self.observer.observe(Admitted(rid, row, 0, len(tokens), hit_len, 0, (), shared))
        for idx, page in enumerate(pages):
            self._check_content(rid, page, tokens[: (idx + 1) * self._size])

    def _hit_len(self, deed: Deed, books: Books) -> int:
        """What a new request shares: what `admit` said, or the published pages of its parent."""
        if deed.parent is None or deed.rid is None:
            return deed.hit_len
        num = 0
        for page, other in zip(books.tables[deed.rid], books.tables[deed.parent], strict=False):
            if page != other or page not in self._keys:
                break
            num += 1
        return num * self._size

    def _resize(self, rid: str, tokens: tuple[int, ...], books: Books) -> None:
        ledger, row = self.observer.ledger, self._row(rid)
        held, length = self._held(rid), books.lens.get(rid, len(tokens))
        allocated, committed = int(ledger.rows.allocated[row]), int(ledger.rows.committed[row])
        rows, lens = ints([row]), ints([length])
        if length < allocated or len(tokens) < committed:
            gone = self._let_go(held[-(-length // self._size) :], books)
            done = ints([min(len(tokens), committed)])
            self.observer.observe(RolledBack(rows, lens, done, (ints(gone),), NO_LINKS))
        elif length > allocated or len(books.tables[rid]) > len(held):
            taken = self._taken(books.tables[rid], len(held), tokens, books)
            self.observer.observe(Allocated(rows, lens, (ints(taken),)))
        if len(tokens) > committed:
            self.observer.observe(Committed(rows, ints([len(tokens)])))

    def _publish(self, rid: str, table: list[int], tokens: tuple[int, ...], books: Books) -> None:
        """Tell the keys that pages of the request have now, up to the last one that has one."""
        row, held = self._row(rid), self._held(rid)
        first = int(self.observer.ledger.rows.protected[row]) // self._size
        keys: list[Key | None] = []
        links: list[tuple[int, int, int, int]] = []
        for idx in range(first, min(len(table), len(held))):
            page, own = table[idx], held[idx]
            if page != own:
                if page not in self._keys:
                    break
                links.append((0, idx, own, page))
            keys.append(self._key_of(page, books))
        while keys and keys[-1] is None:
            keys.pop()
        if not keys:
            return
        end = first + len(keys)
        numbers = np.array([self._number_of(key) for key in keys], np.uint64)
        rebinds = np.array([link for link in links if link[1] < end], np.int32).reshape(-1, 4)
        self.observer.observe(Protected(row, end * self._size, (numbers,), rebinds))
        for idx, key in enumerate(keys, first):
            if key is not None:
                self._keys[table[idx]] = key
                content = tokens[: (idx + 1) * self._size]
                self._contents.setdefault(key, content)
                self._check_content(rid, table[idx], content)

    def _pin(self, deed: Deed) -> None:
        pages = sorted(set(self._held(deed.rid or "")))
        assert deed.pin_id is not None  # the machine names each pin
        self.observer.observe(
            Pinned(deed.pin_id, "copy", writes=False, owner=None, group=0, pages=ints(pages))
        )

    def _unpin(self, deed: Deed) -> None:
        assert deed.pin_id is not None  # the machine names each pin
        pin = self.observer.ledger.pins[deed.pin_id]
        self.observer.observe(Unpinned(deed.pin_id, 0, pin.pages))

    def _settle(self, rid: str | None, books: Books) -> None:
        """Tell what the books show and no fact so far accounts for."""
        facts = facts_of_disagreement(self.observer.ledger, books, rid)
        for fact in facts:
            self.observer.observe(fact)
        if facts:
            raise ContractBroken(f"the allocator's books do not agree with the facts: {facts}")
        self._before = books

    # -- reading the books -----------------------------------------------------------------

    def _row(self, rid: str) -> int:
        return self.observer.ledger.requests[rid]

    def _held(self, rid: str) -> list[int]:
        pages: list[int] = self.observer.ledger.pages_of(self._row(rid), 0).tolist()
        return pages

    def _refs(self, page: int) -> int:
        return int(self.observer.ledger.spaces[0].refs[page])

    def _is_held(self, page: int) -> bool:
        return bool(self._refs(page) or self.observer.ledger.spaces[0].pins[page])

    def _let_go(self, pages: Sequence[int], books: Books) -> list[int]:
        """Each page as often as the allocator let it go."""
        return [page for page in pages for _ in range(self._times_let_go(page, books))]

    def _times_let_go(self, page: int, books: Books) -> int:
        space = self.observer.ledger.spaces[0]
        listed = books.free[page] - self._before.free[page]
        if listed > 0:
            # A page comes to the free list when its last holder has let go.
            return self._refs(page) + listed - 1
        private = space.state[page] == PageState.PRIVATE and self._refs(page) == 1
        if private and not space.pins[page]:
            return 0
        if books.refs is None or self._before.refs is None:
            return 1
        return max(self._before.refs[page] - books.refs[page], 0)

    def _let_go_by_mistake(self, held: list[int], books: Books) -> list[int]:
        """Pages that others hold, or that were free, and that came to the free list as well."""
        listed = sorted((books.free - self._before.free).elements())
        return [page for page in listed if page not in held and page not in self._keys]

    def _taken(
        self, table: list[int], start: int, tokens: tuple[int, ...], books: Books
    ) -> list[int]:
        """The pages that were taken for the table's end.

        Where the table has a page that others hold with the same tokens, a page was taken,
        published, and given back for that one, all in one verb: any page that is free stands in.
        """
        state = self.observer.ledger.spaces[0].state
        spare = sorted(page for page in books.free if state[page] == PageState.FREE)
        taken = []
        for idx, page in enumerate(table[start:], start):
            content = tokens[: (idx + 1) * self._size]
            shared = page in self._keys and self._contents[self._keys[page]] == content
            taken.append(spare.pop() if shared and self._is_held(page) and spare else page)
        return taken

    def _key_of(self, page: int, books: Books) -> Key | None:
        there = books.keys.get(page, set())
        known = self._keys.get(page)
        if known in there:
            return known
        return min(there, key=repr, default=None)

    def _number_of(self, key: Key | None) -> int:
        return 0 if key is None else self._numbers.setdefault(key, len(self._numbers) + 1)

    def _check_content(self, rid: str, page: int, tokens: tuple[int, ...]) -> None:
        there = self._contents[self._keys[page]]
        if there == tokens:
            return
        same = zip(there, tokens, strict=False)
        idx = next((n for n, (one, other) in enumerate(same) if one != other), len(there))
        self._break(
            f"request {rid!r} shares page {page} for {list(tokens)}, which holds {list(there)}:"
            f" token {idx} differs"
        )

    def _break(self, what: str) -> NoReturn:
        self.observer.mark(what)
        raise ContractBroken(what)
