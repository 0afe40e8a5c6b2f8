"""The fixed parts of the format: magic numbers, heads, kinds and bounds (docs/log-format.md)."""

from __future__ import annotations

import struct
from typing import Final

FORMAT_VERSION: Final = 1
SNAPSHOT_VERSION: Final = 2  # of snapshot files, which have versions of their own

SEGMENT_MAGIC: Final = b"KVLIFESG"
PACKED_MAGIC: Final = b"KVLIFEZS"
SNAPSHOT_MAGIC: Final = b"KVLIFESN"

# magic, version, bytes of this head, index, first seq, seq that follows the segment before, base
# step, base time, reserved file bytes, crc of the segment before's last record, crc of header.json
SEGMENT_HEAD: Final = struct.Struct("<8sHHIQQqqQII")
# raw bytes, compressed bytes, crc of the raw bytes
PACKED_HEAD: Final = struct.Struct("<8sQQI")
# magic, version, flags, crc of header.json, seq, segment index, offset of its record, digest, raw
# bytes, stored bytes, crc of the raw bytes
SNAPSHOT_HEAD: Final = struct.Struct("<8sHHIQQQQQQI")
CRC: Final = struct.Struct("<I")
SEGMENT_HEAD_BYTES: Final = SEGMENT_HEAD.size + CRC.size

# A record: crc, body bytes, low half of the crc before, kind, step and time since the last record.
RECORD_HEAD: Final = struct.Struct("<IHHBBI")
RECORD_REST: Final = struct.Struct("<HHBBI")
# Where those do not fit, the kind has the bit LONG and this follows: body bytes, step, time.
LONG_HEAD: Final = struct.Struct("<Iqq")
LONG: Final = 0x80

# Kinds: 0 is a group of several events; 1 to 0x5f is one event with this code.
GROUP: Final = 0
LAST_EVENT_CODE: Final = 0x5F
BATCH: Final = 0x60
RESET: Final = 0x61
SNAPSHOT: Final = 0x62
GAP: Final = 0x63
CLOSE: Final = 0x64
SEAL: Final = 0x65

SEQS: Final = struct.Struct("<QQ")  # GAP: first missing, next; SEAL: events here, next seq
SEQ: Final = struct.Struct("<Q")  # SNAPSHOT: next seq
CLOSE_BODY: Final = struct.Struct("<QQBQ")  # events, next seq, whether a digest follows, digest

# Room at a segment's end that no group may take: a GAP, a CLOSE and a SEAL, each with a long head.
_HEADS = 3 * (RECORD_HEAD.size + LONG_HEAD.size)
FOOT_BYTES: Final = _HEADS + 2 * SEQS.size + CLOSE_BODY.size

# A compressed file holds no more than this; a larger segment (one huge group) stays raw.
MAX_PACKED_BYTES: Final = 64 << 20
MIN_SEGMENT_BYTES: Final = 4096

NUM_SLOTS: Final = 64  # batches remembered at a time
INLINE_ROWS: Final = 4  # up to here rows stand in the event

# How an int32 array is written.
PLANES: Final = 0x00  # | width: the values' bytes, lowest bytes of all values first
OFFSET_PLANES: Final = 0x10  # | width: a base, then the same of value - base
RUN: Final = 0x20  # start and step
ONES: Final = 0x21  # each value is 1

# A run takes few bytes whatever its length, so one may not be long, nor those of one record.
MAX_RUN: Final = 1 << 16
MAX_RUN_TOTAL: Final = 1 << 22

# Events of a group are read all at once, and one may have two bytes.
MAX_GROUP: Final = 1 << 18
