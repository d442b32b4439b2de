"""Dtypes as users give them: ours, names, and those of NumPy, ml_dtypes and PyTorch, wherever a dtype is taken."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.codes import DTypeError
from tessera.diagnostics.error import TesseraError
from tessera.types.dtype import ALL, DType, find_dtype, parse_dtype

NAMES = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    **{f"i{bits}": f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    "bool": "bool_",
}
FORMS: list[Any] = [ts.bf16, "bf16", "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)]


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_dtype_by_every_name(dtype: Any) -> None:
    name = NAMES[dtype.name]
    scalar = getattr(np, name, None) or getattr(ml_dtypes, name)
    for given in (dtype, dtype.name, name, scalar, np.dtype(scalar)):
        assert parse_dtype(given) is dtype


def test_dtypes_of_pytorch() -> None:
    torch: Any = pytest.importorskip("torch")
    for ours, name in NAMES.items():
        other = getattr(torch, name.rstrip("_"), None)
        if other is not None:
            assert str(find_dtype(other)) == ours
    assert find_dtype(torch.complex64) is None
    assert ts.zeros(2, torch.bfloat16).dtype is ts.bf16


def test_scalar_types_that_hold_a_dtype() -> None:
    holder = type("float32", (), {"dtype": np.dtype("float32")})
    assert find_dtype(holder) is ts.f32
    assert find_dtype(holder()) is None


@pytest.mark.parametrize("given", [float, int, object, "half", "i3", "f4", "<f4", ">f4", np.dtype(">f4"), None, 3, 2.5])
def test_what_is_no_dtype(given: Any) -> None:
    assert find_dtype(given) is None
    with pytest.raises(DTypeError, match="is not a dtype") as caught:
        parse_dtype(given)
    assert caught.value.fix is not None


@pytest.mark.parametrize(
    ("given", "help"),
    [("float33", "`float32`"), ("bf17", "`bf16`"), (float, "`tessera.f32`"), (np.datetime64, "the dtypes are")],
)
def test_the_nearest_names_are_told(given: Any, help: str) -> None:
    with pytest.raises(DTypeError) as caught:
        parse_dtype(given)
    assert help in str(caught.value)


def test_short_codes_of_numpy_are_not_taken() -> None:
    """`i4` has four bytes there and four bits here."""
    assert find_dtype("i4") is ts.i4
    assert find_dtype(np.dtype("i4")) is ts.i32


X = np.ones((4, 4), np.float32)
TAKERS: dict[str, Callable[[Any], Any]] = {
    "array": lambda dtype: ts.array(X, dtype),
    "array of a list": lambda dtype: ts.array([1.0], dtype),
    "asarray": lambda dtype: ts.asarray(X, dtype),
    "zeros": lambda dtype: ts.zeros(2, dtype),
    "ones": lambda dtype: ts.ones(2, dtype),
    "full": lambda dtype: ts.full(2, 1.0, dtype),
    "arange": lambda dtype: ts.arange(3, dtype=dtype),
    "cast": lambda dtype: ts.ops.cast(X, dtype),
    "x.cast": lambda dtype: ts.array(X).cast(dtype),
    "x.astype": lambda dtype: ts.array(X).astype(dtype),
    "bitcast": lambda dtype: ts.ops.bitcast(np.ones(2, np.int16), dtype),
    "one_hot": lambda dtype: ts.ops.one_hot(np.arange(2), 3, dtype),
    "eye": lambda dtype: ts.ops.eye(2, dtype=dtype),
    "linspace": lambda dtype: ts.ops.linspace(0.0, 1.0, 3, dtype),
    "matmul": lambda dtype: ts.ops.matmul(X, X, dtype=dtype),
    "normal": lambda dtype: ts.random.normal(ts.random.key(0), (2,), dtype=dtype),
    "uniform": lambda dtype: ts.random.uniform(ts.random.key(0), (2,), dtype=dtype),
    "cache": lambda dtype: ts.KVCache.empty(1, 2, 8, 4, dtype),
    "Tensor.of": lambda dtype: ts.Tensor.of([1.0], dtype),
    "Tensor.empty": lambda dtype: ts.Tensor.empty((2,), dtype),
    "annotation": lambda dtype: ts.Tensor["N", dtype],
    "kernel annotation": lambda dtype: KTile["M", "N", dtype],
    "in jit": lambda dtype: ts.jit(lambda x: x.cast(dtype), backend="reference")(X),
    "kernel": lambda dtype: _cast_tiles(dtype)(X),
    "policy": lambda dtype: SimpleNamespace(dtype=ts.Policy(storage=dtype).storage),
    "compute": lambda dtype: SimpleNamespace(dtype=ts.compute(dtype).compute),
    "accum": lambda dtype: SimpleNamespace(dtype=(ts.bf16 @ ts.accum(dtype)).policy.accumulate),
}


def _cast_tiles(dtype: Any) -> Any:
    @kernel
    def cast_tiles(x: KTile["M", "N"]) -> Any:
        T = tile.context()
        return tile.cast(tile.load(x, rows=T.m, cols=T.n), dtype)

    return cast_tiles


@pytest.mark.parametrize("name", TAKERS)
def test_all_that_take_a_dtype_take_every_form(name: str) -> None:
    forms = FORMS if "annotation" not in name else [one for one in FORMS if not isinstance(one, str)]
    for given in forms:
        assert TAKERS[name](given).dtype is ts.bf16, given
    with pytest.raises(TesseraError) as caught:
        TAKERS[name](np.datetime64)
    assert caught.value.fix is not None


def test_a_policy_of_another_librarys_dtype_is_the_same_policy() -> None:
    policy: Any = ts.Policy
    assert policy(storage="bfloat16", accumulate=np.float32) == ts.Policy(storage=ts.bf16, accumulate=ts.f32)
    bf16: Any = ts.bf16
    assert bf16 @ np.float32 == bf16 @ ts.f32


def test_array_copies_and_converts_and_asarray_shares() -> None:
    source = np.ones((2, 3), np.float32)
    copied, shared, own = ts.array(source), ts.asarray(source), ts.ones(3)
    source[0, 0] = 5.0
    assert (copied.tolist()[0][0], shared.tolist()[0][0]) == (1.0, 5.0)
    assert ts.asarray(own) is own
    assert ts.array(own) is not own
    assert ts.array(own).address != own.address
    for dtype in (ts.f64, ts.bf16, ts.i8, ts.bool_, ts.f32):
        for make in (ts.array, ts.asarray):
            for given in (source, ts.array(source), source.T):
                assert make(given, dtype).dtype is dtype
                assert make(given, dtype).shape == given.shape
    assert ts.array(np.array([1.9, -1.9, np.nan, 1e20]), "int8").tolist() == [1, -1, 0, 127]
    assert ts.array(np.array([-8, 7], np.int8), ts.i4).tolist() == [-8, 7]
    for empty in (np.ones((0, 3), np.float32), np.float32(2.0), np.ones((), np.int32)):
        assert ts.array(empty, ts.f64).shape == empty.shape


def test_arrays_made_inside_a_trace_are_data() -> None:
    found: list[Any] = []
    ts.jit(lambda x: (found.append(ts.array(X, "f64")), x)[1], backend="reference")(X)
    assert found[0].tolist() == X.tolist()
    assert found[0].dtype is ts.f64


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_dtype_that_is_copied_or_sent_elsewhere_is_the_same_object(dtype: DType) -> None:
    assert pickle.loads(pickle.dumps(dtype)) is copy.deepcopy(dtype) is dtype
