"""Events as bytes and back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_samples import LAYOUT, NONE, decode_step, events, ints, own_batches, same_events

from kvlife.errors import EventError
from kvlife.events import (
    EVENT_TYPES,
    Allocated,
    Committed,
    Evicted,
    Marked,
    Released,
    StepDispatched,
)
from kvlife.log.cursor import BadBytes
from kvlife.log.decode import Decoder, UnknownEvent
from kvlife.log.encode import Encoder
from kvlife.log.wire import GROUP, NUM_SLOTS


def encoded(encoder, group):
    """As the writer does it: the short cut where there is one, then the general way."""
    if len(group) == 1:
        quick = encoder.quick.get(type(group[0]))
        body = quick(group[0]) if quick else None
        if body is not None:
            return [], group[0].CODE, body
    kind, body = encoder.group(group)
    return encoder.take_definitions(), kind, body


def through(groups, encoder=None, decoder=None):
    encoder = encoder or Encoder(LAYOUT)
    decoder = decoder or Decoder(LAYOUT)
    back = []
    for group in groups:
        definitions, kind, body = encoded(encoder, group)
        for definition in definitions:
            decoder.define(definition, 0, len(definition))
        back.append(decoder.group(kind, body, 0, len(body)))
    return back


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_every_kind_comes_back(event_type):
    """Each kind of event, with any well-formed content, is read as it was written."""

    @settings(max_examples=40)
    @given(events(own_batches(), event_type))
    def check(event):
        ((back,),) = through([[event]])
        assert same_events([back], [event])

    check()


BATCHES = own_batches()


@given(st.lists(st.lists(events(BATCHES), min_size=1, max_size=4), max_size=8))
def test_groups_come_back_in_order(groups):
    """What is remembered of batches from group to group is the same on both sides."""
    back = through(groups)
    assert all(map(same_events, back, groups))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(BATCHES[:3]),
            st.sampled_from([0, 1, 2, -1, 3, 2**31 - 1]),
            st.booleans(),
        ),
        max_size=30,
    )
)
def test_decoding_steps_come_back(steps):
    """Batches that take turns, steps of any stride and roll-backs are read as written."""
    lengths = {id(rows): np.zeros(rows.size, np.int32) for rows in BATCHES}
    groups = []
    for rows, stride, commit in steps:
        lengths[id(rows)] = lengths[id(rows)] + np.int32(stride)
        moved = lengths[id(rows)]
        if commit:
            groups.append([Committed(rows, moved)])
        else:
            groups.append([Allocated(rows, moved, (ints(4, 9), NONE))])
    assert all(map(same_events, through(groups), groups))


def test_a_steady_step_takes_few_bytes():
    """After the first step, lengths that grow by one are one byte, and pages two each."""
    encoder = Encoder(LAYOUT)
    rows = ints(*range(1, 257))
    for length in range(100, 103):
        lengths = np.full(256, length, np.int32)
        pages = ints(300, 301, 700, 4000)
        _, _, allocated = encoded(encoder, [Allocated(rows, lengths, (pages, NONE))])
        _, _, committed = encoded(encoder, [Committed(rows, lengths)])
    # Slot 0, the tag "all ones"; four pages of two bytes, none of the second group; no cursors.
    assert allocated.hex() == "0121" + "0402" + "2c2dbca0" + "0101020f" + "00" + "00"
    assert committed.hex() == "0121"


def test_an_equal_batch_is_the_same_object():
    """Rows of equal content come back as one array, by which readers may key what they keep."""
    first, second = own_batches()[0], own_batches()[0]
    assert first is not second
    lengths = np.ones(20, np.int32)
    back = through([decode_step(rows, lengths, NONE)[1] for rows in (first, second, first)])
    assert len({id(group[0].rows) for group in back}) == 1


def test_rows_that_may_change_are_compared_by_content():
    """A writeable array, or a view of one, is never known by its identity."""
    rows = np.arange(1, 21, dtype=np.int32)
    view = rows[:10]
    view.setflags(write=False)
    groups = []
    back = []
    encoder, decoder = Encoder(LAYOUT), Decoder(LAYOUT)
    for turn in range(3):
        rows[:] = np.arange(1, 21) + turn
        groups += [rows.tolist(), view.tolist()]
        back += through(
            [[StepDispatched(turn, rows)], [StepDispatched(turn, view)]], encoder, decoder
        )
    assert [group[0].rows.tolist() for group in back] == groups


def test_lengths_changed_in_place_are_seen():
    """A caller that counts up its own array, against the rule, still gets a true log."""
    rows, lengths = own_batches()[0], np.ones(20, np.int32)
    encoder, decoder = Encoder(LAYOUT), Decoder(LAYOUT)
    for stride in (1, 1, 0, 5):
        lengths += stride
        (back,) = through([[Committed(rows, lengths)]], encoder, decoder)
        assert back[0].committed_len.tolist() == lengths.tolist()


def test_more_batches_than_slots():
    """Slots are taken in turn, and a batch that comes back is defined again."""
    batches = [ints(*range(first, first + 5)) for first in range(1, NUM_SLOTS + 20)]
    groups = [[StepDispatched(idx, rows)] for idx, rows in enumerate(batches + batches)]
    assert all(map(same_events, through(groups), groups))


def test_a_group_of_more_events_than_may_be_is_refused():
    """At 262,144 events it is written and read; with one more it is neither."""
    most = 1 << 18
    ((*back,),) = through([[Marked("", idle=False)] * most])
    assert len(back) == most
    with pytest.raises(EventError, match="a group of 262145 events, at most 262144"):
        Encoder(LAYOUT).group([Marked("", idle=False)] * (most + 1))
    # Unknown events without a content: code 21, 0 bytes.
    body = bytes([0x81, 0x80, 0x10]) + bytes([21, 0]) * (most + 1)
    with pytest.raises(BadBytes, match="a group of 262145 events, at most 262144"):
        Decoder(LAYOUT).group(GROUP, body, 0, len(body))


def test_a_group_of_more_batches_than_slots():
    """Definitions stand before the group, so that no slot that it names is defined in it twice."""
    batches = [ints(*range(first, first + 5)) for first in range(1, NUM_SLOTS + 20)]
    group = [StepDispatched(idx, rows) for idx, rows in enumerate(batches)]
    (back,) = through([group])
    assert same_events(back, group)


@pytest.mark.parametrize(
    ("event", "field"),
    [
        (Marked("\ud800", False), "Marked.text"),
        (Released("r", -1, "finished", (NONE, NONE), NONE), "Released.row"),
        (Released("r", 1, "bored", (NONE, NONE), NONE), "Released.reason"),
        (Evicted("flush", (NONE,)), "Evicted.pages"),
        (Evicted("flush", (NONE, np.zeros(2))), "Evicted.pages"),
        (Committed(ints(1, 2), ints(1)), "Committed.committed_len"),
        (Committed(ints(*range(1, 9)), ints(1)), "Committed.committed_len"),
        (Committed([1, 2], ints(1, 2)), "Committed.rows"),
        (Allocated(ints(1), ints(1), (NONE, NONE), (ints(1, 2),)), "Allocated.evicted_len"),
    ],
)
def test_what_cannot_be_written_is_refused(event, field):
    """An ill-formed event is an `EventError` that names its field."""
    with pytest.raises(EventError, match=field):
        Encoder(LAYOUT).group([event])


def test_an_unknown_kind_is_shown():
    """A code that this version does not know is an event of its own, with its size."""
    ((event,)) = Decoder(LAYOUT).group(0x50, b"abc", 0, 3)
    assert isinstance(event, UnknownEvent)
    assert (event.code, event.size_bytes) == (0x50, 3)
    known = Encoder(LAYOUT).group([Marked("a", True)])[1]
    body = bytes((2, 19, len(known))) + known + bytes((0x51, 2)) + b"zz"
    first, second = Decoder(LAYOUT).group(GROUP, body, 0, len(body))
    assert same_events([first], [Marked("a", True)])
    assert (second.code, second.size_bytes) == (0x51, 2)


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (19, "0561", "5 bytes where 1 are left"),
        (19, "01ff00", "no UTF-8"),
        (19, "016102", "a flag is 0 or 1"),
        (19, "01610000", "left over"),
        (4, "0521", "slot 4 was not defined"),
        (4, "0002" + "010101" + "21", "stands twice"),
        (10, "09" + "0000", "reason 9 of 3"),
        (10, "00" + "0102" + "ff7f" + "00", "out of"),
        (10, "00" + "80808080808001" + "21" + "00", "stands for more"),
        (GROUP, "01" + "1303016100", "stands as a single one"),
        (GROUP, "02" + "13" + "7f", "127 bytes"),
        (GROUP, "02" + "0000", "no event has the code 0"),
    ],
)
def test_hostile_records_are_refused(kind, body, reason):
    """Fields that do not fit their record, or ids out of range, are errors."""
    content = bytes.fromhex(body)
    with pytest.raises(BadBytes, match=reason):
        Decoder(LAYOUT).group(kind, content, 0, len(content))


def test_few_bytes_cannot_stand_for_much():
    """A record of many runs is refused before it takes much memory."""
    run = bytes((10, 7, 0)) + b"\x80\x80\x04" + b"\x20\x02\x00" + b"\0"
    run = bytes((10, len(run) - 2)) + run[2:]
    body = b"\xff\x7f" + run * 0x3FFF
    with pytest.raises(BadBytes, match="stands for more"):
        Decoder(LAYOUT).group(GROUP, body, 0, len(body))


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        (3, "", "in the middle of a field"),
        (3, "0121", "in the middle of a field"),
        # No pages, in the fewest bytes and in more: what follows is the next field.
        (3, "0121" + "00" + "00" + "00", ""),
        (3, "0121" + "8000" + "00" + "00", ""),
        (3, "0121" + "00" + "8000" + "00", ""),
        (3, "0121" + "800001" + "00" + "00", "under the tag 0x0"),
        (3, "0121" + "800002" + "8000", "under the tag 0x80"),
        (3, "0121" + "00" + "8000", "in the middle of a field"),
        # Step 1 in one byte, in ten, and in eleven, which no number has.
        (14, "01" + "01", ""),
        (14, "81" + 8 * "80" + "00" + "01", ""),
        (14, "81" + 9 * "80" + "00" + "01", "more than 64 bits"),
        (15, "81" + 9 * "80" + "00" + "00000000", "more than 64 bits"),
    ],
)
def test_the_quick_way_reads_what_the_general_way_reads(kind, body, reason):
    """A hot event of a batch, written as no writer does: read by its fields alone, or refused."""
    decoder = Decoder(LAYOUT)
    decoder.define(bytes.fromhex("0005010102030508"), 0, 8)
    decoder.group(3, bytes.fromhex("012022000102040100" + "00"), 0, 10)
    content = bytes.fromhex(body)
    if reason:
        with pytest.raises(BadBytes, match=reason):
            decoder.group(kind, bytes(68) + content, 68, 68 + len(content))
        return
    (event,) = decoder.group(kind, bytes(68) + content, 68, 68 + len(content))
    assert event.rows.tolist() == [1, 2, 3, 5, 8]
    if kind == 3:
        assert [pages.tolist() for pages in event.pages] == [[], []]
        assert event.allocated_len.tolist() == [18] * 5
    else:
        assert event.step == 1


@pytest.mark.parametrize(("kind", "tail"), [(14, b"\x01"), (15, bytes(4))])
def test_a_number_of_millions_of_bytes_takes_no_time(kind, tail):
    """A step that goes on and on is refused at its eleventh byte, not after hours."""
    decoder = Decoder(LAYOUT)
    decoder.define(bytes.fromhex("0005010102030508"), 0, 8)
    content = bytes(68) + b"\xff" * (4 << 20) + tail
    with pytest.raises(BadBytes, match="more than 64 bits"):
        decoder.group(kind, content, 68, len(content))
