"""What a jitted function reads from outside itself: each call sees what is there now, and nothing is traced in vain."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportPrivateUsage=false
from __future__ import annotations

import functools
import sys
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


SCALE: Any = 2.0
LEFT: Any = None
RIGHT: Any = None
HOLDER: Any = None


def _scale_of_helper() -> Any:
    return SCALE


def test_a_global_number_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x: x * SCALE)
    assert number(f(ONE)) == 2
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert number(f(ONE)) == 5
    assert f.explain_recompile().splitlines()[1] == "  captured variable `SCALE` changed"
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert number(f(ONE)) == 2
    assert f.cache_info().misses == 2  # what was made for 2.0 is still there


def test_a_number_in_a_cell_that_changes_is_seen() -> None:
    def make() -> tuple[Any, Any]:
        scale = 2

        def change(value: int) -> None:
            nonlocal scale
            scale = value

        return jit(lambda x: x * scale), change

    f, change = make()
    assert number(f(ONE)) == 2
    change(3)
    assert number(f(ONE)) == 3


def test_what_a_called_function_reads_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x: x * _scale_of_helper())
    assert number(f(ONE)) == 2
    monkeypatch.setitem(globals(), "SCALE", 7.0)
    assert number(f(ONE)) == 7


def test_a_tensor_in_the_closure_of_a_called_function_is_read_at_each_call() -> None:
    weight = tensor(2)

    def inner(x: Any) -> Any:
        return x * weight

    f = jit(lambda x: inner(x))
    assert number(f(ONE)) == 2
    weight = tensor(3)
    assert number(f(ONE)) == 3
    assert f.cache_info().misses == 1


def test_one_tensor_of_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    same = tensor(2)
    monkeypatch.setitem(globals(), "LEFT", same)
    monkeypatch.setitem(globals(), "RIGHT", same)
    f = jit(lambda x: x * LEFT + RIGHT)
    assert number(f(ONE)) == 4
    monkeypatch.setitem(globals(), "RIGHT", tensor(10))
    assert number(f(ONE)) == 12
    monkeypatch.setitem(globals(), "LEFT", tensor(3))
    assert number(f(ONE)) == 13
    both = tensor(4)
    monkeypatch.setitem(globals(), "LEFT", both)
    monkeypatch.setitem(globals(), "RIGHT", both)
    assert number(f(ONE)) == 8
    assert f.cache_info().misses == 2


class Scaled:
    """Callable, and holds a tensor."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __call__(self, x: Any) -> Any:
        return x * self.weight


class Slotted:
    """Has slots, one of them inherited by a class below."""

    __slots__ = ("scale", "weight")

    def __init__(self, weight: Any, scale: Any) -> None:
        self.weight, self.scale = weight, scale


class Below(Slotted):
    """Has a dict besides."""

    def apply(self, x: Any) -> Any:
        return x * self.weight + self.scale


def test_objects_that_are_called() -> None:
    layer = Scaled(tensor(2))
    f = jit(lambda x: layer(x))
    own = jit(layer)
    assert number(f(ONE)) == number(own(ONE)) == 2
    layer.weight = tensor(5)
    assert number(f(ONE)) == number(own(ONE)) == 5
    assert f.cache_info().misses == own.cache_info().misses == 1


@pytest.mark.parametrize("kind", [Slotted, Below])
def test_slots(kind: Any) -> None:
    held = kind(tensor(2), 1)
    f = jit(lambda x: x * held.weight + held.scale)
    assert number(f(ONE)) == 3
    held.weight = tensor(4)
    assert number(f(ONE)) == 5
    held.scale = 3
    assert number(f(ONE)) == 7
    assert f.cache_info().misses == 2


def test_a_method_and_a_super_method() -> None:
    held = Below(tensor(2), 1)
    f, bound = jit(lambda x: held.apply(x)), jit(held.apply)
    assert number(f(ONE)) == number(bound(ONE)) == 3
    held.weight, held.scale = tensor(4), 5
    assert number(f(ONE)) == number(bound(ONE)) == 9


def test_nesting_has_no_limit() -> None:
    deep: Any = {"w": tensor(2)}
    bottom = deep
    for _ in range(2000):
        deep = SimpleNamespace(inner=[deep])

    def walk(held: Any) -> Any:
        while not isinstance(held, dict):
            held = held.inner[0]
        return held["w"]

    f = jit(lambda x: x * walk(deep))
    assert number(f(ONE)) == 2
    bottom["w"] = tensor(3)
    assert number(f(ONE)) == 3
    assert f.cache_info().misses == 1


