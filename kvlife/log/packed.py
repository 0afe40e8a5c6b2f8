"""A pack: the files of a run in one file, behind each other, under a checksum over the whole.

Nothing in it is compressed beside what the log compresses itself, so that what a reader makes of a
pack is never larger than the pack.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final

import attrs
import msgspec

from kvlife.errors import LogCorrupt, LogError, LogTruncated, LogVersionError
from kvlife.log.files import HEADER_NAME, RUN_FILE

PACK_MAGIC: Final = b"KVLIFEPK"
PACK_VERSION: Final = 1
# The manifest takes about 100 bytes for each file.
MAX_MANIFEST_BYTES: Final = 4 << 20

_HEAD: Final = Struct("<8sHH")  # magic, version, nothing
_MANIFEST_BYTES: Final = Struct("<I")
_SEAL_BYTES: Final = hashlib.sha256().digest_size
_FOOT_BYTES: Final = _MANIFEST_BYTES.size + _SEAL_BYTES
_PIECE = 1 << 20


class PackNote(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was packed: around which event, up to which seq where not to the end, and how.

    `redacted`: ids, namespaces, page keys and notes are aliases.
    """

    around: int
    stop: int | None = None
    redacted: bool = False

    @property
    def told(self) -> list[str]:
        """What a reader should know."""
        told = []
        if self.redacted:
            told.append("packed with --redact: ids, namespaces, page keys and notes are aliases")
        if self.stop is not None:
            told.append(
                f"packed up to the command of seq {self.stop - 1}: what followed is not here"
            )
        return told


class _Member(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    num_bytes: int


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    note: PackNote
    files: list[_Member]


@attrs.frozen
class PackMember:
    """A file of a run by its name, and its content in pieces."""

    name: str
    pieces: Iterable[bytes]


def is_pack(path: Path) -> bool:
    """Whether a path is that of a pack, by what the file begins with."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(PACK_MAGIC)) == PACK_MAGIC
    except OSError as error:
        raise LogError(f"{path}: cannot be read ({error.strerror})") from error


def write_pack(file: BinaryIO, note: PackNote, members: Iterable[PackMember]) -> int:
    """Write a pack to an empty file; returns its bytes."""
    whole = hashlib.sha256()
    written = 0

    def put(piece: bytes) -> None:
        nonlocal written
        file.write(piece)
        whole.update(piece)
        written += len(piece)

    put(_HEAD.pack(PACK_MAGIC, PACK_VERSION, 0))
    files = []
    for member in members:
        begun = written
        for piece in member.pieces:
            put(piece)
        files.append(_Member(member.name, written - begun))
    manifest = msgspec.json.encode(_Manifest(note, files))
    put(manifest)
    put(_MANIFEST_BYTES.pack(len(manifest)))
    file.write(whole.digest())
    return written + _SEAL_BYTES


class UnpackedRun:
    """The files of a pack in a folder of their own, which goes with this object, or at exit."""

    def __init__(self, path: Path) -> None:
        """Raises `LogError` for what is no sound pack; then nothing is left behind."""
        try:
            self.folder = Path(tempfile.mkdtemp(prefix="kvlife-pack-"))
        except OSError as error:
            raise LogError(f"{path}: no folder to unpack it to ({error.strerror})") from error
        self._goes = weakref.finalize(self, _remove, self.folder, os.getpid())
        try:
            with path.open("rb") as file:
                self.note = _unpack(file, path, self.folder)
        except OSError as error:
            self._goes()
            raise LogError(
                f"{path}: cannot be unpacked to {self.folder.parent} ({error.strerror}):"
                " TMPDIR names another folder"
            ) from error
        except LogError:
            self._goes()
            raise


def _remove(folder: Path, pid: int) -> None:
    # A forked child ends as well, and the folder is its parent's.
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack(file: BinaryIO, path: Path, folder: Path) -> PackNote:
    size = os.fstat(file.fileno()).st_size
    manifest, at = _sealed_manifest(file, size, path)
    names = [member.name for member in manifest.files]
    # Nothing but what a run's folder may hold can be made.
    odd = next((name for name in names if name != HEADER_NAME and not RUN_FILE.match(name)), None)
    if odd is not None or HEADER_NAME not in names or len(set(names)) != len(names):
        what = f"holds {odd!r}, no file of a run" if odd is not None else "is not one run"
        raise LogCorrupt(f"{path}: {what}")
    lengths = [member.num_bytes for member in manifest.files]
    if min(lengths) < 0 or _HEAD.size + sum(lengths) != at:
        raise LogCorrupt(f"{path}: its files are said to have other sizes than they have")
    file.seek(_HEAD.size)
    for member in manifest.files:
        with (folder / member.name).open("xb") as target:
            for piece in _pieces(file, member.num_bytes, path):
                target.write(piece)
    return manifest.note


def _sealed_manifest(file: BinaryIO, size: int, path: Path) -> tuple[_Manifest, int]:
    """The manifest, and where it begins, once version and seal are seen to be right."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or size < _HEAD.size + _FOOT_BYTES:
        raise LogTruncated(f"{path}: {size} bytes, shorter than any pack: get it again")
    magic, version, _ = _HEAD.unpack(head)
    if magic != PACK_MAGIC:
        raise LogCorrupt(f"{path}: is no pack of kvlife")
    if version > PACK_VERSION:
        raise LogVersionError(
            f"{path}: a pack of version {version}, this kvlife reads up to {PACK_VERSION}:"
            " read it with the version that wrote it, or a newer one"
        )
    whole = hashlib.sha256(head)
    for piece in _pieces(file, size - len(head) - _SEAL_BYTES, path):
        whole.update(piece)
    if whole.digest() != file.read(_SEAL_BYTES):
        raise LogCorrupt(
            f"{path}: its seal is broken: the file was cut or changed since it was packed; get it"
            " again"
        )
    file.seek(size - _FOOT_BYTES)
    (num_bytes,) = _MANIFEST_BYTES.unpack(file.read(_MANIFEST_BYTES.size))
    at = size - _FOOT_BYTES - num_bytes
    if num_bytes > MAX_MANIFEST_BYTES or at < _HEAD.size:
        raise LogCorrupt(f"{path}: a list of files of {num_bytes} bytes, too long for this pack")
    file.seek(at)
    try:
        return msgspec.json.decode(file.read(num_bytes), type=_Manifest), at
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise LogCorrupt(f"{path}: its list of files cannot be read ({error})") from error


def _pieces(file: BinaryIO, num_bytes: int, path: Path) -> Iterator[bytes]:
    while num_bytes:
        piece = file.read(min(num_bytes, _PIECE))
        if not piece:
            raise LogTruncated(f"{path}: became shorter while it was read")
        yield piece
        num_bytes -= len(piece)
