"""JSON lines of a capture: decoded strictly, and refused with file, line number and reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from kvlife.errors import CaptureError
from kvlife.line_file import read_lines

# The formats that there are, and what reads each.
READERS = {
    "kvlife-vllm-capture/1": "kvlife import vllm",
    "kvlife-vllm-kvevents/1": "kvlife import kv-events",
    "kvlife-vllm-kvwire/1": "kvlife import kv-events",
}
PAGE = "docs/importing.md"

HeaderT = TypeVar("HeaderT")
LineT = TypeVar("LineT")


class JsonLines:
    """A capture's header, as one class, and the lines behind it, each as another, with numbers."""

    def __init__(self, path: Path, *formats: str) -> None:
        """Nothing is read yet; the header must name one of the formats."""
        self._path = path
        self._formats = formats
        self._lines = read_lines(path, CaptureError)

    def header(self, kind: type[HeaderT]) -> HeaderT:
        """The first line; raises `CaptureError` where it is of another format."""
        number, text = next(self._lines, (0, b""))
        if not number:
            raise CaptureError(f"{self._path}: the file is empty; a capture begins with a header")
        try:
            named = msgspec.json.decode(text, type=_Named).format
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self.refuse(
                number,
                f"the file does not begin with a header that names its format ({error});"
                f" {_known_formats()}, and {PAGE} says how to come by such a file",
            ) from error
        if named not in self._formats:
            raise self.refuse(
                number,
                f"the format is {named!r}, and this command reads"
                f" {' and '.join(self._formats)}; {_other_reader(named, self._formats)}",
            )
        self._formats = (named,)
        return self._decode(msgspec.json.Decoder(kind), text, number)

    def lines(self, decoder: msgspec.json.Decoder[LineT]) -> Iterator[tuple[int, LineT]]:
        """The lines after the header with their numbers in the file, from 2."""
        for number, text in self._lines:
            yield number, self._decode(decoder, text, number)

    def refuse(self, number: int, why: str) -> CaptureError:
        """The error for a line whose content cannot be read; the caller raises it."""
        return CaptureError(f"{self._path}, line {number}: {why}")

    def _decode(self, decoder: msgspec.json.Decoder[LineT], text: bytes, number: int) -> LineT:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError as error:
            raise CaptureError(
                f"{self._path}, line {number}: {error}; the line is not as"
                f" {' or '.join(self._formats)} has it: {PAGE} has the fields of each line"
            ) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise CaptureError(
                f"{self._path}, line {number}: not a JSON object ({error}); where it is the last"
                " line the file was cut: take the line out, and what is before it can be imported"
            ) from error


class _Named(msgspec.Struct):
    format: str


def _other_reader(named: str, read_here: tuple[str, ...]) -> str:
    kind = named.partition("/")[0]
    if kind in {known.partition("/")[0] for known in read_here}:
        return "a newer kvlife may know this version of it"
    command = READERS.get(f"{kind}/1")
    if command is None:
        return f"{_known_formats()}, and {PAGE} describes them"
    return f"`{command}` reads this kind"


def _known_formats() -> str:
    return "known are " + ", ".join(f"{known} (`{by}`)" for known, by in READERS.items())
