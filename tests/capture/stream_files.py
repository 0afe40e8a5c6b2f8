"""Streams of cache events written by hand, one event a line or as messages of MessagePack."""

import base64
import gzip
import json

import msgspec

EVENTS_HEADER = {
    "format": "kvlife-vllm-kvevents/1",
    "engine": "vLLM",
    "version": "0.32.0",
    "workload": "by hand",
    "block_size": 2,
    "num_blocks": 5,
}
WIRE_HEADER = {
    "format": "kvlife-vllm-kvwire/1",
    "engine": "SGLang",
    "version": "0.5",
    "workload": "by hand",
}


def key(number):
    """A hash as event lines have it."""
    return f"{number:016x}"


def stored(*numbers, parent=None, group=0, tokens=None, kind="full_attention"):
    return {
        "type": "BlockStored",
        "group": group,
        "hashes": [key(number) for number in numbers],
        "parent": None if parent is None else key(parent),
        "block_size": 2,
        # Two tokens that go with the hash, so that equal hashes have equal tokens.
        "token_ids": [number for number in numbers for _ in range(2)] if tokens is None else tokens,
        "medium": "GPU",
        "kind": kind,
        "sliding_window": None,
    }


def removed(*numbers, group=0):
    return {
        "type": "BlockRemoved",
        "group": group,
        "hashes": [key(number) for number in numbers],
        "medium": "GPU",
    }


CLEARED = {"type": "AllBlocksCleared"}


def write_events(path, *events, **header):
    lines = [EVENTS_HEADER | header]
    for seq, event in enumerate(events):
        numbering = {"seq": seq, "batch": seq, "t_ns": seq, "step": seq, "trace_seq": seq}
        lines.append(numbering | event)
    return write_lines(path, lines)


def write_lines(path, lines):
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    return path


def message(seq, payload):
    return {"topic": "", "seq": seq, "payload_b64": base64.b64encode(payload).decode()}


def write_wire(path, *batches):
    """Each batch is packed as it is: [time, [events], rank]."""
    packed = [message(seq, msgspec.msgpack.encode(batch)) for seq, batch in enumerate(batches)]
    return write_lines(path, [WIRE_HEADER, *packed])
