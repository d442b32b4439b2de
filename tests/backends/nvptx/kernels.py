"""Tile kernels of small programs, as the schedule stage makes them for a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import tessera as ts
from tessera.backends.nvptx.compile import NvptxBackend, NvptxCode
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.tape import Tape
from tessera.ir.target.machine_code import compile_texts

One = Callable[[Any], Any]


def _rectified(x: Any, y: Any) -> Any:
    return ts.ops.relu(x + y)


def _gated(x: Any, y: Any) -> Any:
    return ts.ops.gelu(x) * y


_SINGLE: dict[str, tuple[One, tuple[int, ...], bool]] = {
    "row in registers": (lambda x: ts.ops.softmax(x, axis=-1), (8, 1024), False),
    "norm": (lambda x: ts.ops.rmsnorm(x), (8, 1024), False),
    "dynamic row": (lambda x: ts.ops.softmax(x, axis=-1), (8, 1000), True),
    "long row": (lambda x: ts.ops.softmax(x, axis=-1), (4, 6000), False),
    "columns": (lambda x: x.sum(axis=0), (64, 100), False),
    "places": (lambda x: ts.ops.argmax(x, axis=1), (5, 300), False),
    "product": (lambda x: ts.ops.relu(x @ x.T), (70, 50), True),
    "sort": (lambda x: ts.ops.sort(x, axis=-1), (3, 200), True),
    "selection": (lambda x: ts.ops.topk(x, 10, axis=-1)[1], (3, 700), True),
    "running sum": (lambda x: ts.ops.cumsum(x, axis=0), (50, 30), False),
    "transpose": (lambda x: x.T + 1.0, (33, 65), False),
    "concatenation": (lambda x: ts.ops.concat([x, x * 2.0], axis=0), (9, 11), False),
}

PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], bool]] = {
    "map": (_rectified, ((64, 4096), (64, 4096)), False),
    "free map": (_gated, ((6, 40), (40,)), True),
    **{name: (function, (shape,), dynamic) for name, (function, shape, dynamic) in _SINGLE.items()},
}
"""Functions, shapes of their arguments, and whether their dims are free."""


@cache
def lowered(
    name: str,
    architecture: str = "sm_90a",
    dtype: Any = np.float32,
    overrides: tuple[tuple[str, str], ...] = (),
) -> Lowering:
    """A program at the end of its walk, for a GPU that need not be here."""
    function, shapes, dynamic = PROGRAMS[name]
    jitted = ts.jit(function, dynamic=dynamic)
    arrays = [np.zeros(shape, dtype) for shape in shapes]
    return lower(
        jitted.trace(*arrays).tape, Options.of(backend="cuda", features=(architecture,), overrides=dict(overrides))
    )


def parts_of(lowering: Lowering) -> NvptxCode:
    """The parts of a program for a GPU."""
    assert isinstance(lowering.code, NvptxCode)
    return lowering.code


def ptx_in_turns(tape: Tape, turn: int) -> list[bytes]:
    """PTX of one variant of each kernel of a program for sm_90a: those that a launch chooses between take turns."""
    lowering = lower(tape, Options.of(backend="cuda", features=("sm_90a",)))
    assert isinstance(lowering.code, NvptxCode)
    variants: dict[str, list[str]] = {}
    for code in lowering.code.codes:
        # What follows the hash of a kernel names the variant.
        variants.setdefault(re.sub(r"(_[0-9a-f]{10})_\w+$", r"\1", code.name), []).append(code.text)
    chosen = [texts[(turn + number) % len(texts)] for number, texts in enumerate(variants.values())]
    return compile_texts(chosen, NvptxBackend(GPUS["sm_90a"]).code_target)
