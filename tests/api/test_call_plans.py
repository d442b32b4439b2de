"""Plans of eager calls: the same results as without, for every form of argument, and none where elements are read."""

# Calls are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ArgumentError, DonatedError, DTypeError, IndexRangeError
from tessera.diagnostics.error import TesseraError
from tessera.frontend import call_plans
from tests.api.eager_surface import WRITTEN, I, X, Y


@pytest.fixture(autouse=True)
def plans(monkeypatch: pytest.MonkeyPatch) -> dict[Any, Any]:
    """The plans of this test alone."""
    made: dict[Any, Any] = {}
    monkeypatch.setattr(call_plans, "PLANS", made)
    return made


def planned(plans: dict[Any, Any]) -> int:
    return sum(plan.__class__ is tuple for plan in plans.values())


def same(found: Any, wanted: Any) -> bool:
    """Whether two results have the same elements, bit by bit, dtypes and containers."""
    if isinstance(wanted, tuple | list):
        return type(found) is type(wanted) and all(map(same, found, wanted))
    return (found.dtype, found.shape, found.tobytes()) == (wanted.dtype, wanted.shape, wanted.tobytes())


def check(call: Callable[..., Any], *arrays: Any) -> None:
    """Repeated calls with other elements give what a first call gives."""
    rng = np.random.default_rng(0)
    for _ in range(4):
        given = [array if array is I else (array * rng.uniform(-2, 2)).astype(array.dtype) for array in arrays]
        kept, call_plans.PLANS = call_plans.PLANS, {}
        wanted = call(*map(ts.array, given))
        call_plans.PLANS = kept
        assert same(call(*map(ts.array, given)), wanted)


CALLS: dict[str, Callable[..., Any]] = WRITTEN | {
    "x + x": lambda x, y, i: x + x,
    "x * -0.0": lambda x, y, i: (x * 0.0, x * -0.0, x * math.nan, x + math.nan),
    "x * 1": lambda x, y, i: (i * 1, i * True, i / 2, i * 1.0),
    "x[0, 1:]": lambda x, y, i: (x[0, 1:], x[..., -1], x[None, 0], x[:, None, ::2], x[-1]),
    "x[i, :2]": lambda x, y, i: (x[i, :2], x[i % 2, i % 3]),
    "x[mask]": lambda x, y, i: (x[[True, False]], x[np.array([False, True])]),
    "max, argmax": lambda x, y, i: (x.max(), x.argmax(axis=1), ops.max(x, (0, 1)), ops.max(x, axis=0, keepdims=True)),
    "several results": lambda x, y, i: (ops.topk(x, 2), ops.split(x, 3, axis=1)),
    "composite": lambda x, y, i: (ops.layernorm(x, y[0], y[1]), ops.std(x, correction=1), ops.norm(x, order=3)),
    "creation": lambda x, y, i: (ops.zeros((2, 3)), ops.full((2,), 7), ops.arange(3), ops.iota((2, 2), 1)),
    "cast": lambda x, y, i: (x.cast("f32"), x.cast(ts.f64), ops.cast(i, "i8"), ops.bitcast(x, ts.i32)),
    "clamp": lambda x, y, i: (ops.clamp(x, -1.0, 1.0), ops.clamp(x, None, y), x.clip(0, 1)),
    "movement": lambda x, y, i: (x.T, x.reshape(-1), x.transpose(1, 0), x.expand_dims(0), ops.pad(x, ((1, 0), (0, 2)))),
    "at": lambda x, y, i: (x.at[0].set(1.0), x.at[i % 2].add(1.0)),
    "stack": lambda x, y, i: (ops.stack([x, y, x]), ops.concat([x, x, y], axis=1), ops.einsum("ij,kj->ik", x, y)),
    "bools": lambda x, y, i: ((x > 0) & (y > 0), ~(x > 0), ops.any(x > 0), ops.logical_not(x)),
    "pow": lambda x, y, i: (abs(x) ** 0.5, 2.0 ** (x / 8), divmod(x, y), x % 2),
}


