"""Scopes: what is suspended does not happen, what is deterministic repeats, and wrapping makes ops legal."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownParameterType=false
from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import Tensor, f32, i32, i64
from tessera.diagnostics.codes import CallbackError, DeterminismError, EffectError
from tessera.diagnostics.error import TesseraError

X = np.ones(3, np.float32)


def test_io_inside_suspend_is_removed_and_outside_it_remains(capsys: pytest.CaptureFixture[str]) -> None:
    @ts.jit
    def quiet(x: Tensor["N", f32]):
        with ts.effects.suspend("io"):
            ts.debug_print("unheard")
            ts.io_callback(lambda v: print("unheard"), x)
        return x

    @ts.jit
    def loud(x: Tensor["N", f32]):
        with ts.effects.suspend("io"):
            ts.debug_print("unheard")
        ts.debug_print("heard")
        return x

    quiet(X)
    assert quiet.effects == set()
    assert "tgraph.debug_print" not in quiet.lower(X).graph
    loud(X)
    assert loud.effects == {"io"}
    assert capsys.readouterr().out == "heard\n"


def test_deferred_io_comes_at_the_end_of_its_scope_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    @ts.jit
    def f(x: Tensor["N", f32]):
        with ts.effects.suspend("io", defer=True):
            ts.debug_print("second {}", x.sum())
            ts.debug_print("third")
            with ts.effects.suspend("io"):
                ts.debug_print("never")
        ts.debug_print("fourth")
        return x

    ts.debug_print("first")
    f(X)
    assert capsys.readouterr().out.split("\n")[:4] == ["first", "second 3", "third", "fourth"]
    assert f.effects == {"io"}
    spans = [
        record.span.line for record in f.trace(X).tape.records if record.op == "tgraph.debug_print" and record.span
    ]
    assert len(set(spans)) == 3


def test_io_deferred_out_of_a_branch_stays_in_the_branch(capsys: pytest.CaptureFixture[str]) -> None:
    @ts.jit
    def f(x: Tensor["N", f32]):
        with ts.effects.suspend("io", defer=True):
            return ts.cond(x.sum() > 0.0, lambda: (ts.debug_print("taken"), x)[1], lambda: x)

    f(X)
    f(-X)
    assert capsys.readouterr().out == "taken\n"
    assert f.effects == {"io"}


def test_suspension_around_a_call_silences_a_program_and_does_not_change_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    @ts.jit
    def f(x: Tensor["N", f32]):
        ts.debug_print("said")
        return x

    with ts.effects.suspend("io"):
        f(X)
        f(X)
    assert capsys.readouterr().out == ""
    f(X)
    assert f.effects == {"io"}
    assert capsys.readouterr().out == "said\n"
    with ts.effects.suspend("io", defer=True):
        f(X)
        print("before")
    assert capsys.readouterr().out == "before\nsaid\n"
    assert f.cache_info().misses == 1


def test_a_scope_that_ends_in_an_error_does_what_it_put_off_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        with ts.effects.suspend("io", defer=True):
            ts.debug_print("lost")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    ts.debug_print("heard")
    assert capsys.readouterr().out == "heard\n"


def test_a_result_that_is_needed_cannot_be_suspended() -> None:
    f = ts.jit(lambda x: ts.io_callback(lambda v: v, x, result=x))
    with pytest.raises(CallbackError, match="`io` is suspended around this call"), ts.effects.suspend("io"):
        f(X)
    np.testing.assert_array_equal(np.asarray(f(X)), X)
    with pytest.raises(EffectError, match="which is suspended here"):
        ts.jit(lambda x: _suspended(x)).trace(X)


def _suspended(x: Any) -> Any:
    with ts.effects.suspend("io"):
        return ts.io_callback(lambda v: v, x, result=x)


def test_equal_keyed_draws_repeat_and_fresh_ones_do_not() -> None:
    fresh = ts.jit(lambda x: x + ts.random.uniform(ts.random.key(), x.shape))
    assert np.asarray(fresh(X)).tolist() != np.asarray(fresh(X)).tolist()
    assert fresh.effects == {"io", "random"}
    assert np.asarray(ts.random.key()).tolist() != np.asarray(ts.random.key()).tolist()


def noise(x: Any) -> Any:
    with ts.effects.seeded():
        return x + ts.random.uniform(ts.random.key(), x.shape) + ts.random.uniform(ts.random.key(), x.shape)


def test_a_seeded_scope_makes_unseeded_draws_legal_and_equal_in_every_run() -> None:
    first = ts.jit(ts.deterministic(seed=7)(noise))
    again = ts.deterministic(seed=7)(ts.jit(noise))
    other = ts.jit(ts.deterministic(seed=8)(noise))
    runs = [np.asarray(f(X)).tolist() for f in (first, first, again)]
    assert runs[0] == runs[1] == runs[2]
    assert np.asarray(other(X)).tolist() != runs[0]
    assert np.asarray(ts.deterministic(seed=7)(noise)(ts.ones(3))).tolist() == runs[0]


def test_places_and_functions_have_keys_of_their_own() -> None:
    @ts.deterministic(seed=1)
    def one() -> Any:
        with ts.effects.seeded():
            return ts.random.key(), ts.random.key()

    @ts.deterministic(seed=1)
    def two() -> Any:
        with ts.effects.seeded():
            return ts.random.key()

    keys = {tuple(np.asarray(key).tolist()) for key in (*one(), two())}
    assert len(keys) == 3


def test_additions_in_any_order_are_refused_and_ordered_ones_are_not() -> None:
    def add(x: Any, i: Any, u: Any) -> Any:
        return ts.ops.scatter_add(x, i, u, ordered=False)

    def wrapped(x: Any, i: Any, u: Any) -> Any:
        with ts.effects.ordered():
            return add(x, i, u)

    arguments = X, np.array([0, 0, 2]), np.array([1, 2, 3], np.float32)
    expected = [4.0, 1.0, 4.0]
    assert np.asarray(ts.jit(add)(*arguments)).tolist() == expected
    makers: list[Callable[[Any], Any]] = [
        lambda f: ts.jit(ts.deterministic(seed=0)(f)),
        lambda f: ts.deterministic(ts.jit(f)),
        ts.deterministic,
    ]
    for make in makers:
        with pytest.raises(DeterminismError, match="threads come"):
            make(add)(*arguments)
        assert np.asarray(make(wrapped)(*arguments)).tolist() == expected


@ts.kernel
def float_columns(x: ts.KTile["M", "D", f32], out: ts.KTile["D", f32]) -> None:
    """Sums of columns, which all programs add to."""
    T = ts.tile.context()
    ts.tile.atomic_add(out, ts.tile.reduce(ts.tile.load(x, rows=T.m, cols=T.d), 0), slice(None))


@ts.kernel
def whole_columns(x: ts.KTile["M", "D", i32], out: ts.KTile["D", i32]) -> None:
    """The same of integers, whose sums are the same in any order."""
    T = ts.tile.context()
    ts.tile.atomic_add(out, ts.tile.reduce(ts.tile.load(x, rows=T.m, cols=T.d), 0), slice(None))


def test_atomic_additions_of_floats_in_a_kernel_are_refused() -> None:
    with pytest.raises(DeterminismError, match="kernel `float_columns` adds with `atomic_add`"):
        ts.jit(ts.deterministic(lambda x: float_columns(x))).trace(np.ones((4, 8), np.float32))
    ts.jit(ts.deterministic(lambda x: whole_columns(x))).trace(np.ones((4, 8), np.int32))
    ts.jit(lambda x: float_columns(x)).trace(np.ones((4, 8), np.float32))


def test_a_policy_around_or_inside_changes_nothing_of_io(capsys: pytest.CaptureFixture[str]) -> None:
    @ts.jit
    def f(x: Tensor["N", f32]):
        with ts.policy(ts.Training()):
            ts.debug_print("{}", x)
            return ts.io_callback(lambda v: v, x, result=x)

    f(X)
    with ts.policy(ts.Training()):
        ts.debug_print("outside")
        with ts.effects.suspend("io"):
            ts.debug_print("never")
            assert ts.effects.deterministic(lambda: 1)() == 1
    assert capsys.readouterr().out == "[1, 1, 1]\noutside\n"


def test_a_deterministic_function_inside_another_and_conversely() -> None:
    @ts.deterministic
    def inner(x: Any) -> Any:
        return x + ts.random.uniform(ts.random.key(), x.shape)

    with pytest.raises(DeterminismError, match="`inner` is deterministic"):
        ts.jit(lambda x: inner(x) + 1.0)(X)

    def outer(x: Any) -> Any:
        return ts.jit(lambda v: v + ts.random.uniform(ts.random.key(), v.shape))(x)

    with pytest.raises(DeterminismError, match="`outer` is deterministic"):
        ts.jit(ts.deterministic(outer))(X)


def test_decorating_a_jitted_function_keeps_its_settings() -> None:
    @ts.deterministic(seed=2)
    @ts.jit(static_argnames=("by",), constraints=["N >= 2"], fusion=False)
    def f(x: Tensor["N", f32], by: int = 2):
        return x * by

    assert isinstance(f, ts.Jit)
    assert f.options.fusion is False
    assert np.asarray(f(X, by=3)).tolist() == [3.0, 3.0, 3.0]
    with pytest.raises(TesseraError, match="N >= 2"):
        f(np.ones(1, np.float32))


weight = ts.ones(3)


def test_tensors_from_outside_are_read_at_each_call_of_a_deterministic_function() -> None:
    global weight
    f = ts.jit(ts.deterministic(lambda x: x + weight))
    assert np.asarray(f(X)).tolist() == [2.0, 2.0, 2.0]
    weight = ts.zeros(3)
    assert np.asarray(f(X)).tolist() == [1.0, 1.0, 1.0]


def test_the_edit_that_an_error_offers_makes_the_program_legal(tmp_path: Any) -> None:
    calls = {
        "ts.random.key()": "ts.random.key(0)",
        "ts.ops.scatter_add(x, i, x, ordered=False)": "ts.ops.scatter_add(x, i, x)",
        "ts.io_callback(len, x, result=x)": "ts.io_callback(len, x, result=x, deterministic=True)",
    }
    for wrong, right in calls.items():
        file = tmp_path / "model.py"
        file.write_text(f"def f(ts, x, i):\n    {wrong}\n    return x\n")
        namespace: dict[str, Any] = {}
        exec(compile(file.read_text(), str(file), "exec"), namespace)
        body = namespace["f"]

        def f(x: Tensor["N", f32], i: Tensor["N", i64], body: Any = body) -> Any:
            return body(ts, x, i)

        linecache.checkcache(str(file))
        with pytest.raises(DeterminismError) as caught:
            ts.jit(ts.deterministic(f)).trace(X, np.zeros(3, np.int64))
        fix = caught.value.fix
        assert fix is not None
        assert fix.replacement == right


def test_a_deterministic_function_outside_of_jit_holds_what_it_calls_to_its_promise() -> None:
    x, at = ts.ones((2,)), ts.array([0, 0])
    loose = ts.jit(lambda x, at: ts.ops.scatter_add(x, at, x, ordered=False))
    before = loose(x, at).tolist()

    @ts.deterministic(seed=7)
    def whole(x: Any, at: Any) -> Any:
        return loose(x, at)

    with pytest.raises(DeterminismError, match="`whole` is deterministic") as caught:
        whole(x, at)
    assert caught.value.span is not None
    assert loose(x, at).tolist() == before, "elsewhere it is as it was"

    seeded = ts.jit(lambda x: _noisy(x))

    @ts.deterministic(seed=7)
    def noise(x: Any) -> Any:
        return seeded(x), ts.ops.exp(x)

    first, second = noise(x), noise(x)
    assert first[0].tolist() == second[0].tolist()
    assert first[1].tolist() == ts.ops.exp(x).tolist()


def _noisy(x: Any) -> Any:
    with ts.effects.seeded():
        return x + ts.random.uniform(ts.random.key(), x.shape)
