"""Names from a log on a terminal and in a shell: a log may hold any text as an id."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping


def printable(text: str, limit: int | None = None) -> str:
    """The text with what no terminal should be sent as an escape, in at most `limit` signs.

    Ids often differ at their ends, so what is cut out is the middle.
    """
    shown = text
    if not text.isprintable():
        shown = "".join(sign if sign.isprintable() else _escape(sign) for sign in text)
    if limit is not None and len(shown) > limit:
        tail = (limit - 1) // 2
        return shown[: limit - 1 - tail] + "…" + shown[len(shown) - tail :]
    return shown


def _escape(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def command_line(name: str, *words: str, options: Mapping[str, object] | None = None) -> str:
    """A kvlife command as it can be typed into bash or zsh, whatever the words hold.

    An option whose value is None is one that takes none.
    """
    named: list[str] = []
    for option, value in (options or {}).items():
        text = str(value)
        if value is None:
            named += [f"--{option}"]
        else:
            named += [f"--{option}={text}"] if text.startswith("-") else [f"--{option}", text]
    # A name that looks like an option stands behind the sign that ends the options.
    odd = any(word.startswith("-") for word in words)
    parts = [*named, "--", *words] if odd else [*words, *named]
    return " ".join(["kvlife", name, *map(shell_word, parts)])


def shell_word(word: str) -> str:
    """One word, quoted where it must be; control characters as bash and zsh read them."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(_in_quotes, word)) + "'"


def _in_quotes(sign: str) -> str:
    if sign in "\\'":
        return "\\" + sign
    if sign.isprintable():
        return sign
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(sign))
