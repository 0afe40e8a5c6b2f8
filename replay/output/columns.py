"""Lines of a report: aligned columns, bars and numbers, for people at a terminal or in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from kvlife.replay.output.quoting import printable

if TYPE_CHECKING:
    # A report without records needs no numpy.
    from kvlife.records import ReqKvInfo

# What is no table is broken into lines of so many signs.
WIDTH = 100

# A line and how it is shown, as rich names styles.
Line = tuple[str, str]


@attrs.frozen
class Signs:
    """What bars are drawn with: published, committed, scheduled, given up; `levels` from low on."""

    protected: str
    committed: str
    allocated: str
    gone: str
    levels: str


BLOCKS = Signs("█", "▓", "░", "·", "▁▂▃▄▅▆▇█")
LETTERS = Signs("#", "=", "-", ".", "_.-=+*#@")


def output_signs() -> Signs:
    """Blocks, or letters where the output has no others."""
    return LETTERS if Console().options.ascii_only else BLOCKS


def print_lines(lines: Iterable[Line]) -> None:
    """Print lines: what they hold is no markup, what no terminal should be sent is an escape.

    None is broken in two.
    """
    console = Console(highlight=False)
    for style, line in lines:
        console.print(Text(printable(line), style=style), soft_wrap=True)


def noted(style: str, label: str, text: str) -> Iterator[Line]:
    """A label and a text beside it, broken between words into lines that lie below each other."""
    room = max(WIDTH - len(label), WIDTH // 2)
    parts = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False)
    for number, part in enumerate(parts or [""]):
        yield style, (" " * len(label) if number else label) + part


def counted(num: int, what: str, several: str = "") -> str:
    """A number of things: 1 row, 2 rows."""
    return f"{num:,} {what if num == 1 else several or what + 's'}"


def aligned(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Rows of cells as lines; `sides` has l or r for each column."""
    widths = [max(map(cell_len, column), default=0) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell + " " * (width - cell_len(cell))
            if side == "l"
            else " " * (width - cell_len(cell)) + cell
            for cell, width, side in zip(row, widths, sides, strict=True)
        ).rstrip()
        for row in rows
    ]


def ladder_bar(record: ReqKvInfo, scale: int, width: int, signs: Signs) -> str:
    """The lengths of a record as one bar; `scale` tokens take the whole width."""
    lengths = (record.cache_protected_len, record.kv_committed_len, record.kv_allocated_len)
    ends = [min(-(-max(length, 0) * width // max(scale, 1)), width) for length in lengths]
    bar = signs.allocated * ends[2]
    bar = signs.committed * ends[1] + bar[ends[1] :]
    return signs.protected * ends[0] + bar[ends[0] :]


def window_bar(bar: str, floor: int, cursor: int, scale: int, width: int, signs: Signs) -> str:
    """The bar of a window group: what lies between the floor and the cursor is gone."""
    low = min(-(-floor * width // max(scale, 1)), width)
    high = min(max(cursor, 0) * width // max(scale, 1), width)
    return bar if high <= low else bar[:low] + signs.gone * (high - low) + bar[high:]


def share_bar(parts: Sequence[tuple[str, int]], total: int, width: int) -> str:
    """Parts of a whole as one bar, each drawn with its sign; the rest is blank."""
    bar, done = "", 0
    for sign, part in parts:
        done += part
        bar += sign * (round(done * width / max(total, 1)) - len(bar))
    return bar.ljust(width)


def ranges(numbers: Iterable[int]) -> str:
    """Numbers in their order, those that rise or fall by one as ranges: 3-7, 9, 12-10."""
    found: list[tuple[int, int, int]] = []  # first, last, and by how much it goes on
    for number in numbers:
        first, last, step = found[-1] if found else (number, number, 0)
        if found and abs(number - last) == 1 and step in (0, number - last):
            found[-1] = (first, number, number - last)
        else:
            found.append((number, number, 0))
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high, _ in found)


def duration(seconds: float) -> str:
    """A time span in one unit."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0)):
        if seconds >= size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{max(seconds, 0.0) * 1000:,.1f} ms"
