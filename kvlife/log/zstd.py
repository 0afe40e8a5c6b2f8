"""Zstandard, from the standard library where it is there, with a bound on what comes out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from kvlife.errors import LogCorrupt

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd as _zstd
else:
    from compression import zstd as _zstd

LEVEL = 3

# A frame may ask its reader for a window; ours never need more than 2^27 bytes (128 MiB).
_OPTIONS: dict[int, int] = {_zstd.DecompressionParameter.window_log_max: 27}


class Compressor:
    """A streaming compressor: `feed` pieces, then `finish`."""

    def __init__(self) -> None:
        self._stream = _zstd.ZstdCompressor(level=LEVEL)

    def feed(self, piece: bytes | memoryview) -> bytes:
        """The compressed bytes that are ready after this piece."""
        return self._stream.compress(piece)

    def finish(self) -> bytes:
        """The end of the frame."""
        return self._stream.flush(_zstd.ZstdCompressor.FLUSH_FRAME)


def decompress(frame: bytes, raw_bytes: int, where: str) -> bytes:
    """The content of a frame that must hold exactly `raw_bytes`; else `LogCorrupt`.

    No more than `raw_bytes + 1` are ever produced, whatever the frame claims.
    """
    stream = _zstd.ZstdDecompressor(options=_OPTIONS)
    try:
        content = stream.decompress(frame, max_length=raw_bytes + 1)
    except (_zstd.ZstdError, EOFError) as error:
        raise LogCorrupt(f"{where}: the compressed part cannot be read ({error})") from error
    if len(content) != raw_bytes or not stream.eof:
        raise LogCorrupt(
            f"{where}: the compressed part holds {'more' if len(content) > raw_bytes else 'less'}"
            f" than the {raw_bytes} bytes that its head names"
        )
    return content
