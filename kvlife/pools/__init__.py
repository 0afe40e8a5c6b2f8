"""The device pools that events are applied to; `Pools` is what an observer asks of them.

torch is loaded when a name behind which it stands is first asked for.
"""

from typing import TYPE_CHECKING

from kvlife.pools.contract import DeviceFinding, Pools, Slots

if TYPE_CHECKING:
    from kvlife.pools.buffers import KvBuffers
    from kvlife.pools.device_pools import DevicePools
    from kvlife.pools.layouts import KvLayout, Latent, MultiHead

__all__ = [
    "DeviceFinding",
    "DevicePools",
    "KvBuffers",
    "KvLayout",
    "Latent",
    "MultiHead",
    "Pools",
    "Slots",
]

_HOMES = {
    "DevicePools": "kvlife.pools.device_pools",
    "KvBuffers": "kvlife.pools.buffers",
    "KvLayout": "kvlife.pools.layouts",
    "Latent": "kvlife.pools.layouts",
    "MultiHead": "kvlife.pools.layouts",
}

# A type checker reads the imports above, and so reports a name that is not there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'kvlife.pools' has no attribute {name!r}")
        # Without pools, nobody waits for torch to load.
        from importlib import import_module

        # Says so where torch is absent or too old, before anything asks for it.
        import_module("kvlife.kernels.dispatch")
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
