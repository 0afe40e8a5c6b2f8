"""The columns of exported tables, and what they mean; nothing of it needs Parquet."""

from __future__ import annotations

import enum

import attrs


class Kind(enum.Enum):
    """What a column holds; each may lack a value."""

    INT32 = "int32"
    INT64 = "int64"
    UINT64 = "uint64"
    TEXT = "text"
    NAME = "text of a few values"
    FLAG = "bool"
    INT32S = "list of int32"
    UINT64S = "list of uint64"


@attrs.frozen
class Column:
    """A column of a table, and what it means."""

    name: str
    kind: Kind
    doc: str


REQUEST_COLUMNS = (
    Column("request", Kind.TEXT, "request id"),
    Column("session", Kind.TEXT, "the session that it is a turn of"),
    Column("namespace", Kind.UINT64, "keyed hash of the namespace, 0 for the default"),
    Column("row", Kind.INT32, "the row that it held last"),
    Column("begun_seq", Kind.UINT64, "the event that bound it to a row; none: before the table"),
    Column("begun_time_ns", Kind.INT64, "its time"),
    Column("ended_seq", Kind.UINT64, "the event that ended it; none where it is open"),
    Column("ended_time_ns", Kind.INT64, "its time"),
    Column("ended", Kind.NAME, "finished, aborted, lost, saved, or open"),
    Column("prompt_len", Kind.INT32, "tokens of the prompt, when it was admitted"),
    Column("prefix_len", Kind.INT32, "tokens found in the cache then, or kept by the session"),
    Column("committed_len", Kind.INT32, "tokens with content, at the end"),
    Column("allocated_len", Kind.INT32, "tokens scheduled, at the end"),
    Column("retractions", Kind.INT32, "how often it lost its row"),
    Column("waited_ns", Kind.INT64, "for how long it then waited for one"),
)

LIFE_COLUMNS = (
    Column("space", Kind.NAME, "page space"),
    Column("page", Kind.INT32, "the page"),
    Column("taken_seq", Kind.INT64, "the event that took it; none: before the table begins"),
    Column("taken_time_ns", Kind.INT64, "its time"),
    Column("request", Kind.NAME, "the request, or session, whose row it was taken for"),
    Column("published_seq", Kind.INT64, "the event that published it first"),
    Column("key", Kind.UINT64, "the page key that it was published under; none: it was not"),
    Column("hits", Kind.INT32, "how often a row got it from the cache"),
    Column("last_hit_seq", Kind.INT64, "the last of these events"),
    Column("freed_seq", Kind.INT64, "the event that made it FREE; none: it was not"),
    Column("freed_time_ns", Kind.INT64, "its time"),
    Column("freed_by", Kind.NAME, "the kind of that event"),
)
