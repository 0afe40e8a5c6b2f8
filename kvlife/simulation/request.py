"""A request as the scheduler follows it: where it is, and how far it has come."""

from __future__ import annotations

import enum

import attrs

from kvlife.simulation.token_source import Tokens


class Place(enum.Enum):
    """Where a request is: NEW, PARKED behind a turn of its session, WAITING, running, or GONE."""

    NEW = enum.auto()
    PARKED = enum.auto()
    WAITING = enum.auto()
    PREFILL = enum.auto()
    DECODE = enum.auto()
    GONE = enum.auto()


class Fate(enum.Enum):
    """When a request is aborted, if it is.

    WAITING before it is admitted or its turn begins, PREFILL once a chunk of its prompt is
    scheduled, DECODE and FLIGHT after some tokens (FLIGHT while a step with it is under way),
    RETRACTED while it waits to be resumed, or at its last token where it never is.
    """

    WAITING = enum.auto()
    PREFILL = enum.auto()
    DECODE = enum.auto()
    FLIGHT = enum.auto()
    RETRACTED = enum.auto()


@attrs.define(eq=False)
class Request:
    """One request; lengths in tokens.

    `stop_at` generated tokens end it, `target_len` tokens are to be prefilled (its prompt, and
    after a retraction what it had generated), `done_len` of them are scheduled. `tokens` holds
    those to be prefilled once they were needed. `turn_order` is its place in the queue, which it
    keeps when it is retracted. `session` names the session whose turn it is; `later_turn` says that
    it runs on the session's row, `closed` that the client closed the session in the meantime.
    """

    idx: int
    rid: str
    prompt_len: int
    stop_at: int
    fate: Fate | None = None
    session: str | None = None
    later_turn: bool = False
    closed: bool = False
    place: Place = Place.NEW
    turn_order: int = 0
    target_len: int = 0
    done_len: int = 0
    generated: int = 0
    retracted: bool = False
    tokens: Tokens | None = None
