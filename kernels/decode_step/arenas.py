"""What a decode step works on, the same in each."""

from __future__ import annotations

import attrs
from torch import Tensor

from kvlife.kernels.violations import Violations


@attrs.frozen(kw_only=True, eq=False)
class Arenas:
    """The tensors that `decode_step` takes, but for those of one step."""

    tables: Tensor
    groups: Tensor
    state: Tensor
    refs: Tensor
    allocated: Tensor
    violations: Violations
