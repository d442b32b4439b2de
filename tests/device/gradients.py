"""Gradients for a GPU with their arguments: nets, loops, indices and batches, and random programs."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tessera.ir.base.arrays import Array
from tessera.types import dtype as dt
from tests.fuzz.bindings import loss_of, tessera_names
from tests.fuzz.differentiable import differentiable_program

ops = ts.ops
SEEDS = (300, 301, 302, 303, 304, 305)


@dataclass(frozen=True)
class Gradient:
    """A function of floats, and of what else it takes, that gives derivatives; `shapes` are those of its floats."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    others: tuple[Array, ...] = ()

    def arrays(self) -> list[Array]:
        """What it is called with, in f32."""
        rng = np.random.default_rng(41)
        return [*(rng.standard_normal(shape).astype(np.float32) for shape in self.shapes), *self.others]


def flat_results(found: Any) -> list[Array]:
    """All arrays of a result."""
    if isinstance(found, tuple | list):
        return [array for one in found for array in flat_results(one)]
    return [np.asarray(found)]


def moved_arrays(arrays: Sequence[Array], run: int | None) -> list[Array]:
    """Floats in f64, with a number of a run each off by what a rounding to f32 is."""
    rng = np.random.default_rng(run)
    made: list[Array] = []
    for array in arrays:
        wide = array.astype(np.float64) if array.dtype.kind == "f" else array
        noise = rng.uniform(-(2.0**-22), 2.0**-22, array.shape)
        made.append(wide * (1 + noise) if run is not None and array.dtype.kind == "f" else wide)
    return made


def _sum_squares(function: Callable[..., Any], about: tuple[int, ...]) -> Callable[..., Any]:
    return ts.value_and_grad(lambda *tensors: (function(*tensors) ** 2.0).mean(), about)


def _block(x: Any, w: Any, u: Any, g: Any) -> Any:
    rows = ops.rmsnorm(x, g)
    return x + ops.layernorm(ops.gelu(rows @ w) @ u)


def _steps(x: Any, w: Any) -> Any:
    return ts.scan(lambda h, r: (ops.tanh(h @ w * 0.2 + r), h * r), ops.zeros_like(x[0]), x)[1]


def _branches(x: Any, w: Any) -> Any:
    def step(state: Any, row: Any) -> Any:
        return ts.cond(row.sum() > 0.0, lambda: ops.sin(state + row), lambda: state * 0.5), state.sum()

    return ts.scan(step, w[0], x)[1]


def _long_steps(x: Any, w: Any) -> Any:
    """A body whose pointwise ops, mask and gathered row are rematerialized on the way back."""

    def step(n: Any, state: Any) -> Any:
        inner = ops.tanh(ops.exp(state * 0.1) * x[n])
        return ts.random.dropout(ops.gelu(inner @ w) * ops.sin(x[n]), ts.random.key(3), 0.2) + inner

    return ts.fori_loop(0, 21, step, x[0])


def _written(x: Any, v: Any, rows: Any) -> Any:
    return x.at[rows].add(v) * ops.sort(x, axis=0) + ops.take(x, rows)[:1]


def _attend(q: Any, k: Any, v: Any) -> Any:
    return ops.attention(q, k, v, causal=True)


ROWS = np.array([3, 0, 3, -1, 64, 2, 2])
LABELS = np.arange(33) % 19 - 1

GRADIENTS: dict[str, Gradient] = {
    "block": Gradient(_sum_squares(_block, (0, 1, 2, 3)), ((33, 64), (64, 96), (96, 64), (64,))),
    "wide block": Gradient(_sum_squares(_block, (0, 1, 2, 3)), ((256, 128), (128, 512), (512, 128), (128,))),
    "attention": Gradient(_sum_squares(_attend, (0, 1, 2)), ((2, 4, 50, 64), (2, 4, 50, 64), (2, 4, 50, 64))),
    "convolution": Gradient(
        _sum_squares(lambda x, w: ops.max_pool(ops.conv2d(x, w, padding=1), 2), (0, 1)), ((2, 3, 16, 14), (8, 3, 3, 3))
    ),
    "cross entropy": Gradient(
        ts.value_and_grad(lambda x, w, y: ops.cross_entropy(x @ w, y), (0, 1)), ((33, 40), (40, 19)), (LABELS,)
    ),
    "steps": Gradient(_sum_squares(_steps, (0, 1)), ((21, 32), (32, 32))),
    "long steps": Gradient(_sum_squares(_long_steps, (0, 1)), ((21, 32), (32, 32))),
    "branches": Gradient(_sum_squares(_branches, (0, 1)), ((21, 32), (3, 32))),
    "writes": Gradient(_sum_squares(_written, (0, 1)), ((65, 48), (7, 48)), (ROWS,)),
    "batch of gradients": Gradient(
        ts.vmap(_sum_squares(_block, (1, 3)), in_axes=(0, None, None, None)), ((5, 9, 32), (32, 48), (48, 32), (32,))
    ),
    "tangent of a gradient": Gradient(
        lambda x, w: ts.jvp(ts.grad(lambda v: ops.tanh(v @ w).sum()), (x,), (x * 0.5,))[1], ((17, 32), (32, 24))
    ),
    "second derivatives": Gradient(ts.hessian(lambda x: ops.logsumexp(x * x)), ((23,),)),
}


def random_gradient(seed: int) -> tuple[Callable[..., Any], list[list[Array]]]:
    """The gradient of a random program in f32, with symbolic dims, and its inputs at two sets of sizes."""
    program = differentiable_program(seed, dt.f32)
    given = [program.arrays(sizes) for sizes in program.sizes]
    about = tuple(at for at, array in enumerate(given[0]) if array.dtype.kind == "f")
    return ts.value_and_grad(ts.jit(loss_of(program, tessera_names())), about), given
