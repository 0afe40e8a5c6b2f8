"""What an allocator was asked to do, once it has done it."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Deed:
    """One verb that went through.

    `tokens` are all tokens of the request `rid` after it, or None where the request is gone.
    `hit_len` is what `admit` found in shared pages; `parent` is whom `fork` split; `pin_id` is the
    pin that began or ended.
    """

    verb: str
    rid: str | None = None
    tokens: tuple[int, ...] | None = None
    hit_len: int = 0
    parent: str | None = None
    pin_id: str | None = None
