"""Contracts: sizes that must fit together are rules of a function, and what breaks one is refused with its line."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import tessera as ts


@ts.jit
@ts.constrain("D = H*E", "E % 8 == 0", "B in 1..=4096")
def heads(x: ts.Tensor["B", "S", "D", ts.f32], scale: ts.Tensor["H", "E", ts.f32]) -> Any:
    """[B, S, H*E] cut into heads, each with its own scale: the rules prove that the cut fits."""
    cut = x.reshape(*x.shape[:2], *scale.shape)
    return (cut * scale).swapaxes(1, 2)


@ts.jit
def halves(x: ts.Tensor["N", ts.f32]) -> Any:
    """A rule that the body asks for, where it is needed."""
    ts.require(x.shape[0] % 2 == 0)
    return x.reshape(2, x.shape[0] // 2)


def refusal_of(call: Callable[..., Any], *arguments: Any) -> str:
    """What a call that breaks a rule says."""
    try:
        call(*arguments)
    except ts.TesseraError as error:
        return str(error)
    raise AssertionError("nobody minded")


def main(B: int = 8, S: int = 128, H: int = 4, E: int = 16) -> None:
    """One compilation for all sizes that keep the rules; then those that do not."""
    rng = np.random.default_rng(0)
    scale = rng.standard_normal((H, E), np.float32)
    for length in (S, 1, S + 3):
        x = rng.standard_normal((B, length, H * E), np.float32)
        wanted = (x.reshape(B, length, H, E) * scale).swapaxes(1, 2)
        assert np.array_equal(np.asarray(heads(x, scale)), wanted)
    print(heads.explain(x, scale))
    assert heads.cache_info().misses == 1, "one compilation served all lengths"
    print(ts.shape_trace(heads)(x, scale))
    print(refusal_of(heads, x[..., :-1], scale))
    print(refusal_of(halves, np.ones(3, np.float32)))


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
