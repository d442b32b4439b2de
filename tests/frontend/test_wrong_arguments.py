"""Every public op with every kind of wrong argument: the answer is an error of ours, or Python's own about the call."""

# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api import eager
from tessera.diagnostics.codes import DTypeError
from tessera.diagnostics.error import TesseraError
from tessera.frontend import call_plans
from tessera.frontend.trace import Trace
from tessera.ir.base import dispatch

X = np.arange(6, dtype=np.float32).reshape(2, 3)
INDEX = np.zeros((2, 3), np.int64)
# What a parameter of this name takes; every other one takes a tensor of floats.
RIGHT: dict[str, Any] = {
    "shape": (2, 3), "axis": 0, "axes": (0, 1), "dtype": "f32", "index": 0, "indices": INDEX, "positions": INDEX,
    "equation": "ij->ji", "subscripts": "ij->ji", "repeats": 2, "count": 2, "sections": 1, "parts": 1, "shift": 1,
    "padding": 1, "depth": 3, "n": 3, "rows": 2, "columns": 2, "condition": X > 1, "k": 1, "kind": "sum",
    "key": np.zeros(2, np.uint64), "seed": 1, "p": 0.5, "rate": 0.5, "data": 1, "window": 1, "reps": 2, "num": 3,
    "tensors": [X, X], "xs": [X, X], "labels": np.zeros(2, np.int64), "classes": 3, "start": 0, "stop": 3,
}  # fmt: skip
WRONG: dict[str, Any] = {
    "None": None, "text": "text", "half": 2.5, "negative": -7, "huge": 2**70, "nan": float("nan"), "object": object(),
    "texts": ["a", "b"], "nothing": (), "nones": [None], "mixed": (1, "a"), "halves": (1.5, 2.5), "dict": {"a": 1},
    "strings": np.array(["a"]), "complex": 1j, "class": int, "function": len, "slice": slice(0, 1), "set": {1},
    "scalar": np.float32(1), "bool": True, "integers": INDEX, "nested": [[1], [2, 3]], "bytes": b"x",
    "ellipsis": ..., "deep": np.zeros((1,) * 9, np.float32), "flags": np.array([True]),
}  # fmt: skip


def ops() -> dict[str, Callable[..., Any]]:
    return {name: getattr(ts.ops, name) for name in dir(ts.ops)}


def functions() -> dict[str, Callable[..., Any]]:
    return {**ops(), **{f"random.{name}": getattr(ts.random, name) for name in ts.random.__all__}}


def arguments(
    function: Callable[..., Any], wrong: dict[str, Any] = WRONG
) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Calls with one wrong argument each, and some with too many."""
    parameters = inspect.signature(function).parameters.values()
    needed = [item for item in parameters if item.default is item.empty and item.kind is item.POSITIONAL_OR_KEYWORD]
    right = [RIGHT.get(item.name, X) for item in needed]
    for kind, value in wrong.items():
        for at, item in enumerate(needed):
            yield f"{item.name}={kind}", [*right[:at], value, *right[at + 1 :]], {}
        for item in parameters:
            if item.kind in (item.KEYWORD_ONLY, item.POSITIONAL_OR_KEYWORD) and item.default is not item.empty:
                yield f"{item.name}={kind}", right, {item.name: value}
            if item.kind is item.VAR_POSITIONAL:
                yield f"*{item.name}={kind}", [*right, value], {}
    yield "a keyword there is not", right, {"no_such_keyword": 1}
    yield "nothing at all", [], {}


def complaint(function: Callable[..., Any], given: list[Any], keywords: dict[str, Any]) -> str:
    """What is wrong with how a call went: nothing where it worked, or failed as it should."""
    try:
        function(*given, **keywords)
    except TesseraError as error:
        return "" if str(error.message) else "an error without a message"
    except TypeError as error:
        try:
            inspect.signature(function).bind(*given, **keywords)
        except TypeError:
            return "" if function.__name__ in str(error) else f"no name in {error!r}"
        return repr(error)
    except Exception as error:  # the test is about which ones come out
        return repr(error)
    return ""


def test_ops_lists_ops_only() -> None:
    assert len(ops()) > 120
    assert [name for name, item in ops().items() if not inspect.isfunction(item)] == []
    assert sorted(ts.ops.__all__) == dir(ts.ops)
    assert not [name for name in dir(ts.ops) if name.startswith("_")]


def test_a_cast_takes_dtypes_alone() -> None:
    assert "cast" in dir(ts.ops)
    assert ts.ops.cast(ts.ones(2), ts.f64).dtype is ts.ops.cast(ts.ones(2), np.float64).dtype is ts.f64
    for other in (np.datetime64, float, "double"):
        with pytest.raises(ts.TesseraError, match="is not a dtype") as caught:
            ts.ops.cast(ts.ones(2), other)  # pyright: ignore[reportArgumentType]
        assert caught.value.fix is not None


@pytest.mark.parametrize("name", sorted(functions()))
def test_wrong_arguments_in_a_trace(name: str) -> None:
    function = functions()[name]
    found: dict[str, str] = {}
    for what, given, keywords in arguments(function):
        with dispatch.record_on(Trace()):
            said = complaint(function, given, keywords)
        if said:
            found[what] = said
    assert found == {}


def test_wrong_arguments_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside `jit` the same, and no tensor is computed for a wrong argument."""
    programs: OrderedDict[Any, Any] = OrderedDict()
    monkeypatch.setattr(eager, "load", _load)
    monkeypatch.setattr(eager, "_PROGRAMS", programs)
    monkeypatch.setattr(call_plans, "PLANS", {})
    found: dict[str, str] = {}
    few = {kind: WRONG[kind] for kind in ("None", "text", "nan", "set", "mixed", "strings")}
    for name, function in functions().items():
        if "size" in inspect.signature(function).parameters:
            continue  # it reads how many elements its result has, which a program that computes nothing does not say
        for what, given, keywords in arguments(function, few):
            said = complaint(function, given, keywords)
            if said:
                found[f"{name} {what}"] = said
    assert found == {}


