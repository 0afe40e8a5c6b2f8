"""A speculative draft, as far as its caches go."""

from __future__ import annotations

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.dtypes import KvDtype
from kvlife.sizing.geometry import ModelGeometry
from kvlife.sizing.layers import MAX_LAYERS

OTHER_NAMES = {"EAGLE3": "EAGLE", "NEXTN": "EAGLE", "MTP": "EAGLE"}
AT_TARGET_SIZE = ("EAGLE", "STANDALONE")
AT_OWN_SIZE = ("DFLASH", "DSPARK")
KNOWN = (*AT_TARGET_SIZE, *AT_OWN_SIZE)


def _named(algorithm: str) -> str:
    name = algorithm.upper()
    return OTHER_NAMES.get(name, name)


@attrs.frozen(kw_only=True)
class Draft:
    """What drafts tokens, and with which layers; they lie beside the model's last ones.

    EAGLE (also EAGLE3, NEXTN, MTP) and STANDALONE add `num_layers` layers at the target's cell
    size; DFLASH and DSPARK keep their own cells, those of `geometry`. `dtype` is that of the
    draft's KV (None: the target's). `num_draft_tokens` is the most tokens that one step verifies,
    and a `topk` above 1 means a tree.
    """

    algorithm: str = attrs.field(converter=_named)
    num_layers: int | None = None
    geometry: ModelGeometry | None = None
    dtype: KvDtype | None = None
    num_draft_tokens: int = 1
    topk: int = 1

    def __attrs_post_init__(self) -> None:
        if self.algorithm not in KNOWN:
            raise ConfigError(
                f"unknown draft {self.algorithm!r}: one of {', '.join((*KNOWN, *OTHER_NAMES))}"
            )
        for name in ("num_layers", "num_draft_tokens", "topk"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= MAX_LAYERS):
                raise ConfigError(f"{name} of a draft must be in [1, {MAX_LAYERS}], got {value!r}")
        if self.is_own_size and self.geometry is None:
            raise ConfigError(
                f"the draft {self.algorithm} keeps cells of its own size: give its geometry"
            )
        if not self.is_own_size and (self.num_layers is None or self.geometry is not None):
            raise ConfigError(
                f"the draft {self.algorithm} keeps layers of the target's size: give num_layers,"
                " and no geometry"
            )

    @property
    def is_own_size(self) -> bool:
        """Whether the draft's cells have a size of their own."""
        return self.algorithm in AT_OWN_SIZE
