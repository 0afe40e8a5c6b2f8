"""Where the bytes of a page lie: planes of equal sections in one arena, whatever the layout.

A cache group's KV lies in one tensor of bytes, its *arena*. A *plane* is one kind of content in it
(keys, values, latent rows, scales): for each layer and page a *section* of `page_bytes` contiguous
bytes, at `offset + layer * layer_stride + page * page_stride`. Per-layer and page-major buffers
differ only in these strides, so that whatever moves or reads whole pages serves every layout:

    per layer    | layer 0: page 0, page 1, ... | layer 1: page 0, page 1, ... |   layer > page
    page-major   | page 0: layer 0, layer 1, ... | page 1: layer 0, layer 1, ... |   page > layer
"""

import functools
import itertools
import math
from collections.abc import Iterable

import attrs

from kvlife.kernels.dispatch import KernelError

MAX_WORD_BYTES = 16
INT64_MAX = 2**63 - 1


def _count(plane: "Plane", attribute: "attrs.Attribute[int]", value: object) -> None:
    """An attrs validator: the field is an int from 0 (offset) or 1 (anything else) to 2^63 - 1."""
    least = 0 if attribute.name == "offset" else 1
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= INT64_MAX:
        raise KernelError(
            f"plane {plane.name!r}: {attribute.name} is {value!r}; give a whole number of bytes"
            f" or layers from {least} to 2^63 - 1"
        )


def _count_pages(_planes: object, _attribute: "attrs.Attribute[int]", value: object) -> None:
    """An attrs validator: there is a page at least, the reserved one."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= INT64_MAX:
        raise KernelError(f"{value!r} pages asked for; give a whole number, 1 for page 0 alone")


@attrs.frozen(kw_only=True)
class Plane:
    """One kind of content of a page: `num_layers` sections of `page_bytes` bytes. All in bytes.

    Section (layer, page) is `[start, start + page_bytes)` of the arena, where
    `start = offset + layer * layer_stride + page * page_stride`.
    """

    name: str
    offset: int = attrs.field(validator=_count)
    num_layers: int = attrs.field(validator=_count)
    layer_stride: int = attrs.field(validator=_count)
    page_stride: int = attrs.field(validator=_count)
    page_bytes: int = attrs.field(validator=_count)


def _in_order(planes: Iterable[Plane]) -> tuple[Plane, ...]:
    return tuple(planes)


@attrs.frozen(kw_only=True, cache_hash=True)
class Planes:
    """The planes of a cache group's arena: disjoint, for pages `[0, num_pages)`, 0 reserved.

    Sections that overlap, or an extent beyond 2^63 - 1 bytes, are a `KernelError`. The content of a
    page in a row is its planes in order, in each its layers in order: what `gather_pages` writes,
    and the order of words in a digest.
    """

    planes: tuple[Plane, ...] = attrs.field(converter=_in_order)
    num_pages: int = attrs.field(validator=_count_pages)

    def __attrs_post_init__(self) -> None:
        """Refuse what no arena can hold."""
        if not self.planes:
            raise KernelError("a cache group without planes holds nothing; give one at least")
        nests = [_nest(plane, self.num_pages) for plane in self.planes]
        for plane, nest in zip(self.planes, nests, strict=True):
            if not nest.is_disjoint():
                raise KernelError(
                    f"plane {plane.name!r}: its sections overlap for {self.num_pages} pages; the"
                    " smaller stride must hold page_bytes, and the larger all of the smaller ones"
                )
        for (one, first), (other, second) in itertools.combinations(
            zip(self.planes, nests, strict=True), 2
        ):
            if _clash(first, second):
                raise KernelError(
                    f"planes {one.name!r} and {other.name!r} overlap, or interleave with different"
                    " strides; give them places of their own"
                )
        if self.num_bytes > INT64_MAX:
            raise KernelError(f"the planes reach {self.num_bytes} bytes, beyond 2^63 - 1")

    @functools.cached_property
    def page_bytes(self) -> int:
        """Bytes of one page over all planes and layers: one row of a staging buffer."""
        return sum(plane.num_layers * plane.page_bytes for plane in self.planes)

    @functools.cached_property
    def num_bytes(self) -> int:
        """Bytes that the arena must have at least: where the last section ends."""
        return max(_nest(plane, self.num_pages).end for plane in self.planes)

    @functools.cached_property
    def word_bytes(self) -> int:
        """The widest power of two, at most 16, that divides every offset, stride and section."""
        numbers = [MAX_WORD_BYTES]
        for plane in self.planes:
            numbers += [plane.offset, plane.page_bytes]
            numbers += [plane.layer_stride] if plane.num_layers > 1 else []
            numbers += [plane.page_stride] if self.num_pages > 1 else []
        return math.gcd(*numbers)


@attrs.frozen
class _Nest:
    """Sections of `size` bytes from `start`, repeated by each (count, stride), largest first."""

    start: int
    size: int
    loops: tuple[tuple[int, int], ...]

    @property
    def end(self) -> int:
        return self.start + self.size + sum((count - 1) * stride for count, stride in self.loops)

    def inner(self) -> "_Nest":
        return attrs.evolve(self, loops=self.loops[1:])

    def is_disjoint(self) -> bool:
        if not self.loops:
            return True
        inner = self.inner()
        return inner.end - inner.start <= self.loops[0][1] and inner.is_disjoint()


def _nest(plane: Plane, num_pages: int) -> _Nest:
    loops = [(plane.num_layers, plane.layer_stride), (num_pages, plane.page_stride)]
    loops = [loop for loop in loops if loop[0] > 1]
    loops.sort(key=lambda loop: loop[1], reverse=True)
    return _Nest(plane.offset, plane.page_bytes, tuple(loops))


def _clash(one: _Nest, other: _Nest) -> bool:
    """Whether two nests share a byte, or cannot be shown not to."""
    if one.end <= other.start or other.end <= one.start:
        return False
    if not (one.loops and other.loops and one.loops[0] == other.loops[0]):
        return True
    # Both repeat by one stride: where one turn of both fits into it, no turn reaches another.
    inner, beside = one.inner(), other.inner()
    turn = max(inner.end, beside.end) - min(inner.start, beside.start)
    return turn > one.loops[0][1] or _clash(inner, beside)


@attrs.frozen
class Run:
    """Bytes of a page that lie side by side: `[start, start + num_bytes)` in page 0.

    Page p has them `p * page_stride` further on.
    """

    start: int
    page_stride: int
    num_bytes: int


@functools.lru_cache(maxsize=256)
def runs_of(planes: Planes, unit: int = 1) -> tuple[Run, ...]:
    """The content of a page, in order, in as few runs as there are.

    Sections that follow each other are one run, unless the first ends within a unit of bytes.
    """
    runs: list[Run] = []
    for plane in planes.planes:
        for layer in range(plane.num_layers):
            start = plane.offset + layer * plane.layer_stride
            run = Run(start, plane.page_stride, plane.page_bytes)
            if runs and _follows(runs[-1], run, unit):
                before = runs.pop()
                run = Run(before.start, before.page_stride, before.num_bytes + run.num_bytes)
            runs.append(run)
    return tuple(runs)


def _follows(before: Run, run: Run, unit: int) -> bool:
    return (
        before.start + before.num_bytes == run.start
        and before.page_stride == run.page_stride
        and before.num_bytes % unit == 0
    )
