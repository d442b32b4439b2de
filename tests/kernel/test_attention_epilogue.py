"""Steps after an attention in the kernel that computes it, written there or as a chain: all subsets are one kernel."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.diagnostics.codes import FusionError
from tessera.ir.tile.write_records import write_kernel
from tests.kernel.compare import attention
from tests.oracles.nvptx_backend import NvptxBackend

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
    given = {"key": ts.random.key(1)} if "dropout" in steps else {}
    made = BACKEND.matrix(write_kernel(attention_then.program(*operands, kind="gpu", steps=steps, **given)))
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


def chained(steps: tuple[str, ...], y: Any, b: Any, r: Any, key: Any) -> Any:
    """The steps as a chain."""
    e = ts.ops.epilogue
    made = {"bias": e.bias(b), "act": e.act("relu"), "dropout": e.dropout(0.25, key), "residual": e.residual(r)}
    return e.chain([made[name] for name in steps])(y)


def put_through(steps: tuple[str, ...], y: Any, b: Any, r: Any, key: Any) -> Any:
    """The steps as plain ops."""
    y = y + b if "bias" in steps else y
    y = ts.ops.relu(y) if "act" in steps else y
    y = ts.random.dropout(y, key, 0.25) if "dropout" in steps else y
    return ts.ops.residual(r, y) if "residual" in steps else y


def both(number: int, attend: Any, **options: Any) -> tuple[Any, Any]:
    """A program with a chain after an attention, and the same with plain ops, none of them fused."""
    steps = subset(number)

    def fused(q: Any, k: Any, v: Any, b: Any, r: Any, key: Any) -> Any:
        return chained(steps, attend(q, k, v), b, r, key)

    def plain(q: Any, k: Any, v: Any, b: Any, r: Any, key: Any) -> Any:
        return put_through(steps, attend(q, k, v), b, r, key)

    return ts.jit(fused, **options), ts.jit(plain, fusion=False, **options)


def operands(queries: int, keys: int, head: int, dtype: Any) -> list[Any]:
    rng = np.random.default_rng(9)
    shapes = [(2, 4, queries, head), (2, 2, keys, head), (2, 2, keys, head), (head,), (2, 4, queries, head)]
    return [*(rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes), ts.random.key(5)]


def full(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v)


def split(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, split_keys=True)


def causal(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True)


@pytest.mark.parametrize("number", range(16))
def test_a_chain_after_an_attention_is_one_kernel_and_equals_plain_ops(number: int) -> None:
    fused, plain = both(number, causal if number % 2 else full)
    given = operands(20, 37, 16, np.float32)
    np.testing.assert_array_equal(np.asarray(fused(*given)), np.asarray(plain(*given)))
    assert len(fused.explain(*given).report["kernels"]) == 1


@pytest.mark.parametrize("number", range(16))
def test_a_chain_after_an_attention_stays_on_matrix_units(number: int) -> None:
    fused, _ = both(number, full, backend="cuda")
    text = fused.lower(*operands(256, 256, 64, ml_dtypes.bfloat16)).target
    assert text.count("ttarget.matrix_kernel @") == 1
    assert "ttarget.kernel @" not in text
    assert text.count("ttarget.mma_issue") >= 2


def test_results_before_and_after_a_chain_may_both_be_wanted() -> None:
    @ts.jit
    def program(q: Any, k: Any, v: Any, b: Any) -> Any:
        out, lse = ts.ops.attention(q, k, v, return_lse=True)
        return out, chained(("bias", "act"), out, b, None, None), lse

    q, k, v, b, *_ = operands(20, 37, 16, np.float32)
    out, after, lse = (np.asarray(one) for one in program(q, k, v, b))
    np.testing.assert_array_equal(after, np.maximum(out + b, 0))
    assert lse.shape == (2, 4, 20)
    assert len(program.explain(q, k, v, b).report["kernels"]) == 1


@pytest.mark.parametrize("number", [0, 7, 15])
def test_a_chain_after_a_query_to_many_keys_is_in_the_kernel_that_joins_them(number: int) -> None:
    fused, plain = both(number, split)
    given = operands(1, 4200, 64, ml_dtypes.bfloat16)
    first, second = np.asarray(fused(*given)), np.asarray(plain(*given))
    assert first.tobytes() == second.tobytes()
    assert len(fused.explain(*given).report["kernels"]) == 2


def test_a_step_that_needs_the_whole_attention_is_refused() -> None:
    @ts.jit
    def transposed(q: Any, k: Any, v: Any) -> Any:
        y = full(q, k, v)
        return ts.ops.epilogue.chain([ts.ops.epilogue.residual(y[:, :, ::-1])])(y)

    @ts.jit(fusion=False)
    def apart(q: Any, k: Any, v: Any, b: Any) -> Any:
        return ts.ops.epilogue.chain([ts.ops.epilogue.bias(b)])(full(q, k, v))

    q, k, v, b, *_ = operands(20, 37, 16, np.float32)
    with pytest.raises(FusionError, match="reads other elements than its own"):
        transposed(q, k, v)
    with pytest.raises(FusionError, match="switched off"):
        apart(q, k, v, b)
