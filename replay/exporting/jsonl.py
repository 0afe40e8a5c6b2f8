"""A readable twin of a log: one JSON object a line, and nothing of the events left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import BinaryIO

import msgspec

from kvlife.log import LogRun
from kvlife.replay.output.event_json import event_json

FORMAT = "kvlife-jsonl/1"
_LINES = 1024


def write_jsonl(
    run: LogRun, file: BinaryIO, start: int, stop: int, advance: Callable[[int], None]
) -> int:
    """The header line, then events [start, stop); returns how many those were.

    Gaps show as seqs that jump; the header line names those that the log knows of.
    """
    encode = msgspec.json.encode
    file.write(encode(_header_line(run, start, stop)) + b"\n")
    lines: list[bytes] = []
    num = 0
    for item in run.events(start, stop):
        lines.append(encode(event_json(item, run.layout)))
        if len(lines) == _LINES:
            num += _put(file, lines)
            advance(_LINES)
    return num + _put(file, lines)


def _put(file: BinaryIO, lines: list[bytes]) -> int:
    num = len(lines)
    file.write(b"".join(line + b"\n" for line in lines))
    lines.clear()
    return num


def _header_line(run: LogRun, start: int, stop: int) -> dict[str, object]:
    closed = run.closed
    return {
        "format": FORMAT,
        "header": run.header,
        "first_seq": start,
        "next_seq": stop,
        "gaps": [[gap.first_seq, gap.next_seq] for gap in run.gaps],
        "closed": closed is not None,
        "digest": None if closed is None or closed.digest is None else f"{closed.digest:016x}",
    }
