"""The slot for a kernel's derivative: declared, checked for the types of each call, and kept in the program."""

# Derivatives take whatever tensors are: their types are checked when they are traced.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.diagnostics.codes import ArgumentError, DTypeError, KernelError, ShapeError
from tests.kernel import kernels


def ones(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def fresh(given: Any) -> Any:
    """The same kernel, without a derivative."""
    return ts.Kernel(given.definition.function)


@kernel
def scaled(x: KTile["B*H", "S", "D", f32], factor: float = 2.0) -> KTile["B*H", "S", "D", f32]:
    T = tile.context()
    return tile.load(x, T.m, T.d) * factor


@kernel
def picked(x: KTile["M", "D", f32], ids: KTile["N", ts.i32]) -> Any:
    T = tile.context()
    return tile.load(x, tile.load(ids, T.m), T.d)


@kernel
def both(x: KTile["M", "N", f32], low: KTile["M", "N", f32], high: KTile["M", "N", f32]) -> None:
    T = tile.context()
    tile.store(low, tile.minimum(tile.load(x, T.m, T.n), 0.0), T.m, T.n)
    tile.store(high, tile.maximum(tile.load(x, T.m, T.n), 0.0), T.m, T.n)


def test_the_derivative_stands_in_repr_and_program() -> None:
    made = fresh(kernels.matmul)
    assert made.vjp is None
    assert "vjp" not in repr(made)

    @made.defvjp
    def product_gradients(a: Any, b: Any, out: Any, d_out: Any) -> Any:
        return made(d_out, b.T), made(a.T, d_out)

    assert made.vjp is product_gradients
    assert "with vjp `product_gradients`" in repr(made)

    @ts.jit
    def program(a: Any, b: Any) -> Any:
        return made(a, b) * 2.0

    a, b = ones(5, 6), ones(6, 7)
    assert 'vjp = "product_gradients"' in program.lower(a, b).graph
    np.testing.assert_array_equal(np.asarray(program(a, b)), 12.0)
    assert 'vjp = "product_gradients"' in made.with_schedule(ts.Schedule(block=(32, 32, 32))).lower(a, b).graph


def test_a_derivative_sees_operands_as_they_were_given_and_statics_by_name() -> None:
    made, seen = fresh(scaled), list[Any]()

    @made.defvjp
    def derivative(x: Any, out: Any, d_out: Any, *, factor: float) -> Any:
        seen.append((len(x.shape), len(out.shape), factor))
        return d_out * factor

    assert made(ones(2, 3, 5, 8), factor=3.0).shape == (2, 3, 5, 8)
    assert seen
    assert set(seen) == {(4, 4, 3.0)}


def test_whole_numbers_have_no_gradient() -> None:
    made = fresh(picked)
    made.defvjp(lambda x, ids, out, d_out: (x * 0.0, None))
    assert made(ones(4, 8), np.zeros(3, np.int32)).shape == (3, 8)
    other = fresh(picked)
    other.defvjp(lambda x, ids, out, d_out: (x * 0.0, ids))
    with pytest.raises(DTypeError, match=r"`ids` of `picked` a gradient of .* i32, and i32 has no derivative"):
        other(ones(4, 8), np.zeros(3, np.int32))


def test_two_results_have_two_gradients() -> None:
    made = fresh(both)
    with pytest.raises(
        KernelError, match=r"1 operands, 2 results .* 5 tensors in all, and `<lambda>` takes 3"
    ) as caught:
        made.defvjp(lambda x, out, d_out: d_out)
    assert caught.value.fix is not None
    assert "def derivative(x, low, high, d_low, d_high)" in caught.value.fix.message
    made.defvjp(lambda x, low, high, d_low, d_high: ts.ops.where(x < 0.0, d_low, d_high))
    assert made(ones(4, 8))[1].shape == (4, 8)


@pytest.mark.parametrize(
    ("derivative", "error", "message"),
    [
        (lambda a, b, out, d: (d, d), ShapeError, r"`a` of `matmul` a gradient of \[M, N\], and it has \[M, K\]"),
        (lambda a, b, out, d: (a, b.cast(ts.f16)), DTypeError, "`b` of `matmul` a gradient of f16, and it is f32"),
        (lambda a, b, out, d: a, KernelError, "gives 1 gradients for 2 operands"),
        (lambda a, b, out, d: (1.0, None), KernelError, "a gradient of type float, which is no tensor"),
        (3, ArgumentError, "takes `function` as a function, got 3"),
    ],
    ids=["shape", "dtype", "count", "number", "no function"],
)
def test_a_derivative_that_does_not_fit_is_refused(derivative: Any, error: Any, message: str) -> None:
    made = fresh(kernels.matmul)

    def call() -> None:
        made.defvjp(derivative)
        made(ones(5, 6), ones(6, 7))

    with pytest.raises(error, match=message):
        call()


def test_a_kernel_of_a_derivative_may_need_numbers() -> None:
    made = fresh(kernels.vector_add)
    made.defvjp(lambda x, y, out, d: (kernels.softmax(d.reshape(1, -1)).reshape(-1), d))
    assert made(ones(40), ones(40)).shape == (40,)
