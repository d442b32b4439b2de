"""Derivatives of kernels: raised programs against the kernels, gradients against central differences, and refusals."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, f32, f64, kernel, tile
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.diagnostics.codes import DifferentiationError
from tessera.frontend.pytree import as_tuple
from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.graph.derivatives.kernels import raise_kernel
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs
from tessera.stdlib import efficient_layernorm, flash_attention_2, rotary_embedding, stable_softmax
from tessera.tile import INF
from tessera.types.shape import TensorType
from tests.kernel import kernels, test_gather
from tests.transforms.programs import run

RNG = np.random.default_rng(16)
BF16 = ml_dtypes.bfloat16


def normal(*shape: int, dtype: Any = np.float64) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


def small(*shape: int) -> Any:
    return normal(*shape, dtype=np.float32)


@kernel
def blend(x: KTile["M", "N"], y: KTile["M", "N"], s: KTile["M"], b: KTile["N"]) -> Any:
    """Elementwise, with a number for each row and one for each column."""
    T = tile.context()
    left, right = tile.load(x, T.m, T.n), tile.load(y, T.m, T.n)
    mixed = tile.where(left > right, tile.tanh(left) * right, tile.fma(left, right, tile.sigmoid(right)))
    return tile.gelu(mixed * tile.load(s, T.m)[:, None] + tile.load(b, T.n)[None, :])


@kernel
def rms_norm(x: KTile["M", "D"], w: KTile["D"]) -> Any:
    """Rows over their root mean square."""
    T = tile.context()
    rows = tile.load(x, T.m, T.d)
    return rows * tile.rsqrt(tile.sum(rows * rows, 1) / float(T.d) + 1e-6)[:, None] * tile.load(w, T.d)


@kernel
def row_softmax(x: KTile["M", "D"]) -> Any:
    """The softmax of rows, and their largest elements."""
    T = tile.context()
    rows = tile.load(x, T.m, T.d)
    return tile.softmax(rows), tile.max(rows, 1)


@kernel
def long_norm(x: KTile["M", "K", f64]) -> KTile["M", f64]:
    """The norm of rows, which a loop accumulates."""
    T = tile.context()
    acc = tile.zeros((T.m,), f64)
    for k in tile.range_k(x.shape, T.k):
        block = tile.load(x, T.m, k)
        acc += tile.sum(block * block, 1)
    return tile.sqrt(acc)


@kernel
def product(a: KTile["M", "K", f64], b: KTile["K", "N", f64]) -> Any:
    """A matmul with the blocks that it is given."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f64)
    for k in tile.range_k(a.shape, T.k):
        acc += tile.dot(tile.load(a, T.m, k), tile.load(b, k, T.n))
    return acc


