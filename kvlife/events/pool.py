"""Events of the cache, of sessions, steps and pins, and of the log itself."""

from __future__ import annotations

from typing import ClassVar

import attrs

from kvlife.events.fields import FieldKind, of
from kvlife.events.requests import I32, U64, PageLists


@attrs.define(eq=False)
class Evicted:
    """CACHED pages without refs or pins become FREE."""

    CODE: ClassVar[int] = 10
    REASONS: ClassVar[tuple[str, ...]] = ("pressure", "flush", "resize")

    reason: str = of(FieldKind.REASON, "pressure, flush or resize")
    pages: PageLists = of(FieldKind.PAGES, "the pages evicted")


@attrs.define(eq=False)
class SessionSaved:
    """The row passes from the request to its session; the tail above `kept_len` is let go."""

    CODE: ClassVar[int] = 11

    session_id: str = of(FieldKind.TEXT, "session id")
    rid: str = of(FieldKind.TEXT, "request id")
    row: int = of(FieldKind.ROW, "the row")
    kept_len: int = of(FieldKind.LENGTH, "tokens kept; committed must equal it")
    pages: PageLists = of(FieldKind.PAGES, "the pages of the tail let go")


@attrs.define(eq=False)
class SessionRestored:
    """The row passes to the next turn's request; a rewind lets the tail go.

    A rewind below protected lowers protected to `kept_len`, which is then whole pages.
    """

    CODE: ClassVar[int] = 12

    session_id: str = of(FieldKind.TEXT, "session id")
    rid: str = of(FieldKind.TEXT, "request id")
    row: int = of(FieldKind.ROW, "the row")
    kept_len: int = of(FieldKind.LENGTH, "tokens kept")
    prompt_len: int = of(FieldKind.LENGTH, "tokens of the turn's whole prompt")
    pages: PageLists = of(FieldKind.PAGES, "the pages of the tail let go")


@attrs.define(eq=False)
class SessionClosed:
    """An idle session lets its row and pages go; one in a turn is forgotten."""

    CODE: ClassVar[int] = 13

    session_id: str = of(FieldKind.TEXT, "session id")
    row: int | None = of(FieldKind.MAYBE_ROW, "its row where it is idle")
    pages: PageLists = of(FieldKind.PAGES, "the pages let go; none while in flight or in a turn")


@attrs.define(eq=False)
class StepDispatched:
    """A step that reads and writes these rows was handed to the device."""

    CODE: ClassVar[int] = 14

    step: int = of(FieldKind.COUNT, "step number")
    rows: I32 = of(FieldKind.ROWS, "the rows in it")


@attrs.define(eq=False)
class StepSettled:
    """The step's result is in; rows that drained with it let their pages go."""

    CODE: ClassVar[int] = 15

    step: int = of(FieldKind.COUNT, "step number")
    drained: I32 = of(FieldKind.ROWS, "DRAINING rows whose last step this was")
    pages: PageLists = of(FieldKind.PAGES, "the pages they let go, in row order")


@attrs.define(eq=False)
class Pinned:
    """Something outside the ledger reads or writes these pages."""

    CODE: ClassVar[int] = 16

    pin_id: str = of(FieldKind.TEXT, "pin id")
    kind: str = of(FieldKind.TEXT, "what it is: copy, transfer, store, ...")
    writes: bool = of(FieldKind.FLAG, "whether it writes")
    owner: str | None = of(FieldKind.MAYBE_TEXT, "request it ends with, or None")
    group: int = of(FieldKind.GROUP, "cache group")
    pages: I32 = of(FieldKind.GROUP_PAGES, "the pages, each once")


@attrs.define(eq=False)
class Unpinned:
    """The pin is gone; a QUARANTINED page whose last pin it was becomes FREE."""

    CODE: ClassVar[int] = 17

    pin_id: str = of(FieldKind.TEXT, "pin id")
    group: int = of(FieldKind.GROUP, "cache group")
    pages: I32 = of(FieldKind.GROUP_PAGES, "the pages, each once")


@attrs.define(eq=False)
class Resized:
    """A page space grows or shrinks; only FREE pages go."""

    CODE: ClassVar[int] = 18

    space: int = of(FieldKind.SPACE, "page space")
    num_pages: int = of(FieldKind.COUNT, "pages after it, the reserved one included")


@attrs.define(eq=False)
class Marked:
    """A note; an idle mark asks for idle-no-leak."""

    CODE: ClassVar[int] = 19

    text: str = of(FieldKind.TEXT, "the note")
    idle: bool = of(FieldKind.FLAG, "whether the pools should hold nothing but cache")


@attrs.define(eq=False)
class Violated:
    """Ends a run under the policy raise: what was found, and whether its event was applied."""

    CODE: ClassVar[int] = 20

    seq: int = of(FieldKind.COUNT, "seq of the faulty event")
    invariant: str = of(FieldKind.TEXT, "id of the invariant")
    applied: bool = of(FieldKind.FLAG, "whether the event was applied")


@attrs.define(eq=False)
class Digested:
    """What these wholly committed pages held when the digests were taken; changes no state.

    Written where the contents of pages are checked, behind the event that completed the pages.
    """

    CODE: ClassVar[int] = 27

    group: int = of(FieldKind.GROUP, "cache group")
    pages: I32 = of(FieldKind.GROUP_PAGES, "the pages, each once")
    digests: U64 = of(FieldKind.DIGESTS, "their 64-bit digests, all layers")
