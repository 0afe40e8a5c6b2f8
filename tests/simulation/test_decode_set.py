"""The requests that decode, as arrays."""

import numpy as np

from kvlife.simulation.decoding import FAR, DecodeSet
from kvlife.simulation.request import Request


def request(idx, stop_at, target_len=10, generated=0):
    return Request(
        idx=idx,
        rid=f"r{idx}",
        prompt_len=target_len - generated,
        stop_at=stop_at,
        target_len=target_len,
        generated=generated,
    )


def test_members_end_at_their_own_step():
    """With 1, 3 and 3 tokens to go they end at the first and the third step."""
    members = [request(0, 1), request(1, 3), request(2, 3)]
    running = DecodeSet()
    running.join(members)
    assert running.take_one() == [members[0]]
    running.leave([members[0]])
    assert running.take_one() == []
    assert running.take_one() == members[1:]
    assert members[0].generated == 1


def test_who_leaves_early_knows_what_it_generated():
    """After two of five steps it has two tokens, beside the three from before a retraction."""
    member = request(0, 8, generated=3)
    running = DecodeSet()
    running.join([member, request(1, 20)])
    running.take_one()
    running.take_one()
    running.leave([member])
    assert member.generated == 5
    assert len(running) == 1


def test_drafts_count_from_the_second_result_on():
    """The prefill's result is one token whatever was drafted; then 1 + 2, cut at what is left."""
    running = DecodeSet()
    running.join([request(0, 3, target_len=10), request(1, 9, target_len=20)])
    assert running.take(np.array([2, 2], np.int32)) == []
    assert running.kv_len.tolist() == [10, 20]
    done = running.take(np.array([2, 2], np.int32))
    assert [member.idx for member in done] == [0]
    assert running.kv_len.tolist() == [12, 23]
    assert running.left.tolist() == [0, 5]


def test_a_member_that_is_pushed_back_goes_on():
    """It ends no more by itself, and still knows what it generated."""
    member = request(0, 2)
    running = DecodeSet()
    running.join([member])
    running.take_one()
    assert running.take_one() == [member]
    running.push_back(member)
    assert running.take_one() == []
    running.leave([member])
    assert member.generated == 3
    assert member.stop_at == 2 + FAR
