"""Calls of Python from compiled programs: in order, in control flow, with results, with errors passed on."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, bf16, f32
from tessera.compiler.compile import compile_tape
from tessera.diagnostics.codes import CallbackError, LoadError, TracingError
from tessera.runtime.executable import Executable
from tessera.runtime.launch import LoadedExecutable
from tessera.runtime.tensor import native

X = np.arange(4, dtype=np.float32)


def on(backend: str, function: Callable[..., Any]) -> ts.Jit:
    return ts.jit(function, backend=backend)


BACKENDS = pytest.mark.parametrize("backend", ["cpu", "reference"])


@BACKENDS
def test_prints_show_values_as_they_are_formatted(backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    def f(x: Tensor["N", f32]):
        ts.debug_print("{} {:.1f} {named!r} {{}} {total:6.2f}|", x, x.max(), named="static", total=x.sum())
        ts.debug_print("{1} then {0:.1f}", x[0], (x > 1.0).astype("i32"))
        return x

    on(backend, f)(X)
    assert capsys.readouterr().out == "[0, 1, 2, 3] 3.0 'static' {}   6.00|\n[0, 0, 1, 1] then 0.0\n"


def test_prints_of_narrow_floats_nested_and_long_tensors(capsys: pytest.CaptureFixture[str]) -> None:
    @ts.jit
    def f(x: Tensor[4, f32]):
        ts.debug_print("{}", x.reshape(2, 2).astype(bf16))
        ts.debug_print("{}", ts.ops.arange(1000))
        ts.debug_print("no values")
        return x

    f(X)
    assert capsys.readouterr().out == "[[0, 1], [2, 3]]\n[0, 1, 2, ..., 997, 998, 999]\nno values\n"


@BACKENDS
def test_order_is_kept_in_branches_and_loops(backend: str) -> None:
    seen: list[float] = []

    def note(value: Any) -> None:
        seen.append(float(value.item()))

    def f(x: Tensor["N", f32]):
        ts.io_callback(note, x[0] + 100.0)

        def body(i: Any, v: Any) -> Any:
            ts.io_callback(note, i.astype(f32))
            return ts.cond(
                i % 2 == 0,
                lambda: (ts.io_callback(note, v.sum()), v + 1.0)[1],
                lambda: (ts.io_callback(note, -v.sum()), v)[1],
            )

        y = ts.fori_loop(0, 3, body, x)
        _, ys = ts.scan(lambda c, r: ((ts.io_callback(note, r), c + r)[1], r), ts.ops.zeros(()), y)
        z = ts.while_loop(lambda v: v.sum() < 40.0, lambda v: (ts.io_callback(note, v.sum()), v * 2.0)[1], ys)
        ts.io_callback(note, z.sum())
        return x

    compiled = on(backend, f)
    for _ in range(2):
        seen.clear()
        compiled(X)
        assert seen == [100.0, 0.0, 6.0, 1.0, -10.0, 2.0, 10.0, 2.0, 3.0, 4.0, 5.0, 14.0, 28.0, 56.0]
    assert compiled.cache_info().misses == 1


@BACKENDS
def test_results_of_every_dtype_go_on_in_the_program(backend: str) -> None:
    def give(x: Any) -> Any:
        values = np.asarray(x)
        return values.astype(np.int64), values > 1.0, ts.array(values.tolist()).astype(bf16)

    def f(x: Tensor["N", f32]):
        whole, large, narrow = ts.io_callback(
            give, x, result=(Tensor["N", ts.i64], Tensor["N", ts.bool_], Tensor["N", bf16])
        )
        return whole + 1, large, narrow * 2.0

    for values in (X, np.ones(0, np.float32), np.ones(7, np.float32)):
        whole, large, narrow = on(backend, f)(values)
        assert np.asarray(whole).tolist() == [int(v) + 1 for v in values]
        assert np.asarray(large).tolist() == [bool(v > 1) for v in values]
        assert narrow.astype(f32).tolist() == [2 * float(v) for v in values]


@BACKENDS
def test_results_are_carried_by_loops_and_conditions_may_call(backend: str) -> None:
    asked: list[float] = []

    def f(x: Tensor["N", f32]):
        def goes_on(v: Any) -> Any:
            ts.io_callback(lambda total: asked.append(total.item()), v.sum())
            return v.sum() < 20.0

        y = ts.while_loop(goes_on, lambda v: ts.io_callback(lambda a: 2 * np.asarray(a), v, result=v), x)
        z = ts.fori_loop(0, 3, lambda i, v: ts.io_callback(lambda a, b: a + b, v, i.astype(f32), result=v), y)
        total, rows = ts.scan(
            lambda c, r: (
                ts.io_callback(lambda a, b: a + b, c, r, result=c),
                ts.io_callback(lambda b: -b, r, result=r),
            ),
            ts.ops.zeros(()),
            z,
        )
        return z, total, ts.cond(total > 0.0, lambda: ts.io_callback(lambda a: a, rows, result=rows), lambda: rows), z

    given = on(backend, f)(np.ones(3, np.float32))
    assert [one.tolist() for one in given] == [[11.0] * 3, 33.0, [-11.0] * 3, [11.0] * 3]
    assert asked == [3.0, 6.0, 12.0, 24.0]


def test_a_callback_without_arguments_and_one_that_is_the_result() -> None:
    count = iter(range(10))
    f = ts.jit(lambda: ts.io_callback(lambda: next(count), result=Tensor[ts.i64]))
    assert [f().item() for _ in range(3)] == [0, 1, 2]
    assert f.effects == {"io"}


def test_arguments_are_copies_that_may_be_kept() -> None:
    kept: list[Any] = []

    @ts.jit
    def f(x: Tensor["N", f32]):
        def body(_: Any, v: Any) -> Any:
            ts.io_callback(kept.append, v)
            return v + 1.0

        return ts.fori_loop(0, 4, body, x)

    f(X)
    assert [tensor.tolist()[0] for tensor in kept] == [0.0, 1.0, 2.0, 3.0]


class TroubleError(Exception):
    """What a callback raises."""


@BACKENDS
def test_what_a_callback_raises_ends_the_program_and_comes_out(
    backend: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(value: Any) -> None:
        if value.item() == 2:
            raise TroubleError("at two")

    def f(x: Tensor["N", f32]):
        def body(i: Any, v: Any) -> Any:
            ts.debug_print("round {}", i)
            ts.io_callback(fail, i)
            return v + 1.0

        y = ts.fori_loop(0, 5, body, x)
        ts.debug_print("never")
        return y

    compiled = on(backend, f)
    for _ in range(3):
        with pytest.raises(TroubleError, match="at two"):
            compiled(X)
    assert capsys.readouterr().out == "round 0\nround 1\nround 2\n" * 3


def test_after_an_error_memory_is_given_back_and_the_program_still_runs() -> None:
    fails = [True]

    def maybe(value: Any) -> Any:
        if fails[0]:
            raise TroubleError
        return value

    f = ts.jit(lambda x: ts.io_callback(maybe, x * 2.0, result=x) + 1.0)
    with pytest.raises(TroubleError):
        f(X)
    before = native().memory.in_use
    for _ in range(5):
        with pytest.raises(TroubleError):
            f(X)
    assert native().memory.in_use == before
    fails[0] = False
    assert np.asarray(f(X)).tolist() == [1.0, 3.0, 5.0, 7.0]


@ts.jit
def countdown(n: Tensor[ts.i64]):
    def below(value: Any) -> Any:
        left = int(value.item())
        return countdown(ts.array(left - 1)) if left > 0 else np.int64(0)

    return ts.io_callback(below, n, result=n) + n


def test_a_callback_may_call_compiled_programs_and_its_own() -> None:
    double = ts.jit(lambda x: x * 2.0)
    f = ts.jit(lambda x: ts.io_callback(lambda v: double(v + 1.0), x, result=x))
    assert np.asarray(f(X)).tolist() == [2.0, 4.0, 6.0, 8.0]
    assert countdown(ts.array(4)).item() == 10


def test_threads_get_their_own_exceptions() -> None:
    f = ts.jit(lambda x: ts.io_callback(_raise_value, x))
    caught: dict[float, str] = {}

    def call(value: float) -> None:
        for _ in range(20):
            try:
                f(np.full(1, value, np.float32))
            except TroubleError as error:
                caught[value] = str(error)

    threads = [threading.Thread(target=call, args=(float(number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caught == {float(number): str([float(number)]) for number in range(4)}


def _raise_value(value: Any) -> None:
    raise TroubleError(str(value.tolist()))


def test_functions_are_no_part_of_the_program_so_one_program_serves_others() -> None:
    def made(function: Callable[[Any], Any]) -> ts.Jit:
        return ts.jit(lambda x: ts.io_callback(function, x, result=x) + 0.5)

    first, second = made(lambda v: v), made(lambda v: -np.asarray(v))
    assert np.asarray(first(X)).tolist() == [0.5, 1.5, 2.5, 3.5]
    assert np.asarray(second(X)).tolist() == [0.5, -0.5, -1.5, -2.5]


def test_an_executable_keeps_its_callbacks_but_not_their_functions() -> None:
    traced = ts.jit(lambda x: ts.io_callback(lambda v: v, x, result=x)).trace(X)
    executable = Executable.from_bytes(compile_tape(traced.tape, ts.Options()).to_bytes())
    with pytest.raises(LoadError, match="calls 1 Python functions, and was given 0"):
        LoadedExecutable(executable)
    loaded = LoadedExecutable(executable, functions=[lambda v: [7.0] * 4])
    assert loaded(X).tolist() == [7.0] * 4
    with pytest.raises(CallbackError, match=r"must give \[4\] f32"):
        LoadedExecutable(executable, functions=[lambda v: "text"])(X)


def test_outside_of_jit_it_happens_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    ts.debug_print("{} {:.1f}", ts.array([1, 2]), np.float32(0.25))
    assert ts.io_callback(lambda v: v + 1.0, ts.ones(2), result=Tensor[2, f32]).tolist() == [2.0, 2.0]
    assert ts.io_callback(lambda: None) is None
    assert capsys.readouterr().out == "[1, 2] 0.2\n"


def test_prints_that_cannot_be_made_are_refused_where_they_stand() -> None:
    for text in ("{} {}", "{name}", "{", "{0.missing}"):
        with pytest.raises(TracingError, match="debug_print"):
            ts.jit(lambda x, text=text: (ts.debug_print(text, x), x)[1]).trace(X)
    with pytest.raises(TracingError, match="says no shape and dtype"):
        ts.jit(lambda x: ts.io_callback(len, x, result="f32")).trace(X)
    with pytest.raises(TracingError, match="`M` in the result"):
        ts.jit(lambda x: ts.io_callback(len, x, result=Tensor["M", f32])).trace(X)
    no_function: Any = "len"
    with pytest.raises(TracingError, match="calls a function"):
        ts.jit(lambda x: ts.io_callback(no_function, x)).trace(X)


def program(seed: int, note: Callable[[Any], None]) -> Callable[[Any], Any]:
    """A random program of prints among computations that may be fused, reordered and shared."""
    choose = random.Random(seed)

    def block(x: Any, depth: int) -> Any:
        values = [x]
        for _ in range(choose.randint(2, 5)):
            kind = choose.choice(["map", "row", "note", "note", "cond", "loop"] if depth else ["map", "row", "note"])
            picked = choose.choice(values)
            if kind == "map":
                values.append(picked * 0.5 + choose.choice(values))
            elif kind == "row":
                values.append(picked - picked.max())
            elif kind == "note":
                ts.io_callback(note, picked.sum())
            elif kind == "cond":
                values.append(ts.cond(picked[0] > 0.0, lambda v=picked: block(v, 0), lambda v=picked: v))
            else:
                values.append(ts.fori_loop(0, 2, lambda _, v: block(v, 0), picked))
        return values[-1]

    return lambda x: block(x, 1)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_have_effects_in_the_order_of_the_reference(seed: int) -> None:
    seen: dict[str, list[float]] = {"cpu": [], "reference": []}
    results: dict[str, Any] = {}
    for backend, notes in seen.items():
        function = program(seed, lambda value, notes=notes: notes.append(float(value.item())))
        results[backend] = np.asarray(on(backend, function)(X))
    assert seen["cpu"] == pytest.approx(seen["reference"], rel=1e-5)
    np.testing.assert_allclose(results["cpu"], results["reference"], rtol=1e-5)
