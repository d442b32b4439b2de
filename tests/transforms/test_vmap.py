"""`vmap` equals a loop: every op from its samples, and functions with control flow, indices, keys and kernels."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops, tile
from tessera.diagnostics.codes import (
    ArgumentError,
    AxisError,
    DifferentiationError,
    PytreeError,
    RuntimeArgumentError,
    ShapeError,
)
from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.spec import OpSpec, Sample
from tessera.ir.base.tape import Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.transforms.batch import batch_tape
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.types.dim import Dim
from tessera.types.shape import TensorType
from tests.transforms.programs import Array, run

SIZE = 3
RNG = np.random.default_rng(11)
X, W = RNG.standard_normal((5, 4)), RNG.standard_normal((4, 3))


def _elements(sample: Sample) -> list[list[Array]]:
    """The operands of a sample, drawn once for each element of a batch."""
    return [[np.asarray(array) for array in sample.make(np.random.default_rng(seed))] for seed in range(SIZE)]


def _program(spec: OpSpec, sample: Sample, arrays: list[Array]) -> Tape:
    builder = TapeBuilder()
    types = [TensorType.of(array.shape, dtype_of(array)) for array in arrays]
    operands = add_inputs(builder.tape, types, [f"x{at}" for at in range(len(types))])
    builder.tape.outputs = list(builder.append(spec, operands, spec.with_defaults(sample.attributes)))
    return builder.tape


LOOPS = {
    "attention_parts": (0, 1, 2, 3),
    "attention_join": (0, 1, 2),
    "join_segments": (0,),
    "unfold": (0,),
    "dot_windows": (0, 1),
    "cached_attention": (3,),
    "kv_append": (2,),
    "kv_write": (1,),
    **dict.fromkeys(("ragged_dot", "ragged_outer"), (0, 1, 2)),
    "ragged_blocks": (0, 1, 2, 3, 4),
}
"""Ops that run for one element after the other where one of these operands differs in the batch: lengths, groups."""


def _check(tape: Tape, elements: list[list[Array]], is_batched: tuple[bool, ...], what: str) -> None:
    batched, flags = batch_tape(tape, is_batched, Dim.of(SIZE))
    may_loop = any(is_batched[at] for at in LOOPS.get(REGISTRY[tape.records[0].op].short_name, ()))
    assert may_loop or not any(record.op == "tgraph.scan" for record in batched.records), f"{what} is a loop"
    stacked = [
        np.stack([one[at] for one in elements]) if flag else elements[0][at] for at, flag in enumerate(is_batched)
    ]
    outputs = run(batched, stacked)
    for number in range(SIZE):
        own = [elements[number if flag else 0][at] for at, flag in enumerate(is_batched)]
        for found, flag, expected in zip(outputs, flags, run(tape, own), strict=True):
            mine = found[number] if flag else found
            assert mine.shape == expected.shape, what
            assert mine.tobytes() == expected.tobytes() or np.allclose(
                mine.astype(np.float64), expected.astype(np.float64), rtol=1e-5, atol=1e-5, equal_nan=True
            ), what


@pytest.mark.parametrize(
    "spec", [spec for spec in REGISTRY if spec.samples and spec.operands], ids=lambda spec: spec.short_name
)
def test_a_batch_of_an_op_is_the_op_of_each(spec: OpSpec) -> None:
    for sample in spec.samples:
        elements = _elements(sample)
        shapes = {tuple(array.shape for array in one) for one in elements}
        if len(shapes) > 1 or sum(array.size for array in elements[0]) > 1200:
            continue
        tape, count = _program(spec, sample, elements[0]), len(elements[0])
        alone = [tuple(at == one for at in range(count)) for one in range(count)]
        others = [tuple(at != one for at in range(count)) for one in range(count)]
        for is_batched in sorted({(True,) * count, *alone, *others} - {(False,) * count}):
            _check(tape, elements, is_batched, f"{spec.name}, {sample.name}, {is_batched}")


@pytest.mark.parametrize(
    "spec", [spec for spec in REGISTRY if spec.samples and spec.operands], ids=lambda spec: spec.short_name
)
def test_a_batch_of_none_or_one_has_its_shape(spec: OpSpec) -> None:
    for sample, size in product(spec.samples[:2], (0, 1)):
        arrays = _elements(sample)[0]
        tape = _program(spec, sample, arrays)
        expected = run(tape, arrays)
        batched, flags = batch_tape(tape, (True,) * len(arrays), Dim.of(size))
        found = run(batched, [np.repeat(array[None], size, axis=0) for array in arrays])
        for one, flag, own in zip(found, flags, expected, strict=True):
            assert (one.shape, one.dtype) == (((size, *own.shape) if flag else own.shape), own.dtype), sample.name
            wide = one.astype(np.float64), np.broadcast_to(own, one.shape).astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=1e-5, atol=1e-5, err_msg=sample.name)


FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "matmul": (lambda x: ops.tanh(x @ ts.array(W)), (X,)),
    "scan": (lambda v: ts.scan(lambda c, r: (c * r, c + r), ops.ones((), ts.f64), v), (X,)),
    "scan with its own start": (lambda v: ts.scan(lambda c, r: (c * r, c), v[0], ts.array(X[0]))[1], (X,)),
    "fori": (lambda v: ts.fori_loop(0, 4, lambda i, c: c + v[i] * v[i], ops.zeros((), ts.f64)), (X,)),
    "cond, each its own": (lambda v: ts.cond(v.sum() > 0, lambda: v.sum(), lambda: -v.max()), (X,)),
    "while": (lambda v: ts.while_loop(lambda u: u < 100.0, lambda u: u * 2.0, v), (np.abs(X[:, 0]) + 1,)),
    "index": (lambda v, i: v[i], (X, np.array([0, 3, 1, 2, 1]))),
    "at": (lambda v, i: v.at[i].add(10.0), (X, np.array([0, 3, 1, 2, 1]))),
    "sort": (lambda v: ops.sort(v), (X,)),
    "gradient of each": (ts.grad(lambda x: (ops.sin(x) * x).sum()), (X,)),
    "second derivatives of each": (ts.hessian(lambda x: (x * x * x).sum()), (X,)),
    "nested": (ts.vmap(lambda a: a * 2.0), (X,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_batch_is_the_function_of_each(name: str) -> None:
    function, arguments = FUNCTIONS[name]
    found = ts.vmap(function)(*arguments)
    single = ts.jit(function)
    rows: list[Any] = [single(*(argument[at] for argument in arguments)) for at in range(len(arguments[0]))]
    both: Any = (found, rows) if not isinstance(found, tuple) else (found[1], [row[1] for row in rows])
    np.testing.assert_allclose(np.asarray(both[0]), np.stack([np.asarray(row) for row in both[1]]), rtol=1e-12)


def test_the_batch_is_where_the_axes_say() -> None:
    both = np.stack([W, 2 * W], axis=2)
    found = ts.vmap(lambda v, w: v @ w, in_axes=(None, 2), out_axes=-1)(X[0], both)
    np.testing.assert_allclose(np.asarray(found), np.stack([X[0] @ W, X[0] @ (2 * W)], axis=1), rtol=1e-12)
    tree = ts.vmap(
        lambda d: {"s": d["a"] + d["b"], "n": d["b"]}, in_axes=({"a": 0, "b": None},), out_axes={"s": 1, "n": None}
    )
    made = tree({"a": X, "b": X[0]})
    np.testing.assert_allclose(np.asarray(made["s"]), (X + X[0]).T)
    np.testing.assert_allclose(np.asarray(made["n"]), X[0])


def test_keys_draw_what_each_draws() -> None:
    keys = np.stack([np.asarray(ts.random.key(seed)) for seed in range(3)])
    found = ts.vmap(lambda key: ts.random.normal(key, (4,)))(keys)
    each = np.stack([np.asarray(ts.random.normal(ts.random.key(seed), (4,))) for seed in range(3)])
    assert np.asarray(found).tobytes() == each.tobytes()


def test_gradients_and_batches_commute() -> None:
    one = lambda w, x: ops.sin(x @ w).sum()  # noqa: E731
    each = ts.vmap(ts.grad(one), in_axes=(None, 0))(W, X)
    whole = ts.grad(lambda w: ts.vmap(one, in_axes=(None, 0))(w, X).sum())(W)
    np.testing.assert_allclose(np.asarray(each).sum(0), np.asarray(whole), rtol=1e-12)
    pushed = ts.jvp(lambda w: ts.vmap(one, in_axes=(None, 0))(w, X), (W,), (W,))[1]
    np.testing.assert_allclose(np.asarray(pushed), (np.asarray(each) * W).sum((1, 2)), rtol=1e-12)


@ts.kernel
def double_rows(a: ts.KTile["M", "N", ts.f32]):
    rows = tile.context()
    return tile.load(a, rows=rows.m, cols=rows.n) * 2.0


def test_a_kernel_runs_for_each() -> None:
    x = RNG.standard_normal((3, 5, 8)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(ts.vmap(lambda v: double_rows(v) + 1.0)(x)), x * 2 + 1)


def test_annotations_are_those_of_one_element() -> None:
    @ts.jit
    def norm(x: ts.Tensor["D", ts.f64]) -> ts.Tensor[ts.f64]:
        return (x * x).sum()

    np.testing.assert_allclose(np.asarray(ts.vmap(norm)(X)), (X * X).sum(1), rtol=1e-12)
    with pytest.raises(RuntimeArgumentError, match=r"`x` must have 2 dims, got 3: \[1, 5, 4\]"):
        ts.vmap(norm)(X[None])


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (
            lambda: ts.vmap(lambda a, b: a + b)(X, X[:3]),
            ShapeError,
            "one size, got 5 of argument 0 and 3 of argument 1",
        ),
        (lambda: ts.vmap(lambda a: a, in_axes=2)(X), AxisError, "axis 2 of argument 0"),
        (lambda: ts.vmap(lambda a: a, in_axes=(0, 0))(X), ArgumentError, "2 arguments"),
        (lambda: ts.vmap(lambda a: a, in_axes=None)(X), ArgumentError, "at least one argument"),
        (lambda: ts.vmap(lambda a: a)(3.0), AxisError, "has no axes"),
        (lambda: ts.vmap(lambda a: a, out_axes=None)(X), ArgumentError, "differs in the batch"),
        (lambda: ts.vmap(lambda a: a, out_axes=5)(X), AxisError, "axis 5"),
        (lambda: ts.vmap(lambda a: a, in_axes=({"a": 0},))(X), PytreeError, "in_axes"),
        (
            lambda: ts.vmap(lambda n: ts.fori_loop(0, n, lambda i, c: c + 1.0, ops.zeros(())))(np.arange(3)),
            DifferentiationError,
            "bounds differ",
        ),
        (
            lambda: ts.vmap(lambda n: ts.fori_loop(n, 3, lambda i, c: c + 1.0, ops.zeros(())))(np.arange(3)),
            DifferentiationError,
            "bounds differ",
        ),
    ],
)
def test_wrong_calls_say_what_is_wrong(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def test_defaults_that_nobody_passes_are_shared() -> None:
    def scale(x: Any, by: Any = 2.0, plus: Any = None, *, mode: str = "mul") -> Any:
        made = x * by if mode == "mul" else x / by
        return made if plus is None else made + plus

    for batched in (ts.vmap(scale), ts.jit(ts.vmap(scale)), ts.vmap(ts.jit(scale, static_argnames="mode"))):
        np.testing.assert_array_equal(np.asarray(batched(X)), X * 2)
        np.testing.assert_array_equal(np.asarray(batched(X, plus=X)), X * 2 + X)
    np.testing.assert_array_equal(np.asarray(ts.vmap(scale, in_axes=(0, None))(X, 3.0)), X * 3)
    np.testing.assert_array_equal(np.asarray(ts.vmap(scale, in_axes=(0, None, 0))(X, 3.0, X)), X * 3 + X)
    with pytest.raises(AxisError, match="has no axes"):
        ts.vmap(scale)(X, 3.0)


def test_one_program_serves_all_sizes_of_a_batch_where_dims_are_symbolic() -> None:
    def dot(x: ts.Tensor["D", ts.f64], batch: ts.Tensor["batch", ts.f64]) -> ts.Tensor[ts.f64]:
        return (x * x).sum() + batch.sum()

    batched = ts.vmap(dot, in_axes=(0, None))
    for size in (5, 1, 3, 2):
        np.testing.assert_allclose(np.asarray(batched(X[:size], X[0])), (X[:size] ** 2).sum(1) + X[0].sum(), rtol=1e-13)
    assert len(batched.specializations) == 1  # pyright: ignore[reportFunctionMemberAccess]
    twice = ts.vmap(batched, in_axes=(None, 0))
    np.testing.assert_allclose(np.asarray(twice(X, X)), (X**2).sum(1) + X.sum(1)[:, None], rtol=1e-13)
    last = ts.vmap(lambda x: x * 2.0, in_axes=-1, out_axes=-1)
    np.testing.assert_array_equal(np.asarray(last(X)), X * 2)


def test_a_captured_key_draws_the_same_for_all() -> None:
    key = ts.random.key(3)
    found = np.asarray(ts.vmap(lambda x: x + ts.random.normal(key, (4,), dtype=ts.f64))(X))
    np.testing.assert_array_equal(found, X + np.asarray(ts.random.normal(key, (4,), dtype=ts.f64)))
