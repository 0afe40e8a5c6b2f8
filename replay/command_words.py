"""The words of a command line, vetted in one place, before any of them is made a value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args, get_origin

from cyclopts import App, Argument, ArgumentCollection

from kvlife.errors import ConfigError
from kvlife.replay.output.quoting import printable

_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
# Beyond these no length, seq or number of anything lies, and arrays and iterators take no more.
_INTS = range(-(1 << 63), 1 << 63)

# Of a word that is refused so many signs are shown.
_SHOWN = 80


def vet_words(_app: App, _names: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise `ConfigError` for a word that cannot be what it stands for, or one that is missing.

    Left to themselves, 1.5 is rounded to a whole number, an empty path is the folder one is in, and
    a name that is no text (bytes which are not UTF-8) comes up somewhere deep in a search.
    """
    for argument in arguments:
        types = _types_of(argument.hint)
        for token in argument.tokens:
            name = token.keyword or _name(argument)
            said = _against(token.value, types)
            if said:
                raise ConfigError(f"{name} {printable(repr(token.value), _SHOWN)}: {said}")
        if argument.field_info.required and not argument.tokens:
            raise ConfigError(
                f"{_name(argument)} is missing{_choices(types)}: {argument.parameter.help}"
            )


def _types_of(hint: object) -> tuple[object, ...]:
    """The types that a word may have: those of a union, or what a tuple has of each."""
    if get_origin(hint) is Literal:
        return (hint,)
    inner = get_args(hint)
    return tuple(kind for each in inner for kind in _types_of(each)) if inner else (hint,)


def _name(argument: Argument) -> str:
    positional = argument.index is not None
    return argument.name.lstrip("-").upper() if positional else argument.name


def _against(word: str, types: Iterable[object]) -> str:
    """What is wrong with a word; nothing where nothing is."""
    if int in types:
        if not _WHOLE.fullmatch(word):
            return "is to be a whole number"
        return "" if len(word) < 99 and int(word) in _INTS else "is out of range"
    if Path in types:
        return "" if word else "is no path: name a file or a folder"
    if str in types and not _is_text(word):
        return "is not UTF-8, and all names in a log are"
    return ""


def _is_text(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _choices(types: Iterable[object]) -> str:
    words = [str(word) for kind in types if get_origin(kind) is Literal for word in get_args(kind)]
    return f", one of {', '.join(words)}" if words else ""
