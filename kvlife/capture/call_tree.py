"""The calls of a capture as trees: each outermost call with those that were made inside it.

A line stands where its call ended, so the calls inside one stand before it, and the lines of one
outermost call stand together.
"""

from __future__ import annotations

from typing import TypeVar

import attrs

from kvlife.capture import vllm_lines as ops
from kvlife.capture.contradictions import Contradictions

LineT = TypeVar("LineT", bound=ops.Line)

# Which calls may be made inside which; None is the outside.
INSIDE: dict[type[ops.Line] | None, tuple[type[ops.Line], ...]] = {
    None: (
        ops.AddRequest,
        ops.Schedule,
        ops.UpdateFromOutput,
        ops.DraftTokens,
        ops.FinishRequests,
        ops.SchedulerReset,
        ops.Snapshot,
        ops.End,
    ),
    ops.Schedule: (ops.AllocateSlots, ops.GetComputedBlocks, ops.PreemptRequest),
    ops.AllocateSlots: (ops.FreeBlocks, ops.Touch, ops.GetNewBlocks, ops.CacheFullBlocks),
    ops.GetNewBlocks: (ops.MaybeEvictCachedBlock,),
    ops.UpdateFromOutput: (ops.AppendTokens, ops.FreeRequest),
    ops.FinishRequests: (ops.FreeRequest,),
    ops.FreeRequest: (ops.Free,),
    ops.PreemptRequest: (ops.Free,),
    ops.Free: (ops.FreeBlocks,),
    ops.SchedulerReset: (ops.PreemptRequest, ops.ResetPrefixCache),
}


@attrs.define
class Call:
    """One call: its line, the number of that line in the file, and the calls made inside."""

    number: int
    line: ops.Line
    inside: list[Call]

    def all_of(self, kind: type[LineT]) -> list[tuple[Call, LineT]]:
        """The calls of one kind made directly inside this one, with their lines."""
        return [(call, call.line) for call in self.inside if isinstance(call.line, kind)]


class CallTree:
    """Puts the lines together, and holds their numbering, nesting and times to each other.

    `num_calls` counts the calls by op.
    """

    def __init__(self, found: Contradictions) -> None:
        """No line has been read."""
        self._found = found
        self._waiting: dict[int, list[Call]] = {}
        self._next_seq = 0
        self._last_ns = 0
        self._num_lines = 0
        self._highest_call = 0
        self.num_calls: dict[str, int] = {}

    def add(self, number: int, line: ops.AnyLine) -> Call | None:
        """Take in one line and its number; the outermost call that it ends, if it does."""
        self._found.place = (number, line.op)
        self._in_order(line)
        call = Call(number, line, self._waiting.pop(line.call, []))
        self._nested_well(call)
        if line.parent is not None:
            self._waiting.setdefault(line.parent, []).append(call)
            return None
        self._whole()
        return call

    def end(self) -> None:
        """There are no more lines; a call that is open is a contradiction."""
        if self._waiting:
            self._found.note(f"the capture ends inside call {min(self._waiting)}")

    def _in_order(self, line: ops.AnyLine) -> None:
        same = self._found.same
        same("seq", line.seq, self._next_seq)
        self._next_seq = line.seq + 1
        if not line.enter_ns <= line.t_ns or line.t_ns < self._last_ns:
            self._found.note(
                f"the call begins at {line.enter_ns} ns and ends at {line.t_ns} ns,"
                f" and the call before it ended at {self._last_ns} ns"
            )
        self._last_ns = line.t_ns
        self._num_lines += 1
        self._highest_call = max(self._highest_call, line.call)
        self.num_calls[line.op] = self.num_calls.get(line.op, 0) + 1

    def _nested_well(self, call: Call) -> None:
        allowed = INSIDE.get(type(call.line), ())
        begun = call.line.call
        for inner in call.inside:
            if not isinstance(inner.line, allowed):
                self._found.note(f"call {inner.line.call}, {inner.line.op}, was made inside it")
            if inner.line.call <= begun:
                self._found.note(f"call {inner.line.call} is not numbered in order of its start")
            begun = inner.line.call
            if inner.line.enter_ns < call.line.enter_ns:
                self._found.note(f"call {begun} was made inside it, and began before it")

    def _whole(self) -> None:
        """At the end of an outermost call all calls that were begun have ended."""
        place = self._found.place
        while self._waiting:
            parent, calls = self._waiting.popitem()
            self._found.place = (calls[0].number, calls[0].line.op)
            self._found.note(f"it was made inside call {parent}, of which there is no line")
        self._found.place = place
        if not self._found.same("the number of calls", self._highest_call, self._num_lines):
            self._num_lines = self._highest_call
