"""Workloads from traces in the Mooncake format: JSON lines with one hash id a prompt block."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import attrs
import msgspec
import numpy as np
import numpy.typing as npt

from kvlife.errors import WorkloadError
from kvlife.line_file import read_lines
from kvlife.simulation.token_source import TOKEN_LIMIT, Tokens, stream_keys, stream_tokens
from kvlife.simulation.workload import Workload

BLOCK_LEN = 512
"""Prompt tokens that one hash id stands for; the last block of a prompt may be partial."""

_NS_PER_MS = 1_000_000
_MAX_TIMESTAMP_MS = ((1 << 63) - 1) // _NS_PER_MS
_MAX_LEN = (1 << 31) - 1
_FIELDS = "timestamp, input_length, output_length and hash_ids"
_OUTPUT_STREAMS = 1

_Length = Annotated[int, msgspec.Meta(ge=1, le=_MAX_LEN)]
_HashId = Annotated[int, msgspec.Meta(ge=0, lt=TOKEN_LIMIT)]


class _TraceLine(msgspec.Struct, gc=False):
    timestamp: Annotated[int, msgspec.Meta(ge=0, le=_MAX_TIMESTAMP_MS)]
    input_length: _Length
    output_length: _Length
    hash_ids: list[_HashId]


@attrs.frozen(kw_only=True, eq=False)
class MooncakeTokens:
    """Token ids made from hash ids.

    A block begins with its id and goes on with numbers mixed from the id and the offset, no two
    ids agreeing at any offset. So equal ids give equal tokens, blocks of different ids differ in
    their first page whatever the page size, and a partial block is the prefix of its block.

    `hash_ids` (int32) holds the ids of all requests one after another; request i has those in
    [block_starts[i], block_starts[i + 1]) (int64, one more than requests). `output_key` (uint32)
    says which stream is a request's answer.
    """

    hash_ids: npt.NDArray[np.int32]
    block_starts: npt.NDArray[np.int64]
    prompt_len: npt.NDArray[np.int32]
    output_len: npt.NDArray[np.int32]
    output_key: npt.NDArray[np.uint32]

    def prompt(self, idx: int) -> Tokens:
        """The prompt of request `idx`, the same under every seed."""
        start, stop = self.block_starts[idx], self.block_starts[idx + 1]
        return block_tokens(self.hash_ids[start:stop]).reshape(-1)[: self.prompt_len[idx]]

    def output(self, idx: int) -> Tokens:
        """The answer of request `idx`, a stream of its own."""
        return stream_tokens(int(self.output_key[idx]), 0, int(self.output_len[idx]))


def read_mooncake(path: Path, *, limit: int | None = None, seed: int = 0) -> Workload:
    """The requests of the trace at `path`, the first `limit` of them where that is given.

    The seed decides the answers' tokens only. Raises `WorkloadError`, with file and line, for
    what is not such a trace.
    """
    if limit is not None and limit < 1:
        raise WorkloadError(f"{path}: asked for the first {limit} requests; ask for at least 1")
    timestamps, input_lens, output_lens = array("q"), array("i"), array("i")
    hash_ids, block_starts = array("i"), array("q", [0])
    for line in _trace_lines(path):
        timestamps.append(line.timestamp)
        input_lens.append(line.input_length)
        output_lens.append(line.output_length)
        hash_ids.extend(line.hash_ids)
        block_starts.append(len(hash_ids))
        if len(timestamps) == limit:
            break
    if not timestamps:
        raise WorkloadError(f"{path}: the trace holds no request; it needs at least one line")
    prompt_len, output_len = np.array(input_lens, np.int32), np.array(output_lens, np.int32)
    source = MooncakeTokens(
        hash_ids=np.array(hash_ids, np.int32),
        block_starts=np.array(block_starts, np.int64),
        prompt_len=prompt_len,
        output_len=output_len,
        output_key=stream_keys(seed, _OUTPUT_STREAMS, len(timestamps)),
    )
    return Workload(
        arrival_ns=np.array(timestamps, np.int64) * _NS_PER_MS,
        prompt_len=prompt_len,
        output_len=output_len,
        source=source,
    )


def block_tokens(hash_ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """The whole blocks of `hash_ids` (int32 in [0, 2^31)), int32[len(hash_ids), BLOCK_LEN]."""
    blocks = np.multiply.outer(hash_ids.view(np.uint32), _OFFSET_FACTORS)
    blocks += _OFFSET_TERMS
    blocks &= np.uint32(TOKEN_LIMIT - 1)
    return blocks.view(np.int32)


def _trace_lines(path: Path) -> Iterator[_TraceLine]:
    decoder = msgspec.json.Decoder(_TraceLine)
    latest = 0
    for line_number, text in read_lines(path):
        where = f"{path}, line {line_number}"
        line = _decode(decoder, text, where)
        _check(line, latest, where)
        latest = line.timestamp
        yield line


def _decode(decoder: msgspec.json.Decoder[_TraceLine], text: bytes, where: str) -> _TraceLine:
    if not text.strip():
        raise WorkloadError(f"{where}: the line is empty; remove it")
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise WorkloadError(
            f"{where}: {error}; a request needs {_FIELDS}, lengths from 1 to {_MAX_LEN}, "
            f"hash ids from 0 to {TOKEN_LIMIT - 1}, milliseconds from 0 to {_MAX_TIMESTAMP_MS}"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WorkloadError(
            f"{where}: not a JSON object ({error}); correct the line or remove it, "
            f"and where it is the last one, fetch the file again, as it may be cut"
        ) from error


def _check(line: _TraceLine, latest: int, where: str) -> None:
    num_blocks = -(-line.input_length // BLOCK_LEN)
    if len(line.hash_ids) != num_blocks:
        raise WorkloadError(
            f"{where}: {len(line.hash_ids)} hash ids for {line.input_length} prompt tokens, which "
            f"are {num_blocks} blocks of {BLOCK_LEN}; give one id a block"
        )
    if line.input_length + line.output_length > _MAX_LEN:
        raise WorkloadError(
            f"{where}: {line.input_length} prompt and {line.output_length} generated tokens are "
            f"more than {_MAX_LEN} together; shorten one of them"
        )
    if line.timestamp < latest:
        raise WorkloadError(
            f"{where}: timestamp {line.timestamp} comes after {latest}; sort the lines by timestamp"
        )


def _offset_factors() -> npt.NDArray[np.uint32]:
    # A product with an odd factor, modulo 2^31, keeps different ids different at every offset;
    # the factor 1 and the term 0 at offset 0 leave the id itself.
    factors = stream_tokens(0, 0, BLOCK_LEN).view(np.uint32) | np.uint32(1)
    factors[0] = 1
    return factors


def _offset_terms() -> npt.NDArray[np.uint32]:
    terms = stream_tokens(1, 0, BLOCK_LEN).view(np.uint32)
    terms[0] = 0
    return terms


_OFFSET_FACTORS = _offset_factors()
_OFFSET_TERMS = _offset_terms()
