"""A three-layer perceptron on a dict of parameters: every matmul has its bias and gelu as epilogue."""

from __future__ import annotations

import argparse
import itertools
import math
from typing import Any

import numpy as np

import tessera as ts

ops = ts.ops


@ts.jit
def classify(
    x: ts.Tensor["B", "I", ts.f32],
    first: dict[str, Any],
    second: dict[str, Any],
    last: dict[str, Any],
) -> Any:
    """Class probabilities; the batch is symbolic, the layers have the sizes they come with."""
    hidden = ops.gelu(x @ first["w"] + first["b"])
    hidden = ops.gelu(hidden @ second["w"] + second["b"])
    return ops.softmax(hidden @ last["w"] + last["b"])


def layer(rows: int, columns: int, rng: np.random.Generator) -> dict[str, Any]:
    """A weight [in, out] and a bias."""
    weight = rng.standard_normal((rows, columns), np.float32) / np.float32(math.sqrt(rows))
    return {"w": weight, "b": rng.standard_normal(columns, np.float32)}


def exact(x: Any, *layers: dict[str, Any]) -> Any:
    """The same in float64."""
    erf = np.vectorize(math.erf, otypes=[np.float64])
    for number, parameters in enumerate(layers):
        x = x @ parameters["w"].astype(np.float64) + parameters["b"]
        if number < len(layers) - 1:
            x = 0.5 * x * (1 + erf(x / math.sqrt(2)))
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def main(*, batches: tuple[int, ...] = (1, 7, 64), sizes: tuple[int, int, int, int] = (784, 512, 256, 10)) -> None:
    """One compilation for all batches, checked against float64."""
    rng = np.random.default_rng(0)
    layers = [layer(rows, columns, rng) for rows, columns in itertools.pairwise(sizes)]
    arguments: tuple[Any, ...] = ()
    for batch in batches:
        x = rng.standard_normal((batch, sizes[0]), np.float32)
        arguments = x, *layers
        y = np.asarray(classify(*arguments))
        error = float(np.max(np.abs(y - exact(x.astype(np.float64), *layers))))
        print(f"batch {batch:<4} largest error {error:.1e}")
        # Probabilities are at most 1; the logits carry the rounding of three contractions.
        assert error < 8 * 2.0**-24 * sum(math.sqrt(size) for size in sizes)
    print(f"compilations: {classify.cache_info().misses}\n\n{classify.explain(*arguments)}")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    main()
