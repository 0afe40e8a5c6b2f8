"""How a model's caches are spread over devices, and which rank is asked about."""

from __future__ import annotations

import attrs

from kvlife.errors import ConfigError


@attrs.frozen(kw_only=True)
class Parallel:
    """The rank that is asked about, among `tp * pp` devices.

    `tp` tensor-parallel ranks hold `attention_dp` copies of the attention, so that
    `tp / attention_dp` ranks share its heads. Of these, `dcp` ranks at a time hold the same heads
    and each its part of the tokens (decode context parallelism). `pp` stages hold the layers one
    after another; `pp_layers` names how many each holds, else they are even, the first ones larger.
    """

    tp: int = 1
    pp: int = 1
    pp_rank: int = 0
    attention_dp: int = 1
    dcp: int = 1
    pp_layers: tuple[int, ...] | None = None

    @property
    def head_shards(self) -> int:
        """The parts that heads are split into."""
        return self.tp // self.attention_dp // self.dcp

    def stage(self, num_layers: int) -> range:
        """The layers of this rank's pipeline stage."""
        raise NotImplementedError
