"""Bytes: what one token or one request takes of each cache group, on one rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction

import attrs

from kvlife.errors import ConfigError
from kvlife.sizing.drafts import Draft
from kvlife.sizing.dtypes import KvDtype
from kvlife.sizing.figures import Figure, Value, identifier
from kvlife.sizing.geometry import ModelGeometry
from kvlife.sizing.layers import (
    Compressed,
    CompressorState,
    LatentIndexed,
    Layer,
    LayerCache,
    RecurrentState,
    SharedWindow,
    SlidingWindow,
)
from kvlife.sizing.parallel import Parallel
from kvlife.sizing.parts import CellPart, Terms, parts_of
from kvlife.sizing.vetting import vet_whole

__all__ = ["Cell", "CellPart", "GroupBytes", "group_bytes"]


@attrs.frozen(kw_only=True)
class Cell:
    """What `num_layers` layers of one kind, each the same, keep for one entry (or slot).

    `kind` is its name in the group: that of the class of cache, numbered from the second on.
    """

    kind: str
    num_layers: int
    parts: tuple[CellPart, ...]
    inputs: tuple[tuple[str, Value], ...] = ()

    @property
    def layer_bytes(self) -> int:
        """Bytes of one entry in one layer."""
        return sum(part.num_bytes for part in self.parts)

    @property
    def num_bytes(self) -> int:
        """Bytes of one entry in all these layers."""
        return self.num_layers * self.layer_bytes

    @property
    def formula(self) -> str:
        """The arithmetic of `num_bytes`: `32 layers x (k 8 x 128 x 2 + v 8 x 128 x 2)`."""
        return f"{self.num_layers} layers x ({' + '.join(part.formula for part in self.parts)})"


@attrs.frozen(kw_only=True)
class GroupBytes:
    """The bytes of one cache group on one rank.

    `kind` is "full", "window", "compressed" or "state". A state group has slots; the others have
    entries, one for every `tokens_per_entry` tokens of a sequence: the compression ratio times the
    ranks of decode context parallelism; 1 without. Pages hold whole entries. `window` is in tokens,
    the query included. `is_published` says of a state group whether prefixes keep slots too: a
    recurrence's state does, a compressor's does not.
    """

    name: str
    kind: str
    window: int | None = None
    tokens_per_entry: int = 1
    cells: tuple[Cell, ...] = ()
    is_published: bool = True

    @property
    def num_layers(self) -> int:
        """Layers of this rank in the group, the draft's included."""
        return sum(cell.num_layers for cell in self.cells)

    @property
    def entry_bytes(self) -> int:
        """Bytes of one entry (or slot) over all layers."""
        return sum(cell.num_bytes for cell in self.cells)

    @property
    def bytes_per_token(self) -> int | Fraction:
        """Bytes a token; a fraction where several tokens share an entry; 0 for a state group."""
        if self.kind == "state":
            return 0
        exact = Fraction(self.entry_bytes, self.tokens_per_entry)
        return int(exact) if exact.denominator == 1 else exact

    @property
    def bytes_per_slot(self) -> int:
        """Bytes a state slot; 0 for the others."""
        return self.entry_bytes if self.kind == "state" else 0

    @property
    def figure_name(self) -> str:
        """The name of the figure of its bytes."""
        what = "bytes_per_slot" if self.kind == "state" else "bytes_per_token"
        return identifier(f"{what}_{self.name}")

    @property
    def derivation(self) -> Figure:
        """Bytes a token (or a slot), with the formula and its inputs by name."""
        formula = " + ".join(cell.formula for cell in self.cells) or "no layer on this rank"
        inputs = {"layers": self.num_layers}
        if self.tokens_per_entry > 1:
            formula = f"({formula}) / {self.tokens_per_entry} tokens an entry"
            inputs["tokens an entry"] = self.tokens_per_entry
        is_state = self.kind == "state"
        return Figure(
            name=self.figure_name,
            value=self.bytes_per_slot if is_state else self.bytes_per_token,
            unit="bytes a slot" if is_state else "bytes a token",
            formula=formula,
            numbers=formula,
            inputs={
                **inputs,
                **{
                    f"{cell.kind}: {name}": item
                    for cell in self.cells
                    for name, item in cell.inputs
                },
            },
        )


@attrs.frozen(kw_only=True)
class _GroupKey:
    """What the caches of one group have in common: their lifetime rule, and its number."""

    kind: str
    number: int = 1

    @property
    def place(self) -> tuple[int, int]:
        """Full first, then by compression, then windows from the widest, then states."""
        widest_first = -self.number if self.kind == "window" else self.number
        return KINDS.index(self.kind), widest_first


KINDS = ("full", "compressed", "window", "state", "compressor")
NAMES = {"window": "swa"}


def _key(cache: LayerCache) -> _GroupKey:
    match cache:
        case SlidingWindow() | SharedWindow():
            return _GroupKey(kind="window", number=cache.window)
        case Compressed():
            return _GroupKey(kind="compressed", number=cache.ratio)
        case RecurrentState():
            return _GroupKey(kind="state")
        case CompressorState():
            return _GroupKey(kind="compressor")
        case _:
            return _GroupKey(kind="full")


