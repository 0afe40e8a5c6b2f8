"""What the loop counts, and the most it saw in use."""

from __future__ import annotations

from collections import Counter

import attrs

from kvlife.engine import KvEngine
from kvlife.engine.stats import count_host_pages, count_pages

# Counting pages by state looks at every page, so it is done once in so many steps.
SAMPLE_STEPS = 256


@attrs.define
class Tally:
    """Counts of one run, in tokens where they end so.

    `prompt_tokens` and `hit_tokens` count first admissions; what a retracted request finds again is
    in `resumed_hit_tokens`, what a turn finds on its session's row in `session_tokens`.
    `prefill_tokens` were computed, `accepted_tokens` of the `drafted_tokens` were right. `aborts`
    counts by the place and the state in which they met the request. `peaks` holds, by page space
    and state, the most pages seen, the host's under "host"; pages are counted every `SAMPLE_STEPS`
    steps.
    """

    requests: int = 0
    completed: int = 0
    steps: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    resumed_hit_tokens: int = 0
    restored_tokens: int = 0
    session_tokens: int = 0
    prefill_tokens: int = 0
    output_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    retractions: int = 0
    backups: int = 0
    sessions: int = 0
    session_turns: int = 0
    rewinds: int = 0
    sessions_closed: int = 0
    sessions_closed_for_room: int = 0
    aborts: Counter[str] = attrs.field(factory=Counter)
    peaks: dict[str, dict[str, int]] = attrs.field(factory=dict)
    peak_running: int = 0

    @property
    def num_done(self) -> int:
        """Requests that were completed or aborted."""
        return self.completed + self.aborts.total()

    def sample(self, engine: KvEngine, num_running: int) -> None:
        """Keep the highest counts."""
        self.peak_running = max(self.peak_running, num_running)
        counted = count_pages(engine)
        if host := count_host_pages(engine):
            counted["host"] = host
        for space, states in counted.items():
            peaks = self.peaks.setdefault(space, {})
            for state, num in states.items():
                peaks[state] = max(peaks.get(state, 0), num)
