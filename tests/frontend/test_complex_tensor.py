"""Complex tensors: how they are made and taken apart, arithmetic, movement and products, and all transforms of them."""

# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DTypeError, OperatorError, ShapeError, TracingError

Array = np.ndarray[Any, Any]


def drawn(*shape: int, seed: int = 0, dtype: Any = np.complex128) -> Array:
    rng = np.random.default_rng(seed)
    return (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)


def check(found: Any, expected: Any, terms: int = 4) -> None:
    """Equal up to the rounding of so many sums and products of numbers about 1."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert (found.dtype.kind, expected.dtype.kind) in (("c", "c"), ("f", "f"), ("b", "b"), ("i", "i"))
    if found.dtype.kind in "bi":
        np.testing.assert_array_equal(found, expected)
        return
    largest = np.abs(expected).max(initial=1.0)
    assert np.abs(found - expected).max(initial=0.0) <= terms * np.finfo(found.dtype).eps * largest


@pytest.mark.parametrize("values", [[1, 2j], [[1.5 - 2j]], 3j, (1j, True), [[1j, 2], [3, 4.5]]])
def test_numbers_and_arrays_become_complex_tensors(values: Any) -> None:
    expected = np.array(values)
    for made in (ts.array(values), ts.array(expected), ts.asarray(expected), ts.array(expected.astype(np.complex64))):
        np.testing.assert_array_equal(np.asarray(made), expected)
        assert (made.shape, made.ndim, made.size) == (expected.shape, expected.ndim, expected.size)
    assert ts.array(values).dtype is ts.c64
    assert (
        ts.array(expected).dtype is ts.array(values, ts.c128).dtype is ts.array(values, "complex128").dtype is ts.c128
    )


def test_real_tensors_become_complex_ones_where_the_dtype_says_so() -> None:
    x = ts.array([1.0, 2.0])
    for made in (ts.array([1, 2], ts.c64), ts.array(x, np.complex64), x.astype(ts.c64), ops.cast(x, ts.c64)):
        assert made.dtype is ts.c64
        assert made.tolist() == [1, 2]
    assert ts.zeros((2,), ts.c64).tolist() == [0, 0]
    assert ts.ones((1, 0), ts.c128).shape == (1, 0)
    assert ts.full((2,), 1j).tolist() == [1j, 1j]
    np.testing.assert_array_equal(np.asarray(ops.eye(2, dtype=ts.c64)), np.eye(2))
    assert ops.zeros_like(made).dtype is ops.ones_like(made).dtype is ops.full_like(made, 2j).dtype is ts.c64


def test_a_complex_tensor_goes_to_numpy_torch_and_python() -> None:
    torch = pytest.importorskip("torch")
    array = drawn(2, 3)
    z = ts.array(array)
    np.testing.assert_array_equal(np.from_dlpack(z), array)
    np.testing.assert_array_equal(torch.from_dlpack(z).numpy(), array)
    np.testing.assert_array_equal(np.asarray(ts.array(torch.tensor(array))), array)
    assert z.tolist() == array.tolist()
    assert complex(z[1, 2]) == z[1, 2].item() == array[1, 2]
    assert bool(z[0, 0])
    assert not bool(z[0, 0] * 0)
    assert len(z) == 2
    np.testing.assert_array_equal(np.asarray([row.numpy() for row in z]), array)
    np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(z))), array)
    assert repr(ts.array([1 + 2j, -1j])) == "ComplexTensor([2] c64, [1+2j, -0-1j])"
    assert z.to_device(z.device).dtype is ts.c128
    assert hash(z) == hash(z)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic_broadcasts_and_promotes(name: str) -> None:
    function, reference = (
        getattr(ops, name),
        {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[name],
    )
    a, b, x = drawn(2, 1, 3), drawn(4, 1, seed=1), np.arange(1.0, 4.0)
    for one, other in ((a, b), (a, x), (x, b), (a, 2 - 1j), (2 - 1j, a), (a, 2.5), (2.5, a), (x, 1j)):
        found = function(*(ts.array(value) if isinstance(value, np.ndarray) else value for value in (one, other)))
        check(found, reference(one, other), 8)
    narrow = ts.array(a, ts.c64)
    assert function(narrow, 2.5).dtype is function(1j, narrow).dtype is function(narrow, ts.ones((1,), "bf16")).dtype
    assert function(narrow, 2.5).dtype is ts.c64
    assert function(narrow, ts.array(x)).dtype is function(narrow, ts.array(b)).dtype is ts.c128


def test_operators_meet_tensors_arrays_and_numbers() -> None:
    array, x = drawn(3), np.array([1.0, -2.0, 4.0])
    z, real = ts.array(array), ts.array(x)
    check(1j * real - z / 2 + z * z - (1 - z), 1j * x - array / 2 + array * array - (1 - array), 16)
    check(x * z, x * array)
    check(np.float64(2.0) * z, 2 * array)
    check(-z + +z.conj(), -array + array.conj())
    check(abs(z), abs(array))
    check(z == ts.array([array[0], 0j, 0j], ts.c128), [True, False, False])
    check(z != array[0], [False, True, True])
    check(real == 1.0 + 0j, [True, False, False])
    check(z @ z, array @ array, 12)


@pytest.mark.parametrize("value", [1e300 + 1e300j, 1e-300 + 1e-300j, 3e-310j, 1e300 - 1e-300j])
def test_quotients_and_sizes_do_not_overflow(value: complex) -> None:
    z = ts.array([value], ts.c128)
    check(z / z, [1 + 0j])
    np.testing.assert_allclose(np.asarray(abs(z)), [abs(value)], rtol=1e-15)
    np.testing.assert_allclose(np.asarray(ops.sign(z)), [value / abs(value)], rtol=1e-15)


def test_quotients_by_zero_and_infinity() -> None:
    inf = float("inf")
    z = ts.array([1 + 2j, 1 + 2j, 1 + 2j], ts.c128)
    quotient = np.asarray(z / ts.array([0j, complex(inf, 1), complex(inf, inf)], ts.c128))
    assert quotient.tolist() == [complex(inf, inf), 0, 0]
    assert ops.isinf(ts.array(quotient)).tolist() == [True, False, False]
    assert ops.isfinite(ts.array(quotient)).tolist() == [False, True, True]
    assert ops.isnan(ts.array([complex(0, float("nan")), 1j])).tolist() == [True, False]


MOVES: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Any]]] = {
    "reshape": (lambda z: z.reshape(3, -1), lambda a: a.reshape(3, -1)),
    "transpose": (lambda z: ops.transpose(z, (2, 0, 1)), lambda a: a.transpose(2, 0, 1)),
    "T": (lambda z: z.T, lambda a: a.T),
    "mT": (lambda z: z.mT, lambda a: a.swapaxes(1, 2)),
    "index": (lambda z: z[1, None, ::-1, -1], lambda a: a[1, None, ::-1, -1]),
    "mask": (lambda z: z[ts.array([True, False])], lambda a: a[[True, False]]),
    "take": (lambda z: ops.take(z, ts.array([2, 0]), 2), lambda a: a[..., [2, 0]]),
    "concat": (lambda z: ops.concat([z, z.real], 1), lambda a: np.concatenate([a, a.real], 1)),
    "stack": (lambda z: ops.stack([z, 2 * z]), lambda a: np.stack([a, 2 * a])),
    "split": (lambda z: ops.split(z, 2, 0)[1], lambda a: a[1:]),
    "flip": (lambda z: ops.flip(z, 1), lambda a: np.flip(a, 1)),
    "roll": (lambda z: ops.roll(z, 1, 2), lambda a: np.roll(a, 1, 2)),
    "pad": (
        lambda z: ops.pad(z, [(0, 0), (1, 0), (0, 2)], 1j),
        lambda a: np.pad(a, ((0, 0), (1, 0), (0, 2)), constant_values=1j),
    ),
    "tril": (lambda z: ops.tril(z), lambda a: np.tril(a)),
    "broadcast": (lambda z: ops.broadcast_to(z, (2, 2, 3, 3)), lambda a: np.broadcast_to(a, (2, 2, 3, 3))),
    "where": (lambda z: ops.where(z.real > 0, z, 1j), lambda a: np.where(a.real > 0, a, 1j)),
    "set": (lambda z: z.at[0].set(1j), lambda a: np.concatenate([np.full_like(a[:1], 1j), a[1:]])),
    "add": (lambda z: z.at[..., 0].add(z[..., 1]), lambda a: a + a[..., 1:2] * np.array([1, 0, 0])),
    "repeat": (lambda z: z.repeat(2, 1), lambda a: np.repeat(a, 2, 1)),
    "diagonal": (lambda z: z.diagonal(0, 1, 2), lambda a: a.diagonal(0, 1, 2)),
    "sum": (lambda z: z.sum(1), lambda a: a.sum(1)),
    "mean": (lambda z: z.mean((0, 2), keepdims=True), lambda a: a.mean((0, 2), keepdims=True)),
    "prod": (lambda z: z.prod((0, 2)), lambda a: a.prod((0, 2))),
    "cumsum": (lambda z: z.cumsum(1), lambda a: a.cumsum(1)),
    "cumprod": (lambda z: z.cumprod(1), lambda a: a.cumprod(1)),
    "var": (lambda z: z.var(1), lambda a: a.var(1)),
    "std": (lambda z: z.std(1), lambda a: a.std(1)),
    "norm": (lambda z: ops.norm(z, 1), lambda a: np.linalg.norm(a, axis=1)),
    "diff": (lambda z: ops.diff(z, 1, 1, prepend=z[:, :1]), lambda a: np.diff(a, 1, 1, prepend=a[:, :1])),
    "any": (lambda z: ops.any(z, 1), lambda a: a.any(1)),
    "count": (lambda z: ops.count_nonzero(z), lambda a: np.count_nonzero(a)),
    "trace": (lambda z: z.trace(0, 1, 2), lambda a: a.trace(0, 1, 2)),
    "angle": (lambda z: ops.angle(z), lambda a: np.angle(a)),
    "square": (lambda z: ops.square(z), lambda a: np.square(a)),
    "reciprocal": (lambda z: ops.reciprocal(z), lambda a: 1 / a),
}


@pytest.mark.parametrize("name", MOVES)
def test_functions_on_both_parts_equal_numpys(name: str) -> None:
    function, reference = MOVES[name]
    array = drawn(2, 3, 3)
    check(function(ts.array(array)), reference(array), 32)
    if name != "mask":
        check(ts.jit(function)(ts.array(array)), reference(array), 32)


PRODUCTS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Any]]] = {
    "matmul": (lambda a, b: ops.matmul(a, b), lambda a, b: a @ b),
    "tensordot": (lambda a, b: ops.tensordot(a, b, 1), lambda a, b: np.tensordot(a, b, 1)),
    "vecdot": (lambda a, b: ops.vecdot(a, b.T), lambda a, b: np.vecdot(a, b.T)),
    "einsum": (lambda a, b: ops.einsum("ij,jk,il->kl", a, b, a), lambda a, b: np.einsum("ij,jk,il->kl", a, b, a)),
    "outer": (lambda a, b: ops.outer(a[0], b[0]), lambda a, b: np.outer(a[0], b[0])),
    "kron": (lambda a, b: ops.kron(a, b), lambda a, b: np.kron(a, b)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_equal_numpys(name: str) -> None:
    function, reference = PRODUCTS[name]
    a, b = drawn(3, 4), drawn(4, 3, seed=1)
    for one, other in ((a, b), (a.real, b), (a, b.real)):
        check(function(ts.array(one), ts.array(other)), reference(one, other), 4 * 16)


def test_products_of_nothing_and_batches() -> None:
    check(ts.array(drawn(2, 0)) @ ts.array(drawn(0, 3)), np.zeros((2, 3), np.complex128))
    a, b = drawn(2, 3, 4), drawn(4, 2, seed=1)
    check(ts.array(a) @ ts.array(b), a @ b, 32)
    assert ops.prod(ts.zeros((2, 0), ts.c64), 1).tolist() == [1, 1]
    assert ops.prod(ts.array(3j)).item() == ops.cumprod(ts.array(3j)).item() == 3j
    assert ops.cumprod(ts.zeros((0,), ts.c64)).shape == (0,)


def test_distinct_elements_are_told_by_both_parts() -> None:
    z = ts.array([[1 + 1j, 1 - 1j], [1 + 1j, 2]])
    found = ops.unique_all(z)
    assert [one.tolist() for one in found] == [[1 - 1j, 1 + 1j, 2], [1, 0, 3], [[1, 0], [1, 2]], [1, 2, 1]]
    assert ts.jit(lambda z: ops.unique(z, size=4))(z).tolist() == [1 - 1j, 1 + 1j, 2, 2]


# Transforms take a complex tensor for what it is: a container of two real ones.


def test_one_program_serves_all_sizes() -> None:
    function = ts.jit(lambda a, b: (a @ b - 1j * a).conj() * abs(b).sum(), dynamic=True)
    for size in (1, 3):
        a, b = drawn(size, size), drawn(size, size, seed=1)
        check(function(ts.array(a), ts.array(b)), (a @ b - 1j * a).conj() * abs(b).sum(), 64)
    assert function.cache_info().misses == 1


def loss_of(z: Any) -> Any:
    made = (z * z - 2j / z) @ z.conj()
    return abs(made) * 0.5 + (z.real * z.imag).sum()


def test_the_gradient_of_a_real_loss_is_its_slope_by_each_part() -> None:
    array, step = drawn(4), 1e-6
    z = ts.array(array)
    slopes = np.asarray(ts.jit(ts.grad(loss_of))(z))
    for at in range(4):
        for turn in (1.0, 1j):
            ahead, behind = (float(loss_of(z.at[at].add(sign * step * turn))) for sign in (1, -1))
            along = slopes[at].real if turn == 1.0 else slopes[at].imag
            assert abs((ahead - behind) / (2 * step) - along) < 1e-6


def test_the_gradient_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    array = drawn(3)
    theirs = torch.tensor(array, requires_grad=True)
    (theirs * theirs).abs().sum().backward()
    ours = ts.grad(lambda z: abs(z * z).sum())(ts.array(array))
    check(ours, theirs.grad.numpy(), 16)


def test_batches_and_loops() -> None:
    array = drawn(4, 3)
    check(ts.vmap(lambda row: row @ row.conj())(ts.array(array)), (array * array.conj()).sum(1), 16)
    last, seen = ts.scan(lambda total, row: (total * row, total), ts.ones((3,), ts.c128), ts.array(array))
    check(last, array.prod(0), 16)
    assert seen.shape == (4, 3)
    check(ts.fori_loop(0, 3, lambda _, z: z * 1j, ts.array(array)), array * -1j)
    check(ts.cond(ts.array(True), lambda z: z, lambda z: -z, ts.array(array)), array)


def test_what_needs_a_value_or_a_size_says_so() -> None:
    z = ts.array([1j, 2.0])
    with pytest.raises(TracingError):
        ts.jit(lambda z: complex(z[0]))(z)
    with pytest.raises(ShapeError, match="`prod` of complex numbers needs a size that is a number"):
        ts.jit(lambda z: z.prod(), dynamic=True)(z)


def test_what_is_not_defined_for_complex_numbers_is_refused() -> None:
    z = ts.array([1j, 2.0])
    for function in (
        lambda: ops.sort(z),
        lambda: z < z,
        lambda: ops.maximum(z, 1.0),
        lambda: ops.relu(z),
        lambda: z // 1,
    ):
        with pytest.raises(DTypeError, match="is not defined for complex numbers"):
            function()
    with pytest.raises(DTypeError, match="`astype` does not make complex numbers f32"):
        z.astype(ts.f32)
    with pytest.raises(DTypeError, match="`array` does not make complex numbers f64"):
        ts.array([1j], ts.f64)
    with pytest.raises(DTypeError, match="no dtype holds every value of both"):
        _ = z + ts.array([1, 2])
    with pytest.raises(DTypeError, match="not defined for complex numbers"):
        z.at[0].max(1.0)
    with pytest.raises(ArgumentError, match="`complex` takes real parts"):
        ops.complex(z, 1.0)
    for convert in (float, int):
        with pytest.raises(OperatorError, match="it has two parts"):
            convert(z[0])
    with pytest.raises(OperatorError, match="tensors do not change"):
        z[0] = 1
    with pytest.raises(BufferError, match="only by a copy"):
        z.__dlpack__(copy=False)


def test_real_tensors_have_parts_too() -> None:
    x = ts.array([1.0, -2.0])
    assert ops.real(x) is ops.conj(x) is x
    assert ops.imag(x).tolist() == [0, 0]
    np.testing.assert_array_equal(np.asarray(ops.angle(x)), np.angle(np.array([1.0, -2.0], np.float32)))
    z = ops.complex(np.arange(3.0), ts.array([[1.0]]))
    assert (z.shape, z.dtype, z.tolist()) == ((1, 3), ts.c128, [[1j, 1 + 1j, 2 + 1j]])


def test_arguments_may_have_names() -> None:
    z, at = ts.array([1j, 0j, 2j]), ts.array([1])
    assert ops.any(x=z).tolist() is True
    assert ops.put_along_axis(z, at, values=ts.array([3j])).tolist() == [1j, 3j, 2j]
    assert ops.segment_sum(data=z, segment_ids=ts.array([0, 0, 0]), num_segments=1).tolist() == [3j]
    wrong: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (ops.exp, (z, z), {}), (ops.exp, (), {"y": z}), (ops.add, (z,), {}), (ops.outer, (z,), {}),
    ]  # fmt: skip
    for function, args, given in wrong:
        with pytest.raises(ArgumentError, match="of `"):
            function(*args, **given)
