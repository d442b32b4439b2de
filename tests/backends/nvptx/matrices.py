"""Matrix kernels to look at: programs lowered for an architecture that need not be here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.arrays import numpy_dtype
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import parse_module, print_module, stamp
from tessera.ir.base.types import BufferAttr
from tests.oracles.nvptx_backend import NvptxBackend

BACKEND = NvptxBackend(GPUS["sm_90a"])
BEFORE_BACKEND = ("tile-drop-bounds",)
"""The last pass before those of a backend, of which `general_kernels` needs the snapshot."""


def nt(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w))


def nn(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, w)


def tn(x: Any, w: Any) -> Any:
    return ts.ops.matmul(ts.ops.transpose(x), w)


def layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(ts.ops.matmul(x, w) + b, approximate="tanh")


def wide(x: Any, w: Any) -> Any:
    return ts.ops.cast(ts.ops.matmul(x, w), ts.f32) + 1.0


def full(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v)


def causal(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


def kernels_of(
    function: Callable[..., Any], shapes: Sequence[Sequence[int]], dtype: Any = ml_dtypes.bfloat16, **overrides: Any
) -> list[SpecOp]:
    """The tile kernels of a function of arrays of these shapes."""
    arrays = [np.zeros(shape, dtype) for shape in shapes]
    options = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides.get("overrides", {}))
    return tile_kernels_of(ts.jit(function).trace(*arrays).tape, options)


class _ReachedError(Exception):
    """A walk came to where it was to end."""


def tile_kernels_of(tape: Tape, options: Options) -> list[SpecOp]:
    """The tile kernels of a program before the passes of a backend; its walk ends there."""
    found: list[SpecOp] = []

    def take(name: str, module: ModuleOp) -> None:
        if name in BEFORE_BACKEND:
            found.extend(op for op in module.ops if isinstance(op, SpecOp) and op.name == "ttile.kernel")
            raise _ReachedError

    with suppress(_ReachedError):
        lower(tape, options, observe=take)
        raise AssertionError(f"no pass of the walk is one of {BEFORE_BACKEND}")
    for kernel in found:
        kernel.detach()
    return found


def general_kernels(lowering: Lowering) -> list[SpecOp]:
    """The tile kernels of a program before the passes of a backend, of which snapshots were kept."""
    text = next(one.text for one in lowering.stages.snapshots if one.name in BEFORE_BACKEND)
    return [op for op in parse_module(text).ops if isinstance(op, SpecOp) and op.name == "ttile.kernel"]


def matrix_of(function: Callable[..., Any], shapes: Sequence[Sequence[int]], **given: Any) -> SpecOp:
    """The one kernel of a function, for tensor cores."""
    (kernel,) = kernels_of(function, shapes, **given)
    found = BACKEND.matrix(kernel)
    assert found is not None
    return found


def text_of(kernel: SpecOp) -> str:
    """A kernel as the text of a module."""
    module = ModuleOp([kernel.clone()])
    stamp(module)
    return print_module(module)


def arrays_of(kernel: SpecOp, seed: int = 0) -> list[Any]:
    """Small integers, of which all sums are exact; what is written begins as something else."""
    rng = np.random.default_rng(seed)
    found: list[Any] = []
    for argument in kernel.regions[0].block.args:
        assert isinstance(argument.type, BufferAttr)
        shape = [dim.value or 0 for dim in argument.type.shape]
        found.append(rng.integers(-4, 5, shape).astype(numpy_dtype(argument.type.dtype)))
    return found


@cache
def dot_text() -> str:
    """A product of 256 x 512 x 192 in blocks of 128 x 256."""
    return text_of(matrix_of(nt, [(256, 192), (512, 192)], overrides={"contraction.block": (128, 256, 64)}))


@cache
def attention_text() -> str:
    """Attention of one block of queries to two of keys."""
    return text_of(matrix_of(full, [(1, 1, 128, 128), (1, 1, 256, 128), (1, 1, 256, 128)]))
