"""Hypothesis strategies: pool configurations, tokens with shared prefixes, lives, workloads."""

from __future__ import annotations

from itertools import accumulate

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.config import CacheGroup, PoolConfig
from kvlife.testing.extra import strategies as st

PAGE_SIZES = (1, 2, 4)


@attrs.frozen(kw_only=True)
class Life:
    """What one request will do: its prompt, what is appended step by step, and how it ends."""

    prompt: list[int]
    appended: list[list[int]]
    ending: str


@attrs.frozen(kw_only=True, eq=False)
class Arrivals:
    """Prompts, answers and when they are asked for; `Workload.of_tokens` takes the three."""

    arrival_ns: list[int]
    prompts: list[npt.NDArray[np.int32]]
    outputs: list[npt.NDArray[np.int32]]


@st.composite
def pool_configs(
    draw: st.DrawFn,
    *,
    page_sizes: tuple[int, ...] = (1, 2, 4, 16),
    max_pages: int = 64,
    max_groups: int = 1,
) -> PoolConfig:
    """Small pools; with `max_groups` 2, some have a sliding window group beside the full one.

    Page sizes shrink to the first, pools to one page that can be handed out.
    """
    page_size = draw(st.sampled_from(page_sizes))
    num_pages = draw(st.integers(2, max_pages))
    groups = [CacheGroup("full")]
    if max_groups > 1 and draw(st.booleans()):
        window = draw(st.integers(1, 3 * page_size))
        shared = "one" if draw(st.booleans()) else None
        groups = [CacheGroup("full", space=shared), CacheGroup("swa", window=window, space=shared)]
    return PoolConfig(
        page_size=page_size,
        num_pages=num_pages,
        max_requests=draw(st.integers(1, 8)),
        max_context_len=page_size * num_pages,
        groups=tuple(groups),
        free_order=draw(st.sampled_from(["lifo", "fifo"])),
    )


@st.composite
def token_lists(draw: st.DrawFn, page_size: int, *, max_pages: int = 3) -> list[int]:
    """Tokens in pages of one token each, so that prefixes are often shared, page by page.

    Lengths lie at page borders and one beside them. Shrinks to a single 0.
    """
    # The choices keep their places when the page size shrinks, so that the two shrink together.
    tail = draw(st.sampled_from([1, max(1, page_size - 1), page_size]))
    pages = draw(st.lists(st.integers(0, 1), min_size=1, max_size=max_pages))
    whole = [token for token in pages[:-1] for _ in range(page_size)]
    return whole + [pages[-1]] * tail


@st.composite
def appended_tokens(draw: st.DrawFn, page_size: int) -> list[int]:
    """Tokens behind others: one, or a page of them, or one more."""
    num = draw(st.sampled_from([1, page_size, page_size + 1]))
    return [draw(st.integers(0, 1))] * num


@st.composite
def lives(draw: st.DrawFn, page_size: int, *, max_steps: int = 4) -> Life:
    """The life of one request: a prompt, then steps of a few tokens, then an ending."""
    return Life(
        prompt=draw(token_lists(page_size)),
        appended=draw(st.lists(appended_tokens(page_size), max_size=max_steps)),
        ending=draw(st.sampled_from(["finished", "aborted"])),
    )


@st.composite
def workloads(draw: st.DrawFn, page_size: int, *, max_requests: int = 8) -> Arrivals:
    """Requests with shared prefixes, some of them at once."""
    drawn = draw(st.lists(lives(page_size), min_size=1, max_size=max_requests))
    pauses = draw(st.lists(st.integers(0, 10**9), min_size=len(drawn), max_size=len(drawn)))
    outputs = [[token for step in life.appended for token in step] or [0] for life in drawn]
    return Arrivals(
        arrival_ns=list(accumulate(pauses)),
        prompts=[np.array(life.prompt, np.int32) for life in drawn],
        outputs=[np.array(tokens, np.int32) for tokens in outputs],
    )