@kernel(Schedule(block=(16, 16, 8)))
def dense(x: KTile["M", "K", f64], w: KTile["N", "K", f64], b: KTile["N", f64], r: KTile["M", "N", f64]) -> Any:
    """silu(x @ w.T + b) * 0.5 + r."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f64)
    for k in tile.range_k(x.shape, T.k):
        acc += tile.dot(tile.load(x, T.m, k), tile.load(w, T.n, k).T)
    return tile.silu(acc + tile.load(b, T.n)) * 0.5 + tile.load(r, T.m, T.n)


@kernel(Schedule(block=(4, 8, 8)))
def attend(
    q: KTile["H", "S", "D", f64], k: KTile["G", "T", "D", f64], v: KTile["G", "T", "D", f64], *, causal: bool = False
) -> Any:
    """Flash attention in f64, and the logarithm of its sums."""
    T = tile.context()
    Q = tile.load(q, rows=T.m, cols=T.d)
    acc, top, total = tile.zeros((T.m, T.d), f64), tile.full((T.m,), -INF, f64), tile.zeros((T.m,), f64)
    for n in tile.range_n(k.shape, T.n):
        S = tile.dot(Q, tile.load(k, n, cols=T.d).T) * 0.5
        if causal:
            tile.mask_causal(S, tile.row_index(), tile.col_index(n))
        P, tops, sums = tile.softmax_online(S)
        acc, top, total = tile.softmax_accumulate(acc, top, total, P, tile.load(v, n, cols=T.d), tops, sums)
    return acc / total[:, None], top + tile.log(total)


@kernel
def kept(x: KTile["M", "N", f64], out: KTile["M", "N", f64]) -> None:
    """Squares, where they are stored; zero elsewhere."""
    T = tile.context()
    block = tile.load(x, T.m, T.n)
    tile.store(out, block * block, T.m, T.n, mask=block > 0.0)


@kernel
def lower_half(x: KTile["B", "N", "N", f64]) -> Any:
    """The part under the diagonal, each matrix times its number."""
    T = tile.context()
    rows, columns = tile.row_index()[:, None], tile.col_index()[None, :]
    return tile.where(columns < rows, tile.load(x, T.m, T.n), 0.0) * 3.0


@kernel
def copied(x: KTile["M", "N", f64], out: KTile["M", "N", f64]) -> None:
    """Stored in a loop over blocks, each to its own place."""
    T = tile.context()
    for k in tile.range_k(x.shape, 4):
        tile.store(out, tile.exp(tile.load(x, T.m, k)), T.m, k)


@kernel(Schedule(block=(4, 8, 8)))
def attend_by_hand(q: KTile["S", "D", f64], k: KTile["T", "D", f64], v: KTile["T", "D", f64]) -> KTile["S", "D", f64]:
    """An online softmax to base two, by hand."""
    T = tile.context()
    Q, scale = tile.load(q, T.m, T.d), 1.4426950408889634 * 0.5
    acc, top, total = tile.zeros((T.m, T.d), f64), tile.full((T.m,), -INF, f64), tile.zeros((T.m,), f64)
    for n in tile.range_n(k.shape, T.n):
        scores = tile.dot(Q, tile.load(k, n, cols=T.d).T) * scale
        scores = tile.where(tile.col_index(n)[None, :] < k.shape[0], scores, -INF)
        new = tile.maximum(top, tile.max(scores, 1))
        rescale, P = tile.exp2(top - new), tile.exp2(scores - new[:, None])
        total = total * rescale + tile.sum(P, 1)
        acc = acc * rescale[:, None] + tile.dot(P, tile.load(v, n, cols=T.d))
        top = new
    return acc / total[:, None]


@kernel(Schedule(block=(4, 8, 8)))
def gated(x: KTile["M", "K", f64], g: KTile["K", "N", f64], u: KTile["K", "N", f64]) -> KTile["M", "N", f64]:
    """Two dots in one loop."""
    T = tile.context()
    gate, up = tile.zeros((T.m, T.n), f64), tile.zeros((T.m, T.n), f64)
    for k in tile.range_k(x.shape, T.k):
        block = tile.load(x, T.m, k)
        gate += tile.dot(block, tile.load(g, k, T.n))
        up += tile.dot(block, tile.load(u, k, T.n))
    return tile.silu(gate) * up


@kernel
def by_lanes(x: KTile["M", "K", f64]) -> KTile["M", f64]:
    """A sum of squares for each element of a step, which are summed behind the loop."""
    T = tile.context()
    acc = tile.zeros((T.m, 4), f64)
    for k in tile.steps(x.shape[1], by=4):
        block = tile.load(x, T.m, k)
        acc += block * block
    return tile.sqrt(tile.sum(acc, 1))


@kernel
def dropped(x: KTile["M", "N", f64], key: KTile[2, ts.u64]) -> KTile["M", "N", f64]:
    """Elements that a key drops: the same ones in both directions."""
    T = tile.context()
    return tile.dropout_in_kernel(tile.exp(tile.load(x, T.m, T.n)), 0.3, key=key)


SAMPLES: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
    "elementwise": (blend, [normal(5, 300), normal(5, 300), normal(5), normal(300)], {}),
    "one element": (blend, [normal(1, 1), normal(1, 1), normal(1), normal(1)], {}),
    "rms norm": (rms_norm, [normal(7, 33), normal(33)], {}),
    "softmax": (row_softmax, [normal(7, 33)], {}),
    "a wide row": (row_softmax, [normal(2, 300)], {}),
    "norm in a loop": (long_norm, [normal(20, 150)], {}),
    "matmul": (product, [normal(5, 70), normal(70, 9)], {}),
    "dense": (dense, [normal(18, 21), normal(19, 21), normal(19), normal(18, 19)], {}),
    "attention": (attend, [normal(4, 9, 4), normal(2, 21, 4), normal(2, 21, 4)], {}),
    "causal": (attend, [normal(2, 9, 4), normal(2, 11, 4), normal(2, 11, 4)], {"causal": True}),
    "a masked store": (kept, [normal(5, 6)], {}),
    "indices": (lower_half, [normal(2, 18, 18)], {}),
    "stores in a loop": (copied, [normal(5, 11)], {}),
    "attention by hand": (attend_by_hand, [normal(5, 4), normal(21, 4), normal(21, 4)], {}),
    "two dots": (gated, [normal(5, 21), normal(21, 9), normal(21, 9)], {}),
    "lanes": (by_lanes, [normal(5, 13)], {}),
    "dropout": (dropped, [normal(5, 30), np.array([3, 9], np.uint64)], {}),
    "layer norm": (efficient_layernorm, [normal(2, 3, 17), normal(17), normal(17)], {}),
}
NARROW: dict[str, tuple[Any, list[Any], dict[str, Any]]] = {
    "vector add": (kernels.vector_add, [small(300), small(300)], {}),
    "rows": (kernels.rows, [small(5, 30)], {}),
    "piped": (kernels.piped, [small(5, 70), small(70, 7)], {"slots": 2}),
    "transposed": (kernels.transposed, [small(5, 7)], {"scale": 2.0}),
    "linear": (kernels.linear, [normal(9, 70, dtype=BF16), normal(70, 5, dtype=BF16), small(5)], {}),
    "flash": (flash_attention_2, [small(2, 4, 9, 8), small(2, 2, 200, 8), small(2, 2, 200, 8)], {"causal": True}),
    "prescaled": (kernels.prescaled, [small(2, 9, 8), small(2, 200, 8), small(2, 200, 8)], {}),
    "rotary": (rotary_embedding, [small(2, 2, 5, 6), small(5, 3), small(5, 3)], {}),
    "stable softmax": (stable_softmax, [normal(3, 5, 30, dtype=np.float16)], {}),
}  # fmt: skip


def registered(made: Any, args: list[Any], statics: dict[str, Any]) -> Any:
    """The kernel with its static arguments, as programs call it, and the types of its operands."""
    tape = made.trace(*args, **statics).tape
    (record,) = (one for one in tape.records if one.op == "tgraph.kernel_call")
    return KERNELS[record.attributes["kernel"]], [tape.types[value] for value in record.operands]


@pytest.mark.parametrize("name", [*SAMPLES, *NARROW])
def test_the_raised_program_computes_what_the_kernel_does(name: str) -> None:
    """By the references of its ops, with all sizes as numbers."""
    made, args, statics = (SAMPLES | NARROW)[name]
    instance, types = registered(made, args, statics)
    shapes = [(-1, *np.shape(one)[-type.rank :][1:]) for one, type in zip(args, types, strict=True)]
    arrays = [np.asarray(one).reshape(shape) for one, shape in zip(args, shapes, strict=True)]
    builder = TapeBuilder()
    given = [TensorType.of(array.shape, dtype_of(array)) for array in arrays]
    inputs = add_inputs(builder.tape, given, [f"x{at}" for at in range(len(given))])
    builder.tape.outputs = raise_kernel(instance.unpadded_program(given), builder, inputs)
    # Both sum in f32 at least, the longest row has 300 elements; the result is rounded once.
    for wanted, found in zip(as_tuple(made(*args, **statics)), run(builder.tape, arrays), strict=True):
        unit = {2: 2.0**-7, 4: 2.0**-23, 8: 2.0**-52}[np.asarray(wanted).itemsize]
        one = np.asarray(wanted).astype(np.float64)
        bound = max(64 * unit, 2.0**-23 if name == "layer norm" else 0.0) * max(1.0, float(np.abs(one).max()))
        np.testing.assert_allclose(found.astype(np.float64).reshape(one.shape), one, rtol=0, atol=bound)


def energy(made: Any, statics: dict[str, Any]) -> Any:
    """A scalar of a kernel's results in which each element has its own weight."""

    def function(*args: Any) -> Any:
        total: Any = 0.0
        for number, result in enumerate(as_tuple(made(*args, **statics))):
            total = total + (ts.ops.sin(result * (number + 1.0)) * result).sum()
        return total

    return function


