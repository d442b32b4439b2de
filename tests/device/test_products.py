"""Dots on tensor cores however they are scheduled: one set of bits, and functions after them on every number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.device.test_matrix import distance, nn, nt, on_gpu, wide

pytestmark = [
    pytest.mark.device("sm_90"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]

RNG = np.random.default_rng(5)
BF16 = np.dtype(ml_dtypes.bfloat16)
STEPS = ("bias", "act", "dropout", "residual")


def random(*shape: int, dtype: Any = BF16) -> Any:
    return RNG.standard_normal(shape).astype(np.float32).astype(dtype)


def layer(x: Any, w: Any, b: Any, r: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w) + b, approximate="tanh") + r


def wide_layer(x: Any, w: Any, b: Any, r: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w, dtype=ts.f32) + b, approximate="tanh") + r


WAYS: list[dict[str, Any]] = [
    {},
    {"matrix.epilogue": "after"},
    {"matrix.multicast": "always"},
    {"matrix.multicast": "never"},
    {"matrix.multicast": "always", "matrix.epilogue": "after"},
    {"contraction.block": (128, 256, 64)},
    {"contraction.block": (128, 144, 64)},
    {"contraction.block": (192, 128, 64)},
    {"contraction.block": (192, 192, 64), "matrix.multicast": "always"},
    {"contraction.block": (256, 128, 64)},
    {"contraction.block": (256, 160, 64), "matrix.multicast": "always"},
    {"contraction.block": (192, 200, 64)},
    {"contraction.block": (64, 80, 64)},
    {"contraction.block": (64, 64, 128), "matrix.multicast": "always"},
    {"matrix.roles": "uniform"},
    {"matrix.roles": "uniform", "contraction.block": (192, 128, 64), "pipeline.stages": 2},
]


@pytest.mark.parametrize(
    ("form", "n"),
    [("nt", 3400), ("nn", 3400), ("layer", 3400), ("layer", 3456), ("layer", 3401), ("wide_layer", 3400)],
)
def test_bits_depend_on_no_choice(form: str, n: int) -> None:
    """Blocks, pairs of CTAs, who copies, and when what follows the dots is done; more programs than multiprocessors."""
    m, k = 3328, 584
    x, w = random(m, k), random(*((n, k) if form == "nt" else (k, n)))
    given = (x, w) if form in ("nt", "nn") else (x, w, random(n), random(m, n))
    function = {"nt": nt, "nn": nn, "layer": layer, "wide_layer": wide_layer}[form]
    found = [on_gpu(function, *given, overrides=way).tobytes() for way in WAYS]
    assert [one == found[0] for one in found] == [True] * len(WAYS)
    right = wide(w).T if form == "nt" else wide(w)
    if form in ("nt", "nn"):
        assert distance(np.frombuffer(found[0], BF16).reshape(m, n), wide(x) @ right) <= 2.0**-8


@pytest.mark.parametrize("name", ["e4m3", "i8", "f16"])
def test_bits_of_other_dtypes_depend_on_no_choice(name: str) -> None:
    dtype = {"e4m3": ml_dtypes.float8_e4m3fn, "i8": np.int8, "f16": np.float16}[name]
    x, w = (random(size, 640, dtype=np.float32) for size in (1792, 2816))
    x, w = ((8 * one).astype(dtype) if name == "i8" else one.astype(dtype) for one in (x, w))

    def program(a: Any, b: Any) -> Any:
        return ts.ops.matmul(a, ts.ops.transpose(b), dtype=ts.i32 if name == "i8" else ts.f32)

    ways = [*WAYS[:5], {"contraction.block": (192, 128, 64)}, {"matrix.lag": 0}]
    ways += [] if name == "e4m3" else [{"matrix.roles": "uniform"}]
    found = [on_gpu(program, x, w, overrides=way) for way in ways]
    assert len({one.tobytes() for one in found}) == 1
    assert distance(found[0], wide(x) @ wide(w).T) <= (0.0 if name == "i8" else 3e-4)


@pytest.mark.parametrize("size", [(300, 264, 520), (77, 100, 333), (1, 96, 640)])
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("names", ["i8 i8", "u8 u8", "u8 i8", "i8 u8", "e4m3 e4m3", "tf32 tf32"])
def test_operands_that_lie_across_k(names: str, form: str, size: tuple[int, int, int]) -> None:
    """Integers are exact; floats have the bits of operands that lie along it."""
    (m, n, k), (first, _, second) = size, names.partition(" ")
    kinds = {"i8": np.int8, "u8": np.uint8, "e4m3": ml_dtypes.float8_e4m3fn, "tf32": np.float32}
    x, w = (
        RNG.integers(-128 * (one == "i8"), 128, shape).astype(kinds[one])
        if one in ("i8", "u8")
        else random(*shape, dtype=kinds[one])
        for one, shape in ((first, (m, k)), (second, (n, k)))
    )
    is_integer = first in ("i8", "u8")
    given = x.T.copy() if form[0] == "t" else x, w if form[1] == "t" else w.T.copy()

    def program(a: Any, b: Any) -> Any:
        left = ts.ops.transpose(a) if form[0] == "t" else a
        right = ts.ops.transpose(b) if form[1] == "t" else b
        return ts.ops.matmul(left, right, dtype=ts.i32 if is_integer else ts.f32)

    def along(a: Any, b: Any) -> Any:
        return ts.ops.matmul(a, ts.ops.transpose(b), dtype=ts.i32 if is_integer else ts.f32)

    policy = {"policy": ts.compute(ts.tf32)} if first == "tf32" else {}
    found = on_gpu(program, *given, **policy)
    np.testing.assert_array_equal(found, on_gpu(along, x, w, **policy))
    assert distance(found, wide(x) @ wide(w).T) <= (0.0 if is_integer else 1e-3)


@pytest.mark.parametrize("rows", [1, 3, 16, 64])
@pytest.mark.parametrize(
    ("n", "k"), [(2051, 2050), (4100, 1029), (4098, 1027), (8197, 1024), (40001, 333), (2061, 1030)]
)
@pytest.mark.parametrize("form", ["nn", "nt"])
def test_few_rows_of_matrices_whose_rows_begin_anywhere(form: str, n: int, k: int, rows: int) -> None:
    """Threads copy them; the bits are those of rows that TMA takes, and infinities stay in their row and column."""
    x, w = random(rows, k), random(*((k, n) if form == "nn" else (n, k)))
    w[5, 7] = np.inf
    wider = np.zeros((k, -(-n // 8) * 8), BF16) if form == "nn" else np.zeros((n, -(-k // 8) * 8), BF16)
    wider[: w.shape[0], : w.shape[1]] = w
    if form == "nn":
        found, wanted = on_gpu(nn, x, w), on_gpu(nn, x, wider)[:, :n]
    else:
        padded = np.zeros((rows, wider.shape[1]), BF16)
        padded[:, :k] = x
        found, wanted = on_gpu(nt, x, w), on_gpu(nt, padded, wider)
    assert found.tobytes() == wanted.tobytes()
    is_finite = np.isfinite(wide(w)).all(axis=0 if form == "nn" else 1)
    np.testing.assert_array_equal(np.isfinite(wide(found)).all(axis=0), is_finite)
    right = wide(w) if form == "nn" else wide(w).T
    assert distance(found[:, is_finite], (wide(x) @ right[:, is_finite])) <= 2.0**-8


@pytest.mark.parametrize(("k", "n"), [(520, 264), (333, 264), (333, 77)])
@pytest.mark.parametrize("dtype", [BF16, np.float16, np.int8])
def test_a_batch_that_is_innermost(k: int, n: int, dtype: Any) -> None:
    x, w = ((4 * random(*shape, dtype=np.float32)).astype(dtype) for shape in ((90, 6, k), (n, k, 6)))

    def program(a: Any, b: Any) -> Any:
        result = ts.i32 if dtype is np.int8 else ts.f32
        return ts.ops.dot_general(a, b, contract=((2,), (1,)), batch=((1,), (2,)), dtype=result)

    wanted = np.einsum("mbk,nkb->bmn", wide(x), wide(w))
    assert distance(on_gpu(program, x, w), wanted) <= (0.0 if dtype is np.int8 else 1e-5)


@pytest.mark.parametrize("rows", [1, 7, 16, 33, 64])
@pytest.mark.parametrize("form", ["nt", "nn"])
def test_few_rows(rows: int, form: str) -> None:
    x, w = random(rows, 520), random(*((1000, 520) if form == "nt" else (520, 1000)))
    right = wide(w).T if form == "nt" else wide(w)
    assert distance(on_gpu(nt if form == "nt" else nn, x, w), wide(x) @ right) <= 2.0**-8


@pytest.mark.parametrize("name", ["bf16", "e4m3", "i8", "tf32"])
def test_few_rows_have_one_result_whatever_the_block(name: str) -> None:
    """Blocks as narrow as leaves one for each multiprocessor, in deep steps, beside the usual ones."""
    kind = {"bf16": BF16, "e4m3": ml_dtypes.float8_e4m3fn, "i8": np.int8, "tf32": np.float32}[name]
    policy = {"policy": ts.compute(ts.tf32)} if name == "tf32" else {}

    def program(a: Any, b: Any) -> Any:
        return ts.ops.matmul(a, ts.ops.transpose(b), dtype=ts.i32 if name == "i8" else ts.f32)

    for rows, columns in ((16, 2048), (33, 3072), (64, 5000), (128, 2048)):
        x, w = ((8 * random(size, 1040, dtype=np.float32)).astype(kind) for size in (rows, columns))
        found = on_gpu(program, x, w, **policy)
        usual = on_gpu(program, x, w, overrides={"contraction.block": (64, 64, 64)}, **policy)
        np.testing.assert_array_equal(found, usual)
        assert distance(found, wide(x) @ wide(w).T) <= {"i8": 0.0, "bf16": 1e-5}.get(name, 1e-3)


def test_tf32_is_asked_for() -> None:
    """Dots of f32 are those of f32 unless a policy says tf32; then they are of numbers rounded to that."""
    x, w = random(300, 264, dtype=np.float32), random(520, 264, dtype=np.float32)
    exact = wide(x) @ wide(w).T
    assert distance(on_gpu(nt, x, w), exact) <= 1e-6
    found = on_gpu(nt, x, w, policy=ts.compute(ts.tf32))
    rounded = [wide(ts.ops.round_to(one, ts.tf32)) for one in (x, w)]
    assert distance(found, rounded[0] @ rounded[1].T) <= 1e-6
    assert 1e-5 < distance(found, exact) <= 1e-3


def values() -> Any:
    """Every number of bf16, infinities and NaN among them."""
    return np.arange(1 << 16, dtype=np.uint16).view(BF16)


def steps_apart(made: Any, wanted: Any) -> Any:
    """How many numbers of bf16 lie between; 0 where both are NaN."""
    places: list[Any] = []
    with np.errstate(all="ignore"):
        rounded = wanted.astype(BF16)
    for one in (made, rounded):
        bits = np.asarray(one).view(np.uint16).astype(np.int64)
        places.append(np.where(bits < 0x8000, bits, 0x8000 - bits))
    both = np.isnan(wide(made)) & np.isnan(wanted)
    return np.where(both, 0, np.abs(places[0] - places[1]))


def gelu_tanh(v: Any) -> Any:
    inner = np.sqrt(2 / np.pi) * (v + 0.044715 * v**3)
    return v / (1 + np.exp(-2 * inner))


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gelu": (lambda y: ts.ops.gelu(y, approximate="tanh"), gelu_tanh),
    "silu": (ts.ops.silu, lambda v: v / (1 + np.exp(-v))),
    "sigmoid": (ts.ops.sigmoid, lambda v: 1 / (1 + np.exp(-v))),
    "quotient": (lambda y: 3.0 / y, lambda v: 3.0 / v),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_after_products_are_within_a_step_of_every_number(name: str) -> None:
    ours, exact = FUNCTIONS[name]
    given = values()
    x, w = np.zeros((8, 64), BF16), np.zeros((given.size, 64), BF16)

    def program(a: Any, b: Any, c: Any) -> Any:
        return ours(ts.ops.matmul(a, ts.ops.transpose(b)) + c)

    made = on_gpu(program, x, w, given)[5]
    with np.errstate(all="ignore"):
        v = wide(given) + 0.0  # as the sum of nothing and -0
        wanted = exact(v)
        if name in ("gelu", "silu"):
            wanted = np.where(v == -np.inf, 0.0, wanted)
    # Where a gate is below the smallest normal number of f32, what it lets through is 0.
    tiny = np.abs(wanted) < 2.0**-118
    apart = steps_apart(made, wanted)
    assert apart[~tiny].max() <= 1, (v[~tiny][apart[~tiny].argmax()], apart[~tiny].max())
    assert np.all(np.abs(wide(made)[tiny]) < 2.0**-117)


@pytest.mark.parametrize("number", range(16))
def test_all_subsets_of_an_epilogue_are_one_kernel_and_equal_plain_ops(number: int) -> None:
    steps = [name for place, name in enumerate(STEPS) if number >> place & 1]
    operands = random(300, 200), random(200, 264), random(264), random(300, 264), ts.random.key(5)

    def chained(x: Any, w: Any, b: Any, r: Any, key: Any) -> Any:
        e = ts.ops.epilogue
        made = {"bias": e.bias(b), "act": e.act("relu"), "dropout": e.dropout(0.25, key), "residual": e.residual(r)}
        return e.chain([made[name] for name in steps])(x @ w)

    def plain(x: Any, w: Any, b: Any, r: Any, key: Any) -> Any:
        y = x @ w
        y = y + b if "bias" in steps else y
        y = ts.ops.relu(y) if "act" in steps else y
        y = ts.random.dropout(y, key, 0.25) if "dropout" in steps else y
        return ts.ops.residual(r, y) if "residual" in steps else y

    fused = ts.jit(chained, backend="cuda")
    with poisoned():
        first = np.asarray(fused(*operands))
    assert first.tobytes() == on_gpu(plain, *operands, fusion=False).tobytes()
    assert len(fused.explain(*operands).report["kernels"]) == 1


def two_results(x: Any, w: Any, b: Any) -> Any:
    y = (x @ w.T).cast(ts.f32) + b
    return y.cast(ts.bf16), (y * y).cast(ts.bf16)


def three_results(x: Any, w: Any, b: Any) -> Any:
    first, second = two_results(x, w, b)
    return first, second, (first.cast(ts.f32) * 2.0).cast(ts.f32)


def wide_and_narrow(x: Any, w: Any, b: Any) -> Any:
    """Lines of staging buffers hold half as many columns of the second one."""
    first, second = two_results(x, w, b)
    return first, second.cast(ts.f32) + first.cast(ts.f32) * 0.0


@pytest.mark.parametrize("function", [two_results, three_results, wide_and_narrow])
@pytest.mark.parametrize(("m", "n", "k"), [(4096, 3072, 768), (4096, 3080, 640), (1000, 5000, 1088), (512, 1024, 256)])
def test_each_of_several_results_is_right(function: Any, m: int, n: int, k: int) -> None:
    """They leave through the same staging buffers, beside the dots of the next program where there are many."""
    x, w, b = random(m, k), random(n, k), random(n, dtype=np.float32)
    jitted: Any = ts.jit(function, backend="cuda")
    found = [np.asarray(one).astype(np.float64) for one in jitted(x, w, b)]
    dots = (x.astype(np.float32) @ w.astype(np.float32).T).astype(BF16).astype(np.float64)
    wanted = dots + b.astype(np.float64)
    # A step of bf16 of the dots, which squares double, one of the result, and what sums in another order differ by.
    size = np.abs(x.astype(np.float32)) @ np.abs(w.astype(np.float32)).T
    error = 2.0**-7 * np.abs(dots) + 2.0**-8 * np.abs(wanted) + 2.0**-21 * size
    assert np.all(np.abs(found[0] - wanted) <= error)
    assert np.all(np.abs(found[1] - wanted**2) <= 2 * error * np.abs(wanted) + error**2 + 2.0**-8 * wanted**2)
    if len(found) == 3:
        assert np.all(found[2] == 2 * found[0])


@pytest.mark.parametrize("block", [None, (128, 136, 64), (192, 144, 64), (256, 128, 64)])
@pytest.mark.parametrize("n", [557, 558, 564, 1001])
def test_rows_that_tma_does_not_store_have_the_bits_of_those_that_it_does(n: int, block: Any) -> None:
    """By words, by halves of them, and what is left of a block; of one result, and of several."""
    m, k = 777, 264
    x, w, b = random(m, k), random(1008, k), random(1008, dtype=np.float32)
    way = {} if block is None else {"contraction.block": block}
    assert np.array_equal(on_gpu(nt, x, w[:n], overrides=way), on_gpu(nt, x, w)[:, :n])
    narrow, whole = (ts.jit(three_results, backend="cuda")(x, w[:size], b[:size]) for size in (n, 1008))
    for one, other in zip(narrow, whole, strict=True):
        assert np.array_equal(np.asarray(one), np.asarray(other)[:, :n])
