"""Every function of the kernel language lowers to plain Tile IR, printed, read again, and run from its text."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from tessera import tile
from tessera.frontend.kernel import scalar
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.tile.collective_parts import COLLECTIVES
from tessera.ir.tile.interpret import run_kernel
from tests.kernel.compare import arrays
from tests.kernel.test_parts import sizes_of

X = np.abs(np.random.default_rng(8).normal(size=(9, 32))).astype(np.float32) + np.float32(0.5)
LOAD = "v = tile.load(x, T.m, T.d)"

BODIES: dict[str, tuple[str, ...]] = {
    "load": ("return tile.load(x, T.m, T.n, pad=3.0)",),
    "store": ("tile.store(out, tile.load(x, T.m, T.n), T.m, T.n)",),
    "atomic_add": ("tile.atomic_add(out, tile.load(x, T.m, T.n), T.m, T.n)",),
    "atomic_max": ("tile.atomic_max(out, tile.load(x, T.m, T.n), T.m, T.n)",),
    "atomic_min": ("tile.atomic_min(out, -tile.load(x, T.m, T.n), T.m, T.n)",),
    "zeros": (LOAD, "return v + tile.zeros((T.m, T.d))"),
    "full": (LOAD, "return v + tile.full((T.m, T.d), 2.5)"),
    "cast": (LOAD, "return tile.cast(tile.cast(v * 9.0, i32), f32)"),
    "bitcast": (LOAD, "return tile.cast(tile.bitcast(v, i32), f32)"),
    "broadcast": (LOAD, "return v * tile.broadcast(tile.load(x, T.m, 3)[:, None], (T.m, T.d))"),
    "transpose": ("tile.store(transposed, tile.transpose(tile.load(x, T.m, T.n) * 2.0), T.n, T.m)",),
    "per_block": (LOAD, "return v * tile.per_block(T.m)"),
    "row_index": (LOAD, "return v + tile.cast(tile.row_index(), f32)[:, None]"),
    "col_index": (LOAD, "return v + tile.cast(tile.col_index(T.d), f32)[None, :]"),
    "fma": (LOAD, "return tile.fma(v, v, 1.0)"),
    "where": (LOAD, "return tile.where(v > 1.0, v, -v)"),
    "maximum": (LOAD, "return tile.maximum(v, 1.0)"),
    "minimum": (LOAD, "return tile.minimum(v, 1.0)"),
    "isnan": (LOAD, "return tile.where(tile.isnan(v), 0.0, v)"),
    "isinf": (LOAD, "return tile.where(tile.isinf(v), 0.0, v)"),
    "context": ("return tile.load(x, tile.context().m, tile.context().n)",),
    "program": ("m, n = tile.program()", "return tile.load(x, m, n)"),
    "range_k": (
        "acc = tile.zeros((T.m,))",
        "for k in tile.range_k(x.shape, T.k):",
        "    acc += tile.sum(tile.load(x, T.m, k), 1)",
        "return acc",
    ),
    "range_n": (
        "acc = tile.zeros((T.n,))",
        "for i in tile.range_n(x.shape, T.m):",
        "    acc += tile.sum(tile.load(x, i, T.n), 0)",
        "tile.store(columns, acc, T.n)",
    ),
    "range_m": (
        "acc = tile.zeros((T.n,))",
        "for i in tile.range_m(x.shape, T.m):",
        "    acc += tile.sum(tile.load(x, i, T.n), 0)",
        "tile.store(columns, acc, T.n)",
    ),
    "steps": (
        "acc = tile.zeros((T.m,))",
        "for k in tile.steps(x.shape[1], by=T.k):",
        "    acc += tile.sum(tile.load(x, T.m, k), 1)",
        "return acc",
    ),
    "pipeline": (
        "acc = tile.zeros((T.m,))",
        "with tile.pipeline(slot_count=2) as slot:",
        "    for k in tile.range_k(x.shape, T.k):",
        "        slot.load(x, rows=T.m, cols=k)",
        "        acc += tile.sum(slot.read(), 1)",
        "        slot = slot.next()",
        "return acc",
    ),
    "reduce": (LOAD, 'return tile.reduce(v, 1, "prod")'),
    "sum": (LOAD, "return tile.sum(v, 1)"),
    "max": (LOAD, "return tile.max(v, 1)"),
    "min": (LOAD, "return tile.min(v, 1)"),
    "tile_reduce_rowmax": (LOAD, "return tile.tile_reduce_rowmax(v)"),
    "tile_reduce_rowsum": (LOAD, "return tile.tile_reduce_rowsum(v)"),
    "tile_softmax_rmax": (LOAD, "return tile.tile_softmax_rmax(v, 0.125)"),
    "softmax": (LOAD, "return tile.softmax(v)"),
    "scan": (LOAD, 'return tile.scan(v, "max")'),
    "tile_scan": (LOAD, 'return tile.tile_scan(v, "sum", exclusive=True)'),
    "shuffle": (LOAD, 'return tile.shuffle(v, "down", 3, width=8)'),
    "butterfly": (LOAD, "return tile.butterfly(v, 4, width=16)"),
    "vote": (LOAD, 'return tile.cast(tile.vote(v > 1.0, "count", width=8), f32)'),
    "dot": (LOAD, "return tile.sum(tile.dot(v, tile.load(x, slice(None), T.d).T), 1)"),
    "mma": (LOAD, "return tile.sum(tile.mma(v, tile.load(x, slice(None), T.d).T), 1)"),
    "mask_causal": (
        LOAD,
        "S = tile.mask_causal(v, tile.row_index(0), tile.col_index(T.d))",
        "return tile.where(S == -tile.INF, 0.0, S)",
    ),
    "softmax_online": (LOAD, "P, m, l = tile.softmax_online(v)", "return P / l[:, None] + m[:, None]"),
    "softmax_accumulate": (
        LOAD,
        "acc, m, l = tile.zeros((T.m, T.d)), tile.full((T.m,), -tile.INF), tile.zeros((T.m,))",
        "for n in tile.range_n(x.shape, T.n):",
        "    w = tile.load(x, n, T.d)",
        "    P, mc, lc = tile.softmax_online(tile.dot(v, w.T))",
        "    acc, m, l = tile.softmax_accumulate(acc, m, l, P, w, mc, lc)",
        "return acc / l[:, None]",
    ),
    "dropout_in_kernel": (LOAD, "return tile.dropout_in_kernel(v, 0.5)"),
}
"""A kernel for each function; the scalar functions have one of their own each, made below."""
BODIES.update({name: (LOAD, f"return tile.{name}(v)") for name in scalar.__all__ if name not in BODIES})
NO_FUNCTIONS = {"INF", "KTile", "Tile"}


def make(name: str) -> Any:
    """The kernel of a function, as if it were typed."""
    body = BODIES[name]
    results = {"out": '"M", "N"', "transposed": '"N", "M"', "columns": '"N"'}
    written = [
        f", {one}: KTile[{dims}, f32]" for one, dims in results.items() if any(f"({one}," in line for line in body)
    ]
    lines = ["@kernel(Schedule(block=(8, 16, 8)))", f"def one(x: KTile['M', 'N', f32]{''.join(written)}):"]
    lines += [f"    {line}" for line in ("T = tile.context()", *body)]
    text = "\n".join(["from tessera import KTile, Schedule, f32, i32, kernel, tile", *lines, ""])
    file = f"<helper {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space: dict[str, Any] = {}
    exec(compile(text, file, "exec"), space)
    return space["one"]


def test_every_function_of_the_language_is_here() -> None:
    assert set(BODIES) | set(COLLECTIVES) | NO_FUNCTIONS == set(tile.__all__)


@pytest.mark.parametrize("name", BODIES)
def test_a_helper_is_plain_tile_ir_that_runs_from_its_text(name: str) -> None:
    made = make(name)
    statics: dict[str, Any] = {}
    operands = [X]
    if name == "dropout_in_kernel":
        import tessera as ts

        statics, operands = {"key": ts.random.key(3)}, [X, np.asarray(ts.random.key(3))]
    module = parse_module(made.lower(X, **statics).tile)
    expected = arrays(made.run_tiles(X, **statics))
    *before, written = [op for op in module.ops if isinstance(op, SpecOp) and op.name == "ttile.kernel"]
    # Where results start as zeros, a kernel before it makes them so.
    results = [np.full(one.shape, 0 if before else np.nan, np.float32) for one in expected]
    run_kernel(written, [*operands, *results], sizes_of(written, [*operands, *results]))
    for found, wanted in zip(results, expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    for found, wanted in zip(arrays(made(X, **statics)), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-6)
