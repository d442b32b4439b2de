"""Sums in every accumulator that a policy can name, op by op, against recipes that are written out here."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import numpy_dtype, round_as
from tessera.ir.base.op import SpecOp
from tests.policy.test_bits import bits_of

RNG = np.random.default_rng(11)
ROWS = RNG.standard_normal((6, 40)).astype(np.float32)
INDICES = RNG.integers(0, 6, 6)
IMAGE = RNG.standard_normal((2, 4, 7, 6)).astype(np.float32)
FILTERS = RNG.standard_normal((6, 2, 3, 2)).astype(np.float32)
QUERIES, KEYS, VALUES = (
    RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 4, 5, 8), (2, 2, 9, 8), (2, 2, 9, 8))
)
TOTALS = (ts.f64, ts.f32, ts.bf16, ts.f16, ts.f8e5m2)


def both(function: Any, policy: Any, *arrays: Any) -> Any:
    """What compiled code gives, once it is found to be what the reference gives."""
    compiled: Any = ts.jit(function, policy=policy)(*arrays)
    wanted: Any = ts.jit(function, policy=policy, backend="reference")(*arrays)
    assert wanted.dtype is compiled.dtype
    np.testing.assert_array_equal(bits_of(compiled), bits_of(wanted))
    return np.asarray(compiled)


def joined(total: Any, function: Any, left: Any, right: Any) -> Any:
    """One step of a running value: in f64, in f32, or in f32 and rounded to what is narrower."""
    wide = np.float64 if total is ts.f64 else np.float32
    with np.errstate(all="ignore"):
        made = function(np.asarray(left, wide), np.asarray(right, wide))
        return made if total in (ts.f64, ts.f32) else made.astype(numpy_dtype(total)).astype(np.float32)


def running(x: Any, total: Any, function: Any) -> Any:
    """Chunks of 16 in order, each after the totals of those before it in order: for up to 256 elements."""
    assert x.shape[0] <= 256
    nothing = -0.0 if function is np.add else 1.0
    out, before = np.empty_like(x), np.full(x.shape[1:], nothing)
    for start in range(0, x.shape[0], 16):
        carried = np.full(x.shape[1:], nothing)
        for at in range(start, min(start + 16, x.shape[0])):
            carried = joined(total, function, carried, x[at])
            out[at] = joined(total, function, before, carried)
        before = joined(total, function, before, carried)
    return out


@pytest.mark.parametrize("total", TOTALS, ids=str)
@pytest.mark.parametrize(("name", "function"), [("cumsum", np.add), ("cumprod", np.multiply)])
def test_scans(total: Any, name: str, function: Any) -> None:
    policy = ts.accum(total)
    for axis in (0, 1):
        given = both(lambda x: getattr(ops, name)(x, axis=axis), policy, ROWS)  # noqa: B023
        wanted = np.moveaxis(running(np.moveaxis(ROWS, axis, 0), total, function), 0, axis)
        np.testing.assert_array_equal(bits_of(given), bits_of(wanted))


@pytest.mark.parametrize("total", TOTALS, ids=str)
def test_sums_at_indices(total: Any) -> None:
    given = both(lambda x, at: ops.scatter_add(x, at, x), ts.accum(total), ROWS, INDICES)
    sums: list[Any] = list(ROWS)
    for number, row in enumerate(INDICES):
        sums[row] = joined(total, np.add, sums[row], ROWS[number])
    np.testing.assert_array_equal(bits_of(given), bits_of(np.stack(sums).astype(np.float32)))
    untouched = sorted(set(range(6)) - set(INDICES.tolist()))
    assert untouched
    np.testing.assert_array_equal(given[untouched], ROWS[untouched], "no sum, and so nothing to round")


@pytest.mark.parametrize("total", TOTALS, ids=str)
@pytest.mark.parametrize("counted", [True, False])
def test_means_of_windows(total: Any, counted: bool) -> None:
    given = both(lambda x: ops.avg_pool(x, (2, 3), padding=1, count_padding=counted), ts.accum(total), ROWS[:, :12])
    padded = np.pad(ROWS[:, :12], 1)
    there = np.pad(np.ones((6, 12), np.float32), 1)
    for row, column in np.ndindex(given.shape):
        window = (slice(2 * row, 2 * row + 2), slice(3 * column, 3 * column + 3))
        elements = padded[window].reshape(-1)
        carried = joined(total, np.add, -0.0, elements[0])
        for one in elements[1:]:
            carried = joined(total, np.add, carried, one)
        count = np.float32(6) if counted else there[window].sum()
        assert given[row, column] == np.float32(carried) / count


def lanes(terms: Any, total: Any) -> Any:
    """The last axis by the recipe of sums: a leaf of 256 lanes, each rounded as it grows, then a tree in f32 or f64."""
    assert terms.shape[-1] <= 1024
    found = np.zeros((*terms.shape[:-1], 256), np.float64 if total is ts.f64 else np.float32)
    for at in range(terms.shape[-1]):
        found[..., at % 256] = joined(total, np.add, found[..., at % 256], terms[..., at])
    while found.shape[-1] > 1:
        half = found.shape[-1] // 2
        found = found[..., :half] + found[..., half:]
    return found[..., 0]


@pytest.mark.parametrize("total", TOTALS[2:4], ids=str)
def test_convolutions(total: Any) -> None:
    def convolved(x: Any, w: Any) -> Any:
        return ops.conv2d(x, w, groups=2, padding=1, stride=(2, 1), dilation=(1, 2))

    given = both(convolved, ts.accum(total), IMAGE, FILTERS)
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    for n, o, i, j in np.ndindex(given.shape):
        first = o // 3 * 2
        window = padded[n, first : first + 2, 2 * i : 2 * i + 3, j : j + 3 : 2]
        assert given[n, o, i, j] == lanes((window * FILTERS[o]).reshape(-1), total)


@pytest.mark.parametrize("total", [ts.f64, ts.bf16], ids=str)
def test_convolutions_of_free_sizes(total: Any) -> None:
    def convolved(x: ts.Tensor["N", 4, "L", ts.f32], w: Any) -> Any:
        return ops.conv1d(x, w, padding="same")

    x, w = IMAGE[..., 0].copy(), RNG.standard_normal((3, 4, 3)).astype(np.float32)
    free = both(convolved, ts.accum(total), x, w)
    fixed = both(lambda x, w: ops.conv1d(x, w, padding="same"), ts.accum(total), x, w)
    np.testing.assert_array_equal(free, fixed)
    assert (free != np.asarray(ts.jit(convolved)(x, w))).any()


@pytest.mark.parametrize("total", TOTALS[3:], ids=str)
@pytest.mark.parametrize(("left", "right"), [((40,), (40,)), ((6, 40), (40,)), ((40,), (40, 3)), ((2, 6, 40), (40, 3))])
def test_products_of_vectors_and_stacks(total: Any, left: Any, right: Any) -> None:
    a, b = (RNG.standard_normal(shape).astype(np.float32) for shape in (left, right))
    given = both(lambda a, b: a @ b, ts.accum(total), a, b)
    columns = b[:, None] if b.ndim == 1 else b
    wanted = lanes(a[..., None, :] * columns.T, total)
    np.testing.assert_array_equal(given, wanted[..., 0] if b.ndim == 1 else wanted)


@pytest.mark.parametrize("policy", [ts.accum(ts.f32), ts.accum(ts.bf16), ts.Training()], ids=str)
def test_f64_is_left_alone(policy: Any) -> None:
    a, b = RNG.standard_normal((6, 40)), RNG.standard_normal((40, 6))

    def each(a: Any, b: Any) -> Any:
        return a @ b, a.sum(axis=1), ops.cumsum(a, axis=1), ops.avg_pool(a, window=(2,)), ops.mean(b, axis=0)

    plain: Any = ts.jit(each)(a, b)
    under: Any = ts.jit(each, policy=policy)(a, b)
    with ts.policy(policy):
        eager: Any = each(ts.array(a), ts.array(b))
    for wanted, *others in zip(plain, under, eager, strict=True):
        for given in others:
            np.testing.assert_array_equal(bits_of(given), bits_of(wanted))


def test_products_of_f64_in_f32_round_their_factors_first() -> None:
    a, b = RNG.standard_normal((6, 40)), RNG.standard_normal((40, 7))
    given = both(lambda a, b: ops.matmul(a, b, accumulate=ts.f32), ts.Policy(), a, b)
    narrow: Any = ts.jit(lambda a, b: a @ b)(a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(given, np.asarray(narrow).astype(np.float64))


def test_products_of_f32_in_f64_are_chains() -> None:
    a, b = ROWS, RNG.standard_normal((40, 7)).astype(np.float32)
    given = both(lambda a, b: a @ b, ts.accum(ts.f64), a, b)
    carried = np.zeros((6, 7))
    for k in range(40):
        carried += a[:, k : k + 1].astype(np.float64) * b[k]  # exact: 48 bits
    np.testing.assert_array_equal(given, carried.astype(np.float32))
    assert (given != np.asarray(ts.jit(lambda a, b: a @ b)(a, b))).any()


def attended(total: Any, q: Any, k: Any, v: Any, added: Any) -> tuple[Any, Any]:
    """Attention as three sums in the accumulator; powers and logarithms in f64."""
    k, v = (np.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
    scaled = q * np.float32(1 / np.sqrt(q.shape[3]))
    scores = lanes((scaled[..., :, None, :] * k[..., None, :, :]), total).astype(np.float32) + added
    top = np.maximum(scores.max(-1, keepdims=True), np.float32(-3e38))
    powers = np.exp((scores - top).astype(np.float64)).astype(np.float32)
    sums = lanes(powers, total).astype(np.float32)[..., None]
    weights = powers / np.maximum(sums, 1)
    out = lanes(weights[..., :, None, :] * np.swapaxes(v, -1, -2)[..., None, :, :], total)
    with np.errstate(divide="ignore"):
        return out, (top + np.log(sums))[..., 0]


@pytest.mark.parametrize("total", [ts.f64, *TOTALS[2:4]], ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_attention(total: Any, causal: bool) -> None:
    mask = np.zeros((5, 9), np.float32)
    mask[:, 3], mask[2] = -1.0, -np.inf
    hidden = np.arange(9) > np.arange(5)[:, None] + 4
    f = ts.jit(
        lambda q, k, v, m: ops.attention(q, k, v, mask=m, causal=causal, return_lse=True), policy=ts.accum(total)
    )
    out, lse = (np.asarray(one) for one in f(QUERIES, KEYS, VALUES, mask))
    wanted, totals = attended(total, QUERIES, KEYS, VALUES, np.where(hidden & causal, -np.inf, mask))
    # A power that is off by a bit moves a narrow sum by a step of its own at most.
    step = 2.0 ** -(min(total.mantissa, 20))
    np.testing.assert_allclose(out, wanted, rtol=2 * step, atol=2 * step)
    np.testing.assert_allclose(lse, totals, rtol=2 * step, atol=2 * step)
    assert (out[:, :, 2] == 0).all()
    assert np.isneginf(lse[:, :, 2]).all()
    plain, _ = ts.jit(lambda q, k, v, m: ops.attention(q, k, v, mask=m, causal=causal, return_lse=True))(
        QUERIES, KEYS, VALUES, mask
    )
    assert (out != np.asarray(plain)).any()


@pytest.mark.parametrize("filled", [0, 6, 9])
def test_attention_over_a_cache_never_sees_what_lies_beyond_it(filled: int) -> None:
    k, v = KEYS.copy(), VALUES.copy()
    k[:, :, filled:], v[:, :, filled:] = np.nan, np.inf

    def over(q: Any, k: Any, v: Any, length: Any) -> Any:
        # The op alone, without the cache around it.
        return dispatch.apply("cached_attention", (q, k, v, length), {"causal": False, "scale": None})

    length = np.array(filled, np.int64)
    given = np.asarray(ts.jit(over, policy=ts.accum(ts.bf16))(QUERIES, k, v, length))
    wanted = ts.jit(lambda q, k, v: ops.attention(q, k, v), policy=ts.accum(ts.bf16))
    if filled:
        np.testing.assert_array_equal(given, np.asarray(wanted(QUERIES, k[:, :, :filled], v[:, :, :filled])))
    else:
        assert (given == 0).all()


OPS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "cumsum": (lambda x: ops.cumsum(x, axis=1), (ROWS,)),
    "scatter_add": (lambda x, at: ops.scatter_add(x, at, x), (ROWS, INDICES)),
    "avg_pool": (lambda x: ops.avg_pool(x, (3,)), (ROWS,)),
    "conv1d": (lambda x, w: ops.conv1d(x, w), (IMAGE[..., 0].copy(), FILTERS.reshape(6, 4, 3))),
    "attention": (lambda q, k, v: ops.attention(q, k, v), (QUERIES, KEYS, VALUES)),
}
POLICIES = (
    ts.Policy(storage=ts.bf16, accumulate=ts.bf16, rounding="stochastic"),
    ts.Policy(storage=ts.f16, accumulate=ts.f16, rounding="toward_zero", saturation="saturate", denormals="flush"),
    ts.Policy(storage=ts.bf16, accumulate=ts.f64, rounding="toward_zero"),
)


@pytest.mark.parametrize("policy", POLICIES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_whole_policies(name: str, policy: Any) -> None:
    function, arrays = OPS[name]
    given: Any = ts.jit(function, policy=policy)(*arrays)
    wanted: Any = ts.jit(function, policy=policy, backend="reference")(*arrays)
    assert given.dtype is wanted.dtype is policy.storage
    np.testing.assert_array_equal(bits_of(given), bits_of(wanted))
    plain = np.asarray(ts.jit(function)(*arrays)).astype(np.float64)
    away = np.abs(np.asarray(given).astype(np.float64) - plain).max()
    assert 0 < away < 0.1 * np.abs(plain).max()


@pytest.mark.parametrize("name", OPS)
def test_narrow_operands(name: str) -> None:
    function, arrays = OPS[name]
    narrow = tuple(array.astype(ml_dtypes.bfloat16) if array.dtype == np.float32 else array for array in arrays)
    given = both(function, ts.accum(ts.f16), *narrow)
    assert given.dtype == ml_dtypes.bfloat16
    with ts.policy(accumulate=ts.f16):
        at_once = function(*map(ts.array, narrow))
    np.testing.assert_array_equal(bits_of(at_once), bits_of(given))


@pytest.mark.parametrize("name", OPS)
def test_sums_that_round_are_written_for_a_gpu_too(name: str) -> None:
    function, arrays = OPS[name]
    target = Options.of(backend="cuda", features=("sm_90a",))
    narrow: Any = ts.jit(function, policy=ts.accum(ts.bf16))
    made = lower(narrow.trace(*arrays).tape, target)
    found = [op for kernel in made.targets for op in kernel.walk() if isinstance(op, SpecOp)]
    by_format = [op for op in found if op.name == "ttarget.round" and op.value("format") == "bf16"]
    by_cast = [op for op in found if op.name == "ttarget.cast" and op.value("rounding") == "nearest_even"]
    assert by_format or by_cast


@pytest.mark.parametrize("groups", [1, 2])
def test_free_dims_do_not_make_code_of_convolutions_endless(groups: int) -> None:
    """Indices are not taken apart: what was 150 MB of text for LLVM is some 2 MB, and has the bits of the reference."""
    function = ts.jit(lambda x, w: ops.conv2d(x, w, groups=groups), dynamic=True, policy=ts.accum(ts.bf16))
    filters = FILTERS if groups == 2 else np.concatenate([FILTERS, FILTERS], 1)
    made = lower(function.trace(IMAGE, filters).tape, Options())
    assert sum(map(len, made.texts)) < 4_000_000
    wanted = ts.jit(lambda x, w: ops.conv2d(x, w, groups=groups), policy=ts.accum(ts.bf16), backend="reference")
    for image in (IMAGE, IMAGE[:1, :, 1:, :-1].copy()):
        np.testing.assert_array_equal(bits_of(function(image, filters)), bits_of(wanted(image, filters)))


@pytest.mark.parametrize("total", [ts.bf16, ts.f16], ids=str)
def test_mistakes_are_told_of_the_op_that_was_written(total: Any) -> None:
    wrong = {
        "cannot multiply": lambda: ts.jit(lambda x: x @ x, policy=ts.accum(total))(ROWS),
        "`conv1d` of": lambda: ts.jit(lambda x: ops.conv1d(x, x[:, :3]), policy=ts.accum(total))(IMAGE[..., 0].copy()),
        "`attention` needs": lambda: ts.jit(lambda q: ops.attention(q, q, q[:, :1]), policy=ts.accum(total))(QUERIES),
    }
    for words, call in wrong.items():
        with pytest.raises(ts.TesseraError, match=words):
            call()
    with ts.policy(accumulate=total), pytest.raises(ts.TesseraError, match="cannot multiply"):
        ops.matmul(ts.array(ROWS), ts.array(ROWS))


def test_empty_and_single_sizes() -> None:
    policy = ts.accum(ts.bf16)
    assert both(lambda x: ops.cumsum(x, axis=0), policy, ROWS[:0]).shape == (0, 40)
    np.testing.assert_array_equal(both(lambda x: ops.cumsum(x, axis=0), policy, ROWS[:1]), rounded_to(ROWS[:1]))
    none = both(lambda a, b: a @ b, policy, ROWS[:, :0].copy(), np.zeros((0, 3), np.float32))
    np.testing.assert_array_equal(none, np.zeros((6, 3), np.float32))
    attended = both(lambda q, k: ops.attention(q, k, k), policy, QUERIES, KEYS[:, :, :0].copy())
    np.testing.assert_array_equal(attended, np.zeros((2, 4, 5, 8), np.float32))


def rounded_to(x: Any) -> Any:
    return round_as(x, ts.bf16).astype(np.float32)


@pytest.mark.parametrize("total", [ts.bf16, ts.f32, ts.f64], ids=str)
def test_writes_by_index_that_choose_have_no_accumulator(total: Any) -> None:
    x, index, new = np.array([1.001, 2.001, 3.001], np.float32), np.array([0, 2]), np.array([1.003, 1.004], np.float32)
    for name, wanted in (
        ("set", [new[0], x[1], new[1]]),
        ("max", [new[0], x[1], x[2]]),
        ("min", [x[0], x[1], new[1]]),
    ):
        for backend in ("cpu", "reference"):

            @ts.jit(policy=ts.Policy(accumulate=total), backend=backend)
            def write(x: Any, index: Any, new: Any, name: str = name) -> Any:
                return getattr(x.at[index], name)(new)

            np.testing.assert_array_equal(np.asarray(write(x, index, new)), np.array(wanted, np.float32), name)
