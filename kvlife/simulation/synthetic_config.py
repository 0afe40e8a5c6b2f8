"""The options of the generated workload, and their bounds."""

import attrs

from kvlife.errors import ConfigError
from kvlife.simulation.token_source import TOKEN_LIMIT

LENGTH_TAIL = 16
"""Lengths are held to this many times their median, so that one draw cannot fill a context."""

_NS_PER_S = 1_000_000_000


@attrs.frozen(kw_only=True)
class SyntheticConfig:
    """What to generate; lengths in tokens. Raises `ConfigError` for what cannot be generated.

    Conversations start as a Poisson process. Each has a system prompt, chosen with a chance that
    falls as 1 / rank^`system_zipf`, and a geometric number of turns; it ends early where a turn
    would pass `max_context_len`. A turn follows the one before it after its answer, at
    `answer_ns_per_token`, and an exponential pause. Lengths are lognormal about their medians.

    The first requests of a longer workload are the same as those of a shorter one, all else equal.
    """

    num_requests: int
    seed: int = 0
    vocab_size: int = 128_000
    max_context_len: int = 32_768
    conversations_per_s: float = 5.0
    turns_mean: float = 5.0
    pause_s_mean: float = 8.0
    answer_ns_per_token: int = 15_000_000
    num_system_prompts: int = 6
    system_zipf: float = 1.2
    system_len_median: int = 500
    system_len_sigma: float = 0.5
    user_len_median: int = 80
    user_len_sigma: float = 1.0
    answer_len_median: int = 150
    answer_len_sigma: float = 0.8

    def __attrs_post_init__(self) -> None:
        _check_bounds(self)
        first_turn = self.system_len_median + self.user_len_median + self.answer_len_median
        if LENGTH_TAIL * first_turn > self.max_context_len:
            raise ConfigError(
                f"medians of {first_turn} tokens for system prompt, user and answer, of which "
                f"{LENGTH_TAIL} times as many may be drawn, do not fit max_context_len "
                f"{self.max_context_len}; raise it or lower the medians"
            )


def _check_bounds(config: SyntheticConfig) -> None:
    for name in ("num_requests", "num_system_prompts", "max_context_len"):
        _check_range(config, name, 1, TOKEN_LIMIT - 1)
    for name in ("system_len_median", "user_len_median", "answer_len_median"):
        _check_range(config, name, 1, TOKEN_LIMIT - 1)
    for name in ("system_len_sigma", "user_len_sigma", "answer_len_sigma", "system_zipf"):
        _check_range(config, name, 0.0, 8.0)
    _check_range(config, "seed", 0, (1 << 64) - 1)
    _check_range(config, "vocab_size", 2, TOKEN_LIMIT)
    _check_range(config, "conversations_per_s", 1e-6, 1e6)
    _check_range(config, "turns_mean", 1.0, 1e6)
    _check_range(config, "pause_s_mean", 0.0, 1e6)
    _check_range(config, "answer_ns_per_token", 0, _NS_PER_S)


def _check_range(config: SyntheticConfig, name: str, least: float, most: float) -> None:
    value = getattr(config, name)
    if not least <= value <= most:
        raise ConfigError(f"{name} is {value!r}; it must lie in [{least}, {most}]")
