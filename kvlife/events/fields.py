"""What the fields of events are made of: one vocabulary for checking, coding, docs and printing."""

from __future__ import annotations

import enum
from typing import Any

import attrs

_KIND = "kvlife.kind"
_DOC = "kvlife.doc"


class FieldKind(enum.Enum):
    """The shape of one field; `check_structure` and the log's codec both go by it.

    Arrays are one-dimensional and read-only. `PAGES` and `KEYS` are tuples with one array for each
    cache group, `CURSORS` one int for each window group, `CURSOR_ARRAYS` one array (as long as
    `rows`) for each window group or None where no cursor moves. `LINKS` is an int32 array (n, 4).
    """

    TEXT = "str"
    MAYBE_TEXT = "str or None"
    REASON = "one of the event's reasons"
    FLAG = "bool"
    COUNT = "int in [0, 2^63)"
    U64 = "int in [0, 2^64)"
    LENGTH = "int32"
    ROW = "row"
    MAYBE_ROW = "row or None"
    GROUP = "cache group index"
    SPACE = "page space index"
    ROWS = "int32[n], rows, each once"
    LENGTHS = "int32[n], one for each row"
    PAGES = "int32[] for each group"
    GROUP_PAGES = "int32[], pages of the event's group"
    DIGESTS = "uint64[n], one for each page"
    HOST_PAGES = "int32[], host pages"
    MAYBE_HOST_PAGES = "int32[] or None"
    KEYS = "uint64[] for each group"
    CURSORS = "int32 for each window group"
    CURSOR_ARRAYS = "int32[n] for each window group, or None"
    LINKS = "int32[k, 4]"


@attrs.frozen(kw_only=True)
class Field:
    """One field of an event: its name, kind and meaning."""

    name: str
    kind: FieldKind
    doc: str


def of(kind: FieldKind, doc: str, **extra: Any) -> Any:  # Any: attrs.field has no nameable type
    """Declare an event's field."""
    return attrs.field(metadata={_KIND: kind, _DOC: doc}, **extra)


def fields_of(event_type: type) -> tuple[Field, ...]:
    """The declared fields of an event class, in order."""
    return tuple(
        Field(name=item.name, kind=item.metadata[_KIND], doc=item.metadata[_DOC])
        for item in attrs.fields(event_type)
    )