SLOW = ("one element", "a wide row", "softmax", "attention", "matmul", "attention by hand", "two dots", "layer norm")


@pytest.mark.parametrize("name", [pytest.param(one, marks=pytest.mark.slow) if one in SLOW else one for one in SAMPLES])
def test_gradients_are_central_differences(name: str) -> None:
    """In f64, along a direction for each operand; of four points, as products of products are steep."""
    made, args, statics = SAMPLES[name]
    rng = np.random.default_rng(len(name))
    function: Any = ts.jit(energy(made, statics))
    active = [at for at, arg in enumerate(args) if arg.dtype == np.float64]
    gradients = ts.grad(function, tuple(active))(*args)
    # A layer norm of the library sums in f32.
    step, bound = (2.0**-8, 2.0**-8) if name == "layer norm" else (1e-5, 1e-7)
    for at, gradient in zip(active, gradients, strict=True):
        direction = rng.standard_normal(args[at].shape)
        values = {
            steps: float(function(*args[:at], args[at] + steps * step * direction, *args[at + 1 :]))
            for steps in (-2, -1, 1, 2)
        }
        slope = (8 * (values[1] - values[-1]) - (values[2] - values[-2])) / (12 * step)
        along = float(np.sum(np.asarray(gradient) * direction))
        assert abs(along - slope) <= bound * max(1.0, abs(slope)), (at, along, slope)


