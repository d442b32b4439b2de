"""What the model of blocks says of matmuls drawn at random, over the least time that their flops and bytes take.

    python -m benchmarks.block_bounds [--seed 0] [--draws 400] [--show 30]

Needs no GPU: sizes are drawn with uniform logarithms, the block of each is chosen as the compiler does, and the shapes
that come off worst by the model are printed first. A cliff of the model shows here before anybody has met the shape.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tessera.backends.nvptx.block_model import contraction_block
from tessera.backends.nvptx.block_times import Rows, block_time
from tessera.backends.nvptx.tensor_cores import GPUS, WGMMA_INSTRUCTION
from tessera.ir.graph.ops.segments import segment_length
from tessera.types.dim import Dim
from tessera.types.dtype import bf16

MACHINE = "sm_90a"
CYCLES, BYTES = 1.755e9, 4.2e12
"""Cycles of an H200 in a second under such load, and bytes that its memory moves."""
MULTIPLY_ADDS = 2048
"""Of a multiprocessor in a cycle."""
FORMS = ("nn", "nt", "tn", "tt")
LEAST, MOST = 4e9, 1e12
"""Floating-point operations of a drawn matmul: fewer take as long as a launch."""


@dataclass(frozen=True)
class Prediction:
    """A matmul, the block it gets, and seconds by the model and at least."""

    size: tuple[int, int, int]
    form: str
    block: tuple[int, int, int]
    segments: int
    seconds: float
    bound: float

    @property
    def ratio(self) -> float:
        """How many times longer than the bound."""
        return self.seconds / self.bound


def draw(rng: np.random.Generator) -> tuple[tuple[int, int, int], str]:
    """Sizes whose rows TMA takes as they are, and which operands are transposed."""
    while True:
        m, n, k = (max(8, int(math.exp(rng.uniform(math.log(16), math.log(16384)))) // 8 * 8) for _ in range(3))
        if LEAST < 2.0 * m * n * k < MOST:
            return (m, n, k), str(rng.choice(FORMS))


def predict(size: tuple[int, int, int], form: str) -> Prediction | None:
    """What the model says of a matmul of bf16; None for few rows, whose blocks go by another rule."""
    (m, n, k), machine = size, GPUS[MACHINE]
    length = segment_length(Dim.of(k), Dim.of(n))
    each = k if length is None else length.value or k
    segments = -(-k // each)
    layout: dict[str, Any] = {
        "is_lhs_m_major": form[0] == "t",
        "is_rhs_n_major": form[1] == "n",
        "lhs_row": Dim.of(m if form[0] == "t" else k),
        "rhs_row": Dim.of(n if form[1] == "n" else k),
    }
    dims = {"m": Dim.of(m), "n": Dim.of(n), "k": Dim.of(each), "batch": Dim.of(segments)}
    context = {"machine": machine, "dtype": bf16, **dims, **layout}
    block = contraction_block(WGMMA_INSTRUCTION.blocks, context)
    if m <= block[0] == 64:
        return None
    rows = Rows.of(m, n, each, context, bf16.bytes)
    cycles = block_time(block[:2], (m, n, each), segments, machine.blocks, rows)
    moved = bf16.bytes * (m * k + k * n + m * n) + 8 * (segments > 1) * segments * m * n
    computed = m * n * k / (machine.blocks * MULTIPLY_ADDS * CYCLES)
    bound = max(computed, bf16.bytes * (m * k + k * n + m * n) / BYTES)
    return Prediction(size, form, block, segments, max(cycles / CYCLES, moved / BYTES), bound)


def predictions(seed: int, draws: int) -> list[Prediction]:
    """So many drawn matmuls, the worst first."""
    rng = np.random.default_rng(seed)
    found = [predict(*draw(rng)) for _ in range(draws)]
    return sorted((one for one in found if one is not None), key=lambda one: -one.ratio)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the worst of them, and quantiles."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.block_bounds", description=__doc__)
    for name, default in (("seed", 0), ("draws", 400), ("show", 30)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asked = parser.parse_args(arguments)
    found = predictions(asked.seed, asked.draws)
    for one in found[: asked.show]:
        text = f"{one.form} {'x'.join(map(str, one.size)):18} {'x'.join(map(str, one.block)):12} {one.segments:3} parts"
        print(f"{one.ratio:5.2f} {text} {1e6 * one.seconds:8.1f} us, bound {1e6 * one.bound:8.1f}")
    ratios = [one.ratio for one in found]
    print("median {:.2f}, nine of ten below {:.2f}".format(*np.quantile(ratios, (0.5, 0.9))))


if __name__ == "__main__":
    main()
