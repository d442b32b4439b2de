"""What a policy, a scaler or a promise about numbers does not take is refused where it is written."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import ops

ONE = np.ones((4, 4), np.float32)


def refused(call: Any, code: str, *words: str) -> None:
    with pytest.raises(ts.TesseraError) as caught:
        call()
    assert caught.value.code == code
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("field", ["compute", "storage"])
def test_products_of_floats_in_integers(field: str) -> None:
    def call() -> None:
        with ts.policy(**{field: ts.i8}):
            ts.jit(lambda a: a @ a)(ONE)

    refused(call, "T0107", "`matmul` of f32", "i8")


def test_unknown_fields_and_what_is_no_policy() -> None:
    def scope() -> None:
        with ts.policy(bogus=1):
            pass

    refused(scope, "T0107", "`policy` has no field `bogus`", "saturation")
    for given in ("x", 3):
        wrong: Any = given
        refused(lambda: ts.jit(lambda a: a, policy=wrong), "T0107", "`jit` takes a Policy", repr(given))  # noqa: B023


def test_loss_scalers_name_what_is_wrong() -> None:
    refused(lambda: ts.LossScaler(scale=-1.0, interval=0), "T0107", "`scale` above 0, got -1.0", "`interval`", "got 0")
    refused(lambda: ts.LossScaler(growth=1.0), "T0107", "`growth` above 1, got 1.0")
    for wrong in (float("inf"), float("nan"), 2.0**25):
        refused(lambda wrong=wrong: ts.LossScaler(scale=wrong), "T0107", "`scale`", f"got {wrong!r}")
    refused(lambda: ts.LossScaler(largest=math.inf), "T0107", "`largest` that is finite in f32, got inf")
    refused(lambda: ts.LossScale(1.0, largest=1e39), "T0107", "`largest` that is finite in f32, got 1e+39")
    refused(lambda: ts.LossScale(1.0, least=1e-60), "T0107", "`least` that is a normal number of f32, got 1e-60")
    refused(lambda: ts.LossScale(1.0, interval=1.5), "T0107", "`interval` that is whole")  # type: ignore[arg-type]
    refused(lambda: ts.LossScale(1.0, interval=2**31), "T0107", "below 2**31, got 2147483648")
    refused(lambda: ts.LossScaler(least=2.0, largest=1.0), "T0107", "`least` above 0, and not above `largest`, got 2.0")
    with pytest.raises(ts.TesseraError) as caught:
        ts.LossScaler(interval=0)
    assert "growth" not in str(caught.value)


def test_ranges_that_are_none() -> None:
    for given in ("x", [1], [1, "b"], 3, [1, 2, 3]):
        wrong: Any = given
        refused(lambda: ts.verify.numerics(bounded=wrong), "T0305", "`bounded` is a range [low, high]")  # noqa: B023
    number: Any = 3
    refused(lambda: ts.verify.numerics(number), "T0305", "takes a function, got 3")
    refused(
        lambda: ts.verify.numerics(inputs={"zz": [-5, 5]})(lambda x: x + 1.0),
        "T0305",
        "`zz`, which is no parameter",
        "`x`",
    )


@pytest.mark.parametrize("bad", [np.nan, np.inf, 7.0])
def test_arguments_are_held_to_their_ranges(bad: float) -> None:
    squash = ts.verify.numerics(bounded=[-50, 50], inputs={"x": [-5, 5]}, debug=True)(lambda x: ops.tanh(x) * 2.0)
    assert np.asarray(squash(np.array([5.0, -5.0], np.float32))).shape == (2,)
    refused(lambda: squash(np.array([0.0, bad], np.float32)), "T0708", "argument `x`", f"{bad:g}")


def test_ends_of_ranges_that_round() -> None:
    double = ts.verify.numerics(bounded=[-4, 4], inputs={"x": [-0.1, 0.1]}, debug=True)(lambda x: x * 2.0)
    assert np.asarray(double(np.array([0.1, -0.1], np.float32))).tolist() == pytest.approx([0.2, -0.2])
    wide = ts.verify.numerics(inputs={"x": [-1e301, 1e301]}, debug=True)(lambda x: x * 0.5)
    assert np.asarray(wide(np.array([1e300]))).tolist() == [5e299]


WHOLE = [
    ("i8", np.int8),
    ("u8", np.uint8),
    ("i16", np.int16),
    ("u16", np.uint16),
    ("i32", np.int32),
    ("u32", np.uint32),
]


@pytest.mark.parametrize(("name", "kind"), WHOLE)
def test_integer_arithmetic_saturates(name: str, kind: Any) -> None:
    ends = np.iinfo(kind)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(ends.min, ends.max, 200, kind, endpoint=True) for _ in range(2))
    a[:4], b[:4] = [ends.min, ends.max, ends.max, ends.min], [ends.min, ends.max, ends.min, 1]

    def each(a: Any, b: Any) -> Any:
        return a + b, a - b, a * b, -a, abs(a)

    given = ts.jit(each, policy=ts.saturate)(a, b)
    wide = [each(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    for at, one in enumerate(given):
        assert one.dtype.name == name
        assert np.asarray(one).tolist() == [min(max(row[at], ends.min), ends.max) for row in wide]


def test_integer_casts_saturate() -> None:
    x = np.array([300, -300, 5, 2**31 - 1, -(2**31)], np.int32)
    for target, kind in (("i8", np.int8), ("u8", np.uint8), ("u32", np.uint32), ("i64", np.int64)):
        dtype, ends = getattr(ts, target), np.iinfo(kind)
        with ts.policy(saturation="saturate"):
            given = ts.jit(lambda x: x.cast(dtype))(x)  # noqa: B023
            now = ops.cast(x, dtype)
        wanted = [min(max(int(one), ends.min), ends.max) for one in x]
        assert np.asarray(given).tolist() == np.asarray(now).tolist() == wanted
    assert np.asarray(ts.jit(lambda x: x.cast(ts.i8))(x)).tolist()[:2] == [44, -44], "wraps where nobody asks"


def test_types_that_saturate() -> None:
    @ts.jit
    def twice(x: ts.Tensor["N", ts.i8 @ ts.saturate]) -> Any:
        return x + x

    assert np.asarray(twice(np.array([100, -100, 3], np.int8))).tolist() == [127, -128, 6]
