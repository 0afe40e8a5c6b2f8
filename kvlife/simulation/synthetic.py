"""A generated workload: conversations of several turns under a few shared system prompts.

Everything a conversation says is one stream of tokens. With lengths from small to large,

    system prompt | user 0 | answer 0 | user 1 | answer 1 | ...
    |-- prompt of turn 0 --|
    |-------------- prompt of turn 1 -|

so the prompt of a turn is the prompt and the answer of the turn before it, and new tokens, without
any of it being kept.
"""

from typing import Self

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.simulation.synthetic_config import LENGTH_TAIL, SyntheticConfig
from kvlife.simulation.token_source import Tokens, stream_keys, stream_tokens_below
from kvlife.simulation.workload import Turns, Workload

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_NS_PER_S = 1_000_000_000
_SYSTEM_STREAMS, _CONVERSATION_STREAMS = 2, 3


@attrs.frozen(kw_only=True, eq=False)
class ConversationTokens:
    """The tokens of generated conversations; arrays are int32 over the requests.

    `systems` holds the system prompts, `system_idx` and `conversation_key` (uint32) say which one
    a request has and which stream it reads.
    """

    systems: tuple[Tokens, ...]
    system_idx: Int32Array
    conversation_key: npt.NDArray[np.uint32]
    prompt_len: Int32Array
    output_len: Int32Array
    vocab_size: int

    def prompt(self, idx: int) -> Tokens:
        """The prompt of request `idx`: system prompt, earlier turns, new user tokens."""
        system = self.systems[self.system_idx[idx]]
        said_len = int(self.prompt_len[idx]) - len(system)
        return np.concatenate((system, self._said(idx, 0, said_len)))

    def output(self, idx: int) -> Tokens:
        """The answer of request `idx`."""
        said_len = int(self.prompt_len[idx]) - len(self.systems[self.system_idx[idx]])
        return self._said(idx, said_len, int(self.output_len[idx]))

    def _said(self, idx: int, start: int, length: int) -> Tokens:
        key = int(self.conversation_key[idx])
        return stream_tokens_below(self.vocab_size, key, start, length)


@attrs.frozen(kw_only=True, eq=False)
class _Generators:
    """One generator a quantity, so that each one's draws do not depend on how many others take."""

    starts: np.random.Generator
    num_turns: np.random.Generator
    pauses: np.random.Generator
    system_choice: np.random.Generator
    system_lens: np.random.Generator
    user_lens: np.random.Generator
    answer_lens: np.random.Generator

    @classmethod
    def of_seed(cls, seed: int) -> Self:
        names = [field.name for field in attrs.fields(cls)]
        children = np.random.SeedSequence(seed).spawn(len(names))
        return cls(
            **{
                name: np.random.Generator(np.random.PCG64(child))
                for name, child in zip(names, children, strict=True)
            }
        )


