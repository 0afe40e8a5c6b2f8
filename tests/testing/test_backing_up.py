"""The fuzz kit's verb `back_up`: engines are asked for it, and a lost host page is found."""

from collections import Counter
from typing import ClassVar

from kvlife.testing import find
from kvlife.testing.adapters import EngineAdapter


class Counting(EngineAdapter):
    """Counts how often requests were backed up, and how often something was restored."""

    _done: ClassVar = Counter()

    def back_up(self, rid):
        super().back_up(rid)
        self._done["backed up"] += self._engine.ledger.waiting[rid].backup is not None

    def admit(self, rid, tokens):
        before = self._engine.stats().restored_tokens
        hit_len = super().admit(rid, tokens)
        self._done["restored"] += self._engine.stats().restored_tokens > before
        return hit_len


class ForgetsTheHost(EngineAdapter):
    """An engine whose books lose a request that waits with a backup."""

    def back_up(self, rid):
        super().back_up(rid)
        ledger = self._engine.ledger
        if ledger.waiting[rid].backup is not None:
            del ledger.waiting[rid]


def test_the_engine_is_asked_to_back_up_and_to_restore():
    """Nothing is found, and much was kept and brought back."""
    assert find(Counting, max_examples=60) is None
    assert min(Counting._done["backed up"], Counting._done["restored"]) > 4


def test_a_lost_host_page_is_found(tmp_path):
    """The smallest program is one request of one token that is backed up."""
    found = find(ForgetsTheHost, max_examples=60, log_root=tmp_path)
    assert found.program == (
        "state = ForgetsTheHostMachine()\n"
        "state.begin(page_size=1, num_pages=2)\n"
        "state.admit(rid='r1', tokens=[0])\n"
        "state.back_up(rid='r1')\n"
    )
    assert "held by nobody" in str(found.error)
