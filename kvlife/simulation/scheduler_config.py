"""The options of the scheduler loop, and their bounds."""

from __future__ import annotations

import attrs

from kvlife.errors import ConfigError

_MAX_COUNT = 1 << 20
_NS_PER_S = 1_000_000_000


@attrs.frozen(kw_only=True)
class SchedulerConfig:
    """How the loop schedules; raises `ConfigError` for what makes no schedule.

    At most `max_running` requests are in prefill and decode together, and a step computes at most
    `chunk_tokens` prompt tokens. A request is admitted where its prompt fits beside headroom for
    each one that runs: `headroom_tokens` at first and after a retraction, and less with each of
    `headroom_steps` steps without one, down to none. With `overlap` a step is dispatched before the
    one in front of it settles. `draft` tokens are guessed a step and row, each one right with the
    chance `acceptance` where all before it were.

    `session_rate` is the share of conversations that are streaming sessions, `rewind_rate` that of
    their turns that go back further than they must, `close_rate` that of turns in which the client
    closes the session; an idle one closes after a random time of
    `session_idle_ns` in the mean. `abort_rate` is the share of requests that are aborted. All
    chances are drawn under `seed`.
    """

    max_running: int = 256
    chunk_tokens: int = 8192
    headroom_tokens: int = 64
    headroom_steps: int = 600
    overlap: bool = False
    draft: int = 0
    acceptance: float = 0.7
    session_rate: float = 0.0
    rewind_rate: float = 0.25
    close_rate: float = 0.05
    session_idle_ns: int = 30 * _NS_PER_S
    abort_rate: float = 0.0
    seed: int = 0

    def __attrs_post_init__(self) -> None:
        for name, least, most in (
            ("max_running", 1, _MAX_COUNT),
            ("chunk_tokens", 1, _MAX_COUNT),
            ("headroom_tokens", 0, _MAX_COUNT),
            ("headroom_steps", 1, _MAX_COUNT),
            ("draft", 0, 256),
            ("session_idle_ns", 1, 86_400 * _NS_PER_S),
            ("seed", 0, (1 << 64) - 1),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise ConfigError(f"{name} is {value!r}; it must lie in [{least}, {most}]")
        for name in ("acceptance", "session_rate", "rewind_rate", "close_rate", "abort_rate"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name} is {getattr(self, name)!r}; it must lie in [0, 1]")

    @property
    def dispatches(self) -> bool:
        """Whether steps are dispatched and settled; a plain loop commits what it computed."""
        return self.overlap or self.draft > 0

    @property
    def tokens_per_row(self) -> int:
        """Slots that a decoding row may newly need in one step.

        With `overlap` a step is scheduled before it is known how much the step in front of it
        accepts, so room for both is reserved, and kept.
        """
        return (1 + self.draft) * (2 if self.overlap and self.draft else 1)

    @property
    def reserve_len(self) -> int:
        """Tokens that a row may have allocated beyond its prompt and answer."""
        return 2 * (1 + self.draft)
