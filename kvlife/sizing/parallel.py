"""How a model's caches are spread over devices, and which rank is asked about."""

from __future__ import annotations

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.vetting import vet_whole

COUNTS = ("tp", "pp", "attention_dp", "dcp")
MAX_RANKS = 4096


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

    def __attrs_post_init__(self) -> None:
        for name in COUNTS:
            vet_whole(name, getattr(self, name))
        if type(self.pp_rank) is not int or not 0 <= self.pp_rank < self.pp:
            raise ConfigError(f"pp_rank must be in [0, {self.pp}), got {self.pp_rank!r}")
        if self.tp % self.attention_dp:
            raise ConfigError(
                f"tp is {self.tp}, which attention_dp {self.attention_dp} does not divide:"
                f" attention_dp works with {_listed(divisors(self.tp))}"
            )
        if self.attention_tp % self.dcp:
            raise ConfigError(
                f"{self.attention_tp} ranks share the heads (tp / attention_dp), which dcp"
                f" {self.dcp} does not divide: dcp works with"
                f" {_listed(divisors(self.attention_tp))}"
            )
        if self.pp_layers is not None:
            self._check_stages(self.pp_layers)

    def _check_stages(self, stages: tuple[int, ...]) -> None:
        if len(stages) != self.pp:
            raise ConfigError(f"pp_layers names {len(stages)} stages, and pp is {self.pp}")
        for num_layers in stages:
            vet_whole("each of pp_layers", num_layers)

    @property
    def attention_tp(self) -> int:
        """The ranks that share one copy of the attention; a recurrent state is split over all."""
        return self.tp // self.attention_dp

    @property
    def head_shards(self) -> int:
        """The parts that KV heads are split into: the ranks that share them, dcp ranks as one."""
        return self.attention_tp // self.dcp

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank holds the last layers; a draft's layers lie there too."""
        return self.pp_rank == self.pp - 1

    def stage(self, num_layers: int) -> range:
        """The layers of this rank's pipeline stage."""
        sizes = self.pp_layers
        if sizes is None:
            if num_layers < self.pp:
                raise ConfigError(
                    f"pp is {self.pp}, and the model has {num_layers} layers:"
                    f" pp works up to {num_layers}"
                )
            even, rest = divmod(num_layers, self.pp)
            sizes = tuple(even + (rank < rest) for rank in range(self.pp))
        elif sum(sizes) != num_layers:
            raise ConfigError(
                f"pp_layers {list(sizes)} has {sum(sizes)} layers in all,"
                f" and the model has {num_layers}"
            )
        start = sum(sizes[: self.pp_rank])
        return range(start, start + sizes[self.pp_rank])


def heads_on_rank(what: str, num_heads: int, shards: int) -> int:
    """How many of `num_heads` a rank holds when they are split into `shards` parts.

    Where there are more parts than heads, each head is held by several ranks, one on each.
    """
    if num_heads % shards == 0:
        return num_heads // shards
    if shards % num_heads == 0:
        return 1
    raise ConfigError(
        f"{num_heads} {what} cannot be split evenly over {shards} tensor-parallel ranks"
        f" (tp / attention_dp, and / dcp for KV heads): it works with"
        f" {_listed(divisors(num_heads))}, and with multiples of {num_heads}"
    )


def divisors(number: int) -> tuple[int, ...]:
    """The numbers of ranks that divide `number`, from 1 up to `MAX_RANKS`."""
    return tuple(part for part in range(1, min(number, MAX_RANKS) + 1) if number % part == 0)


def _listed(numbers: tuple[int, ...]) -> str:
    shown = [str(number) for number in numbers[:12]]
    return ", ".join(shown) + (", ..." if len(numbers) > 12 else "")
