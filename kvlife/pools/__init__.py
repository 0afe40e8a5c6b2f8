"""The device pools that events are applied to; `Pools` is what an observer asks of them."""

from kvlife.pools.contract import Pools

__all__ = ["Pools"]
