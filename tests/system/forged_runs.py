"""Runs whose checksums all fit, and whose contents are hostile."""

import zlib

import attrs
import msgspec
import numpy as np
from damaged_files import HUGE, NUMBERS, edit_header

from kvlife.config import compile_layout
from kvlife.ledger import FrozenState
from kvlife.ledger.snapshot import state_digest
from kvlife.log.header import decode_header
from kvlife.log.snapshot_file import read_snapshot, write_snapshot
from kvlife.log.walk import BadRecord, records
from kvlife.log.wire import (
    CLOSE,
    CRC,
    LONG,
    LONG_HEAD,
    RECORD_REST,
    SEAL,
    SEGMENT_HEAD,
    SEGMENT_HEAD_BYTES,
    SNAPSHOT,
)

EXTREMES = (0, 1, -1, 2, 3, 100, 1 << 30, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, (1 << 64) - 1)


@attrs.define
class Record:
    """One record, without what makes it fit where it stands."""

    kind: int
    body: bytes
    step: int
    time_ns: int


@attrs.define
class Segment:
    """A raw segment, taken apart."""

    name: str
    head: list
    records: list


def take_apart(name, content):
    """The segment in these bytes."""
    _, _, _, *fields = SEGMENT_HEAD.unpack_from(content)
    crc = zlib.crc32(content[: SEGMENT_HEAD.size])
    found = []
    try:
        for kind, body, end, step, time_ns, _, _ in records(
            content, SEGMENT_HEAD_BYTES, crc, fields[3], fields[4]
        ):
            found.append(Record(kind, content[body:end], step, time_ns))
    except BadRecord:
        pass
    return Segment(name, fields, found)


