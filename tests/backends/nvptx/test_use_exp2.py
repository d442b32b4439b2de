"""Powers of two with the factor inside: the same maxima to the last bit, powers as near as the shift is large."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tessera.backends.nvptx.passes.use_exp2 import use_exp2
from tessera.ir.base.arrays import Array
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, f32
from tessera.types.shape import TensorType
from tests.tile.kernels import COLUMN, ROW, verify_kernel

ROWS, COLUMNS = 4, 8


def online(factor: float, seen: int) -> SpecOp:
    """Maxima of scaled scores of which `seen` columns count, powers less them, their sums, and an older power."""
    wide, rows = TensorType.of([ROWS, COLUMNS], f32), TensorType.of([ROWS], f32)
    types = [wide, rows, rows, wide.with_dtype(bf16), rows, rows]
    b = TileBuilder("online", types, symbols=[], grid=[1], writes=[2, 3, 4, 5], kind="map")
    whole = TileRegion({"i": b.index(0), "j": b.index(0)}, ("i", "j"), (ROWS, COLUMNS))
    along = TileRegion({"i": b.index(0)}, ("i",), (ROWS,))
    x, old = b.load(b.arguments[0], [ROW, COLUMN], whole), b.load(b.arguments[1], [ROW], along)
    scores = b.elementwise("mul", x, b.full(factor, (ROWS, COLUMNS), f32))
    scores = b.clip(scores, "j", float("-inf"), whole.along(whole.axes, whole.sizes, {"j": Dim.constant(seen)}))
    top = b.elementwise("max", old, b.reduce(scores, "max", 1))
    powers = b.elementwise("exp", b.elementwise("sub", scores, b.broadcast(top, (ROWS, COLUMNS), (0,))))
    kept = b.elementwise("exp", b.elementwise("sub", old, top))
    b.store(top, b.arguments[2], [ROW], along)
    b.store(b.cast(powers, bf16), b.arguments[3], [ROW, COLUMN], whole)
    b.store(b.reduce(powers, "sum", 1), b.arguments[4], [ROW], along)
    b.store(kept, b.arguments[5], [ROW], along)
    return verify_kernel(b.finish())


def results(kernel: SpecOp, x: Array, old: Array) -> list[Array]:
    rows = [np.zeros((ROWS,), np.float32) for _ in range(3)]
    outs = [rows[0], np.zeros((ROWS, COLUMNS), ml_dtypes.bfloat16), *rows[1:]]
    run_kernel(kernel, [x, old, *outs], {})
    return outs


@given(st.floats(0.01, 4.0), st.integers(1, COLUMNS), st.integers(0, 1 << 30), st.sampled_from([0.1, 3.0, 40.0]))
def test_the_meaning_is_kept(factor: float, seen: int, seed: int, spread: float) -> None:
    rng = np.random.default_rng(seed)
    x, old = ((rng.standard_normal(shape) * spread).astype(np.float32) for shape in ((ROWS, COLUMNS), (ROWS,)))
    before, after = online(factor, seen), online(factor, seen)
    use_exp2(after)
    verify(after)
    functions = {op.value("fn") for op in after.walk() if isinstance(op, SpecOp) and op.name == "ttile.elementwise"}
    assert "exp" not in functions
    assert {"exp2", "fma"} <= functions
    tops, *wanted = results(before, x, old)
    new, *found = results(after, x, old)
    assert new.tobytes() == tops.tobytes()
    # The rounding of the shift in base 2, and that of the factor, in parts of the power; then a rounding to bf16.
    reach = np.max(np.abs(tops)) + np.max(np.abs(x)) * factor
    bound = float(8 * 2.0**-24 * (1 + reach))
    for left, right, narrow in zip(found, wanted, (2.0**-8, 0.0, 0.0), strict=True):
        np.testing.assert_allclose(left.astype(np.float64), right.astype(np.float64), rtol=bound + narrow, atol=1e-37)