def test_an_object_that_holds_itself() -> None:
    knot = SimpleNamespace(scale=2)
    knot.self = knot
    f = jit(lambda x: x * knot.self.self.scale)
    assert number(f(ONE)) == 2
    knot.scale = 3
    assert number(f(ONE)) == 3


def test_new_containers_of_new_tensors_are_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "HOLDER", {"w": tensor(1), "rest": [(tensor(2), "relu")]})
    f = jit(lambda x: x * HOLDER["w"] + HOLDER["rest"][0][0])
    for step in range(5):
        monkeypatch.setitem(globals(), "HOLDER", {"w": tensor(step), "rest": [(tensor(10 * step), "relu")]})
        assert number(f(ONE)) == 11 * step
    assert f.cache_info().misses == 1
    monkeypatch.setitem(globals(), "HOLDER", {"w": tensor(1), "rest": [(tensor(2), "gelu")]})
    f(ONE)
    assert f.cache_info().misses == 2


def test_containers_that_grow() -> None:
    layers = [tensor(2)]
    table: dict[str, int] = {"a": 1}

    def body(x: Any) -> Any:
        for layer in layers:
            x = x * layer
        return x + sum(table.values())

    f = jit(body)
    assert number(f(ONE)) == 3
    layers.append(tensor(3))
    assert number(f(ONE)) == 7
    table["b"] = 10
    assert number(f(ONE)) == 17
    layers.pop()
    del table["b"]
    assert number(f(ONE)) == 3
    assert f.cache_info().misses == 3


def test_numbers_in_lists_sets_and_partials() -> None:
    numbers, chosen = [1, 2], {1}
    helper = functools.partial(lambda x, by: x * by, by=3)
    f = jit(lambda x: helper(x) + sum(numbers) + len(chosen))
    assert number(f(ONE)) == 7
    numbers[1] = 5
    assert number(f(ONE)) == 10
    chosen.add(2)
    assert number(f(ONE)) == 11
    helper.keywords["by"] = 4
    assert number(f(ONE)) == 12


def test_attributes_asked_for_by_computed_names() -> None:
    held = SimpleNamespace(first=2)
    f = jit(lambda x: x * getattr(held, "fi" + "rst") + hasattr(held, "second"))
    assert number(f(ONE)) == 2
    held.first = 3
    assert number(f(ONE)) == 3
    held.second = 0
    assert number(f(ONE)) == 4


def test_a_module_of_the_program_is_not_walked_but_its_names_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = ModuleType("config_of_a_program")
    config.scale, config.unread, config.numpy, config.ts = 2, 1, np, ts
    monkeypatch.setitem(sys.modules, "config_of_a_program", config)
    f = jit(lambda x: x * config.scale)
    assert number(f(ONE)) == 2
    config.scale = 3
    assert number(f(ONE)) == 3
    config.unread = 2
    f(ONE)
    assert f.cache_info().misses == 2
    assert {one.path for one in CapturedVariables(f.function, {}).variables} == {"config", "config.scale"}


def test_no_library_is_walked() -> None:
    def body(x: Any) -> Any:
        return ts.ops.softmax(x) * np.float32(2) + functools.reduce(lambda a, b: a + b, [1, 2])

    assert CapturedVariables(body, {}).variables == []


def test_a_captured_tensor_of_another_shape_is_another_program() -> None:
    held = {"w": tensor(2)}
    f = jit(lambda x: x * held["w"])
    assert f(ONE).shape == (1,)
    held["w"] = np.ones((3, 1), F32)
    assert f(ONE).shape == (3, 1)
    assert f.cache_info().misses == 2


def test_a_shape_that_only_python_reads() -> None:
    held = SimpleNamespace(table=ts.array(np.ones((2, 3), F32)))
    f = jit(lambda x: x * held.table.shape[0])
    assert number(f(ONE)) == 2
    held.table = ts.array(np.zeros((2, 3), F32))
    assert number(f(ONE)) == 2
    assert f.cache_info().misses == 1
    held.table = ts.array(np.zeros((5, 3), F32))
    assert number(f(ONE)) == 5


def test_elements_that_only_python_reads() -> None:
    held = SimpleNamespace(bias=ts.array(2.0), table=np.arange(3.0))
    f = jit(lambda x: x * float(held.bias) + float(np.sum(held.table)))
    assert number(f(ONE)) == 5
    held.bias = ts.array(3.0)
    assert number(f(ONE)) == 6
    held.table = np.ones(3)
    assert number(f(ONE)) == 6
    held.table = np.zeros(3)
    assert number(f(ONE)) == 3


