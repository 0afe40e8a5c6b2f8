"""Cuts a failing program down until nothing can be taken from it.

Hypothesis could do this as well. Here a program is run without drawing anything, some ten times as
fast, and a step may replace a whole verb or request by a simpler one, so that one fault comes out
as one program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kvlife.testing.program import Argument, Call, Program

# Verbs that often come to the same; the first that fails as well is shown.
_SIMPLER = {
    "abort": ("free",),
    "preempt": ("free", "abort"),
    "back_up": ("preempt", "free", "abort"),
    "fork": ("publish", "admit"),
    "reset": ("evict",),
    "extend": ("publish", "evict"),
    "admit": ("evict",),
}
# What a program is easiest to read with, first.
_READABLE = ("publish", "free", "abort", "evict", "reset", "preempt", "extend", "back_up")
_RANK = {verb: rank for rank, verb in enumerate(_READABLE)}
_LAST_RANK = len(_RANK)
# Programs of so few calls are tried with two changes at once.
_FEW = 8


def minimize(program: Program, fails: Callable[[Program], bool]) -> Program:
    """The smallest program that steps of cutting lead to; `fails` runs one."""
    while True:
        best = _measure(program)
        for candidate in _cuts(program):
            if _measure(candidate) < best and fails(candidate):
                program = candidate
                break
        else:
            return program


def _measure(program: Program) -> tuple[object, ...]:
    """What is made smaller: calls, sizes, tokens, then verbs, names and their order."""
    begin, *calls = program
    tokens = [tokens for call in calls for tokens in [_tokens(call)]]
    return (
        len(calls),
        begin.args["page_size"],
        sum(map(len, tokens)),
        begin.args["num_pages"],
        sum(map(sum, tokens)) + sum(_number(call) for call in calls),
        [_RANK.get(call.verb, _LAST_RANK) for call in calls],
        [(len(name), name) for call in calls for name in _named(call)],
        [str(call) for call in calls],
    )


def _cuts(program: Program) -> Iterator[Program]:
    yield from _fewer_calls(program)
    yield from _smaller_pool(program)
    yield from _smaller_arguments(program)
    yield from _simpler_verbs(program)
    yield from _other_names(program)
    yield from _other_orders(program)


def _fewer_calls(program: Program) -> Iterator[Program]:
    begin, calls = program[:1], program[1:]
    width = len(calls) // 2
    while width:
        for start in range(len(calls) - width, -1, -1):
            yield begin + calls[:start] + calls[start + width :]
        width //= 2
    for name in sorted(_names(program)):
        yield tuple(call for call in program if name not in _named(call))
    if len(calls) <= _FEW:
        # One token more may do what a call did.
        for idx in range(1, len(program)):
            rest = (*program[:idx], *program[idx + 1 :])
            for at, call in enumerate(rest):
                if "tokens" in call.args:
                    yield _with(rest, at, call.but(tokens=[*_tokens(call), 0]))


def _smaller_pool(program: Program) -> Iterator[Program]:
    begin, calls = program[0], program[1:]
    page_size, num_pages = int(str(begin.args["page_size"])), int(str(begin.args["num_pages"]))
    for smaller in range(1, page_size):
        shorter = tuple(_scaled(call, smaller, page_size) for call in calls)
        yield (begin.but(page_size=smaller), *shorter)
        yield (begin.but(page_size=smaller), *calls)
        # A prompt that was shorter than a page may have to be another instead.
        for idx, call in enumerate(shorter):
            if "tokens" in call.args:
                other = call.but(tokens=[1, *_tokens(call)[1:]])
                yield (begin.but(page_size=smaller), *shorter[:idx], other, *shorter[idx + 1 :])
    for fewer in range(2, num_pages):
        smaller_begin = begin.but(num_pages=fewer)
        yield (smaller_begin, *calls)
        # Prompts that fit it, of which one may differ from the others.
        fitting = [call.but(tokens=_tokens(call)[: (fewer - 1) * page_size]) for call in calls]
        yield (smaller_begin, *fitting)
        for idx, call in enumerate(calls):
            if "tokens" in call.args:
                yield (smaller_begin, *fitting[:idx], call.but(tokens=[1]), *fitting[idx + 1 :])
                if len(_tokens(call)) > 1:
                    shorter_one = call.but(tokens=_tokens(call)[:-1])
                    yield (smaller_begin, *calls[:idx], shorter_one, *calls[idx + 1 :])


def _scaled(call: Call, new_size: int, old_size: int) -> Call:
    """Tokens for as many pages as before; a page begun stays a page begun."""
    tokens = _tokens(call)
    return call.but(tokens=tokens[: -(-len(tokens) * new_size // old_size)])


def _smaller_arguments(program: Program) -> Iterator[Program]:
    for idx, call in enumerate(program):
        tokens = _tokens(call)
        shorter = [tokens[:start] + tokens[start + 1 :] for start in range(len(tokens))]
        lower = [[*tokens[:at], 0, *tokens[at + 1 :]] for at, token in enumerate(tokens) if token]
        for other in [*([tokens[:1]] if tokens else []), *filter(None, shorter), *lower]:
            yield _with(program, idx, call.but(tokens=other))
        for name in ("num_tokens", "num_pages"):
            if idx and name in call.args:
                yield from (
                    _with(program, idx, call.but(**{name: less}))
                    for less in range(1, _number(call))
                )


def _simpler_verbs(program: Program) -> Iterator[Program]:
    for idx, call in enumerate(program):
        for verb in _SIMPLER.get(call.verb, ()):
            args: dict[str, Argument] = {}
            if "rid" in call.args:
                args["rid"] = call.args["child" if verb == "admit" else "rid"]
            if verb == "admit":
                args["tokens"] = [0]
            if verb == "evict":
                args = {"num_pages": 1}
            yield _with(program, idx, Call(verb, args))
            if call.verb == "fork" and verb == "publish":
                # Then there is no child that could do anything.
                child = str(call.args["child"])
                later = tuple(other for other in program[idx + 1 :] if child not in _named(other))
                yield (*program[:idx], Call(verb, args), *later)
            if call.verb in ("preempt", "back_up") and verb != "preempt":
                # Who comes back from a preemption is somebody else after an end.
                back = {str(call.args["rid"]): f"r{len(_names(program)) + 1}"}
                later = tuple(_renamed(other, back) for other in program[idx + 1 :])
                yield (*program[:idx], Call(verb, args), *later)


def _other_names(program: Program) -> Iterator[Program]:
    """One request in place of another, everywhere or in one call; names and tokens anew."""
    names = sorted(_names(program))
    for old in names:
        for new in names:
            if old != new and old[0] == new[0]:
                yield tuple(_renamed(call, {old: new}) for call in program)
                yield tuple(_renamed(call, {old: new, new: old}) for call in program)
                for idx, call in enumerate(program):
                    yield _with(program, idx, _renamed(call, {old: new}))
    counted: dict[str, str] = {}
    for call in program:
        for name in _named(call):
            kind = name[0]
            known = sum(other.startswith(kind) for other in counted)
            counted.setdefault(name, f"{kind}{known + 1}")
    yield tuple(_renamed(call, counted) for call in program)
    seen = list(dict.fromkeys(token for call in program for token in _tokens(call)))
    yield tuple(call.but(tokens=[seen.index(token) for token in _tokens(call)]) for call in program)


def _other_orders(program: Program) -> Iterator[Program]:
    for idx in range(1, len(program) - 1):
        yield (*program[:idx], program[idx + 1], program[idx], *program[idx + 2 :])


def _with(program: Program, idx: int, call: Call) -> Program:
    return (*program[:idx], call, *program[idx + 1 :])


def _tokens(call: Call) -> list[int]:
    tokens = call.args.get("tokens", [])
    return tokens if isinstance(tokens, list) else []


def _number(call: Call) -> int:
    numbers = (call.args.get(name, 0) for name in ("num_tokens", "num_pages"))
    return sum(number for number in numbers if isinstance(number, int))


def _named(call: Call) -> list[str]:
    names = (call.args.get(name) for name in ("rid", "child", "pin_id"))
    return [name for name in names if isinstance(name, str)]


def _names(program: Program) -> set[str]:
    return {name for call in program for name in _named(call)}


def _renamed(call: Call, names: dict[str, str]) -> Call:
    changed: dict[str, Argument] = {
        key: names.get(value, value)
        for key, value in call.args.items()
        if key in ("rid", "child", "pin_id") and isinstance(value, str)
    }
    return call.but(**changed)
