"""Files that are no capture: each is refused, with file, line and reason."""

import gzip
import json
import random

import pytest
from small_captures import one_request

from kvlife import CaptureError
from kvlife.capture import import_vllm

# Lines of the file: the header, the snapshot, the arrival, the lookup, two looks for a hash, ...
HEADER, NEW_BLOCKS = 1, 7


def written(tmp_path, capture=None, text=None):
    path = tmp_path / "capture.jsonl.gz"
    capture = one_request() if capture is None else capture
    capture.write(path)
    if text is not None:
        path.write_bytes(gzip.compress(text))
    return path


def changed_line(number, change):
    capture = one_request()
    if number == HEADER:
        change(capture.header)
    else:
        change(capture.lines[number - 2])
    return capture


def refused(path, *words):
    with pytest.raises(CaptureError) as refusal:
        import_vllm(path)
    for word in (str(path), *words):
        assert word in str(refusal.value)


def test_the_line_under_test_is_the_one_that_is_meant():
    """The seventh line of the file hands blocks out."""
    assert one_request().lines[NEW_BLOCKS - 2]["op"] == "get_new_blocks"


@pytest.mark.parametrize(
    ("number", "field", "value", "words"),
    [
        (NEW_BLOCKS, "refs", None, ("array", "refs")),
        (NEW_BLOCKS, "op", "get_more_blocks", ("get_more_blocks",)),
        (NEW_BLOCKS, "blocks", [1, 1 << 40], ("blocks",)),
        (NEW_BLOCKS, "blocks", [1, -1], ("blocks",)),
        (NEW_BLOCKS, "blocks", [1, 2.5], ("blocks",)),
        (NEW_BLOCKS, "n", 10**30, ("`int`", "`$.n`")),
        (NEW_BLOCKS, "seq", 1 << 63, ("seq",)),
        (NEW_BLOCKS, "req", "", ("req",)),
        (NEW_BLOCKS, "req", "x" * 2000, ("req",)),
        (8, "hashes", ["nonsense"], ("hashes",)),
        (8, "masked", [2], ("masked",)),
        (HEADER, "format", "kvlife-vllm-capture/2", ("kvlife-vllm-capture/2", "version")),
        (HEADER, "format", "kvlife-vllm-kvwire/1", ("kvlife import kv-events",)),
        (HEADER, "none_hash", "abc", ("none_hash",)),
        (HEADER, "groups", [], ("groups",)),
        (HEADER, "null_block", 1, ("null block is 1",)),
        (HEADER, "hash_block_size", 8, ("only one size",)),
        (HEADER, "num_blocks", (1 << 31) - 1, ("num_pages",)),
        (HEADER, "max_num_seqs", 1 << 30, ("max_requests",)),
        (HEADER, "block_size", 0, ("block_size",)),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(tmp_path, number, field, value, words):
    """A type, a range, a name, a version or a pool that cannot be."""
    capture = changed_line(number, lambda record: record.__setitem__(field, value))
    refused(written(tmp_path, capture), f"line {number}", *words)


@pytest.mark.parametrize("number", [HEADER, NEW_BLOCKS])
def test_each_missing_field_is_named(tmp_path, number):
    """Every field that a line needs is missed, one by one; those that nobody reads are not."""
    record = one_request().header if number == HEADER else one_request().lines[number - 2]
    for field in record:
        capture = changed_line(number, lambda record, field=field: record.pop(field))
        refused(written(tmp_path, capture), f"line {number}", f"`{field}`")


@pytest.mark.parametrize("text", [b"", b"\n", b"nothing\n", b"[1]\n", b"{}\n", b"\xff\n"])
def test_what_is_no_header_is_refused(tmp_path, text):
    """An empty file, an empty line, text, and JSON of another kind."""
    refused(written(tmp_path, text=text))


def test_deep_nesting_is_refused(tmp_path):
    """A line of brackets does not exhaust the stack."""
    text = json.dumps(one_request().header).encode() + b"\n" + b"[" * 200_000 + b"\n"
    refused(written(tmp_path, text=text), "line 2")


def test_a_line_that_is_cut_is_refused(tmp_path):
    """Half a line at the end is no line."""
    path = written(tmp_path)
    text = gzip.decompress(path.read_bytes())
    refused(written(tmp_path, text=text[:-20]), "line 21", "cut")


def test_a_compressed_file_that_is_cut_is_refused(tmp_path):
    """A gzip stream that ends early is never taken for a shorter capture."""
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:-30])
    refused(path, "cut or damaged")


def test_a_file_that_is_not_there_is_named(tmp_path):
    """The path is in the message."""
    refused(tmp_path / "nowhere.gz")


def test_what_came_before_a_bad_line_stands_in_the_log(tmp_path):
    """The log is closed, so that what could be imported can be looked at."""
    capture = changed_line(20, lambda record: record.pop("op"))
    with pytest.raises(CaptureError):
        import_vllm(written(tmp_path, capture), log=tmp_path / "log")
    assert list((tmp_path / "log").iterdir())


def spoiled(text, draw):
    """The text with a few bytes changed, cut out or put in twice."""
    spots = bytearray(text)
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(spots))
        match draw.randrange(4):
            case 0:
                spots[at] = draw.randrange(256)
            case 1:
                del spots[at : at + draw.randint(1, 9)]
            case 2:
                spots[at:at] = spots[max(at - draw.randint(1, 40), 0) : at]
            case _:
                spots[at] = draw.choice(b"0123456789")
    return bytes(spots)


def test_no_bytes_bring_the_import_down(tmp_path, seed):
    """Whatever a file holds, it is imported, found wrong, or refused as a capture."""
    text = gzip.decompress(written(tmp_path).read_bytes())
    draw = random.Random(seed)
    path = tmp_path / "spoiled.jsonl"
    num_refused = 0
    for _trial in range(400):
        path.write_bytes(spoiled(text, draw))
        try:
            import_vllm(path, policy=draw.choice(("raise", "collect")))
        except CaptureError:
            num_refused += 1
    assert 0 < num_refused < 400
