"""The requests of a vLLM capture, as its lines tell of them, and what the import has open."""

from __future__ import annotations

from collections import Counter

import attrs

from kvlife.capture import vllm_lines as ops
from kvlife.capture.block_hashes import HashChain
from kvlife.capture.contradictions import Contradictions
from kvlife.capture.vllm_pool import BlockPool
from kvlife.engine import Observer
from kvlife.ledger import Ledger

WAITING, RUNNING, PREEMPTED = "WAITING", "RUNNING", "PREEMPTED"


@attrs.define
class Request:
    """A request that has arrived and not ended; `status` in vLLM's words, lengths in tokens."""

    rid: str
    prompt_len: int
    max_output_len: int
    tokens: HashChain
    status: str = WAITING
    num_preemptions: int = 0
    lookup: ops.GetComputedBlocks | None = None
    drafts: list[int] = attrs.field(factory=list)

    @property
    def num_tokens(self) -> int:
        """Tokens of the prompt and those generated so far."""
        return self.tokens.num_tokens

    @property
    def output_len(self) -> int:
        """Tokens generated so far."""
        return self.num_tokens - self.prompt_len


@attrs.define
class Import:
    """What an import is made of: the capture's header, the observer, and what is open now.

    `step` is a schedule whose result has not come. `ended` and `preempted` are the requests that
    ended, and that lost their blocks, since the last one. `unwritten` are blocks that have a hash
    and no content yet, by the request that is to write them. `sent` counts vLLM's own events, by
    the calls that send them.
    """

    header: ops.Header
    observer: Observer
    found: Contradictions
    pool: BlockPool
    recompute: bool
    requests: dict[str, Request] = attrs.field(factory=dict)
    step: ops.Schedule | None = None
    ended: list[str] = attrs.field(factory=list)
    preempted: list[str] = attrs.field(factory=list)
    unwritten: dict[int, str] = attrs.field(factory=dict)
    sent: Counter[str] = attrs.field(factory=Counter)

    @property
    def ledger(self) -> Ledger:
        """The state that the facts so far have led to."""
        return self.observer.ledger

    @property
    def block_size(self) -> int:
        """Tokens of a block, the same in every group."""
        return self.header.block_size

    def request(self, rid: str) -> Request:
        """A request that is there; raises `Stopped` for one that is not."""
        request = self.requests.get(rid)
        if request is None:
            raise self.found.refuse(f"request {rid!r} has not arrived, or has ended")
        return request

    def row(self, rid: str) -> int:
        """The row of a running request; raises `Stopped` where it has none."""
        row = self.ledger.requests.get(rid)
        if row is None:
            raise self.found.refuse(f"request {rid!r} is not running")
        return row

    def committed_len(self, rid: str) -> int:
        """Tokens of a request whose KV is computed; 0 where it does not run."""
        row = self.ledger.requests.get(rid)
        return 0 if row is None else int(self.ledger.rows.committed[row])

    def table(self, rid: str) -> list[list[int]]:
        """A request's block table, a list per group; empty ones where it does not run."""
        row = self.ledger.requests.get(rid)
        groups = range(len(self.header.groups))
        if row is None:
            return [[] for _ in groups]
        return [self.ledger.pages_of(row, group).tolist() for group in groups]

    def waiting(self) -> list[str]:
        """The requests that do not run, sorted."""
        return sorted(self.requests.keys() - self.ledger.requests.keys())

    def running(self) -> list[str]:
        """The requests that run, sorted."""
        return sorted(self.ledger.requests)

    def same_queues(self, line: ops.Schedule | ops.UpdateFromOutput | ops.Snapshot) -> None:
        """Hold a line's running and waiting requests against those that there are."""
        self.found.same("running", sorted(line.running), self.running())
        self.found.same("waiting", sorted(line.waiting), self.waiting())

    def same_free(self, line: ops.Line) -> None:
        """Hold a line's number of free blocks against the pool's."""
        self.found.same("free", line.free, self.pool.num_free)
