"""Operands that threads compute for tensor cores from one-byte elements: dequantized weights, in one kernel."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.types import sizes_of
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.graph.ops.contraction import contract_reference
from tessera.ir.graph.ops.quantize import dequantize_reference
from tests.backends.nvptx.matrices import BACKEND
from tests.oracles.nvptx_simulator import simulate

BF16, F16, E4M3 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(ml_dtypes.float8_e4m3fn)
ops = ts.ops


def rows_by(block: Any, dtype: Any = ts.bf16) -> Any:
    """A weight that is stored [out, in]."""
    return lambda x, w, s: x @ ops.transpose(ops.dequantize(w, s, dtype=dtype, block=block))


def columns_by(block: Any, dtype: Any = ts.bf16) -> Any:
    """A weight that is stored [in, out]."""
    return lambda x, w, s: x @ ops.dequantize(w, s, dtype=dtype, block=block)


def lowered(function: Any, *arrays: Any, **overrides: Any) -> Lowering:
    jitted: Any = ts.jit(function)
    options = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)
    return lower(jitted.trace(*arrays).tape, options)


def sides(m: int, k: int, weight: tuple[int, int], scale: tuple[int, int], **dtypes: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(m + k)
    x = rng.standard_normal((m, k)).astype(np.float32).astype(dtypes.get("x", BF16))
    w = rng.integers(-128, 128, weight).astype(np.float32) / (1 if dtypes.get("w") is None else 64)
    s = rng.uniform(0.01, 0.02, scale).astype(dtypes.get("s", np.float32))
    return x, w.astype(dtypes.get("w", np.int8)), s


def kernel_of(made: Lowering) -> SpecOp:
    (target,) = made.targets
    assert target.name == "ttarget.matrix_kernel"
    return target


def steps_of(target: SpecOp) -> list[int]:
    """The copies of the body of each loop."""
    return [op.value("copies") for op in target.walk() if isinstance(op, SpecOp) and op.name == "ttarget.steps"]


CASES: dict[str, tuple[Any, Any, tuple[int, ...], bool]] = {
    "rows": (rows_by((1, 128)), sides(5, 256, (72, 256), (72, 2)), (1, 128), True),
    "columns": (columns_by((128, 1)), sides(17, 256, (256, 80), (2, 80)), (128, 1), False),
    "channels": (columns_by(()), sides(64, 128, (128, 208), (1, 208), s=BF16), (), False),
    "odd steps": (rows_by((1, 32)), sides(3, 32, (96, 32), (96, 1)), (1, 32), True),
    "tiles": (rows_by((64, 64)), sides(9, 192, (128, 192), (2, 3)), (64, 64), True),
    "floats": (rows_by((1, 64)), sides(33, 128, (200, 128), (200, 2), w=E4M3), (1, 64), True),
    "halves": (rows_by((1, 64), ts.f16), sides(8, 128, (64, 128), (64, 2), x=F16), (1, 64), True),
}


@pytest.mark.parametrize("name", CASES)
def test_a_dequantized_weight_is_multiplied_where_it_is_computed(name: str) -> None:
    function, (x, w, s), block, is_transposed = CASES[name]
    target = kernel_of(lowered(function, x, w, s))
    dtype = ts.f16 if x.dtype == F16 else ts.bf16
    weight = dequantize_reference(w, s, dtype=dtype, block=block)
    weight = weight.T if is_transposed else weight
    out = np.zeros((x.shape[0], weight.shape[1]), x.dtype)
    shapes = [sizes_of(argument) for argument in target.regions[0].block.args]
    arrays = [one.reshape(shape) for one, shape in zip((x, w, s, out), shapes, strict=True)]
    simulate(target, arrays, {})
    wanted = contract_reference(x, weight, dtype, None).astype(np.float32)
    bound = np.abs(x.astype(np.float64)) @ np.abs(weight.astype(np.float64)) * x.shape[1] * 2.0**-24
    assert np.all(np.abs(arrays[-1].reshape(out.shape).astype(np.float32) - wanted) <= bound + np.abs(wanted) * 2.0**-7)
    # Two steps in flight have registers of their own; a single one is waited for.
    assert steps_of(target)[-1] == (1 if name == "odd steps" else 2)


def test_what_is_only_widened_is_computed_too() -> None:
    x, w = np.zeros((16, 256), BF16), np.zeros((256, 128), np.int8)
    for weight in (w, w.astype(E4M3)):
        target = kernel_of(lowered(lambda x, w: x @ w.cast(ts.bf16), x, weight))
        assert "ld.shared.u8" in BACKEND.code(target).text
    # One block has no more than 256 columns: more rows of x multiply what was widened in memory, on tensor cores too.
    many = lowered(lambda x, w: x @ w.cast(ts.bf16), np.zeros((512, 256), BF16), w)
    assert [one.name for one in many.targets] == ["ttarget.kernel", "ttarget.matrix_kernel"]


def test_an_lhs_is_computed_where_it_is() -> None:
    w, s, x = np.zeros((192, 256), np.int8), np.ones((192, 2), np.float32), np.zeros((256, 24), BF16)
    target = kernel_of(lowered(lambda w, s, x: ops.dequantize(w, s, dtype=ts.bf16, block=(1, 128)) @ x, w, s, x))
    assert "ld.shared.u16" in BACKEND.code(target).text


def test_other_choices_keep_it_apart_or_refuse() -> None:
    x, w, s = sides(5, 256, (72, 256), (72, 2))
    plain = lowered(rows_by((1, 128)), x, w, s, **{"matrix.instruction": "mma.sync"})
    assert [one.name for one in plain.targets] == ["ttarget.kernel", "ttarget.warp_kernel"]
    tall = kernel_of(lowered(rows_by((1, 128)), x, w, s, **{"contraction.computed": (128, 8, 128)}))
    assert tall.value("consumers") == 2
    # Rows that TMA does not reach, and scales within a step, are computed before.
    ragged = sides(5, 40, (72, 40), (72, 5))
    assert len(lowered(rows_by((1, 8)), *ragged).targets) == 2


def test_a_stage_is_awaited_before_it_is_read() -> None:
    x, w, s = sides(5, 256, (72, 256), (72, 2))
    target = kernel_of(lowered(rows_by((1, 128)), x, w, s))
    read = next(op for op in target.walk() if op.name == "ttarget.fragment_read")
    wait = read.prev_op
    assert wait is not None
    assert wait.name == "ttarget.await"
    wait.detach()
    with pytest.raises(OpError, match="threads read a stage that nobody waited for"):
        target.verify()
