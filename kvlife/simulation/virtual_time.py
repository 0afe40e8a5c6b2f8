"""Virtual time: what a step takes, and a clock that only the loop moves."""

from __future__ import annotations

import attrs

STEP_NS = 8_000_000
PREFILL_TOKEN_NS = 12_000
DECODE_ROW_NS = 30_000

# Later than any arrival.
NEVER_NS = 1 << 63


@attrs.define
class VirtualClock:
    """The time of a simulation in ns; call it to read it, as an engine does."""

    now_ns: int = 0

    def __call__(self) -> int:
        """The time now."""
        return self.now_ns


def step_ns(num_prefill_tokens: int, num_decoding: int) -> int:
    """How long a step takes that computes so many prompt tokens and decodes so many rows."""
    return STEP_NS + PREFILL_TOKEN_NS * num_prefill_tokens + DECODE_ROW_NS * num_decoding
