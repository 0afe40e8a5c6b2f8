"""Faults in streams of cache events: found, or such as docs/importing.md calls unprovable."""

import copy
import json
import random

import pytest
from capture_faults import NAMES
from stream_files import write_lines

from kvlife.capture import check_events
from kvlife.errors import CaptureError
from kvlife.line_file import read_lines

FULL_NAMES = ("shared-prefix", "pressure", "ngram-spec", "priority")


def events_of(traces, name):
    path = traces / "vllm" / f"{name}.kvevents.jsonl.gz"
    return [json.loads(text) for _number, text in read_lines(path, CaptureError)]


def numbered_anew(lines):
    """As if the capture had been made so: numbers and batches without a gap."""
    header, *events = lines
    batches = {}
    return [
        header,
        *(
            event | {"seq": seq, "batch": batches.setdefault(event["batch"], len(batches))}
            for seq, event in enumerate(events)
        ),
    ]


def is_found(tmp_path, lines):
    return not check_events(write_lines(tmp_path / "faulty.gz", lines)).clean


@pytest.mark.parametrize("name", NAMES)
def test_gaps_and_repetitions_are_found(traces, tmp_path, seed, name):
    """A line that is dropped or doubled, and not numbered anew, is found wherever it stands."""
    draw = random.Random(seed)
    lines = events_of(traces, name)
    for _trial in range(3):
        at = draw.randrange(1, len(lines) - 1)
        assert is_found(tmp_path, lines[:at] + lines[at + 1 :])
        assert is_found(tmp_path, lines[: at + 1] + lines[at:])


@pytest.mark.parametrize("name", ["pressure", "priority"])
def test_a_block_stored_and_removed_is_missed(traces, tmp_path, seed, name):
    """A stored event that is dropped, or has another hash, shows when the only copy is removed."""
    draw = random.Random(seed)
    lines = events_of(traces, name)
    counts = {}
    for event in lines[1:]:
        for key in event.get("hashes", ()):
            counts[key] = counts.get(key, 0) + 1
    # Hashes that stand in two events, one of them a removal, were stored once and removed once.
    gone = {
        key
        for event in lines
        if event.get("type") == "BlockRemoved"
        for key in event["hashes"]
        if counts[key] == 2
    }
    places = [
        at
        for at, event in enumerate(lines)
        if event.get("type") == "BlockStored" and gone.intersection(event["hashes"])
    ]
    for at in draw.sample(places, 5):
        assert is_found(tmp_path, numbered_anew(lines[:at] + lines[at + 1 :]))
        changed = copy.deepcopy(lines)
        spot = draw.choice([i for i, k in enumerate(changed[at]["hashes"]) if k in gone])
        changed[at]["hashes"][spot] = f"{draw.getrandbits(64):016x}"
        assert is_found(tmp_path, changed)


@pytest.mark.parametrize("name", FULL_NAMES)
def test_a_wrong_size_or_parent_is_found(traces, tmp_path, seed, name):
    """A block size, and under full attention a parent that is not stored, are found at once."""
    draw = random.Random(seed)
    lines = events_of(traces, name)
    stored = [at for at, event in enumerate(lines) if event.get("type") == "BlockStored"]
    hanging = [at for at in stored if lines[at]["parent"] is not None]
    for field, value, places in (
        ("block_size", 33, stored),
        ("parent", f"{draw.getrandbits(64):016x}", hanging),
        ("group", 1, hanging),
    ):
        at = draw.choice(places)
        changed = copy.deepcopy(lines)
        changed[at][field] = value
        assert is_found(tmp_path, changed)


def test_a_second_removal_of_the_only_copy_is_found(traces, tmp_path):
    """Each removal in a capture where every hash stands on one block can be doubled in vain."""
    lines = events_of(traces, "ngram-spec")
    held, only = {}, []
    for at, event in enumerate(lines[1:], 1):
        for key in event.get("hashes", ()):
            held[key] = held.get(key, 0) + (1 if event["type"] == "BlockStored" else -1)
            if event["type"] == "BlockRemoved" and not held[key]:
                only.append(at)
    assert only
    for at in only[:: len(only) // 5]:
        assert is_found(tmp_path, numbered_anew(lines[: at + 1] + lines[at:]))


def test_what_the_page_calls_unprovable_is(traces, tmp_path):
    """Without its numbers, a block that no one removes or hangs on can be lost unseen."""
    lines = events_of(traces, "shared-prefix")
    parents = {event.get("parent") for event in lines}
    at = next(
        at
        for at, event in enumerate(lines)
        if event.get("type") == "BlockStored" and not parents.intersection(event["hashes"])
    )
    assert not is_found(tmp_path, numbered_anew(lines[:at] + lines[at + 1 :]))
    assert not is_found(tmp_path, numbered_anew(lines[: at + 1] + lines[at:]))
    assert not is_found(tmp_path, numbered_anew([*lines, lines[-1]]))
