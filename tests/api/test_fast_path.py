"""The short way of a call: native from the second one on, for tensors, trees, keywords, defaults and captures."""

from __future__ import annotations

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.runtime.cache import Store
from tests.runtime.programs import add_executable

F32 = np.float32
W = np.ones((2, 3), F32)


@pytest.fixture(autouse=True)
def programs(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[Any]:
    """A compiler that makes `x + y` of everything, an empty cache, and what was compiled."""
    seen: list[Any] = []

    def compile_tape(tape: Any, options: Any) -> Any:
        seen.append(tape)
        return add_executable()

    store = Store(tmp_path)
    monkeypatch.setitem(sys.modules, "tessera.compiler.compile", SimpleNamespace(compile_tape=compile_tape))
    monkeypatch.setattr("tessera.runtime.cache.default_store", lambda: store)
    return seen


def ones(rows: int = 2) -> Any:
    return np.ones((rows, 3), F32)


def is_fast(function: Any, *args: Any, **kwargs: Any) -> bool:
    """Whether a call takes the short way: then nothing is bound."""
    function(*args, **kwargs)
    binder, function._binder = function._binder, None
    try:
        function(*args, **kwargs)
    except AttributeError:
        return False
    finally:
        function._binder = binder
    return True


def test_tensors_and_arrays_by_position(programs: list[Any]) -> None:
    @ts.jit
    def f(x: ts.Tensor["N", "D", ts.f32], y: ts.Tensor["N", "D", ts.f32]) -> Any:
        return x + y

    assert is_fast(f, ones(), ones())
    assert is_fast(f, ts.Tensor.of(ones(5)), ones(5))
    assert np.asarray(f(ones(), ones())).tolist() == (ones() * 2).tolist()
    assert len(programs) == 1
    assert (f.cache_info().hits, f.cache_info().misses, f.cache_info().compiles) == (4, 1, 1)


def test_keywords_defaults_and_static_values(programs: list[Any]) -> None:
    @ts.jit
    def f(x: Any, y: Any = W, *, mode: str = "plain", scale: int = 1) -> Any:
        return (x + y) * scale if mode == "scaled" else x + y

    assert is_fast(f, ones(), ones())
    assert is_fast(f, ones())
    assert is_fast(f, x=ones(), y=ones())
    assert is_fast(f, ones(), mode="plain")
    assert len(programs) == 1
    assert is_fast(f, ones(), mode="scaled", scale=2)
    assert len(programs) == 2
    with pytest.raises(ts.TesseraError, match="unexpected keyword"):
        f(ones(), colour="red")
    with pytest.raises(ts.TesseraError, match="too many positional"):
        f(ones(), ones(), "plain")


def test_trees_in_and_out(programs: list[Any]) -> None:
    f = ts.jit(lambda params, xs: {"sum": params["x"] + xs[0][0], "n": 3})
    assert is_fast(f, {"x": ones()}, [(ones(), None)])
    out = f({"x": ones()}, [(ones(), None)])
    assert (out["sum"].shape, out["n"]) == ((2, 3), 3)
    assert len(programs) == 1
    # Another form is another program; that the tape is the same shows in the disk cache alone.
    f({"x": ones()}, [(ones(), 3)])
    f({"x": ones()}, [[ones(), None]])
    assert f.cache_info().misses == 3


def test_captured_tensors_are_read_at_each_call() -> None:
    held = {"w": ones()}
    f = ts.jit(lambda x: x + held["w"])
    assert is_fast(f, ones())
    held["w"] = ones() * 4
    assert np.asarray(f(ones())).tolist() == (ones() * 5).tolist()


def test_strided_arrays_are_copied_into_form() -> None:
    f = ts.jit(lambda x, y: x + y)
    wide = np.arange(24, dtype=F32).reshape(4, 6)
    np.testing.assert_array_equal(f(wide[::2, ::2], ones()), wide[::2, ::2] + 1)


def test_a_second_process_finds_the_code_on_disk(programs: list[Any]) -> None:
    def make() -> Any:
        return ts.jit(lambda x, y: x + y)

    first, second = make(), make()
    first(ones(), ones())
    second(ones(), ones())
    assert len(programs) == 1
    assert [f.specializations[0].origin.source for f in (first, second)] == ["compiled", "disk cache"]
    assert (second.cache_info().misses, second.cache_info().compiles) == (1, 0)


@pytest.mark.parametrize("variable", ["TESSERA_DUMP", "TESSERA_TIMING"])
def test_passes_are_shown_of_a_program_that_is_on_disk(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, programs: list[Any]
) -> None:
    def make() -> Any:
        return ts.jit(lambda x, y: x + y)

    make()(ones(), ones())
    monkeypatch.setenv(variable, str(tmp_path) if variable == "TESSERA_DUMP" else "1")
    again = make()
    again(ones(), ones())
    assert again.specializations[0].origin.source == "compiled"
    assert len(programs) == 2


def test_a_miss_says_what_changed() -> None:
    def make(**options: Any) -> Any:
        f = ts.jit(**options)(lambda x, y: x + y)
        f(ones(), ones())
        return f.specializations[0].origin.reason

    assert make() == "never compiled before"
    assert make(fusion=False) == "the options changed since the last time"


def test_a_damaged_entry_is_rebuilt(programs: list[Any], tmp_path: Any) -> None:
    f = ts.jit(lambda x, y: x + y)
    f(ones(), ones())
    key = f.specializations[0].origin.key
    Store(tmp_path).put(key, b"nonsense")
    f.cache_clear()
    f(ones(), ones())
    assert len(programs) == 2


def test_explain_tells_where_the_code_came_from() -> None:
    f = ts.jit(lambda x, y: x + y)
    assert "not made yet" in str(f.explain(ones(), ones()))
    f(ones(), ones())
    text = str(f.explain(ones(), ones()))
    assert text.splitlines()[0] == "(x: [2, 3] f32, y: [2, 3] f32) -> ([2, 3] f32)"
    assert "code: compiled, never compiled before" in text


def test_recent_specializations_are_all_tried() -> None:
    f = ts.jit(lambda x, y, mode: x + y)
    for mode in (1, 2, 3, (1.0,), True, "one"):
        assert is_fast(f, ones(), ones(), mode)
    assert f.cache_info().misses == 6
    assert is_fast(f, ones(), ones(), True)
    assert is_fast(f, ones(), ones(), (1.0,))
    assert f.cache_info().misses == 6


def test_a_call_in_the_scope_of_a_device_takes_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ts.jit(lambda x, y: x + y)
    with ts.device(ts.cpu):
        f(ones(), ones())

    def refuse(*given: Any, **named: Any) -> Any:
        raise AssertionError("the call is checked")

    with monkeypatch.context() as patch:
        patch.setattr(type(f), "_call_checked", refuse)
        with ts.device(ts.cpu):
            assert np.asarray(f(ones(), ones())).tolist() == (ones() + ones()).tolist()
            with pytest.raises(AssertionError, match="the call is checked"):
                f(ones(5), y=ones(5))
        with pytest.raises(AssertionError, match="the call is checked"):
            f(ones(), ones())  # outside of the scope it is another function
    with ts.device(ts.cpu):
        assert np.asarray(f(ones(4), ones(4))).shape == (4, 3)


def test_a_call_in_a_scope_of_effects_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    f = ts.jit(lambda x, y: x + y)
    with ts.device(ts.cpu):
        f(ones(), ones())
    seen: list[str] = []
    plain = vars(type(f))["_call_checked"]

    def watch(self: Any, *given: Any, **named: Any) -> Any:
        seen.append("checked")
        return plain(self, *given, **named)

    @ts.effects.deterministic
    def around() -> Any:
        with ts.device(ts.cpu):
            return f(ones(), ones())

    monkeypatch.setattr(type(f), "_call_checked", watch)
    around()
    assert seen
