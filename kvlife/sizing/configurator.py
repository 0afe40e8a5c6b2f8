"""The configurator: a model's geometry and a device's memory in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import attrs
from attrs.validators import optional

from kvlife.errors import BudgetTooSmall, ConfigError
from kvlife.sizing.available import available_bytes, ways_to
from kvlife.sizing.basis import Basis, make_basis
from kvlife.sizing.drafts import Draft
from kvlife.sizing.dtypes import KvDtype
from kvlife.sizing.figures import Figure
from kvlife.sizing.geometry import ModelGeometry
from kvlife.sizing.parallel import Parallel
from kvlife.sizing.planning import UNIFIED_ALIGN, build_result
from kvlife.sizing.result import KVCacheConfigResult
from kvlife.sizing.search import least
from kvlife.sizing.solving import Agree, solve
from kvlife.sizing.states import StateSizing
from kvlife.sizing.units import size_text
from kvlife.sizing.vetting import MOST, vet_fraction, vet_whole
from kvlife.sizing.windows import ByRatio, WindowSizing


def alone(own: int) -> int:
    """What the ranks agree on where there is one."""
    return own


def _whole(_: object, field: attrs.Attribute[int], value: object) -> None:
    vet_whole(field.name, value, 0 if field.name == "free_bytes" else 1)


@attrs.frozen(kw_only=True)
class KVCacheConfigurator:
    """What a plan is made from: pure values, so that the same ones give the same plan.

    `free_bytes` is what the device has free with the weights loaded; `reservations` are bytes, by
    what they are for, that no pool may take. `max_running_requests` and the state slots count those
    of all attention-data-parallel ranks. `draft_steps` is how deep a draft goes in one step.
    `prefill_only` plans no KV pool at all. `agree` takes this rank's number and gives the least of
    all ranks': it is called in the same order on each, once for state slots (where the model keeps
    states) and once for tokens, before either is refused.
    """

    geometry: ModelGeometry
    dtype: KvDtype
    free_bytes: int = attrs.field(validator=_whole)
    mem_fraction: Fraction = attrs.field(default=Fraction(88, 100), converter=vet_fraction)
    reservations: Mapping[str, int] = attrs.field(factory=dict)
    parallel: Parallel = attrs.field(factory=Parallel)
    draft: Draft | None = None
    draft_steps: int = attrs.field(default=1, validator=_whole)
    page_size: int = attrs.field(default=16, validator=_whole)
    context_len: int | None = attrs.field(default=None, validator=optional(_whole))
    max_total_tokens: int | None = attrs.field(default=None, validator=optional(_whole))
    max_running_requests: int | None = attrs.field(default=None, validator=optional(_whole))
    prefix_cache: bool = True
    overlap: bool = True
    window_sizing: WindowSizing = attrs.field(factory=ByRatio)
    state_sizing: StateSizing = attrs.field(factory=StateSizing)
    unified: bool = False
    prefill_only: bool = False
    host_to_device_ratio: int = attrs.field(default=1, validator=_whole)
    agree: Agree = attrs.field(default=alone, eq=False)

    def configure(self, pre_model_load_memory: int) -> KVCacheConfigResult:
        """The plan; `pre_model_load_memory` is what was free before the weights, in bytes.

        Raises `ConfigError` for what no memory could serve, and `BudgetTooSmall`, with the least
        memory that would do, where it is the memory.
        """
        available = available_bytes(
            self.free_bytes, pre_model_load_memory, self.mem_fraction, self.reservations
        )
        return self.plan(make_basis(self), available)

    def plan(self, basis: Basis, available: Figure) -> KVCacheConfigResult:
        """The plan of a basis that follows from these options; raises as `configure`."""
        assert isinstance(available.value, int)
        try:
            sizes = solve(basis.demand, available.value, self.agree, unit_bytes=self._unit_bytes)
        except BudgetTooSmall as error:
            raise self._with_least(basis, error, available) from error
        return build_result(basis, sizes, available)

    @property
    def _unit_bytes(self) -> int:
        return UNIFIED_ALIGN if self.unified else 1

    def _with_least(self, basis: Basis, error: BudgetTooSmall, available: Figure) -> ConfigError:
        """The refusal, with what would do: less cannot, as more memory never plans less."""

        def suffices(num_bytes: int) -> bool:
            try:
                solve(basis.demand, num_bytes, alone, unit_bytes=self._unit_bytes)
            except BudgetTooSmall:
                return False
            return True

        needed = least(suffices, MOST)
        if needed is None:
            return ConfigError(
                f"{error}. No memory would do: take other ratios, or ask for smaller sizes"
            )
        if isinstance(available.value, int) and needed <= available.value:
            return BudgetTooSmall(f"{error}. This rank has room, and another has not", needed)
        least_text = f"The least that would do is {needed:,} bytes available ({size_text(needed)})"
        ways = ", or ".join(ways_to(needed, available, self.mem_fraction))
        return BudgetTooSmall(f"{error}. {least_text}{': ' if ways else ''}{ways}", needed)
