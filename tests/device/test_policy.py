"""Policies on a GPU: the bits of the CPU for what has a recipe, denormals, tf32, and 100 equal runs."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.runtime.devices.cuda.driver import is_available
from tests.device.poison import poisoned
from tests.policy.processes import printed_in_processes
from tests.policy.programs import POLICIES, random_program
from tests.policy.test_accumulators import OPS
from tests.policy.test_accumulators import POLICIES as WHOLE
from tests.policy.test_rounding import compute_rounded, tie_patterns

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")

RNG = np.random.default_rng(8)
A, B = (RNG.standard_normal(shape).astype(np.float32) for shape in ((64, 96), (96, 48)))


def bits(result: Any) -> list[Any]:
    """The bits of results, NaN and the zeros of extremes alike."""
    found: list[Any] = []
    several: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)  # pyright: ignore[reportUnknownVariableType]
    for one in several:
        wide = np.asarray(one).astype(np.float64)
        found.append(np.where(np.isnan(wide), np.nan, wide + 0.0).view(np.uint64))
    return found


def both(function: Any, policy: Any, *arrays: Any) -> tuple[list[Any], list[Any]]:
    with poisoned():
        there = bits(ts.jit(function, backend="cuda", policy=policy)(*arrays))
    return bits(ts.jit(function, policy=policy)(*arrays)), there


RECIPES = [
    ts.Policy(storage=ts.bf16, rounding="stochastic"),
    ts.Policy(rounding="toward_zero", storage=ts.bf16),
    ts.Policy(saturation="saturate", storage=ts.f16, denormals="flush"),
    ts.Policy(accumulate=ts.bf16),
    ts.Policy(accumulate=ts.f16),
]


def steps(a: Any, b: Any) -> Any:
    """Everything but a dot on tensor cores: elementwise ops, sums, a softmax, casts."""
    c = ops.exp(a) + 1.0
    return c, c.sum(-1), ops.softmax(c), (a * 500.0).cast(ts.f8e4m3).cast(ts.f32), ops.mean(b, axis=0) * 3.0


@pytest.mark.parametrize("policy", RECIPES, ids=str)
def test_d8_bits_under_a_policy_are_those_of_the_cpu(policy: Any) -> None:
    here, there = both(steps, policy, A, B)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(2 * len(POLICIES)))
def test_d8_random_programs_have_the_bits_of_the_cpu(seed: int) -> None:
    program = random_program(seed)
    arrays = program.arrays()
    function: Any = ts.jit(program, backend="cuda")
    if "ttarget.matrix_kernel" in function.lower(*arrays).target:
        pytest.skip("dots on tensor cores add up in an order of their own")
    there, here = bits(function(*arrays)), bits(ts.jit(program)(*arrays))
    for number, (one, other) in enumerate(zip(here, there, strict=True)):
        np.testing.assert_array_equal(one, other, f"step {number} of {program}")


@pytest.mark.parametrize("total", [ts.bf16, ts.f16, ts.f8e5m2, ts.f64], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_d8_reductions_in_every_accumulator_have_the_bits_of_the_cpu(name: str, total: Any) -> None:
    function, arrays = OPS[name]
    here, there = both(function, ts.accum(total), *arrays)
    np.testing.assert_array_equal(here[0], there[0])


@pytest.mark.parametrize("policy", WHOLE, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_d8_reductions_under_whole_policies_have_the_bits_of_the_cpu(name: str, policy: Any) -> None:
    function, arrays = OPS[name]
    here, there = both(function, policy, *arrays)
    np.testing.assert_array_equal(here[0], there[0])


def test_n1_1_the_product_of_the_smallest_numbers_is_as_promised() -> None:
    x, y = np.array([1e-45, 1e-30, -1e-30, 2.0], np.float32), np.array([1.0, 1e-10, 1e-10, 1e-39], np.float32)
    wanted = {ts.keep_denormals: x * y, ts.flush_denormals: np.array([0.0, 0.0, -0.0, 0.0], np.float32)}
    for policy, values in wanted.items():
        given = np.asarray(ts.jit(lambda x, y: x * y, policy=policy, backend="cuda")(x, y))
        np.testing.assert_array_equal(given.view(np.uint32), values.view(np.uint32))


@pytest.mark.parametrize("storage", [ts.bf16, ts.f16], ids=str)
def test_dots_on_tensor_cores_stop_at_the_ends_where_a_policy_says_so(storage: Any) -> None:
    """Sums beyond the largest number, and NaN among them; all others as without the policy."""
    a, b = (RNG.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    a[:16] *= 2.0**120 if storage is ts.bf16 else 2.0**12
    b[:, :16] *= 2.0**60 if storage is ts.bf16 else 2.0**10
    a[21, 4] = np.nan
    held = ts.Policy(storage=storage, saturation="saturate")
    function: Any = ts.jit(lambda a, b: a @ b, policy=held, backend="cuda")
    assert "ttarget.matrix_kernel" in function.lower(a, b).target
    with poisoned():
        given = np.asarray(function(a, b)).astype(np.float64)
        plain = np.asarray(ts.jit(lambda a, b: a @ b, policy=ts.Policy(storage=storage), backend="cuda")(a, b))
    wide, largest = plain.astype(np.float64), float(ml_dtypes.finfo(plain.dtype).max)
    assert np.isinf(wide).sum() > 100
    np.testing.assert_array_equal(given, np.where(np.isnan(wide), np.nan, np.clip(wide, -largest, largest)))


@pytest.mark.parametrize("size", [64, 200, 512])
def test_n2_1_inference_is_within_the_error_of_its_format(size: int) -> None:
    a, b = (RNG.standard_normal((size, size)).astype(np.float32) for _ in range(2))
    function: Any = ts.jit(lambda a, b: a @ b, policy=ts.Inference(), backend="cuda")
    assert "ttarget.matrix_kernel" in function.lower(a, b).target
    with poisoned():
        given = np.asarray(function(a, b))
    plain, sizes = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    small = 2.0**-10 * (np.abs(a).sum(1)[:, None] + np.abs(b).sum(0)[None])
    bound = (2 * 2.0**-4 + 2.0**-8) * sizes + small + 2.0**-8 * np.abs(plain)
    assert given.dtype == ml_dtypes.bfloat16
    assert (np.abs(given.astype(np.float64) - plain) <= bound).all()


@pytest.mark.parametrize("policy", [ts.Inference(), ts.Training(), ts.Training(ts.f16)], ids=str)
def test_a_row_alone_has_the_bits_it_has_among_others(policy: Any) -> None:
    x, w = (RNG.standard_normal(shape).astype(np.float32) for shape in ((200, 640), (640, 384)))
    function: Any = ts.jit(lambda x, w: x @ w, policy=policy, backend="cuda")
    whole = np.asarray(function(x, w))
    for rows in (1, 2, 17, 64, 130):
        assert np.asarray(function(x[:rows], w)).tobytes() == whole[:rows].tobytes()


def test_l6_1_dots_of_f32_are_those_of_f32_unless_tf32_is_asked_for() -> None:
    a, b = (RNG.standard_normal((256, 256)).astype(np.float32) for _ in range(2))
    plain, sizes = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    bound = (256 + 1) * 2.0**-24 * sizes
    given = np.asarray(ts.jit(lambda a, b: a @ b, backend="cuda")(a, b))
    assert (np.abs(given - plain) <= bound).all()
    asked = ts.jit(lambda a, b: a @ b, backend="cuda", policy=ts.compute(ts.tf32))
    assert "compute(tf32)" in repr(asked)
    assert not (np.abs(np.asarray(asked(a, b)) - plain) <= bound).all()


def test_l4_tf32_decides_every_tie_to_even_on_a_gpu() -> None:
    patterns = tie_patterns()
    given = ts.jit(lambda x: ops.round_to(x, ts.tf32), backend="cuda")(patterns.view(np.float32))
    np.testing.assert_array_equal(np.asarray(given).view(np.uint32), compute_rounded())


def test_d1_a_hundred_runs_are_bit_equal_on_tensor_cores_and_off() -> None:
    a, b = (RNG.standard_normal((512, 512)).astype(ml_dtypes.bfloat16) for _ in range(2))
    f = ts.jit(lambda a, b: (ops.gelu(a @ b), ops.softmax(a), a.sum()), backend="cuda")
    first = [np.asarray(out).tobytes() for out in f(a, b)]
    for _ in range(99):
        assert [np.asarray(out).tobytes() for out in f(a, b)] == first


RESULTS = """
import hashlib
import ml_dtypes
import numpy as np
import tessera as ts
rng = np.random.default_rng(5)
a, b = (rng.standard_normal((512, 512)).astype(ml_dtypes.bfloat16) for _ in range(2))
f = ts.jit(lambda a, b: (ts.ops.gelu(a @ b), ts.ops.softmax(a), a.sum(0)), backend="cuda", policy=ts.Training())
print(hashlib.sha256(b"".join(np.asarray(one).tobytes() for one in f(a, b))).hexdigest(), f.cache_info().compiles)
"""


def test_d7_results_are_the_same_in_every_process(tmp_path: Path) -> None:
    """Cold, warm, and cold elsewhere with other hashes: what comes out is equal, byte for byte."""
    found = [printed.split() for printed in printed_in_processes(RESULTS, tmp_path)]
    assert len({digest for digest, _ in found}) == 1
    assert [compiles for _, compiles in found] == ["1", "0", "1"]


GRADIENTS = """
import hashlib
import ml_dtypes
import numpy as np
import tessera as ts
rng = np.random.default_rng(5)
w, x = (rng.standard_normal((256, 256)).astype(np.float32) * 0.1 for _ in range(2))
q = rng.standard_normal((1, 4, 128, 64)).astype(ml_dtypes.bfloat16)

