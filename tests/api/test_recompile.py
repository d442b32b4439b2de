"""`explain_recompile`: whatever a new specialization was made for is named, sizes and scopes alike."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts

X = np.ones((4, 4), np.float32)


def fresh() -> Any:
    @ts.jit(backend="reference")
    def f(x: Any) -> Any:
        return x @ x

    return f


def reasons(f: Any) -> list[str]:
    """What is said to have changed, without the advice."""
    first, *lines = f.explain_recompile().splitlines()
    assert first == "`f` was specialized again because"
    return [line.strip() for line in lines if "= help" not in line]


def test_a_policy_around_the_call_is_named() -> None:
    f = fresh()
    f(X)
    with ts.policy(ts.Training()):
        f(X)
    assert f.explain_recompile().splitlines() == [
        "`f` was specialized again because",
        "  the policy around the call changed from none to storage(bf16) @ accum(f32): each policy is its own code",
        "    = help: declare it on the function, as in `jit(policy=...)`, or call it in scopes of one policy",
    ]
    with ts.policy(ts.Training()):
        f(X[:2, :2])
    assert reasons(f) == ["`x.shape[0]` changed from 4 to 2", "`x.shape[1]` changed from 4 to 2"]


def test_the_promise_of_a_caller_is_named() -> None:
    f = fresh()

    def calling(seed: int) -> Any:
        @ts.deterministic(seed=seed)
        def step(x: Any) -> Any:
            return f(x)

        return step

    f(X)
    calling(3)(X)
    first, second = (f"`step`, which is deterministic with seed {seed}" for seed in (3, 4))
    assert reasons(f) == [f"the promise of its caller changed from none to {first}"]
    calling(4)(X)
    assert reasons(f) == [f"the promise of its caller changed from {first} to {second}"]


def test_a_device_is_named() -> None:
    f = fresh()
    f(X)
    with ts.device(ts.cpu):
        f(X)
    assert reasons(f) == ["the device of the scope around the call changed from none to cpu"]


def test_calls_in_all_scopes_are_counted_and_forgotten_together() -> None:
    f = fresh()
    for _ in range(2):
        f(X)
        with ts.policy(ts.Training()):
            f(X)
    info = f.cache_info()
    assert (info.hits, info.misses, info.size) == (2, 2, 2)
    f.cache_clear()
    assert f.cache_info().misses == f.cache_info().size == 0
    assert f.explain_recompile() == "`f` has not been specialized a second time"


PROGRAM = """import numpy as np
import tessera as ts
X, I, M = np.ones(4, np.float32), np.arange(4), np.ones((4, 3), np.float32)


@ts.jit(backend="reference")
def f({parameters}):
    return {body}
"""

HELPS = {
    ("x, n", "x * n + 2 ** n", "X"): ("pass `float(n)`", "x, n", "float(n)"),
    ("x, n", "-n + x / (n + 1)", "X"): ("pass `float(n)`", "x, n", "float(n)"),
    ("x, n", "x * n", "I"): ("annotate `n: ts.Tensor[ts.i64]`", "x, n: ts.Tensor[ts.i64]", "n"),
    ("x, n", "x[n]", "X"): ("annotate `n: ts.Tensor[ts.i64]`", "x, n: ts.Tensor[ts.i64]", "n"),
    ("x, n", "x[n - 1]", "X"): ("annotate `n: ts.Tensor[ts.i64]`", "x, n: ts.Tensor[ts.i64]", "n"),
    ("x, n", "ts.fori_loop(0, n, lambda i, y: y * 2, x)", "X"): (
        "annotate `n: ts.Tensor[ts.i64]`",
        "x, n: ts.Tensor[ts.i64]",
        "n",
    ),
}


def run_calls(tmp_path: Path, parameters: str, body: str, calls: list[str]) -> Any:
    program = PROGRAM.format(parameters=parameters, body=body) + "\n".join(calls)
    file = tmp_path / f"program{len(list(tmp_path.iterdir()))}.py"
    file.write_text(program, encoding="utf-8")
    scope: dict[str, Any] = {}
    exec(compile(program, str(file), "exec"), scope)
    return scope["f"]


@pytest.mark.parametrize("key", HELPS, ids=" ".join)
def test_what_is_said_of_an_integer_runs_and_stops_it(key: tuple[str, str, str], tmp_path: Path) -> None:
    parameters, body, argument = key
    words, instead, passed = HELPS[key]
    told = run_calls(tmp_path, parameters, body, [f"f({argument}, {n})" for n in (1, 2)]).explain_recompile()
    assert words in told, told
    calls = [f"f({argument}, {passed.replace('n', str(n))})" for n in (1, 2, 3)]
    assert run_calls(tmp_path, instead, body, calls).cache_info().misses == 1


def test_what_is_said_of_a_size_runs_and_stops_it(tmp_path: Path) -> None:
    told = run_calls(tmp_path, "x", "x * 2", ["f(X)", "f(X[:3])"]).explain_recompile()
    assert 'annotate `x: ts.Tensor["B", ts.f32]` to serve all sizes' in told
    made = run_calls(tmp_path, 'x: ts.Tensor["B", ts.f32]', "x * 2", ["f(X)", "f(X[:3])"])
    assert made.cache_info().misses == 1


def test_an_item_of_a_container_is_to_be_an_argument(tmp_path: Path) -> None:
    told = run_calls(tmp_path, "p", "p['w'] * 2", ["f({'w': X})", "f({'w': X[:3]})"]).explain_recompile()
    assert 'pass it as an argument of its own, annotated `w: ts.Tensor["B", ts.f32]`' in told


def test_a_loop_of_python_is_part_of_the_program(tmp_path: Path) -> None:
    told = run_calls(tmp_path, "x, n", "sum(x * i for i in range(n))", ["f(X, 1)", "f(X, 2)"]).explain_recompile()
    assert "loops of Python's are part of the program" in told
    assert "`ts.fori_loop`" in told
