"""The derivatives that a kernel is given: used in all transforms, and checked where they are asked for."""

# Derivatives take whatever tensors are: their types are checked when they are traced.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.diagnostics.codes import ArgumentError, DTypeError, KernelError, PytreeError, ShapeError
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


def product() -> tuple[Any, list[str]]:
    """A product with a derivative, and the calls of the derivative."""
    made, calls = fresh(kernels.matmul), list[str]()

    @made.defvjp
    def product_gradients(a: Any, b: Any, out: Any, d_out: Any) -> Any:
        calls.append("vjp")
        return made(d_out, b.T), made(a.T, d_out)

    assert made.vjp is product_gradients
    assert "with vjp `product_gradients`" in repr(made)
    return made, calls


RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((5, 6)).astype(np.float32), RNG.standard_normal((6, 7)).astype(np.float32)


def test_a_forward_program_is_that_of_the_kernel_alone() -> None:
    made, calls = product()
    assert "vjp" not in repr(fresh(kernels.matmul))
    program = ts.jit(lambda a, b: made(a, b) * 2.0)
    plain = ts.jit(lambda a, b: kernels.matmul(a, b) * 2.0)
    np.testing.assert_array_equal(np.asarray(program(ones(5, 6), ones(6, 7))), 12.0)
    assert calls == []
    assert program.lower(A, B).graph == plain.lower(A, B).graph


def test_the_derivative_is_used_in_jit_grad_and_vmap() -> None:
    made, calls = product()

    def loss(a: Any, b: Any) -> Any:
        return (made(a, b) ** 2.0).sum()

    found = ts.jit(ts.grad(loss, (0, 1)))(A, B)
    assert calls == ["vjp"]
    for mine, own in zip(found, (2 * A @ B @ B.T, A.T @ (2 * A @ B)), strict=True):
        np.testing.assert_allclose(np.asarray(mine), own, rtol=2e-5, atol=2e-5)
    each = ts.vmap(ts.grad(loss), in_axes=(0, None))(np.stack([A, 2 * A]), B)
    np.testing.assert_allclose(np.asarray(each)[1], 4 * A @ B @ B.T, rtol=2e-5, atol=2e-5)
    whole = ts.grad(lambda b: (ts.vmap(made, in_axes=(0, None))(np.stack([A, A]), b) ** 2.0).sum())(B)
    np.testing.assert_allclose(np.asarray(whole), 2 * (A.T @ (2 * A @ B)), rtol=2e-5, atol=2e-5)


def test_second_derivatives_go_through_the_derivative() -> None:
    made, calls = product()
    first = ts.grad(lambda a: (made(a, ts.array(B)) ** 2.0).sum())
    found = ts.grad(lambda a: (first(a) * a).sum())(A)
    np.testing.assert_allclose(np.asarray(found), 4 * A @ B @ B.T, rtol=2e-5, atol=2e-5)
    assert len(calls) > 1


