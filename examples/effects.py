"""Effects: a training loop that draws from a seed, logs as it goes, and is the same at every run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts


def descend(log: Callable[[Any, Any], None], rounds: int) -> ts.Jit:
    """Gradient descent on least squares with noisy gradients, in one compiled program that reports its loss."""

    @ts.jit
    @ts.deterministic(seed=7)
    def descent(x: ts.Tensor["B", "D", ts.f32], y: ts.Tensor["B", ts.f32]) -> Any:
        with ts.effects.seeded():
            key = ts.random.key()

        def step(i: Any, w: Any) -> Any:
            error = x @ w - y
            ts.io_callback(log, i, (error * error).mean())
            noise = ts.random.normal(ts.random.fold(key, i), w.shape, std=1e-3)
            return w - 0.1 * (x.T @ error / x.shape[0] + noise)

        w = ts.fori_loop(0, rounds, step, ts.ops.zeros((x.shape[1],)))
        ts.debug_print("largest weight {:.3f}", abs(w).max())
        return w

    return descent


@ts.jit
@ts.deterministic
def draw_unseeded(x: ts.Tensor["B", "D", ts.f32]) -> Any:
    """A draw from nowhere: no two runs would be the same."""
    return x + ts.random.uniform(ts.random.key(), x.shape)


def main(B: int = 256, D: int = 8, rounds: int = 20) -> None:
    """Two runs and a quiet one, which all agree; then the program that is refused, and why."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((B, D), np.float32)
    y = x @ np.linspace(-1, 1, D, dtype=np.float32)
    losses: list[float] = []
    descent = descend(lambda i, loss: losses.append(loss.item()), rounds)
    first, second = descent(x, y), descent(x, y)
    with ts.effects.suspend("io"):
        quiet = descent(x, y)
    assert first.tolist() == second.tolist() == quiet.tolist()
    assert losses[:rounds] == losses[rounds:], "both runs printed the same, and the third nothing"
    print(descent)
    print(f"loss {losses[0]:.3f} -> {losses[rounds - 1]:.6f} in {rounds} rounds, the same in every run")
    try:
        draw_unseeded(x)
    except ts.TesseraError as error:
        print(error)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