@attrs.frozen(kw_only=True, eq=False)
class _Requests:
    """Columns over requests, first by conversation, then in order of arrival."""

    arrival_ns: Int64Array
    conversation_idx: Int64Array
    turn_idx: Int64Array
    system_idx: Int64Array
    prompt_len: Int64Array
    output_len: Int64Array

    def take(self, which: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Self:
        names = [field.name for field in attrs.fields(type(self))]
        return type(self)(**{name: getattr(self, name)[which] for name in names})


def generate(config: SyntheticConfig) -> Workload:
    """The workload that `config` describes: equal configurations give equal workloads."""
    generators = _Generators.of_seed(config.seed)
    systems = _system_prompts(config, generators)
    requests = _first_by_arrival(_draw(config, generators, systems), config.num_requests)
    keys = stream_keys(config.seed, _CONVERSATION_STREAMS, config.num_requests)
    prompt_len = requests.prompt_len.astype(np.int32)
    output_len = requests.output_len.astype(np.int32)
    source = ConversationTokens(
        systems=systems,
        system_idx=requests.system_idx.astype(np.int32),
        conversation_key=keys[requests.conversation_idx],
        prompt_len=prompt_len,
        output_len=output_len,
        vocab_size=config.vocab_size,
    )
    return Workload(
        arrival_ns=requests.arrival_ns,
        prompt_len=prompt_len,
        output_len=output_len,
        source=source,
        turns=Turns(
            conversation_idx=requests.conversation_idx.astype(np.int32),
            turn_idx=requests.turn_idx.astype(np.int32),
        ),
    )


def _system_prompts(config: SyntheticConfig, generators: _Generators) -> tuple[Tokens, ...]:
    lens = _lengths(
        generators.system_lens,
        config.num_system_prompts,
        config.system_len_median,
        config.system_len_sigma,
    )
    keys = stream_keys(config.seed, _SYSTEM_STREAMS, config.num_system_prompts)
    return tuple(
        stream_tokens_below(config.vocab_size, int(key), 0, int(length))
        for key, length in zip(keys, lens, strict=True)
    )


def _draw(
    config: SyntheticConfig, generators: _Generators, systems: tuple[Tokens, ...]
) -> _Requests:
    # As many conversations as requests are asked for: the first turns alone are enough, and the
    # first `num_requests` arrivals then do not depend on conversations that start later.
    num_conversations = config.num_requests
    num_turns = generators.num_turns.geometric(1.0 / config.turns_mean, num_conversations)
    first_turn = np.cumsum(num_turns) - num_turns
    conversation_idx = np.repeat(np.arange(num_conversations), num_turns)
    turn_idx = np.arange(len(conversation_idx)) - first_turn[conversation_idx]
    system_idx = _choose_systems(config, generators, num_conversations)[conversation_idx]
    num_drawn = len(conversation_idx)
    user_len = _lengths(
        generators.user_lens, num_drawn, config.user_len_median, config.user_len_sigma
    )
    answer_len = _lengths(
        generators.answer_lens, num_drawn, config.answer_len_median, config.answer_len_sigma
    )
    system_len = np.array([len(tokens) for tokens in systems], np.int64)[system_idx]
    said_len = _sum_within(user_len + answer_len, first_turn, conversation_idx)
    requests = _Requests(
        arrival_ns=_arrivals(config, generators, answer_len, first_turn, conversation_idx),
        conversation_idx=conversation_idx,
        turn_idx=turn_idx,
        system_idx=system_idx,
        prompt_len=system_len + said_len - answer_len,
        output_len=answer_len,
    )
    return requests.take(system_len + said_len <= config.max_context_len)


def _arrivals(
    config: SyntheticConfig,
    generators: _Generators,
    answer_len: Int64Array,
    first_turn: Int64Array,
    conversation_idx: Int64Array,
) -> Int64Array:
    gaps_ns = _exponential_ns(generators.starts, len(first_turn), 1.0 / config.conversations_per_s)
    pauses_ns = _exponential_ns(generators.pauses, len(answer_len), config.pause_s_mean)
    # What passes after a turn moves the turns behind it, not the turn itself.
    after_ns = answer_len * config.answer_ns_per_token + pauses_ns
    before_ns = _sum_within(after_ns, first_turn, conversation_idx) - after_ns
    arrival_ns: Int64Array = np.cumsum(gaps_ns)[conversation_idx] + before_ns
    return arrival_ns


def _choose_systems(
    config: SyntheticConfig, generators: _Generators, num_conversations: int
) -> Int64Array:
    weights = np.arange(1, config.num_system_prompts + 1, dtype=np.float64) ** -config.system_zipf
    bounds = np.cumsum(weights / weights.sum())[:-1]
    draws = generators.system_choice.random(num_conversations)
    chosen: Int64Array = np.searchsorted(bounds, draws, side="right").astype(np.int64)
    return chosen


def _lengths(
    generator: np.random.Generator, num_draws: int, median: int, sigma: float
) -> Int64Array:
    drawn = median * np.exp(sigma * generator.standard_normal(num_draws))
    lens: Int64Array = np.clip(np.rint(drawn), 1, LENGTH_TAIL * median).astype(np.int64)
    return lens


def _exponential_ns(generator: np.random.Generator, num_draws: int, mean_s: float) -> Int64Array:
    drawn = generator.standard_exponential(num_draws) * (mean_s * _NS_PER_S)
    return np.rint(drawn).astype(np.int64)


def _sum_within(
    values: Int64Array, first_turn: Int64Array, conversation_idx: Int64Array
) -> Int64Array:
    sums = np.cumsum(values)
    before = (sums - values)[first_turn]
    within: Int64Array = sums - before[conversation_idx]
    return within


def _first_by_arrival(requests: _Requests, num_requests: int) -> _Requests:
    order = np.lexsort((requests.turn_idx, requests.conversation_idx, requests.arrival_ns))
    return requests.take(order[:num_requests])
