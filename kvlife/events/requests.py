"""Events of a request's life, from admission to release."""

from __future__ import annotations

from typing import ClassVar

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events.fields import FieldKind, of

I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]
PageLists = tuple[I32, ...]


@attrs.define(eq=False)
class Admitted:
    """Binds a row; protected = committed = allocated = prefix_len; the prefix pages get a ref."""

    CODE: ClassVar[int] = 1

    rid: str = of(FieldKind.TEXT, "request id")
    row: int = of(FieldKind.ROW, "the row bound")
    namespace: int = of(FieldKind.U64, "keyed hash of the namespace, 0 for the default")
    prompt_len: int = of(FieldKind.LENGTH, "tokens of the prompt")
    prefix_len: int = of(FieldKind.LENGTH, "tokens found in the prefix index")
    evict_floor: int = of(FieldKind.LENGTH, "[0, floor) is never taken by a window")
    evicted_len: tuple[int, ...] = of(FieldKind.CURSORS, "the window cursors")
    pages: PageLists = of(FieldKind.PAGES, "prefix pages the row references, in table order")


@attrs.define(eq=False)
class Resumed:
    """Back from the waiting table: as Admitted, and pages restored from the host backup.

    All host pages of the backup are given back, whether anything is restored or not.
    """

    CODE: ClassVar[int] = 2

    rid: str = of(FieldKind.TEXT, "request id")
    row: int = of(FieldKind.ROW, "the row bound")
    namespace: int = of(FieldKind.U64, "keyed hash of the namespace, 0 for the default")
    prompt_len: int = of(FieldKind.LENGTH, "tokens of the prompt, with what was generated")
    prefix_len: int = of(FieldKind.LENGTH, "tokens found in the prefix index")
    evict_floor: int = of(FieldKind.LENGTH, "[0, floor) is never taken by a window")
    evicted_len: tuple[int, ...] = of(FieldKind.CURSORS, "the window cursors")
    pages: PageLists = of(FieldKind.PAGES, "prefix pages the row references, in table order")
    restored_len: int = of(FieldKind.LENGTH, "committed and allocated after the restore")
    restored: PageLists = of(FieldKind.PAGES, "FREE pages taken for [prefix, restored)")


@attrs.define(eq=False)
class Allocated:
    """Allocated lengths grow; FREE pages become PRIVATE."""

    CODE: ClassVar[int] = 3

    rows: I32 = of(FieldKind.ROWS, "the rows")
    allocated_len: I32 = of(FieldKind.LENGTHS, "their new allocated lengths")
    pages: PageLists = of(FieldKind.PAGES, "the pages taken, in row order")
    evicted_len: tuple[I32, ...] | None = of(
        FieldKind.CURSOR_ARRAYS, "new cursors where a window's front is skipped", default=None
    )


@attrs.define(eq=False)
class Committed:
    """Committed lengths grow: a result has confirmed the content."""

    CODE: ClassVar[int] = 4

    rows: I32 = of(FieldKind.ROWS, "the rows")
    committed_len: I32 = of(FieldKind.LENGTHS, "their new committed lengths")


@attrs.define(eq=False)
class Protected:
    """Publishes [old, new) protected: PRIVATE pages become CACHED, duplicates are rebound.

    `keys` covers the table entries of [old protected, new protected) of each group; 0 means that
    the entry is not published. A link is (group, table index, own page, canonical page).
    """

    CODE: ClassVar[int] = 5

    row: int = of(FieldKind.ROW, "the row")
    protected_len: int = of(FieldKind.LENGTH, "its new protected length")
    keys: tuple[U64, ...] = of(FieldKind.KEYS, "page keys, 0 = not published")
    rebinds: I32 = of(FieldKind.LINKS, "(group, table index, own page, canonical page)")


@attrs.define(eq=False)
class RolledBack:
    """The tails shrink; a shared page that would be written again is copied.

    A link is (group, row, shared page, new page).
    """

    CODE: ClassVar[int] = 6

    rows: I32 = of(FieldKind.ROWS, "the rows")
    allocated_len: I32 = of(FieldKind.LENGTHS, "their new allocated lengths")
    committed_len: I32 = of(FieldKind.LENGTHS, "their new committed lengths")
    pages: PageLists = of(FieldKind.PAGES, "the pages let go, in row order")
    copies: I32 = of(FieldKind.LINKS, "(group, row, shared page, new page)")


@attrs.define(eq=False)
class WindowEvicted:
    """The cursor of one window group moves; the pages between are let go."""

    CODE: ClassVar[int] = 7

    group: int = of(FieldKind.GROUP, "the window group")
    rows: I32 = of(FieldKind.ROWS, "the rows")
    evicted_len: I32 = of(FieldKind.LENGTHS, "their new cursors")
    pages: I32 = of(FieldKind.GROUP_PAGES, "the pages let go, in row order")


@attrs.define(eq=False)
class Released:
    """The request is gone: its row is unbound and lets go, or drains while steps are in flight.

    One that waits gives the host pages of its backup back.
    """

    CODE: ClassVar[int] = 8
    REASONS: ClassVar[tuple[str, ...]] = ("finished", "aborted", "lost")

    rid: str = of(FieldKind.TEXT, "request id")
    row: int | None = of(FieldKind.MAYBE_ROW, "its row, or None where it waited")
    reason: str = of(FieldKind.REASON, "finished, aborted or lost")
    pages: PageLists = of(FieldKind.PAGES, "the pages let go; none while in flight")
    host_pages: I32 = of(FieldKind.HOST_PAGES, "host pages of its backup given back")


@attrs.define(eq=False)
class Retracted:
    """The record moves to the waiting table, without a row.

    A backup takes FREE host pages, one for each page of [protected, committed) that the row
    references, in the order of the groups and in each of its page table.
    """

    CODE: ClassVar[int] = 9

    rid: str = of(FieldKind.TEXT, "request id")
    row: int = of(FieldKind.ROW, "its row")
    backup: I32 | None = of(FieldKind.MAYBE_HOST_PAGES, "host pages that hold its KV")
    pages: PageLists = of(FieldKind.PAGES, "the pages let go; none while in flight")