def loss(w, x, q):
    y = ts.ops.cross_entropy(ts.ops.gelu(x @ w), ts.array(np.arange(256)))
    return y.cast(ts.f32) + (ts.ops.flash_attention(q, q, q, causal=True).cast(ts.f32) ** 2.0).sum()

f = ts.jit(ts.value_and_grad(loss, (0, 1, 2)), backend="cuda", policy=ts.Training())
value, gradients = f(w, x, q)
found = b"".join(np.asarray(one).tobytes() for one in (value, *gradients))
print(hashlib.sha256(found).hexdigest(), f.cache_info().compiles)
"""


def test_d7_gradients_are_the_same_in_every_process(tmp_path: Path) -> None:
    found = [printed.split() for printed in printed_in_processes(GRADIENTS, tmp_path)]
    assert len({digest for digest, _ in found}) == 1
    assert [compiles for _, compiles in found] == ["1", "0", "1"]


@pytest.mark.parametrize("policy", [ts.Training(), ts.Training(ts.f16), ts.Inference()], ids=str)
def test_gradients_under_a_policy_are_near_those_of_the_cpu(policy: Any) -> None:
    """Tensor cores add in another order, and a rounding behind may fall the other way."""
    w, x = (RNG.standard_normal((128, 128)).astype(np.float32) * 0.1 for _ in range(2))
    gradient = ts.value_and_grad(lambda w, x: (ops.gelu(x @ w) ** 2.0).sum(), (0, 1))
    _, found = ts.jit(gradient, backend="cuda", policy=policy)(w, x)
    _, wanted = ts.jit(gradient, policy=policy)(w, x)
    step = 2.0**-3 if policy.storage is ts.f8e4m3 else 2.0**-7
    for own, theirs in zip(found, wanted, strict=True):
        assert own.dtype is ts.f32
        error = np.linalg.norm(np.asarray(own) - np.asarray(theirs)) / np.linalg.norm(np.asarray(theirs))
        assert error <= 2 * step


def test_exact_functions_in_matrix_kernels_are_nearer_than_those_of_the_machine() -> None:
    a = (RNG.standard_normal((256, 256)) * 0.1).astype(ml_dtypes.bfloat16)
    exact = ts.jit(lambda a: ops.exp((a @ a).cast(ts.f32)), backend="cuda", overrides={"math.exp": "exact"})
    product = np.asarray(ts.jit(lambda a: a @ a, backend="cuda")(a)).astype(np.float64)
    wanted = np.exp(product)
    given = np.asarray(exact(a)).astype(np.float64)
    ulp = np.spacing(np.abs(wanted).astype(np.float32)).astype(np.float64)
    assert (np.abs(given - wanted) <= 1.0 * ulp).all()
    quick = np.asarray(ts.jit(lambda a: ops.exp((a @ a).cast(ts.f32)), backend="cuda")(a)).astype(np.float64)
    assert (np.abs(quick - wanted) <= 3.0 * ulp).all()
    assert exact.explain(a).report["numerics"] == "reproducible"


def sweep() -> Any:
    """Every finite number of bf16, with zeros where others are, and what multiplies it by 1."""
    codes = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16).reshape(256, 256)
    finite = np.isfinite(codes.astype(np.float32))
    return np.where(finite, codes, ml_dtypes.bfloat16(0)), np.eye(256).astype(ml_dtypes.bfloat16)


def _gelu_tanh(x: Any) -> Any:
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu(x: Any) -> Any:
    return x * 0.5 * np.vectorize(math.erfc)(-x / math.sqrt(2))


EPILOGUES: dict[str, Any] = {
    "exp": (lambda y: ops.exp(y), np.exp),
    "sigmoid": (lambda y: ops.sigmoid(y), lambda x: 1 / (1 + np.exp(-x))),
    "silu": (lambda y: ops.silu(y), lambda x: x / (1 + np.exp(-x))),
    "gelu_tanh": (lambda y: ops.gelu(y, approximate="tanh"), _gelu_tanh),
    "gelu_erf": (lambda y: ops.gelu(y), _gelu),
}


@pytest.mark.parametrize("name", EPILOGUES)
@pytest.mark.parametrize("exactly", [False, True])
def test_epilogues_of_all_of_bf16_are_within_their_bounds(name: str, exactly: bool) -> None:
    call, meant = EPILOGUES[name]
    x, one = sweep()
    overrides = {"math.exp": "exact"} if exactly else {}
    function = ts.jit(lambda x, one: call(x @ one), backend="cuda", overrides=overrides)
    assert "ttarget.matrix_kernel" in function.lower(x, one).target
    with poisoned():
        given = np.asarray(function(x, one)).astype(np.float64)
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = meant(wide)
        step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(wanted), 2.0**-126))) - 7)
        away = np.abs(given - wanted)
    # What overflows may do so at the next number; a gate below the smallest normal number may be 0.
    finite = np.isfinite(wanted) & (np.abs(wanted) < 3.39e38)
    far = away > 0.51 * step + 2.0**-126 * np.maximum(1.0, np.abs(wide))
    assert not (far & finite).any(), [(wide[far & finite][:5], given[far & finite][:5], wanted[far & finite][:5])]
    assert np.isinf(given[np.isinf(wanted)]).all()


def test_quotients_rounded_to_bf16_are_within_their_bound() -> None:
    x, one = sweep()
    y = (RNG.standard_normal((256, 256)) * np.exp2(RNG.integers(-120, 120, (256, 256)))).astype(ml_dtypes.bfloat16)
    with poisoned():
        given = np.asarray(ts.jit(lambda x, one, y: (x @ one) / y, backend="cuda")(x, one, y)).astype(np.float64)
    with np.errstate(all="ignore"):
        wanted = x.astype(np.float64) / y.astype(np.float64)
        step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(wanted), 2.0**-126))) - 7)
        away = np.abs(given - wanted)
    far = (away > 0.51 * step + 2.0**-126) & (np.abs(wanted) < 3.38e38)
    assert not far.any(), [(x[far][:5], y[far][:5], given[far][:5], wanted[far][:5])]


@pytest.mark.parametrize("saturation", ["saturate", "wrap"])
@pytest.mark.parametrize("format", ["i8", "u8", "i16"])
def test_n3_1_stochastic_integers_of_negative_numbers_have_the_bits_of_the_cpu(format: str, saturation: str) -> None:
    """A tiny negative number is nearly always 0 and sometimes -1, and one beyond the ends stops there or wraps."""
    spread = np.concatenate([RNG.uniform(-3, 3, 4000), RNG.uniform(-140, 140, 4000), -np.geomspace(1e-30, 0.9, 500)])
    ends = np.array(
        [-0.0, 0.0, -0.5, -1.0, -1.5, -127.5, -128.0, -128.5, -129.0, 127.5, 128.0, np.nan, -np.inf, np.inf]
    )
    x, key = np.concatenate([spread, ends]).astype(np.float32), np.array([3, 5], np.uint64)

    def function(x: Any, key: Any) -> Any:
        return ops.round_to(x, format, rounding="stochastic", saturation=saturation, key=key)

    here, there = both(function, ts.Policy(), x, key)
    np.testing.assert_array_equal(here[0], there[0])
    if format == "i8":
        assert len(np.unique(here[0][:4000])) == 7, "from -3 to 3"
