"""What an engine's stream of cache events proves, on streams written by hand and on captures."""

import random

import msgspec
import pytest
from capture_faults import NAMES
from stream_files import (
    CLEARED,
    WIRE_HEADER,
    key,
    message,
    removed,
    stored,
    write_events,
    write_lines,
    write_wire,
)

from kvlife import CaptureError
from kvlife.capture import check_events
from kvlife.capture.block_hashes import block_hash

# Per capture: BlockStored, BlockRemoved and AllBlocksCleared, and messages, by its README.
PUBLISHED = {
    "shared-prefix": (191, 0, 1, 147),
    "pressure": (550, 606, 1, 675),
    "swa-uniform": (153, 28, 1, 137),
    "swa-hybrid": (564, 368, 1, 194),
    "ngram-spec": (135, 138, 1, 139),
    "reset": (92, 0, 5, 88),
    "priority": (741, 768, 1, 732),
}


def whats(outcome):
    return [item.what for item in outcome.contradictions]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["kvevents", "kvwire"])
def test_published_streams_are_clean(traces, name, kind):
    """Every event of the captures is read, none is found wrong, and none is left at the end."""
    outcome = check_events(traces / "vllm" / f"{name}.{kind}.jsonl.gz")
    num_stored, num_removed, num_cleared, num_messages = PUBLISHED[name]
    assert outcome.clean
    assert outcome.num_events.get("BlockStored", 0) == num_stored
    assert outcome.num_events.get("BlockRemoved", 0) == num_removed
    assert outcome.num_events.get("AllBlocksCleared", 0) == num_cleared
    if kind == "kvwire":
        assert outcome.num_messages == num_messages
        assert outcome.num_recomputed > 0
    else:
        assert outcome.num_messages == num_stored + num_removed + num_cleared
    assert (outcome.num_hashes, outcome.num_copies) == (0, 0)


def test_copies_of_a_hash_are_counted(tmp_path):
    """Two blocks under one hash may be removed once each, and no third time."""
    twice = [stored(1), stored(1)]
    outcome = check_events(write_events(tmp_path / "e", *twice, removed(1)))
    assert outcome.clean
    assert (outcome.num_hashes, outcome.num_copies) == (1, 1)
    outcome = check_events(write_events(tmp_path / "e", *twice, *[removed(1)] * 3))
    assert whats(outcome) == [f"hash {key(1)} is removed from group 0, and has no copy left"]
    assert outcome.contradictions[0].line == 6


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([removed(1)], f"hash {key(1)} is removed from group 0, and was never stored"),
        ([stored(1), removed(1, group=1)], f"hash {key(1)} is removed from group 1"),
        ([stored(1), CLEARED, removed(1)], f"hash {key(1)} is removed from group 0, and has no"),
        ([stored(1), CLEARED, stored(2, parent=1)], f"its parent {key(1)} is not stored"),
        ([stored(2, parent=1)], f"its parent {key(1)} is not stored"),
        ([stored(1, tokens=[1, 2, 3])], "3 tokens for 1 hashes"),
        ([stored(1, tokens=[1, 2, 3, 4])], "4 tokens for 1 hashes"),
        ([stored(1), stored(1, tokens=[7, 7])], f"hash {key(1)} was stored before with other"),
        ([stored(1, 2, 3, 4, 5)], "5 blocks have a hash, in a pool of 4"),
        ([stored(1) | {"block_size": 1}], "block_size of group 0 is 1"),
        ([stored(1), removed()], "it removes nothing"),
        ([stored(1), removed(1) | {"seq": 2}], "1 is missing in the sequence"),
        ([stored(1), removed(1) | {"seq": 5}], "1 to 4 are missing in the sequence"),
        ([stored(1) | {"seq": 3}], "0 to 2 are missing in the sequence"),
        ([stored(1), removed(1) | {"seq": 0}], "number 0 comes where 1 is due"),
        ([stored(1), removed(1) | {"batch": 4}], "batch 4 comes after batch 0"),
        ([stored(1) | {"step": 9}, removed(1)], "step falls from 9 to 1"),
    ],
)
def test_what_is_proven_wrong(tmp_path, events, what):
    """Each of these cannot have happened, and is said in words."""
    outcome = check_events(write_events(tmp_path / "e", *events))
    assert not outcome.clean
    assert any(found.startswith(what) for found in whats(outcome))


def test_after_a_gap_nothing_is_held_against_what_may_be_missing(tmp_path):
    """What was lost may have stored the block, so its removal is no second fault."""
    events = [stored(1) | {"seq": 4}, removed(9) | {"seq": 5}, stored(3, parent=8) | {"seq": 6}]
    outcome = check_events(write_events(tmp_path / "e", *events))
    assert whats(outcome) == ["0 to 3 are missing in the sequence"]
    assert outcome.num_unproven_parents == 1
    assert any("missing message" in line for line in outcome.not_proven)


def test_a_window_group_may_hang_on_a_block_without_hash(tmp_path):
    """A range may come whole and its hashes few; a parent among the others cannot be known."""
    masked = stored(tokens=[1, 2], kind="sliding_window")
    outcome = check_events(
        write_events(tmp_path / "e", masked, stored(2, parent=1, kind="sliding_window"))
    )
    assert outcome.clean
    assert outcome.num_unproven_parents == 1
    orphan = check_events(write_events(tmp_path / "e", stored(2, parent=1, kind="sliding_window")))
    assert whats(orphan) == [f"its parent {key(1)} was never stored"]


