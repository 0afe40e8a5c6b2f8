"""`check_structure` names event, field and reason for every kind of ill-formed field."""

import attrs
import numpy as np
import pytest
from pool_configs import POOLS, pool

from kvlife.config import compile_layout
from kvlife.errors import EventError
from kvlife.events import (
    EVENT_TYPES,
    FIELDS,
    Admitted,
    Allocated,
    Digested,
    FieldKind,
    Marked,
    Pinned,
    Protected,
    Released,
    Resized,
    Resumed,
    Retracted,
    RolledBack,
    SessionClosed,
    StepDispatched,
    WindowEvicted,
    check_structure,
)

LAYOUT = compile_layout(POOLS["window"])


def ids(*values, dtype=np.int32):
    return np.array(values, dtype)


NONE = (ids(), ids())
NO_LINKS = np.empty((0, 4), np.int32)

SOUND = {
    Admitted: Admitted("r", 1, 0, 5, 4, 0, (0,), (ids(1), ids(1, 2))),
    Resumed: Resumed("r", 1, 0, 5, 4, 0, (0,), (ids(1), ids(1, 2)), 4, NONE),
    Allocated: Allocated(ids(1, 2), ids(5, 6), (ids(1, 2), ids(3)), (ids(0, 2),)),
    Protected: Protected(1, 4, (ids(9, dtype=np.uint64), ids(0, dtype=np.uint64)), NO_LINKS),
    RolledBack: RolledBack(ids(1), ids(4), ids(4), NONE, ids(0, 4, 19, 2).reshape(1, 4)),
    WindowEvicted: WindowEvicted(1, ids(1), ids(4), ids(19)),
    Released: Released("r", None, "lost", NONE, ids(3)),
    Retracted: Retracted("r", 1, None, NONE),
    SessionClosed: SessionClosed("s", None, NONE),
    StepDispatched: StepDispatched(0, ids(4, 1)),
    Pinned: Pinned("p", "copy", True, None, 1, ids(3)),
    Resized: Resized(1, 40),
    Marked: Marked("note", idle=True),
    Digested: Digested(1, ids(3, 4), ids(7, 2**63, dtype=np.uint64)),
}