@pytest.mark.parametrize("what", CALLS)
def test_planned_calls_give_what_first_calls_give(what: str, plans: dict[Any, Any]) -> None:
    check(CALLS[what], X, Y, I)


def test_nearly_all_calls_are_planned(plans: dict[Any, Any]) -> None:
    x, y, i = ts.array(X), ts.array(Y), ts.array(I)
    for call in CALLS.values():
        for _ in range(3):
            call(x, y, i)
    never = {key[0].__name__ for key, plan in plans.items() if plan is None}
    # Masks and lists of indices are read while the program is made.
    assert never <= {"getitem", "read", "einsum", "dropout"}, never
    assert planned(plans) > 60


def test_an_argument_that_is_two_operands_is_not_two_arguments(plans: dict[Any, Any]) -> None:
    x, y, z = ts.array([1.0, 2.0]), ts.array([10.0, 20.0]), ts.array([100.0, 200.0])
    for _ in range(3):
        assert (x + x).tolist() == [2.0, 4.0]
    for _ in range(3):
        assert (x + y).tolist() == [11.0, 22.0]
        assert ops.clamp(y, x, z).tolist() == [10.0, 20.0]
        assert ops.clamp(x, y, y).tolist() == [10.0, 20.0]
        assert ops.clamp(x, x, y).tolist() == [1.0, 2.0]
    assert planned(plans) == 5


def test_numbers_are_told_apart_that_python_calls_equal(plans: dict[Any, Any]) -> None:
    x, whole = ts.array([1.0, -2.0]), ts.array([3, 4])
    for _ in range(3):
        assert [math.copysign(1, one) for one in (x * 0.0).tolist()] == [1.0, -1.0]
        assert [math.copysign(1, one) for one in (x * -0.0).tolist()] == [-1.0, 1.0]
        assert (whole * 1).dtype is ts.i64
        assert (whole * 1.0).dtype.is_float
        assert all(map(math.isnan, (x * math.nan).tolist()))


def test_a_form_is_dtype_shape_and_order(plans: dict[Any, Any]) -> None:
    torch_like = np.arange(12, dtype=np.float32).reshape(3, 4)
    for _ in range(4):
        for array in (torch_like, torch_like.T, torch_like[:, ::2], torch_like.astype(np.float64), torch_like[:0]):
            x = ts.Tensor.from_dlpack(array)
            np.testing.assert_array_equal(ops.sum(x, axis=0).numpy(), array.sum(0))
            np.testing.assert_array_equal((x + 1.0).numpy(), array + 1)


def test_elements_that_python_reads_are_no_part_of_a_plan(plans: dict[Any, Any]) -> None:
    x = ts.array(X)
    for mask in ([True, False], [False, True], [True, True]):
        for _ in range(3):
            assert x[ts.array(mask)].tolist() == X[np.array(mask)].tolist()
    for start in (0, 1, 0):
        assert x[ts.array(start) :].tolist() == X[start:].tolist()


def test_errors_are_those_of_a_first_call(plans: dict[Any, Any]) -> None:
    x, texts, total = ts.array(X), list[str](), cast("Any", ops.sum)
    wrong: list[tuple[type[TesseraError], Callable[[], Any]]] = [
        (ArgumentError, lambda: total(x, dim=0)),
        (ArgumentError, lambda: total()),
        (IndexRangeError, lambda: x[5]),
        (DTypeError, lambda: ts.array([1], "u8") + 300),
    ]
    for kind, call in wrong:
        for _ in range(4):
            with pytest.raises(kind) as caught:
                call()
            texts.append(str(caught.value))
        assert len({*texts[-4:]}) == 1
    assert planned(plans) == 0


