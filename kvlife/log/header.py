"""What a run says of itself, in `header.json`: JSON, so that a person can read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import msgspec

from kvlife.config import CacheGroup, PoolConfig
from kvlife.errors import ConfigError, LogCorrupt, LogError, LogVersionError
from kvlife.log.files import refuse_no_file
from kvlife.log.wire import FORMAT_VERSION

MAX_HEADER_BYTES = 1 << 20


@attrs.frozen(kw_only=True)
class RunHeader:
    """How a run was made; `policies` maps invariant ids to policies, `level` is the checker's.

    `key_fingerprint` tells seeds of page keys apart without giving one away. `group`, `rank` and
    `world_size` name the engine among its ranks. `created_ns` is filled in by `LogWriter.start`.
    """

    config: PoolConfig
    policies: dict[str, str] = attrs.field(factory=dict)
    level: str = "event"
    key_fingerprint: str = ""
    engine_version: str = ""
    group: str = ""
    rank: int = 0
    world_size: int = 1
    created_ns: int | None = None
    format_version: int = FORMAT_VERSION


def encode_header(header: RunHeader) -> bytes:
    """The content of `header.json`; a host space of none is left out, as in logs before it."""
    fields = msgspec.to_builtins(header)
    if not header.config.host_pages:
        del fields["config"]["host_pages"]
    return msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n"


def decode_header(content: bytes, where: str) -> RunHeader:
    """The header in `content`; raises `LogVersionError` for a newer format, else `LogCorrupt`."""
    try:
        fields = msgspec.json.decode(content, type=dict[str, Any])  # Any: checked below
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LogCorrupt(f"{where}: not readable as JSON ({error})") from error
    _refuse_newer(fields.get("format_version"), where)
    _refuse_unknown(fields, RunHeader, where)
    config = fields.get("config")
    if isinstance(config, dict):
        _refuse_unknown(config, PoolConfig, f"{where}: config")
        groups = config.get("groups")
        for group in groups if isinstance(groups, list) else ():
            if isinstance(group, dict):
                _refuse_unknown(group, CacheGroup, f"{where}: a group")
    try:
        return msgspec.convert(fields, RunHeader)
    except (msgspec.ValidationError, ConfigError, ValueError, TypeError) as error:
        raise LogCorrupt(f"{where}: {error}") from error


def _refuse_newer(version: object, where: str) -> None:
    if not isinstance(version, int) or version < 1:
        raise LogCorrupt(f"{where}: format_version must be a whole number from 1, not {version!r}")
    if version > FORMAT_VERSION:
        raise LogVersionError(
            f"{where}: written in format {version}, this kvlife reads up to {FORMAT_VERSION}:"
            " read it with the version that wrote it, or a newer one"
        )


def _refuse_unknown(fields: dict[str, Any], record: type[Any], where: str) -> None:  # Any: JSON
    known = [field.name for field in attrs.fields(record)]
    unknown = [name for name in fields if name not in known]
    if unknown:
        raise LogError(f"{where}: unknown {', '.join(unknown)}; known are {', '.join(known)}")


def read_header(path: Path) -> bytes:
    """The bytes of a header file; raises `LogError` where they cannot be read."""
    try:
        refuse_no_file(path)
        with path.open("rb") as file:
            content = file.read(MAX_HEADER_BYTES + 1)
    except OSError as error:
        raise LogError(f"{path}: cannot be read ({error.strerror})") from error
    if len(content) > MAX_HEADER_BYTES:
        raise LogCorrupt(f"{path}: more than {MAX_HEADER_BYTES} bytes, no header is that large")
    return content
