"""Generated conversations: what they share, and that they come out the same each time."""

import hashlib
import os
import subprocess
import sys

import attrs
import numpy as np
import pytest

from kvlife.errors import ConfigError
from kvlife.simulation.synthetic import generate
from kvlife.simulation.synthetic_config import SyntheticConfig
from kvlife.simulation.workload import Workload

DIGEST = """
import hashlib
from kvlife.simulation.synthetic import generate
from kvlife.simulation.synthetic_config import SyntheticConfig
w = generate(SyntheticConfig(num_requests=50, seed=9))
parts = [w.arrival_ns, *(w.tokens(i) for i in range(50))]
print(hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest())
"""


@pytest.fixture(scope="module")
def workload() -> Workload:
    """The default scale: 2,000 requests under seed 0."""
    return generate(SyntheticConfig(num_requests=2000))


def digest(workload: Workload) -> str:
    """A digest of all that a scheduler sees of a workload."""
    parts = [workload.arrival_ns, *(workload.tokens(idx) for idx in range(len(workload)))]
    return hashlib.sha256(b"".join(part.tobytes() for part in parts)).hexdigest()


def test_lengths_are_those_of_the_columns(workload: Workload) -> None:
    """Every prompt and answer is as long as its column says, in int32 below the vocabulary."""
    assert len(workload) == 2000
    for idx in range(0, 2000, 7):
        prompt, output = workload.prompt(idx), workload.output(idx)
        assert len(prompt) == workload.prompt_len[idx]
        assert len(output) == workload.output_len[idx]
        assert prompt.dtype == output.dtype == np.int32
        assert min(prompt.min(), output.min()) >= 0
        assert max(prompt.max(), output.max()) < 128_000


def test_a_turn_goes_on_from_the_turn_before_it(workload: Workload) -> None:
    """Its prompt is the earlier prompt and answer and at least one new token, and comes later."""
    assert workload.turns is not None
    later_turns = [idx for idx in range(2000) if workload.turns.turn_idx[idx] > 0]
    assert len(later_turns) > 1000
    for idx in later_turns:
        before = workload.turns.previous(idx)
        assert before is not None
        assert workload.turns.following(before) == idx
        history = workload.tokens(before)
        assert np.array_equal(workload.prompt(idx)[: len(history)], history)
        assert workload.prompt_len[idx] > len(history)
        assert workload.arrival_ns[idx] > workload.arrival_ns[before]


def test_conversations_share_system_prompts_and_nothing_else(workload: Workload) -> None:
    """First turns begin with one of six texts, the commonest often, and then go apart."""
    assert workload.turns is not None
    firsts = [workload.prompt(int(i)) for i in np.flatnonzero(workload.turns.turn_idx == 0)]
    by_system: dict[int, list[np.ndarray]] = {}
    for prompt in firsts:
        by_system.setdefault(int(prompt[0]), []).append(prompt)
    assert len(by_system) == 6
    # 1 / sum(1 / k^1.2, k = 1..6) is 0.474, and 600 draws have a standard deviation of 0.02.
    assert 0.37 < max(map(len, by_system.values())) / len(firsts) < 0.57
    for prompts in by_system.values():
        one, other = prompts[0], prompts[1]
        num_common = min(len(one), len(other))
        apart = np.flatnonzero(one[:num_common] != other[:num_common])
        assert apart[0] > 50
        assert len(apart) >= (num_common - apart[0]) * 0.9


def test_the_default_scale_is_a_demonstration(workload: Workload) -> None:
    """2,000 requests have 2 to 4 million prompt tokens, and most of them were said before."""
    assert 2_000_000 < workload.num_prompt_tokens < 4_000_000
    assert workload.turns is not None
    before = [workload.turns.previous(idx) for idx in range(2000)]
    num_repeated = sum(
        int(workload.prompt_len[idx]) + int(workload.output_len[idx])
        for idx in before
        if idx is not None
    )
    assert 0.5 < num_repeated / workload.num_prompt_tokens < 0.95


def test_conversations_arrive_at_their_rate() -> None:
    """Gaps between conversations have the mean and the spread of a Poisson process."""
    config = SyntheticConfig(num_requests=4000, turns_mean=1.0, conversations_per_s=2.0)
    gaps_s = np.diff(generate(config).arrival_ns) / 1e9
    # An exponential of mean 0.5 s: its deviation is 0.5 s too, that of the mean 0.008 s.
    assert abs(gaps_s.mean() - 0.5) < 0.04
    assert abs(gaps_s.std() - 0.5) < 0.06


def test_equal_arguments_give_equal_workloads() -> None:
    """Nothing but the configuration decides, the seed of Python's hashes included."""
    config = SyntheticConfig(num_requests=50, seed=9)
    expected = digest(generate(config))
    assert digest(generate(config)) == expected
    assert digest(generate(attrs.evolve(config, seed=10))) != expected
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        shown = subprocess.run(
            [sys.executable, "-c", DIGEST],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert shown.stdout.strip() == expected


def test_a_longer_workload_begins_as_a_shorter_one(workload: Workload) -> None:
    """Asking for more requests adds some behind and changes none."""
    short = generate(SyntheticConfig(num_requests=300))
    assert digest(workload.first(300)) == digest(short)


def test_a_conversation_ends_where_its_context_would_pass_the_bound() -> None:
    """No turn is longer than the bound, and long conversations come near it."""
    bound = 16_000
    config = SyntheticConfig(
        num_requests=2000, turns_mean=200.0, conversations_per_s=0.01, max_context_len=bound
    )
    workload = generate(config)
    longest = int((workload.prompt_len + workload.output_len).max())
    assert 0.9 * bound < longest <= bound


def test_one_request_is_a_workload() -> None:
    """The least of everything still generates."""
    config = SyntheticConfig(
        num_requests=1,
        num_system_prompts=1,
        vocab_size=2,
        system_len_median=1,
        user_len_median=1,
        answer_len_median=1,
    )
    assert len(generate(config).prompt(0)) >= 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_requests", 0),
        ("seed", -1),
        ("vocab_size", 1),
        ("vocab_size", 2**31 + 1),
        ("conversations_per_s", 0.0),
        ("conversations_per_s", float("nan")),
        ("turns_mean", 0.5),
        ("pause_s_mean", -1.0),
        ("num_system_prompts", 0),
        ("user_len_median", 0),
        ("answer_len_sigma", -0.1),
        ("max_context_len", 1000),
    ],
)
def test_what_cannot_be_generated_is_refused(name: str, value: float) -> None:
    """The option and its bounds stand in the error."""
    options = {"num_requests": 10, name: value}
    with pytest.raises(ConfigError, match=name):
        SyntheticConfig(**options)
