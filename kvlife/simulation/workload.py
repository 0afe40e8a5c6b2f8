"""A workload: who asks for what and when, as arrays; tokens are made when they are asked for."""

from collections.abc import Sequence
from typing import Self

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.errors import WorkloadError
from kvlife.simulation.token_source import GivenTokens, Tokens, TokenSource

Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]

_NO_TURN = -1
_MAX_LEN = (1 << 31) - 1


@attrs.frozen(kw_only=True, eq=False)
class Turns:
    """Which requests are turns of one conversation, int32 arrays over the requests.

    The prompt of a turn is the prompt and the answer of the turn before it, and new tokens.
    """

    conversation_idx: Int32Array
    turn_idx: Int32Array
    _previous: Int32Array = attrs.field(init=False)
    _following: Int32Array = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        previous, following = _neighbours(self.conversation_idx, self.turn_idx)
        object.__setattr__(self, "_previous", previous)
        object.__setattr__(self, "_following", following)

    def __len__(self) -> int:
        return len(self.conversation_idx)

    def previous(self, idx: int) -> int | None:
        """The request that is the turn before request `idx`, or None for a first turn."""
        found = int(self._previous[idx])
        return None if found == _NO_TURN else found

    def following(self, idx: int) -> int | None:
        """The request that is the turn after request `idx`, or None where none is in sight."""
        found = int(self._following[idx])
        return None if found == _NO_TURN else found

    def first(self, num_requests: int) -> "Turns":
        """The same over the first `num_requests` requests; a later turn is then out of sight."""
        return Turns(
            conversation_idx=self.conversation_idx[:num_requests],
            turn_idx=self.turn_idx[:num_requests],
        )


@attrs.frozen(kw_only=True, eq=False)
class Workload:
    """Requests in the order of their arrival.

    `arrival_ns` (int64, never falling), `prompt_len` and `output_len` (int32, in tokens, at least
    1) have one entry a request and are read-only here. `source` makes the tokens, `turns` says
    which requests belong to one conversation, where that is known. Raises `WorkloadError` where
    the arrays do not fit together.
    """

    arrival_ns: Int64Array
    prompt_len: Int32Array
    output_len: Int32Array
    source: TokenSource
    turns: Turns | None = None

    def __attrs_post_init__(self) -> None:
        _check_columns(self)
        for name in ("arrival_ns", "prompt_len", "output_len"):
            column = getattr(self, name).view()
            column.flags.writeable = False
            object.__setattr__(self, name, column)

    @classmethod
    def of_tokens(
        cls, arrival_ns: Sequence[int], prompts: Sequence[Tokens], outputs: Sequence[Tokens]
    ) -> Self:
        """A workload of token ids at hand: one int32 array a prompt, and one an answer."""
        return cls(
            arrival_ns=np.array(arrival_ns, np.int64),
            prompt_len=np.array([len(tokens) for tokens in prompts], np.int32),
            output_len=np.array([len(tokens) for tokens in outputs], np.int32),
            source=GivenTokens(prompts=tuple(prompts), outputs=tuple(outputs)),
        )

    def __len__(self) -> int:
        return len(self.arrival_ns)

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of all prompts together."""
        return int(self.prompt_len.sum(dtype=np.int64))

    @property
    def num_output_tokens(self) -> int:
        """Tokens of all answers together."""
        return int(self.output_len.sum(dtype=np.int64))

    def prompt(self, idx: int) -> Tokens:
        """The prompt of request `idx`, int32[prompt_len], made anew at each call."""
        return self.source.prompt(idx)

    def output(self, idx: int) -> Tokens:
        """The answer of request `idx`, int32[output_len], made anew at each call."""
        return self.source.output(idx)

    def tokens(self, idx: int) -> Tokens:
        """Prompt and answer of request `idx` in one array."""
        return np.concatenate((self.source.prompt(idx), self.source.output(idx)))

    def first(self, num_requests: int) -> Self:
        """The first `num_requests` requests (all, where there are fewer); at least 1."""
        if num_requests < 1:
            raise WorkloadError(
                f"asked for the first {num_requests} requests of {len(self)}; ask for at least 1"
            )
        return attrs.evolve(
            self,
            arrival_ns=self.arrival_ns[:num_requests],
            prompt_len=self.prompt_len[:num_requests],
            output_len=self.output_len[:num_requests],
            turns=None if self.turns is None else self.turns.first(num_requests),
        )


def _neighbours(
    conversation_idx: Int32Array, turn_idx: Int32Array
) -> tuple[Int32Array, Int32Array]:
    order = np.lexsort((turn_idx, conversation_idx)).astype(np.int32)
    earlier, later = order[:-1], order[1:]
    adjacent = (conversation_idx[earlier] == conversation_idx[later]) & (
        turn_idx[earlier] + 1 == turn_idx[later]
    )
    previous = np.full(len(order), _NO_TURN, np.int32)
    following = previous.copy()
    previous[later[adjacent]] = earlier[adjacent]
    following[earlier[adjacent]] = later[adjacent]
    return previous, following


def _check_columns(workload: Workload) -> None:
    columns: tuple[tuple[str, Int32Array | Int64Array, type[np.signedinteger]], ...] = (
        ("arrival_ns", workload.arrival_ns, np.int64),
        ("prompt_len", workload.prompt_len, np.int32),
        ("output_len", workload.output_len, np.int32),
    )
    num_requests = len(workload.arrival_ns)
    if num_requests == 0:
        raise WorkloadError("the workload holds no request; give it at least one")
    for name, column, dtype in columns:
        if column.dtype != dtype or column.shape != (num_requests,):
            raise WorkloadError(
                f"{name} is {column.dtype} of shape {column.shape}; "
                f"it must be {np.dtype(dtype)} of shape ({num_requests},)"
            )
    if workload.turns is not None and len(workload.turns) != num_requests:
        raise WorkloadError(
            f"turns cover {len(workload.turns)} requests of {num_requests}; they must cover all"
        )
    _check_values(workload)


def _check_values(workload: Workload) -> None:
    arrival_ns = workload.arrival_ns
    falls = np.flatnonzero(arrival_ns[1:] < arrival_ns[:-1])
    if int(arrival_ns[0]) < 0 or falls.size:
        at = 0 if int(arrival_ns[0]) < 0 else int(falls[0]) + 1
        raise WorkloadError(
            f"request {at} arrives at {int(arrival_ns[at])} ns, before 0 or before the request in "
            f"front of it; sort the requests by arrival, from 0 on"
        )
    for name, lens in (("prompt", workload.prompt_len), ("answer", workload.output_len)):
        if int(lens.min()) < 1:
            at = int(lens.argmin())
            raise WorkloadError(
                f"the {name} of request {at} has {int(lens[at])} tokens; it needs at least 1"
            )
    whole = workload.prompt_len.astype(np.int64) + workload.output_len
    if int(whole.max()) > _MAX_LEN:
        at = int(whole.argmax())
        raise WorkloadError(
            f"prompt and answer of request {at} have {int(whole[at])} tokens together; "
            f"at most {_MAX_LEN} can be counted"
        )
