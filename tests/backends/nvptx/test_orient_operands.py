"""Dots of f32 by threads: operands are loaded along memory, in blocks that leave little idle, and no bit changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.block_model import PLAIN_BLOCKS, contraction_block
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.types.dim import Dim
from tessera.types.dtype import f32, f64
from tests.oracles.schedule_interpreter import run_program

SIZES = [(130, 70, 50), (17, 129, 33), (1, 70, 300), (40, 1, 270), (5, 6, 16), (4, 4, 1), (64, 64, 32)]


def product(form: str, x: Any, w: Any) -> Any:
    left = ts.ops.transpose(x) if form[0] == "t" else x
    return ts.ops.matmul(left, ts.ops.transpose(w) if form[1] == "t" else w)


def lowered(form: str, size: tuple[int, int, int], backend: str, **given: Any) -> tuple[Lowering, list[Any]]:
    (m, n, k), rng = size, np.random.default_rng(sum(size))
    shapes = (k, m) if form[0] == "t" else (m, k), (n, k) if form[1] == "t" else (k, n)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    options = Options.of(backend="cuda", features=("sm_90a",), **given) if backend == "cuda" else Options()

    def program(x: Any, w: Any) -> Any:
        return product(form, x, w)

    tape = ts.jit(program).trace(*arrays).tape
    return lower(tape, options, keep_snapshots=("nvptx-orient-operands",)), arrays


def tile_text(lowering: Lowering) -> str:
    return next(one.text for one in lowering.stages.snapshots if one.name == "nvptx-orient-operands")


@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
def test_threads_give_the_bits_of_the_cpu(form: str) -> None:
    for size in SIZES:
        (there, arrays), (here, _) = (lowered(form, size, backend) for backend in ("cuda", "cpu"))
        (found,), (expected,) = (run_program(one.module, *arrays) for one in (there, here))
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("shapes", [((70, 300), (300,)), ((300,), (300, 70)), ((300,), (300,))])
def test_vectors_without_an_axis_are_lowered(shapes: tuple[tuple[int, ...], ...]) -> None:
    arrays = [np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32) for shape in shapes]
    tape = ts.jit(ts.ops.matmul).trace(*arrays).tape
    options = Options.of(backend="cuda", features=("sm_90a",)), Options()
    (found,), (expected,) = (run_program(lower(tape, one).module, *arrays) for one in options)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize(("form", "transposes"), [("nn", 0), ("nt", 1), ("tn", 1), ("tt", 2)])
def test_operands_are_loaded_along_memory(form: str, transposes: int) -> None:
    text = tile_text(lowered(form, (512, 512, 500), "cuda")[0])
    body = text[text.index("ttile.for") : text.index("ttile.store")]
    assert body.count("ttile.transpose") == transposes
    assert body.count("ttile.load") == 2
    # The last axis of each tile is that of the last dim of its buffer.
    for line in [line for line in body.splitlines() if "ttile.load" in line]:
        axes, map = (line.split(f"{name} = [")[1].split("]")[0].split(", ") for name in ("axes", "map"))
        assert axes[1].strip('"') == map[1]


@pytest.mark.parametrize(
    ("size", "wanted"),
    [
        *(((2048, 2048, 2048), (128, 128, 16)), ((36435, 1104, 16), (64, 160, 16)), ((768, 768, 768), (48, 96, 32))),
        *(((21, 32768, 40), (24, 128, 32)), ((8192, 1, 8192), (64, 1, 64)), ((1, 8192, 8192), (1, 64, 64))),
        *(((47, 23808, 2896), (48, 192, 16)), ((1, 70, 300), (1, 32, 64)), ((8, 4096, 4096), (8, 32, 64))),
    ],
)
def test_blocks_of_f32_leave_little_idle(size: tuple[int, int, int], wanted: tuple[int, int, int]) -> None:
    machine = GPUS["sm_90a"]
    context = {"machine": machine, **{name: Dim.of(extent) for name, extent in zip("mnk", size, strict=True)}}
    candidates = next(one.blocks for one in machine.instructions if one.blocks)
    assert contraction_block(candidates, {**context, "dtype": f32}) == wanted
    assert set(PLAIN_BLOCKS) < set(candidates)
    # What is wider has fewer elements in registers; so have long epilogues.
    assert contraction_block(candidates, {**context, "dtype": f64}) == (64, 64, 64)
    rows, columns, _ = contraction_block(candidates, {**context, "dtype": f32, "others": 9})
    assert rows * columns <= 64 * 64