class _Nothing:
    """A program that gives back what it got."""

    def call(self, *tensors: Any) -> Any:
        return tensors[0] if tensors else X

    run = call


def _load(*_: Any) -> tuple[Any, Any]:
    return _Nothing(), None


def _step(state: Any, x: Any) -> Any:
    return state, x


def _halve(x: Any) -> Any:
    return x


OTHERS: dict[str, Callable[[], Any]] = {
    "array of another dtype": lambda: ts.array([1], dtype="q"),
    "array of texts": lambda: ts.array(["a"]),
    "array of rows of two lengths": lambda: ts.array([[1], [2, 3]]),
    "array of None": lambda: ts.array([None]),
    "cond of numbers": lambda: ts.cond(ts.array(True), 1, 2),  # pyright: ignore[reportArgumentType]
    "cond of an array": lambda: ts.cond(X > 0, lambda: 1, lambda: 2),
    "cond of a text": lambda: ts.cond("yes", lambda: 1, lambda: 2),
    "while_loop of nothing": lambda: ts.while_loop(None, None, X),  # pyright: ignore[reportArgumentType]
    "fori_loop from a text": lambda: ts.fori_loop("a", 3, lambda _, state: state, 0),
    "fori_loop from a half": lambda: ts.fori_loop(0.5, 3, lambda _, state: state, 0),
    "fori_loop to nothing": lambda: ts.fori_loop(0, None, lambda _, state: state, 0),
    "fori_loop to an array": lambda: ts.fori_loop(0, X, lambda _, state: state, 0),
    "fori_loop of nothing": lambda: ts.fori_loop(0, 3, None, 0),  # pyright: ignore[reportArgumentType]
    "scan over a number": lambda: ts.scan(_step, 0, 5),
    "scan over a scalar": lambda: ts.scan(_step, 0, np.float32(5)),
    "scan over a text": lambda: ts.scan(_step, 0, "abc"),
    "scan of a text's length": lambda: ts.scan(_step, 0, None, length="a"),
    "scan of half a length": lambda: ts.scan(_step, 0, None, length=2.5),
    "scan that gives one thing": lambda: ts.scan(lambda state, _: state, 0.0, X),
    "scan of nothing": lambda: ts.scan(None, 0.0, X),  # pyright: ignore[reportArgumentType]
    "jit of a number": lambda: ts.jit(5),  # pyright: ignore[reportArgumentType, reportCallIssue]
    "jit of a class in C": lambda: ts.jit(int),
    "jit with names that are none": lambda: ts.jit(_halve, static_argnames=5),  # pyright: ignore[reportArgumentType, reportCallIssue]
    "jit with a name that is none": lambda: ts.jit(_halve, static_argnames=(5,)),  # pyright: ignore[reportArgumentType, reportCallIssue]
    "index of a text": lambda: ts.array([1.0])["a"],
    "index of a half": lambda: ts.array([1.0])[0.5],
    "slice from a text": lambda: ts.array([1.0])["a":],
    "sum with a text": lambda: ts.array([1.0]) + "a",
    "shape of halves": lambda: ts.array([1.0]).reshape(2.5),
    "cache of halves": lambda: ts.KVCache.empty(1.5, 1, 2, 3),
    "cache pruned to a text": lambda: ts.KVCache.empty(1, 1, 2, 3).prune("a"),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("name", OTHERS)
def test_wrong_arguments_of_other_functions(name: str) -> None:
    with pytest.raises(TesseraError):
        OTHERS[name]()


def _same(x: Any) -> Any:
    return x


def test_arrays_of_swapped_bytes_say_how_to_swap_them() -> None:
    x = np.arange(3, dtype=np.float32)
    with pytest.raises(DTypeError, match=r"`>f4` are not supported: they are big-endian") as caught:
        ts.jit(_same)(x.astype(">f4"))
    assert caught.value.fix is not None
    assert caught.value.fix.message == 'convert it first: `x.astype("float32")`'
    assert ts.jit(_same)(x.astype(">f4").astype("float32")).tolist() == x.tolist()


@pytest.mark.parametrize("name", ["layernorm", "layernorm_safe", "rmsnorm", "rmsnorm_safe"])
@pytest.mark.parametrize("given", [{"axis": 9}, {"eps": "small"}, {"eps": -1.0}, {"unknown": 1}, {"weight": "ones"}])
def test_a_norm_is_named_as_it_is_called(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    shown = ", ".join(f"{key}={value!r}" for key, value in given.items()).replace("'ones'", "ops.ones((5,))")
    file.write_text(f"def norm(x):\n    return ops.{name}(x, {shown})\n", encoding="utf-8")
    names: dict[str, Any] = {"ops": ts.ops}
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), names)
    x = np.ones((2, 4), np.float32)
    functions: list[Any] = [names["norm"], ts.jit(names["norm"])]
    for run in functions:
        with pytest.raises(ts.TesseraError) as caught:
            run(x)
        assert f"`{name}`" in str(caught.value).splitlines()[0]
