"""`Record`: a frozen dataclass whose class is created without generating code.

Creating a dataclass takes a third of a millisecond, importing `dataclasses` several; quick answers have no time for
either (`benchmarks/process_latency.py`).
"""

from __future__ import annotations

from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dataclasses import Field

    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_options: Any) -> Any:
        """Do nothing at run time."""
        return lambda kind: kind


_set = object.__setattr__


class _DataclassFields:
    """Fields for functions of `dataclasses`, which is imported only when they are requested."""

    def __get__(self, _: object, kind: type[Record]) -> dict[str, Field[Any]]:
        return _dataclass_fields(kind)


@cache
def _dataclass_fields(kind: type[Record]) -> dict[str, Field[Any]]:
    from dataclasses import MISSING, field, make_dataclass

    types = {
        name: text for item in reversed(kind.__mro__) for name, text in vars(item).get("__annotations__", {}).items()
    }
    specs = [(name, types[name], field(default=kind.field_defaults.get(name, MISSING))) for name in kind.field_names]
    made: Any = make_dataclass(kind.__name__, specs, kw_only=True)
    dataclass_fields__: dict[str, Field[Any]] = made.__dataclass_fields__
    return dataclass_fields__


class _Kind(type):
    """Metaclass: annotated names become fields, stored in slots, with values in the class body as defaults."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any], *, kw_only: bool = False) -> Any:
        del kw_only  # for type checkers
        known = [base for base in bases if isinstance(base, _Kind)]
        inherited = [field_name for base in known for field_name in base.field_names]
        own = [item for item, kind in body.get("__annotations__", {}).items() if not kind.startswith("ClassVar")]
        defaults = {item: value for base in known for item, value in base.field_defaults.items()}
        defaults |= {item: body.pop(item) for item in own if item in body}
        names = tuple(dict.fromkeys((*inherited, *own)))
        values = attrgetter(*names) if len(names) > 1 else lambda of: tuple(getattr(of, name) for name in names)
        body |= {
            "__slots__": names[len(inherited) :],
            "field_names": names,
            "field_set": frozenset(names),
            "field_defaults": defaults,
            "_values": staticmethod(values),
        }
        return super().__new__(cls, name, bases, body)

    field_names: tuple[str, ...]
    field_defaults: dict[str, Any]


@dataclass_transform(frozen_default=True)
class Record(metaclass=_Kind):
    """Base of classes whose annotated names are fields: with `__init__`, equality, hash, order and representation.

    `dataclasses.fields`, `replace` and `asdict` accept records. A subclass may define `__post_init__`.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
        field_names: ClassVar[tuple[str, ...]]
        field_set: ClassVar[frozenset[str]]
        field_defaults: ClassVar[dict[str, Any]]

        @staticmethod
        def _values(of: Any) -> tuple[Any, ...]: ...
    else:
        __dataclass_fields__ = _DataclassFields()

    def __init__(self, *values: Any, **named: Any) -> None:
        names = self.field_names
        placed = dict(zip(names, values, strict=False))
        given = self.field_defaults | placed | named
        if given.keys() != self.field_set or len(placed) < len(values) or not named.keys().isdisjoint(placed):
            raise TypeError(f"{type(self).__name__}() takes {', '.join(names)}")
        for name in names:
            _set(self, name, given[name])
        self.__post_init__()

    def __post_init__(self) -> None:
        """Validate the fields."""

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with changed fields."""
        return type(self)(**{**dict(zip(self.field_names, self._values(self), strict=True)), **changes})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self is other or self._values(self) == self._values(other)

    def __hash__(self) -> int:
        return hash(self._values(self))

    def __lt__(self, other: Self) -> bool:
        return self._values(self) < self._values(other) if type(other) is type(self) else NotImplemented

    def __repr__(self) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.field_names)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._values(self)
