"""A speculative draft, as far as its caches go."""

from __future__ import annotations

import attrs

from kvlife.sizing.dtypes import KvDtype
from kvlife.sizing.geometry import ModelGeometry


@attrs.frozen(kw_only=True)
class Draft:
    """What drafts tokens, and with which layers.

    EAGLE and STANDALONE add `num_layers` layers at the target's cell size; DFLASH and DSPARK keep
    their own cells, those of `geometry` under `dtype` (None: the target's). Names are upper case;
    EAGLE3, NEXTN and MTP are EAGLE. `num_draft_tokens` is the most tokens one step verifies, and
    `topk` above 1 means a tree.
    """

    algorithm: str
    num_layers: int | None = None
    geometry: ModelGeometry | None = None
    dtype: KvDtype | None = None
    num_draft_tokens: int = 1
    topk: int = 1
