"""Grouped contractions on tensor cores: blocks that store some of their rows by TMA, and others that are skipped."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.types import sizes_of
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.graph.ops.ragged import ROWS, ragged_dot_reference
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tests.backends.nvptx.kernels import parts_of
from tests.oracles.nvptx_simulator import Order, simulate

BF16 = np.dtype(ml_dtypes.bfloat16)


def lowered(rows: int, groups: int, k: int, n: int, dtype: Any = BF16) -> Lowering:
    shapes = ((rows, k), (groups, k, n))
    arrays = [np.broadcast_to(np.zeros((), dtype), shape) for shape in shapes]
    tape = ts.jit(ts.ops.ragged_dot).trace(*arrays, np.zeros(groups, np.int64)).tape
    return lower(tape, Options.of(backend="cuda", features=("sm_90a",)))


def matrix_kernel(made: Lowering) -> SpecOp:
    (target,) = [one for one in made.targets if one.name == "ttarget.matrix_kernel"]
    return target


def table_of(rows: int, sizes: Sequence[int]) -> list[Any]:
    """Matrix, first row and end of each block, as the graph makes them: those of no group last, then those of none."""
    found, start = list[tuple[int, int, int]](), 0
    for group, size in enumerate(sizes):
        found += [(group, at, start + size) for at in range(start, start + size, ROWS)]
        start += size
    while len(found) < rows // ROWS + len(sizes) + 1:
        found.append((-1, start, rows))
        start += ROWS
    return [np.array(column) for column in zip(*found, strict=True)]


def run(target: SpecOp, sizes: Sequence[int], ctas: int = 3) -> tuple[Any, Any, list[Any]]:
    """What a kernel gives, what it should, and events; rows of no group are NaN, and so is memory before."""
    x_type, w_type = target.regions[0].block.args[:2]
    rng, rows = np.random.default_rng(3), sizes_of(x_type)[0]
    x, w = (rng.standard_normal(sizes_of(one)).astype(np.float32).astype(BF16) for one in (x_type, w_type))
    x[sum(sizes) :] = np.nan
    out = np.full((rows, w.shape[-1]), np.nan, BF16)
    events = simulate(target, [x, w, *table_of(rows, sizes), out], {}, Order(ctas=ctas))
    return out, ragged_dot_reference(x, w, np.cumsum([0, *sizes])), events


SIZES = {
    "any": (130, 1, 0, 300, 69),
    "all in one": (0, 0, 500, 0, 0),
    "fewer than rows": (5, 0, 200, 0, 128),
    "none": (0, 0, 0, 0, 0),
    "whole blocks": (128, 128, 0, 128, 116),
}


@pytest.fixture(scope="module")
def small() -> SpecOp:
    return matrix_kernel(lowered(500, 5, 96, 200))


@pytest.fixture(scope="module")
def large() -> SpecOp:
    """One with more programs than there are multiprocessors, and steps enough to hide what follows them."""
    return matrix_kernel(lowered(500, 5, 448, 4096))


@pytest.mark.parametrize("name", SIZES)
def test_groups_of_any_sizes(small: SpecOp, name: str) -> None:
    found, wanted, _ = run(small, SIZES[name])
    assert np.all(np.abs(found.astype(np.float32) - wanted.astype(np.float32)) <= 2.0**-6 + np.abs(wanted) * 2.0**-7)
    assert not found[sum(SIZES[name]) :].astype(np.float32).any()


@pytest.mark.slow
def test_what_follows_the_dots_is_beside_those_of_the_next_program(large: SpecOp) -> None:
    (epilogue,) = [op for op in large.walk() if op.name == "ttarget.epilogue"]
    stores = [op for op in epilogue.walk() if op.name == "ttarget.store_tile"]
    assert len(stores) == 1
    (map,) = [op for op in large.walk() if op.name == "ttarget.tensor_map" and op.operands[0] is stores[0].operands[3]]
    assert isinstance(map, SpecOp)
    assert map.value("cut") == 0
    found, wanted, _ = run(large, SIZES["any"])
    assert np.all(np.abs(found.astype(np.float32) - wanted.astype(np.float32)) <= 2.0**-4 + np.abs(wanted) * 2.0**-7)


@pytest.mark.parametrize(("sizes", "blocks"), [((500, 0, 0, 0, 0), 4), ((1, 1, 1, 1, 496), 8), ((3, 0, 0, 0, 0), 5)])
def test_blocks_of_no_rows_are_passed_over(small: SpecOp, sizes: Sequence[int], blocks: int) -> None:
    """Of the nine that a table of 500 rows in five groups has: dots of blocks with rows alone are issued."""
    (tiles, _) = [op for op in small.walk() if op.name == "ttarget.tiles"]
    assert isinstance(tiles, SpecOp)
    assert [str(dim) for dim in tiles.value("grid")] == ["9", "2"]
    issued = [event for event in run(small, sizes)[2] if event.op == "mma_issue"]
    assert len(issued) == 2 * blocks * 2 * 2  # consumers, and steps of K, and blocks of columns


def test_the_table_is_read_by_both_roles_alike(small: SpecOp) -> None:
    producer, consumer = [op for op in small.walk() if op.name == "ttarget.tiles"]
    for walk in (producer, consumer):
        assert isinstance(walk, SpecOp)
    again = small.clone()
    (skip, _) = [op for op in again.walk() if op.name == "ttarget.skip"]
    skip.detach()
    with pytest.raises(OpError, match="both roles pass over the same tiles"):
        again.verify()


def test_nothing_is_done_before_a_program_is_passed_over(small: SpecOp) -> None:
    again = small.clone()
    for skip in [op for op in again.walk() if op.name == "ttarget.skip"]:
        block = skip.parent_block()
        assert block is not None
        skip.detach()
        last = block.last_op
        assert last is not None
        block.insert_op_before(skip, last)
    with pytest.raises(OpError, match="is done before it is known whether the program is passed over"):
        again.verify()


def test_a_descriptor_ends_where_its_store_does(small: SpecOp) -> None:
    again = small.clone()
    (store, *_) = [op for op in again.walk() if op.name == "ttarget.store_tile"]
    map = store.operands[1].owner
    assert isinstance(map, SpecOp)
    map.set_value("cut", -1)
    with pytest.raises(OpError, match=r"ends where .* along dim 0, and its TMA descriptor along dim -1"):
        again.verify()


@pytest.mark.parametrize("shape", [(16384, 8, 2048, 4096), (500, 5, 96, 200), (300, 3, 64, 72)])
def test_the_assembler_takes_it(shape: tuple[int, int, int, int]) -> None:
    parts = parts_of(lowered(*shape))
    (code,) = [one for one in parts.codes if one.name.endswith("__matrix")]
    ptx = compile_text(code.text, parts.backend.code_target)
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written, and PTX made of it")
    words = assemble_with_words(ptx, parts.backend.machine.cpu)[1]
    assert not PROBLEM.search(words)
    assert "0 bytes spill stores" in words


def test_rows_of_any_number() -> None:
    """A symbolic number of rows: the table has as many blocks as there are rows for."""

    def free(x: ts.Tensor["T", 128, ts.bf16], w: ts.Tensor[4, 128, 256, ts.bf16], s: ts.Tensor[4, ts.i64]) -> Any:
        return ts.ops.ragged_dot(x, w, s)

    arrays = np.zeros((384, 128), BF16), np.zeros((4, 128, 256), BF16), np.zeros(4, np.int64)
    made = lower(ts.jit(free).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))
    target = matrix_kernel(made)
    assert any(op.name == "ttarget.skip" for op in target.walk())


def test_few_rows_that_a_number_says_are_stored_by_threads() -> None:
    """Those of a decoding step: most of a block of 64 is not there."""
    heads = [np.zeros(shape, BF16) for shape in ((1, 16, 1, 128), (1, 2, 4096, 128), (1, 2, 4096, 128))]
    attend = ts.jit(lambda q, k, v: ts.ops.attention(q, k, v, split_keys=True))
    target = matrix_kernel(lower(attend.trace(*heads).tape, Options.of(backend="cuda", features=("sm_90a",))))
    assert not any(op.name == "ttarget.store_tile" for op in target.walk())
    assert any(op.name == "ttarget.fragment_store" for op in target.walk())
