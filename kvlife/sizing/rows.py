"""Rows: how many tokens a step may allocate for a request, and how many a row must hold for it.

    [0, context)                  what the model may see
    [context, context + reserve)  what steps allocate ahead of what is committed

A step of a chain of drafts writes its drafts one after another. Each branch of a tree gets whole
pages of its own where pages hold several tokens, behind a copy of the last, partial page.
"""

from __future__ import annotations

import attrs

from kvlife.config import MAX_LEN
from kvlife.errors import ConfigError
from kvlife.sizing.figures import Figure


@attrs.frozen(kw_only=True)
class Step:
    """What one decode step may allocate: `num_draft_tokens` verified, `depth` steps of `topk`."""

    num_draft_tokens: int = 1
    depth: int = 1
    topk: int = 1
    is_speculative: bool = False
    overlap: bool = True


def worst_step_len(step: Step, page_size: int) -> Figure:
    """The most tokens that one step allocates for one request."""
    inputs = {
        "num_draft_tokens": step.num_draft_tokens,
        "draft_steps": step.depth,
        "draft_topk": step.topk,
    }
    if not step.is_speculative:
        return Figure(name="worst_step_len", value=1, unit="tokens", formula="1")
    if step.topk == 1 or page_size == 1:
        return Figure(
            name="worst_step_len",
            value=max(step.depth * step.topk, step.num_draft_tokens),
            unit="tokens",
            formula="max(draft_steps x draft_topk, num_draft_tokens)",
            inputs=inputs,
        )
    new_pages = -(-(page_size - 1 + step.depth) // page_size)
    return Figure(
        name="worst_step_len",
        value=max(step.topk * new_pages * page_size, step.num_draft_tokens),
        unit="tokens",
        formula="max(draft_topk x new_pages x page_size, num_draft_tokens)",
        inputs={**inputs, "new_pages": new_pages, "page_size": page_size},
        why="a tree: each branch has pages of its own, ceil((page_size - 1 + draft_steps)"
        " / page_size) of them",
    )


def decode_reserve_len(step: Step, page_size: int) -> Figure:
    """How far a row may be allocated beyond what is committed.

    Speculative: twice the worst step, as the step in flight and the next one are both allocated
    before the first is confirmed. Plain: one token for each step in flight.
    """
    worst = worst_step_len(step, page_size).value
    assert isinstance(worst, int)
    in_flight = 2 if step.overlap or step.is_speculative else 1
    return Figure(
        name="decode_reserve_len",
        value=in_flight * worst,
        unit="tokens",
        formula="steps_in_flight x worst_step_len",
        inputs={"steps_in_flight": in_flight, "worst_step_len": worst},
    )


def row_capacity(context_len: int, reserve_len: int) -> Figure:
    """The tokens that a row must hold: a reserve that the row cannot hold would pass its end.

    Raises `ConfigError` for more than an engine counts.
    """
    if context_len + reserve_len > MAX_LEN:
        raise ConfigError(
            f"a context of {context_len:,} tokens, and {reserve_len:,} that steps allocate beyond"
            f" it, are more than an engine counts: take at most {MAX_LEN:,} in all"
        )
    return Figure(
        name="row_capacity",
        value=context_len + reserve_len,
        unit="tokens",
        formula="context_len + decode_reserve_len",
        inputs={"context_len": context_len, "decode_reserve_len": reserve_len},
    )
