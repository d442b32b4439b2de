"""Kernels on warpgroups without a producer: what they compute, where they are refused, and faults in their phases."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.hopper.emit import emit_matrix_kernel
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import TileVerifyError
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.types import attribute_of
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import assemble_with_words, assembler
from tessera.types.dim import Dim
from tests.backends.nvptx.matrices import arrays_of, causal, full, kernels_of, layer, nt
from tests.backends.nvptx.test_passes import ORIENTATIONS, hopper, into_f32, product_of
from tests.backends.nvptx.units import of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_simulator import DeadlockError, Order, simulate

ORDERS = [(), (0,), (1,), (2,), (0, 1), (1, 0), (2, 0), (1, 2, 0)]
"""Which consumers go ahead; the first of them copies too."""


def uniform(function: Callable[..., Any], shapes: Any, **overrides: Any) -> tuple[SpecOp, SpecOp]:
    """A tile kernel, and what it becomes without a producer."""
    (kernel,) = kernels_of(function, shapes, overrides=overrides)
    return kernel, hopper(kernel, roles="uniform")


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(sorted(ORIENTATIONS)),
    st.sampled_from([(64, 64, 64), (128, 64, 64), (192, 128, 64)]),
    st.tuples(st.integers(1, 200), st.integers(1, 12), st.integers(1, 100)),
    st.sampled_from([0, 2, 3]),
    st.sampled_from(ORDERS),
    st.integers(1, 3),
)
def test_no_order_of_warpgroups_changes_a_product(
    name: str, block: Any, size: tuple[int, int, int], stages: int, ahead: tuple[int, ...], ctas: int
) -> None:
    function, shapes = ORIENTATIONS[name]
    m, n, k = size[0], 8 * size[1], 8 * size[2]
    kernel, made = uniform(
        function, shapes(m, n, k), **{"contraction.block": block, **({"pipeline.stages": stages} if stages else {})}
    )
    arrays = arrays_of(kernel)
    simulate(made, arrays, {}, Order(ahead, ctas))
    np.testing.assert_array_equal(arrays[-1].astype(np.float64), product_of(name, kernel))


def test_an_epilogue_follows_the_dots() -> None:
    kernel, made = uniform(layer, [(150, 136), (136, 72), (72,)])
    with_producer, without = arrays_of(kernel), arrays_of(kernel)
    simulate(hopper(kernel), with_producer, {})
    simulate(made, without, {})
    np.testing.assert_array_equal(with_producer[-1], without[-1])


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("block", [(64, 64, 64), (128, 256, 64), (192, 128, 64)])
def test_the_assembler_takes_dots_as_they_are(block: Any, bounded: bool) -> None:
    """No wait is added (C7510 and the like), nothing is spilled, and there is no warpgroup beside the consumers."""
    _, made = uniform(nt, [(512, 1024), (512, 1024)], **{"contraction.block": block})
    backend = NvptxBackend(GPUS["sm_90a"])
    code = emit_matrix_kernel(made, backend.machine, bounded=bounded)
    ptx = compile_text(code.text, backend.code_target)
    words = assemble_with_words(ptx, "sm_90a")[1]
    assert code.threads == 128 * made.value("consumers")
    assert "setmaxnreg" not in code.text
    assert "wgmma" not in words
    assert " 0 bytes spill stores" in words


def test_the_choice_is_of_a_whole_program() -> None:
    arrays = [np.zeros((256, 128), ml_dtypes.bfloat16)] * 2
    for roles in ("producer", "uniform"):
        options = Options.of(backend="cuda", features=("sm_90a",), overrides={"matrix.roles": roles})
        found = lower(ts.jit(nt).trace(*arrays).tape, options)
        assert {str(kernel.value("roles")) for kernel in found.kernels} == {roles}
        assert any(op.name == "ttarget.elect" for target in found.targets for op in target.walk()) == (
            roles == "uniform"
        )


HEADS = [(1, 1, 128, 64), (1, 1, 256, 64), (1, 1, 256, 64)]
REFUSED: dict[str, tuple[Any, Any, Any, str]] = {
    "causal": (causal, HEADS, ml_dtypes.bfloat16, "programs that take unequally long are scheduled by a producer"),
    "attention": (full, HEADS, ml_dtypes.bfloat16, "an operand that is copied once for each program is copied by a"),
    "8-bit": (into_f32, [(128, 256), (128, 256)], ml_dtypes.float8_e4m3fn, "loops do nothing but add up one dot"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_programs_that_need_a_producer_are_refused(name: str) -> None:
    function, shapes, dtype, text = REFUSED[name]
    with pytest.raises(TileVerifyError, match=text) as caught:
        of(function, shapes, "sm_90a", dtype, overrides={"matrix.roles": "uniform"})
    assert "leave `roles`, `registers`, `warps_n` out" in str(caught.value)


# Faults: each is a deadlock or a race, and is found before there is code.


@cache
def _made() -> SpecOp:
    overrides = {"contraction.block": (128, 64, 64), "pipeline.stages": 3}
    return uniform(nt, [(256, 640), (128, 640)], **overrides)[1]


def whole() -> SpecOp:
    made = _made().clone()
    assert isinstance(made, SpecOp)
    return made


def find(kernel: SpecOp, name: str, number: int = 0) -> SpecOp:
    found = [op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == f"ttarget.{name}"]
    return found[number]


def drop(op: SpecOp) -> None:
    op.detach()
    op.erase()


def repeat(op: SpecOp) -> None:
    block = op.parent_block()
    assert block is not None
    block.insert_op_after(op.clone(), op)


def move_last(op: SpecOp) -> None:
    """An op of a loop to its end."""
    block = op.parent_block()
    assert block is not None
    last = block.last_op
    assert last is not None
    op.detach()
    block.insert_op_before(op, last)


def write(op: SpecOp, name: str, value: Any, kind: str = "int") -> None:
    op.properties[name] = attribute_of(kind, value)


def swap_cursors(op: SpecOp) -> None:
    """A dot of the stage that is read waits for the one that is filled."""
    loop = op.parent_block()
    assert loop is not None
    op.operands[1] = loop.args[3]


FAULTS: dict[str, tuple[Callable[[SpecOp], None], str]] = {
    "no await": (lambda k: drop(find(k, "await")), "a dot reads stage 0, which nobody waited for"),
    "other await": (lambda k: swap_cursors(find(k, "await")), "stage 2 is waited for, and it is copied later"),
    "no release": (lambda k: drop(find(k, "release")), "stage 3 is acquired before 0, which it replaces, is released"),
    "no last release": (lambda k: drop(find(k, "release", 1)), "a program copies 9 stages and leaves 1 unread"),
    "release twice": (lambda k: repeat(find(k, "release")), "stage 0 is released twice"),
    "late release": (lambda k: move_last(find(k, "release")), "acquired before 0, which it replaces, is released"),
    "no wait": (lambda k: drop(find(k, "mma_wait")), "stage 0 is released while a dot in flight reads it"),
    "two in flight": (lambda k: write(find(k, "mma_wait"), "left", 2), "released while a dot in flight reads it"),
    "no acquire": (lambda k: drop(find(k, "acquire")), "a copy goes to a stage that was not acquired"),
    "no copy": (lambda k: drop(find(k, "copy")), "a stage has 2 tiles, and 1 are copied: it would never be full"),
    "copy twice": (lambda k: repeat(find(k, "copy")), "a stage has 2 tiles, and 2 are copied: it would never be full"),
    "acquire twice": (lambda k: repeat(find(k, "acquire")), "stage 0 is acquired, and 1 is the next"),
    "no prologue": (lambda k: _empty(find(k, "when")), "stage 1 is acquired, and 0 is the next whose phase ends"),
    "deeper than the ring": (lambda k: write(find(k, "ring"), "stages", 2), "has a tile of 3"),
    "registers": (lambda k: write(k, "registers", (40, 232), "ints"), "of kernels with a producer, and there is none"),
    "mailbox": (lambda k: write(find(k, "tiles"), "mailbox", 0), "a producer hands out tiles as CTAs get done"),
    "dot by one thread": (lambda k: _into(find(k, "mma_wait"), find(k, "elect", 2)), "is not for one thread alone"),
}  # fmt: skip


def _empty(when: SpecOp) -> None:
    """A branch that copies nothing, and goes on as if it had."""
    (elect,) = [op for op in when.walk() if op.name == "ttarget.elect"]
    assert isinstance(elect, SpecOp)
    drop(elect)


def _into(op: SpecOp, other: SpecOp) -> None:
    op.detach()
    block = other.regions[0].block
    assert block.first_op is not None
    block.insert_op_before(op, block.first_op)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_the_phases_is_found(name: str) -> None:
    break_it, text = FAULTS[name]
    kernel = whole()
    verify(kernel)
    break_it(kernel)
    with pytest.raises(OpError) as caught:
        verify(kernel)
    assert text in caught.value.message


@pytest.mark.parametrize("name", ["no release", "late release", "no copy"])
def test_what_is_found_is_a_deadlock(name: str) -> None:
    kernel = whole()
    FAULTS[name][0](kernel)
    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in ((256, 640), (128, 640), (256, 128))]
    with pytest.raises(DeadlockError, match=r"consumer \d in `ttarget\.(acquire|await)`"):
        simulate(kernel, arrays, {})


def of_any_depth(kernel: SpecOp) -> SpecOp:
    """The same with K known at launch alone."""
    (loop,) = [op for op in kernel.walk() if op.name == "ttarget.steps"]
    made = loop.operands[1].owner
    assert isinstance(made, SpecOp)
    write(made, "expr", Dim.symbol("K"), "dim")
    write(kernel, "symbols", ("K",), "strs")
    return kernel


def test_loops_of_unknown_length_are_followed_for_all_that_matter() -> None:
    """A copy in the prologue that nobody reads where there is one step alone is seen if there may be."""
    verify(of_any_depth(whole()))
    known, unknown = whole(), of_any_depth(whole())
    for kernel in (known, unknown):
        first, second = find(kernel, "when"), find(kernel, "when", 1)
        second.operands[0] = first.operands[0]
    verify(known)
    with pytest.raises(OpError, match="a program copies 2 stages and leaves 1 unread: the next one is out of phase"):
        verify(unknown)
