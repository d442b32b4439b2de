"""Small programs that between them lower to the ops of every IR, for the CPU and for a GPU that need not be here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import tessera as ts
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.tape import Tape
from tessera.ir.graph.ops import REGISTRY
from tests.graph.eager import RuleError
from tests.tile.test_clean_suite import tape_of

BF16 = ml_dtypes.bfloat16
OPTIONS = {
    "cpu": Options(),
    "cuda": Options.of(backend="cuda", features=("sm_90a",)),
    "sm_80": Options.of(backend="cuda", features=("sm_80",)),
    "sm_100a": Options.of(backend="cuda", features=("sm_100a",)),
}
BOTH = ("cpu", "cuda")


@dataclass(frozen=True)
class Program:
    """A function, the shapes and the dtype of its arguments."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    dtype: Any = np.float32
    backends: tuple[str, ...] = BOTH


def _branches(x: Any) -> Any:
    return ts.cond(x.max() > 10.0, lambda: x / 2.0, lambda: x)


def _doubled(x: Any) -> Any:
    return ts.while_loop(lambda y: y.max() < 10.0, lambda y: y * 2.0, x)


def _added(x: Any) -> Any:
    return ts.fori_loop(0, 4, lambda i, total: total + x, x)


def _running(x: Any) -> Any:
    return ts.scan(lambda total, row: (total + row, total), x[0], x)[1]


def _summed(x: Any) -> Any:
    with ts.dist.mesh(dp=2):
        return ts.dist.all_reduce(x, "dp")


def _printed(x: Any) -> Any:
    ts.debug_print("x is {}", x)
    return x + 1.0


def _asked(x: Any) -> Any:
    return ts.io_callback(np.negative, x, result=x)


def _looked_at(x: Any) -> Any:
    return ts.ops.take(x, ts.ops.arange(4))


def _drawn(x: Any) -> Any:
    return ts.random.dropout(x, ts.random.key(), 0.5)


def _product(x: Any, w: Any) -> Any:
    return ts.ops.relu(x @ w.T)


def _layer(x: Any, w: Any, b: Any) -> Any:
    return ts.ops.gelu(x @ w + b, approximate="tanh")


def _finished(x: Any, w: Any, b: Any) -> Any:
    epilogue = ts.ops.epilogue
    return epilogue.chain([epilogue.bias(b)])(x @ w)


@ts.kernel
def _positive(x: ts.KTile["M", "N", ts.f32]) -> Any:
    T = ts.tile.context()
    block = ts.tile.load(x, rows=T.m, cols=T.n)
    return ts.tile.where(block > 0.0, block, 0.0)


def _by_kernel(x: Any) -> Any:
    return _positive(x)


@ts.kernel
def _looking(x: ts.KTile["M", "N", ts.f32]) -> Any:
    T = ts.tile.context()
    block = ts.tile.load(x, rows=T.m, cols=T.d)
    across = ts.tile.butterfly(ts.tile.shuffle(block, "down", 1), 16)
    return ts.tile.where(ts.tile.vote(across > block, "any"), across, block)


def _neighbours(x: Any) -> Any:
    return _looking(x)


def _widened(x: Any, w: Any) -> Any:
    return ts.ops.exp(x.cast(ts.f32)).cast(ts.bf16) @ w.cast(ts.bf16).T


def _grouped(x: Any, w: Any) -> Any:
    return ts.ops.ragged_dot(x, w, ts.ops.arange(3) * 100)


def _causal(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


PROGRAMS: dict[str, Program] = {
    "branches": Program(_branches, ((8,),)),
    "doubled": Program(_doubled, ((8,),)),
    "added": Program(_added, ((8,),)),
    "running": Program(_running, ((4, 8),)),
    "summed": Program(_summed, ((8,),), backends=("cpu",)),
    "printed": Program(_printed, ((8,),), backends=("cpu",)),
    "asked": Program(_asked, ((8,),), backends=("cpu",)),
    "looked_at": Program(_looked_at, ((8,),), backends=("cpu",)),
    "drawn": Program(_drawn, ((8,),), backends=("cpu",)),
    "finished": Program(_finished, ((4, 8), (8, 16), (16,))),
    "by_kernel": Program(_by_kernel, ((4, 8),)),
    "neighbours": Program(_neighbours, ((4, 64),)),
    "product": Program(_product, ((256, 192), (512, 192)), BF16, (*BOTH, "sm_80", "sm_100a")),
    "large_product": Program(_product, ((8192, 4096), (8192, 4096)), BF16, ("cuda",)),
    "eighths": Program(_product, ((8192, 4096), (8192, 4096)), ml_dtypes.float8_e4m3fn, ("cuda",)),
    "widened": Program(_widened, ((8, 256), (64, 256)), np.int8, ("cuda",)),
    "grouped": Program(_grouped, ((300, 64), (3, 64, 128)), BF16, ("cuda",)),
    "layer": Program(_layer, ((256, 192), (192, 512), (512,)), BF16),
    "causal": Program(_causal, ((1, 1, 256, 128), (1, 1, 256, 128), (1, 1, 256, 128)), BF16),
}


def tape(example: str) -> Tape:
    """What an example does: a program by name, or `sample OP`, the first sample of an op."""
    kind, _, op = example.partition(" ")
    if kind != "sample":
        program = PROGRAMS[kind]
        return ts.jit(program.function).trace(*(np.zeros(shape, program.dtype) for shape in program.shapes)).tape
    spec = REGISTRY[op]
    try:
        return tape_of(spec, spec.samples[0], is_free=True)
    except RuleError:
        return tape_of(spec, spec.samples[0], is_free=False)  # a dim that must be a number


@cache
def lowered(example: str, backend: str) -> Lowering:
    """An example at the end of its walk."""
    return lower(tape(example), OPTIONS[backend])


@cache
def ops_of(example: str, backend: str) -> frozenset[str]:
    """The names of all ops that an example is, from its tape to Target IR."""
    found = lowered(example, backend)
    made = (op.name for root in (found.program, *found.kernels, *found.targets) for op in root.walk())
    return frozenset({*_recorded(tape(example)), *made})


def _recorded(one: Tape) -> set[str]:
    found = {"tgraph.func", "tgraph.return", *(record.op for record in one.records)}
    for value in (value for record in one.records for value in record.attributes.values()):
        if isinstance(value, Tape):
            found |= {"tgraph.yield", *_recorded(value)}
    return found
