"""The most requests that run at once, and which of several caps it is that binds."""

from __future__ import annotations

from kvlife.config import MAX_REQUESTS
from kvlife.errors import ConfigError
from kvlife.sizing.figures import Figure

# Requests for each context that the pool could hold, and the range that this is kept in.
PER_CONTEXT = 512
LEAST = 2048
MOST = 4096
TOKENS_EACH = 2
ESTIMATE = "min(max(int(max_total_num_tokens / context_len x 512), 2048), 4096)"


def estimated_requests(num_tokens: int, context_len: int) -> int:
    """min(max(int(tokens / context x 512), 2048), 4096)."""
    return min(max(num_tokens * PER_CONTEXT // context_len, LEAST), MOST)


def asked_on_this_rank(asked: int, attention_dp: int) -> int:
    """The user's number over the data-parallel ranks; raises `ConfigError` where none is left."""
    if asked < attention_dp:
        raise ConfigError(
            f"{asked} requests asked for, over {attention_dp} data-parallel ranks: none would run"
            f" anything; ask for {attention_dp} or more"
        )
    return asked // attention_dp


def most_requests(
    num_tokens: int,
    context_len: int,
    asked: int | None = None,
    attention_dp: int = 1,
    slots: tuple[int, int] | None = None,
) -> Figure:
    """The most requests of one rank; `slots` are its state slots, and how many a request takes."""
    inputs: dict[str, int] = {"max_total_num_tokens": num_tokens, "context_len": context_len}
    caps = {"max_total_num_tokens // 2": num_tokens // TOKENS_EACH}
    if asked is None:
        caps[ESTIMATE] = estimated_requests(num_tokens, context_len)
    else:
        caps["asked // attention_dp"] = asked_on_this_rank(asked, attention_dp)
        inputs |= {"asked": asked, "attention_dp": attention_dp}
        if caps["asked // attention_dp"] > MAX_REQUESTS:
            caps["max_rows"] = inputs["max_rows"] = MAX_REQUESTS
    if slots is not None:
        num_slots, per_request = slots
        caps["state_pool_size // slots_per_request"] = num_slots // per_request
        inputs |= {"state_pool_size": num_slots, "slots_per_request": per_request}
    value = min(caps.values())
    return Figure(
        name="max_running_requests",
        value=value,
        unit="requests",
        formula=f"min({', '.join(caps)})",
        inputs=inputs,
        numbers=f"min({', '.join(f'{cap:,}' for cap in caps.values())})",
        bound=next(name for name, cap in caps.items() if cap == value),
    )
