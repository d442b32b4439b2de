"""Steps after an attention in the kernel that computes it: all sixteen subsets are one kernel."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.backends.nvptx.backend import NvptxBackend
from tessera.ir.tile.write_records import write_kernel
from tests.kernel.compare import attention

BACKEND = NvptxBackend()
STEPS = ("bias", "act", "dropout", "residual")


@kernel
def attention_then(
    q: KTile["B*H", "S", "D"],
    k: KTile["B*H", "L", "D"],
    v: KTile["B*H", "L", "D"],
    b: KTile["D", f32],
    r: KTile["B*H", "S", "D"],
    *,
    steps: tuple[str, ...],
) -> Any:
    """Attention, and what follows it, on the block that a program has."""
    T = tile.context()
    Q = tile.load(q, rows=T.m, cols=T.d)
    acc = tile.zeros((T.m, T.d), f32)
    m, total = tile.full((T.m,), -tile.INF), tile.zeros((T.m,), f32)
    for n in tile.range_n(k.shape, T.n):
        S = tile.dot(Q, tile.transpose(tile.load(k, n, cols=T.d))) * tile.rsqrt(float(T.d))
        P, m_c, l_c = tile.softmax_online(S)
        acc, m, total = tile.softmax_accumulate(acc, m, total, P, tile.load(v, n, cols=T.d), m_c, l_c)
    y = acc / total[:, None]
    if "bias" in steps:
        y = y + tile.load(b, T.d)
    if "act" in steps:
        y = tile.relu(y)
    if "dropout" in steps:
        y = tile.dropout_in_kernel(y, 0.25)
    if "residual" in steps:
        y = y + tile.load(r, rows=T.m, cols=T.d)
    return tile.cast(y, q.dtype)


def subset(number: int) -> tuple[str, ...]:
    return tuple(name for place, name in enumerate(STEPS) if number >> place & 1)


@pytest.mark.parametrize("number", range(16))
def test_every_subset_of_steps_is_one_kernel_for_a_gpu(number: int) -> None:
    steps, narrow = subset(number), np.zeros((4, 128, 64), ml_dtypes.bfloat16)
    operands: list[Any] = [narrow, narrow, narrow, np.zeros(64, np.float32), narrow]
    if "dropout" in steps:
        # The key is one number in memory, which the walk for matrix units does not read yet.
        written = write_kernel(attention_then.program(*operands, kind="gpu", steps=steps, key=ts.random.key(1)))
        assert BACKEND.lower(written).name == "ttarget.kernel"
        return
    made = BACKEND.matrix(write_kernel(attention_then.program(*operands, kind="gpu", steps=steps)))
    assert made is not None
    assert any(op.name == "ttarget.mma_issue" for op in made.walk())


@pytest.mark.parametrize("number", [0, 3, 9, 15])
def test_what_follows_equals_plain_ops(number: int) -> None:
    rng = np.random.default_rng(5)
    q, k, v, r = (rng.normal(size=(2, rows, 16)).astype(np.float32) for rows in (20, 37, 37, 20))
    b, steps, key = rng.normal(size=16).astype(np.float32), subset(number), ts.random.key(7)

    @ts.jit
    def program(q: Any, k: Any, v: Any, b: Any, r: Any, key: Any) -> Any:
        return attention_then(q, k, v, b, r, steps=steps, key=key)

    found = np.asarray(program(q, k, v, b, r, key)).astype(np.float64)
    assert len(program.explain(q, k, v, b, r, key).report["kernels"]) == 1
    wanted = attention(q, k, v)
    wanted = wanted + b if "bias" in steps else wanted
    wanted = np.maximum(wanted, 0.0) if "act" in steps else wanted
    rest = r if "residual" in steps else 0.0
    if "dropout" in steps:
        kept = np.abs(found - rest) > 1e-6
        assert 0.5 < kept[np.abs(wanted) > 1e-4].mean() < 0.95
        wanted = np.where(kept, wanted / 0.75, 0.0)
    np.testing.assert_allclose(found, wanted + rest, atol=4e-6)
