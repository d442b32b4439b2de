"""Places in shared memory and descriptors: passes give each what it lacks, keep what is said, and change no meaning."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.mma.target_kernels import UNPLACED, check_laid_out, parts_of
from tessera.backends.nvptx.passes.hoist_descriptors import HoistDescriptors
from tessera.backends.nvptx.passes.place_shared import PlaceShared
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.codes import TargetVerifyError
from tessera.diagnostics.error import InternalError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.verify import verify
from tessera.ir.target.pipeline import check_kernels
from tests.backends.nvptx.matrices import arrays_of, causal, full, kernels_of, nn, nt, text_of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_simulator import simulate

PROGRAMS: dict[str, tuple[str, Any, list[tuple[int, ...]]]] = {
    "product": ("sm_90a", nt, [(70, 136), (72, 136)]),
    "across": ("sm_90a", nn, [(70, 72), (72, 136)]),
    "full": ("sm_90a", full, [(1, 1, 40, 64), (1, 1, 72, 64), (1, 1, 72, 64)]),
    "handed out": ("sm_90a", causal, [(1, 1, 40, 64), (1, 1, 72, 64), (1, 1, 72, 64)]),
    "warps": ("sm_80", nt, [(70, 136), (72, 136)]),
    "tensor memory": ("sm_100a", nt, [(128, 136), (72, 136)]),
}


@cache
def _made(name: str) -> tuple[SpecOp, SpecOp]:
    """A tile kernel, and what it becomes."""
    machine, function, shapes = PROGRAMS[name]
    (kernel,) = kernels_of(function, shapes, overrides={"pipeline.stages": 2})
    made = NvptxBackend(GPUS[machine]).matrix(kernel)
    assert made is not None
    return kernel, made


def copy_of(name: str) -> SpecOp:
    """A lowered kernel that a test may change."""
    copy = _made(name)[1].clone()
    assert isinstance(copy, SpecOp)
    return copy


def run(name: str, kernel: SpecOp) -> list[Any]:
    """What a kernel leaves in its arguments when it is simulated."""
    arrays = arrays_of(_made(name)[0])
    simulate(kernel, arrays, {})
    return [array.astype(np.float64) for array in arrays]


def forget(kernel: SpecOp, keeps: frozenset[int] = frozenset()) -> None:
    """Take the offsets of all parts but some, and the bytes that a kernel has."""
    for at, part in enumerate(parts_of(kernel)):
        for op in part.ops if at not in keeps else ():
            op.set_value(part.attribute, UNPLACED)
    kernel.set_value("shared", 0)


def placed(kernel: SpecOp) -> SpecOp:
    module = ModuleOp([kernel])
    PlaceShared().run(module)
    verify(module)
    kernel.detach()
    return kernel


@pytest.mark.parametrize("name", PROGRAMS)
def test_offsets_that_are_forgotten_are_found(name: str) -> None:
    """A lowering gives no offsets: all of them come from the pass, and it has nothing to do a second time."""
    kernel, wanted = copy_of(name), text_of(copy_of(name))
    forget(kernel)
    assert text_of(placed(kernel)) == wanted
    assert text_of(placed(kernel)) == wanted


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.data())
def test_parts_lie_apart_and_placed_ones_stay(name: str, data: st.DataObject) -> None:
    kernel = copy_of(name)
    parts = parts_of(kernel)
    keeps = data.draw(st.frozensets(st.sampled_from(range(len(parts))), max_size=3))
    moved = data.draw(st.integers(0, 3)) * 1024
    forget(kernel, keeps)
    said = {at: parts[at].start + moved for at in keeps}
    for at, start in said.items():
        for op in parts[at].ops:
            op.set_value(parts[at].attribute, start)
    placed(kernel)
    check_laid_out(kernel)
    assert {at: parts[at].start for at in keeps} == said
    found = sorted(parts, key=lambda part: part.start)
    assert all(low.end <= high.start for low, high in pairwise(found))
    assert all(part.start % part.alignment == 0 for part in parts)
    assert kernel.value("shared") == found[-1].end


@pytest.mark.parametrize("name", ["product", "handed out"])
def test_another_place_is_the_same_kernel(name: str) -> None:
    """Parts in another order do what they did: a ring goes before all others."""
    kernel = copy_of(name)
    expected = run(name, copy_of(name))
    at, ring = next((at, part) for at, part in enumerate(parts_of(kernel)) if part.what == "ttarget.ring")
    forget(kernel, frozenset([at]))
    ring.ops[0].set_value("offset", 0)
    placed(kernel)
    assert all(part.start >= ring.end for part in parts_of(kernel) if part.what != ring.what)
    for found, wanted in zip(run(name, kernel), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_offsets_that_overlap_are_refused() -> None:
    kernel = copy_of("product")
    forget(kernel, frozenset([0, 1]))
    second = parts_of(kernel)[1]
    second.ops[0].set_value("offset", second.start - 1024)
    with pytest.raises(TargetVerifyError, match="overlap"):
        PlaceShared().run(ModuleOp([kernel]))


def test_a_kernel_without_offsets_does_not_leave_the_stage() -> None:
    kernel = copy_of("product")
    forget(kernel)
    verify(kernel)
    with pytest.raises(InternalError, match="has no offset in shared memory"):
        check_kernels([kernel], GPUS["sm_90a"], check=check_laid_out)


def maps_in(kernel: SpecOp) -> list[SpecOp]:
    return [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map"]


def sink(kernel: SpecOp, which: list[bool]) -> int:
    """Make a map before each op that reads it, for as many uses as `which` says; how many there are then."""
    uses = [(map, use) for map in maps_in(kernel) for use in list(map.results[0].uses)]
    for (map, use), is_sunk in zip(uses, which, strict=False):
        if is_sunk:
            made = map.clone()
            block = use.operation.parent_block()
            assert block is not None
            block.insert_op_before(made, use.operation)
            use.operation.operands[use.index] = made.results[0]
    return len(maps_in(kernel))


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(["product", "across", "full", "handed out", "tensor memory"]), st.lists(st.booleans(), min_size=8)
)
def test_maps_are_made_once_wherever_they_were(name: str, which: list[bool]) -> None:
    kernel, count = copy_of(name), len(maps_in(copy_of(name)))
    assert sink(kernel, which) >= count
    verify(kernel)
    module = ModuleOp([kernel])
    HoistDescriptors().run(module)
    verify(module)
    kernel.detach()
    assert len(maps_in(kernel)) == count
    check_laid_out(kernel)
    once = text_of(kernel)
    HoistDescriptors().run(ModuleOp([kernel]))
    kernel.detach()
    assert text_of(kernel) == once


@pytest.mark.parametrize("name", ["product", "full"])
def test_a_kernel_whose_maps_were_moved_does_what_it_did(name: str) -> None:
    kernel = copy_of(name)
    sink(kernel, [True] * 8)
    HoistDescriptors().run(ModuleOp([kernel]))
    kernel.detach()
    for found, wanted in zip(run(name, kernel), run(name, copy_of(name)), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_descriptor_that_is_made_meanwhile_does_not_leave_the_stage() -> None:
    kernel = copy_of("product")
    sink(kernel, [True])
    with pytest.raises(OpError, match="a descriptor is made before everything"):
        check_laid_out(kernel)


def test_a_map_is_of_an_argument_wherever_it_is_made() -> None:
    kernel = copy_of("product")
    sink(kernel, [True])
    inner = next(op for op in maps_in(kernel) if op.parent_op() is not kernel)
    tile = next(op for op in kernel.walk() if op.name == "ttarget.shared_tile")
    inner.operands[0] = tile.results[0]
    with pytest.raises(OpError, match="a TMA descriptor is of an argument of the kernel"):
        verify(kernel)


@pytest.mark.parametrize("name", ["product", "full"])
def test_a_map_of_what_is_stored_has_no_end(name: str) -> None:
    """The host would make it a dim more than the copy has indices for."""
    kernel = copy_of(name)
    (map,) = {op.operands[1].owner for op in kernel.walk() if op.name == "ttarget.store_tile"}
    assert isinstance(map, SpecOp)
    map.set_value("cut", 0)
    with pytest.raises(OpError, match="ends where its buffer does, and its TMA descriptor"):
        verify(kernel)
