"""Epilogue chains: every subset of the steps is one kernel with its product and equals plain ops, or it is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import FusionError

RNG = np.random.default_rng(3)
STEPS = ("bias", "act", "dropout", "residual")


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def put_through(steps: frozenset[str], y: Any, b: Any, r: Any, key: Any) -> Any:
    """The steps as plain ops."""
    y = y + b if "bias" in steps else y
    y = ts.ops.gelu(y) if "act" in steps else y
    y = ts.random.dropout(y, key, 0.25) if "dropout" in steps else y
    return ts.ops.residual(r, y) if "residual" in steps else y


def chained(steps: frozenset[str], y: Any, b: Any, r: Any, key: Any) -> Any:
    e = ts.ops.epilogue
    made = {"bias": e.bias(b), "act": e.act("gelu"), "dropout": e.dropout(0.25, key), "residual": e.residual(r)}
    return e.chain([made[name] for name in STEPS if name in steps])(y)


@pytest.mark.parametrize("number", range(16))
def test_all_subsets_are_one_kernel_and_equal_plain_ops(number: int) -> None:
    steps = frozenset(name for place, name in enumerate(STEPS) if number >> place & 1)
    operands = normal(37, 24), normal(24, 40), normal(40), normal(37, 40), ts.random.key(5)

    @ts.jit
    def fused(x: Any, w: Any, b: Any, r: Any, key: Any) -> Any:
        return chained(steps, x @ w, b, r, key)

    @ts.jit(fusion=False)
    def plain(x: Any, w: Any, b: Any, r: Any, key: Any) -> Any:
        return put_through(steps, x @ w, b, r, key)

    np.testing.assert_array_equal(np.asarray(fused(*operands)), np.asarray(plain(*operands)))
    assert len(fused.explain(*operands).report["kernels"]) == 1


def test_relu_of_a_matmul_and_a_bias_is_one_kernel_by_itself() -> None:
    @ts.jit
    def program(x: Any, w: Any, b: Any) -> Any:
        return ts.ops.relu(x @ w + b)

    operands = normal(8, 24), normal(24, 40), normal(40)
    program(*operands)
    assert len(program.explain(*operands).report["kernels"]) == 1


def product_of(x: Any, w: Any) -> Any:
    return x @ w


def same(x: Any, w: Any) -> Any:
    return x


def powers_of(x: Any, w: Any) -> Any:
    return ts.ops.exp(x)


@pytest.mark.parametrize(
    ("source", "fusion", "reason"),
    [
        (product_of, False, "switched off"),
        (same, True, "no contraction of this program"),
        (powers_of, True, "`exp` is no contraction"),
    ],
)
def test_what_cannot_be_one_kernel_is_refused_with_the_reason(source: Any, fusion: bool, reason: str) -> None:
    @ts.jit(fusion=fusion)
    def program(x: Any, w: Any, b: Any) -> Any:
        return ts.ops.epilogue.chain([ts.ops.epilogue.bias(b)])(source(x, w))

    with pytest.raises(FusionError, match=reason):
        program(normal(8, 8), normal(8, 8), normal(8))


def test_a_kernel_that_takes_no_epilogue_says_so() -> None:
    @ts.jit
    def program(x: Any, b: Any) -> Any:
        return ts.ops.epilogue.chain([ts.ops.epilogue.bias(b)])(ts.ops.sort(x, axis=1))

    with pytest.raises(FusionError, match="`sort_rows` is a kernel of its own"):
        program(normal(8, 4), normal(4))


def test_a_chain_outside_jit_is_refused() -> None:
    with pytest.raises(FusionError, match="outside of `jit`"):
        ts.ops.epilogue.chain([ts.ops.epilogue.act("relu")])(ts.array(normal(2, 2)))
    with pytest.raises(FusionError, match="no activation `cube`"):
        ts.ops.epilogue.act("cube")
    with pytest.raises(FusionError, match="is not a step"):
        ts.ops.epilogue.chain([ts.ops.relu])  # pyright: ignore[reportArgumentType]
