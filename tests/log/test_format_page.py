"""The page on the format: its example is what the writer writes, and its numbers are the code's."""

import re
from pathlib import Path

from log_samples import NONE, ints

from kvlife.config import PoolConfig
from kvlife.events import Allocated, Committed, Marked, StepDispatched
from kvlife.log import LogWriter, RunHeader, open_run, wire
from kvlife.log.segment_file import SegmentHead

PAGE = Path(__file__).resolve().parents[2] / "docs" / "log-format.md"


def example():
    """The bytes of the page's example, comments left out."""
    block = re.search(r"```hex\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    return bytes.fromhex("".join(line.partition(";")[0] for line in block.splitlines()))


def write(path):
    config = PoolConfig(page_size=16, num_pages=1000, max_requests=8, max_context_len=256)
    writer = LogWriter(path, compress=False, segment_bytes=4096)
    run = writer.start(RunHeader(config=config, created_ns=0))
    rows = ints(1, 2, 3, 5, 8)
    lengths, longer = ints(17, 17, 17, 17, 17), ints(18, 18, 18, 18, 18)
    writer.append(0, 0, 1000, [Marked("hi", True)])
    writer.append(1, 1, 2000, [Allocated(rows, lengths, (ints(4, 300, 5, 6, 7),))])
    writer.append(2, 1, 3000, [Committed(rows, lengths)])
    writer.append(3, 2, 5000, [Allocated(rows, longer, (NONE,)), StepDispatched(2, rows)])
    writer.close(0xABCD)
    return next(run.glob("*.seg"))


def test_the_example_is_what_is_written(tmp_path):
    """Byte for byte, from the head to the seal."""
    assert write(tmp_path).read_bytes() == example()


def test_the_example_is_read(tmp_path):
    """The page's own bytes, put in place of what was written, give the page's events."""
    write(tmp_path).write_bytes(example())
    run = open_run(tmp_path)
    got = list(run.events())
    assert [(r.seq, r.step, r.time_ns) for r in got] == [
        (0, 0, 1000),
        (1, 1, 2000),
        (2, 1, 3000),
        (3, 2, 5000),
        (4, 2, 5000),
    ]
    assert got[1].event.pages[0].tolist() == [4, 300, 5, 6, 7]
    assert got[3].event.allocated_len.tolist() == [18] * 5
    assert got[4].event.rows.tolist() == [1, 2, 3, 5, 8]
    assert run.closed.digest == 0xABCD


def test_the_numbers_of_the_page_are_those_of_the_code():
    """Sizes, kinds and bounds that the page names."""
    page = PAGE.read_text()
    assert wire.SEGMENT_HEAD_BYTES == 68
    assert wire.RECORD_HEAD.size == 14
    assert wire.LONG_HEAD.size == 20
    assert wire.SNAPSHOT_HEAD.size + wire.CRC.size == 72
    assert wire.SEGMENT_HEAD_BYTES + wire.PACKED_HEAD.size + wire.CRC.size == 100
    assert len(SegmentHead.__attrs_attrs__) == 9
    for name in ("BATCH", "RESET", "SNAPSHOT", "GAP", "CLOSE", "SEAL"):
        assert f"| {getattr(wire, name):#04x} | {name} |" in page
    assert wire.NUM_SLOTS == 64
    assert wire.MAX_PACKED_BYTES == 64 << 20
    assert f"{wire.MAX_RUN:,}" in page
    assert f"{wire.MAX_RUN_TOTAL:,}" in page
    assert f"{wire.MAX_GROUP:,}" in page