# Event, field, an ill-formed value, and a part of the reason.
ILL_FORMED = [
    (Marked, "text", 5, "got int"),
    (Marked, "text", "\ud800", "lone surrogate"),
    (Marked, "text", "x" * 5000, "5000 bytes, at most 4096"),
    (Marked, "idle", 1, "got int"),
    (Pinned, "owner", 7, "got int"),
    (Pinned, "writes", None, "got NoneType"),
    (Pinned, "group", 2, "2 is out of"),
    (Pinned, "group", True, "got bool"),
    (Pinned, "pages", ids(20), "entry 0 is 20"),
    (Pinned, "pages", ids(-1), "entry 0 is -1"),
    (Pinned, "pages", ids(1.0, dtype=np.float32), "got float32"),
    (Pinned, "pages", [1], "got list"),
    (Released, "reason", "tired", "'tired' is none of finished, aborted, lost"),
    (Released, "row", 5, "5 is out of"),
    (Released, "host_pages", ids(-4), "entry 0 is -4"),
    (Released, "pages", (ids(),), "wanted one array for each of 2 groups"),
    (Released, "pages", [ids(), ids()], "wanted one array for each of 2 groups"),
    (Released, "pages", (ids(), ids(3, 77)), "group 'swa': entry 1 is 77"),
    (Retracted, "backup", ids(1, dtype=np.int64), "got int64"),
    (Retracted, "row", None, "got NoneType"),
    (Retracted, "row", -1, "-1 is out of"),
    (SessionClosed, "row", "1", "got str"),
    (Resized, "space", 2, "2 is out of"),
    (Resized, "num_pages", -1, "-1 is out of"),
    (Resized, "num_pages", 2.0, "got float"),
    (StepDispatched, "step", 1 << 63, "is out of"),
    (StepDispatched, "rows", ids(1, 3, 1), "row 1 stands twice"),
    (StepDispatched, "rows", ids(5), "entry 0 is 5"),
    (StepDispatched, "rows", ids(1).reshape(1, 1), "2 dimensions"),
    (StepDispatched, "rows", ids(1, dtype=np.int64), "got int64"),
    (Admitted, "namespace", 1 << 64, "is out of"),
    (Admitted, "prompt_len", 1 << 31, "is out of"),
    (Admitted, "prompt_len", np.int32(3), "got int32"),
    (Admitted, "evicted_len", (), "wanted one int for each of 1 window groups"),
    (Admitted, "evicted_len", (1.5,), "got float"),
    (Allocated, "allocated_len", ids(5), "1 entries for 2 rows"),
    (Allocated, "allocated_len", ids(5, 6, dtype=np.int64), "got int64"),
    (Allocated, "evicted_len", (ids(0),), "1 entries for 2 rows"),
    (Allocated, "evicted_len", (ids(0, 2), ids(0, 2)), "for each of 1 window groups"),
    (Protected, "keys", (ids(9), ids(0)), "group 'full': got int32"),
    (Protected, "keys", None, "for each of 2 groups"),
    (Protected, "rebinds", ids(), "got int32 with 1 dimensions"),
    (Protected, "rebinds", np.zeros((2, 3), np.int32), "shape (2, 3)"),
    (Protected, "rebinds", ids(2, 0, 1, 1).reshape(1, 4), "entry 0 is 2"),
    (Protected, "rebinds", ids(0, 6, 1, 1).reshape(1, 4), "entry 0 is 6"),
    (Protected, "rebinds", ids(1, 0, 1, 20).reshape(1, 4), "entry 0 is 20"),
    (RolledBack, "copies", ids(0, 5, 1, 1).reshape(1, 4), "entry 0 is 5"),
    (Digested, "pages", ids(3, 20), "entry 1 is 20"),
    (Digested, "digests", ids(7, dtype=np.uint64), "1 entries for 2 pages"),
    (Digested, "digests", ids(7, 8), "got int32"),
    (WindowEvicted, "group", -1, "-1 is out of"),
    (WindowEvicted, "evicted_len", ids(), "0 entries for 1 rows"),
    (WindowEvicted, "pages", None, "got NoneType"),
]


@pytest.mark.parametrize("event", SOUND.values(), ids=lambda event: type(event).__name__)
def test_a_well_formed_event_passes(event):
    """The events that the cases below spoil are fine before."""
    check_structure(event, LAYOUT)


@pytest.mark.parametrize(
    ("kind", "field", "value", "reason"),
    ILL_FORMED,
    ids=[f"{kind.__name__}.{field}-{idx}" for idx, (kind, field, *_) in enumerate(ILL_FORMED)],
)
def test_an_ill_formed_field_is_named_with_its_reason(kind, field, value, reason):
    """The message holds the event, the field and what is wrong with it."""
    event = attrs.evolve(SOUND[kind], **{field: value})
    with pytest.raises(EventError) as caught:
        check_structure(event, LAYOUT)
    assert f"{kind.__name__}.{field} must be" in str(caught.value)
    assert reason in str(caught.value)


def test_every_kind_of_field_is_spoiled_once():
    """No kind of field is left out of the cases above."""
    kinds = {
        next(item.kind for item in FIELDS[kind] if item.name == field)
        for kind, field, *_ in ILL_FORMED
    }
    used = {item.kind for event_type in EVENT_TYPES for item in FIELDS[event_type]}
    assert used == set(FieldKind)
    assert used - kinds == set()


def test_what_is_no_event_is_refused():
    """Something else than an event is named by its type."""
    with pytest.raises(EventError, match="dict is no event"):
        check_structure({"row": 1}, LAYOUT)


def test_ids_are_bounded_by_the_present_size_of_a_space():
    """The page that is out of 20 pages is fine in a space of 21."""
    event = attrs.evolve(SOUND[Pinned], group=0, pages=ids(20))
    check_structure(event, compile_layout(pool(num_pages=21)))
    with pytest.raises(EventError, match="out of"):
        check_structure(event, compile_layout(pool()))
