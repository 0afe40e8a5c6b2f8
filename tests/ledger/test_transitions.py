"""The arithmetic of the ladder: ints against arrays, and batches against one by one."""

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlife import transitions
from kvlife.records import ReqKvBatch, ReqKvInfo

LEN = st.integers(0, 1 << 20)
SIZE = st.sampled_from([1, 2, 3, 16, 64, 256])
WINDOW = st.integers(1, 5000)
UNBOUNDED = (1 << 31) - 1

# Each transition with how many lengths it takes, and which numbers follow them.
TRANSITIONS = [
    (transitions.page_floor, 1, (SIZE,)),
    (transitions.page_ceil, 1, (SIZE,)),
    (transitions.num_pages, 1, (SIZE,)),
    (transitions.lower, 2, ()),
    (transitions.higher, 2, ()),
    (transitions.commit_bound, 2, ()),
    (transitions.cursor_bound, 1, (WINDOW, SIZE)),
    (transitions.cursor_target, 1, (WINDOW, SIZE)),
    (transitions.cursor_after_roll_back, 2, (WINDOW, SIZE)),
    (transitions.settled_after_roll_back, 2, (st.just(UNBOUNDED),)),
    (transitions.swa_dead_lo, 2, (SIZE,)),
    (transitions.effective_committed_len, 2, ()),
    (transitions.window_lack, 4, (WINDOW, SIZE)),
]


def test_every_transition_is_in_the_list():
    """A transition that is added is held to the same properties."""
    public = {
        name
        for name, value in vars(transitions).items()
        if callable(value) and getattr(value, "__module__", "") == transitions.__name__
    }
    assert public == {function.__name__ for function, *_ in TRANSITIONS}


@pytest.mark.parametrize(
    ("function", "num_lens", "others"), TRANSITIONS, ids=[f[0].__name__ for f in TRANSITIONS]
)
@given(data=st.data())
def test_an_array_gives_what_its_ints_give(function, num_lens, others, data):
    """One definition serves a record and a batch: entry by entry the same numbers, and int32."""
    lengths = (
        LEN if function is not transitions.settled_after_roll_back else LEN | st.just(UNBOUNDED)
    )
    rows = data.draw(st.lists(st.tuples(*[lengths] * num_lens), min_size=1, max_size=8))
    rest = [data.draw(other) for other in others]
    arrays = [np.array(column, np.int32) for column in zip(*rows, strict=True)]
    before = [array.copy() for array in arrays]
    together = function(*arrays, *rest)
    assert together.dtype == np.int32
    assert together.tolist() == [function(*row, *rest) for row in rows]
    assert all(np.array_equal(old, new) for old, new in zip(before, arrays, strict=True))


@given(length=LEN, size=SIZE)
def test_floor_and_ceiling_enclose_a_length_by_less_than_a_page(length, size):
    """Whole pages on both sides, and the number of pages is that of the ceiling."""
    low, high = transitions.page_floor(length, size), transitions.page_ceil(length, size)
    assert low <= length <= high
    assert low % size == high % size == 0
    assert high - low == (size if length % size else 0)
    assert transitions.num_pages(length, size) * size == high


@given(left=LEN, right=LEN)
def test_lower_and_higher_are_minimum_and_maximum(left, right):
    """They are written without a branch and mean min and max."""
    assert transitions.lower(left, right) == min(left, right)
    assert transitions.higher(left, right) == max(left, right)
    assert transitions.commit_bound(left, right) == min(left, right)
    assert transitions.effective_committed_len(left, right) == min(left, right)


@given(committed=LEN, window=WINDOW, size=SIZE)
def test_a_cursor_at_its_bound_leaves_the_next_query_its_window(committed, window, size):
    """The query at `committed` sees `window` positions with itself; none of them is passed."""
    bound = transitions.cursor_bound(committed, window, size)
    first_seen = max(0, committed - window + 1)
    assert bound % size == 0
    assert bound <= first_seen < bound + size
    target = transitions.cursor_target(committed, window, size)
    assert 0 <= target <= bound


@pytest.mark.parametrize(
    ("committed", "window", "size", "bound", "target"),
    [
        (20, 4, 8, 16, 8),
        (19, 4, 8, 16, 8),
        (18, 4, 8, 8, 8),
        (24, 8, 8, 16, 16),
        (24, 9, 8, 16, 8),
        (3, 4, 1, 0, 0),
        (5, 4, 1, 2, 1),
        (5, 1, 1, 5, 4),
    ],
)
def test_window_cursors_by_hand(committed, window, size, bound, target):
    """The floors of committed - W + 1, and of committed - max(W, P), that one in whole pages."""
    assert transitions.cursor_bound(committed, window, size) == bound
    assert transitions.cursor_target(committed, window, size) == target


