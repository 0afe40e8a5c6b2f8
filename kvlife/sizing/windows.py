"""Window pools: by a ratio to the full pool, or by the most requests that they must hold.

What one request holds in a window pool before its next eviction, all of it in whole pages:

    |<- page - 1 ->|<- window ->|<- eviction_interval x draft_tokens ->|<- ahead ->|
     up to the page of the cursor     since the last eviction              steps in flight
"""

from __future__ import annotations

from fractions import Fraction

import attrs

from kvlife.sizing.figures import Figure, identifier
from kvlife.sizing.vetting import vet_ratio, vet_whole


def _to_ratio(value: object) -> Fraction:
    return vet_ratio("window to full tokens", value)


@attrs.frozen(kw_only=True)
class ByRatio:
    """Window tokens for each token of the full pool."""

    ratio: Fraction = attrs.field(default=Fraction(4, 5), converter=_to_ratio)


@attrs.frozen(kw_only=True)
class ByRequests:
    """As much as the most requests hold, and the prefill chunks in flight: 2 with overlap, else 1.

    A request's window is evicted every `eviction_interval` steps. A chunk has `chunk_len` tokens.
    """

    eviction_interval: int = attrs.field(default=1)
    chunk_len: int = attrs.field(default=8192)

    @eviction_interval.validator
    @chunk_len.validator
    def _check(self, field: attrs.Attribute[int], value: object) -> None:
        vet_whole(field.name, value)


WindowSizing = ByRatio | ByRequests


def held_window_len(
    pool: str,
    window: int,
    page_size: int,
    sizing: ByRequests,
    *,
    draft_tokens: int,
    ahead_len: int,
) -> Figure:
    """The most tokens of a window pool that one decoding request holds, in whole pages.

    `ahead_len` is what steps in flight allocate beyond the drafts of one.
    """
    window_pages = -(-window // page_size)
    grown = sizing.eviction_interval * draft_tokens + ahead_len
    held = -(-(window_pages * page_size + grown + page_size - 1) // page_size) * page_size
    return Figure(
        name=identifier(f"held_window_len_{pool}"),
        value=held,
        unit="tokens a request",
        formula="window_pages x page_size + eviction_interval x draft_tokens + ahead_len"
        " + page_size - 1, in whole pages",
        inputs={
            "window": window,
            "window_pages": window_pages,
            "eviction_interval": sizing.eviction_interval,
            "draft_tokens": draft_tokens,
            "ahead_len": ahead_len,
            "page_size": page_size,
        },
    )


def needed_window_len(
    pool: str,
    held: Figure,
    page_size: int,
    sizing: ByRequests,
    *,
    num_requests: int,
    overlap: bool,
) -> Figure:
    """The tokens of a window pool that never runs out, in whole pages."""
    assert isinstance(held.value, int)
    num_chunks = 2 if overlap else 1
    needed = held.value * num_requests + num_chunks * sizing.chunk_len
    return Figure(
        name=identifier(f"needed_window_len_{pool}"),
        value=-(-needed // page_size) * page_size,
        unit="tokens",
        formula=f"{held.name} x num_requests + chunks_in_flight x chunk_len, in whole pages",
        inputs={
            held.name: held.value,
            "num_requests": num_requests,
            "chunks_in_flight": num_chunks,
            "chunk_len": sizing.chunk_len,
        },
    )


def admitting_pages(window: int, page_size: int) -> int:
    """The fewest pages of a window pool that takes a request: more tokens than window + page."""
    return (window + page_size) // page_size + 1