def test_elements_of_a_tensor_that_only_python_reads() -> None:
    held = SimpleNamespace(table=ts.array([1.0, 2.0]), other=ts.array([1.0, 2.0]))
    for read in (
        lambda table: np.asarray(table).sum(),
        lambda table: sum(table.tolist()),
        lambda table: table.numpy().sum(),
    ):
        held.table = ts.array([1.0, 2.0])
        f = jit(lambda x, read=read: x * float(read(held.table)) + held.other.shape[0])
        assert number(f(ONE)) == 5
        held.table = ts.array([2.0, 3.0])
        assert number(f(ONE)) == 7
        held.other = ts.array([7.0, 7.0])  # only its shape was read
        assert number(f(ONE)) == 7
        assert f.cache_info().misses == 2


def test_a_tensor_that_is_an_input_and_read_besides() -> None:
    held = SimpleNamespace(w=ts.array([4.0]))
    f = jit(lambda x: x * held.w / float(np.asarray(held.w).max()))
    assert number(f(ONE)) == 1
    held.w = ts.array([8.0])
    assert number(f(ONE)) == 1


def test_a_large_table_is_one_place() -> None:
    table = {f"word {at}": at for at in range(1000)}
    f = jit(lambda x: x * table["word 7"])
    assert number(f(ONE)) == 7
    table["word 7"] = 9
    assert number(f(ONE)) == 9
    table["word 1000"] = table.pop("word 999")
    f(ONE)
    assert f.cache_info().misses == 3
    assert len(CapturedVariables(f.function, {}).variables) == 2


def test_asking_for_attributes_by_name_does_not_open_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = ModuleType("config_of_a_program")
    config.scale, config.unread = 2, 1
    monkeypatch.setitem(sys.modules, "config_of_a_program", config)
    held = SimpleNamespace(first=1)
    body: Any = lambda x: x * config.scale + getattr(held, "first")  # noqa: B009, E731
    paths = {one.path for one in CapturedVariables(body, {}).variables}
    assert {"config.scale", "held.first"} <= paths
    assert "config.unread" not in paths


def test_a_tensor_made_while_tracing_is_a_constant_that_says_so() -> None:
    held = SimpleNamespace(weight=tensor(3))
    f = jit(lambda x: x * np.full(1, 2.0, F32) + held.weight)
    assert number(f(ONE)) == 5
    assert f.specializations[0].captures.paths == ["", "held.weight"]
    text = str(f.explain(ONE))
    assert "captured: `held.weight`, read at each call" in text
    assert "captured: a constant made while tracing" in text


def test_few_variants_of_a_signature_are_kept() -> None:
    held = SimpleNamespace(step=0)
    f = jit(lambda x: x * held.step)
    for step in range(40):
        held.step = step
        assert number(f(ONE)) == step
    assert f.cache_info().size == 16


def test_equal_numbers_in_other_objects_are_not_retraced(monkeypatch: pytest.MonkeyPatch) -> None:
    f = jit(lambda x: x * SCALE)
    for text in ("1e300", "1e300", "nan", "nan"):
        monkeypatch.setitem(globals(), "SCALE", float(text))
        f(ONE)
    assert f.cache_info().misses == 2


@dataclass
class Node:
    """A piece of a random world."""

    value: Any = 0
    inner: list[Any] = field(default_factory=list)


@st.composite
def worlds(draw: Any) -> tuple[Node, list[tuple[Any, Any]]]:
    """Some nodes, joined at random, and a list of changes."""
    nodes = [Node(draw(st.integers(0, 3))) for _ in range(draw(st.integers(1, 5)))]
    for at, node in enumerate(nodes[1:], 1):
        nodes[draw(st.integers(0, at - 1))].inner.append(node)
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(nodes) - 1))
        nodes[draw(st.integers(0, at))].inner.append(nodes[at])
    changes = draw(
        st.lists(st.tuples(st.sampled_from(range(len(nodes))), st.sampled_from([0, 1, "t1", "t2", "pop"])), max_size=6)
    )
    return nodes[0], [(nodes[at], change) for at, change in changes]


@given(worlds())
def test_a_jitted_function_of_a_random_world_is_what_the_function_is(world: Any) -> None:
    root, changes = world

    def total(node: Node, level: int = 0) -> Any:
        own = node.value
        for item in node.inner:
            if level < 6:
                own = own * 2 + total(item, level + 1)
        return own

    def body(x: Any) -> Any:
        return x + total(root)

    f = jit(body)
    assert number(f(ONE)) == number(body(ONE))
    for node, change in changes:
        if change == "pop":
            node.inner[:] = node.inner[1:]
        else:
            node.value = tensor(int(change[1])) if isinstance(change, str) else change
        assert number(f(ONE)) == number(body(ONE))