class ForgedRun:
    """A run taken apart, changed, and put together so that every checksum and link fits."""

    def __init__(self, folder, files, choice):
        self.folder = folder
        self.files = files
        self.choice = choice
        self.header = files["header.json"]
        self.layout = compile_layout(decode_header(self.header, "header").config)
        names = sorted(name for name in files if name.endswith(".seg"))
        self.segments = [take_apart(name, files[name]) for name in names]
        self.snapshots = {int(name[:20]): files[name] for name in files if name.endswith(".snap")}
        self.closing_touched = False

    def do(self):
        """Forge something, and say what was done."""
        forgery = self.choice.choice(FORGERIES)
        forgery(self)
        return forgery.__name__

    def built(self):
        """The files of the run as it is now."""
        header_crc = zlib.crc32(self.header)
        files, link, before = {"header.json": self.header}, 0, None
        places = {}
        for segment in self.segments:
            content, last = put_together(segment, header_crc, link, before, places)
            link = last
            before = segment
            files[segment.name] = content
        for seq, content in self.snapshots.items():
            files[f"{seq:020d}.snap"] = self._refit(content, header_crc, places.get(seq))
        return files

    def _refit(self, content, header_crc, place):
        head, state = self._thawed(content)
        idx, offset = place or (head.segment_idx, head.offset)
        head = attrs.evolve(head, header_crc=header_crc, segment_idx=idx, offset=offset)
        return self._frozen(head, state)

    def _thawed(self, content):
        path = self.folder / "one.snap"
        path.write_bytes(content)
        return read_snapshot(path, self.layout)

    def _frozen(self, head, state):
        path = self.folder / "one.snap"
        with path.open("wb") as file:
            write_snapshot(file, state, head, self.layout, tick=lambda: None)
        return path.read_bytes()

    def event_record(self):
        found = [r for s in self.segments for r in s.records if r.body]
        record = self.choice.choice(found)
        self.closing_touched |= record.kind in (CLOSE, SEAL)
        return record

    def change_body(self):
        record = self.event_record()
        body = bytearray(record.body)
        for _ in range(self.choice.choice((1, 1, 2, 8))):
            value = self.choice.choice((0, 1, 2, 0x20, 0x21, 0x7F, 0x80, 0xFF))
            if self.choice.random() < 0.5:
                value = self.choice.randrange(256)
            body[self.choice.randrange(len(body))] = value
        record.body = bytes(body)

    def huge_in_body(self):
        record = self.event_record()
        at = self.choice.randrange(len(record.body))
        record.body = record.body[:at] + self.choice.choice(HUGE) + record.body[at + 1 :]

    def cut_body(self):
        record = self.event_record()
        record.body = record.body[: self.choice.randrange(len(record.body))]

    def grow_body(self):
        record = self.event_record()
        record.body += self.choice.randbytes(self.choice.randrange(1, 9))

    def change_kind(self):
        record = self.event_record()
        record.kind = self.choice.randrange(0x80)

    def change_time(self):
        record = self.event_record()
        record.time_ns = self.choice.choice((0, -1, (1 << 63) - 1, -(1 << 63)))
        record.step = self.choice.choice((0, -1, (1 << 63) - 1, record.step + 1))

    def repeat_record(self):
        segment = self.choice.choice(self.segments)
        at = self.choice.randrange(len(segment.records))
        self.closing_touched |= segment.records[at].kind in (CLOSE, SEAL)
        segment.records.insert(at, attrs.evolve(segment.records[at]))

    def leave_record_out(self):
        segment = self.choice.choice(self.segments)
        gone = segment.records.pop(self.choice.randrange(len(segment.records)))
        self.closing_touched |= gone.kind in (CLOSE, SEAL)

    def swap_records(self):
        segment = self.choice.choice(self.segments)
        if len(segment.records) > 1:
            at = self.choice.randrange(len(segment.records) - 1)
            pair = segment.records[at : at + 2]
            self.closing_touched |= any(record.kind in (CLOSE, SEAL) for record in pair)
            segment.records[at : at + 2] = pair[::-1]

    def change_segment_head(self):
        segment = self.choice.choice(self.segments)
        at = self.choice.choice((0, 1, 2, 3, 4, 5))
        bits = 31 if at == 0 else 62
        segment.head[at] = min(abs(self.choice.choice(EXTREMES)), (1 << bits) - 1)

    def change_header(self):
        files = {"header.json": self.header}
        edit_header(files, self.choice)
        self.header = files["header.json"]

    def change_array_of_snapshot(self):
        self._change_snapshot(self._with_other_array)

    def change_books_of_snapshot(self):
        self._change_snapshot(self._with_other_books)

    def _change_snapshot(self, change):
        if not self.snapshots:
            self.change_body()
            return
        seq = self.choice.choice(sorted(self.snapshots))
        head, state = self._thawed(self.snapshots[seq])
        arrays, meta = change(dict(state.arrays), state.meta)
        digest = state_digest(arrays, meta)
        self.snapshots[seq] = self._frozen(head, FrozenState(arrays, meta, digest))

    def _with_other_array(self, arrays, meta):
        name = self.choice.choice(sorted(arrays))
        array = arrays[name].copy()
        match self.choice.randrange(6):
            case 0:
                del arrays[name]
            case 1:
                arrays[name] = array[: array.size // 2]
            case 2:
                arrays[name] = np.concatenate([array, array[:1]])
            case 3:
                arrays[name] = array.astype(self.choice.choice(("i8", "f4", "u2", "?")))
            case _ if array.size:
                limits = np.iinfo(array.dtype)
                value = self.choice.choice(EXTREMES)
                array[self.choice.randrange(array.size)] = min(max(value, limits.min), limits.max)
                arrays[name] = array
        return arrays, meta

    def _with_other_books(self, arrays, meta):
        books = msgspec.msgpack.decode(meta)
        change_leaf(books, self.choice)
        return arrays, msgspec.msgpack.encode(books)


FORGERIES = [
    ForgedRun.change_body,
    ForgedRun.change_body,
    ForgedRun.change_body,
    ForgedRun.change_body,
    ForgedRun.huge_in_body,
    ForgedRun.huge_in_body,
    ForgedRun.cut_body,
    ForgedRun.grow_body,
    ForgedRun.change_kind,
    ForgedRun.change_time,
    ForgedRun.repeat_record,
    ForgedRun.leave_record_out,
    ForgedRun.swap_records,
    ForgedRun.change_segment_head,
    ForgedRun.change_header,
    ForgedRun.change_header,
    ForgedRun.change_array_of_snapshot,
    ForgedRun.change_array_of_snapshot,
    ForgedRun.change_books_of_snapshot,
    ForgedRun.change_books_of_snapshot,
]


def change_leaf(tree, choice):
    """Give one leaf of lists and dicts another value, or leave out or repeat a part."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            if isinstance(tree, list):
                tree.append(choice.choice(NUMBERS[:5]))
            return
        key = choice.choice(keys)
        inner = tree[key]
        if isinstance(inner, dict | list) and choice.random() < 0.85:
            tree = inner
            continue
        match choice.randrange(5):
            case 0 if isinstance(tree, list):
                tree.append(inner)
            case 1:
                del tree[key]
            case 2 if isinstance(inner, int):
                tree[key] = inner + choice.choice((-1, 1))
            case 3:
                tree[key] = choice.choice((None, "", "r1", "s1"))
            case _:
                tree[key] = min(max(choice.choice(EXTREMES), -(1 << 63)), (1 << 64) - 1)
        return


def put_together(segment, header_crc, link, before, places):
    """A segment's bytes, and the crc of its last record but the seal."""
    head = list(segment.head)
    head[6] = link if before is not None else head[6]
    head[7] = header_crc
    bodies = sum(len(r.body) + 64 for r in segment.records)
    if head[5] == segment.head[5] and head[5] < 1 << 40:
        head[5] = max(head[5], SEGMENT_HEAD_BYTES + bodies)
    packed = SEGMENT_HEAD.pack(b"KVLIFESG", 1, SEGMENT_HEAD_BYTES, *head)
    crc = zlib.crc32(packed)
    content, last = bytearray(packed + CRC.pack(crc)), crc
    for record in segment.records:
        if record.kind == SNAPSHOT and len(record.body) == 8:
            places[int.from_bytes(record.body, "little")] = (head[0], len(content))
        rest = RECORD_REST.pack(0, crc & 0xFFFF, record.kind | LONG, 0, 0)
        rest += LONG_HEAD.pack(len(record.body), record.step, record.time_ns) + record.body
        crc = zlib.crc32(rest)
        content += CRC.pack(crc) + rest
        last = last if record.kind == SEAL else crc
    return bytes(content), last