@pytest.mark.parametrize("name", ["rms norm", "causal", "dense"])
def test_both_modes_are_transposes(name: str) -> None:
    made, args, statics = SAMPLES[name]
    tangents = tuple(normal(*arg.shape) for arg in args)
    value, change = ts.jvp(lambda *given: as_tuple(made(*given, **statics)), tuple(args), tangents)
    weights = tuple(normal(*one.shape) for one in value)
    _, back = ts.vjp(lambda *given: as_tuple(made(*given, **statics)), *args)
    left = sum(float(np.sum(np.asarray(one) * weight)) for one, weight in zip(change, weights, strict=True))
    right = sum(float(np.sum(np.asarray(one) * change)) for one, change in zip(back(weights), tangents, strict=True))
    assert left == pytest.approx(right, rel=1e-10)


def stated(name: str) -> Any:
    """A kernel of the other table in NumPy, in f64."""

    def softmax(x: Any) -> Any:
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    def attention(q: Any, k: Any, v: Any) -> Any:
        k, v = (np.repeat(x, q.shape[-3] // x.shape[-3], axis=-3) for x in (k, v))
        scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
        rows, columns = scores.shape[-2:]
        if name == "flash":
            scores = np.where(np.arange(columns) <= np.arange(rows)[:, None] + columns - rows, scores, -np.inf)
        return softmax(scores) @ v

    def rotate(x: Any, cos: Any, sin: Any) -> Any:
        first, second = x[..., :3], x[..., 3:]
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], -1)

    return {
        "vector add": lambda x, y: x + y,
        "rows": lambda x: (x.max(-1), x.sum(-1)),
        "piped": lambda a, b: a @ b,
        "transposed": lambda x: 2.0 * x.T,
        "linear": lambda x, w, bias: np.maximum(x @ w + bias, 0),
        "flash": attention,
        "prescaled": attention,
        "rotary": rotate,
        "stable softmax": softmax,
    }[name]


