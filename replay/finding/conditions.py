"""Conditions on a state: comparisons of metrics, joined by `and`, `or` and `not`, or a function.

    condition  = alternative, as in Python: `not` before `and` before `or`, and parentheses
    comparison = side  ( < <= > >= == != )  side
    side       = whole number | STATE | metric [ "(" name=value, ... ")" ]

A value is a word without spaces, commas and parentheses, or stands in quotes. A metric may have no
value in a state (a request that holds no row): each comparison with it is then false.
"""

from __future__ import annotations

import importlib
import operator
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path

import attrs

from kvlife.config import Layout
from kvlife.errors import ConfigError, KvLifeError
from kvlife.invariants.catalogue import CATALOGUE
from kvlife.ledger import Ledger
from kvlife.replay.finding.metrics import METRICS, Metric, Read, Value

Holds = Callable[[Ledger], bool]

MAX_LENGTH = 4096
MAX_DEPTH = 64

_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[A-Za-z_][\w-]*")
_NUMBER = re.compile(r"-?\d[\d_]*")
_VALUE = re.compile(r"""'([^']*)'|"([^"]*)"|([^\s,()'"]+)""")
_COMPARE: dict[str, Callable[[int, int], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_SIGN = re.compile("|".join(_COMPARE) + "|=")
_KEYWORDS = ("and", "or", "not")


@attrs.define(eq=False)
class Term:
    """A metric in a condition: how it was written, and whether it ever had a value where asked."""

    text: str
    bound: Read
    asked: bool = False
    had_value: bool = False

    def read(self, ledger: Ledger) -> Value:
        """What it is in a state."""
        value = self.bound(ledger)
        self.asked = True
        self.had_value = self.had_value or value is not None
        return value


@attrs.frozen(eq=False)
class Condition:
    """Something that holds in a state or does not; `terms` are the metrics that it compares."""

    text: str
    holds: Holds
    terms: tuple[Term, ...] = ()

    def values(self, ledger: Ledger) -> dict[str, Value]:
        """What its metrics are in a state."""
        return {term.text: term.read(ledger) for term in self.terms}


def parse_condition(text: str, layout: Layout) -> Condition:
    """The condition that is written; raises `ConfigError` that shows the place where it is not."""
    if _FUNCTION.fullmatch(text.strip()):
        return _function(text.strip())
    return _Parser(text, layout).parse()


def _function(text: str) -> Condition:
    """`package.module:function`, looked for in the current folder too."""
    module_name, _, function_name = text.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        # At the end, so that no file there stands in for a library.
        sys.path.append(here)
    try:
        found: object = importlib.import_module(module_name)
        for name in function_name.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:  # a module of the user's may raise anything
        raise ConfigError(
            f"{text}: cannot be imported ({type(error).__name__}: {error}): name it as"
            " package.module:function, importable from here"
        ) from error
    if not callable(found):
        raise ConfigError(f"{text}: is no function, but {type(found).__name__}")
    function = found

    def holds(ledger: Ledger) -> bool:
        try:
            return bool(function(ledger))
        except (Exception, SystemExit) as error:
            if isinstance(error, KvLifeError):
                raise
            raise ConfigError(
                f"{text} failed on the state before seq {ledger.next_seq}:"
                f" {type(error).__name__}: {error}"
            ) from error

    return Condition(text, holds)


@attrs.frozen(eq=False)
class _Side:
    """One side of a comparison: a metric, a number, or the name of a state."""

    start: int
    read: Read
    states: tuple[str, ...] = ()
    word: str | None = None


class _Parser:
    def __init__(self, text: str, layout: Layout) -> None:
        self.text = text
        self.layout = layout
        self.at = 0
        self.depth = 0
        self.terms: dict[str, Term] = {}

    def parse(self) -> Condition:
        if len(self.text) > MAX_LENGTH:
            raise ConfigError(f"a condition has at most {MAX_LENGTH} signs, not {len(self.text)}")
        holds = self._either()
        self._skip()
        if self.at < len(self.text):
            raise self._error("nothing more was expected here, but `and` or `or`")
        return Condition(self.text.strip(), holds, tuple(self.terms.values()))

    def _either(self) -> Holds:
        parts = [self._both()]
        while self._keyword("or"):
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else lambda state: any(part(state) for part in parts)

    def _both(self) -> Holds:
        parts = [self._negated()]
        while self._keyword("and"):
            parts.append(self._negated())
        return parts[0] if len(parts) == 1 else lambda state: all(part(state) for part in parts)

    def _negated(self) -> Holds:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self._error(f"nested more than {MAX_DEPTH} deep")
        try:
            if self._keyword("not"):
                inner = self._negated()
                return lambda state: not inner(state)
            if self._sign("("):
                inner = self._either()
                if not self._sign(")"):
                    raise self._error("`)` was expected")
                return inner
            return self._comparison()
        finally:
            self.depth -= 1

    def _comparison(self) -> Holds:
        left = self._side()
        self._skip()
        sign_at = self.at
        match = _SIGN.match(self.text, self.at)
        if match is None and left.word is not None:
            raise self._unknown(left.start, left.word)
        if match is None or match[0] == "=":
            hint = ": two metrics are compared with ==" if match else ""
            raise self._error(f"one of {' '.join(_COMPARE)} was expected{hint}")
        self.at = match.end()
        right = self._side()
        self._check_pair(left, right, match[0], sign_at)
        # Whatever is compared is of one kind by now: two numbers, or two states.
        compare: Callable[[Value, Value], bool] = _COMPARE[match[0]]  # type: ignore[assignment]
        read, other = left.read, right.read

        def holds(state: Ledger) -> bool:
            first, second = read(state), other(state)
            return first is not None and second is not None and compare(first, second)

        return holds

    def _check_pair(self, left: _Side, right: _Side, sign: str, sign_at: int) -> None:
        if left.word is not None and right.word is not None:
            raise self._unknown(left.start, left.word)
        for side, other in ((left, right), (right, left)):
            if side.word is not None and side.word not in other.states:
                if not other.states:
                    raise self._unknown(side.start, side.word)
                raise self._error(f"a state is one of {', '.join(other.states)}", side.start)
            if side.states and not (other.states or other.word):
                raise self._error("a state is compared with a state, not a number", other.start)
        if (left.states or right.states) and sign not in ("==", "!="):
            raise self._error("states are compared with == and !=", sign_at)

    def _side(self) -> _Side:
        self._skip()
        start = self.at
        match = _NUMBER.match(self.text, start)
        if match is not None:
            self.at = match.end()
            if re.match(r"[\w.]", self.text[self.at : self.at + 1]):
                raise self._error("a whole number was expected", start)
            number = int(match[0].replace("_", ""))
            return _Side(start, lambda _: number)
        match = _WORD.match(self.text, start)
        if match is None or match[0] in _KEYWORDS:
            raise self._error("a metric or a number was expected")
        self.at = match.end()
        metric = METRICS.get(match[0])
        if metric is None:
            word = match[0]
            if self.text.startswith("(", self.at):
                raise self._unknown(start, word)
            return _Side(start, lambda _: word, word=word)
        return self._metric(metric, start)

    def _metric(self, metric: Metric, start: int) -> _Side:
        arguments = self._arguments(metric)
        given = [name for name in metric.one_of if name in arguments]
        if metric.one_of and len(given) != 1:
            raise self._error(f"wanted {metric.signature}, with one of them", start)
        if len([name for name in ("space", "group") if name in arguments]) > 1:
            raise self._error("space= and group= say the same: give one of them", start)
        try:
            bound = metric.bind(self.layout, arguments)
        except ConfigError as error:
            raise self._error(str(error), start) from error
        told = ", ".join(f"{name}={value}" for name, value in arguments.items())
        text = f"{metric.name}({told})" if told else metric.name
        term = self.terms.setdefault(text, Term(text, bound))
        return _Side(start, term.read, states=metric.states[given[0]] if metric.states else ())

    def _arguments(self, metric: Metric) -> dict[str, str]:
        arguments: dict[str, str] = {}
        if not self._sign("("):
            return arguments
        known = (*metric.one_of, *metric.optional)
        while not self._sign(")"):
            if arguments and not self._sign(","):
                raise self._error("`,` or `)` was expected")
            self._skip()
            match = _WORD.match(self.text, self.at)
            if match is None or match[0] not in known:
                names = ", ".join(f"{name}=" for name in known) or "no arguments"
                raise self._error(f"{metric.name} takes {names}")
            if match[0] in arguments:
                raise self._error(f"{match[0]}= stands twice")
            self.at = match.end()
            if not self._sign("="):
                raise self._error("`=` was expected")
            self._skip()
            value = _VALUE.match(self.text, self.at)
            if value is None:
                raise self._error("a value was expected")
            self.at = value.end()
            arguments[match[0]] = next(part for part in value.groups() if part is not None)
        return arguments

    def _skip(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = self.at if match is None else match.end()

    def _keyword(self, word: str) -> bool:
        self._skip()
        match = _WORD.match(self.text, self.at)
        if match is None or match[0] != word:
            return False
        self.at = match.end()
        return True

    def _sign(self, sign: str) -> bool:
        self._skip()
        if not self.text.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def _unknown(self, start: int, word: str) -> ConfigError:
        ids = [invariant.id for invariant in CATALOGUE]
        if word in ids:
            return self._error("an invariant's id stands alone", start)
        near = get_close_matches(word, [*METRICS, *ids], n=1)
        hint = f": did you mean {near[0]}?" if near else ""
        return self._error(f"no such metric: {word}{hint}", start)

    def _error(self, problem: str, start: int | None = None) -> ConfigError:
        at = self.at if start is None else start
        shown = "".join(sign if sign.isprintable() else "?" for sign in self.text)
        # A long condition is shown around the place.
        low = max(at - 60, 0)
        return ConfigError(
            f"the condition does not parse: {problem}\n"
            f"  {shown[low : at + 40]}\n"
            f"  {' ' * (at - low)}^\n"
            f"metrics: {', '.join(METRICS)}\n"
            "a condition may also be an invariant's id, or package.module:function"
        )
