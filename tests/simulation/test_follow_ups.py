"""Turns of a trace that does not name them."""

import numpy as np

from kvlife.simulation import SyntheticConfig, Workload, generate
from kvlife.simulation.follow_ups import find_turns
from kvlife.simulation.mooncake import MooncakeTokens


def trace_of(*blocks):
    """A workload with one request for each list of whole blocks of 512 tokens."""
    num = len(blocks)
    lens = np.array([512 * len(ids) for ids in blocks], np.int32)
    outputs = np.ones(num, np.int32)
    source = MooncakeTokens(
        hash_ids=np.array([block for ids in blocks for block in ids], np.int32),
        block_starts=np.concatenate(([0], np.cumsum([len(ids) for ids in blocks]))),
        prompt_len=lens,
        output_len=outputs,
        output_key=np.arange(num, dtype=np.uint32),
    )
    return Workload(
        arrival_ns=np.arange(num, dtype=np.int64),
        prompt_len=lens,
        output_len=outputs,
        source=source,
    )


def test_a_longer_prompt_follows_the_longest_one_that_it_extends():
    """1-2-3-4 goes on from 1-2-3, not from 1-2; 1-2-9 then goes on from 1-2."""
    turns = find_turns(trace_of([1, 2], [1, 2, 3], [7], [1, 2, 3, 4], [1, 2, 9]))
    assert [turns.previous(idx) for idx in range(5)] == [None, 0, None, 1, None]


def test_each_request_has_one_that_follows_it():
    """Of two that extend the same prompt, the first takes it; the other begins a conversation."""
    turns = find_turns(trace_of([1, 2], [1, 2, 3], [1, 2, 4]))
    assert turns.conversation_idx.tolist() == [0, 0, 1]
    assert turns.turn_idx.tolist() == [0, 1, 0]


def test_a_generated_workload_keeps_its_turns():
    """What is known is not guessed."""
    workload = generate(SyntheticConfig(num_requests=20, seed=1))
    assert find_turns(workload) is workload.turns


def test_without_any_hint_each_request_is_a_conversation():
    """Token ids at hand say nothing of turns."""
    prompts = [np.arange(4, dtype=np.int32)] * 3
    turns = find_turns(Workload.of_tokens([0, 1, 2], prompts, prompts))
    assert turns.conversation_idx.tolist() == [0, 1, 2]
