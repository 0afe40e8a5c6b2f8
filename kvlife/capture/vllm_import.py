"""A vLLM capture as a kvlife log: its calls become facts, and its words are held against them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

import attrs
import msgspec

from kvlife.capture import vllm_lines as ops
from kvlife.capture.block_hashes import RECOMPUTED
from kvlife.capture.call_tree import Call, CallTree
from kvlife.capture.contradictions import (
    MAX_KEPT,
    Contradiction,
    Contradictions,
    Stopped,
)
from kvlife.capture.json_lines import JsonLines
from kvlife.capture.vllm_pool import BlockPool
from kvlife.capture.vllm_requests import Import
from kvlife.capture.vllm_snapshots import SnapshotFacts
from kvlife.capture.vllm_steps import StepFacts
from kvlife.config import CacheGroup, PoolConfig
from kvlife.engine import Observer, Stats
from kvlife.errors import CaptureError, ConfigError, InvariantViolation
from kvlife.invariants import Checker, Finding
from kvlife.log import LogWriter

SPACE = "blocks"
_MAX_MARK = 1024


@attrs.frozen(kw_only=True)
class ImportOutcome:
    """What an import has read, compared and found.

    `violations` are the first of the events that broke an invariant, `contradictions` the first of
    the statements that cannot be, and `num_violations`, `num_contradictions` count them all.
    `not_proven` says in words what this capture does not let anyone check.
    """

    header: ops.Header
    num_lines: int
    num_calls: Mapping[str, int]
    num_snapshots: int
    num_compared: int
    whole: bool
    violations: tuple[Finding, ...]
    num_violations: int
    contradictions: tuple[Contradiction, ...]
    num_contradictions: int
    not_proven: tuple[str, ...]
    stats: Stats
    num_audits: int
    digest: int

    @property
    def clean(self) -> bool:
        """Whether the capture is whole and nothing was found."""
        return self.whole and not self.violations and not self.num_contradictions


def import_vllm(
    path: Path,
    *,
    log: Path | None = None,
    policy: str = "raise",
    reached: Callable[[int], None] = lambda _num_lines: None,
) -> ImportOutcome:
    """Import a capture into a new log, if one is named, and hold all that it says against it.

    `policy` "raise" ends the import at the first thing that is wrong, "collect" goes on. `reached`
    is told the number of lines read. Raises `CaptureError` for what is no such capture, with file
    and line, and `LogError`.
    """
    lines = JsonLines(path, ops.FORMAT)
    header = lines.header(ops.Header)
    try:
        importer = VllmImport(header, log=log, policy=policy)
    except ConfigError as error:
        raise CaptureError(f"{path}, line 1: the pool of this header cannot be: {error}") from error
    with importer:
        importer.read(_told(lines.lines(msgspec.json.Decoder(ops.AnyLine)), reached))
        return importer.outcome()


def _told(
    lines: Iterator[tuple[int, ops.AnyLine]], reached: Callable[[int], None]
) -> Iterator[tuple[int, ops.AnyLine]]:
    for number, line in lines:
        if not number % 512:
            reached(number)
        yield number, line


def pool_config(header: ops.Header) -> PoolConfig:
    """The pool of a capture: one page space for all groups, hashes set when steps are scheduled."""
    return PoolConfig(
        page_size=header.block_size,
        num_pages=header.num_blocks,
        max_requests=header.max_num_seqs,
        max_context_len=header.max_model_len,
        groups=tuple(
            CacheGroup(
                f"{'full' if group.sliding_window is None else 'sliding'}-{idx}",
                window=group.sliding_window,
                space=SPACE,
            )
            for idx, group in enumerate(header.groups)
        ),
        publish="scheduled",
        duplicates=True,
    )


class VllmImport:
    """One import under way; used as a context, so that its log is closed."""

    def __init__(
        self, header: ops.Header, *, log: Path | None = None, policy: str = "raise"
    ) -> None:
        """Begin the run; raises `ConfigError` for a pool that cannot be, and `LogError`."""
        _refuse_unknown(header)
        self._now_ns = 0
        self._violations: list[Finding] = []
        self._num_violations = 0
        self._found = Contradictions(stop_at_first=policy == "raise")
        observer = Observer(
            pool_config(header),
            log=None if log is None else LogWriter(log, clock_ns=self._clock),
            checker=Checker(policy=policy, on_violation=self._violated),
            clock=self._clock,
        )
        self._state = Import(
            header=header,
            observer=observer,
            found=self._found,
            pool=BlockPool(observer, self._found),
            recompute=header.hash_algo == RECOMPUTED,
        )
        self._tree = CallTree(self._found)
        self._steps = StepFacts(self._state)
        self._snapshots = SnapshotFacts(self._state)
        self._ended_at: int | None = None
        self._digest = 0

        told = f"imported from {header.engine} {header.version}, {ops.FORMAT}: {header.workload}"
        observer.mark(told[:_MAX_MARK])

    def _clock(self) -> int:
        return self._now_ns

    def _violated(self, finding: Finding) -> None:
        self._num_violations += 1
        if len(self._violations) < MAX_KEPT:
            self._violations.append(finding)

    def __enter__(self) -> Self:
        """Use as a context."""
        return self

    def __exit__(self, kind: object, *_error: object) -> None:
        """Close the log, whatever happened; what was read before an error stands in it."""
        observer = self._state.observer
        if not observer.closed:
            observer.close()

    @property
    def observer(self) -> Observer:
        """The observer that the facts go to."""
        return self._state.observer

    def read(self, lines: Iterable[tuple[int, ops.AnyLine]]) -> None:
        """Take all lines in; under the policy raise, up to the first thing that is wrong."""
        observer = self.observer
        try:
            for number, line in lines:
                self.feed(number, line)
            self.finish()
        except InvariantViolation:
            return  # it is among the violations, and has closed the run
        except Stopped as stopped:
            if not observer.closed:
                observer.mark(f"the import stopped: {stopped}"[:_MAX_MARK])
        if not observer.closed:
            self._digest = observer.ledger.digest()
            observer.close()

    def feed(self, number: int, line: ops.AnyLine) -> None:
        """Take in one line and its number; what it ends goes to the observer.

        Under the policy raise, raises `Stopped` or `InvariantViolation` at what is wrong.
        """
        call = self._tree.add(number, line)
        if call is not None:
            self._take(call)

    def finish(self) -> None:
        """There are no more lines."""
        self._found.place = (1 + sum(self._tree.num_calls.values()), "end of file")
        self._tree.end()
        if self._ended_at is None:
            self._found.note("the capture stops without its `end` line: what follows is missing")

    def _take(self, call: Call) -> None:
        self._found.place = (call.number, call.line.op)
        if self._ended_at is not None:
            self._found.note(f"it stands after the end, which is line {self._ended_at}")
        begun = self._tree.num_calls.get("schedule", 0)
        self._same_step(call, begun)
        self._now_ns, self.observer.step = call.line.t_ns, call.line.step
        try:
            self._facts_of(call)
        except Stopped:
            if self._found.stops_at_first:
                raise

    def _same_step(self, call: Call, begun: int) -> None:
        self._found.place = (call.number, call.line.op)
        self._found.same("step", call.line.step, begun)
        for inner in call.inside:
            self._same_step(inner, begun)
        self._found.place = (call.number, call.line.op)

    def _facts_of(self, call: Call) -> None:
        match call.line:
            case ops.AddRequest() as line:
                self._steps.arrive(call, line)
            case ops.Schedule() as line:
                self._steps.schedule(call, line)
            case ops.UpdateFromOutput() as line:
                self._steps.settle(call, line)
            case ops.DraftTokens() as line:
                self._steps.propose(call, line)
            case ops.FinishRequests():
                self._steps.finish(call)
            case ops.SchedulerReset() as line:
                self._steps.reset(call, line)
            case ops.Snapshot() as line:
                self._snapshots.compare(call, line)
            case ops.End() as line:
                self._snapshots.finish(call, line, self._tree.num_calls)
                self._ended_at = call.number
            case _:
                raise self._found.refuse("it stands outside of the call that it belongs to")

    def outcome(self) -> ImportOutcome:
        """What was read and found so far."""
        return ImportOutcome(
            header=self._state.header,
            num_lines=1 + sum(self._tree.num_calls.values()),
            num_calls=dict(self._tree.num_calls),
            num_snapshots=self._snapshots.num_compared,
            num_compared=self._found.num_compared,
            whole=self._ended_at is not None,
            violations=tuple(self._violations),
            num_violations=self._num_violations,
            contradictions=tuple(self._found.found),
            num_contradictions=self._found.num_found,
            not_proven=tuple(_not_proven(self._state)),
            stats=self.observer.stats(),
            num_audits=self.observer.checker.stats.audits,
            digest=self._digest,
        )


def _refuse_unknown(header: ops.Header) -> None:
    if header.null_block != 0:
        raise ConfigError(f"the null block is {header.null_block}; a page space reserves page 0")
    sizes = {group.block_size for group in header.groups} | {header.hash_block_size}
    if sizes != {header.block_size}:
        raise ConfigError(
            f"blocks of {header.block_size} tokens, and groups or hashes of {sorted(sizes)}: only"
            " one size for all is read"
        )


def _not_proven(state: Import) -> Iterator[str]:
    if not state.recompute:
        yield (
            f"that hashes are those of the tokens: {state.header.hash_algo!r} is not computed here,"
            f" only {RECOMPUTED!r}"
        )
    yield "the order of the free list, which is vLLM's own: an event may take any free block"
    yield "when a refused allocation could have been granted, and which request is served first"
    yield "tokens of a last block that never became full: no hash covers them"
