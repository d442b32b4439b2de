"""matmul and dot_general: shape rules and their failures, meaning against NumPy, and the maps they lower by."""

from __future__ import annotations

import numpy as np
import pytest

from tessera.ir.base.arrays import Array, round_as
from tessera.ir.tile.facets import Contraction, ContractionMaps
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, bool_, f16, f32, f64, i4, i8, i32, i64, u8
from tests.graph.eager import RuleDTypeError, RuleError, Rules, infer, reference, registry, tensor, type_of


def evaluate_maps(maps: ContractionMaps, lhs: Array, rhs: Array) -> Array:
    """The sum a set of maps stands for, one element at a time."""
    batch, m, n, k = (tuple(int(dim.value or 0) for dim in dims) for dims in (maps.batch, maps.m, maps.n, maps.k))
    out = np.zeros((*batch, *m, *n))
    for place in np.ndindex(*batch, *m, *n):
        rest = list(place)
        names = [f"{group}{i}" for group, dims in (("b", batch), ("m", m), ("n", n)) for i in range(len(dims))]
        env = dict(zip(names, rest, strict=True))
        for step in np.ndindex(*k):
            env |= {f"k{i}": value for i, value in enumerate(step)}
            if all(0 <= e.evaluate(env) < extent.evaluate(env) for _, e, extent in maps.windows):
                left = lhs[tuple(e.evaluate(env) for e in maps.lhs)]
                right = rhs[tuple(e.evaluate(env) for e in maps.rhs)]
                out[place] += float(left) * float(right)
    return out


@pytest.mark.parametrize("op", ["matmul", "dot_general"])
def test_reference_and_maps_agree_on_every_sample(op: str) -> None:
    spec = registry()[op]
    assert isinstance(spec.lower, Contraction)
    for sample in spec.samples:
        arrays = sample.make(np.random.default_rng(0))
        attributes = spec.with_defaults(sample.attributes)
        maps = spec.lower.maps([type_of(array) for array in arrays], attributes)
        result = reference(op, *arrays, **attributes)
        assert [dim.value for dim in (*maps.batch, *maps.m, *maps.n)] == list(result.shape)
        np.testing.assert_allclose(result, evaluate_maps(maps, arrays[0], arrays[1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("a", "b"),
    [((3,), (3,)), ((3,), (3, 2)), ((2, 3), (3,)), ((4, 2, 3), (3,)), ((3,), (5, 3, 2)), ((4, 1, 2, 3), (5, 3, 2))],
)
def test_matmul_has_the_shapes_of_numpy(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal(a), rng.standard_normal(b)
    np.testing.assert_allclose(reference("matmul", x, y), x @ y, rtol=1e-12)


def test_matmul_keeps_symbols_and_guards_what_it_cannot_prove() -> None:
    rules = Rules()
    (out,) = infer("matmul", tensor("B", "S", "D", dtype=bf16), tensor("E", "F", dtype=bf16), rules=rules)
    assert str(out) == "[B, S, F] bf16"
    assert rules.guards == [(Dim.symbol("D"), Dim.symbol("E"))]


def test_narrow_floats_accumulate_in_f32_and_round_once() -> None:
    a = round_as(np.full((1, 1000), 0.1), bf16)
    b = round_as(np.full((1000, 1), 1.0), bf16)
    expected = round_as(np.float32(np.asarray(a, np.float32)[0, 0] * 1000), bf16)
    np.testing.assert_allclose(np.asarray(reference("matmul", a, b), np.float32), np.asarray(expected, np.float32))


def test_integers_wrap_unless_a_wider_result_is_asked_for() -> None:
    a = np.full((1, 4), 100, np.int8)
    b = np.full((4, 1), 100, np.int8)
    assert reference("matmul", a, b).item() == np.int32(40000).astype(np.int8)
    assert reference("matmul", a, b, dtype=i32).item() == 40000


def test_mixed_dtypes_promote() -> None:
    assert infer("matmul", tensor(2, 3, dtype=bf16), tensor(3, 4, dtype=f32))[0].dtype is f32
    assert infer("matmul", tensor(2, 3, dtype=bf16), tensor(3, 4, dtype=f16))[0].dtype is f32
    assert infer("matmul", tensor(2, 3, dtype=u8), tensor(3, 4, dtype=i8), dtype=i32)[0].dtype is i32
    assert infer("matmul", tensor(2, 3, dtype=i4), tensor(3, 4, dtype=i4), accumulate=i32)[0].dtype is i4


def test_matmul_says_what_is_wrong() -> None:
    with pytest.raises(
        RuleError,
        match=r"the inner dimensions `a.shape\[1\] = 512` and `b.shape\[0\] = 256` differ",
    ):
        infer("matmul", tensor("B", 512, dtype=f32), tensor(256, 1024, dtype=f32))
    with pytest.raises(RuleError, match="scalar"):
        infer("matmul", tensor(dtype=f32), tensor(3, dtype=f32))
    with pytest.raises(RuleError, match="cannot broadcast"):
        infer("matmul", tensor(2, 3, 4, dtype=f32), tensor(5, 4, 3, dtype=f32))
    with pytest.raises(RuleDTypeError, match="cannot mix i64 and f32"):
        infer("matmul", tensor(2, 3, dtype=i64), tensor(3, 4, dtype=f32))
    with pytest.raises(RuleDTypeError, match="bool"):
        infer("matmul", tensor(2, 3, dtype=bool_), tensor(3, 4, dtype=bool_))
    with pytest.raises(RuleDTypeError, match="accumulates in f32 or f64"):
        infer("matmul", tensor(2, 3, dtype=bf16), tensor(3, 4, dtype=bf16), accumulate=bf16)


def test_dot_general_says_what_is_wrong() -> None:
    a, b = tensor(2, 3, dtype=f64), tensor(4, 3, dtype=f64)
    with pytest.raises(RuleError, match="different axes"):
        infer("dot_general", a, b, lhs_contract=(2,), rhs_contract=(1,))
    with pytest.raises(RuleError, match="pair up one to one"):
        infer("dot_general", a, b, lhs_contract=(1,), rhs_contract=(0, 1))
    with pytest.raises(RuleError, match=r"which differ \(2 and 4\)"):
        infer("dot_general", a, b, lhs_contract=(0,), rhs_contract=(0,))


def test_cost_counts_multiplications_and_additions() -> None:
    spec = registry()["matmul"]
    a, b = tensor("M", "K", dtype=f32), tensor("K", "N", dtype=f32)
    assert spec.cost is not None
    cost = spec.cost([a, b], infer("matmul", a, b), spec.with_defaults({}))
    assert cost.flops == Dim.of("2*M*N*K")
    assert cost.bytes == Dim.of("4*M*K + 4*K*N + 4*M*N")
