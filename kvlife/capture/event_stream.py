"""An engine's own stream of cache events, from vLLM's captures of it or as it went over the wire.

Two formats: `kvlife-vllm-kvevents/1` has one event a line, `kvlife-vllm-kvwire/1` one message a
line, its payload as sent: MessagePack of `[time, [events], data-parallel rank]`. An event there is
a map with a `type` (vLLM today) or an array that begins with one (SGLang, and vLLM before), which
may end after any field that has a default.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import attrs
import msgspec

from kvlife.capture.json_lines import JsonLines
from kvlife.capture.vllm_lines import Count, Hash, Number, Size, Token

EVENTS_FORMAT = "kvlife-vllm-kvevents/1"
WIRE_FORMAT = "kvlife-vllm-kvwire/1"

FULL = "full_attention"


@attrs.frozen(kw_only=True)
class Stored:
    """Blocks that can be hit from now on; `tokens` cover the range, blocks without hash too.

    Hashes are text: hexadecimal digits, or decimal ones where the engine sends numbers. `plain`
    says that nothing but tokens goes into the hashes.
    """

    group: int
    medium: str
    hashes: tuple[str, ...]
    parent: str | None
    tokens: list[int]
    block_size: int
    full: bool
    plain: bool


@attrs.frozen(kw_only=True)
class Removed:
    """One copy of each block is gone."""

    group: int
    medium: str
    hashes: tuple[str, ...]


@attrs.frozen
class Cleared:
    """All blocks are gone."""


CacheEvent = Stored | Removed | Cleared


@attrs.frozen(kw_only=True)
class Message:
    """What one line says: its number in the file, its place in the sequence, and its events.

    `order` are numbers that never fall from line to line. They, `batch` and `rank` are None where
    the line has none, and messages have no `order` at all.
    """

    number: int
    seq: int
    batch: int | None
    order: tuple[int | None, ...]
    rank: int | None
    events: tuple[CacheEvent, ...]


class StreamHeader(msgspec.Struct, kw_only=True):
    """The first line of either format; what it lacks is not proven, or not said in the report."""

    format: str
    engine: str | None = None
    version: str | None = None
    workload: str | None = None
    block_size: Size | None = None
    num_blocks: Size | None = None

    @property
    def source(self) -> str:
        """The engine and its version, as far as they are named."""
        return " ".join(filter(None, (self.engine, self.version))) or "an engine without a name"


class _EventLine(msgspec.Struct, tag_field="type", kw_only=True):
    seq: Number
    batch: Number | None = None
    t_ns: Number | None = None
    step: Number | None = None
    trace_seq: Number | None = None


class _StoredLine(_EventLine, tag="BlockStored"):
    hashes: list[Hash]
    parent: Hash | None
    block_size: Size
    token_ids: list[Token]
    group: Count = 0
    medium: str | None = None
    kind: str | None = None


class _RemovedLine(_EventLine, tag="BlockRemoved"):
    hashes: list[Hash]
    group: Count = 0
    medium: str | None = None


class _ClearedLine(_EventLine, tag="AllBlocksCleared"):
    pass


_AnyEventLine = _StoredLine | _RemovedLine | _ClearedLine


class _WireLine(msgspec.Struct, kw_only=True):
    seq: Number
    payload_b64: str


class _Batch(msgspec.Struct, array_like=True):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


_WireHash = Annotated[bytes, msgspec.Meta(min_length=1, max_length=64)] | int


class _StoredFields(msgspec.Struct):
    block_hashes: list[_WireHash]
    parent_block_hash: _WireHash | None
    token_ids: list[Token]
    block_size: Size
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[object] | None = None
    group_idx: Count | None = None
    kv_cache_spec_kind: str | None = None


class _RemovedFields(msgspec.Struct):
    block_hashes: list[_WireHash]
    medium: str | None = None
    group_idx: Count | None = None


class _StoredMap(_StoredFields, tag_field="type", tag="BlockStored"):
    pass


class _RemovedMap(_RemovedFields, tag_field="type", tag="BlockRemoved"):
    pass


class _ClearedMap(msgspec.Struct, tag_field="type", tag="AllBlocksCleared"):
    pass


class _StoredArray(_StoredFields, array_like=True, tag="BlockStored"):
    pass


class _RemovedArray(_RemovedFields, array_like=True, tag="BlockRemoved"):
    pass


class _ClearedArray(msgspec.Struct, array_like=True, tag="AllBlocksCleared"):
    pass


_AnyMap = _StoredMap | _RemovedMap | _ClearedMap
_AnyArray = _StoredArray | _RemovedArray | _ClearedArray
_BATCH = msgspec.msgpack.Decoder(_Batch)
_MAP = msgspec.msgpack.Decoder(_AnyMap)
_ARRAY = msgspec.msgpack.Decoder(_AnyArray)
# The first bytes of a MessagePack map: fixmap, map 16, map 32.
_MAP_HEADS = frozenset((*range(0x80, 0x90), 0xDE, 0xDF))


class EventStream:
    """A stream's header and messages; raises `CaptureError` with file and line for bad content."""

    def __init__(self, path: Path) -> None:
        """Read the header."""
        self._lines = JsonLines(path, EVENTS_FORMAT, WIRE_FORMAT)
        self.header = self._lines.header(StreamHeader)

    def messages(self) -> Iterator[Message]:
        """The messages in the order of the file."""
        if self.header.format == EVENTS_FORMAT:
            for number, event in self._lines.lines(msgspec.json.Decoder(_AnyEventLine)):
                yield _of_event_line(number, event)
            return
        for number, line in self._lines.lines(msgspec.json.Decoder(_WireLine)):
            yield self._of_wire_line(number, line)

    def _of_wire_line(self, number: int, line: _WireLine) -> Message:
        try:
            batch = _BATCH.decode(base64.b64decode(line.payload_b64, validate=True))
            events = tuple(map(_of_wire, batch.events))
        except binascii.Error as error:
            raise self._lines.refuse(number, f"the payload is not base64: {error}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = f"the payload is no batch of cache events in MessagePack: {error}"
            raise self._lines.refuse(number, why) from error
        return Message(
            number=number,
            seq=line.seq,
            batch=None,
            order=(),
            rank=batch.data_parallel_rank,
            events=events,
        )


def _of_event_line(number: int, line: _AnyEventLine) -> Message:
    event: CacheEvent
    match line:
        case _StoredLine():
            event = Stored(
                group=line.group,
                medium=line.medium or "",
                hashes=tuple(line.hashes),
                parent=line.parent,
                tokens=line.token_ids,
                block_size=line.block_size,
                full=line.kind in (None, FULL),
                plain=True,
            )
        case _RemovedLine():
            event = Removed(group=line.group, medium=line.medium or "", hashes=tuple(line.hashes))
        case _ClearedLine():
            event = Cleared()
    return Message(
        number=number,
        seq=line.seq,
        batch=line.batch,
        order=(line.t_ns, line.step, line.trace_seq),
        rank=None,
        events=(event,),
    )


def _of_wire(raw: msgspec.Raw) -> CacheEvent:
    event: _AnyMap | _AnyArray
    event = _MAP.decode(raw) if memoryview(raw)[0] in _MAP_HEADS else _ARRAY.decode(raw)
    match event:
        case _StoredMap() | _StoredArray():
            extra = event.extra_keys or []
            return Stored(
                group=event.group_idx or 0,
                medium=event.medium or "",
                hashes=tuple(map(_text, event.block_hashes)),
                parent=None if event.parent_block_hash is None else _text(event.parent_block_hash),
                tokens=event.token_ids,
                block_size=event.block_size,
                full=event.kv_cache_spec_kind in (None, FULL),
                plain=event.lora_id is None and not any(key is not None for key in extra),
            )
        case _RemovedMap() | _RemovedArray():
            hashes = tuple(map(_text, event.block_hashes))
            return Removed(group=event.group_idx or 0, medium=event.medium or "", hashes=hashes)
        case _:
            return Cleared()


def _text(value: bytes | int) -> str:
    return str(value) if isinstance(value, int) else value.hex()
