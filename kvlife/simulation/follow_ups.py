"""Which requests of a trace are turns of one conversation, where the trace does not say so."""

from __future__ import annotations

import numpy as np

from kvlife.simulation.mooncake import BLOCK_LEN, MooncakeTokens
from kvlife.simulation.workload import Turns, Workload


def find_turns(workload: Workload) -> Turns:
    """The turns of a workload: those it knows, those its hash ids suggest, or single ones.

    In a trace of hash ids a request follows the latest one before it whose whole blocks are the
    longest beginning of its own, and that no other follows yet.
    """
    if workload.turns is not None:
        return workload.turns
    num = len(workload)
    if not isinstance(workload.source, MooncakeTokens):
        return Turns(
            conversation_idx=np.arange(num, dtype=np.int32), turn_idx=np.zeros(num, np.int32)
        )
    previous = _previous_by_blocks(workload.source, num)
    conversation_idx, turn_idx = np.zeros(num, np.int32), np.zeros(num, np.int32)
    num_conversations = 0
    for idx, before in enumerate(previous):
        if before is None:
            conversation_idx[idx] = num_conversations
            num_conversations += 1
        else:
            conversation_idx[idx] = conversation_idx[before]
            turn_idx[idx] = turn_idx[before] + 1
    return Turns(conversation_idx=conversation_idx, turn_idx=turn_idx)


def _previous_by_blocks(source: MooncakeTokens, num: int) -> list[int | None]:
    # An id stands under one parent only, so the id of a request's last whole block names all of
    # its whole blocks.
    open_ends: dict[int, int] = {}
    previous: list[int | None] = []
    starts = source.block_starts.tolist()
    whole_blocks = (source.prompt_len[:num] // BLOCK_LEN).tolist()
    for idx in range(num):
        blocks = source.hash_ids[starts[idx] : starts[idx] + whole_blocks[idx]].tolist()
        found = next((block for block in reversed(blocks) if block in open_ends), None)
        previous.append(None if found is None else open_ends.pop(found))
        if blocks:
            open_ends[blocks[-1]] = idx
    return previous
