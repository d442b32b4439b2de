"""What a function written with ops is held to: values, dtypes, symbolic sizes, derivatives, batches, a GPU's code."""

# Functions and references are lambdas, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tests.backends.nvptx.kernels import ptx_in_turns

Array = np.ndarray[Any, Any]
REFERENCE = "reference"


@dataclass(frozen=True)
class Case:
    """A function, the arrays it is tried on by the size of their first dim, and its meaning in NumPy on f64.

    `grad` names the operands that it is differentiated by; one that takes integers, or steps, has none. `batched` is
    false where the first dim means something, so that rows of it are no operands; `dynamic` where a size must be a
    number.
    """

    name: str
    function: Callable[..., Any]
    arrays: Callable[[np.random.Generator, int], Sequence[Array]]
    reference: Callable[..., Any]
    grad: tuple[int, ...] = (0,)
    batched: bool = True
    narrow: bool = True
    rtol: float = 1e-10
    dynamic: bool = True

    def make(self, size: int) -> list[Array]:
        return [np.asarray(array) for array in self.arrays(np.random.default_rng(size + 3), size)]


def leaves(value: Any) -> list[Array]:
    """The results of a function, or of a reference, as arrays."""
    return [np.asarray(one) for one in (value if isinstance(value, tuple | list) else (value,))]


def compare(found: Any, expected: Any, rtol: float) -> None:
    """All results near, NaN and infinities in their places."""
    made, wanted = leaves(found), leaves(expected)
    assert len(made) == len(wanted)
    for one, other in zip(made, wanted, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=rtol, atol=rtol)


def check_values(case: Case) -> None:
    """One compiled program for two sizes, against the reference; no elements too, where that has an answer."""
    function = ts.jit(case.function, dynamic=case.dynamic)
    for size in (5, 17):
        arrays = case.make(size)
        with np.errstate(all="ignore"):
            compare(function(*arrays), case.reference(*arrays), case.rtol)
    assert function.cache_info().misses == (1 if case.dynamic else 2)


def check_narrow(case: Case, backend: str) -> None:
    """f32 and bf16 come back in their dtype, near what f64 gives."""
    for dtype, rtol in ((np.float32, 3e-5), (ts.bf16, 4e-2)):
        arrays = [
            array if array.dtype.kind != "f" else ts.array(array).cast(ts.f32).cast(dtype) for array in case.make(6)
        ]
        exact = [array if isinstance(array, np.ndarray) else np.asarray(array.cast(ts.f64)) for array in arrays]
        found = ts.jit(case.function, backend=backend)(*arrays)
        with np.errstate(all="ignore"):
            expected = leaves(case.reference(*exact))
        listed = found if isinstance(found, tuple | list) else (found,)
        for one, other in zip(listed, expected, strict=True):
            if one.dtype.is_float:
                assert one.dtype is ts.array(arrays[0]).dtype
                compare(one.cast(ts.f64), other, rtol)


def check_gradient(case: Case, backend: str) -> None:
    """The gradient of a weighted sum, against central differences in f64."""
    arrays = case.make(4)

    def loss(*operands: Any) -> Any:
        found = case.function(*operands)
        listed = found if isinstance(found, tuple | list) else (found,)
        total: Any = 0.0
        for one in listed:
            if one.dtype.is_float:
                weights = (
                    ts.ops.cos(ts.ops.iota(one.shape, max(len(one.shape) - 1, 0)).cast(ts.f64)) if one.shape else 1.0
                )
                total = total + (one * weights).sum()
        return total

    found = ts.jit(ts.grad(loss, case.grad), backend=backend)(*arrays)
    value = ts.jit(loss, backend=REFERENCE)
    rng = np.random.default_rng(0)
    for at, gradient in zip(case.grad, found, strict=True):
        direction = rng.normal(size=arrays[at].shape)
        ends = []
        for step in (1e-6, -1e-6):
            moved = [array + step * direction if own == at else array for own, array in enumerate(arrays)]
            ends.append(float(np.asarray(value(*moved))))
        slope = float((np.asarray(gradient) * direction).sum())
        assert np.isfinite(slope)
        np.testing.assert_allclose(slope, (ends[0] - ends[1]) / 2e-6, rtol=2e-5, atol=2e-6)


def check_batched(case: Case, backend: str) -> None:
    """`vmap` over three sets of operands gives what each gives alone."""
    rows = [case.make(4), [array[::-1].copy() if array.ndim else array for array in case.make(4)], case.make(4)]
    stacked = [np.stack(arrays) for arrays in zip(*rows, strict=True)]
    found = leaves(ts.jit(ts.vmap(case.function), backend=backend)(*stacked))
    alone = ts.jit(case.function, backend=REFERENCE)
    expected = [leaves(alone(*arrays)) for arrays in rows]
    for at, one in enumerate(found):
        compare(one, np.stack([row[at] for row in expected]), case.rtol)


def check_gpu(case: Case) -> None:
    """The kernels of the function in f32 with a symbolic size become PTX."""
    arrays = [array.astype(np.float32) if array.dtype.kind == "f" else array for array in case.make(17)]
    tape = ts.jit(case.function, dynamic=case.dynamic).trace(*arrays).tape
    assert all(b".visible .entry" in ptx for ptx in ptx_in_turns(tape, 0))


def check_case(case: Case, turn: int) -> None:
    """All of it; of a family, which shares ops, a third as a GPU's code, and another compiled for the CPU."""
    backend = "cpu" if turn % 3 == 1 else REFERENCE
    check_values(case)
    if case.narrow:
        check_narrow(case, backend)
    if case.grad:
        check_gradient(case, backend)
    if case.batched:
        check_batched(case, backend)
    if turn % 3 == 0:
        check_gpu(case)
