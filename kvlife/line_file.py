"""The lines of a text file: plain, gzip or Zstandard, read one at a time."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing
from io import BufferedReader
from pathlib import Path

from kvlife.errors import KvLifeError, WorkloadError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LINE_LIMIT_BYTES = 64 << 20
"""A longer line is refused rather than held in memory."""

_GZIP_MAGIC = b"\x1f\x8b"
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def read_lines(
    path: Path, refusal: type[KvLifeError] = WorkloadError
) -> Iterator[tuple[int, bytes]]:
    """The lines of `path` with their numbers, from 1.

    The compression is told from the first bytes, then from the suffix (`.gz`, `.zst`). Raises
    `refusal` for a file that cannot be opened, and, at the place where it is met, for
    compressed content that is cut or damaged and for a line above `LINE_LIMIT_BYTES`.
    """
    line_number = 0
    try:
        with closing(_open(path)) as stream:
            while line := stream.readline(LINE_LIMIT_BYTES + 1):
                line_number += 1
                if len(line) > LINE_LIMIT_BYTES:
                    raise refusal(
                        f"{path}, line {line_number}: longer than {LINE_LIMIT_BYTES} bytes; "
                        f"it should hold one JSON object a line, so check that it does"
                    )
                yield line_number, line
    except (EOFError, zlib.error, gzip.BadGzipFile, zstd.ZstdError) as error:
        raise refusal(
            f"{path}, after line {line_number}: the compressed content is cut or damaged "
            f"({error}); compress or fetch the file again"
        ) from error
    except OSError as error:
        raise refusal(
            f"{path}: it cannot be read ({error.strerror or error}); "
            f"give the path of a readable file"
        ) from error


def _open(path: Path) -> gzip.GzipFile | zstd.ZstdFile | BufferedReader:
    with path.open("rb") as raw:
        head = raw.read(4)
    if head.startswith(_GZIP_MAGIC):
        return gzip.open(path, "rb")
    if head == _ZSTD_MAGIC:
        return zstd.open(path, "rb")
    # An odd beginning under a compressed name is left to the decompressor, which knows of more
    # ways to begin than these and says what is wrong.
    if path.suffix == ".gz":
        return gzip.open(path, "rb")
    if path.suffix == ".zst":
        return zstd.open(path, "rb")
    return path.open("rb")
