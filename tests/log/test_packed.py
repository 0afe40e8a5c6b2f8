"""Packs as files: sealed, and harmless whatever is in them."""

import gc
import hashlib
import json
import struct
import tempfile

import numpy as np
import pytest

from kvlife import LogWriter, PoolConfig
from kvlife.errors import LogCorrupt, LogError, LogTruncated, LogVersionError
from kvlife.events import Marked
from kvlife.log import RunHeader, open_run
from kvlife.log.packed import PackNote, write_pack
from kvlife.log.packing import members_of_run
from kvlife.log.segment_file import compressed_segment

CONFIG = PoolConfig(page_size=4, num_pages=32, max_requests=4, max_context_len=64)


@pytest.fixture
def pack(tmp_path):
    log = LogWriter(tmp_path / "log", clock_ns=lambda: 0)
    path = log.start(RunHeader(config=CONFIG))
    for seq in range(3):
        log.append(seq, 0, seq, [Marked(f"note {seq}", idle=False)])
    log.close()
    with (tmp_path / "p.kvpack").open("wb") as file:
        write_pack(file, PackNote(around=2), members_of_run(open_run(path), 0, None))
    return tmp_path / "p.kvpack"


@pytest.fixture(autouse=True)
def nothing_left(tmp_path, monkeypatch):
    """No folder that something was unpacked to outlives its run."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    yield
    gc.collect()  # an error holds on to the run that could not be opened
    assert list((tmp_path / "tmp").iterdir()) == []


def sealed(files, *, num_bytes=None, version=1, manifest=None):
    """A pack of these files, and of what its list says of them, under a seal that fits."""
    body = struct.pack("<8sHH", b"KVLIFEPK", version, 0) + b"".join(files.values())
    if manifest is None:
        sizes = num_bytes or {}
        listed = [
            {"name": name, "num_bytes": sizes.get(name, len(content))}
            for name, content in files.items()
        ]
        manifest = json.dumps({"note": {"around": 0}, "files": listed}).encode()
    body += manifest + struct.pack("<I", len(manifest))
    return body + hashlib.sha256(body).digest()


def files_of(pack):
    run = open_run(pack)
    return {path.name: path.read_bytes() for path in run.folder.iterdir()}


def test_pack_is_what_the_page_says(pack):
    """Put together again by the description of the format, it is the same run."""
    files = files_of(pack)
    assert sorted(files) == [
        "00000000-00000000000000000000.names",
        "00000000-00000000000000000000.segz",
        "header.json",
    ]
    again = pack.with_name("again")
    again.write_bytes(sealed(files))
    assert [item.event.text for item in open_run(again).events()] == ["note 0", "note 1", "note 2"]


def test_every_changed_byte_is_refused(pack, seed):
    """Whatever bit of a pack is turned, it is not opened, and the error says what to do."""
    content = bytearray(pack.read_bytes())
    rng = np.random.default_rng(seed)
    places = {*range(40), *range(len(content) - 60, len(content))}
    for place in sorted(places | set(rng.integers(0, len(content), 200).tolist())):
        changed = bytearray(content)
        changed[place] ^= 1 << int(rng.integers(8))
        pack.write_bytes(changed)
        with pytest.raises(LogError, match=r"seal is broken|no pack|of version"):
            open_run(pack)


def test_every_cut_is_refused(pack):
    """A pack that did not arrive whole is not opened."""
    content = pack.read_bytes()
    for size in (*range(60), *range(60, len(content), 37), len(content) - 1):
        pack.write_bytes(content[:size])
        with pytest.raises(LogError):
            open_run(pack)
    pack.write_bytes(content[:30])
    with pytest.raises(LogTruncated, match="30 bytes, shorter than any pack"):
        open_run(pack)
    pack.write_bytes(content + b"\0")
    with pytest.raises(LogCorrupt, match="seal is broken"):
        open_run(pack)


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/evil", "a/b", "header.json/x", "00000000-1.seg", "evil.py", "", "\0"]
)
def test_files_of_other_names_are_not_made(pack, name):
    """Nothing is written but what a run's folder may hold, so that no path leads out of it."""
    pack.write_bytes(sealed({**files_of(pack), name: b"evil"}))
    with pytest.raises(LogCorrupt, match="no file of a run"):
        open_run(pack)


def test_lists_that_lie_are_refused(pack):
    """Sizes that are not there, a name twice, no header, nonsense: refused before any is made."""
    files = files_of(pack)
    (segment,) = (name for name in files if name.endswith(".segz"))
    listed = {"name": "header.json", "num_bytes": len(files["header.json"])}
    twice = json.dumps({"note": {"around": 0}, "files": [listed, listed]}).encode()
    for content in (
        sealed(files, num_bytes={segment: 1 << 62}),
        sealed(files, num_bytes={segment: -1}),
        sealed(files, num_bytes={segment: 3}),
        sealed({**files, "header2": b""}, manifest=twice),
        sealed({segment: files[segment]}),
        sealed(files, manifest=b"[" * 100_000),
        sealed(files, manifest=b"{}"),
        sealed({}, manifest=b""),
        sealed({})[:-36] + b"\xff" * 4,
    ):
        pack.write_bytes(content)
        with pytest.raises(LogCorrupt):
            open_run(pack)
    body = sealed(files)[:-36] + b"\xff" * 4
    pack.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(LogCorrupt, match="too long for this pack"):
        open_run(pack)


def test_newer_pack_is_refused_as_newer(pack):
    """A pack of a later version is not taken for a damaged one."""
    pack.write_bytes(sealed(files_of(pack), version=2))
    with pytest.raises(LogVersionError, match="version 2, this kvlife reads up to 1"):
        open_run(pack)


def test_bomb_is_not_blown_up(pack):
    """A compressed file that would become larger than its segment's head allows is refused."""
    files = files_of(pack)
    (segment,) = (name for name in files if name.endswith(".segz"))
    head = files[segment][:68]
    bomb = compressed_segment(head + bytes(65 << 20))
    assert len(bomb) < 1 << 14
    pack.write_bytes(sealed({**files, segment: bomb}))
    with pytest.raises(LogCorrupt, match="bytes claimed, at most"):
        open_run(pack)


def test_a_file_that_is_no_pack_is_told(tmp_path):
    """A file of another kind is named as what it is not."""
    (tmp_path / "x").write_text("KVLIFE, but no pack")
    with pytest.raises(LogError, match="is a file, and no pack: name a run's folder"):
        open_run(tmp_path / "x")