@pytest.mark.parametrize(
    ("protected", "floor", "size", "dead_lo"),
    [(8, 0, 4, 8), (8, 10, 4, 12), (8, 12, 4, 12), (0, 1, 16, 16), (16, 4, 8, 16), (0, 0, 4, 0)],
)
def test_the_window_frees_from_protected_or_the_floor_in_pages(protected, floor, size, dead_lo):
    """max(protected, floor), rounded up to a page where it lies above protected."""
    assert transitions.swa_dead_lo(protected, floor, size) == dead_lo
    record = ReqKvInfo(cache_protected_len=protected, swa_evict_floor=floor)
    assert record.swa_dead_lo(size) == dead_lo


@pytest.mark.parametrize(
    ("cursor", "floor", "committed", "allocated", "lacks"),
    [
        (8, 0, 11, 11, False),  # bound = 11 - 4 + 1 = 8: the window begins at the cursor
        (8, 0, 10, 10, True),  # bound = 4 (floor of 7): [4, 8) is gone
        (8, 4, 7, 7, True),  # the floor covers [0, 4), the cursor passed [4, 8)
        (8, 5, 7, 7, False),  # the floor covers its whole page, [0, 8)
        (8, 4, 4, 4, False),  # all that is left lies below the floor
        (8, 4, 4, 5, True),  # and the scheduled token lies on a page that is gone
        (8, 0, 0, 0, False),  # nothing is left
    ],
)
def test_what_a_cut_lacks_of_its_window(cursor, floor, committed, allocated, lacks):
    """A window of 4 in pages of 4: gone is what lies between the floor's pages and the cursor."""
    lack = transitions.window_lack(cursor, floor, committed, allocated, 4, 4)
    assert (lack > 0) is lacks


def test_settled_goes_down_with_a_roll_back_once_a_step_was_dispatched():
    """A row that never flew keeps all that it will allocate settled."""
    assert transitions.settled_after_roll_back(9, 7, UNBOUNDED) == 7
    assert transitions.settled_after_roll_back(5, 7, UNBOUNDED) == 5
    assert transitions.settled_after_roll_back(UNBOUNDED, 7, UNBOUNDED) == UNBOUNDED


RECORDS = st.lists(
    st.tuples(*[LEN] * 7).map(
        lambda lens: ReqKvInfo(
            req_pool_idx=1,
            cache_protected_len=lens[0],
            kv_committed_len=lens[1],
            kv_allocated_len=lens[2],
            swa_evict_floor=lens[3],
            swa_evicted_seqlens=(lens[4],),
            prompt_len=lens[5],
            settled_len=lens[6],
        )
    ),
    min_size=1,
    max_size=6,
)


def together(records):
    """The records as a batch."""
    names = [item.name for item in attrs.fields(ReqKvBatch) if item.name != "swa_evicted_seqlens"]
    columns = {n: np.array([getattr(r, n) for r in records], np.int32) for n in names}
    cursors = (np.array([r.swa_evicted_seqlens[0] for r in records], np.int32),)
    return ReqKvBatch(**columns, swa_evicted_seqlens=cursors)


def one_by_one(batch):
    return [batch.one(idx) for idx in range(len(batch))]


@given(records=RECORDS, data=st.data(), window=WINDOW, size=SIZE)
def test_a_batch_moves_as_its_records_do(records, data, window, size):
    """Each transition of a batch is that of each record, and neither changes what it came from."""
    new = data.draw(st.lists(LEN, min_size=len(records), max_size=len(records)))
    ends = data.draw(st.lists(LEN, min_size=len(records), max_size=len(records)))
    batch, many, many_ends = together(records), np.array(new, np.int32), np.array(ends, np.int32)
    windows = ((window, size),)
    pairs = list(zip(records, new, ends, strict=True))
    assert one_by_one(batch) == records
    assert one_by_one(batch.allocate(many)) == [r.allocate(n) for r, n, _ in pairs]
    assert one_by_one(batch.commit(many)) == [r.commit(n) for r, n, _ in pairs]
    assert one_by_one(batch.protect(many)) == [r.protect(n) for r, n, _ in pairs]
    assert one_by_one(batch.evict_window((many,))) == [r.evict_window((n,)) for r, n, _ in pairs]
    assert one_by_one(batch.roll_back(many, many_ends, windows)) == [
        r.roll_back(n, end, windows) for r, n, end in pairs
    ]
    assert one_by_one(batch) == records


def test_a_record_says_what_it_is():
    """A bound row holds KV; with nothing allocated and the cursor at 0 it is released."""
    record = ReqKvInfo(req_pool_idx=3, kv_committed_len=9, prompt_len=7)
    assert record.holds_kv
    assert record.is_released
    assert not record.allocate(1).is_released
    assert not record.evict_window((4,)).is_released
    assert record.evict_window((4, 8)).swa_evicted_seqlen == 8
    assert record.effective_kv_committed_len == 7
    assert not ReqKvInfo().holds_kv
