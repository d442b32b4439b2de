"""Numerics: what is stored, computed and summed in is part of a type or of a scope, and visible in every program."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import tessera as ts

ops = ts.ops


@ts.jit
def layer(x: ts.Tensor["B", "K", ts.f32], w: ts.Tensor["K", "N", ts.f32]) -> Any:
    """A matmul and a softmax that is safe by construction, under whatever policy is around it."""
    return ops.softmax_safe(x @ w)


def main(B: int = 64, K: int = 256, N: int = 128, draws: int = 2000) -> None:
    """The same layer under three policies; softmax of huge values; rounding that is right on average."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((B, K), np.float32) / 8, rng.standard_normal((K, N), np.float32)
    exact = np.exp((logits := x.astype(np.float64) @ w) - logits.max(1, keepdims=True))
    exact /= exact.sum(1, keepdims=True)
    for name, policy in (("as written", ts.Policy()), ("training", ts.Training()), ("inference", ts.Inference())):
        with ts.policy(policy):
            error = float(np.abs(np.asarray(layer(x, w)).astype(np.float64) - exact).max())
        print(f"{name:<10} {str(policy) or 'f32':<60} largest error {error:.1e}")
        # Probabilities are at most 1; a float8 keeps three bits, so its steps are sixteenths.
        assert error < (1e-5 if not policy else 0.02 if name == "training" else 0.25)
    huge = np.array([[1e30, -1e30, 1e30], [-np.inf, -np.inf, -np.inf]], np.float32)
    print("softmax of huge values", ops.softmax_safe(ts.array(huge)).tolist())

    @ts.jit
    def round_randomly(x: ts.Tensor["N", ts.f32], key: ts.Tensor[2, ts.u64]) -> Any:
        with ts.policy(rounding="stochastic", key=key):
            return x.cast(ts.bf16).cast(ts.f32)

    third = np.full(draws, 1 / 3, np.float32)
    mean = float(np.asarray(round_randomly(third, ts.random.key(1))).mean())
    nearest = float(ts.array([1 / 3]).cast(ts.bf16).cast(ts.f32).item())
    print(f"1/3 in bf16: {nearest:.6f} to nearest, {mean:.6f} on average when it is rounded at random")
    assert abs(mean - 1 / 3) < 4 * 2.0**-9 / 3 / np.sqrt(draws)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
