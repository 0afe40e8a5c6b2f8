"""What the tests of the log share: a pool, events of every kind, runs written to a folder."""

import numpy as np
from golden_v1 import CONFIG, NONE, ints, one_of_each
from hypothesis import strategies as st

from kvlife.config import PoolConfig, compile_layout
from kvlife.events import (
    EVENT_TYPES,
    FIELDS,
    Allocated,
    Committed,
    FieldKind,
    same_event,
)
from kvlife.ledger import FrozenState
from kvlife.log import LogWriter, RunHeader

LAYOUT = compile_layout(CONFIG)
ONE_GROUP = PoolConfig(page_size=16, num_pages=5000, max_requests=400, max_context_len=4096)
HEADER = RunHeader(config=CONFIG, created_ns=1_700_000_000_000_000_000)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


def decode_step(rows, lengths, pages):
    """The two groups of one decoding step, for a pool of one cache group."""
    return [Allocated(rows, lengths, (pages,))], [Committed(rows, lengths)]


def start(path, config=CONFIG, **options):
    """A started writer."""
    writer = LogWriter(path, **options)
    writer.start(RunHeader(config=config, created_ns=1_700_000_000_000_000_000))
    return writer


def append_all(writer, groups, step=0):
    """Append groups one after another, each a step and 8 ms later than the one before."""
    for group in groups:
        writer.append(writer.next_seq, step, step * 8_000_000, group)
        step += 1


def plain_groups(num, num_rows=20, seed=1):
    """`num` groups of decoding steps over a batch, for a pool of one cache group."""
    random = np.random.default_rng(seed)
    rows = ints(*range(1, num_rows + 1))
    lengths = random.integers(1, 2000, num_rows).astype(np.int32)
    groups = []
    while len(groups) < num:
        lengths = lengths + np.int32(1)
        lengths.setflags(write=False)
        pages = random.integers(1, 5000, random.integers(0, 4)).astype(np.int32)
        groups += decode_step(rows, lengths, pages)
    return groups[:num]


def mixed_groups(num, seed=3):
    """Groups of one to four events of every kind, and decoding steps between them."""
    random = np.random.default_rng(seed)
    each = one_of_each()
    rows = ints(*range(1, 41))
    groups = []
    for step in range(num):
        if step % 2:
            first = int(random.integers(len(each)))
            groups.append((each + each)[first : first + int(random.integers(1, 5))])
        else:
            lengths = np.full(40, 100 + step, np.int32)
            pages = random.integers(1, 5000, 3).astype(np.int32)
            groups.append([Allocated(rows, lengths, (pages, NONE))])
    return groups


def same_events(left, right):
    """Whether two lists of events say the same."""
    return len(left) == len(right) and all(map(same_event, left, right))


class FakeSnapshot:
    """A state to be stored: some arrays, some bytes, a digest; remembers that it was released."""

    def __init__(self, seq, num=100):
        self.seq = seq
        self.num = num
        self.released = 0

    def freeze(self):
        return state_of(self.seq, self.num)

    def release(self):
        self.released += 1


