"""Python floats as arguments: traced scalars, weak as constants are, specialized where the program needs a value."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false
from __future__ import annotations

import contextlib
import json
import math
import operator
import sys
import threading
import warnings
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.api.jit import Jit
from tessera.diagnostics.codes import EscapedTracerError
from tessera.runtime.executable import Executable
from tessera.runtime.launch import LoadedExecutable
from tessera.types.dtype import ALL

X = np.array([1.0, 2.0, -3.0], np.float32)
VALUES = [0.1, 0.3, -0.0, 0.0, 1e-40, 1e300, -1e300, math.inf, -math.inf, math.nan, 2.0**-149, 65504.1, 3.3895e38]
BACKENDS = ["cpu", "reference"]


def bits(tensor: Any) -> bytes:
    return ts.array(tensor).tobytes()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [one for one in ALL if one.name != "i4"], ids=str)
def test_a_number_is_rounded_and_promoted_as_a_constant_is(dtype: Any, backend: str) -> None:
    x = ts.array([0.0, 1.0, 1.0], ts.f32).cast(dtype) if dtype is not ts.bool_ else ts.array([False, True, True])
    function = ts.jit(lambda x, by: (x * by, x + by, by - x), backend=backend)
    for by in VALUES:
        wanted = ts.jit(lambda x, by=by: (x * by, x + by, by - x), static_argnames="by", backend="reference")(x)
        for made, constant in zip(function(x, by), wanted, strict=True):
            assert made.dtype is constant.dtype
            found, expected = (np.asarray(one).astype(np.float64) for one in (made, constant))
            np.testing.assert_array_equal(found, expected)
            np.testing.assert_array_equal(np.signbit(found[~np.isnan(found)]), np.signbit(expected[~np.isnan(found)]))
    assert function.cache_info().misses == 1


LOGIC: dict[str, Any] = {
    "and": lambda lr: (lr > 0.2) & (lr < 0.9),
    "or": lambda lr: (lr < 0.2) | (lr > 0.9),
    "xor": lambda lr: (lr > 0.2) ^ (lr > 0.9),
    "with bools": lambda lr: True & (lr > 0.2) | False ^ (lr > 0.9),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LOGIC)
def test_logic_of_comparisons_is_part_of_the_program(name: str, backend: str) -> None:
    holds = LOGIC[name]
    function: Any = ts.jit(lambda x, lr: (ts.ops.where(holds(lr), x, -x), x * holds(lr)), backend=backend)
    branch: Any = ts.jit(lambda x, lr: x * 2.0 if holds(lr) else x * 3.0, backend=backend)
    for lr in (0.1, 0.2, 0.5, 0.9, 1.0, math.nan):
        chosen, scaled = function(X, lr)
        assert chosen.tolist() == (X if holds(lr) else -X).tolist()
        assert scaled.tolist() == (X * np.float32(holds(lr))).tolist()
        assert branch(X, lr).tolist() == (X * np.float32(2 if holds(lr) else 3)).tolist()
    assert function.cache_info().misses == 1


def test_logic_with_tensors_integers_and_floats_is_as_of_pythons_numbers() -> None:
    mask = np.array([True, False, True])
    beside: Any = ts.jit(lambda m, lr: (m & (lr > 0.2), (lr > 0.2) | m, (lr > 0.2) ^ mask, mask & (lr > 0.2)))
    numbers: Any = ts.jit(lambda x, lr: (x * ((lr > 0.2) & 3), x * (6 | (lr > 0.2)), x * ~(lr > 0.2)))
    for lr in (0.1, 0.5):
        holds = lr > 0.2
        wanted = (mask & holds, mask | holds, mask ^ holds, mask & holds)
        assert [one.tolist() for one in beside(mask, lr)] == [one.tolist() for one in wanted]
        factors = (int(holds) & 3, 6 | int(holds), ~int(holds))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            made = numbers(X, lr)
        assert [one.tolist() for one in made] == [(X * np.float32(one)).tolist() for one in factors]
    assert beside.cache_info().misses == 1
    for wrong in (lambda x, lr: x * (lr & True), lambda x, lr: x * (True | lr), lambda x, lr: x * ~lr):
        with pytest.raises(TypeError, match=r"bad operand|unsupported operand"):
            ts.jit(wrong)(X, 0.5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_arithmetic_of_numbers_alone_is_pythons(backend: str) -> None:
    def scale(lr: float, decay: float) -> Any:
        return 1 - lr * decay / 3 + (lr - decay) * -2.0 + abs(-lr) % 0.7 + (+lr) // 0.3

    function = ts.jit(lambda x, lr, decay: x * scale(lr, decay), backend=backend)
    rng = np.random.default_rng(0)
    for lr, decay in rng.uniform(0.01, 9.0, (20, 2)).tolist():
        wanted = X * np.float32(scale(lr, decay))
        np.testing.assert_array_equal(np.asarray(function(X, lr, decay)), wanted)
    assert function.cache_info().misses == 1


def test_one_compilation_serves_all_values_on_the_fast_path() -> None:
    @ts.jit
    def step(params: Any, grads: Any, lr: float, *, momentum: float = 0.9) -> Any:
        return {name: params[name] * momentum - grads[name] * lr for name in params}

    params = {"w": X, "b": X[:1]}
    for lr in (0.1, 0.01, 0.001):
        made = step(params, params, lr)
        np.testing.assert_allclose(np.asarray(made["w"]), X * (np.float32(0.9) - np.float32(lr)), rtol=1e-6)
        step(params, params, lr, momentum=lr)
    info = step.cache_info()
    assert (info.misses, info.hits) == (1, 5)


def test_a_program_takes_the_number_in_the_dtype_it_uses() -> None:
    def inputs(function: Any, x: Any) -> list[str]:
        traced: Any = ts.jit(function)
        tape = traced.trace(x, 0.5).tape
        return [str(tape.types[value].dtype) for value in tape.inputs]

    assert inputs(lambda x, by: x * by + by, X) == ["f32", "f32"]
    assert inputs(lambda x, by: x * by, ts.array(X, "bf16")) == ["bf16", "bf16"]
    assert inputs(lambda x, by: x * by, X.astype(np.int64)) == ["i64", "f64"]
    assert inputs(lambda x, by: x * (by * by), X) == ["f32", "f64"]
    assert inputs(lambda x, by: (x * by, x.cast("bf16") * by), X) == ["f32", "f64"]
    assert inputs(lambda x, by: x, X) == ["f32", "f64"]
    tape = ts.jit(lambda x, by: x * by).trace(X, 0.5).tape
    assert [record.op for record in tape.records] == ["tgraph.mul"]


NEEDING: dict[str, Any] = {
    "if": lambda x, p: x * 2.0 if p else x,
    "compare": lambda x, p: x * 2.0 if p > 0.4 else x,
    "and": lambda x, p: x * 2.0 if p and p < 1 else x,
    "float()": lambda x, p: x * float(p),
    "int()": lambda x, p: x * int(p * 10),
    "round()": lambda x, p: x * round(p, 1),
    "math": lambda x, p: x * math.sqrt(p),
    "floor": lambda x, p: x * math.floor(p * 10),
    "numpy": lambda x, p: x * np.float32(np.sqrt(p)),
    "asarray": lambda x, p: x * np.asarray(p, np.float32),
    "dict": lambda x, p: x * {0.25: 2, 0.5: 3}[p],
    "text": lambda x, p: x * len(f"{p:.3f}"),
    "str": lambda x, p: x * len(str(p)),
    "method": lambda x, p: x * (2 if p.is_integer() else 3),
    "attribute": lambda x, p: ts.ops.pad(x, [(0, 1)], value=p),
    "integers": lambda x, p: ts.ops.full((2,), p, "i32"),
    "max": lambda x, p: x * max(p, 0.3),
    "range": lambda x, p: sum((x for _ in range(int(p * 8))), x),
    "except": lambda x, p: _try_value(x, p),
}


def _try_value(x: Any, p: Any) -> Any:
    try:
        return x * float(p)
    except Exception:
        return x * 99.0


@pytest.mark.parametrize("name", NEEDING)
def test_a_number_whose_value_is_needed_is_specialized(name: str) -> None:
    function: Any = ts.jit(NEEDING[name], backend="reference")
    for p in (0.5, 0.25, 0.5):
        wanted = ts.jit(lambda x, p=p: NEEDING[name](x, p), static_argnames="p", backend="reference")(X)
        np.testing.assert_array_equal(np.asarray(function(X, p)), np.asarray(wanted))
    assert function.cache_info().misses == 2
    assert "p = 0.5: " in str(function.explain())
    assert "needs its value" in str(function.explain(X, 0.5))
    assert "`p` changed from 0.5 to 0.25" in function.explain_recompile()
    assert "needs its value" in function.explain_recompile()


def caught_by_a_bare_except(x: Any, lr: float) -> Any:
    try:
        return x * 2.0 if lr > 0.1 else x * 3.0
    except:  # noqa: E722 - as programs do
        return x * 5.0


def caught_by_suppress(x: Any, lr: float) -> Any:
    factor = 5.0
    with contextlib.suppress(BaseException):
        factor = 2.0 if lr > 0.1 else 3.0
    return x * factor


def caught_by_finally(x: Any, lr: float) -> Any:
    factor = 5.0
    try:
        factor = 2.0 if lr > 0.1 else 3.0
    finally:
        return x * factor  # noqa: B012


def caught_and_raised_as_an_error(x: Any, lr: float) -> Any:
    try:
        return x * 2.0 if lr > 0.1 else x * 3.0
    except BaseException as error:
        raise ValueError("the rate is bad") from error


def caught_in_a_body(x: Any, lr: float) -> Any:
    def body(x: Any) -> Any:
        return x * 2.0 if lr * 2.0 > 0.2 else x * 3.0

    try:
        return ts.cond(x.sum() < 1e9, body, body, x)
    except BaseException:
        return x * 5.0


CAUGHT = [
    caught_by_a_bare_except,
    caught_by_suppress,
    caught_by_finally,
    caught_and_raised_as_an_error,
    caught_in_a_body,
]


@pytest.mark.parametrize("program", CAUGHT, ids=lambda one: one.__name__)
def test_a_need_that_the_program_catches_is_met_all_the_same(program: Any) -> None:
    function: Any = ts.jit(program)
    for lr, factor in ((0.5, 2.0), (0.05, 3.0)):
        assert function(ts.array(X), lr).tolist() == (X * np.float32(factor)).tolist()
    assert "lr" in str(function.explain())


def test_only_the_number_that_is_needed_is_static() -> None:
    def f(x: Any, lr: float, dropout: float) -> Any:
        return x * lr * 0.5 if dropout else x * lr

    function = ts.jit(f)
    for lr in (0.5, 0.25, 0.125):
        for dropout in (0.0, 0.5):
            assert function(X, lr, dropout).tolist() == (X * np.float32(lr) * (0.5 if dropout else 1)).tolist()
    assert function.cache_info().misses == 2
    page = str(function.explain(X, 0.5, 0.0))
    assert "lr: [] f32" in page
    assert "static: dropout = 0.0: a condition needs its value at" in page
    assert "static: lr" not in page


def test_a_number_computed_from_two_needs_both() -> None:
    function = ts.jit(lambda x, a, b, c: x * c if a * b > 0.1 else x, backend="reference")
    for c in (1.0, 2.0):
        assert function(X, 0.5, 0.5, c).tolist() == (X * c).tolist()
    assert function.cache_info().misses == 1
    assert function(X, 0.1, 0.5, 3.0).tolist() == X.tolist()
    assert function.cache_info().misses == 2


@dataclass
class Settings:
    """What holds a float, which is static."""

    rate: float


def test_floats_in_containers_and_other_values_stay_static() -> None:
    cases: list[tuple[Any, Any, Any]] = [
        (lambda x, s: x * s.rate, Settings(0.5), Settings(0.25)),
        (lambda x, s: x * s["rate"], {"rate": 0.5}, {"rate": 0.25}),
        (lambda x, s: x * s[0], [0.5], [0.25]),
        (lambda x, s: x * s, 2, 3),
        (lambda x, s: x * s, True, False),
    ]
    for function, first, second in cases:
        jitted: Any = ts.jit(function, backend="reference")
        for given in (first, second, first):
            jitted(X, given)
        assert jitted.cache_info().misses == 2
    several = ts.jit(lambda *args: args[0] * args[1], backend="reference")
    for by in (0.5, 0.25):
        assert several(X, by).tolist() == (X * by).tolist()
    assert several.cache_info().misses == 2


def test_a_static_argument_and_a_declared_scalar_are_as_they_were() -> None:
    static = ts.jit(lambda x, by: x * (by if isinstance(by, float) else 0), static_argnames="by", backend="reference")
    assert [static(X, by).tolist()[0] for by in (0.5, 0.25)] == [0.5, 0.25]
    assert static.cache_info().misses == 2

    @ts.jit(backend="reference")
    def declared(x: Any, by: ts.Tensor[ts.f32]) -> Any:
        return x.cast("bf16") * by

    assert declared(X, 0.5).dtype is ts.f32  # a tensor is not weak


def test_numbers_are_floats_to_the_program() -> None:
    seen: list[Any] = []

    def look(x: Any, by: Any) -> Any:
        kinds = isinstance(by, float), isinstance(by > 1, bool), isinstance(by, int), hasattr(by, "shape")
        seen.append((*kinds, by == None))  # noqa: E711 - as a program may ask
        return x * by

    ts.jit(look, backend="reference")(X, 0.5)
    assert seen == [(True, True, False, False, False)]


def test_numbers_beside_tensors_of_all_kinds() -> None:
    torch: Any = pytest.importorskip("torch")
    captured, array, own = torch.from_numpy(X), X.copy(), ts.array(X)

    def f(x: Any, by: float) -> Any:
        return captured * by, by * array, array * by, own - by, by / own, x**by, ts.ops.maximum(by, x), array @ x * by

    function = ts.jit(f)
    for by in (0.5, 2.0):
        made = function(np.abs(X), by)
        assert [type(one) for one in made] == [ts.Tensor] * len(made)
        np.testing.assert_array_equal(np.asarray(made[0]), X * np.float32(by))
        np.testing.assert_array_equal(np.asarray(made[1]), np.asarray(made[2]))
        np.testing.assert_allclose(np.asarray(made[5]), np.abs(X) ** np.float32(by), rtol=1e-6)
    assert function.cache_info().misses == 1


def test_numbers_in_loops_branches_creation_and_results() -> None:
    def f(x: Any, t: float) -> Any:
        looped = ts.fori_loop(0, 3, lambda i, s: s * t, x)
        state, _ = ts.scan(lambda s, row: (s + t, row), t, x)
        chosen = ts.cond(t > 0.4, lambda: x, lambda: -x)
        return looped, state, chosen, ts.ops.where(t > 0.4, x, 0.0), ts.ops.full((2,), t), t, t > 0.4, t * 2

    function = ts.jit(f)
    for t in (0.5, 0.25):
        looped, state, chosen, where, filled, number, flag, twice = function(X, t)
        assert looped.tolist() == (X * t * t * t).tolist()
        assert state.item() == 4 * t
        assert chosen.tolist() == (X if t > 0.4 else -X).tolist()
        assert where.tolist() == (X if t > 0.4 else 0 * X).tolist()
        assert filled.tolist() == [t, t]
        assert (number.dtype, flag.dtype) == (ts.f32, ts.bool_)
        assert (number.item(), flag.item(), twice.item()) == (t, t > 0.4, 2 * t)
    assert function.cache_info().misses == 1


def test_policies_do_not_round_numbers() -> None:
    function = ts.jit(lambda x, by: x * by, backend="reference", policy=ts.Training())
    constant = ts.jit(lambda x: x * 0.1, backend="reference", policy=ts.Training())
    assert bits(function(X, 0.1)) == bits(constant(X))
    with ts.policy(ts.Training()):
        plain = ts.jit(lambda x, by: x * by, backend="reference")
        assert bits(plain(X, 0.1)) == bits(constant(X))
        assert bits(plain(X, 0.2)) != bits(constant(X))
    assert plain.cache_info().misses == 1


def test_nested_functions_take_numbers_on() -> None:
    inner = ts.jit(lambda x, by: x * by)

    @ts.jit
    def declared(x: Any, by: ts.Tensor[ts.f32]) -> Any:
        return x * by

    outer = ts.jit(lambda x, by: inner(x, by) + declared(x, by) + inner(x, by * 2))
    for by in (0.5, 0.25):
        assert outer(X, by).tolist() == (X * by * 4).tolist()
    assert outer.cache_info().misses == 1
    needing = ts.jit(lambda x, p: x * 2.0 if p else x)
    around = ts.jit(lambda x, rate: needing(x, rate))
    assert around(X, 0.5).tolist() == (X * 2).tolist()
    assert around(X, 0.0).tolist() == X.tolist()


@kernel
def scale_tiles(x: KTile["M", "N"], by: float) -> Any:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * by


def test_kernels_take_numbers_as_static_values() -> None:
    x = np.ones((4, 8), np.float32)
    function = ts.jit(lambda x, by: scale_tiles(x, by) + by)
    for by in (0.5, 0.25):
        assert scale_tiles(x, by).tolist() == [[by] * 8] * 4
        assert function(x, by).tolist() == [[2 * by] * 8] * 4
    assert function.cache_info().misses == 2
    assert "by = 0.5: " in str(function.explain())


def test_donation_and_captured_tensors_beside_numbers() -> None:
    w = ts.array(X)
    function = ts.jit(lambda x, by: x * by + w, donate="x")
    for by in (0.5, 0.25, 0.25):
        x = ts.array(X)
        assert function(x, by).tolist() == (X * np.float32(by) + X).tolist()
    assert function.cache_info().misses == 1
    given = ts.jit(lambda x, by: x * by, donate={"x", "by"})
    for by in (0.5, 0.5, 0.25):
        assert given(ts.array(X), by).tolist() == (X * by).tolist()


def test_a_saved_executable_takes_numbers() -> None:
    function = ts.jit(lambda x, by: x * by)
    function(X, 0.5)
    loaded: Any = function.specializations[0].loaded
    again = LoadedExecutable(Executable.from_bytes(loaded.executable.to_bytes()))
    for by in (0.25, 3.0, math.inf):
        assert again(X, by).tolist() == (X * np.float32(by)).tolist()


def test_threads_each_see_their_own_number() -> None:
    function, wrong = ts.jit(lambda x, by: x * by), list[float]()
    function(X, 1.0)

    def call(start: float) -> None:
        for step in range(300):
            by = start + step / 1024
            if function(X, by).tolist() != (X * np.float32(by)).tolist():
                wrong.append(by)

    threads = [threading.Thread(target=call, args=(float(start),)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_that_first_need_a_value_at_once_all_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    function = ts.jit(lambda x, lr: x * 2.0 if lr > 0.1 else x * 3.0)
    rates, found = [0.05 * number for number in range(6)], dict[float, Any]()
    barrier, find = threading.Barrier(len(rates)), Jit._find  # pyright: ignore[reportPrivateUsage]
    waited = threading.local()

    def find_together(self: Jit, call: Any) -> Any:
        if not hasattr(waited, "once"):
            waited.once = barrier.wait(60)
        return find(self, call)

    def call(lr: float) -> None:
        found[lr] = np.asarray(function(X, lr))

    monkeypatch.setattr(Jit, "_find", find_together)
    threads = [threading.Thread(target=call, args=(lr,)) for lr in rates]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == rates
    for lr, made in found.items():
        np.testing.assert_array_equal(made, X * (2 if lr > 0.1 else 3))


def test_a_number_that_leaks_says_so() -> None:
    kept: list[Any] = []
    function = ts.jit(lambda x, by: (kept.append(by), x * by)[1], backend="reference")
    assert function(X, 0.5).tolist() == (X * 0.5).tolist()
    assert "leaked" in repr(kept[0])
    for use in (float, bool, lambda by: by * 2.0, lambda by: X * by):
        with pytest.raises(EscapedTracerError, match="leaked tracer"):
            use(kept[0])


def test_shapes_and_lowering_with_numbers() -> None:
    function = ts.jit(lambda x, by, p: x * by if p else x)
    assert [step.op for step in ts.shape_trace(function)(X, 0.5, 0.5)] == ["mul"]
    assert "tgraph.mul" in function.lower(X, 0.5, 0.5).graph
    assert function.trace(X, 0.5, 0.0).tape.records == []


def test_a_function_that_compiles_often_says_what_changes() -> None:
    @ts.jit(backend="reference")
    def total(x: np.ndarray, scale: Any = 1) -> Any:
        return x.sum() * scale

    def call(sizes: range) -> None:
        for size in sizes:
            total(np.ones(size, np.float32))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(range(1, 9))
    with pytest.warns(ts.RecompileWarning) as caught:
        call(range(9, 25))
    assert len(caught) == 1
    text = str(caught[0].message)
    assert "`total` has been compiled for 9 signatures: `x` changed 8 times" in text
    assert 'annotate `x: ts.Tensor["B", ts.f32]`, in place of `np.ndarray`, which says no sizes' in text
    assert caught[0].filename == __file__
    total.cache_clear()
    with pytest.warns(ts.RecompileWarning, match="`scale` changed 8 times"):
        assert [total(np.ones(1, np.float32), scale).item() for scale in range(9)] == list(range(9))


def test_annotated_sizes_and_numbers_do_not_warn() -> None:
    @ts.jit(backend="reference")
    def total(x: ts.Tensor["N", ts.f32], by: float) -> Any:
        return x.sum() * by

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in range(1, 25):
            total(np.ones(size, np.float32), size / 7)
    assert total.cache_info().misses == 1


def test_a_number_that_is_needed_again_and_again_is_named() -> None:
    function = ts.jit(lambda x, p: x * 2.0 if p > 0.5 else x, backend="reference")
    with pytest.warns(ts.RecompileWarning, match="`p` changed 8 times") as caught:
        assert len([function(X, step / 9) for step in range(9)]) == 9
    assert "a condition needs its value at" in str(caught[0].message)
    assert "`tessera.ops.where`" in str(caught[0].message)


def test_annotations_of_other_classes_say_nothing() -> None:
    @ts.jit
    def f(x: np.ndarray, y: Any, by: float = 2.0) -> Any:
        return (x + y) * by

    torch: Any = pytest.importorskip("torch")
    for x in (X, ts.array(X), torch.from_numpy(X)):
        assert f(x, X).tolist() == (X * 4).tolist()
    assert f.cache_info().misses == 1


TYPES: dict[str, Any] = {
    "json": lambda lr: len(json.dumps({"lr": lr})),
    "complex": lambda lr: (lr * 2j).imag,
    "Decimal": lambda lr: float(Decimal(lr) * 2),
    "a function that knows floats by their type": lambda lr: {float: 2.0}[type(lr)] if type(lr) is float else len(lr),
}


@pytest.mark.parametrize("name", TYPES)
def test_what_takes_pythons_own_floats_alone_gets_them(name: str) -> None:
    function = ts.jit(lambda x, lr: x * TYPES[name](lr))
    for lr in (0.5, 0.25, 0.5):
        assert function(X, lr).tolist() == (X * np.float32(TYPES[name](lr))).tolist()
    assert function.cache_info().misses == 2
    assert "what takes Python's own floats alone needs its value at" in str(function.explain())
    assert ts.jit(lambda x, lr: x * TYPES[name](lr)).trace(X, 0.5) is not None


def test_a_type_error_that_no_value_helps_leaves_numbers_traced() -> None:
    def scale(x: Any, lr: float, other: Any) -> Any:
        return x * lr + len(other)

    function: Any = ts.jit(scale)
    for call in (function, function.trace):
        with pytest.raises(TypeError, match=r"object of type 'int' has no len\(\)"):
            call(X, 0.5, 3)
    for lr in (0.5, 0.25, 0.125):
        assert function(X, lr, "abc").tolist() == (X * np.float32(lr) + 3).tolist()
    assert function.cache_info().misses == 1


INTEGERS = [0, 1, 2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 2**54 + 2, 2**60 + 1, -(2**60) - 3, 10**400, -(10**400)]


@pytest.mark.parametrize("integer", INTEGERS, ids=lambda one: f"{one:.3e}" if abs(one) < 1e300 else "huge")
def test_comparisons_with_integers_are_exact(integer: int) -> None:
    tests = [operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge]
    function: Any = ts.jit(
        lambda x, lr: [ts.ops.where(holds, x, -x) for test in tests for holds in (test(lr, integer), test(integer, lr))]
    )
    near = float(max(-(10**300), min(10**300, integer)))
    values = [0.0, near, math.nextafter(near, math.inf), math.nextafter(near, -math.inf), -near]
    for lr in [*values, math.inf, -math.inf, math.nan, sys.float_info.max]:
        wanted = [holds for test in tests for holds in (test(lr, integer), test(integer, lr))]
        assert [made.tolist() == X.tolist() for made in function(X, lr)] == wanted
    assert function.cache_info().misses == 1
