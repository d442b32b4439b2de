"""What rules about sizes cost: solving a thousand of them, and checking what is left of them at each call."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tessera.types import dim
from tessera.types.constraint import Constraint, ConstraintSolver


def thousand_constraints() -> list[str]:
    """Rules of every kind about a thousand sizes that depend on each other."""
    texts: list[str] = []
    for i in range(200):
        texts += [f"D{i} % 8 == 0", f"S{i} <= {8192 + i}", f"B{i} in 1..={4096 + i}", f"D{i} = H{i}*E{i}"]
        texts.append(f"S{i} >= S{i * 7 % 200} // 2" if i % 2 else f"H{i} == H{i // 2}")
    return texts


def solving_time(repeats: int = 7) -> float:
    """Seconds of one CPU to read a thousand constraints and work out what they say, with nothing remembered."""
    texts, times = thousand_constraints(), list[float]()
    gc.disable()
    try:
        for _ in range(repeats):
            for function in ("parse_dim", "_add", "_multiply", "_divide", "_remainder"):
                getattr(dim, function).cache_clear()
            start = time.process_time()
            assert ConstraintSolver(Constraint.parse(text, None) for text in texts).contradiction is None
            times.append(time.process_time() - start)
    finally:
        gc.enable()
    return statistics.median(times)


def guard_time(time_of: Callable[[Callable[[], Any]], float]) -> float:
    """Seconds that five guards add to a cached call: a function with rules that nothing proves, and without them."""
    import tessera as ts  # noqa: PLC0415 - imports are timed in processes of their own

    def body(x: Any, y: Any) -> Any:
        return x + y

    body.__annotations__ = {"x": ts.Tensor["M", "K", ts.f32], "y": ts.Tensor["P", "Q", ts.f32]}
    rules = ["K % 8 == 0", "K <= 8192", "M in 1..=4096", "M == P", "K == Q"]
    guarded = ts.jit(body, constraints=rules)
    body.__annotations__ = {"x": ts.Tensor["M", "K", ts.f32], "y": ts.Tensor["M", "K", ts.f32]}
    plain = ts.jit(body)
    x = ts.array(np.ones((4, 16), np.float32))
    assert np.all(np.asarray(guarded(x, x)) == np.asarray(plain(x, x)))
    assert len(guarded.specializations[0].traced.tape.guards) >= 3, "something was proved, and is not measured"
    return max(0.0, time_of(lambda: guarded(x, x)) - time_of(lambda: plain(x, x)))
