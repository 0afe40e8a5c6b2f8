"""kvlife: the life of KV-cache memory in an LLM serving engine, as events that are checked."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvlife import events
    from kvlife.config import CacheGroup, PoolConfig
    from kvlife.engine import Batch, KvEngine, Observer
    from kvlife.errors import (
        BadArgument,
        BadLength,
        BadTokens,
        BudgetTooSmall,
        CaptureError,
        CommandRefused,
        ConfigError,
        DuplicateRequest,
        EngineClosed,
        EventError,
        InvariantViolation,
        KvLifeError,
        LogCorrupt,
        LogError,
        LogFull,
        LogInUse,
        LogTruncated,
        LogVersionError,
        OutOfPages,
        OutOfRows,
        PinRefused,
        SessionBusy,
        StaleBatch,
        StepOrder,
        UnknownRequest,
        UnknownSession,
        WorkloadError,
        WrongThread,
    )
    from kvlife.invariants import Checker
    from kvlife.ledger import Ledger
    from kvlife.log import LogReader, LogWriter, open_run
    from kvlife.records import ReqKvBatch, ReqKvInfo

__version__ = "0.1.0"

__all__ = [
    "BadArgument",
    "BadLength",
    "BadTokens",
    "Batch",
    "BudgetTooSmall",
    "CacheGroup",
    "CaptureError",
    "Checker",
    "CommandRefused",
    "ConfigError",
    "DuplicateRequest",
    "EngineClosed",
    "EventError",
    "InvariantViolation",
    "KvEngine",
    "KvLifeError",
    "Ledger",
    "LogCorrupt",
    "LogError",
    "LogFull",
    "LogInUse",
    "LogReader",
    "LogTruncated",
    "LogVersionError",
    "LogWriter",
    "Observer",
    "OutOfPages",
    "OutOfRows",
    "PinRefused",
    "PoolConfig",
    "ReqKvBatch",
    "ReqKvInfo",
    "SessionBusy",
    "StaleBatch",
    "StepOrder",
    "UnknownRequest",
    "UnknownSession",
    "WorkloadError",
    "WrongThread",
    "__version__",
    "events",
    "open_run",
]

# Where a name lives that is no error; an error class lives in kvlife.errors.
_HOMES = {
    "Batch": "kvlife.engine",
    "CacheGroup": "kvlife.config",
    "Checker": "kvlife.invariants",
    "KvEngine": "kvlife.engine",
    "Ledger": "kvlife.ledger",
    "LogReader": "kvlife.log",
    "LogWriter": "kvlife.log",
    "Observer": "kvlife.engine",
    "PoolConfig": "kvlife.config",
    "ReqKvBatch": "kvlife.records",
    "ReqKvInfo": "kvlife.records",
    "open_run": "kvlife.log",
}

# A type checker reads the imports above, and so reports a name that is not there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module 'kvlife' has no attribute {name!r}")
        # The engine behind these names is loaded when one of them is first asked for.
        from importlib import import_module

        if name == "events":
            return import_module("kvlife.events")
        value = getattr(import_module(_HOMES.get(name, "kvlife.errors")), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return __all__
