"""The requests that decode, as arrays: a step touches none of them one by one."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from kvlife.engine import Batch, KvEngine
from kvlife.simulation.request import Request

I32 = npt.NDArray[np.int32]

_NO_LENS = np.empty(0, np.int32)
# A request that goes on past its last token until it is aborted: further away than any length.
FAR = 1 << 30


class DecodeSet:
    """Members in the order in which they joined, and per member what is left to generate.

    `left` counts tokens as of `passed` steps ago, so that a step of one token a row changes one
    number. `kv_len` is what is confirmed, `allocated_len` what is scheduled; they are kept up by
    `take`, which gives each row its own number of tokens, and not by `take_one`.
    """

    def __init__(self) -> None:
        self.members: list[Request] = []
        self.left = _NO_LENS
        self.kv_len = _NO_LENS
        self.allocated_len = _NO_LENS
        self.fresh = np.empty(0, np.bool_)
        self._passed = 0
        self._least = FAR
        self._batch: Batch | None = None

    def __len__(self) -> int:
        return len(self.members)

    def batch(self, engine: KvEngine) -> Batch:
        """The members as a batch, made anew when membership has changed."""
        if self._batch is None:
            self._batch = engine.batch([member.rid for member in self.members])
        return self._batch

    def join(self, joining: Sequence[Request]) -> None:
        """Requests whose whole target is scheduled; its result, a token, is still to come."""
        self._catch_up()
        target = np.array([member.target_len for member in joining], np.int32)
        left = [member.stop_at - member.generated for member in joining]
        self.members = [*self.members, *joining]
        self.left = np.concatenate((self.left, np.array(left, np.int32)))
        # The first result confirms the prompt and adds one token whose KV is still to be computed.
        self.kv_len = np.concatenate((self.kv_len, target - 1))
        self.allocated_len = np.concatenate((self.allocated_len, target))
        self.fresh = np.concatenate((self.fresh, np.ones(len(joining), np.bool_)))
        self._changed()

    def leave(self, leaving: Collection[Request]) -> None:
        """Take requests out, and note in each what it has generated."""
        self._catch_up()
        ids = {id(member) for member in leaving}
        keep = np.array([id(member) not in ids for member in self.members], np.bool_)
        for at in np.flatnonzero(~keep).tolist():
            member = self.members[at]
            member.generated = member.stop_at - int(self.left[at])
        self.members = [member for member in self.members if id(member) not in ids]
        self.left, self.kv_len = self.left[keep], self.kv_len[keep]
        self.allocated_len, self.fresh = self.allocated_len[keep], self.fresh[keep]
        self._changed()

    def take_one(self) -> list[Request]:
        """Each member has one token more; those that have all of theirs now."""
        self._passed += 1
        if self._passed < self._least:
            return []
        self._catch_up()
        return self._complete()

    def take(self, accepted: I32) -> list[Request]:
        """Each member has one token more, and as many of `accepted` drafts as it still wanted."""
        tokens = np.minimum(np.where(self.fresh, 0, accepted) + 1, self.left).astype(np.int32)
        self.fresh[:] = False
        self.left = self.left - tokens
        self.kv_len = self.kv_len + tokens
        return self._complete()

    def push_back(self, member: Request) -> None:
        """Let a member that has all its tokens go on, until it is aborted."""
        member.stop_at += FAR
        self.left[self.members.index(member)] = FAR
        self._changed(same_members=True)

    def _complete(self) -> list[Request]:
        done = np.flatnonzero(self.left <= 0).tolist()
        self._changed(same_members=True)
        return [self.members[at] for at in done]

    def _catch_up(self) -> None:
        if self._passed:
            self.left = self.left - np.int32(self._passed)
            self._passed = 0

    def _changed(self, *, same_members: bool = False) -> None:
        self._least = int(self.left.min()) if self.left.size else FAR
        if not same_members:
            self._batch = None
