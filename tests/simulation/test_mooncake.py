"""Workloads from Mooncake traces: what is read, what is refused, which tokens are made."""

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvlife.errors import WorkloadError
from kvlife.simulation.mooncake import block_tokens, read_mooncake

GOOD = {"timestamp": 3, "input_length": 600, "output_length": 4, "hash_ids": [7, 9]}
HASH_IDS = st.integers(0, 2**31 - 1)


def write(path: Path, lines: Iterable[object]) -> Path:
    """A trace at `path`; lines that are no text are written as JSON."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("".join(text + "\n" for text in texts))
    return path


def test_a_trace_becomes_a_workload(tmp_path: Path) -> None:
    """Milliseconds become nanoseconds, lengths stay, unknown fields do not matter."""
    later = {**GOOD, "timestamp": 3, "input_length": 1, "hash_ids": [5], "chat": {"id": [1]}}
    path = write(tmp_path / "t.jsonl", [{**GOOD, "timestamp": 2}, later])
    workload = read_mooncake(path)
    assert workload.arrival_ns.tolist() == [2_000_000, 3_000_000]
    assert workload.prompt_len.tolist() == [600, 1]
    assert workload.output_len.tolist() == [4, 4]
    assert workload.turns is None
    assert workload.prompt(1).tolist() == [5]


def test_prompts_are_their_blocks(tmp_path: Path) -> None:
    """600 tokens are the whole block 7 and the first 88 tokens of block 9."""
    path = write(tmp_path / "t.jsonl", [GOOD, {**GOOD, "input_length": 1024}])
    workload = read_mooncake(path)
    blocks = block_tokens(np.array([7, 9], np.int32))
    assert workload.prompt(0).dtype == np.int32
    assert np.array_equal(workload.prompt(0)[:512], blocks[0])
    assert np.array_equal(workload.prompt(0)[512:], blocks[1][:88])
    assert np.array_equal(workload.prompt(1)[:600], workload.prompt(0))
    assert len(workload.prompt(1)) == 1024


@given(first=HASH_IDS, second=HASH_IDS)
def test_blocks_of_different_ids_agree_nowhere(first: int, second: int) -> None:
    """Whatever the page size, different ids differ in their first page, and in every other."""
    blocks = block_tokens(np.array([first, second], np.int32))
    assert blocks[:, 0].tolist() == [first, second]
    assert blocks.min() >= 0
    assert (blocks[0] == blocks[1]).all() if first == second else (blocks[0] != blocks[1]).all()


def test_a_block_does_not_repeat_itself() -> None:
    """Within the blocks of small ids a token id is rare, as in a text of a huge vocabulary."""
    blocks = block_tokens(np.arange(1, 200, dtype=np.int32))
    # 101,888 draws from 2^31 are expected to hold 2.4 equal pairs.
    assert blocks.size - len(np.unique(blocks)) < 20


def test_answers_depend_on_the_seed_and_the_request_alone(tmp_path: Path) -> None:
    """Answers repeat under one seed, and differ by request and by seed; prompts do not change."""
    path = write(tmp_path / "t.jsonl", [{**GOOD, "output_length": 50}] * 3)
    workload, again, other = read_mooncake(path), read_mooncake(path), read_mooncake(path, seed=1)
    assert np.array_equal(workload.output(2), again.output(2))
    assert np.array_equal(workload.prompt(0), other.prompt(0))
    answers = [workload.output(0), workload.output(1), workload.output(2), other.output(0)]
    assert all(len(answer) == 50 for answer in answers)
    assert len({int(answer[0]) for answer in answers}) == 4


def test_the_limit_stops_reading(tmp_path: Path) -> None:
    """The first requests are read and nothing behind them is looked at."""
    path = write(tmp_path / "t.jsonl", [GOOD, GOOD, "not json"])
    assert len(read_mooncake(path, limit=2)) == 2
    with pytest.raises(WorkloadError, match="line 3"):
        read_mooncake(path, limit=3)
    with pytest.raises(WorkloadError, match="at least 1"):
        read_mooncake(path, limit=0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("not json", "not a JSON object"),
        ('{"timestamp": 3, "input_le', "not a JSON object"),
        ("", "line is empty"),
        ("[1, 2]", "Expected `object`"),
        ('{"x": ' + "[" * 100_000, "not a JSON object"),
        ({key: GOOD[key] for key in GOOD if key != "timestamp"}, "timestamp"),
        ({key: GOOD[key] for key in GOOD if key != "hash_ids"}, "hash_ids"),
        ({**GOOD, "timestamp": "3"}, r"\$\.timestamp"),
        ({**GOOD, "timestamp": 3.5}, r"\$\.timestamp"),
        ({**GOOD, "timestamp": None}, r"\$\.timestamp"),
        ({**GOOD, "timestamp": -1}, r"\$\.timestamp"),
        ({**GOOD, "timestamp": 9_223_372_036_855}, r"\$\.timestamp"),
        ({**GOOD, "timestamp": 2**64}, r"\$\.timestamp"),
        ({**GOOD, "timestamp": 1}, "timestamp 1 comes after 2; sort"),
        ({**GOOD, "input_length": 0, "hash_ids": []}, r"\$\.input_length"),
        ({**GOOD, "input_length": -600}, r"\$\.input_length"),
        ({**GOOD, "input_length": True}, r"\$\.input_length"),
        ({**GOOD, "input_length": 2**31}, r"\$\.input_length"),
        ({**GOOD, "output_length": 0}, r"\$\.output_length"),
        ({**GOOD, "output_length": 2**31 - 1}, "together"),
        ({**GOOD, "hash_ids": [7]}, "1 hash ids for 600 prompt tokens, which are 2 blocks"),
        ({**GOOD, "hash_ids": [7, 8, 9]}, "3 hash ids"),
        ({**GOOD, "input_length": 513, "hash_ids": [7]}, "1 hash ids for 513"),
        ({**GOOD, "input_length": 512}, "2 hash ids for 512"),
        ({**GOOD, "hash_ids": [7, -1]}, r"\$\.hash_ids"),
        ({**GOOD, "hash_ids": [7, 2**31]}, r"\$\.hash_ids"),
        ({**GOOD, "hash_ids": [7, "8"]}, r"\$\.hash_ids"),
        ({**GOOD, "hash_ids": 7}, r"\$\.hash_ids"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object, said: str) -> None:
    """File, line number and fault stand in the error, wherever the line is."""
    path = write(tmp_path / "bad.jsonl", [{**GOOD, "timestamp": 2}, line, GOOD])
    with pytest.raises(WorkloadError, match=rf"bad\.jsonl, line 2: .*{said}"):
        read_mooncake(path)


def test_bytes_that_are_no_text_are_named(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are a bad line like another."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(json.dumps(GOOD).encode() + b"\n" + b'{"timestamp": "\xff\xfe"}\n')
    with pytest.raises(WorkloadError, match=r"t\.jsonl, line 2: "):
        read_mooncake(path)


def test_an_empty_trace_is_refused(tmp_path: Path) -> None:
    """A file without a line is no workload."""
    with pytest.raises(WorkloadError, match="no request"):
        read_mooncake(write(tmp_path / "empty.jsonl", []))


def test_a_cut_archive_is_no_shorter_trace(tmp_path: Path) -> None:
    """A compressed trace that ends early is refused, but for what the limit leaves unread."""
    lines = [{**GOOD, "hash_ids": [number, 2**30 + number * 7919]} for number in range(20_000)]
    plain = write(tmp_path / "t.jsonl", lines).read_bytes()
    whole = gzip.compress(plain)
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(WorkloadError, match="cut or damaged"):
        read_mooncake(path)
    assert len(read_mooncake(path, limit=10)) == 10
