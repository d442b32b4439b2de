"""Operands that matrix instructions do not take as memory has them: which are copied first, and that values stay."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.reference.compile import run_tape
from tessera.compiler.backend import machines
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.index_maps import coordinates
from tessera.ir.schedule.emit.evaluate import Leaves
from tessera.ir.tile.facets import Pointwise
from tessera.types.shape import TensorType
from tests.graph.eager import registry
from tests.oracles.native_threads import run_kernel
from tests.oracles.nvptx_simulator import simulate
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import inputs_for, run_schedule, simplify, tensor, trace

E4M3, BF16 = ml_dtypes.float8_e4m3fn, ml_dtypes.bfloat16
GPU = {"backend": "cuda", "features": ("sm_90a",)}


def lower_program(function: Any, *arrays: Any, policy: Any = None, **overrides: Any) -> Lowering:
    jitted: Any = ts.jit(function) if policy is None else ts.jit(function, policy=policy)
    options = Options.of(**GPU, overrides=overrides)
    return lower(jitted.trace(*arrays).tape, options, keep_snapshots=("nvptx-select-mma", "schedule-form-groups"))


def units(made: Lowering) -> list[str]:
    """The units of all dots, but for those of launches with empty operands."""
    text = next(one.text for one in made.stages.snapshots if one.name == "nvptx-select-mma")
    kernels = [part for part in text.split("ttile.kernel @") if "variant_of" not in part.partition("\n")[0]]
    return [unit for kernel in kernels for unit in re.findall(r'ttile\.dot.*?unit = "([^"]+)"', kernel)]


def copies(made: Lowering) -> list[tuple[int, ...]]:
    """The shapes that are written before contractions read them."""
    text = next(one.text for one in made.stages.snapshots if one.name == "schedule-form-groups")
    found = re.findall(r'tsched\.fuse .*kind = "map".* : !tgraph\.tensor<\[([0-9, ]+)\]', text)
    return [tuple(map(int, shape.split(", "))) for shape in found]


def product(form: str, dtype: Any = None) -> Any:
    def program(x: Any, w: Any) -> Any:
        left = ts.ops.transpose(x) if form[0] == "t" else x
        right = ts.ops.transpose(w) if form[1] == "t" else w
        return ts.ops.matmul(left, right, **({} if dtype is None else {"dtype": dtype}))

    return program


def operands(form: str, sizes: tuple[int, int, int], *dtypes: Any) -> list[Any]:
    (m, n, k), rng = sizes, np.random.default_rng(sum(sizes))
    shapes = (k, m) if form[0] == "t" else (m, k), (n, k) if form[1] == "t" else (k, n)
    made: list[Any] = []
    for shape, dtype in zip(shapes, (dtypes * 2)[:2], strict=True):
        is_integer = np.issubdtype(dtype, np.integer)
        low = np.iinfo(dtype).min if is_integer else 0
        made.append((rng.integers(low, low + 256, shape) if is_integer else rng.standard_normal(shape)).astype(dtype))
    return made


UNSIGNED: list[tuple[tuple[Any, ...], Any]] = [
    *(((np.uint8,), ts.u32), ((np.uint8,), ts.i32), ((np.uint8,), None)),
    *(((np.int8, np.uint8), ts.i32), ((np.uint8, np.int8), ts.i32)),
]
"""Bytes without a sign, by themselves and with others, and what their products are added up in."""
COPIED = {"nt": 0, "nn": 1, "tt": 1, "tn": 2}
"""Operands that are copied, by how both lie in memory."""


@pytest.mark.parametrize("form", COPIED)
@pytest.mark.parametrize(
    ("dtypes", "result"),
    [((np.int8,), ts.i32), ((np.int8,), None), *UNSIGNED],
)
def test_bytes_are_on_tensor_cores_however_they_lie(form: str, dtypes: tuple[Any, ...], result: Any) -> None:
    arrays = operands(form, (70, 48, 160), *dtypes)
    made = lower_program(product(form, result), *arrays)
    assert units(made) == ["wgmma"]
    assert len(copies(made)) == COPIED[form]
    x, w = (
        one.astype(np.int64).T if side == "t" else one.astype(np.int64) for one, side in zip(arrays, form, strict=True)
    )
    (found,) = run_program(made.module, *arrays)
    assert found.tobytes() == (x @ w).astype(found.dtype).tobytes()


@pytest.mark.parametrize(("dtypes", "result"), [((np.int8,), ts.i32), ((np.int8,), None), *UNSIGNED])
def test_dots_of_bytes_are_exact_in_target_ir(dtypes: tuple[Any, ...], result: Any) -> None:
    x, w = operands("nt", (70, 48, 300), *dtypes)
    made = lower_program(product("nn", result), x, np.ascontiguousarray(w.T))
    (kernel,) = [target for target in made.targets if target.name == "ttarget.matrix_kernel"]
    wanted = x.astype(np.int64) @ w.astype(np.int64).T
    kept = np.int32 if result is ts.i32 else np.uint32 if result is ts.u32 else dtypes[0]
    found = np.zeros(wanted.shape, kept)
    simulate(kernel, [x, w, found], {})
    np.testing.assert_array_equal(found, wanted.astype(kept))


@pytest.mark.parametrize("form", COPIED)
@pytest.mark.parametrize("rows", [1, 16, 200])
def test_floats_of_one_byte_are_whatever_the_rows(form: str, rows: int) -> None:
    """Tensor cores add up in an order of their own: with some rows on them and some not, bits would differ."""
    made = lower_program(product(form, ts.f32), *operands(form, (rows, 64, 256), E4M3))
    # A single row is the same memory in both orders.
    assert (units(made), len(copies(made))) == (["wgmma"], COPIED[form] - (rows == 1 and form[0] == "t"))


@pytest.mark.parametrize("form", COPIED)
def test_tf32_is_rounded_in_the_order_that_is_wanted(form: str) -> None:
    """What lies across K is rounded on the way; the other operand is rounded as it is copied for its dot."""
    made = lower_program(product(form), *operands(form, (128, 64, 256), np.float32), policy=ts.compute(ts.tf32))
    assert (units(made), len(copies(made))) == (["wgmma"], COPIED[form])
    assert units(lower_program(product(form), *operands(form, (128, 64, 256), np.float32))) == ["multiply-adds"]


def test_two_contractions_share_a_copy() -> None:
    def program(x: Any, y: Any, w: Any) -> Any:
        return ts.ops.matmul(x, w, dtype=ts.i32), ts.ops.matmul(y, w, dtype=ts.i32)

    x, w = operands("nn", (64, 48, 96), np.int8)
    made = lower_program(program, x, x[:32], w)
    assert (units(made), copies(made)) == (["wgmma"] * 2, [(48, 96)])


def test_bytes_that_are_widened_first_are_the_same_contraction() -> None:
    def program(x: Any, w: Any) -> Any:
        return ts.ops.matmul(ts.ops.cast(x, ts.i32), ts.ops.transpose(ts.ops.cast(w, ts.i32), (1, 0)))

    arrays = operands("nt", (64, 48, 96), np.int8)
    made = lower_program(program, *arrays)
    assert (units(made), copies(made)) == (["wgmma"], [])
    (found,) = run_program(made.module, *arrays)
    x, w = (one.astype(np.int32) for one in arrays)
    assert found.tobytes() == (x @ w.T).tobytes()


def test_a_scale_is_the_epilogue_of_its_dot() -> None:
    def program(x: Any, w: Any, scale: Any) -> Any:
        return ts.ops.cast(ts.ops.cast(ts.ops.matmul(x, w, dtype=ts.i32), ts.f32) * scale, ts.bf16)

    arrays = [*operands("nn", (64, 48, 96), np.int8), np.full((64, 1), 2.0**-9, np.float32)]
    made = lower_program(program, *arrays)
    assert (units(made), copies(made)) == (["wgmma"], [(48, 96)])
    (found,) = run_program(made.module, *arrays)
    sums = arrays[0].astype(np.int32) @ arrays[1].astype(np.int32)
    assert found.tobytes() == (sums.astype(np.float32) * arrays[2]).astype(BF16).tobytes()


def test_what_instructions_do_not_multiply_is_left_alone() -> None:
    """Sums of 64 bits, vectors, floats that are taken in both orders, and machines without the instruction."""
    x, w = operands("nn", (64, 48, 96), np.int8)
    made = lower_program(product("nn", ts.i64), x, w)
    assert (units(made), copies(made)) == (["multiply-adds"], [])
    assert copies(lower_program(product("nn", ts.i32), x[0], w)) == []
    for dtype in (BF16, np.float16, np.float32):
        assert copies(lower_program(product("tn"), *operands("tn", (64, 48, 96), dtype))) == []
    plain = lower_program(product("nn", ts.i32), x, w, **{"matrix.instruction": "multiply-adds"})
    assert (units(plain), copies(plain)) == (["multiply-adds"], [])


def in_batches(x: Any, w: Any) -> Any:
    return ts.ops.dot_general(x, w, contract=((2,), (1,)), batch=((1,), (2,)))


@pytest.mark.parametrize(("k", "n", "shape"), [(37, 40, (6, 37, 40)), (40, 37, (6, 37, 40)), (37, 29, (6, 29, 37))])
def test_a_batch_that_is_innermost_is_moved_to_the_front(k: int, n: int, shape: tuple[int, ...]) -> None:
    """With K or N last: rows of one of them begin at multiples of 16 bytes, where the other's would be copied again."""
    rng = np.random.default_rng(k)
    x, w = (rng.standard_normal(size).astype(np.float16) for size in ((50, 6, k), (n, k, 6)))
    made = lower_program(in_batches, x, w)
    assert (units(made), copies(made)) == (["wgmma"], [shape])
    (found,) = run_program(made.module, x, w)
    wanted = np.einsum("mbk,nkb->bmn", x.astype(np.float64), w.astype(np.float64))
    assert np.abs(found - wanted).max() <= 2.0**-8 * np.abs(wanted).max()


