"""Aliases for what a log says of people and their requests, under a key that nobody keeps."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable

import attrs
import numpy as np
import numpy.typing as npt

from kvlife.events import FIELDS, Event, FieldKind
from kvlife.log import RunHeader

U64 = npt.NDArray[np.uint64]

# What a pin is called can be any text; these words say nothing of anybody, and are kept.
PIN_KINDS = frozenset(
    ("backup", "copy", "load", "offload", "prefetch", "read", "store", "transfer", "write")
)
_TEXTS = (FieldKind.TEXT, FieldKind.MAYBE_TEXT)
_NUMBERS = (FieldKind.U64, FieldKind.KEYS, FieldKind.DIGESTS)
_MAX_KNOWN = 1 << 16


class Aliases:
    """The same name gets the same alias, another one another; 0 and the empty text stay.

    Aliases are keyed hashes of 64 bits, so that without the key no list of names can be tried out
    on them.
    """

    def __init__(self, key: bytes | None = None) -> None:
        """Under a new random key, or a given one of up to 64 bytes."""
        self._key = secrets.token_bytes(32) if key is None else key
        self._known: dict[tuple[str, bytes], int] = {}
        # By field; the id of an invariant is none of these, and stays.
        self._texts: dict[str, Callable[[str], str]] = {
            "rid": self.request,
            "owner": self.request,
            "session_id": self.session,
            "pin_id": self.pin,
            "kind": self.pin_kind,
            "text": self.note,
        }
        self._fields = {
            kind: [field for field in fields if self._is_named(field.name, field.kind)]
            for kind, fields in FIELDS.items()
        }

    def request(self, rid: str) -> str:
        """For a request id."""
        return self._text("r", rid)

    def session(self, session_id: str) -> str:
        """For a session id."""
        return self._text("s", session_id)

    def pin(self, pin_id: str) -> str:
        """For a pin id."""
        return self._text("p", pin_id)

    def pin_kind(self, kind: str) -> str:
        """For what a pin is said to be."""
        return kind if kind in PIN_KINDS else self._text("kind", kind)

    def note(self, text: str) -> str:
        """For the text of a mark."""
        return self._text("note", text)

    def numbers(self, numbers: U64) -> U64:
        """For namespaces, page keys, or digests of contents."""
        unequal, places = np.unique(numbers, return_inverse=True)
        found = [
            self._hash("number", number.to_bytes(8, "little")) if number else 0
            for number in unequal.tolist()
        ]
        return np.array(found, np.uint64)[places]

    def event(self, event: Event) -> Event:
        """The event with all its names replaced; itself where it has none."""
        changed: dict[str, object] = {}
        for field in self._fields[type(event)]:
            value = getattr(event, field.name)
            if field.kind is FieldKind.KEYS:
                changed[field.name] = tuple(self.numbers(keys) for keys in value)
            elif field.kind is FieldKind.DIGESTS:
                changed[field.name] = self.numbers(value)
            elif field.kind is FieldKind.U64:
                changed[field.name] = int(self.numbers(np.array([value], np.uint64))[0])
            elif value is not None:
                changed[field.name] = self._texts[field.name](value)
        # The fields of one class among those of the union, which mypy cannot see.
        return attrs.evolve(event, **changed) if changed else event  # type: ignore[arg-type]

    def header(self, header: RunHeader) -> RunHeader:
        """The header without the name of the engine's group and the fingerprint of its seed."""
        return attrs.evolve(header, group=self._text("g", header.group), key_fingerprint="")

    def _is_named(self, name: str, kind: FieldKind) -> bool:
        return kind in _NUMBERS or (kind in _TEXTS and name in self._texts)

    def _text(self, what: str, text: str) -> str:
        return f"{what}-{self._hash(what, text.encode()):016x}" if text else ""

    def _hash(self, what: str, content: bytes) -> int:
        """64 bits, never 0."""
        found = self._known.get((what, content))
        if found is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            whole = hashlib.blake2b(
                content, digest_size=8, key=self._key, person=what.encode().ljust(16, b"\0")
            )
            found = self._known[what, content] = int.from_bytes(whole.digest(), "little") or 1
        return found
