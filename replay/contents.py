"""Replay with buffers: a log folded with pools attached, and its digests held against their bytes.

A log says which tokens were committed, and not what their KV was. So the caller writes it, as the
engine's model did; each `Digested` of the log is then compared with what the buffers hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import attrs
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kvlife.errors import LogError
from kvlife.events import Committed, Digested, Event, Recorded
from kvlife.invariants.effect import holder_of
from kvlife.kernels.digest_pages import digest_pages
from kvlife.log import LogRun, open_run
from kvlife.replay.history.timeline import Timeline

if TYPE_CHECKING:
    from kvlife.ledger import Change, Ledger
    from kvlife.pools import DeviceFinding, DevicePools

I32 = npt.NDArray[np.int32]

MAX_HOLDERS = 4


@attrs.frozen(kw_only=True, eq=False)
class Writing:
    """Tokens that an event commits: positions [start_lens, stop_lens) of each row, one entry each.

    Their KV must stand in the buffers of every group when the writer returns. `holders` says who
    holds each row: a request, a session, or both.
    """

    seq: int
    step: int
    event: Event
    rows: I32
    holders: tuple[str, ...]
    start_lens: I32
    stop_lens: I32
    pools: DevicePools

    def slots(self, group: str | None = None) -> Tensor:
        """The slots of these tokens in the base group or a named one, in row order."""
        idx = self.pools.buffers(group).group
        return self.pools.slots(idx, self.rows, self.start_lens, self.stop_lens)


@attrs.frozen(kw_only=True)
class ContentDifference:
    """A page that does not hold what the log says: of whom, and which tokens it is for.

    `recorded` and `found` are digests; `positions` are the tokens [start, stop) of the first of its
    `holders`, None where no row references the page.
    """

    seq: int
    step: int
    group: str
    page: int
    recorded: int
    found: int
    holders: tuple[str, ...]
    positions: tuple[int, int] | None

    @property
    def text(self) -> str:
        """All of it in a sentence."""
        whose = ", ".join(self.holders) or "nobody"
        where = ""
        if self.positions is not None:
            where = f", tokens {self.positions[0]} to {self.positions[1] - 1}"
        return (
            f"seq {self.seq}: page {self.page} of {self.group} ({whose}{where}) holds"
            f" {self.found:016x}, and held {self.recorded:016x} in the run"
        )


@attrs.frozen(kw_only=True)
class ContentReplay:
    """What was compared: digests of pages, up to the first difference, or the end of the log.

    `findings` are what the pools found by themselves, which is no matter of the log's.
    """

    next_seq: int
    num_writings: int
    num_digests: int
    first: ContentDifference | None
    findings: tuple[DeviceFinding, ...] = ()

    @property
    def text(self) -> str:
        """The outcome in a sentence."""
        if self.first is not None:
            return self.first.text
        if not self.num_digests:
            return "NOTHING WAS COMPARED: the log holds no digests; record with content='check'"
        return f"{self.num_digests:,} digests are those of the run"


def replay_contents(
    log: LogRun | str | os.PathLike[str],
    pools: DevicePools,
    write: Callable[[Writing], None],
) -> ContentReplay:
    """Fold a log from its beginning with `pools` attached, and compare each digest that it holds.

    `write` is called for every event that commits tokens, before the pools follow it. What is
    copied, backed up and restored, the pools copy, back up and restore. Ends at the first
    difference. Raises `ConfigError` where the pools do not fit the log's, and `LogError` where the
    log does not begin with its run, or events are missing.
    """
    run = log if isinstance(log, LogRun) else open_run(log)
    if run.begins_at:
        raise LogError(
            f"{run.path}: history begins at seq {run.begins_at}, so nobody knows what its pages"
            " hold: contents are replayed from a run's beginning"
        )
    fold = _ContentFold(pools, write)
    first = next(fold.differences(Timeline(run)), None)
    return ContentReplay(
        next_seq=fold.next_seq,
        num_writings=fold.num_writings,
        num_digests=fold.num_digests,
        first=first,
        findings=(*fold.findings, *pools.drain(wait=True)) if fold.next_seq else (),
    )


class _ContentFold:
    def __init__(self, pools: DevicePools, write: Callable[[Writing], None]) -> None:
        self.next_seq = self.num_writings = self.num_digests = 0
        self.findings: list[DeviceFinding] = []
        self._pools = pools
        self._write = write
        self._ledger: Ledger | None = None
        self._start_lens: I32 = np.empty(0, np.int32)

    def differences(self, timeline: Timeline) -> Iterator[ContentDifference]:
        """Fold on, from one page that differs to the next."""
        for moment in timeline.walk(before=self._before):
            item, ledger = moment.item, moment.ledger
            if ledger is not self._ledger:
                raise LogError(
                    f"{timeline.run.path}: events before seq {item.seq} are missing, so nobody"
                    " knows what pages hold from there on"
                )
            if isinstance(item.event, Committed):
                self._written(ledger, item, item.event)
            self._pools.apply(item.event, moment.change, item.seq)
            self.findings += self._pools.drain()
            # The log has its own.
            self._pools.notes()
            self.next_seq = item.seq + 1
            if isinstance(item.event, Digested):
                yield from self._compared(ledger, item, item.event)

    def _before(self, ledger: Ledger, item: Recorded, change: Change) -> None:
        if self._ledger is None:
            self._ledger = ledger
            self._pools.attach(ledger)
            # Refuses pools that have no buffers.
            self._pools.buffers()
        if isinstance(item.event, Committed):
            self._start_lens = ledger.rows.committed[change.index].copy()

    def _written(self, ledger: Ledger, item: Recorded, event: Committed) -> None:
        start = np.minimum(self._start_lens, event.committed_len)
        self._write(
            Writing(
                seq=item.seq,
                step=item.step,
                event=event,
                rows=event.rows,
                holders=tuple(holder_of(ledger, row) for row in event.rows.tolist()),
                start_lens=start,
                stop_lens=event.committed_len,
                pools=self._pools,
            )
        )
        self.num_writings += 1

    def _compared(
        self, ledger: Ledger, item: Recorded, event: Digested
    ) -> Iterator[ContentDifference]:
        group = ledger.layout.groups[event.group]
        buffers = self._pools.buffers(group.name)
        pages = torch.from_numpy(event.pages.copy()).to(buffers.device)
        digests = digest_pages(buffers.arena, buffers.planes, pages)
        found = digests.cpu().numpy().view(np.uint64)
        self.num_digests += int(event.pages.size)
        for place in np.flatnonzero(found != event.digests).tolist():
            page = int(event.pages[place])
            spots = np.flatnonzero(ledger.tables[group.idx] == page)
            rows, entries = np.divmod(spots, group.table_width)
            start = int(entries[0]) * group.page_size if entries.size else None
            yield ContentDifference(
                seq=item.seq,
                step=item.step,
                group=group.name,
                page=page,
                recorded=int(event.digests[place]),
                found=int(found[place]),
                holders=tuple(holder_of(ledger, row) for row in rows[:MAX_HOLDERS].tolist()),
                positions=None if start is None else (start, start + group.page_size),
            )