@pytest.mark.parametrize(("rows", "copied"), [(1 << 9, []), (1 << 13, [(16, 64, 1 << 13)])])
def test_threads_read_a_small_operand_as_it_is(rows: int, copied: list[tuple[int, ...]]) -> None:
    x, w = np.zeros((16, 8, 64), np.float32), np.zeros((64, rows, 16), np.float32)

    def program(x: Any, w: Any) -> Any:
        return ts.ops.dot_general(x, w, contract=((2,), (0,)), batch=((0,), (2,)))

    assert [tuple(sorted(one)) for one in copies(lower_program(program, x, w))] == [tuple(sorted(s)) for s in copied]


@pytest.mark.parametrize("dtype", [np.int8, E4M3, BF16, np.float16, np.float32])
@pytest.mark.parametrize(
    ("shape", "axes"), [((200, 136), (1, 0)), ((131, 77), (1, 0)), ((3, 70, 50), (0, 2, 1)), ((40, 33, 16), (2, 1, 0))]
)
def test_copies_are_run_bit_for_bit(dtype: Any, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """The text of the kernel that writes an operand in another order, by threads of this CPU."""
    x = np.random.default_rng(0).integers(0, 256, (*shape, np.dtype(dtype).itemsize)).astype(np.uint8)
    x = np.ascontiguousarray(x).view(dtype).reshape(shape)

    def program(x: Any) -> Any:
        return ts.ops.transpose(x, axes)

    code: Any = lower(ts.jit(program).trace(x).tape, Options.of(**GPU)).code
    (one,) = code.codes
    found = np.zeros([shape[axis] for axis in axes], dtype)
    run_kernel(one, [x, found], range(-(-(one.grid.value or 0) // one.programs)))
    assert found.tobytes() == np.ascontiguousarray(x.transpose(axes)).tobytes()


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_any_order_of_dims_keeps_its_meaning(data: Any) -> None:
    """Batch, free and contracted dims of bytes in any order: exact, and on tensor cores."""
    sizes = dict(zip("bcmnkl", data.draw(st.tuples(*[st.integers(1, 5)] * 6)), strict=True))
    letters = ["".join(data.draw(st.permutations(own))) for own in ("bcmkl", "bcnkl")]
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    arrays = [rng.integers(-128, 128, [sizes[one] for one in own]).astype(np.int8) for own in letters]
    text = f"{letters[0]},{letters[1]}->bcmn"

    def program(x: Any, w: Any) -> Any:
        return ts.ops.einsum(text, x, w, dtype=ts.i32)

    made = lower_program(program, *arrays)
    (found,) = run_program(made.module, *arrays)
    assert found.tobytes() == np.einsum(text, *(one.astype(np.int32) for one in arrays)).tobytes()


TRIANGLES: dict[str, tuple[Any, tuple[str, ...], str]] = {
    "bytes": (lambda x, w: ts.ops.matmul(x, ts.ops.tril(w)), ("17 24", "24 24"), "i8"),
    "bytes transposed": (lambda x, w: ts.ops.matmul(ts.ops.transpose(ts.ops.tril(x)), w), ("24 24", "24 9"), "i8"),
    "innermost batch": (lambda x, w: ts.ops.einsum("mkb,bkn->bmn", ts.ops.tril(x), w), ("8 8 8", "8 8 8"), "bf16"),
}


@pytest.mark.parametrize("name", TRIANGLES)
def test_what_depends_on_where_an_element_is_is_not_moved(name: str) -> None:
    """A triangle of a matrix is the other one of the transposed matrix."""
    function, shapes, dtype = TRIANGLES[name]
    tape = trace(function, *[tensor(shape, dtype) for shape in shapes])
    given = inputs_for(tape, {})
    module = run_schedule(simplify(tape), steps=5, machine=machines()["sm_90a"])
    for found, wanted in zip(run_program(module, *given), run_tape(tape, given), strict=True):
        np.testing.assert_array_equal(found, wanted)


def _asking() -> dict[str, bool]:
    """Of each op that is computed element by element, whether it asks where an element is."""
    found: dict[str, bool] = {}
    for spec in registry():
        if not isinstance(spec.lower, Pointwise) or not spec.samples:
            continue
        sample = spec.samples[0]
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
        types = [TensorType.of(array.shape, dtype_of(array)) for array in arrays]
        tape = trace(lambda *x: dispatch.apply(spec.name, list(x), sample.attributes), *types)  # noqa: B023
        leaves = Leaves(tape, tape.inputs)
        leaves.visit(tape.outputs[0], coordinates(tape.types[tape.outputs[0]].rank))
        found[spec.name] = bool(leaves.numbers)
    return found


def test_every_op_that_asks_where_an_element_is_says_so() -> None:
    asking = _asking()
    assert len(asking) > 60
    said = {name: registry()[name].lower.asks_where for name in asking}
    assert {name for name in asking if asking[name] and not said[name]} == set()
    assert {"tgraph.tril", "tgraph.triu", "tgraph.iota"} <= {name for name, is_so in asking.items() if is_so}
