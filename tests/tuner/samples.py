"""Signatures, plans and trials for the tests of the tuner."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from tessera.tuner.records import Plan, Signature, Trial

SAFE_BITS = "5afe"
MATMUL = Signature("matmul", "64x64x64", "f32", "", "avx512", "stable", "r1")
BLOCK = Plan.of({"contraction.block": (8, 32, 64), "fusion.map": True, "topk.algorithm": "radix"})


def signature(**changes: str) -> Signature:
    """The signature of a matmul with some parts changed."""
    return replace(MATMUL, **changes)


def timed(ratios: Sequence[float], plan: Plan = BLOCK, baseline: float = 1000.0, bits: str = SAFE_BITS) -> Trial:
    """A trial in which the safe plan took so many times as long, round by round."""
    safe = [baseline * (1 + 0.01 * (index % 3)) for index in range(len(ratios))]
    own = [one / ratio for one, ratio in zip(safe, ratios, strict=True)]
    return Trial(plan, tuple(own), tuple(safe), bits=bits)


def noisy(gain: float, noise: float, rounds: int = 20, seed: int = 0) -> list[float]:
    """Ratios around a gain, with noise of so much on either of the two times; without bias in their median."""
    draw = random.Random(seed)
    half = [draw.gauss(0, noise) for _ in range(rounds // 2)]
    return [(1 + gain) * (1 + one) for one in (*half, *(-one for one in half))]
