"""Commands that publish and end requests: protect, finish, abort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.config import MAX_LEN
from kvlife.engine.arguments import as_id, as_length
from kvlife.engine.core import EngineCore, command
from kvlife.errors import BadLength, BadTokens, SessionBusy
from kvlife.events import Event, PageLists, Protected, Released, Unpinned
from kvlife.events.arrays import NO_LINKS
from kvlife.ledger import EMPTY
from kvlife.ledger.entries import row_entries
from kvlife.ledger.spans import indices
from kvlife.prefix import Extent, as_tokens
from kvlife.prefix.tokens import TokensLike

if TYPE_CHECKING:
    from kvlife.config import GroupLayout

I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]


@attrs.frozen(eq=False)
class Publication:
    """A decided publish: its event, and what the prefix index is told once it is recorded."""

    event: Protected
    extent: Extent
    tokens: I32
    pages: PageLists


class PublishingCommands(EngineCore):
    """protect, finish, abort."""

    @command
    def protect(self, rid: str, tokens: TokensLike) -> int:
        """Publish what is committed, in whole pages, and go on; returns the protected length.

        Pages that the index has already are rebound to the canonical ones. A session's row
        publishes in its first turn only; later its protected length stays as it is. Raises
        `BadTokens` where the tokens contradict what the row has published.
        """
        row = self._row(rid)
        publication = self._publication(rid, row, as_tokens(tokens), None)
        if publication is not None:
            self._publish([publication.event], publication)
        return int(self.ledger.rows.protected[row])

    @command
    def finish(self, rid: str, tokens: TokensLike, keep_len: int | None = None) -> int:
        """Publish page_floor(min(len(tokens), committed, keep_len)) and release the request.

        `keep_len` publishes only a part, such as an answer without its reasoning, never less than
        is published already. Returns the published length. Refused before the whole prompt is
        committed (abort it), and on a session's row (save it).
        """
        row = self._row(rid)
        session = self.ledger.rows.session[row]
        if session is not None:
            raise SessionBusy(f"request {rid!r} runs on session {session!r}: session_save it")
        committed, prompt_len = (
            int(column[row]) for column in (self.ledger.rows.committed, self.ledger.rows.prompt_len)
        )
        if committed < prompt_len:
            raise BadLength(
                f"request {rid!r} cannot finish with {committed} of {prompt_len} prompt tokens"
                " committed: commit the rest, or abort it"
            )
        if keep_len is not None:
            keep_len = as_length("keep_len", keep_len, 0, MAX_LEN)
        publication = self._publication(rid, row, as_tokens(tokens), keep_len)
        published = int(self.ledger.rows.protected[row])
        events: list[Event] = []
        rebinds = NO_LINKS
        if publication is not None:
            events.append(publication.event)
            published, rebinds = publication.event.protected_len, publication.event.rebinds
        events += self._release(rid, row, "finished", rebinds)
        self._publish(events, publication)
        self._after_row(row)
        self._counts["finished"] += 1
        return published

    @command
    def abort(self, rid: str) -> None:
        """End a request whatever it is doing; what is in flight drains first.

        One that waits gives the host pages of its backup back.
        On a session's row the session's KV goes with it. An id that was never admitted is
        remembered, and later commands for it are refused.
        """
        rid = as_id("a request id", rid)
        ledger, row = self.ledger, self.ledger.requests.get(rid)
        waiting = ledger.waiting.get(rid)
        if row is not None:
            self._decide(self._release(rid, row, "aborted"))
            self._after_row(row)
        elif waiting is not None:
            host = EMPTY if waiting.backup is None else waiting.backup
            event = Released(rid, None, "aborted", ledger.no_pages, host)
            self._decide([*self._owned_pins(rid), event])
        else:
            self._remember_aborted(rid)
            return
        self._counts["aborts"] += 1

    def _publication(
        self, rid: str, row: int, tokens: I32, keep_len: int | None
    ) -> Publication | None:
        """Decide what a row publishes of these tokens; None where nothing is new."""
        rows, align = self.ledger.rows, self.ledger.layout.align
        protected, committed = int(rows.protected[row]), int(rows.committed[row])
        upto = min(len(tokens), committed, committed if keep_len is None else keep_len)
        upto = max(transitions.page_floor(upto, align), protected)
        session = rows.session[row]
        if session is not None and self.ledger.sessions[session].num_turns:
            upto = protected
        if len(tokens) < protected:
            raise BadTokens(
                f"request {rid!r} has published {protected} tokens, only {len(tokens)} were given:"
                " give all of its tokens from the start"
            )
        namespace = self._namespaces.get(int(rows.namespace[row]), b"")
        extent = self._index.extent(tokens, namespace, upto_len=upto)
        tables = [self._row_table(row, group, upto) for group in self.ledger.layout.groups]
        self._check_same_tokens(rid, tables, extent, protected)
        if upto == protected:
            return None
        units = self._unit_keys(tokens[:upto], namespace, protected, tables)
        keys, links = [], []
        for group, held in zip(self.ledger.layout.groups, tables, strict=True):
            if self.ledger.pins:
                new = held[protected // group.page_size :]
                self._refuse_written(group.idx, new, "published")
            keys.append(_page_keys(units, held[protected // group.page_size :]))
            links.append(_rebinds(group, held, extent, protected))
        return Publication(
            Protected(row, upto, tuple(keys), np.concatenate(links)),
            extent,
            tokens[:upto],
            tuple(tables),
        )

    def _check_same_tokens(
        self, rid: str, tables: list[I32], extent: Extent, protected: int
    ) -> None:
        """The pages that these tokens have in the index are those that the row has published."""
        for group, held in zip(self.ledger.layout.groups, tables, strict=True):
            published = held[: protected // group.page_size]
            found = extent.pages[group.idx][: published.size]
            if found.tobytes() == published.tobytes():
                continue
            there = np.zeros_like(published)
            there[: found.size] = found
            # Of what a window has let go, only the caller knows the tokens.
            differing = np.flatnonzero((published != 0) & (there != published))
            if differing.size:
                raise BadTokens(
                    f"tokens of request {rid!r} differ from what it published at token"
                    f" {int(differing[0]) * group.page_size} or soon after: give the tokens that"
                    " its KV was computed from"
                )

    def _publish(self, events: list[Event], publication: Publication | None) -> None:
        self._decide(events)
        if publication is None:
            return
        self._index.insert(
            publication.extent, publication.tokens, publication.pages, self.next_seq - 1
        )

    def _row_table(self, row: int, group: GroupLayout, upto: int) -> I32:
        base = row * group.table_width
        return self.ledger.tables[group.idx][base : base + upto // group.page_size].copy()

    def _unit_keys(self, tokens: I32, namespace: bytes, protected: int, tables: list[I32]) -> U64:
        """Keys of the units of `tokens` above protected, chained to those before."""
        layout = self.ledger.layout
        namer, first = self._keys[layout.align], protected // layout.align
        if not first:
            return namer.extend(tokens, namer.initial(namespace))
        for group, held in zip(layout.groups, tables, strict=True):
            if group.page_size == layout.align and held[first - 1]:
                key = self.ledger.spaces[group.space_idx].key[held[first - 1]]
                return namer.extend(tokens[protected:], int(key))
        return namer.extend(tokens, namer.initial(namespace))[first:]

    def _row_pages(self, row: int, rebinds: I32 = NO_LINKS) -> PageLists:
        """The pages a row lets go when it goes after these rebinds, in table order.

        While steps in flight read it these are none: it drains.
        """
        ledger = self.ledger
        if ledger.rows.in_flight[row] > 0:
            return ledger.no_pages
        at = row_entries(ledger, row, 0, int(ledger.rows.allocated[row]))
        pages = ledger.pages_at(at)
        for group in ledger.layout.groups if rebinds.size else ():
            links = rebinds[rebinds[:, 0] == group.idx]
            entries = links[:, 1].astype(np.intp) + row * group.table_width
            pages[group.idx][np.searchsorted(indices(at[group.idx]), entries)] = links[:, 3]
        return pages

    def _owned_pins(self, rid: str) -> list[Event]:
        return [
            Unpinned(pin_id, pin.group, pin.pages)
            for pin_id, pin in self.ledger.pins.items()
            if pin.owner == rid
        ]

    def _release(self, rid: str, row: int, reason: str, rebinds: I32 = NO_LINKS) -> list[Event]:
        pages = self._row_pages(row, rebinds)
        return [*self._owned_pins(rid), Released(rid, row, reason, pages, EMPTY)]

    def _after_row(self, row: int) -> None:
        """A row that became FREE can be bound again; a DRAINING one has to settle first."""
        if self.ledger.rows.rid[row] is None and self.ledger.rows.in_flight[row] == 0:
            self._free_rows.append(row)


def _page_keys(units: U64, held: I32) -> U64:
    """Keys of a group's pages of these units; 0 where the row references none.

    The index finds units, so a page smaller than one is named by its unit and its place in it: two
    units that begin alike have pages of their own. A key times an odd number is never 0.
    """
    per_unit = held.size // max(units.size, 1)
    keys = units.copy()
    if per_unit > 1:
        keys = np.multiply.outer(units, np.arange(1, 2 * per_unit, 2, dtype=np.uint64)).ravel()
    missing = held == 0
    if missing.any():
        keys[missing] = 0
    return keys


def _rebinds(group: GroupLayout, held: I32, extent: Extent, protected: int) -> I32:
    """Links for entries of [protected, found) where the index has another page than the row."""
    first = protected // group.page_size
    canonical = extent.pages[group.idx][first - extent.start_len // group.page_size :]
    if not canonical.size:
        return NO_LINKS
    own = held[first : first + canonical.size]
    canonical = canonical[: own.size]
    differing = np.flatnonzero((own != canonical) & (own != 0) & (canonical != 0))
    if not differing.size:
        return NO_LINKS
    links = np.empty((differing.size, 4), np.int32)
    links[:, 0] = group.idx
    links[:, 1] = differing + first
    links[:, 2] = own[differing]
    links[:, 3] = canonical[differing]
    return links
