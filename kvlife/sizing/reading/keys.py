"""The keys of a config, each under the several names that configs give it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, overload

from kvlife.errors import ConfigError
from kvlife.sizing.vetting import quoted

Answer = TypeVar("Answer")
Other = TypeVar("Other")


class MissingKeys(ConfigError):
    """What a config does not say: `keys` names each missing one, with its other names."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = tuple(dict.fromkeys(keys))
        super().__init__(
            f"the config lacks {'; '.join(self.keys)}: add what is missing, or describe the layers"
            " by hand, as ModelGeometry(layers=[...], model_dtype=..., context_len=...)"
        )


@overload
def ask(first: Callable[[], Answer], second: Callable[[], Other], /) -> tuple[Answer, Other]: ...


@overload
def ask(*questions: Callable[[], Answer]) -> tuple[Answer, ...]: ...


def ask(*questions: Callable[[], object]) -> tuple[object, ...]:
    """The answers to several questions; one `MissingKeys` names all that is missing for them."""
    answers: list[object] = []
    missing: list[str] = []
    for question in questions:
        try:
            answers.append(question())
        except MissingKeys as error:
            missing.extend(error.keys)
    if missing:
        raise MissingKeys(missing)
    return tuple(answers)


def either(names: Sequence[str]) -> str:
    """The name of a key with its other names, for a message."""
    others = f" (or {', '.join(names[1:])})" if len(names) > 1 else ""
    return names[0] + others


class ConfigKeys:
    """A config whose keys are asked for by all their names; null is as good as absent.

    With a `layer`, a key that holds a list with one value for each layer gives that layer's.
    """

    def __init__(self, config: Mapping[str, object], layer: int | None = None) -> None:
        self._config = config
        self._layer = layer

    def of_layer(self, layer: int) -> ConfigKeys:
        """The same config as this layer sees it."""
        return ConfigKeys(self._config, layer)

    def find(self, *names: str) -> tuple[str, object] | None:
        """The first of these names that has a value, with the value."""
        for name in names:
            value = self._config.get(name)
            if value is not None:
                return name, value
        return None

    def has(self, *names: str) -> bool:
        """Whether one of these names has a value."""
        return self.find(*names) is not None

    def is_on(self, name: str) -> bool:
        """Whether a flag is set; raises `ConfigError` for what is no flag."""
        value = self._config.get(name)
        if value is not None and not isinstance(value, bool):
            raise ConfigError(f"{name} is {quoted(value)}: it must be true or false")
        return bool(value)

    def whole(self, *names: str, low: int = 1) -> int:
        """A whole number of at least `low`; raises `MissingKeys` where no name has a value."""
        value = self.whole_or_none(*names, low=low)
        if value is None:
            raise MissingKeys([either(names)])
        return value

    def whole_or_none(self, *names: str, low: int = 1) -> int | None:
        """A whole number of at least `low`, or None where no name has a value."""
        found = self.find(*names)
        if found is None:
            return None
        name, value = found
        if isinstance(value, Sequence) and not isinstance(value, str) and self._layer is not None:
            if self._layer >= len(value):
                raise ConfigError(
                    f"{name} has {len(value)} values, and none for layer {self._layer}"
                )
            value = value[self._layer]
        if type(value) is not int or value < low:
            raise ConfigError(
                f"{name} is {quoted(value)}: it must be a whole number of at least {low}"
            )
        return value

    def texts(self, *names: str) -> tuple[str, tuple[str, ...]] | None:
        """A list of texts with its name, or None."""
        found = self.find(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, Sequence) or isinstance(value, str) or not value:
            raise ConfigError(
                f"{name} is {quoted(value)}: it must be a list with a name for each layer"
            )
        for item in value:
            if not isinstance(item, str):
                raise ConfigError(f"{name} holds {quoted(item)}: it must be a list of names")
        return name, tuple(value)

    def numbers(self, *names: str) -> tuple[str, tuple[int, ...]] | None:
        """A list of whole numbers (or flags) with its name, or None."""
        found = self.find(*names)
        if found is None:
            return None
        name, value = found
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise ConfigError(f"{name} is {quoted(value)}: it must be a list of whole numbers")
        for item in value:
            if not isinstance(item, int) or item < 0:
                raise ConfigError(
                    f"{name} holds {quoted(item)}: it must be a list of whole numbers"
                )
        return name, tuple(int(item) for item in value)

    def part(self, name: str) -> ConfigKeys | None:
        """The keys of a config inside this one, or None."""
        value = self._config.get(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name} is {quoted(value)}: it must hold keys and values")
        return ConfigKeys(value, self._layer)