def test_a_rule_for_forward_mode_gives_both_modes() -> None:
    made, calls = fresh(kernels.matmul), list[str]()

    @made.defjvp
    def change(primals: Any, tangents: Any) -> Any:
        calls.append("jvp")
        (a, b), (da, db) = primals, tangents
        return made(a, b), da @ b + a @ db

    pushed = ts.jvp(made, (A, B), (A, B))[1]
    np.testing.assert_allclose(np.asarray(pushed), 2 * A @ B, rtol=2e-5, atol=2e-5)
    found = ts.grad(lambda a: (made(a, ts.array(B)) ** 2.0).sum())(A)
    np.testing.assert_allclose(np.asarray(found), 2 * A @ B @ B.T, rtol=2e-5, atol=2e-5)
    assert calls == ["jvp", "jvp"]
    made.defvjp(lambda a, b, out, d_out: (3.0 * d_out @ b.T, None))
    found = ts.grad(lambda a: made(a, ts.array(B)).sum())(A)
    np.testing.assert_allclose(np.asarray(found), 3 * ones(5, 7) @ B.T, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(np.asarray(ts.jvp(made, (A, B), (A, B))[1]), 2 * A @ B, rtol=2e-5, atol=2e-5)


def test_forward_and_backward_are_as_those_of_a_function() -> None:
    made = fresh(scaled)
    made.defvjp(
        lambda x, *, factor: (made(x, factor=factor), {"shape": x.shape, "by": factor}),
        lambda residuals, d_out: (d_out * residuals["by"] * 10.0,),
    )
    found = ts.grad(lambda x: made(x, factor=3.0).sum())(ones(2, 3, 5, 8))
    np.testing.assert_array_equal(np.asarray(found), 30.0)


def test_a_registered_kernel_has_its_derivative_as_an_op() -> None:
    made, _ = product()
    made.register("own_product")
    try:
        own: Any = vars(ts.ops)["own_product"]
        found = ts.jit(ts.grad(lambda a: own(a, ts.array(B)).sum()))(A)
        np.testing.assert_allclose(np.asarray(found), ones(5, 7) @ B.T, rtol=2e-5, atol=2e-5)
    finally:
        delattr(ts.ops, "own_product")


def test_a_derivative_sees_operands_as_they_were_given_and_statics_by_name() -> None:
    made, seen = fresh(scaled), list[Any]()

    @made.defvjp
    def derivative(x: Any, out: Any, d_out: Any, *, factor: float) -> Any:
        seen.append((len(x.shape), len(out.shape), factor))
        return d_out * factor

    found = ts.grad(lambda x: made(x, factor=3.0).sum())(ones(2, 3, 5, 8))
    np.testing.assert_array_equal(np.asarray(found), 3.0)
    assert set(seen) == {(4, 4, 3.0)}


def test_integers_have_no_gradient() -> None:
    rows = np.array([2, 0, 2], np.int32)
    made = fresh(picked)
    made.defvjp(lambda x, ids, out, d_out: (ts.ops.zeros_like(x).at[ids].add(d_out), None))
    found = ts.grad(lambda x: made(x, ts.array(rows)).sum())(ones(4, 8))
    np.testing.assert_array_equal(np.asarray(found)[:, 0], [1, 0, 2, 0])
    other = fresh(picked)
    other.defvjp(lambda x, ids, out, d_out: (x * 0.0, ids))
    with pytest.raises(DTypeError, match=r"`ids` of `picked`, which is \[3\] i32, and i32 has no derivative"):
        ts.grad(lambda x: other(x, ts.array(rows)).sum())(ones(4, 8))


def test_two_results_have_two_gradients() -> None:
    made = fresh(both)
    with pytest.raises(
        KernelError, match=r"1 operands, 2 results .* 5 tensors in all, and `<lambda>` takes 3"
    ) as caught:
        made.defvjp(lambda x, out, d_out: d_out)
    assert caught.value.fix is not None
    assert "def derivative(x, low, high, d_low, d_high)" in caught.value.fix.message
    made.defvjp(lambda x, low, high, d_low, d_high: ts.ops.where(x < 0.0, d_low, d_high))
    found = ts.grad(lambda x: (made(x)[0] * 2.0 + made(x)[1] * 3.0).sum())(np.array([[-1.0, 1.0]], np.float32))
    np.testing.assert_array_equal(np.asarray(found), [[2.0, 3.0]])


@pytest.mark.parametrize(
    ("derivative", "error", "message"),
    [
        (lambda a, b, out, d: (d, d), ShapeError, r"`a` of `matmul` as \[5, 7\] f32, and .* \[5, 6\] f32"),
        (lambda a, b, out, d: (a, b.cast(ts.f16)), DTypeError, r"`b` of `matmul` as \[6, 7\] f16"),
        (lambda a, b, out, d: a, PytreeError, "tuple of 2 cotangents, one for each argument of `matmul`, got 1"),
        (lambda a, b, out, d: ("x", None), PytreeError, "'x' of type `str`, which is no tensor"),
        (3, ArgumentError, "takes `function` as a function, got 3"),
    ],
    ids=["shape", "dtype", "count", "text", "no function"],
)
def test_a_derivative_that_does_not_fit_is_refused(derivative: Any, error: Any, message: str) -> None:
    made = fresh(kernels.matmul)

    def call() -> None:
        made.defvjp(derivative)
        ts.grad(lambda a, b: made(a, b).sum())(ones(5, 6), ones(6, 7))

    with pytest.raises(error, match=message):
        call()


def test_a_kernel_of_a_derivative_may_need_numbers() -> None:
    made = fresh(kernels.vector_add)
    made.defvjp(lambda x, y, out, d: (kernels.softmax(d.reshape(1, -1)).reshape(-1), d))
    found = ts.grad(lambda x: made(x, x).sum())(ones(40))
    np.testing.assert_allclose(np.asarray(found), 1 / 40 + 1, rtol=1e-6)
