"""The testing kit: fuzz an allocator, hold a log store or an engine to its contract.

The contracts are in `kvlife.testing.conformance`, faults for sound runs in `kvlife.testing.faults`.
Fuzzing needs the extra `testing` (`pip install 'kvlife[testing]'`); names are loaded when they are
first asked for, so that what needs no Hypothesis works without it.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlife.testing.adapter import Allocator
    from kvlife.testing.adapters import BlockAllocatorAdapter, EngineAdapter
    from kvlife.testing.block_allocator import BlockAllocator
    from kvlife.testing.hunt import Found, find, fuzz
    from kvlife.testing.machine import LifecycleMachine
    from kvlife.testing.strategies import lives, pool_configs, token_lists, workloads
    from kvlife.testing.watch import ContractBroken

__all__ = [
    "Allocator",
    "BlockAllocator",
    "BlockAllocatorAdapter",
    "ContractBroken",
    "EngineAdapter",
    "Found",
    "LifecycleMachine",
    "find",
    "fuzz",
    "lives",
    "pool_configs",
    "token_lists",
    "workloads",
]

_HOMES = {
    "Allocator": "kvlife.testing.adapter",
    "BlockAllocator": "kvlife.testing.block_allocator",
    "BlockAllocatorAdapter": "kvlife.testing.adapters",
    "ContractBroken": "kvlife.testing.watch",
    "EngineAdapter": "kvlife.testing.adapters",
    "Found": "kvlife.testing.hunt",
    "LifecycleMachine": "kvlife.testing.machine",
    "find": "kvlife.testing.hunt",
    "fuzz": "kvlife.testing.hunt",
    "lives": "kvlife.testing.strategies",
    "pool_configs": "kvlife.testing.strategies",
    "token_lists": "kvlife.testing.strategies",
    "workloads": "kvlife.testing.strategies",
}

# A type checker reads the imports above, and so reports a name that is not there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'kvlife.testing' has no attribute {name!r}")
        # What only some names need (Hypothesis above all) is loaded with them.
        from importlib import import_module

        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
