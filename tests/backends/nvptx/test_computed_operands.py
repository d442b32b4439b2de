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
        # The two rows of a thread are neighbours in memory, and one load.
        assert target.value("row_pairs")
        text = BACKEND.code(target).text
        assert "ld.shared.u16" in text
        assert "ld.shared.u8" not in text
    # One block has no more than 256 columns: more rows of x multiply what was widened in memory, on tensor cores too.
    many = lowered(lambda x, w: x @ w.cast(ts.bf16), np.zeros((512, 256), BF16), w)
    assert [one.name for one in many.targets] == ["ttarget.kernel", "ttarget.matrix_kernel"]


def low(y: Any) -> Any:
    return (y & 15) - 8


def high(y: Any) -> Any:
    return y >> 4


def halves_of(axis: int, block: tuple[int, ...] = ()) -> Any:
    """Two weights of 4 bits in each byte: the first half of K in the low bits, the other in the high ones."""

    def product(x: Any, y: Any, s: Any) -> Any:
        weight = ops.dequantize(ops.concat([low(y), high(y)], axis), s, dtype=ts.bf16, block=block)
        return x @ (weight if axis == 0 else ops.transpose(weight))

    return product


HALVES: dict[str, tuple[Any, Any, tuple[int, ...], int]] = {
    "columns": (halves_of(0), sides(17, 512, (256, 80), (1, 80)), (), 0),
    "rows": (halves_of(1), sides(5, 512, (72, 256), (72, 1)), (), 1),
    "blocks": (halves_of(0, (128, 1)), sides(9, 512, (256, 64), (4, 64)), (128, 1), 0),
    "odd steps": (halves_of(0), sides(9, 192, (96, 64), (1, 64)), (), 0),
}


@pytest.mark.parametrize("name", HALVES)
def test_weights_of_4_bits_are_unpacked_where_they_are_computed(name: str) -> None:
    function, (x, y, s), block, axis = HALVES[name]
    target = kernel_of(lowered(function, x, y, s))
    weight = dequantize_reference(np.concatenate([low(y), high(y)], axis), s, dtype=ts.bf16, block=block)
    weight = weight if axis == 0 else weight.T
    out = np.zeros((x.shape[0], weight.shape[1]), x.dtype)
    shapes = [sizes_of(argument) for argument in target.regions[0].block.args]
    arrays = [one.reshape(shape) for one, shape in zip((x, y, s, out), shapes, strict=True)]
    simulate(target, arrays, {})
    wanted = contract_reference(x, weight, ts.bf16, None).astype(np.float32)
    bound = np.abs(x.astype(np.float64)) @ np.abs(weight.astype(np.float64)) * x.shape[1] * 2.0**-24
    assert np.all(np.abs(arrays[-1].reshape(out.shape).astype(np.float32) - wanted) <= bound + np.abs(wanted) * 2.0**-7)
    # One loop after the other, in the order of K: each half has its own.
    assert len([step for step in steps_of(target) if step]) == 4  # of the producer, then of consumers


def test_boxes_that_follow_each_other_otherwise_are_put_together_before() -> None:
    x, y, s = sides(5, 256, (256, 64), (1, 128))

    def beside(x: Any, y: Any, s: Any) -> Any:
        return x @ ops.dequantize(ops.concat([low(y), high(y)], 1), s, dtype=ts.bf16)

    made = lowered(beside, x, y, s)
    assert [one.name for one in made.targets][-1] == "ttarget.matrix_kernel"
    assert len(made.targets) > 1
    # So are those that others read too, and all where fusion is switched off.
    x, y, s = sides(5, 512, (256, 64), (1, 64))

    def twice(x: Any, y: Any, s: Any) -> Any:
        whole = ops.concat([low(y), high(y)], 0)
        return x @ ops.dequantize(whole, s, dtype=ts.bf16), whole

    assert len(lowered(twice, x, y, s).targets) > 1
    assert len(lowered(halves_of(0), x, y, s, **{"fusion.assembly": False}).targets) > 1
    # Each half has stages of its own, which leave less room for rows of the other operand.
    assert len(lowered(halves_of(0), np.zeros((200, 512), BF16), y, s).targets) > 1


def test_what_is_concatenated_need_not_be_unpacked() -> None:
    """Two weights that lie apart in memory are one operand, too."""
    x, y, s = sides(5, 512, (256, 64), (1, 64))

    def joined(x: Any, y: Any, z: Any, s: Any) -> Any:
        return x @ ops.dequantize(ops.concat([y, z], 0), s, dtype=ts.bf16)

    kernel_of(lowered(joined, x, y, y + 1, s))


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
