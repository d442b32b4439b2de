"""`frozen`: the same as the standard library's frozen dataclasses with slots, looked at from outside."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.types.frozen import frozen


@frozen
class Point:
    """Two numbers and a name that does not count."""

    x: int
    y: int = 2
    name: str = dataclasses.field(default="p", compare=False)

    @property
    def sum(self) -> int:
        return self.x + self.y


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """The same, made by the standard library."""

    x: int
    y: int = 2
    name: str = dataclasses.field(default="p", compare=False)


@frozen
class Place(Point):
    """One that inherits fields, makes a list for each, and counts after it is made."""

    tags: list[str] = dataclasses.field(default_factory=list[str], compare=False)
    size: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", self.x * self.y)


@frozen
class Odd:
    """One that says itself what equals what, and how it looks."""

    value: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and self.value % 2 == other.value % 2

    def __hash__(self) -> int:
        return self.value % 2

    def __repr__(self) -> str:
        return "odd" if self.value % 2 else "even"


@given(st.tuples(st.integers(0, 2), st.integers(0, 2)), st.tuples(st.integers(0, 2), st.integers(0, 2)))
def test_equality_and_hash_are_those_of_the_standard_library(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (Point(*a) == Point(*b)) is (Standard(*a) == Standard(*b))
    assert (hash(Point(*a)) == hash(Point(*b))) is (a == b)


def test_looks_like_a_dataclass() -> None:
    assert repr(Point(1)) == repr(Standard(1)).replace("Standard", "Point")
    assert Point.__match_args__ == Standard.__match_args__
    assert list(inspect.signature(Point).parameters) == list(inspect.signature(Standard).parameters)
    assert dataclasses.is_dataclass(Point)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 2, "name": "p"}
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert Point(1, name="q") == Point(1)
    assert Point(1) != Standard(1)
    assert Point(1).sum == 3


def test_does_not_change() -> None:
    point = Point(1)
    for change in (lambda: setattr(point, "x", 3), lambda: setattr(point, "z", 3), lambda: delattr(point, "x")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            change()
    assert point == Point(1)
    assert not hasattr(point, "__dict__")


def test_wrong_arguments_are_refused() -> None:
    make: Any = Point
    with pytest.raises(TypeError, match=r"Point\.__init__\(\) missing 1 required positional argument: 'x'"):
        make()


def test_inherits_fields_and_makes_defaults_anew() -> None:
    first, second = Place(2, 3), Place(2, 3)
    assert first == second
    assert first.size == 6
    assert first.tags is not second.tags
    assert Place(2, 3, tags=["a"]).tags == ["a"]
    assert not hasattr(first, "__dict__")
    assert repr(first) == "Place(x=2, y=3, name='p', tags=[], size=6)"


@pytest.mark.parametrize("value", [Point(1), Place(2, 3, "n", ["t"])])
def test_copies_and_pickles(value: Point) -> None:
    for other in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other == value
        assert other.name == value.name


def test_own_methods_stand() -> None:
    assert Odd(1) == Odd(3)
    assert len({Odd(1), Odd(3), Odd(2)}) == 2
    assert repr(Odd(2)) == "even"
