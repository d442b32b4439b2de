"""Definitions outside a make_jitted function: functions, methods and classes that change are seen at the next call."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api.captured_variables import CapturedVariables

F32 = np.float32
ONE = np.ones(1, F32)


def jit(function: Any, **options: Any) -> Any:
    return ts.jit(function, backend="reference", **options)


def number(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def tensor(value: float) -> Any:
    return np.full(1, value, F32)


ACTIVATION: Any = ts.ops.relu


def test_a_function_under_another_name_is_a_value(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x: ACTIVATION(x))
    assert number(f(-ONE)) == 0
    monkeypatch.setitem(globals(), "ACTIVATION", ts.ops.abs)
    assert number(f(-ONE)) == 1


def test_a_method_put_over_that_of_the_class() -> None:
    held: Any = Base()
    f = jit(lambda x: held.forward(x))
    assert number(f(ONE)) == 2
    held.forward = lambda x: x * 100
    assert number(f(ONE)) == 100
    del held.forward
    assert number(f(ONE)) == 2
    assert f.cache_info().misses == 2


def test_a_function_in_an_attribute_is_a_value() -> None:
    held = SimpleNamespace(activation=ts.ops.relu)
    f = jit(lambda x: held.activation(x))
    assert number(f(-ONE)) == 0
    held.activation = ts.ops.abs
    assert number(f(-ONE)) == 1


@dataclass(frozen=True)
class Config:
    """A value."""

    scale: float = 1.0
    more: tuple[Any, ...] = ()


class Model:
    """Has make_jitted methods, which read tensors, numbers, objects and what the class says."""

    factor = 1

    def __init__(self, weight: float = 2.0) -> None:
        self.weight, self.scale, self.config = tensor(weight), 1, Config()

    @property
    def twice(self) -> Any:
        return self.scale * 2

    @ts.jit(backend="reference")
    def forward(self, x: Any) -> Any:
        return x * self.weight * self.scale * self.config.scale * self.factor

    @ts.jit(backend="reference")
    def double(self, x: Any) -> Any:
        return x * self.twice


def test_a_jitted_method_sees_its_instance_change() -> None:
    model = Model()
    assert number(model.forward(ONE)) == 2
    model.scale = 3
    assert number(model.forward(ONE)) == 6
    model.config = Config(2.0)
    assert number(model.forward(ONE)) == 12
    model.weight = tensor(1)
    assert number(model.forward(ONE)) == 6
    model.factor = 2  # over that of the class
    assert number(model.forward(ONE)) == 12
    del model.factor
    assert number(model.forward(ONE)) == 6


def test_a_jitted_method_sees_its_class_change(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    assert number(model.forward(ONE)) == 2
    monkeypatch.setattr(Model, "factor", 5)
    assert number(model.forward(ONE)) == 10


def test_a_property_reads_what_it_reads() -> None:
    model = Model()
    assert number(model.double(ONE)) == 2
    model.scale = 4
    assert number(model.double(ONE)) == 8


class AlwaysEqual(Model):
    """Instances that call themselves equal hold different things all the same."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AlwaysEqual)

    def __hash__(self) -> int:
        return 1


def test_equal_instances_are_not_one() -> None:
    first, second = AlwaysEqual(2), AlwaysEqual(3)
    second.scale = 10
    for _ in range(2):
        assert number(first.forward(ONE)) == 2
        assert number(second.forward(ONE)) == 30


class Base:
    """Has a method that a class below may hide."""

    def forward(self, x: Any) -> Any:
        return x * 2

    def __call__(self, x: Any) -> Any:
        return self.forward(x) + 1

    @staticmethod
    def times(x: Any) -> Any:
        return x * 2


class Over(Base):
    """Takes all from the class above."""


def activation(x: Any) -> Any:
    return x * 2.0


@ts.jit(backend="reference")
def make_jitted(x: Any) -> Any:
    return x * 2.0


KIND: Any = F32
LAYERS: Any = None


def _thrice(x: Any) -> Any:
    return x * 3.0


def test_a_function_that_is_redefined_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f, through = jit(lambda x: activation(x)), jit(lambda x: SimpleNamespace(of=activation).of(x))
    assert number(f(ONE)) == number(through(ONE)) == 2
    scope: dict[str, Any] = {}
    exec("def activation(x): return x * 5.0", scope)
    monkeypatch.setitem(globals(), "activation", scope["activation"])
    assert number(f(ONE)) == number(through(ONE)) == 5
    assert f.explain_recompile().splitlines()[1] == "  captured variable `activation` changed"


def test_a_jitted_function_that_is_redefined_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x: make_jitted(x))
    assert number(f(ONE)) == 2
    monkeypatch.setitem(globals(), "make_jitted", jit(_thrice))
    assert number(f(ONE)) == 3


def test_a_function_of_a_module_that_is_redefined_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    layers: Any = ModuleType("layers_of_a_program")
    layers.activation = activation
    monkeypatch.setitem(sys.modules, "layers_of_a_program", layers)
    monkeypatch.setitem(globals(), "LAYERS", layers)
    f = jit(lambda x: LAYERS.activation(x))
    assert number(f(ONE)) == 2
    layers.activation = _thrice
    assert number(f(ONE)) == 3


def test_a_method_that_is_replaced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Base()
    f = jit(lambda x: held(x) + held.times(x))
    assert number(f(ONE)) == 5
    monkeypatch.setattr(Base, "forward", lambda self, x: x * 10)
    assert number(f(ONE)) == 13
    monkeypatch.setattr(Base, "times", staticmethod(_thrice))
    assert number(f(ONE)) == 14
    monkeypatch.setattr(Base, "__call__", lambda self, x: x * 100)
    assert number(f(ONE)) == 103


def test_a_method_that_a_class_below_begins_to_hide_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Over()
    f = jit(lambda x: held(x))
    assert number(f(ONE)) == 3
    monkeypatch.setattr(Over, "forward", lambda self, x: x * 10, raising=False)
    assert number(f(ONE)) == 11
    monkeypatch.undo()
    assert number(f(ONE)) == 3
    assert f.cache_info().misses == 2


def test_a_class_that_is_rebound_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x: x * KIND(2.5))
    assert number(f(ONE)) == 2.5
    monkeypatch.setitem(globals(), "KIND", np.int16)
    assert number(f(ONE)) == 2


def test_a_method_is_one_place_however_many_objects_have_it() -> None:
    layers = [Base() for _ in range(50)]

    def body(x: Any) -> Any:
        for layer in layers:
            x = layer.forward(x)
        return x

    found = [one for one in CapturedVariables(body, {}).variables if one.value is Base.forward]
    assert len(found) == 1