def test_messages_as_sglang_sends_them_are_read(tmp_path):
    """Events as arrays with numbers for hashes, negative ones too, and no group."""
    batches = [
        [1.5, [["BlockStored", [-5, 7], None, [1, 2, 3, 4], 2, None]], 0],
        [1.6, [["BlockStored", [9], 7, [5, 6], 2, None, "GPU"], ["BlockRemoved", [-5]]], 0],
    ]
    outcome = check_events(write_wire(tmp_path / "w", *batches))
    # The parent 7 stands under no medium, and the block under GPU.
    assert whats(outcome) == ["its parent 7 is not stored in group 0"]
    batches[1][1][0].pop()
    outcome = check_events(write_wire(tmp_path / "w", *batches, [1.7, [["AllBlocksCleared"]]]))
    assert whats(outcome) == ["the rank changes from 0 to None"]
    assert dict(outcome.num_events) == {"BlockStored": 2, "BlockRemoved": 1, "AllBlocksCleared": 1}


def mapped(hashes, parent, tokens, **more):
    return {
        "type": "BlockStored",
        "block_hashes": hashes,
        "parent_block_hash": parent,
        "token_ids": tokens,
        "block_size": 2,
    } | more


def test_whole_hashes_are_computed_again(tmp_path):
    """The second of two blocks hangs on the first; one that does not is found."""
    first = bytes(range(32))
    second = block_hash(first, [3, 4])
    third = block_hash(second, [5, 6])
    good = [[0.0, [mapped([first, second], None, [1, 2, 3, 4])], 0]]
    outcome = check_events(write_wire(tmp_path / "w", *good))
    assert outcome.clean
    assert outcome.num_recomputed == 1
    bad = [0.0, [mapped([third], second, [5, 7])], 0]
    outcome = check_events(write_wire(tmp_path / "w", *good, bad))
    assert whats(outcome) == [f"hash {third.hex()} is not that of its tokens and parent"]


def test_hashes_of_another_algorithm_are_not_held_to_this_one(tmp_path):
    """Where no hash is SHA-256 over CBOR the algorithm is another, and nothing is proven."""
    batch = [0.0, [mapped([bytes(32), b"\x01" * 32], None, [1, 2, 3, 4])], 0]
    outcome = check_events(write_wire(tmp_path / "w", batch))
    assert outcome.clean
    assert any("of an unknown algorithm" in line for line in outcome.not_proven)


def test_an_adapter_or_extra_keys_make_other_hashes(tmp_path):
    """What goes into a hash besides tokens is not known, so such hashes are left alone."""
    first = bytes(range(32))
    plain = mapped([first, block_hash(first, [3, 4])], None, [1, 2, 3, 4])
    odd = mapped([b"\x02" * 32, b"\x03" * 32], None, [7, 7, 8, 8])
    batch = [0.0, [plain, odd | {"lora_id": 3}, odd | {"extra_keys": [["image"], None]}], 0]
    assert check_events(write_wire(tmp_path / "w", batch)).clean


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"", "truncated"),
        (b"\x93", "truncated"),
        (msgspec.msgpack.encode([0.0, [], 0]) + b"\x00", "trailing"),
        (msgspec.msgpack.encode({"ts": 0.0}), "array"),
        (msgspec.msgpack.encode([0.0, [["BlockSold", []]], 0]), "BlockSold"),
        (msgspec.msgpack.encode([0.0, [{"type": "BlockStored"}], 0]), "block_hashes"),
        (msgspec.msgpack.encode([0.0, [["BlockRemoved", ["text"]]], 0]), "str"),
        (msgspec.msgpack.encode([0.0, [["BlockRemoved", [b""]]], 0]), "length"),
        (msgspec.msgpack.encode([0.0, [7], 0]), "array"),
        # A list of 2^32 - 1 events, and nothing behind it.
        (b"\x93\xcb" + bytes(8) + b"\xdd\xff\xff\xff\xff", "truncated"),
        # 100,000 lists inside each other.
        (b"\x93\xcb" + bytes(8) + b"\x91" * 100_000, ""),
    ],
)
def test_hostile_payloads_are_refused(tmp_path, payload, why):
    """Cut, padded, of a wrong shape, endless or deep: the line is named, and nothing is lost."""
    lines = [WIRE_HEADER, message(0, payload)]
    with pytest.raises(CaptureError, match="line 2") as refusal:
        check_events(write_lines(tmp_path / "w", lines))
    assert why in str(refusal.value)


def test_a_payload_that_is_not_base64_is_refused(tmp_path):
    """Stray characters are not skipped."""
    lines = [WIRE_HEADER, {"topic": "", "seq": 0, "payload_b64": "k5 *"}]
    with pytest.raises(CaptureError, match=r"line 2.*base64"):
        check_events(write_lines(tmp_path / "w", lines))


def test_no_bytes_bring_the_check_down(tmp_path, seed):
    """Random bytes in a good payload are read, found wrong, or refused."""
    draw = random.Random(seed)
    first = bytes(range(32))
    batch = [0.0, [mapped([first, block_hash(first, [3, 4])], None, [1, 2, 3, 4])], 0]
    good = msgspec.msgpack.encode(batch)
    num_refused = 0
    for _trial in range(500):
        bad = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            bad[draw.randrange(len(bad))] = draw.randrange(256)
        path = write_lines(tmp_path / "w", [WIRE_HEADER, message(0, bytes(bad))])
        try:
            check_events(path)
        except CaptureError:
            num_refused += 1
    assert 0 < num_refused < 500


def test_an_empty_stream_proves_nothing(tmp_path):
    """A header alone is read, and counted as no message."""
    outcome = check_events(write_events(tmp_path / "e"))
    assert outcome.num_messages == 0