def group_bytes(
    geometry: ModelGeometry,
    dtype: KvDtype,
    parallel: Parallel,
    draft: Draft | None = None,
    *,
    host_to_device_ratio: int = 1,
) -> tuple[GroupBytes, ...]:
    """The bytes of each cache group on the rank of `parallel`, the draft's layers included.

    Every rank has every group of the model, in the same order: full, compressed by ratio, windows
    from the widest, recurrent state, compressors' state; a group without layers on this rank takes
    0 bytes. With a `host_to_device_ratio` (HiSparse) of r a token is one of the device: the logical
    space is r times as large and has its values on the host; what chooses among them, and what is
    not fetched by choice, stays on the device for the whole of it.
    Raises `ConfigError` where heads do not divide, or a cache cannot be kept in this dtype.
    """
    draft_layers = draft.geometry.layers if draft is not None and draft.geometry is not None else ()
    caches = [cache for layer in (*geometry.layers, *draft_layers) for cache in layer]
    keys = sorted({_key(cache) for cache in caches}, key=lambda key: key.place)
    _check_host_ratio(geometry, host_to_device_ratio)
    stage = parallel.stage(geometry.num_layers)
    terms = Terms(
        dtype=dtype,
        model_dtype=geometry.model_dtype,
        parallel=parallel,
        num_index_keys=host_to_device_ratio,
    )
    cells: dict[_GroupKey, list[Cell]] = {key: [] for key in keys}
    for key, cell in _cells("", geometry.layers[stage.start : stage.stop], terms):
        cells[key].append(cell)
    if draft is not None and parallel.is_last_stage:
        for key, cell in _draft_cells(draft, geometry, terms):
            cells[key].append(cell)
    return tuple(_group(key, keys, tuple(cells[key]), terms) for key in keys)


def _group(
    key: _GroupKey, keys: list[_GroupKey], cells: tuple[Cell, ...], terms: Terms
) -> GroupBytes:
    is_alone = sum(other.kind == key.kind for other in keys) == 1
    name = NAMES.get(key.kind, key.kind)
    return GroupBytes(
        name=name if is_alone else f"{name}-{key.number}",
        kind="state" if key.kind == "compressor" else key.kind,
        window=key.number if key.kind == "window" else None,
        tokens_per_entry=_tokens_per_entry(key, terms),
        cells=_numbered(cells),
        is_published=key.kind != "compressor",
    )


def _numbered(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    seen: Counter[str] = Counter()
    numbered: list[Cell] = []
    for cell in cells:
        seen[cell.kind] += 1
        number = seen[cell.kind]
        numbered.append(cell if number == 1 else attrs.evolve(cell, kind=f"{cell.kind} {number}"))
    return tuple(numbered)


def _tokens_per_entry(key: _GroupKey, terms: Terms) -> int:
    if key.kind in {"state", "compressor"}:
        return 1
    ratio = key.number if key.kind == "compressed" else 1
    return ratio * terms.parallel.dcp


def _cells(prefix: str, layers: Iterable[Layer], terms: Terms) -> Iterator[tuple[_GroupKey, Cell]]:
    """One cell for the layers that keep the same, with the group that it belongs to."""
    for cache, num_layers in Counter(cache for layer in layers for cache in layer).items():
        parts, inputs = parts_of(cache, _without_choice(cache, terms))
        kind = prefix + _spelled(type(cache).__name__)
        cell = Cell(kind=kind, num_layers=num_layers, parts=parts, inputs=tuple(inputs.items()))
        yield _key(cache), cell


def _without_choice(cache: LayerCache, terms: Terms) -> Terms:
    """The terms of an entry that is not fetched by choice: the device has those of the host too."""
    if isinstance(cache, Compressed) and not _is_chosen(cache):
        return attrs.evolve(terms, copies=terms.copies * terms.num_index_keys)
    return terms


def _is_chosen(cache: LayerCache) -> bool:
    """Whether index keys on the device say which entries are to be fetched from the host."""
    match cache:
        case LatentIndexed():
            return True
        case Compressed():
            return cache.index_head_dim is not None
        case _:
            return False


def _spelled(name: str) -> str:
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).strip()


def _draft_cells(
    draft: Draft, target: ModelGeometry, terms: Terms
) -> Iterator[tuple[_GroupKey, Cell]]:
    terms = attrs.evolve(terms, dtype=draft.dtype or terms.dtype)
    if draft.geometry is None:
        assert draft.num_layers is not None
        layers: tuple[Layer, ...] = ((_sized_like(target),),) * draft.num_layers
        return _cells(f"{draft.algorithm} draft, ", layers, terms)
    # A draft of its own size is not split: it keeps each token that a target's entry is for.
    terms = attrs.evolve(
        terms,
        model_dtype=draft.geometry.model_dtype,
        num_index_keys=1,
        copies=terms.parallel.dcp * terms.num_index_keys,
    )
    return _cells(f"{draft.algorithm} draft, ", draft.geometry.layers, terms)


def _sized_like(target: ModelGeometry) -> LayerCache:
    """The cache of the target's last layer of its first kind that has entries for tokens."""
    for kind in ("full", "window", "compressed"):
        for layer in reversed(target.layers):
            for cache in layer:
                if _key(cache).kind == kind:
                    return cache
    raise ConfigError("no layer of the target keeps tokens, so a draft cannot have its size")


def _check_host_ratio(geometry: ModelGeometry, ratio: int) -> None:
    vet_whole("host_to_device_ratio", ratio)
    if ratio == 1:
        return
    caches = [cache for layer in geometry.layers for cache in layer]
    stays = any(_key(cache).kind == "full" and not _is_chosen(cache) for cache in caches)
    if stays or not any(map(_is_chosen, caches)):
        raise ConfigError(
            f"host_to_device_ratio is {ratio}, and attention keeps tokens without index keys, by"
            " which alone the device knows what to fetch from the host: use a ratio of 1"
        )
