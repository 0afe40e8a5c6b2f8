"""What an adapter gives the kit: an allocator's verbs, and a look at its books.

An adapter is made with a `PoolConfig` of one cache group and gives the allocator `num_pages - 1`
pages. It defines the verbs that its allocator has, and leaves out the others:

    admit(rid, tokens)      a new request, pages for its tokens; returns how many tokens of them
                            were found in shared pages (None or 0: none)
    extend(rid, tokens)     more tokens behind what it has
    publish(rid)            its whole pages may be shared from now on
    roll_back(rid, length)  the tail above `length` tokens goes; never below what is published
    fork(rid, child)        a child with the same tokens, sharing published pages
    free(rid), abort(rid)   the end, and the end by the other code path
    preempt(rid)            its pages go; it may be admitted again under the same id
    back_up(rid)            as preempt, and what only it has is kept elsewhere (on the host, in
                            `host_pages` pages); admitted again it has the same tokens, and more
    evict(num_pages)        cached pages that nobody holds become free, at most so many
    reset()                 the whole cache goes
    pin(pin_id, rid), unpin(pin_id)
                            something outside reads the request's pages, and is done

and shows its books, in page ids of its own:

    table(rid)              the pages of a live request, in the order of its tokens
    free_pages()            the free list, with what stands in it twice
    published()             (key, page) pairs: what a prefix is looked up by
    refs()                  how many hold each page, as a mapping
    allocated_len(rid)      tokens that it has pages for, where that is more than it was given

`admit`, `free`, `table` and `free_pages` it must have. A verb that is refused (no room, ...) raises
`CommandRefused`, or one of the classes in the adapter's `refusals`; then nothing may have changed.
An adapter whose `observer` is the allocator's own (as that of an engine) needs to show nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from kvlife.engine import Observer
from kvlife.errors import CommandRefused, ConfigError


@runtime_checkable
class Allocator(Protocol):
    """The verbs that every adapter has."""

    def admit(self, rid: str, tokens: list[int]) -> int | None:
        """Begin a request; returns the tokens found in shared pages."""

    def free(self, rid: str) -> None:
        """End a request."""


@runtime_checkable
class Extends(Protocol):
    """Requests grow."""

    def extend(self, rid: str, tokens: list[int]) -> None:
        """Pages for more tokens."""


@runtime_checkable
class Publishes(Protocol):
    """Sharing begins at a verb of its own."""

    def publish(self, rid: str) -> None:
        """Whole pages may be shared."""


@runtime_checkable
class RollsBack(Protocol):
    """A tail can be cut off."""

    def roll_back(self, rid: str, length: int) -> None:
        """Cut to `length` tokens."""


@runtime_checkable
class Forks(Protocol):
    """A request can be split in two."""

    def fork(self, rid: str, child: str) -> None:
        """A child with the same tokens."""


@runtime_checkable
class Aborts(Protocol):
    """There is a second way for a request to end."""

    def abort(self, rid: str) -> None:
        """End a request early."""


@runtime_checkable
class Preempts(Protocol):
    """A request can lose its pages and come back."""

    def preempt(self, rid: str) -> None:
        """Take a request's pages away."""


@runtime_checkable
class BacksUp(Protocol):
    """A request can lose its pages and come back to what it had in them."""

    def back_up(self, rid: str) -> None:
        """Take a request's pages away, and keep what only it has."""


@runtime_checkable
class Evicts(Protocol):
    """Cached pages can be given back on demand."""

    def evict(self, num_pages: int) -> None:
        """Give back up to `num_pages` cached pages."""


@runtime_checkable
class Resets(Protocol):
    """The cache can be dropped as a whole."""

    def reset(self) -> None:
        """Drop the cache."""


@runtime_checkable
class Pins(Protocol):
    """Pages can be read from outside."""

    def pin(self, pin_id: str, rid: str) -> None:
        """Something reads the request's pages."""

    def unpin(self, pin_id: str) -> None:
        """It is done."""


class EveryVerb(
    Allocator,
    Extends,
    Publishes,
    RollsBack,
    Forks,
    Aborts,
    Preempts,
    BacksUp,
    Evicts,
    Resets,
    Pins,
    Protocol,
):
    """All verbs together."""


@runtime_checkable
class ShowsTables(Protocol):
    """The books that an observer of an allocator cannot do without."""

    def table(self, rid: str) -> Sequence[int]:
        """The pages of a live request."""

    def free_pages(self) -> Iterable[int]:
        """The free list."""


@runtime_checkable
class ShowsPublished(Protocol):
    """What a prefix is looked up by."""

    def published(self) -> Iterable[tuple[Hashable, int]]:
        """(key, page) pairs."""


@runtime_checkable
class ShowsRefs(Protocol):
    """How many hold a page."""

    def refs(self) -> Mapping[int, int]:
        """Counts by page; a page that is left out has none."""


@runtime_checkable
class ShowsLens(Protocol):
    """Pages are given ahead of the tokens."""

    def allocated_len(self, rid: str) -> int:
        """Tokens that the request has pages for."""


@runtime_checkable
class WatchesItself(Protocol):
    """The allocator reports its facts itself: it is an observer, or has one."""

    @property
    def observer(self) -> Observer:
        """Who is told."""


VERBS = (
    *(Allocator, Extends, Publishes, RollsBack, Forks, Aborts, Preempts, BacksUp),
    *(Evicts, Resets, Pins),
)
LOOKS = (ShowsTables, ShowsPublished, ShowsRefs, ShowsLens)


def _names(*protocols: type) -> set[str]:
    return {name for protocol in protocols for name in vars(protocol) if not name.startswith("_")}


def check_adapter(adapter_type: type) -> None:
    """Raise `ConfigError` for an adapter that lacks what it must have, or has unknown names."""
    required = _names(Allocator)
    if not hasattr(adapter_type, "observer"):
        required |= _names(ShowsTables)
    missing = sorted(name for name in required if not hasattr(adapter_type, name))
    if missing:
        raise ConfigError(f"{adapter_type.__name__} does not define {', '.join(missing)}")
    known = _names(*VERBS, *LOOKS, WatchesItself) | {"refusals"}
    public = {name for name in dir(adapter_type) if not name.startswith("_")}
    unknown = sorted(public - known)
    if unknown:
        raise ConfigError(
            f"{adapter_type.__name__} defines {', '.join(unknown)}, which the kit would never call;"
            f" it knows {', '.join(sorted(known))}. Begin names of your own with an underscore"
        )


def refusals_of(adapter: object) -> tuple[type[Exception], ...]:
    """The errors by which the adapter's allocator refuses a verb."""
    named: tuple[type[Exception], ...] = getattr(adapter, "refusals", ())
    return (CommandRefused, *named)