def test_an_index_out_of_bounds_is_found_at_each_call(plans: dict[Any, Any]) -> None:
    x = ts.array([1.0, 2.0, 3.0])
    for _ in range(3):
        assert ops.take(x, ts.array([0, 2]), mode="error").tolist() == [1.0, 3.0]
    for _ in range(3):
        with pytest.raises(TesseraError, match="index 7 is outside") as caught:
            ops.take(x, ts.array([0, 7]), mode="error")
        assert "test_call_plans.py" in caught.value.render()


def test_a_donated_tensor_is_refused_by_a_plan(plans: dict[Any, Any]) -> None:
    give = ts.jit(lambda x: x * 2.0, donate="x")
    for _ in range(3):
        x = ts.array([1.0, 2.0])
        for _ in range(3):
            ops.add(x, 1.0)
        give(x)
        with pytest.raises(DonatedError):
            ops.add(x, 1.0)


def test_scopes_and_traces_do_not_use_plans(plans: dict[Any, Any]) -> None:
    x = ts.array(X)
    for _ in range(3):
        ops.exp(x)
    made = ts.jit(lambda y: ops.exp(x) + y)
    assert made(x).shape == (2, 3)
    assert len(made.specializations[0].traced.tape.records) == 2


def test_the_number_of_plans_is_bounded(plans: dict[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_plans, "MOST", 8)
    x = ts.array(X)
    for number in range(30):
        assert (x * float(number)).tolist() == (X * number).tolist()
        assert len(plans) <= 8


def test_tensors_between_steps_are_let_go(plans: dict[Any, Any]) -> None:
    x = ts.array(np.ones((4, 4), np.float32))
    for _ in range(3):
        ops.sum(x[0, 1:])
    (plan,) = [plan for key, plan in plans.items() if key[0].__name__ == "getitem"]
    steps = plan[1]
    assert len(steps) == 2
    assert steps[1][3] == [1]  # the slice, once it is squeezed


def test_tensors_of_other_libraries_are_planned_as_ours(plans: dict[Any, Any]) -> None:
    torch: Any = pytest.importorskip("torch")
    for number in range(4):
        given = torch.full((2, 3), float(number))
        assert ops.sum(given).item() == 6.0 * number
        assert ops.concat([given, ts.array(X)]).tolist() == [*given.tolist(), *X.tolist()]
        assert (ts.array(X) + given).tolist() == (X + number).tolist()
    assert planned(plans) >= 2


def test_threads_plan_beside_each_other(plans: dict[Any, Any]) -> None:
    from concurrent.futures import ThreadPoolExecutor

    x = ts.array(X)

    def work(number: int) -> bool:
        y = ts.array(X * np.float32(number))
        return all((x + y)[0].tolist() == (X + X * np.float32(number))[0].tolist() for _ in range(20))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(40)))


def test_arrays_of_numpy_are_planned_where_no_element_is_read(plans: dict[Any, Any]) -> None:
    own = ts.array(X)
    for number in range(5):
        x = X * np.float32(number)
        for array in (x, x.T.copy().T, x.astype(np.float64), x.astype(np.int32), x[:, ::2], x[:0], x[0, 0:1]):
            np.testing.assert_array_equal(ops.sum(array, axis=0).numpy(), array.sum(0), strict=False)
            np.testing.assert_array_equal(ops.mul(array, 2).numpy(), array * 2)
        np.testing.assert_array_equal(ops.add(x, own).numpy(), x + X)
        np.testing.assert_array_equal(ops.matmul(x, X.T.copy()).numpy(), ops.matmul(ts.array(x), ts.array(X.T)).numpy())
        mask = np.array([number % 2 == 0, True])
        assert own[mask].tolist() == X[mask].tolist()
        assert ops.take(own, np.array([number % 2])).tolist() == ops.take(own, ts.array([number % 2])).tolist()
        with pytest.raises(DTypeError):
            ops.sort(x.astype(np.complex64))
    assert planned(plans) > 10
