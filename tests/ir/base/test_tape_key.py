"""Keys of tapes: equal exactly where the texts are, that the names of kernels are made from."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from tessera.diagnostics.error import Span
from tessera.ir.base.tape import Guard, Record, Tape, tape_key, tape_text
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, f32
from tessera.types.shape import TensorType


def tape(value: Any = 1.0, *, op: str = "tgraph.full", dtype: Any = f32, name: str = "x", line: int = 1) -> Tape:
    types = [TensorType.of(["B", 4], dtype), TensorType.of([4], dtype)]
    record = Record(op, (0,), {"value": value}, (1,), Span("a.py", line))
    return Tape([0], [name], [record], [1], types)


VALUES = [1, 1.0, True, 0.0, -0.0, float("nan"), (1, 2), (1.0, 2), (0.0,), (-0.0,), "1", None, Dim.symbol("B"), bf16]


def test_keys_are_equal_where_texts_are() -> None:
    tapes = [tape(value) for value in VALUES]
    tapes += [tape(op="tgraph.exp"), tape(dtype=bf16)]
    for one, other in product(tapes, tapes):
        assert (tape_key(one) == tape_key(other)) == (tape_text(one) == tape_text(other))


def test_names_and_spans_are_no_part_of_it_and_guards_are() -> None:
    assert tape_key(tape(name="x", line=1)) == tape_key(tape(name="y", line=2))
    guarded = tape()
    guarded.guards = [Guard(Dim.symbol("B") % 2, Dim.constant(0), "even")]
    assert tape_key(guarded) != tape_key(tape())


@pytest.mark.parametrize("value", [np.zeros(3), {"location": ("a.py", 1)}, [1, 2]], ids=["array", "dict", "list"])
def test_what_cannot_be_a_key_has_none(value: Any) -> None:
    assert tape_key(tape(value)) is None
