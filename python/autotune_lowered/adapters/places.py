"""Where the tuned parameters of a function that is not ours stand in its arguments."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

Config = Mapping[str, Any]
Arguments = Mapping[str, Any]


class Place(Protocol):
    """How a config stands in the arguments of a call."""

    @property
    def arguments(self) -> Sequence[str]:
        """The arguments that hold it."""

    @property
    def names(self) -> Sequence[str]:
        """The parameters."""

    def read(self, arguments: Arguments) -> dict[str, Any] | None:
        """The config that a caller gave; `None` if the project chooses."""

    def write(self, arguments: Arguments, config: Config) -> dict[str, Any]:
        """The arguments that hold a config instead of the caller's."""


@dataclasses.dataclass(frozen=True)
class Named:
    """Each parameter is an argument of its own name."""

    names: Sequence[str]

    @property
    def arguments(self) -> Sequence[str]:
        return self.names

    def read(self, arguments: Arguments) -> dict[str, Any] | None:
        given = {name: arguments.get(name) for name in self.names}
        return None if all(value is None for value in given.values()) else given

    def write(self, arguments: Arguments, config: Config) -> dict[str, Any]:
        return {name: config[name] for name in self.names}


@dataclasses.dataclass(frozen=True)
class _InOne:
    """Parameters that one argument holds."""

    argument: str
    names: Sequence[str]

    @property
    def arguments(self) -> Sequence[str]:
        return (self.argument,)


@dataclasses.dataclass(frozen=True)
class Parts(_InOne):
    """The parameters are the parts of one tuple."""

    def read(self, arguments: Arguments) -> dict[str, Any] | None:
        value = arguments.get(self.argument)
        is_whole = isinstance(value, (tuple, list)) and len(value) == len(self.names)
        return dict(zip(self.names, value, strict=True)) if is_whole else None  # type: ignore[arg-type]

    def write(self, arguments: Arguments, config: Config) -> dict[str, Any]:
        return {self.argument: tuple(config[name] for name in self.names)}


@dataclasses.dataclass(frozen=True)
class Fields(_InOne):
    """The parameters are fields of one object, a dataclass or a named tuple; its other fields stay as the caller gave
    them."""

    default: Callable[[], Any] | None = None
    """Makes the object of a caller that gives none."""

    def read(self, arguments: Arguments) -> dict[str, Any] | None:
        value = arguments.get(self.argument)
        # a caller may give a function that chooses
        is_given = all(hasattr(value, name) for name in self.names)
        return {name: getattr(value, name) for name in self.names} if is_given else None

    def write(self, arguments: Arguments, config: Config) -> dict[str, Any]:
        value = arguments.get(self.argument)
        if self.read(arguments) is None and self.default is not None:
            value = self.default()
        if value is None:
            raise ValueError(f"the caller gives no `{self.argument}`")
        chosen = {name: config[name] for name in self.names}
        # a named tuple has a method for it
        replaced = value._replace(**chosen) if hasattr(value, "_replace") else dataclasses.replace(value, **chosen)
        return {self.argument: replaced}


@dataclasses.dataclass(frozen=True)
class Grouped(_InOne):
    """The parameters are parts of one tuple or fields of one object, as the caller's value shows."""

    def _of(self, arguments: Arguments) -> Parts | Fields:
        value = arguments.get(self.argument)
        has_fields = dataclasses.is_dataclass(value) or hasattr(value, "_replace")
        return (Fields if has_fields else Parts)(self.argument, self.names)

    def read(self, arguments: Arguments) -> dict[str, Any] | None:
        return self._of(arguments).read(arguments)

    def write(self, arguments: Arguments, config: Config) -> dict[str, Any]:
        return self._of(arguments).write(arguments, config)


@dataclasses.dataclass(frozen=True)
class Several:
    """Parameters in several places."""

    places: Sequence[Place]

    @property
    def arguments(self) -> Sequence[str]:
        return [name for place in self.places for name in place.arguments]

    @property
    def names(self) -> Sequence[str]:
        return [name for place in self.places for name in place.names]

    def read(self, arguments: Arguments) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        for place in self.places:
            part = place.read(arguments)
            if part is None:
                return None
            found |= part
        return found

    def write(self, arguments: Arguments, config: Config) -> dict[str, Any]:
        return {name: value for place in self.places for name, value in place.write(arguments, config).items()}
