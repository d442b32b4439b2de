"""Lowering for threads: how many a program has, where scratch is, and that they wait for what others wrote."""

from __future__ import annotations

import pytest
from xdsl.ir import SSAValue

from tessera.backends.nvptx.row_plan import THREADS
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.base.op import SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i32
from tessera.types.shape import TensorType
from tests.backends.nvptx.kernels import lowered, parts_of
from tests.oracles.nvptx_backend import NvptxBackend

HOPPER = NvptxBackend(GPUS["sm_90a"])
ROW, COLUMN = Dim.symbol("i"), Dim.symbol("j")


def passed_on(*, turned: bool, size: int = 16) -> SpecOp:
    """A tile through scratch, read back as it was stored or the other way round."""
    buffer = TensorType.of([size, size], f32)
    b = TileBuilder("pass", [buffer, buffer], symbols=[], grid=[Dim.constant(1)], writes=[1], kind="library")
    zero: SSAValue = b.index(0)
    region = TileRegion({"i": zero, "j": zero}, ("i", "j"), (size, size), {})
    scratch = b.scratch([size, size], f32)
    b.store(b.load(b.arguments[0], (ROW, COLUMN), region), scratch, (ROW, COLUMN), region)
    b.store(b.load(scratch, (COLUMN, ROW) if turned else (ROW, COLUMN), region), b.arguments[1], (ROW, COLUMN), region)
    return b.finish()


def fetched(*, other: bool) -> SpecOp:
    """Indices through scratch, one of which says where a row is read; or `other` memory says so, that nobody writes."""
    indices, rows = TensorType.of([64], i32), TensorType.of([64, 64], f32)
    buffers = [indices, rows, TensorType.of([64], f32)]
    b = TileBuilder("fetch", buffers, symbols=[], grid=[Dim.constant(1)], writes=[2], kind="library")
    zero: SSAValue = b.index(0)
    region = TileRegion({"j": zero}, ("j",), (64,), {})
    scratch = b.scratch([64], i32)
    b.store(b.load(b.arguments[0], (COLUMN,), region), scratch, (COLUMN,), region)
    row = b.fetch(b.arguments[0] if other else scratch, (ROW,), {"i": b.index(7)})
    b.store(b.load(b.arguments[1], (ROW, COLUMN), region.with_coords(i=row)), b.arguments[2], (COLUMN,), region)
    return b.finish()


def names(kernel: SpecOp) -> list[str]:
    return [op.name for op in kernel.walk()]


@pytest.mark.parametrize("turned", [False, True])
def test_threads_wait_where_one_reads_what_another_wrote(turned: bool) -> None:
    target = HOPPER.lower(passed_on(turned=turned))
    verify(target)
    found = names(target)
    assert ("ttarget.barrier" in found) == turned
    if turned:
        # After it was written, before it is read.
        written = max(at for at, name in enumerate(found) if name == "ttarget.store" and at < len(found) - 3)
        assert "ttarget.barrier" in found[: written + 1]
        assert found.index("ttarget.barrier") > found.index("ttarget.scratch")


@pytest.mark.parametrize("other", [False, True])
def test_threads_wait_for_an_index_that_one_of_them_wrote(other: bool) -> None:
    target = HOPPER.lower(fetched(other=other))
    verify(target)
    found = [name for name in names(target) if name in ("ttarget.store", "ttarget.barrier", "ttarget.fetch")]
    if other:
        assert found == ["ttarget.store", "ttarget.fetch", "ttarget.store"]
    else:
        at = found.index("ttarget.fetch")
        assert found[at - 2 : at] == ["ttarget.store", "ttarget.barrier"]


@pytest.mark.parametrize(
    ("name", "threads"), [("map", 256), ("dynamic row", 32), ("row in registers", 32), ("columns", 64), ("sort", 256)]
)
def test_threads_of_a_program(name: str, threads: int) -> None:
    lowering = lowered(name)
    assert {THREADS.of(op) for op in lowering.kernels} == {threads}
    assert {op.value("threads") for op in lowering.targets} == {threads}


@pytest.mark.parametrize(
    ("name", "spaces"),
    [("dynamic row", {"private"}), ("long row", {"registers", "shared"}), ("row in registers", {"shared"})],
)
def test_scratch_is_as_near_as_its_size_allows(name: str, spaces: set[str]) -> None:
    """What warps have of a row is in their registers, and what they join of it in shared memory."""
    *_, target = lowered(name).targets
    found = {op.value("space") for op in target.walk() if isinstance(op, SpecOp) and op.name == "ttarget.scratch"}
    assert found == spaces


def test_memory_that_is_private_is_had_by_as_many_programs_as_run() -> None:
    lowering = lowered("dynamic row")
    parts = parts_of(lowering)
    *_, code = parts.codes
    assert code.slots == GPUS["sm_90a"].blocks * 16 * code.programs
    assert code.scratch.symbols
    assert parts.entry.scratches


def test_arguments_of_iterations_begin_anywhere() -> None:
    target = HOPPER.lower(lowered("map").kernels[0], aligned=False)
    verify(target)
    assert target.value("vector") == 1