@pytest.mark.parametrize("name", NARROW)
def test_gradients_of_narrow_floats_are_those_of_the_formula(name: str) -> None:
    """Products with a weight for each element of the results, against central differences of NumPy in f64."""
    made, args, statics = NARROW[name]
    results = as_tuple(made(*args, **statics))
    weights = [normal(*np.shape(one)) for one in results]
    _, back = ts.vjp(lambda *given: as_tuple(made(*given, **statics)), *args)
    given = tuple(w.astype(np.asarray(one).dtype) for w, one in zip(weights, results, strict=True))
    wide = [np.asarray(arg).astype(np.float64) for arg in args]
    units = [{2: 2.0**-7, 4: 2.0**-22}[np.asarray(one).itemsize] for one in (*args, *results)]
    for at, gradient in enumerate(back(given)):
        assert np.asarray(gradient).dtype == np.asarray(args[at]).dtype
        direction, step = normal(*wide[at].shape), 1e-6
        ends = [stated(name)(*wide[:at], wide[at] + sign * step * direction, *wide[at + 1 :]) for sign in (1, -1)]
        ahead, behind = (one if isinstance(one, tuple) else (one,) for one in ends)
        terms = [(a - b) / (2 * step) * np.asarray(w, np.float64) for a, b, w in zip(ahead, behind, given, strict=True)]
        found = np.asarray(gradient).astype(np.float64) * direction
        # Each number that is summed here has been rounded a few times, and sums of them once for each.
        bound = 16 * max(units) * float(sum(np.abs(one).sum() for one in (*terms, found)))
        assert abs(float(found.sum()) - float(sum(one.sum() for one in terms))) <= bound


def test_second_derivatives_and_batches_of_gradients() -> None:
    x, w = normal(3, 5), normal(5)
    function = energy(rms_norm, {})
    direction = normal(3, 5)
    (found,) = ts.hvp(lambda one: function(one, w), (x,), (direction,))
    ahead, behind = (np.asarray(ts.grad(function)(x + sign * 1e-5 * direction, w)) for sign in (1, -1))
    np.testing.assert_allclose(np.asarray(found), (ahead - behind) / 2e-5, rtol=1e-6, atol=1e-6)

    many = normal(4, 3, 5)
    each = np.asarray(ts.vmap(ts.grad(function), in_axes=(0, None))(many, w))
    for one, wanted in zip(each, many, strict=True):
        np.testing.assert_allclose(one, np.asarray(ts.grad(function)(wanted, w)), rtol=1e-12, atol=1e-12)
    batch = ts.grad(lambda xs: ts.vmap(lambda one: function(one, w))(xs).sum())(many)
    np.testing.assert_allclose(np.asarray(batch), each, rtol=1e-12, atol=1e-12)


def test_a_registered_kernel_has_gradients_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ts.Kernel(kept.definition.function)
    monkeypatch.setitem(vars(ts.ops), "kept_squares", made)  # taken out again afterwards
    made.register("kept_squares")
    function = ts.jit(ts.vmap(ts.grad(lambda x: getattr(ts.ops, "kept_squares")(x).sum())))  # noqa: B009 - no stub has it
    x = normal(3, 4, 5)
    np.testing.assert_allclose(np.asarray(function(x)), np.where(x > 0, 2 * x, 0), rtol=1e-12)


