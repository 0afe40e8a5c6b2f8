"""What one request takes at most, so that one which can never run is refused at the door."""

from __future__ import annotations

from kvlife.errors import ConfigError


def demand_pages(prompt_len: int, new_len: int, page_size: int, num_beams: int = 1) -> int:
    """The most pages that a request holds at once, all its beams included.

    Beams share the whole pages of the prompt; from its partial page on each has pages of its own.
    """
    if prompt_len < 1 or new_len < 0 or page_size < 1 or num_beams < 1:
        raise ConfigError(
            f"a request has a prompt, no negative length and a beam at least: prompt {prompt_len},"
            f" new {new_len}, pages of {page_size}, {num_beams} beams asked for"
        )
    shared = prompt_len // page_size
    private = -(-(prompt_len + new_len) // page_size) - shared
    return shared + num_beams * private


def refuse_unservable(
    prompt_len: int, new_len: int, page_size: int, num_pages: int, num_beams: int = 1
) -> None:
    """Raise `ConfigError` where even the empty pool of `num_pages` usable pages is too small."""
    demand = demand_pages(prompt_len, new_len, page_size, num_beams)
    if demand > num_pages:
        raise ConfigError(
            f"a prompt of {prompt_len:,} tokens, {new_len:,} new and {num_beams} beams take"
            f" {demand:,} pages of {page_size}, and the pool has {num_pages:,}: it could never be"
            " admitted; ask for fewer beams or tokens, or enlarge the pool"
        )
