"""Reading the lines of plain and compressed files."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kvlife import line_file
from kvlife.errors import WorkloadError
from kvlife.line_file import read_lines

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LINES = [b"first\n", b"second\n", b"third"]
TEXT = b"".join(LINES)
# A skippable frame: its magic number, a length of 2, two bytes of anything.
SKIPPED = b"\x50\x2a\x4d\x18\x02\x00\x00\x00xx"


STORED = {
    "t.jsonl": TEXT,
    "t.jsonl.gz": gzip.compress(TEXT),
    "t.jsonl.zst": zstd.compress(TEXT),
    "two-members.gz": gzip.compress(LINES[0]) + gzip.compress(b"second\nthird"),
    "skipped.zst": SKIPPED + zstd.compress(TEXT),
    "gzip-by-content": gzip.compress(TEXT),
    "zstd-by-content": zstd.compress(TEXT),
    "plain-by-content.txt": TEXT,
}


# Only names are parameters: compressed bytes carry the time, and would name each test anew.
@pytest.mark.parametrize("name", STORED)
def test_lines_are_read_whatever_the_compression(tmp_path: Path, name: str) -> None:
    """The same numbered lines come out of every way to store them."""
    path = tmp_path / name
    path.write_bytes(STORED[name])
    assert list(read_lines(path)) == [(1, LINES[0]), (2, LINES[1]), (3, LINES[2])]


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("kept", [5, 0.5, -1])
def test_cut_content_is_an_error(tmp_path: Path, suffix: str, kept: float) -> None:
    """A compressed file that ends early is never taken for a shorter one."""
    content = {".gz": gzip.compress, ".zst": zstd.compress}[suffix](TEXT * 50)
    path = tmp_path / f"cut{suffix}"
    path.write_bytes(content[: int(len(content) * kept)] if kept == 0.5 else content[: int(kept)])
    with pytest.raises(WorkloadError, match=r"cut.*cut or damaged"):
        list(read_lines(path))


def compress_zstd_summed(text: bytes) -> bytes:
    """A Zstandard frame with a checksum, as the command line tool writes it."""
    return zstd.compress(text, options={zstd.CompressionParameter.checksum_flag: 1})


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".zst", compress_zstd_summed)]
)
def test_damaged_content_is_an_error(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]
) -> None:
    """A flipped byte, or content that is not compressed at all, is named as damage."""
    content = bytearray(compress(TEXT * 50))
    content[len(content) // 2] ^= 0xFF
    path = tmp_path / f"flipped{suffix}"
    for damaged in (bytes(content), TEXT):
        path.write_bytes(damaged)
        with pytest.raises(WorkloadError, match="cut or damaged"):
            list(read_lines(path))


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    """A missing file and a folder are errors with their path."""
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(WorkloadError, match=str(path)):
            list(read_lines(path))


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line above the limit is refused where it is, and one at the limit is not."""
    monkeypatch.setattr(line_file, "LINE_LIMIT_BYTES", 7)
    path = tmp_path / "t.jsonl"
    path.write_bytes(TEXT)
    assert len(list(read_lines(path))) == 3
    path.write_bytes(TEXT + b"-and-more")
    with pytest.raises(WorkloadError, match="line 3: longer than 7 bytes"):
        list(read_lines(path))
