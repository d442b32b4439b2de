"""Ordinary ops that are measured on a GPU: both sides of each compute results of one shape and dtype."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from benchmarks.gpu_ops import BF16, F32, WORKS, Work

torch: Any = pytest.importorskip("torch", reason="a peer")

DTYPES = {F32: np.dtype(np.float32), BF16: np.dtype(ml_dtypes.bfloat16), "i64": np.dtype("i8"), "i8": np.dtype("i1")}


def arrays(work: Work) -> list[Any]:
    """Arguments of full size that take no memory: one element, seen as many."""
    others = dict(work.others)
    kinds = [others.get(at, work.dtype).partition(":")[0] for at in range(len(work.shapes))]
    return [np.broadcast_to(np.ones((), DTYPES[kind]), shape) for kind, shape in zip(kinds, work.shapes, strict=True)]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_both_sides_have_one_shape(work: Work) -> None:
    given = arrays(work)
    *_, last = ts.shape_trace(work.function(work.ours, torch))(*given)
    meta = [torch.empty(one.shape, dtype=getattr(torch, str(one.dtype)), device="meta") for one in given]
    expected = work.function(work.peer, torch)(*meta)
    assert any(str(list(expected.shape)) in str(one) for one in (*last.outputs, *last.sizes_out))


def test_names_are_apart() -> None:
    assert len({work.name for work in WORKS}) == len(WORKS)
