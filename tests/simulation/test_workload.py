"""The columns of a workload and the turns of its conversations."""

import attrs
import numpy as np
import pytest

from kvlife.errors import WorkloadError
from kvlife.simulation.workload import Turns, Workload


def ids(*tokens: int) -> np.ndarray:
    """Token ids as the int32 array that a workload takes."""
    return np.array(tokens, np.int32)


def three_requests() -> Workload:
    """Prompts of 2, 1 and 3 tokens, answers of 1, 2 and 1."""
    return Workload.of_tokens(
        [0, 5, 5], [ids(1, 2), ids(3), ids(1, 2, 4)], [ids(4), ids(5, 6), ids(7)]
    )


def test_tokens_at_hand_make_a_workload() -> None:
    """Lengths, sums and tokens are those of the arrays given."""
    workload = three_requests()
    assert len(workload) == 3
    assert workload.prompt_len.tolist() == [2, 1, 3]
    assert (workload.num_prompt_tokens, workload.num_output_tokens) == (6, 4)
    assert workload.prompt(2).tolist() == [1, 2, 4]
    assert workload.output(1).tolist() == [5, 6]
    assert workload.tokens(2).tolist() == [1, 2, 4, 7]


def test_columns_are_read_only_and_the_given_arrays_are_left_alone() -> None:
    """A workload cannot be changed, and does not freeze its maker's arrays."""
    arrival_ns = np.array([0, 5, 5])
    workload = attrs.evolve(three_requests(), arrival_ns=arrival_ns)
    with pytest.raises(ValueError, match="read-only"):
        workload.arrival_ns[0] = 1
    arrival_ns[0] = 1
    assert arrival_ns[0] == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arrival_ns": np.array([], np.int64)}, "no request"),
        ({"arrival_ns": np.array([0, 5, 5], np.int32)}, "arrival_ns is int32"),
        ({"prompt_len": np.array([2, 1], np.int32)}, r"prompt_len is int32 of shape \(2,\)"),
        ({"arrival_ns": np.array([-1, 5, 5])}, "request 0 arrives at -1 ns"),
        ({"arrival_ns": np.array([0, 5, 4])}, "request 2 arrives at 4 ns"),
        ({"prompt_len": np.array([2, 0, 3], np.int32)}, "prompt of request 1 has 0 tokens"),
        ({"output_len": np.array([1, 2, -3], np.int32)}, "answer of request 2 has -3 tokens"),
        ({"output_len": np.array([1, 2**31 - 1, 1], np.int32)}, "request 1 have 2147483648"),
        ({"turns": Turns(conversation_idx=ids(0), turn_idx=ids(0))}, "turns cover 1 requests"),
    ],
)
def test_columns_that_do_not_fit_are_refused(changes: dict[str, object], said: str) -> None:
    """What is wrong, and where, stands in the error."""
    with pytest.raises(WorkloadError, match=said):
        attrs.evolve(three_requests(), **changes)


def test_turns_know_their_neighbours() -> None:
    """Conversation 0 is requests 0, 2, 3; conversation 1 is request 1; 2 has lost its turn 1."""
    turns = Turns(conversation_idx=ids(0, 1, 0, 0, 2, 2), turn_idx=ids(0, 0, 1, 2, 0, 2))
    assert [turns.previous(idx) for idx in range(6)] == [None, None, 0, 2, None, None]
    assert [turns.following(idx) for idx in range(6)] == [2, None, 3, None, None, None]


def test_the_first_requests_forget_later_turns() -> None:
    """A cut workload has no neighbour outside itself."""
    turns = Turns(conversation_idx=ids(0, 1, 0), turn_idx=ids(0, 0, 1))
    cut = attrs.evolve(three_requests(), turns=turns).first(2)
    assert len(cut) == 2
    assert cut.turns is not None
    assert cut.turns.following(0) is None
    assert cut.tokens(1).tolist() == [3, 5, 6]
    assert len(three_requests().first(9)) == 3
    with pytest.raises(WorkloadError, match="at least 1"):
        three_requests().first(0)
