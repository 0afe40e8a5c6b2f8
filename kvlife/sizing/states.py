"""State slots: how many a request takes, and how many a share of the budget holds."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.figures import Figure
from kvlife.sizing.search import largest
from kvlife.sizing.vetting import vet_ratio, vet_whole

Tracking = Literal["off", "lazy", "on"]
MAX_SLOTS = (1 << 31) - 2

# With a prefix cache: the running state, the one to publish, and one that is locked in the cache.
WITH_PREFIX_CACHE = 3


def _to_ratio(value: object) -> Fraction:
    return vet_ratio("state to full bytes", value)


@attrs.frozen(kw_only=True)
class StateSizing:
    """How the state pool is sized.

    `ratio` is state bytes to bytes of the full pool. `num_slots` sets the slots instead (of all
    attention-data-parallel ranks together). `tracking` buffers take 1 slot a request (lazy, or
    without overlap) or 2. `decode_locks`: whether a decoding request locks a published state.
    """

    ratio: Fraction = attrs.field(default=Fraction(9, 10), converter=_to_ratio)
    num_slots: int | None = None
    tracking: Tracking = "off"
    decode_locks: bool = True

    def __attrs_post_init__(self) -> None:
        if self.num_slots is not None:
            vet_whole("num_slots", self.num_slots)
        if self.tracking not in ("off", "lazy", "on"):
            raise ConfigError(f"tracking is off, lazy or on, got {self.tracking!r}")


def slots_per_request(sizing: StateSizing, *, prefix_cache: bool, overlap: bool) -> Figure:
    """The state slots that one request may hold at once."""
    if not prefix_cache:
        return Figure(
            name="slots_per_request",
            value=1,
            unit="slots",
            formula="1",
            why="without a prefix cache a request has one state",
        )
    if sizing.tracking == "lazy" and not overlap:
        raise ConfigError(
            "lazy tracking buffers save the second slot of overlap scheduling, which is off:"
            " turn overlap on, or take tracking 'on' (1 slot a request)"
        )
    tracked = {"off": 0, "lazy": 1, "on": 2 if overlap else 1}[sizing.tracking]
    unlocked = 0 if sizing.decode_locks else 1
    return Figure(
        name="slots_per_request",
        value=WITH_PREFIX_CACHE + tracked - unlocked,
        unit="slots",
        formula="with_prefix_cache + tracking_buffers - not_locked_in_decode",
        inputs={
            "with_prefix_cache": WITH_PREFIX_CACHE,
            "tracking_buffers": tracked,
            "not_locked_in_decode": unlocked,
        },
    )


@attrs.frozen(kw_only=True)
class StateCost:
    """What a number of slots costs: s bytes a slot, D drafts, and who may draft at once.

        (K + 1) s + (min(requests, K // per_request) + 1) s D

    Both have a slot more than is used, for padded writes.
    """

    slot_bytes: int
    num_drafts: int
    per_request: int
    num_requests: int

    def draft_rows(self, num_slots: int) -> int:
        """Rows of the draft states, the padding row included; 0 without drafts."""
        if not self.num_drafts:
            return 0
        return min(self.num_requests, num_slots // self.per_request) + 1

    def num_bytes(self, num_slots: int) -> int:
        """Bytes of so many slots, their padding slot and the draft states."""
        drafts = self.draft_rows(num_slots) * self.num_drafts
        return (num_slots + 1 + drafts) * self.slot_bytes

    def most_slots(self, share_bytes: int) -> int:
        """The largest number of slots whose bytes are within the share; 0 where none is."""
        most = min(MAX_SLOTS, max(0, share_bytes) // self.slot_bytes)
        return largest(lambda num: self.num_bytes(num) <= share_bytes, most)
