"""Bytes: what one token or one request takes of each cache group, on one rank."""

from __future__ import annotations

from fractions import Fraction

import attrs

from kvlife.sizing.derivation import Derivation
from kvlife.sizing.drafts import Draft
from kvlife.sizing.dtypes import KvDtype
from kvlife.sizing.geometry import ModelGeometry
from kvlife.sizing.parallel import Parallel


@attrs.frozen(kw_only=True)
class CellPart:
    """One tensor's part of one entry (or slot) in one layer: `shape` of `dtype` (torch's name)."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    num_bytes: int


@attrs.frozen(kw_only=True)
class Cell:
    """What `num_layers` layers of one kind keep for one entry (or slot), each the same."""

    kind: str
    num_layers: int
    parts: tuple[CellPart, ...]

    @property
    def layer_bytes(self) -> int:
        """Bytes of one entry in one layer."""
        return sum(part.num_bytes for part in self.parts)


@attrs.frozen(kw_only=True)
class GroupBytes:
    """The bytes of one cache group on one rank.

    `kind` is "full", "window", "compressed" or "state". A state group has slots; the others have
    entries, one for every `tokens_per_entry` tokens of a sequence (compression times decode
    context parallelism; 1 without). `window` is in tokens, the query included.
    """

    name: str
    kind: str
    window: int | None
    tokens_per_entry: int
    cells: tuple[Cell, ...]

    @property
    def num_layers(self) -> int:
        """Layers of this rank in the group, the draft's included."""
        return sum(cell.num_layers for cell in self.cells)

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry (or slot) over all layers."""
        return sum(cell.num_layers * cell.layer_bytes for cell in self.cells)

    @property
    def bytes_per_token(self) -> int | Fraction:
        """Bytes a token; a fraction where several tokens share an entry; 0 for a state group."""
        raise NotImplementedError

    @property
    def bytes_per_slot(self) -> int:
        """Bytes a state slot; 0 for the others."""
        return self.entry_bytes if self.kind == "state" else 0

    @property
    def derivation(self) -> Derivation:
        """Bytes a token (or a slot), with formula and inputs."""
        raise NotImplementedError


def group_bytes(
    geometry: ModelGeometry,
    dtype: KvDtype,
    parallel: Parallel,
    draft: Draft | None = None,
    *,
    host_to_device_ratio: int = 1,
) -> tuple[GroupBytes, ...]:
    """The bytes of each cache group on the rank of `parallel`, the draft's layers included.

    Order: full, compressed by ratio, windows from the widest, state. `host_to_device_ratio`
    (HiSparse) is how many tokens the host holds for each one on the device: their index keys
    stay on the device, so each device token pays for that many.
    Raises `ConfigError` where heads do not divide, or a layer cannot be kept in this dtype.
    """
    raise NotImplementedError
