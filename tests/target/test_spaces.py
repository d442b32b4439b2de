"""Kernels move between memory spaces with what their machine has, and ops that do otherwise are refused with a way."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.codes import FeatureError, ShapeError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.target.limits import check_moves, moves_of
from tessera.ir.target.passes.check_features import CheckFeatures
from tessera.types.device import moves
from tests.backends.nvptx.kernels import lowered
from tests.backends.nvptx.matrices import dot_text


def matmul() -> SpecOp:
    load_dialects()
    (kernel,) = [op for op in parse_module(dot_text()).ops if isinstance(op, SpecOp)]
    return kernel


def test_what_kernels_of_ours_move_is_moved_at_once() -> None:
    kernels = [matmul(), *lowered("transpose").targets, *lowered("long row").targets]
    ops = [op for kernel in kernels for op in kernel.walk() if isinstance(op, SpecOp)]
    pairs = {(move.source, move.target) for op in ops for move in moves_of(op)}
    assert {("global", "shared"), ("shared", "global"), ("global", "register"), ("register", "global")} <= pairs
    assert ("register", "shared") in pairs
    assert all(moves(*pair) for pair in pairs)
    for kernel in kernels:
        check_moves(kernel, GPUS["sm_90a"].features)


def test_a_machine_without_the_copy_engine_is_told_how_it_copies() -> None:
    kernel = matmul()
    with pytest.raises(
        FeatureError, match="moving from global to shared memory by tma is not this machine's"
    ) as caught:
        check_moves(kernel, GPUS["sm_80"].features)
    assert "it moves there by cp.async" in caught.value.render()
    kernel.set_value("features", ())
    with pytest.raises(FeatureError, match="by tma is not this machine's"):
        CheckFeatures(GPUS["sm_80"].features).run(ModuleOp([kernel.clone()]))


def test_a_cache_goes_to_a_memory_that_there_is() -> None:
    def copy_kernel(keys: ts.Tensor, length: ts.Tensor) -> ts.Tensor:
        return ts.KVCache(keys, keys, length).prefetch(into="moon").K

    def tensor_memory(keys: ts.Tensor, length: ts.Tensor) -> ts.Tensor:
        return ts.KVCache(keys, keys, length).prefetch(into="tmem").K

    arrays = [np.zeros((1, 2, 8, 4), np.float32), np.array(3, np.int64)]
    with pytest.raises(ShapeError, match="there is no memory `moon`; there are register, shared, tmem, global"):
        ts.jit(copy_kernel).trace(*arrays)
    with pytest.raises(
        ShapeError, match="there is no direct transfer from global to tmem memory: go from global to register"
    ):
        ts.jit(tensor_memory).trace(*arrays)


def test_a_copy_goes_to_shared_memory_that_its_barrier_counts() -> None:
    """Neither to another tile than its ring's, nor to a buffer: each would be a wrong space, or a wait for nothing."""
    load_dialects()
    text = dot_text()
    copy = next(line for line in text.splitlines() if line.strip().startswith("ttarget.copy"))
    tile = copy.split("ttarget.copy ")[1].split(", ")[3]
    tiles = [line for line in text.splitlines() if "= ttarget.shared_tile" in line and "[64, 64]" in line]
    staging = tiles[-1].split(" = ")[0].strip()
    shared = copy.split("!ttarget.cursor, ")[1].split(", !ttile.index")[0]
    other = copy.replace(f", {tile}, ", f", {staging}, ").replace(shared, "!ttarget.shared_tile<[64, 64], bf16>")
    with pytest.raises(OpError, match="fills a tile of its ring"):
        verify(parse_module(text.replace(copy, other)))
    buffer = copy.replace(f", {tile}, ", ", %0, ").replace(shared, "!ttile.buffer<[256, 192], bf16>")
    with pytest.raises(OpError, match="fills a tile of its ring"):
        verify(parse_module(text.replace(copy, buffer)))


def test_what_is_copied_and_never_waited_for_is_refused() -> None:
    load_dialects()
    lines = dot_text().splitlines()
    gone = ("ttarget.await", "ttarget.release")
    with pytest.raises(OpError, match="a dot reads a stage that nobody waited for"):
        verify(parse_module("\n".join(line for line in lines if not line.strip().startswith(gone))))
