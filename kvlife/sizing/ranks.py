"""The ranks of a pipeline planned in one place: each by itself, then all to the least of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from kvlife.sizing.configurator import KVCacheConfigurator
from kvlife.sizing.result import KVCacheConfigResult


def plan_pipeline(
    configurator: KVCacheConfigurator, pre_model_load_memory: int
) -> tuple[KVCacheConfigResult, ...]:
    """The plan of each pipeline rank; all have the same tokens and slots. Raises as `configure`.

    Every rank is taken to have the memory that the configurator names, and its `agree` is not
    asked: the ranks are all here.
    """
    ranks = list(_each_rank(configurator))
    for rank in ranks:
        rank.configure(pre_model_load_memory)  # refuses what this rank by itself cannot plan
    agreed: list[int] = []
    while True:
        round_ = [_Round(agreed) for _ in ranks]
        plans = [
            attrs.evolve(rank, agree=asking.agree).configure(pre_model_load_memory)
            for rank, asking in zip(ranks, round_, strict=True)
        ]
        asked = [asking.asked for asking in round_ if asking.asked is not None]
        if not asked:
            return tuple(plans)
        agreed.append(min(asked))


def _each_rank(configurator: KVCacheConfigurator) -> Iterator[KVCacheConfigurator]:
    parallel = configurator.parallel
    for pp_rank in range(parallel.pp):
        yield attrs.evolve(
            configurator, parallel=attrs.evolve(parallel, pp_rank=pp_rank), agree=_own
        )


def _own(own: int) -> int:
    return own


class _Round:
    """What one rank asks in one round: `asked` is its number for what is not agreed on yet."""

    def __init__(self, agreed: Sequence[int]) -> None:
        self.agreed = iter(tuple(agreed))
        self.asked: int | None = None

    def agree(self, own: int) -> int:
        """What was agreed on in earlier rounds; what is asked first after them is noted."""
        known = next(self.agreed, None)
        if known is not None:
            return known
        if self.asked is None:
            self.asked = own
        return own
