"""A test file that rebuilds a small log with the public API, and asserts what it breaks."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from kvlife.config import CacheGroup, PoolConfig
from kvlife.errors import InvariantViolation
from kvlife.events import FIELDS, Event, FieldKind

# As wide as the formatter's default, so that a wider setting leaves the text as it is.
MAX_COLUMNS = 88
INDENT = "    "


@attrs.frozen
class _Call:
    """An expression in brackets: on one line where that fits, else one item a line."""

    opening: str
    items: tuple[_Call | str, ...]
    closing: str = ")"
    is_tuple: bool = False

    def flat(self) -> str:
        """On one line."""
        text = ", ".join(item if isinstance(item, str) else item.flat() for item in self.items)
        comma = "," if self.is_tuple and len(self.items) == 1 else ""
        return f"{self.opening}{text}{comma}{self.closing}"


def as_test(
    config: PoolConfig, events: Sequence[Event], last: Event, violation: InvariantViolation
) -> str:
    """The text of the file; `last` is the event that breaks what `violation` says."""
    kinds = {type(event).__name__ for event in (*events, last)}
    told = "".join(_lines(_call("observer.observe", _event(event)), INDENT) for event in events)
    broken = _lines(_call("observer.observe", _event(last)), INDENT * 2)
    setting = _lines(_fields("config = PoolConfig", config), INDENT)
    names = {"InvariantViolation", "Observer", "PoolConfig"}
    if "CacheGroup(" in setting:
        names.add("CacheGroup")
    return f'''"""{violation.id}, broken by {type(last).__name__}: the least that shows it."""

import numpy as np
import pytest

{_lines(_import("kvlife", names), "")}{_lines(_import("kvlife.events", kinds), "")}
{_functions({field.kind for event in (*events, last) for field in FIELDS[type(event)]})}

def test_{violation.id.replace("-", "_")}():
    """The last event breaks {violation.id}, and nothing before it does."""
{setting}    observer = Observer(config)
{told}    with pytest.raises(InvariantViolation) as caught:
{broken}    assert caught.value.id == "{violation.id}"
    assert caught.value.seq == {violation.seq}
'''


def _functions(kinds: set[FieldKind]) -> str:
    text = '''
def ints(*numbers):
    """Pages, rows or lengths."""
    return np.array(numbers, np.int32)
'''
    if FieldKind.KEYS in kinds:
        text += '''

def keys(*numbers):
    """Keys of pages."""
    return np.array(numbers, np.uint64)
'''
    if FieldKind.LINKS in kinds:
        text += '''

def links(*rows):
    """Links, of four numbers each."""
    return np.array(rows, np.int32).reshape(-1, 4)
'''
    return text


def _import(module: str, names: set[str]) -> _Call | str:
    line = f"from {module} import {', '.join(sorted(names))}"
    return (
        line if len(line) <= MAX_COLUMNS else _Call(f"from {module} import (", tuple(sorted(names)))
    )


def _event(event: Event) -> _Call:
    return _fields(type(event).__name__, event)


def _fields(name: str, record: Event | PoolConfig | CacheGroup) -> _Call:
    """A record, with those of its fields that are not as by default."""
    items = []
    for field in attrs.fields(type(record)):
        value = getattr(record, field.name)
        if field.default is attrs.NOTHING or value != field.default:
            items.append(_named(field.name, value))
    return _Call(f"{name}(", tuple(items))


def _named(name: str, value: object) -> _Call | str:
    found = _value(value)
    if isinstance(found, str):
        return f"{name}={found}"
    return attrs.evolve(found, opening=f"{name}={found.opening}")


def _value(value: object) -> _Call | str:
    if isinstance(value, CacheGroup):
        return _fields("CacheGroup", value)
    if isinstance(value, tuple):
        return _Call("(", tuple(map(_value, value)), is_tuple=True)
    if isinstance(value, np.ndarray):
        if value.ndim == 2:
            return _Call("links(", tuple(str(row) for row in value.tolist()))
        function = "keys(" if value.dtype == np.uint64 else "ints("
        return _Call(function, tuple(map(str, value.tolist())))
    if isinstance(value, str):
        quoted = repr(value)
        return quoted if '"' in quoted else f'"{quoted[1:-1]}"'
    return repr(value)


def _call(function: str, argument: _Call) -> _Call:
    return _Call(f"{function}(", (argument,))


def _lines(item: _Call | str, indent: str, tail: str = "") -> str:
    flat = item if isinstance(item, str) else item.flat()
    if isinstance(item, str) or not item.items or len(indent + flat + tail) <= MAX_COLUMNS:
        return f"{indent}{flat}{tail}\n"
    inner = "".join(_lines(part, indent + INDENT, ",") for part in item.items)
    return f"{indent}{item.opening}\n{inner}{indent}{item.closing}{tail}\n"
