"""How many values a MessagePack text holds, told before they are made: each takes more memory."""

from __future__ import annotations

from kvlife.errors import LogCorrupt

# Up to here the text is read as it is: what it unfolds to is no burden.
_SMALL_BYTES = 1 << 21
_SIZED = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_FIXED = {
    0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8, 0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8,
    0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
}  # fmt: skip


def _behind(first: int) -> int:
    """Bytes behind the first one of a value: its number, or the length of what it holds."""
    return first & 0x1F if first & 0xE0 == 0xA0 else _FIXED.get(first, 0)


_BEHIND = [_behind(first) for first in range(256)]


def check_values(packed: bytes, most: int, where: str) -> None:
    """Raise `LogCorrupt` where a large text holds more than so many values, lists included.

    What is no MessagePack at all is left to who decodes it.
    """
    if len(packed) <= _SMALL_BYTES:
        return
    pos = num = 0
    end = len(packed)
    while pos < end:
        first = packed[pos]
        wide = _SIZED.get(first)
        if wide is None:
            pos += 1 + _BEHIND[first]
        else:
            pos += 1 + wide + int.from_bytes(packed[pos + 1 : pos + 1 + wide], "big")
        num += 1
        if num > most:
            raise LogCorrupt(f"{where}: more than {most} values in the books, too many")
