"""The device pools that events are applied to; `Pools` is what an observer asks of them.

torch is loaded when a name behind which it stands is first asked for.
"""

from typing import TYPE_CHECKING

from kvlife.pools.contract import DeviceFinding, Pools, Slots

if TYPE_CHECKING:
    from kvlife.pools.device_pools import DevicePools

__all__ = ["DeviceFinding", "DevicePools", "Pools", "Slots"]

_HOMES = {"DevicePools": "kvlife.pools.device_pools"}

# A type checker reads the imports above, and so reports a name that is not there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'kvlife.pools' has no attribute {name!r}")
        # Without pools, nobody waits for torch to load.
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
