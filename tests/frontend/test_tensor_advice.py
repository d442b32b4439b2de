"""What is passed where a tensor is expected, by kind: each is told what is accepted instead of it."""

# Values of every kind are passed on purpose.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.error import TesseraError
from tessera.runtime.foreign import tensor_advice


class Holder:
    """What has an array, as a data frame has."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.ones(2, np.float32)


ACCEPTED = "pass a tensor, an array of NumPy, a tensor of any library"
KINDS: dict[str, tuple[Any, str]] = {
    "object": (object(), ACCEPTED),
    "str": ("abc", "tensors hold numbers: convert the text first"),
    "None": (None, "a parameter that may be left out is declared"),
    "set": ({1, 2}, "a set has no order: write `ts.array(sorted(values))`"),
    "frozenset": (frozenset((1, 2)), "a set has no order"),
    "bytes": (b"ab", "`ts.asarray(data)` shares its bytes"),
    "range": (range(1, 7, 2), "write `ts.arange(1, 7, 2)`"),
    "complex": (1j, "its real and its imaginary part as two tensors"),
    "function": (len, "pass what it returns"),
    "generator": (iter([1]), "pass `ts.array(list(...))` of it"),
    "holder": (Holder(), "pass the array that it holds"),
    "slice": (slice(1), ACCEPTED),
}
CONTAINERS: dict[str, tuple[Any, str]] = {
    "list": ([[1.0], [2]], "`ts.array(...)` converts nested lists of numbers"),
    "list of tensors": ([ts.ones(2), ts.ones(2)], "`ts.ops.stack([...])` makes one tensor of several"),
    "list of strings": (["a", "b"], ACCEPTED),
    "dict": ({"w": 1.0, "b": 2.0}, "pass one of its values"),
}


@ts.jit
def declared(x: ts.Tensor["N", ts.f32]) -> Any:
    return x + 1.0


@kernel
def double(x: KTile["M", "N"]) -> Any:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * 2.0


CALLS: dict[str, Any] = {"jit": declared, "kernel": double, "op": ts.ops.exp}


@pytest.mark.parametrize(
    ("kind", "call"),
    [(kind, call) for kind in KINDS | CONTAINERS for call in CALLS if (kind, call) != ("complex", "op")],
)
def test_the_fix_says_what_is_accepted(kind: str, call: str) -> None:
    value, advice = (KINDS | CONTAINERS)[kind]
    with pytest.raises(TesseraError) as caught:
        CALLS[call](value)
    assert advice in str(caught.value), str(caught.value)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"bytes", "holder", "complex"}))
def test_arrays_of_what_holds_no_numbers(kind: str) -> None:
    value, advice = KINDS[kind]
    for call in (ts.array, ts.asarray):
        with pytest.raises(TesseraError) as caught:
            call(value)
        assert advice in str(caught.value)


def test_numbers_are_scalars_or_fill_a_shape() -> None:
    with pytest.raises(TesseraError) as caught:
        declared(3.0)
    assert "`ts.array(3.0)` is a scalar, and `ts.full(shape, 3.0)` a tensor" in str(caught.value)


@pytest.mark.parametrize("value", [[], [[]], [True, 2, 0.5]])
def test_lists_of_numbers_are_converted(value: Any) -> None:
    assert "converts nested lists" in tensor_advice(value)
    assert isinstance(ts.array(value), ts.Tensor)