def state_of(seq, num=100):
    """The state that `FakeSnapshot` of this seq freezes to."""
    pages = np.arange(num, dtype=np.int32) + np.int32(seq % 1000)
    keys = np.arange(num, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    table = np.arange(2 * num, dtype=np.int64).reshape(2, num)
    return FrozenState({"pages": pages, "keys": keys, "table": table}, f"seq {seq}".encode(), seq)


def same_state(left, right):
    """Whether two states are equal, arrays with their types and shapes."""
    return (
        left.digest == right.digest
        and left.meta == right.meta
        and list(left.arrays) == list(right.arrays)
        and all(
            left.arrays[name].dtype == array.dtype
            and left.arrays[name].shape == array.shape
            and bool((left.arrays[name] == array).all())
            for name, array in right.arrays.items()
        )
    )


def settled(writer):
    """Wait until the log's own thread has done what it was asked for."""
    done = []
    writer._run.thread._jobs.put(lambda: done.append(True))
    while not done:
        writer._run.thread._thread.join(0.001)


@st.composite
def arrays(draw, low, high, size, dtype=np.int32):
    """A read-only array: random values, an arithmetic run, or values close together."""
    shape = draw(st.sampled_from(["random", "run", "near"]))
    if shape == "run":
        step = draw(st.sampled_from([-1, 0, 1, 3]))
        first = draw(st.integers(low, high))
        values = [min(max(first + step * idx, low), high) for idx in range(size)]
    elif shape == "near":
        first = draw(st.integers(low, max(low, high - 40)))
        values = [min(first + v, high) for v in _values(draw, 0, 40, size)]
    else:
        values = _values(draw, low, high, size)
    array = np.array(values, dtype)
    array.setflags(write=False)
    return array


def _values(draw, low, high, size):
    return draw(st.lists(st.integers(low, high), min_size=size, max_size=size))


def _pages(draw, group):
    num_pages = LAYOUT.spaces[LAYOUT.groups[group].space_idx].num_pages
    return draw(arrays(0, num_pages - 1, draw(st.integers(0, 40))))


def _links(draw, event_type):
    num = draw(st.integers(0, 5))
    width = 1 << 8 if event_type.__name__ == "Protected" else LAYOUT.num_rows
    columns = [_values(draw, 0, high, num) for high in (1, width - 1, 199, 199)]
    links = np.array(columns, np.int32).T.copy().reshape(num, 4)
    links.setflags(write=False)
    return links


def _lengths(draw, _event_type, made):
    return draw(arrays(-(1 << 31), (1 << 31) - 1, made["rows"].size))


def _keys(draw, _event_type, _made):
    num = draw(st.integers(0, 5))
    return tuple(draw(arrays(0, (1 << 64) - 1, num, np.uint64)) for _ in range(2))


def _simple(strategy):
    return lambda draw, _event_type, _made: draw(strategy)


_HOST = arrays(0, (1 << 31) - 1, 9)
_ROW = st.integers(0, LAYOUT.num_rows - 1)
_FIELDS = {
    FieldKind.TEXT: _simple(TEXTS),
    FieldKind.MAYBE_TEXT: _simple(st.none() | TEXTS),
    FieldKind.REASON: lambda draw, event_type, _: draw(st.sampled_from(event_type.REASONS)),
    FieldKind.FLAG: _simple(st.booleans()),
    FieldKind.COUNT: _simple(st.integers(0, (1 << 63) - 1)),
    FieldKind.U64: _simple(st.integers(0, (1 << 64) - 1)),
    FieldKind.LENGTH: _simple(INT32),
    FieldKind.ROW: _simple(_ROW),
    FieldKind.MAYBE_ROW: _simple(st.none() | _ROW),
    FieldKind.GROUP: _simple(st.integers(0, 1)),
    FieldKind.SPACE: _simple(st.integers(0, 1)),
    FieldKind.LENGTHS: _lengths,
    FieldKind.PAGES: lambda draw, _, __: tuple(_pages(draw, group) for group in range(2)),
    FieldKind.GROUP_PAGES: lambda draw, _, made: _pages(draw, made["group"]),
    FieldKind.DIGESTS: lambda draw, _, made: draw(
        arrays(0, (1 << 64) - 1, made["pages"].size, np.uint64)
    ),
    FieldKind.HOST_PAGES: _simple(_HOST),
    FieldKind.MAYBE_HOST_PAGES: _simple(st.none() | _HOST),
    FieldKind.KEYS: _keys,
    FieldKind.CURSORS: _simple(st.tuples(INT32)),
    FieldKind.CURSOR_ARRAYS: lambda draw, event_type, made: draw(
        st.sampled_from([None, (_lengths(draw, event_type, made),)])
    ),
    FieldKind.LINKS: lambda draw, event_type, _: _links(draw, event_type),
}


@st.composite
def events(draw, batches, event_type=None):
    """A well-formed event of any kind; its rows are one of `batches`, or rows of its own."""
    event_type = event_type or draw(st.sampled_from(EVENT_TYPES))
    made = {}
    for field in FIELDS[event_type]:
        if field.kind is FieldKind.ROWS:
            own = st.lists(st.integers(0, LAYOUT.num_rows - 1), unique=True, max_size=12)
            made[field.name] = draw(st.sampled_from(batches) | own.map(lambda rows: ints(*rows)))
        else:
            made[field.name] = _FIELDS[field.kind](draw, event_type, made)
    return event_type(**made)


def own_batches():
    """Rows arrays that several events of one test may name."""
    return [ints(*range(1, 21)), ints(7, 3, 9, 11, 2), ints(*range(300, 100, -1)), ints(5, 6)]
