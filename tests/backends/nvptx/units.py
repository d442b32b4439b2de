"""Programs with products, lowered for a GPU that need not be here, and what its assembler says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.row_copies import NAME
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tests.backends.nvptx.kernels import parts_of
from tests.backends.nvptx.matrices import causal, full, layer, nn, nt, text_of, tn, wide

HEADS = [(1, 2, 256, 64), (1, 2, 384, 64), (1, 2, 384, 64)]
PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "nt": (nt, [(512, 256), (512, 256)]),
    "nn": (nn, [(512, 256), (256, 512)]),
    "tn": (tn, [(256, 512), (256, 512)]),
    "layer": (layer, [(512, 256), (256, 512), (512,)]),
    "f32 result": (wide, [(300, 72), (72, 264)]),
    "ragged": (nt, [(77, 33), (100, 33)]),
    "full": (full, HEADS),
    "causal": (causal, HEADS),
}
LARGE = [(4096, 4096), (4096, 4096)]


@cache
def lower_kernel(name: str, architecture: str, overrides: tuple[tuple[str, Any], ...] = ()) -> Lowering:
    """A program at the end of its walk."""
    function, shapes = PROGRAMS[name]
    return of(function, shapes, architecture, overrides=dict(overrides))


def of(
    function: Callable[..., Any],
    shapes: Sequence[Sequence[int]],
    architecture: str,
    dtype: Any = ml_dtypes.bfloat16,
    overrides: dict[str, Any] | None = None,
) -> Lowering:
    """A function of arrays of these shapes at the end of its walk."""
    arrays = [np.zeros(shape, dtype) for shape in shapes]
    options = Options.of(backend="cuda", features=(architecture,), overrides=overrides or {})
    return lower(ts.jit(function).trace(*arrays).tape, options)


def kernel_of(lowering: Lowering) -> SpecOp:
    """The one kernel of a program."""
    (target,) = lowering.targets
    return target


def words_of(lowering: Lowering) -> str:
    """What the assembler says of the one kernel of a program, but for copies of rows; skips where there is none."""
    parts = parts_of(lowering)
    (code,) = [code for code in parts.codes if code.name != NAME]
    ptx = compile_text(code.text, parts.backend.code_target)
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written, and PTX made of it")
    words = assemble_with_words(ptx, parts.backend.machine.cpu)[1]
    assert not PROBLEM.search(words)
    return words


def check_kernel(text: str) -> None:
    """Raises OpError for a text that breaks a rule."""
    load_dialects()
    verify(parse_module(text))


def show_kernel(lowering: Lowering) -> str:
    """The one kernel of a program as text."""
    return text_of(kernel_of(lowering))
