"""Free dims keep apart, stretch where they are slices of one element, and are never fixed by what the program says."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.diagnostics.codes import GuardError, ShapeError, SpecializationError
from tessera.frontend.bind import dim_name
from tessera.frontend.shape_inference import least_value_for_one, resolve_min_max
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.shape import normalize_slice

F32 = np.float32


def zeros(*shape: int) -> Any:
    return np.zeros(shape, F32)


def shapes(function: Any, *arguments: Any) -> list[str]:
    tape = function.trace(*arguments).tape
    return [str(tape.types[value]) for value in tape.inputs]


def test_names_that_look_like_coordinates_stay_apart() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["d0", ts.f32], y: ts.Tensor["d0_", ts.f32], z: ts.Tensor["d0__", ts.f32]) -> Any:
        return x.sum() + y.sum() + z.sum()

    assert len(set(shapes(f, zeros(1), zeros(2), zeros(3)))) == 3
    assert float(np.asarray(f(np.ones(1, F32), np.ones(2, F32), np.ones(3, F32)))) == 6


@given(st.lists(st.from_regex(r"[a-z]\d?_{0,3}", fullmatch=True), unique=True, max_size=8))
def test_two_names_never_become_one(names: list[str]) -> None:
    assert len({dim_name(name) for name in names}) == len(names)


def test_paths_that_are_one_word_stay_apart() -> None:
    f = ts.jit(lambda a_b, a: a_b.sum() + a["b"].sum(), dynamic=True, backend="reference")
    assert len(set(shapes(f, zeros(2), {"b": zeros(3)}))) == 2
    assert float(np.asarray(f(np.ones(2, F32), {"b": np.ones(3, F32)}))) == 5


def test_a_dim_without_a_name_is_not_taken_for_one_with_it() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["y_0", ts.f32], y: ts.Tensor["_", ts.f32]) -> Any:
        return x.sum() + y.sum()

    assert len(set(shapes(f, zeros(2), zeros(3)))) == 2
    assert float(np.asarray(f(np.ones(2, F32), np.ones(3, F32)))) == 5


SLICES = {
    "first": lambda x: x + x[:1],
    "first before": lambda x: x[:1] + x,
    "last": lambda x: x * 2 + x[-1:],
    "fourth": lambda x: x[3:4] * x,
    "twice": lambda x: (x + x[:1]) * x[:1] + x[-1:],
    "where": lambda x: ts.ops.where(x > x[:1], x, x[-1:]),
    "reshaped": lambda x: x[:1].reshape(1, 1) + x,
}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", SLICES)
def test_a_slice_of_one_element_stretches(name: str, backend: str) -> None:
    body: Any = SLICES[name]

    @ts.jit(backend=backend)
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return body(x)

    plain: Any = body if name != "where" else lambda x: np.where(x > x[:1], x, x[-1:])
    for size in (5, 4, 9, 40):
        x = np.arange(size, dtype=F32) % 7 - 2
        np.testing.assert_array_equal(np.asarray(f(x)), plain(x))
    assert f.cache_info().compiles <= 1
    with pytest.raises(GuardError, match="must be"):
        f(zeros(0))


def test_two_slices_of_one_element_are_equal() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32], y: ts.Tensor["M", ts.f32]) -> Any:
        return x[:1] + y[:1]

    assert f(zeros(3), zeros(4)).shape == (1,)
    assert f(zeros(0), zeros(0)).shape == (0,)


@given(st.integers(0, 12), st.integers(-6, 6) | st.none(), st.integers(-6, 6) | st.none(), st.integers(0, 8))
def test_a_dim_under_its_bound_is_what_it_was(size: int, start: Any, stop: Any, least: int) -> None:
    *_, extent = normalize_slice(Dim.symbol("N"), start, stop, 1)
    value = extent.evaluate({"N": size + least})
    assert resolve_min_max(extent, {"N": least}).evaluate({"N": size + least}) == value
    found = least_value_for_one(extent)
    if found is not None and size + least >= found[1]:
        assert value == 1


def test_what_is_one_from_some_size_on() -> None:
    n, m = Dim.symbol("N"), Dim.symbol("M")
    assert least_value_for_one(minimum(n, 1)) == ("N", 1)
    assert least_value_for_one(n - maximum(n - 1, 0)) == ("N", 1)
    assert least_value_for_one(minimum(n, 4) - minimum(n, 3)) == ("N", 4)
    assert [least_value_for_one(dim) for dim in (n, n - 1, minimum(n, 2), minimum(n, m), Dim.constant(1))] == [None] * 5


def test_a_declared_dim_is_not_fixed_by_another_annotation() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["B", 4, ts.f32]) -> Any:
        return x @ x

    for size in (4, 3, 1, 0):
        with pytest.raises(SpecializationError, match="`B` is declared symbolic, but this op specializes it to 4"):
            f(zeros(size, 4))


@pytest.mark.parametrize("fixed", [0, 1, 4])
def test_a_declared_dim_is_not_fixed_by_a_number_in_the_program(fixed: int) -> None:
    weight = np.ones((fixed, 1), F32)

    @ts.jit(backend="reference")
    def f(x: ts.Tensor["B", ts.f32]) -> Any:
        # The weight has the size too, but it is not the weight that asks for it.
        return ts.ops.reshape(x, (fixed,)) + weight.shape[0] * ts.ops.sum(weight)

    for size in (fixed, 3):
        with pytest.raises(
            SpecializationError, match=f"`B` is declared symbolic, but this op specializes it to {fixed}"
        ):
            f(zeros(size))


def test_a_declared_dim_may_equal_one_given_undeclared() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["B", "D", ts.f32], w: Any) -> Any:
        return ts.ops.relu(x @ (w * 2.0))

    assert f(zeros(2, 4), zeros(4, 3)).shape == (2, 3)
    assert f(zeros(2, 5), zeros(5, 3)).shape == (2, 3)
    with pytest.raises(GuardError, match="`D` is 6, but it must be 5"):
        f(zeros(2, 6), zeros(5, 3))


def test_the_length_of_a_scan_is_held_against_what_it_runs_over() -> None:
    def step(total: Any, v: Any) -> Any:
        return total + v, total

    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32], y: ts.Tensor["M", ts.f32]) -> Any:
        return ts.scan(step, ts.ops.zeros(()), x, length=y.shape[0])

    assert f(zeros(3), zeros(3))[1].shape == (3,)
    with pytest.raises(GuardError, match="must be equal"):
        f(zeros(3), zeros(2))

    @ts.jit(backend="reference")
    def fixed(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.scan(step, ts.ops.zeros(()), x, length=4)

    with pytest.raises(SpecializationError, match="`N` is declared symbolic, but this op specializes it to 4"):
        fixed(zeros(4))

    @ts.jit(backend="reference")
    def longer(x: ts.Tensor["N", ts.f32]) -> Any:
        return ts.scan(step, ts.ops.zeros(()), x, length=x.shape[0] + 1)

    with pytest.raises(ShapeError, match="one length"):
        longer(zeros(4))


def test_a_traced_tensor_that_no_machine_can_address() -> None:
    @ts.jit(backend="reference")
    def f(x: ts.Tensor["N", ts.f32]) -> Any:
        return x.sum() + ts.ops.ones((2**40, 2**40), "f8e4m3").sum()

    with pytest.raises(ShapeError, match=r"1208925819614629174706176 bytes") as caught:
        f(zeros(2))
    assert caught.value.span is not None
    assert "f8e4m3" in caught.value.span.source_line
