"""Commands that look a prompt up and bind a request to a row: match, admit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvlife import transitions
from kvlife.engine.arguments import as_length
from kvlife.engine.core import EngineCore, command
from kvlife.engine.granting import Grant
from kvlife.engine.results import Admission, Hit
from kvlife.errors import BadArgument, BadLength, BadTokens, OutOfRows
from kvlife.events import Admitted, Event, PageLists, Resumed
from kvlife.ledger.spans import indices, span_of
from kvlife.prefix import Match, as_tokens
from kvlife.prefix.tokens import TokensLike

if TYPE_CHECKING:
    from kvlife.config import GroupLayout

I32 = npt.NDArray[np.int32]

# Names of namespaces that nobody uses are forgotten once there are so many.
_SPARE_NAMESPACES = 1024


def namespace_bytes(namespace: str | bytes | None) -> bytes:
    """A namespace as bytes; cache salts and adapters of one request are joined by the caller."""
    if namespace is None:
        return b""
    if isinstance(namespace, str):
        try:
            return namespace.encode()
        except UnicodeEncodeError as cause:
            raise BadArgument(f"namespace {namespace!r} is no text: {cause.reason}") from cause
    if isinstance(namespace, bytes):
        return namespace
    raise BadArgument(f"a namespace is a str, bytes or None, got {namespace!r}")


class AdmissionCommands(EngineCore):
    """match, admit."""

    @command
    def match(
        self, tokens: TokensLike, *, namespace: str | bytes | None = None, evict_floor: int = 0
    ) -> Hit:
        """Look a prompt up in the prefix index; changes nothing, recency included."""
        prompt = as_tokens(tokens)
        evict_floor = as_length("evict_floor", evict_floor, 0, self.ledger.layout.capacity)
        found = self._look_up(prompt, namespace_bytes(namespace), evict_floor)
        return Hit(found.hit_len, found.matched_len, found.pages)

    @command
    def admit(
        self,
        rid: str,
        tokens: TokensLike,
        *,
        namespace: str | bytes | None = None,
        evict_floor: int = 0,
    ) -> Admission:
        """Bind a request to a row and lock what its prompt hits.

        The last token is always computed again, so at most page_floor(len(tokens) - 1) is locked.
        `namespace` keeps prefixes apart (cache salt, adapter); [0, `evict_floor`) is never taken
        by a window. Raises `BadTokens`, `BadLength`, `DuplicateRequest`, `OutOfRows`.
        """
        rid, name = self._check_new(rid), namespace_bytes(namespace)
        prompt, floor = self._fitting(rid, tokens, evict_floor)
        match = self._look_up(prompt, name, floor)
        key = self._namespace_key(name)
        return self._bound(self._binding(rid, prompt, match, key, floor, Admitted), match)

    def _look_up(self, prompt: I32, namespace: bytes, evict_floor: int) -> Match:
        """What the index has of a prompt; of that, all but the last token may be locked."""
        limit = max(len(prompt) - 1, 0)
        return self._index.match(prompt, namespace, limit=limit, floor=evict_floor)

    def _fitting(self, rid: str, tokens: TokensLike, evict_floor: int) -> tuple[I32, int]:
        """The prompt and the floor of a request that a row is there for, checked."""
        ledger, prompt = self.ledger, as_tokens(tokens)
        if not len(prompt):
            raise BadTokens(f"the prompt of request {rid!r} is empty: give at least one token")
        if len(prompt) > ledger.layout.capacity:
            raise BadLength(
                f"the prompt of request {rid!r} has {len(prompt)} tokens, a row holds"
                f" {ledger.layout.capacity}: cut it, or raise max_context_len"
            )
        evict_floor = as_length("evict_floor", evict_floor, 0, ledger.layout.capacity)
        if not self._free_rows:
            raise OutOfRows(
                f"all {ledger.layout.num_rows - 1} rows are in use by {len(ledger.requests)}"
                f" requests and {len(ledger.sessions)} sessions: finish, retract or close one"
            )
        return prompt, evict_floor

    def _bound(
        self,
        event: Admitted | Resumed,
        match: Match,
        *,
        grant: Grant | None = None,
        pins: Sequence[Event] = (),
        why_recomputed: str | None = None,
    ) -> Admission:
        """Record that a row is bound, after what must be evicted for it and before these pins."""
        if grant is None:
            self._decide([event])
        else:
            self._decide([*grant.events, event, *pins], *grant.victims)
        self._free_rows.pop()
        self._index.touch(match.position, self.next_seq - 1)
        self._counts["admissions"] += 1
        self._counts["prompt_tokens"] += event.prompt_len
        self._counts["hit_tokens"] += match.hit_len
        committed = event.restored_len if isinstance(event, Resumed) else event.prefix_len
        return Admission(
            event.rid, event.row, match.hit_len, match.matched_len, committed, why_recomputed
        )

    def _namespace_key(self, namespace: bytes) -> int:
        if not namespace:
            return 0
        base = self.ledger.layout.groups[self.ledger.layout.base]
        key = self._keys[base.page_size].initial(b"name:" + namespace)
        if len(self._namespaces) >= self._most_namespaces:
            self._forget_namespaces()
        self._namespaces[key] = namespace
        return key

    def _forget_namespaces(self) -> None:
        """Keep those of requests that are there: each user may have a salt of their own."""
        used = set(self.ledger.rows.namespace.tolist())
        used.update(waiting.namespace for waiting in self.ledger.waiting.values())
        self._namespaces = {key: name for key, name in self._namespaces.items() if key in used}
        self._most_namespaces = 2 * len(self._namespaces) + _SPARE_NAMESPACES

    def _binding(
        self,
        rid: str,
        prompt: I32,
        match: Match,
        namespace: int,
        evict_floor: int,
        kind: type[Admitted | Resumed],
        cursors: tuple[int, ...] | None = None,
    ) -> Admitted | Resumed:
        """The event that binds a row; its windows begin where the prefix lets them, or at these."""
        prefix_len, row = match.matched_len, self._free_rows[-1]
        if cursors is None:
            cursors = tuple(
                transitions.cursor_bound(prefix_len, group.window or 1, group.page_size)
                for group in self.ledger.layout.window_groups
            )
        pages: PageLists = tuple(
            _referenced(group, found, evict_floor, cursors)
            for group, found in zip(self.ledger.layout.groups, match.pages, strict=True)
        )
        if kind is Admitted:
            return Admitted(
                rid, row, namespace, len(prompt), prefix_len, evict_floor, cursors, pages
            )
        return Resumed(
            rid,
            row,
            namespace,
            len(prompt),
            prefix_len,
            evict_floor,
            cursors,
            pages,
            prefix_len,
            self.ledger.no_pages,
        )


def _referenced(group: GroupLayout, found: I32, evict_floor: int, cursors: tuple[int, ...]) -> I32:
    """Of the pages of a hit, those that the row references: all, or a window's and the floor's."""
    if group.window_idx is None:
        return found
    size = group.page_size
    at = span_of(0, 0, found.size, -(-evict_floor // size), cursors[group.window_idx] // size)
    return found[indices(at)]
