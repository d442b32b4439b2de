"""`explain_recompile`: whatever a new specialization was made for is named, sizes and scopes alike."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np

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
