"""Faults in the published captures are found, or named in docs/importing.md as not provable."""

import json
import random
import re
from pathlib import Path

import pytest
from capture_faults import (
    BLOCK,
    COUNT,
    DOUBLED,
    DROPPED,
    KINDS,
    NAMES,
    Capture,
    changed,
    field_of,
    places_to_change,
    trials,
)

PAGE = Path(__file__).parent.parent.parent / "docs" / "importing.md"
# What nothing but the counts in the last line gives away is put near it, to end in time.
SEEN_AT_END = {
    (op, kind)
    for op in ("allocate_slots", "draft_tokens", "get_computed_blocks", "snapshot")
    for kind in (DROPPED, DOUBLED)
}
NUM_LAST_LINES = 1500


def rows_of(what):
    """The cells of a marked table of the page, without its head."""
    text = PAGE.read_text(encoding="utf-8")
    (body,) = re.findall(rf"<!-- {what} -->\n(.*?)<!-- end", text, re.DOTALL)
    return [
        [cell.strip().strip("`") for cell in line.strip("|\n").split("|")]
        for line in body.splitlines()[2:]
    ]


NOT_PROVABLE = {(op, field) for op, field, _why in rows_of("not provable: capture")}


def drawn_faults(capture, draw):
    """A fault of each kind in each op, at random places; what is not provable is left out."""
    for op, places in capture.places.items():
        for kind in KINDS:
            near_end = [at for at in places if at > len(capture.lines) - NUM_LAST_LINES]
            late = (op, kind) in SEEN_AT_END and near_end
            at = draw.choice(near_end if late else places)
            record = json.loads(capture.texts[at])
            if kind in (DROPPED, DOUBLED):
                yield at, kind, record, True
                yield at, kind, record, False
                continue
            spots = places_to_change(record, kind)
            fields = sorted({field_of(record, path) for path in spots})
            for field in fields:
                if (op, field) not in NOT_PROVABLE:
                    path = draw.choice([path for path in spots if field_of(record, path) == field])
                    num_blocks = capture.header.num_blocks
                    yield at, kind, changed(record, path, kind, draw, num_blocks), False


@pytest.mark.parametrize("name", NAMES)
def test_faults_are_found(traces, name, seed):
    """A line dropped or doubled, a block id or a count changed: each is found in each op."""
    draw = random.Random(seed)
    capture = Capture.named(traces, name)
    faults = list(drawn_faults(capture, draw))
    missed = [
        (record["op"], kind, f"line {at + 2}", record)
        for (at, kind, record, _sealed), by in trials(capture, faults)
        if by is None
    ]
    assert len(faults) >= 4 * len(capture.places)
    assert not missed


@pytest.mark.parametrize("kind", [DROPPED, DOUBLED])
def test_a_gap_in_the_numbering_is_found_at_once(traces, seed, kind):
    """What is dropped or doubled and not numbered anew is found by its number."""
    draw = random.Random(seed)
    capture = Capture.named(traces, "reset")
    last = len(capture.lines) - 1
    faults = [(draw.randrange(last), kind, {}, False) for _ in range(20)]
    found = [by for _fault, by in trials(capture, faults)]
    assert all("seq is" in by for by in found)


def last_spots(capture, op, field, num_lines):
    """The last lines of an op that have the field, as records with the places of its counts."""
    found = []
    for at in reversed(capture.places[op]):
        record = json.loads(capture.texts[at])
        spots = places_to_change(record, COUNT)
        spots = [path for path in spots if field_of(record, path) == field]
        if spots:
            found.append((at, record, spots))
        if len(found) == num_lines:
            break
    return found


def test_what_is_said_to_be_unprovable_is(traces, seed):
    """Each field of the second table has a place where nobody finds that it is changed."""
    draw = random.Random(seed)
    missed = set()
    for name in ("reset", "swa-hybrid"):
        capture = Capture.named(traces, name)
        faults = [
            (at, field, changed(record, draw.choice(spots), COUNT, draw, 0), False)
            for op, field in sorted(NOT_PROVABLE - missed)
            for at, record, spots in last_spots(capture, op, field, 4)
        ]
        for (_at, field, record, _sealed), by in trials(capture, faults):
            if by is None:
                missed.add((record["op"], field))
    assert missed == NOT_PROVABLE


def test_the_table_of_faults_names_every_op(traces):
    """A row for each op of the captures, and a dash only where an op has nothing of the kind."""
    rows = {op: cells for op, *cells in rows_of("faults: capture")}
    captures = [Capture.named(traces, name) for name in ("reset", "ngram-spec", "swa-hybrid")]
    assert set(rows) == {op for capture in captures for op in capture.places}
    for op, cells in rows.items():
        records = [
            json.loads(capture.texts[at]) for capture in captures for at in capture.places[op][:200]
        ]
        for kind, cell in zip((BLOCK, COUNT), cells[2:], strict=True):
            has_some = any(places_to_change(record, kind) for record in records)
            assert (cell != "-") == has_some, (op, kind)
        assert all(cells)
