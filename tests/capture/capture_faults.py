"""Faults put into a vLLM capture: a line dropped or doubled, a block id or a count changed.

A fault can be sealed: then the lines after it are numbered anew, as if the capture had been made
so, and only what the lines say can give it away.
"""

import copy
import json
from collections import defaultdict
from pathlib import Path

import msgspec

from kvlife.capture import vllm_lines as ops
from kvlife.capture.contradictions import Stopped
from kvlife.capture.vllm_import import VllmImport
from kvlife.errors import CaptureError, InvariantViolation
from kvlife.line_file import read_lines

NAMES = (
    "shared-prefix",
    "pressure",
    "swa-uniform",
    "swa-hybrid",
    "ngram-spec",
    "reset",
    "priority",
)
DROPPED, DOUBLED, BLOCK, COUNT = "dropped", "doubled", "block id changed", "count changed"
KINDS = (DROPPED, DOUBLED, BLOCK, COUNT)

BLOCK_FIELDS = {
    "blocks",
    "freed",
    "was_free",
    "group_blocks",
    "new_blocks",
    "table",
    "tables",
    "free_queue",
}
# Numbers that are neither ids of blocks nor counts: tokens, times, and the numbering of calls.
OTHER_FIELDS = {
    "prompt_token_ids",
    "tokens",
    "spec",
    "drafts",
    "t_ns",
    "enter_ns",
    "seq",
    "call",
    "parent",
}
DECODER = msgspec.json.Decoder(ops.AnyLine)


class Capture:
    """A capture's header and lines as they stand in the file, and as they were decoded."""

    def __init__(self, path: Path):
        texts = [text for _number, text in read_lines(path, CaptureError)]
        self.name = path.name
        self.header = msgspec.json.decode(texts[0], type=ops.Header)
        self.texts = texts[1:]
        self.lines = [DECODER.decode(text) for text in self.texts]
        # Where the outermost call that a line belongs to begins.
        self.begins = []
        begin = 0
        for at, line in enumerate(self.lines):
            self.begins.append(begin)
            if line.parent is None:
                begin = at + 1
        self.places = defaultdict(list)
        for at, line in enumerate(self.lines):
            self.places[line.op].append(at)

    @classmethod
    def named(cls, traces: Path, name: str):
        return cls(traces / "vllm" / f"{name}.trace.jsonl.gz")


def numbers_in(value, path=()):
    """Every place in a decoded JSON value that holds a number or is a block's id as a key."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key.isdigit() and path and path[0] in ("refs", "hashes"):
                yield (*path, key), BLOCK
            if key not in OTHER_FIELDS:
                yield from numbers_in(item, (*path, key))
    elif isinstance(value, list):
        for idx, item in enumerate(value):
            yield from numbers_in(item, (*path, idx))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path, BLOCK if path[0] in BLOCK_FIELDS else COUNT


def places_to_change(record, kind):
    """The places of one kind; a number under a block's key is a count, the key itself an id."""
    return [path for path, what in numbers_in(record) if what == kind]


def field_of(record, path):
    """The name of the field that a place belongs to.

    Counts of the null block, and the tokens that a refused call asked for, have names of their own.
    """
    name = path[0]
    if name == "num_new_tokens" and not record["ok"]:
        return f"{name} of a refused call"
    blocks = record.get({"refs": "blocks", "group_refs": "group_blocks"}.get(name))
    for idx in path[1:] if blocks else ():
        blocks = blocks[idx]
    if blocks == 0 or path[:2] == ("refs", "0"):
        return f"{name} of the null block"
    return name


def changed(record, path, kind, draw, num_blocks):
    """A copy of the record with the number at `path` changed."""
    record = copy.deepcopy(record)
    *outer, last = path
    holder = record
    for step in outer:
        holder = holder[step]
    if kind == BLOCK and isinstance(last, str):
        old = int(last)
        new = draw.choice([block for block in range(1, num_blocks) if block != old])
        value = holder.pop(last)
        holder[str(new)] = value
    elif kind == BLOCK:
        old = holder[last]
        holder[last] = draw.choice([block for block in range(1, num_blocks) if block != old])
    elif path[0] == "masked":
        holder[last] = 1 - holder[last]
    else:
        holder[last] += draw.choice((-1, 1)) if holder[last] > 0 else 1
    return record


def lines_after(capture, at, kind, record, *, sealed):
    """The numbered lines from the outermost call of line `at` on, with the fault in them."""
    begin, fault = capture.begins[at], capture.lines[at].call
    shift = {DROPPED: -1, DOUBLED: 1}.get(kind, 0) if sealed else 0

    def moved(line, past):
        """The line in the new numbering; `past` says that its seq comes after the fault."""
        if not shift:
            return line
        line = copy.copy(line)
        line.seq += shift * past
        line.call += shift * (line.call > fault)
        if line.parent is not None:
            line.parent += shift * (line.parent > fault)
        return line

    for idx in range(begin, len(capture.lines)):
        line, number = capture.lines[idx], idx + 2
        if idx != at:
            yield number, moved(line, idx > at)
        elif kind == DROPPED:
            continue
        elif kind == DOUBLED:
            yield number, line
            twin = copy.copy(line)
            twin.seq, twin.call = line.seq + shift, line.call + shift
            yield number, twin
        else:
            yield number, DECODER.decode(json.dumps(record))


def found_by(importer, lines):
    """What gives the fault away, in words, or None where nothing does."""
    try:
        for number, line in lines:
            importer.feed(number, line)
        importer.finish()
    except InvariantViolation as violation:
        return f"invariant {violation.id}"
    except Stopped as stopped:
        return f"{stopped.contradiction.op}: {stopped.contradiction.what}"
    except CaptureError as refusal:
        return f"refused: {refusal}"
    except msgspec.ValidationError as refusal:
        return f"refused: {refusal}"
    return None


def trials(capture, faults):
    """Put each fault, given as (line, kind, record, sealed), into the capture; what finds it."""
    importer = VllmImport(capture.header)
    at = 0
    for fault in sorted(faults, key=lambda fault: fault[0]):
        place, kind, record, sealed = fault
        while at < capture.begins[place]:
            importer.feed(at + 2, capture.lines[at])
            at += 1
        twin = copy.deepcopy(importer)
        yield fault, found_by(twin, lines_after(capture, place, kind, record, sealed=sealed))