def test_a_policy_of_the_program_leaves_the_derivative_of_a_kernel_alone() -> None:
    """A kernel says itself what it computes in: forward it has the same bits, and so have its gradients."""
    x, w, d = small(2, 3, 8), small(8), small(2, 3, 8)

    def gradients(x: Any, w: Any) -> Any:
        _, back = ts.vjp(lambda *given: efficient_layernorm(*given, w), x, w)
        return back(d)

    plain = ts.jit(gradients)(x, w)
    with ts.policy(ts.Training()):
        under = ts.jit(gradients)(x, w)
    for one, other in zip(plain, under, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_one_gradient_serves_all_sizes() -> None:
    """Rows and columns are symbolic in the compiled program; K too, where a loop runs over it."""

    @ts.jit
    def step(x: ts.Tensor["M", "K", ts.f64], w: ts.Tensor["K", "N", ts.f64]) -> Any:
        return ts.grad(lambda a, b: (product(a, b) ** 2.0).sum(), (0, 1))(x, w)

    for m, k, n in ((3, 70, 5), (66, 3, 130), (1, 1, 1)):
        x, w = normal(m, k), normal(k, n)
        dx, dw = step(x, w)
        np.testing.assert_allclose(np.asarray(dx), 2 * (x @ w) @ w.T, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(np.asarray(dw), 2 * x.T @ (x @ w), rtol=1e-10, atol=1e-10)
    assert step.cache_info().compiles == 1


def test_rows_of_a_symbolic_length_share_a_gradient() -> None:
    """A tile that holds the row may be longer than it; in the derivative there is nothing behind its end."""

    @ts.jit
    def step(x: ts.Tensor["M", "D", ts.f64]) -> Any:
        return ts.grad(lambda rows: (row_softmax(rows)[0] ** 2.0).sum())(x)

    for shape in ((3, 13), (7, 9), (1, 16)):
        x = normal(*shape)
        p = np.exp(x - x.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        wanted = p * (2 * p - (2 * p * p).sum(-1, keepdims=True))
        np.testing.assert_allclose(np.asarray(step(x)), wanted, rtol=1e-12, atol=1e-15)
    assert step.cache_info().compiles == 1


def test_gradients_of_nothing_are_empty() -> None:
    assert ts.grad(lambda a, b: product(a, b).sum())(normal(3, 0), normal(0, 4)).shape == (3, 0)
    assert ts.grad(lambda x: kept(x).sum())(normal(0, 4)).shape == (0, 4)


def test_the_forward_part_has_the_bits_of_the_kernel_and_gradients_repeat() -> None:
    made, args, statics = SAMPLES["causal"]
    plain = as_tuple(made(*args, **statics))
    value, back = ts.vjp(lambda *given: as_tuple(made(*given, **statics)), *args)
    for one, other in zip(plain, value, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    first, second = back(value), back(value)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
    ts.deterministic()(ts.grad(lambda q: made(q, *args[1:], **statics)[0].sum()))(args[0])


@pytest.mark.parametrize("name", ["elementwise", "rms norm", "flash", "linear"])
def test_gradients_assemble_for_a_gpu(name: str) -> None:
    made, args, statics = (SAMPLES | NARROW)[name]
    args = [arg.astype(np.float32) if arg.dtype == np.float64 else arg for arg in args]
    step = ts.jit(lambda *given: ts.grad(lambda *xs: made(*xs, **statics).cast(ts.f32).sum(), 0)(*given))
    made_for = compile_tape(step.trace(*args).tape, Options.of(backend="cuda", features=("sm_90a",)))
    assert made_for is not None


# What is refused, with the construct that it is refused for.


@kernel
def added_up(x: KTile["M", "N", f32], out: KTile["N", f32]) -> None:
    T = tile.context()
    tile.atomic_add(out, tile.reduce(tile.load(x, T.m, T.n), 0), T.n)


@kernel(Schedule(block=(4, 8, 8)))
def by_blocks(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    block = tile.load(x, T.m, T.n)
    return block - tile.sum(block, 1, scope="block")[:, None]


@kernel
def decays(x: KTile["M", "K", f32]) -> KTile["M", f32]:
    T = tile.context()
    acc = tile.zeros((T.m,), f32)
    for k in tile.steps(x.shape[1], by=4):
        acc = acc * 0.5 + tile.sum(tile.load(x, T.m, k), 1)
    return acc


@kernel
def counts_steps(x: KTile["M", "K", f32]) -> KTile["M", f32]:
    T = tile.context()
    acc = tile.zeros((T.m,), f32)
    for k in tile.steps(x.shape[1], by=4):
        acc += tile.sum(tile.load(x, T.m, k), 1) + 1.0
    return acc


@kernel
def last_block(x: KTile["M", "N", f32], out: KTile["M", f32]) -> None:
    T = tile.context()
    for _ in tile.steps(x.shape[1], by=4):
        tile.store(out, tile.load(x, T.m, 0), T.m)


@kernel
def twice_stored(x: KTile["M", "N", f32], out: KTile["M", "N", f32]) -> None:
    T = tile.context()
    block = tile.load(x, T.m, T.n)
    tile.store(out, block, T.m, T.n)
    tile.store(out, block * 2.0, T.m, T.n)


@kernel
def half_stored(x: KTile["M", 8, f32], out: KTile["M", 8, f32]) -> None:
    T = tile.context()
    tile.store(out, tile.load(x, T.m, slice(0, 4)), T.m, slice(0, 4))


@kernel
def neighbours(x: KTile["M", "N", f32], out: KTile["M", "N", f32]) -> None:
    T = tile.context()
    for k in tile.steps(x.shape[1], by=4):
        left = tile.load(x, T.m, slice(k.start - 1, k.start + 3))
        tile.store(out, left + tile.load(x, T.m, k), T.m, k)


@kernel
def exchanged(x: KTile["M", 32, f32]) -> Any:
    T = tile.context()
    return tile.butterfly(tile.load(x, T.m, T.d), 16)


@kernel(Schedule(block=(4, 4)))
def diagonal(x: KTile["M", "M", f32], out: KTile["M", "M", f32]) -> None:
    T = tile.context()
    tile.store(out, tile.load(x, T.m, T.m) * 2.0, T.m, T.m)


@kernel
def padded(x: KTile["M", 1, f32], y: KTile["M", 8, f32], out: KTile["M", 8, f32]) -> None:
    T = tile.context()
    first = tile.load(x, T.m, slice(0, 8), pad=2.0)
    tile.store(out, first * tile.load(y, T.m, slice(0, 8)), T.m, slice(0, 8))


@kernel
def lane_sums(x: KTile["M", "K", f32], out: KTile["M", 4, f32]) -> None:
    T = tile.context()
    acc = tile.zeros((T.m, 4), f32)
    for k in tile.steps(x.shape[1], by=4):
        acc += tile.load(x, T.m, k)
    tile.store(out, acc, T.m, slice(0, 4))


@kernel(Schedule(block=(4, 4, 4)))
def scaled_blocks(x: KTile["M", "K", f32], scale: KTile["M", "T", f32]) -> KTile["M", f32]:
    T = tile.context()
    acc = tile.zeros((T.m,), f32)
    for k in tile.range_k(x.shape, T.k):
        acc += tile.sum(tile.load(x, T.m, k), 1) * tile.load(scale, T.m, k.start // 4)
    return acc


REFUSED: dict[str, tuple[Any, list[Any], str]] = {
    "atomics": (added_up, [small(5, 6)], "`atomic_add` combines what programs store"),
    "a block of its own": (by_blocks, [small(5, 16)], "it computes on single blocks"),
    "a gather": (test_gather.embedded, [np.array([1, 2], np.int32), small(9, 8)], "an index is read from memory"),
    "a scan": (kernels.running, [small(3, 8)], "a scan runs along a tile"),
    "a loop that decays": (decays, [small(3, 18)], "a loop carries what depends on one block of 4"),
    "a loop that counts": (counts_steps, [small(3, 18)], "a loop carries what depends on one block of 4"),
    "the last iteration": (last_block, [small(3, 18)], "iterations of a loop store to the same elements"),
    "two stores": (twice_stored, [small(3, 18)], "its stores overlap"),
    "half of a result": (half_stored, [small(3, 8)], "its stores overlap, or leave elements of a result out"),
    "neighbours": (neighbours, [small(3, 8)], "index is computed"),
    "blocks of a diagonal": (diagonal, [small(8, 8)], "blocks along two dims are those with the same index"),
    "pads": (padded, [small(3, 1), small(3, 8)], "tiles with 1 and 8 elements along an axis meet"),
    "sums of each lane": (lane_sums, [small(3, 13)], "tiles with 13 and 4 elements along an axis meet"),
    "exchanged lanes": (exchanged, [small(3, 32)], "`butterfly` exchanges elements"),
    "the start of a block": (scaled_blocks, [small(3, 8), small(3, 2)], "the start of a block is a number in it"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_derived_names_the_construct_and_its_line(name: str) -> None:
    made, args, why = REFUSED[name]
    floats = next(at for at, arg in enumerate(args) if arg.dtype.kind == "f")
    with pytest.raises(DifferentiationError, match="cannot be differentiated") as raised:
        ts.grad(lambda *given: made(*given).sum(), floats)(*args)
    assert why in str(raised.value)
    assert raised.value.span is not None
    source = made.definition.source
    assert raised.value.span.line > source.span(source.tree).line
    assert f"@{made.name}.defvjp" in str(raised.value)


def test_a_refused_kernel_may_be_constant() -> None:
    def function(x: Any) -> Any:
        return (kernels.running(ts.stop_gradient(x)) * x).sum()

    x = small(2, 4)
    np.testing.assert_allclose(np.asarray(ts.grad(function)(x)), np.cumsum(x, 1), rtol=1e-6)
