"""What an engine asks of a log, and a replay of what it reads back."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kvlife.config import CacheGroup, PoolConfig, compile_layout
from kvlife.engine import KvEngine
from kvlife.errors import CommandRefused, EventError, LogError
from kvlife.events import Event, Evicted, Marked, Recorded, same_event
from kvlife.ledger import Ledger
from kvlife.log import RunHeader
from kvlife.testing.conformance.contract import Contract
from kvlife.testing.samples import one_of_each

_TWO_GROUPS = PoolConfig(
    page_size=16,
    num_pages=500,
    max_requests=40,
    max_context_len=4096,
    groups=(CacheGroup("full"), CacheGroup("swa", window=64, num_pages=200)),
)
_SMALL = PoolConfig(page_size=4, num_pages=32, max_requests=4, max_context_len=64)


class LogStoreConformance(Contract):
    """Does a log store keep what it was given? Subclass it, and define `writer` and `reader`.

    The writer has what `LogWriter` has: `start`, `append`, `snapshot`, `close`, `wait`,
    `next_seq`, `wants_snapshot`, `log_bytes`, `num_gaps`; the reader what `open_run` returns:
    `header`, `events`, `groups`, `next_seq`, `begins_at`, `closed`, `snapshots`, `snapshot`,
    `warnings`.
    """

    def writer(self, path: Path) -> Any:  # Any: of another making
        """A writer of runs under `path` that is not started."""
        raise NotImplementedError(f"{type(self).__name__} defines no writer(path)")

    def reader(self, path: Path) -> Any:  # Any: of another making
        """The newest run under `path`, open for reading; also while it is being written."""
        raise NotImplementedError(f"{type(self).__name__} defines no reader(path)")

    def leave(self, path: Path, target: Path) -> None:
        """Copy to `target` what a process that dies now would leave of the store under `path`."""
        shutil.copytree(path, target)

    def tear(self, path: Path, num_bytes: int) -> None:
        """Take so many bytes from the end of what was written last; skips where that cannot be."""
        self.skipTest(
            f"{type(self).__name__} does not say how to tear {num_bytes} bytes off {path}"
        )

    # -- what was appended -----------------------------------------------------------------

    def test_every_kind_of_event_comes_back(self) -> None:
        """Events of all kinds, with several groups of pages, are read as they were written."""
        layout = compile_layout(_TWO_GROUPS)
        events = [event for seed in range(5) for event in one_of_each(layout, seed)]
        writer = self._started(_TWO_GROUPS)
        for seq, event in enumerate(events):
            writer.append(seq, 0, 0, [event])
        writer.close(None)
        self._assert_same([r.event for r in self.reader(self.path).events()], events)

    def test_envelopes_come_back(self) -> None:
        """Seqs have no gap; steps and times are as given, also where they jump or go back."""
        envelopes = [(5, 10**18), (3, 10**18 - 5), (900, 7), (2**62, -7)]
        writer = self._started()
        for seq, (step, time_ns) in enumerate(envelopes):
            writer.append(seq, step, time_ns, [_note(seq)])
        writer.close(None)
        recorded = list(self.reader(self.path).events())
        self.assertEqual([(r.step, r.time_ns) for r in recorded], envelopes)
        self.assertEqual([r.seq for r in recorded], [0, 1, 2, 3])

    def test_the_header_comes_back(self) -> None:
        """Configuration, policies and names of a run are read as they were written."""
        header = RunHeader(
            config=_TWO_GROUPS, policies={"refs-balance": "log"}, group="g", rank=1, world_size=2
        )
        writer = self.writer(self.path)
        writer.start(header)
        writer.close(None)
        read = self.reader(self.path).header
        for name in ("config", "policies", "group", "rank", "world_size"):
            self.assertEqual(getattr(read, name), getattr(header, name))

    def test_groups_stay_whole(self) -> None:
        """What one append wrote is read as one group."""
        writer = self._started()
        sizes = [1, 3, 2, 1]
        self._append_groups(writer, sizes)
        writer.close(None)
        self.assertEqual([len(group) for group in self.reader(self.path).groups()], sizes)

    def test_any_range_can_be_read(self) -> None:
        """Events are cut exactly; a range of groups has those that begin in it, whole."""
        writer = self._started()
        self._append_groups(writer, [2, 3, 1, 4])
        writer.close(None)
        run = self.reader(self.path)
        for start in range(11):
            for stop in range(start, 11):
                self.assertEqual([r.seq for r in run.events(start, stop)], list(range(start, stop)))
        self.assertEqual([[r.seq for r in g] for g in run.groups(1, 5)], [[2, 3, 4]])

    def test_many_events_come_back(self) -> None:
        """Ten thousand events, some of them large, are read in their order."""
        writer = self._started()
        self._append_groups(writer, [1 + seq % 7 for seq in range(2500)])
        writer.close(None)
        texts = [r.event.text for r in self.reader(self.path).events()]
        self.assertEqual(texts, [_note(seq).text for seq in range(len(texts))])
        self.assertGreater(len(texts), 9000)

    # -- what is refused -------------------------------------------------------------------

    def test_a_wrong_seq_is_refused(self) -> None:
        """No seq is left out or written twice; the right one is still welcome."""
        writer = self._started()
        self._append_groups(writer, [2])
        for seq in (0, 1, 3):
            with self.assertRaises(LogError):
                writer.append(seq, 0, 0, [_note(seq)])
        self.assertEqual(writer.next_seq, 2)
        writer.append(2, 0, 0, [_note(2)])
        writer.close(None)
        self.assertEqual(len(list(self.reader(self.path).events())), 3)

    def test_a_refused_group_leaves_nothing_behind(self) -> None:
        """After an ill-formed event nothing of its group is there, and the seq is still to come."""
        writer = self._started()
        self._append_groups(writer, [1])
        with self.assertRaises(EventError):
            writer.append(1, 0, 0, [_note(1), Evicted("flush", ())])
        self.assertEqual(writer.next_seq, 1)
        writer.append(1, 0, 0, [_note(7)])
        writer.close(None)
        self.assertEqual([r.event.text for r in self.reader(self.path).events()], ["n0", "n7"])

    def test_only_an_open_log_is_written(self) -> None:
        """Before the start and after the end an append is refused; closing twice does nothing."""
        writer = self.writer(self.path)
        with self.assertRaises(LogError):
            writer.append(0, 0, 0, [_note(0)])
        writer.start(RunHeader(config=_SMALL))
        writer.close(7)
        writer.close(8)
        with self.assertRaises(LogError):
            writer.append(0, 0, 0, [_note(0)])
        self.assertEqual(self.reader(self.path).closed.digest, 7)

    # -- runs, readers, ends ---------------------------------------------------------------

    def test_each_start_makes_a_new_run(self) -> None:
        """The newest run is read, and it begins with seq 0."""
        for num in (1, 2):
            writer = self._started()
            self._append_groups(writer, [num])
            writer.close(num)
        run = self.reader(self.path)
        self.assertEqual((run.begins_at, run.next_seq, run.closed.digest), (0, 2, 2))

    def test_an_empty_run_can_be_read(self) -> None:
        """A run in which nothing happened has no events, and an end."""
        self._started().close(3)
        run = self.reader(self.path)
        self.assertEqual((run.next_seq, list(run.events()), run.closed.digest), (0, [], 3))

    def test_a_reader_beside_the_writer_sees_whole_groups(self) -> None:
        """It sees all that append has returned from, and its view stays what it was."""
        writer = self._started()
        self._append_groups(writer, [2, 3])
        early = self.reader(self.path)
        self._append_groups(writer, [4], first=5)
        late = self.reader(self.path)
        self.assertEqual([len(group) for group in early.groups()], [2, 3])
        self.assertEqual([len(group) for group in late.groups()], [2, 3, 4])
        self.assertIsNone(late.closed)
        writer.close(None)
        self.assertEqual([len(group) for group in early.groups()], [2, 3])

    def test_what_was_appended_survives(self) -> None:
        """A process that dies now leaves every group that append has returned from."""
        writer = self._started()
        for num in range(1, 6):
            self._append_groups(writer, [num], first=num * (num - 1) // 2)
            left = self.path.parent / f"{self.path.name}-{num}"
            self.addCleanup(shutil.rmtree, left)
            self.leave(self.path, left)
            groups = [len(group) for group in self.reader(left).groups()]
            self.assertEqual(groups, list(range(1, num + 1)))
        writer.close(None)

    def test_a_torn_end_loses_whole_groups_only(self) -> None:
        """With bytes missing at the end, groups before it are read, and the reader is told."""
        sizes = [1, 2, 3, 4, 5]
        for num_bytes in (1, 3, 10, 40):
            writer = self._started()
            self._append_groups(writer, sizes)
            left = self.path.parent / f"{self.path.name}-torn-{num_bytes}"
            self.addCleanup(shutil.rmtree, left, ignore_errors=True)
            self.leave(self.path, left)
            writer.close(None)
            self.tear(left, num_bytes)
            run = self.reader(left)
            groups = [len(group) for group in run.groups()]
            self.assertEqual(groups, sizes[: len(groups)])
            self.assertLess(len(groups), len(sizes))
            self.assertTrue(run.warnings)

    # -- states ----------------------------------------------------------------------------

    def test_a_snapshot_comes_back(self) -> None:
        """The state is read as it was, and the events after it lead to the state at the end."""
        writer = self.writer(self.path)
        engine = KvEngine(_SMALL, log=writer, clock=lambda: 0, key_seed=1)
        _live(engine, 20)
        # One that the engine asked for may still be being written.
        writer.wait()
        writer.snapshot(engine.ledger.snapshot())
        seq, digest = engine.next_seq, engine.ledger.digest()
        writer.wait()
        _live(engine, 20, first=20)
        engine.close()
        run = self.reader(self.path)
        self.assertIn(seq, run.snapshots)
        ledger = Ledger.restore(_SMALL, run.snapshot(seq))
        self.assertEqual(ledger.digest(), digest)
        _fold(ledger, run.events(seq))
        self.assertEqual(ledger.digest(), engine.ledger.digest())

    def test_a_snapshot_of_another_seq_is_refused(self) -> None:
        """A state that is not the one after the last event is not kept."""
        ledger = Ledger(_SMALL)
        ledger.prepare_snapshots()
        writer = self._started()
        self._append_groups(writer, [1])
        with self.assertRaises(LogError):
            writer.snapshot(ledger.snapshot())
        writer.close(None)
        self.assertEqual(list(self.reader(self.path).snapshots), [])

    def test_an_engine_s_run_folds_to_its_state(self) -> None:
        """An engine writes through it, and its log leads to its state, bit for bit."""
        engine = KvEngine(_SMALL, log=self.writer(self.path), clock=lambda: 0, key_seed=1)
        _live(engine, 60)
        engine.close()
        run = self.reader(self.path)
        ledger = Ledger(_SMALL)
        _fold(ledger, run.events())
        self.assertEqual(run.next_seq, engine.next_seq)
        self.assertEqual({ledger.digest(), run.closed.digest}, {engine.ledger.digest()})

    # -- steps of the tests ----------------------------------------------------------------

    def _started(self, config: PoolConfig = _SMALL) -> Any:  # Any: of another making
        writer = self.writer(self.path)
        writer.start(RunHeader(config=config))
        return writer

    def _append_groups(self, writer: Any, sizes: list[int], first: int = 0) -> None:
        # Any: of another making
        for size in sizes:
            writer.append(first, first, first, [_note(first + n) for n in range(size)])
            first += size

    def _assert_same(self, read: Sequence[Event], written: Sequence[Event]) -> None:
        self.assertEqual(len(read), len(written))
        for seq, (one, other) in enumerate(zip(read, written, strict=True)):
            self.assertTrue(same_event(one, other), f"seq {seq}: {one} was written as {other}")


def _note(seq: int) -> Marked:
    return Marked(f"n{seq}", idle=False)


def _live(engine: KvEngine, num: int, first: int = 0) -> None:
    """Short lives of requests, of which two always stay."""
    for number in range(first, first + num):
        tokens = [number % 3] * (5 + number % 9)
        try:
            engine.admit(f"r{number}", tokens)
            engine.allocate([f"r{number}"], [len(tokens)])
            engine.commit([f"r{number}"])
        except CommandRefused:
            pass
        old = f"r{number - 2}"
        if old in engine.ledger.requests:
            engine.finish(old, [(number - 2) % 3] * (5 + (number - 2) % 9))


def _fold(ledger: Ledger, recorded: Iterator[Recorded]) -> None:
    for one in recorded:
        ledger.apply(one.event, one.seq, one.time_ns)
