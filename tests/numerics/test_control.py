"""Control flow compiled: branches and loops equal the interpreter on twenty shapes, served by one compilation."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.ir.base.arrays import numpy_dtype
from tessera.types.dtype import BY_NAME
from tests.numerics.forms import PAIRS, laid_out, numbers, results


def _cond(x: Any) -> Any:
    return ts.cond((x > 1).any(), lambda v: (v + v, v), lambda v: (v, v - v), x)


def _cond_within(x: Any) -> Any:
    def large(v: Any) -> Any:
        return ts.cond((v > 2).all(), lambda: v + x, lambda: v - x)

    return ts.cond((x > 0).any(), large, lambda v: v, x)


def _while(x: Any) -> Any:
    return ts.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] + x), (0, x))


def _fori(x: Any) -> Any:
    return ts.fori_loop(0, 4, lambda i, v: (v[1] + x, v[0]), (x, x + x))


def _fori_to_a_size(x: Any) -> Any:
    return ts.fori_loop(0, x.shape[1], lambda i, v: v + x, x)


def _scan(x: Any) -> Any:
    return ts.scan(lambda total, row: (total + row, total), x.sum(axis=0).cast(x.dtype), x)


def _scan_backwards(x: Any) -> Any:
    return ts.scan(lambda total, row: (total + row, row + row), x.sum(axis=0).cast(x.dtype), x, reverse=True)


FLOWS: dict[str, Callable[[Any], Any]] = {
    "cond": _cond,
    "cond within cond": _cond_within,
    "while": _while,
    "fori": _fori,
    "fori to a size": _fori_to_a_size,
    "scan": _scan,
    "scan backwards": _scan_backwards,
}


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f16", "i64", "i32", "u8"])
@pytest.mark.parametrize("name", FLOWS)
def test_flows_equal_the_interpreter(name: str, kind: str) -> None:
    compiled = ts.jit(FLOWS[name], dynamic=True)
    oracle = ts.jit(FLOWS[name], dynamic=True, backend="reference")
    rng = np.random.default_rng(11)
    for number, shape in enumerate(PAIRS[:20] if "size" in name else PAIRS):
        x = numbers(rng, shape, BY_NAME[kind])
        with np.errstate(all="ignore"):
            wanted = results(oracle(x))
        for ours, theirs in zip(results(compiled(laid_out(x, number))), wanted, strict=True):
            assert ours.dtype in (numpy_dtype(BY_NAME[kind]), np.int64)
            np.testing.assert_array_equal(ours, theirs, err_msg=f"{name} {kind} {shape}")
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("shape", [(3, 5), (17, 33)])
@pytest.mark.parametrize("name", FLOWS)
def test_flows_of_known_sizes(name: str, shape: tuple[int, int]) -> None:
    x = numbers(np.random.default_rng(3), shape, BY_NAME["f32"])
    for ours, theirs in zip(
        results(ts.jit(FLOWS[name])(x)), results(ts.jit(FLOWS[name], backend="reference")(x)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
