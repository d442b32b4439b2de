"""Barriers of copies: any rings that a kernel may say change nothing, and waits that would not hold are refused."""

from __future__ import annotations

from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import parse_pipeline
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tests.backends.nvptx.matrices import arrays_of, causal, full, kernels_of, nn, nt, text_of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_simulator import simulate

PASSES = 'nvptx-select-mma{machine = "sm_90a"},nvptx-choose-spaces,nvptx-swizzle-tiles'
PROGRAMS: dict[str, tuple[Any, list[tuple[int, ...]], dict[str, Any]]] = {
    "nt": (nt, [(70, 200), (72, 200)], {"contraction.block": (64, 64, 64), "pipeline.stages": 2}),
    "nn": (nn, [(70, 200), (200, 136)], {"contraction.block": (64, 128, 64), "pipeline.stages": 3}),
    "full": (full, [(1, 1, 40, 64), (1, 1, 140, 64), (1, 1, 140, 64)], {}),
    "causal": (causal, [(1, 1, 40, 64), (1, 1, 140, 64), (1, 1, 140, 64)], {}),
}


@cache
def _text(name: str) -> str:
    """A kernel that says where its tiles go."""
    function, shapes, overrides = PROGRAMS[name]
    (kernel,) = kernels_of(function, shapes, overrides=overrides)
    module = parse_module(text_of(kernel))
    for one in parse_pipeline(PASSES):
        one.run(module)
    return text_of(only(module))


def only(module: ModuleOp) -> SpecOp:
    (kernel,) = [op for op in module.ops if isinstance(op, SpecOp)]
    return kernel


def copied(module: ModuleOp) -> list[SpecOp]:
    """Loads to shared memory."""
    ops = [op for op in module.walk() if isinstance(op, SpecOp) and op.name == "ttile.load"]
    return [op for op in ops if op.value("space") == "shared"]


def waiting(module: ModuleOp) -> list[SpecOp]:
    """Dots and loops."""
    return [op for op in module.walk() if isinstance(op, SpecOp) and op.name in ("ttile.dot", "ttile.for")]


def placed(module: ModuleOp) -> ModuleOp:
    for one in parse_pipeline("nvptx-place-barriers"):
        one.run(module)
    verify(module)
    return module


def run(name: str, kernel: SpecOp, machine: str = "sm_90a") -> tuple[Any, SpecOp]:
    """What a kernel gives on tensor cores, simulated; and what it became."""
    made = NvptxBackend(GPUS[machine]).matrix(kernel)
    assert made is not None
    arrays = arrays_of(kernel)
    simulate(made, arrays, {})
    return arrays[-1].astype(np.float64), made


@cache
def meaning(name: str) -> Any:
    return run(name, only(parse_module(_text(name))))[0]


APART = {
    name: list(permutations(range(3))) if name in ("full", "causal") else [(0, 0), (0, 1), (1, 0)] for name in PROGRAMS
}
"""Numbers of rings for the loads of each kernel: any order, and for a dot its operands together or apart."""


@pytest.mark.parametrize(("name", "numbers"), [(name, numbers) for name in APART for numbers in APART[name]], ids=str)
def test_any_rings_that_a_kernel_says_are_kept_and_change_nothing(name: str, numbers: tuple[int, ...]) -> None:
    module = parse_module(_text(name))
    for op, number in zip(copied(module), numbers, strict=True):
        op.set_value("ring", number)
    placed(module)
    assert tuple(op.value("ring") for op in copied(module)) == numbers
    once = text_of(only(module))
    assert text_of(only(placed(parse_module(once)))) == once
    found, made = run(name, only(parse_module(once)))
    assert len([op for op in made.walk() if op.name == "ttarget.ring"]) == len(set(numbers))
    np.testing.assert_array_equal(found, meaning(name))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.lists(st.integers(0, 4), min_size=3, max_size=3))
def test_rings_of_any_numbers_are_kept_or_refused(name: str, drawn: list[int]) -> None:
    """Numbers with gaps, and loads of one ring that nobody waits for together, are refused; others were run above."""
    module = parse_module(_text(name))
    loads = copied(module)
    for op, number in zip(loads, drawn, strict=False):
        op.set_value("ring", number)
    numbers = tuple(drawn[: len(loads)])
    if numbers in APART[name]:
        placed(module)
        return
    with pytest.raises(TesseraError, match="says what does not fit"):
        placed(module)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_copy_is_waited_for_and_every_stage_left_once(name: str) -> None:
    module = placed(parse_module(_text(name)))
    rings = sorted({op.value("ring") for op in copied(module)})
    assert rings == list(range(len(rings)))
    assert sorted(number for op in waiting(module) for number in op.value("releases")) == rings
    assert {number for op in waiting(module) for number in op.value("awaits")} == set(rings)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(PROGRAMS)),
    st.sampled_from(("awaits", "releases")),
    st.integers(0, 3),
    st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True),
)
def test_waits_that_would_not_hold_are_refused(name: str, which: str, at: int, said: list[int]) -> None:
    module = placed(parse_module(_text(name)))
    ops = waiting(module)
    op = ops[at % len(ops)]
    is_right = list(op.value(which)) == said
    op.set_value(which, tuple(said))
    if is_right:
        placed(module)
        return
    with pytest.raises(TesseraError, match="says what does not fit"):
        placed(module)
    with pytest.raises(TesseraError, match="says what does not fit"):
        NvptxBackend(GPUS["sm_90a"]).matrix(only(module))


def test_what_is_chosen_for_tensor_cores_is_not_ignored_elsewhere() -> None:
    """A kernel that no units take, and that says barriers, is refused."""
    (kernel,) = kernels_of(nt, [(70, 200), (72, 200)], np.float32)
    dot = next(op for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttile.dot")
    dot.set_value("awaits", (0,))
    with pytest.raises(TesseraError, match="awaits"):
        NvptxBackend(GPUS["sm_90a"]).matrix(kernel)
