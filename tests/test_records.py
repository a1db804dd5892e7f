"""Records behave like frozen dataclasses."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import ClassVar

import pytest

from ckh.records import Record


class _Point(Record):
    unit: ClassVar[str] = "m"

    x: int
    y: int = 2

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("x is negative")


class _Named(_Point):
    x: int
    name: str = "p"


@dataclass(frozen=True, slots=True, order=True)
class _Dataclass:
    x: int
    y: int = 2


def test_a_record_behaves_like_a_frozen_dataclass() -> None:
    """Equality, hash, order, representation and the functions of `dataclasses` agree with those of a dataclass."""
    item, other = _Point(1), _Point(x=1, y=3)
    as_dataclass = _Dataclass(1), _Dataclass(x=1, y=3)
    assert (item == other, item == _Point(1, 2), hash(item) == hash(_Point(1)), item < other) == (
        False,
        True,
        True,
        True,
    )
    assert item != as_dataclass[0]
    assert sorted([other, item]) == [item, other]
    assert [repr(point).partition("(")[2] for point in (item, other)] == [
        repr(point).partition("(")[2] for point in as_dataclass
    ]
    assert is_dataclass(item)
    assert asdict(other) == asdict(as_dataclass[1])
    assert [(of.name, of.type, of.default) for of in fields(_Point)] == [
        (of.name, of.type, of.default) for of in fields(_Dataclass)
    ]
    assert replace(item, y=3) == item.replaced(y=3) == other
    assert deepcopy(other) == other
    assert _Point.unit == "m"


def test_a_redeclared_field_keeps_its_position() -> None:
    """Inherited fields come first, in their order."""
    named = _Named(1, 4, "q")
    assert (named.x, named.y, named.name) == (1, 4, "q")
    assert [field.name for field in fields(named)] == ["x", "y", "name"]
    with pytest.raises(ValueError, match="negative"):
        _Named(-1)


def test_a_record_is_frozen() -> None:
    """No field can be set or deleted, and no other can be added."""
    point = _Point(1)
    for name in ("x", "z"):
        with pytest.raises(AttributeError):
            setattr(point, name, 2)
    with pytest.raises(AttributeError):
        del point.x
    assert point == _Point(1)


@pytest.mark.parametrize(
    ("values", "named"),
    [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1, "z": 1})],
)
def test_wrong_arguments_are_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    """Missing fields, too many values, a duplicate field, and unknown ones."""
    with pytest.raises(TypeError, match="_Point"):
        _Point(*values, **named)
