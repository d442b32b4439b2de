"""Tiles in lines of 64 and 32 bytes: kernels keep their meaning, no lanes meet in a bank, the assembler takes them."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tessera.backends.nvptx.bank_lint import core_matrix_wavefronts, shared_accesses, swizzled_offset
from tessera.backends.nvptx.tensor_cores import GPUS, SPANS
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.passes import parse_pipeline
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import PROBLEM, assemble_with_words, assembler
from tests.backends.nvptx.lines import BLOCKS, KERNELS, dot, shapes
from tests.backends.nvptx.matrices import BACKEND, arrays_of, causal, full, kernels_of, matrix_of, text_of
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_simulator import simulate

E4M3 = ml_dtypes.float8_e4m3fn
KINDS = {1: 128, 2: 64, 3: 32}
"""Lines by the number that a descriptor has for them (PTX ISA, matrix descriptor format)."""


def tile_kernel(name: str, block: tuple[int, int, int], size: tuple[int, int, int], dtype: Any) -> SpecOp:
    (kernel,) = kernels_of(dot(name, block), shapes(name, *size), dtype)
    return kernel


def lines_of(kernel: SpecOp) -> list[int]:
    """Lines of the operands of dots of a lowered kernel."""
    rings = [op for op in kernel.walk() if op.name == "ttarget.ring"]
    return [tile.owner.value("swizzle") for ring in rings for tile in ring.operands if isinstance(tile.owner, SpecOp)]


def simulate_kernel(kernel: SpecOp) -> tuple[Any, Any]:
    """What a kernel that is lowered leaves, and the dot of what it is given."""
    made = BACKEND.matrix(kernel)
    assert made is not None
    arrays = arrays_of(kernel)
    a, b = (array.astype(np.float64) for array in arrays[:2])
    simulate(made, arrays, {})
    return arrays[2].astype(np.float64), a @ (b.T if a.shape[1] != b.shape[0] else b)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(sorted(KERNELS)),
    st.sampled_from(BLOCKS),
    st.tuples(st.integers(1, 90), st.integers(1, 11), st.integers(1, 17)),
    st.sampled_from((ml_dtypes.bfloat16, np.float16)),
)
def test_dots_of_any_size_keep_their_meaning(
    name: str, block: tuple[int, int, int], size: tuple[int, int, int], dtype: Any
) -> None:
    m, n, k = size[0], 8 * size[1], 8 * size[2] + 8
    if n == k:
        k += 8
    found, wanted = simulate_kernel(tile_kernel(name, block, (m, n, k), dtype))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("K", "line"), [(32, 32), (64, 64), (96, 32), (128, 128)])
def test_single_bytes_have_narrow_lines_too(K: int, line: int) -> None:
    """Where each step is used by itself; sums are walked in whole 128s."""
    for name, told, times in (("parts", line, 2), ("nt", 128, 1)):
        kernel = tile_kernel(name, (64, 64, K), (40, 72, 208), E4M3)
        made = BACKEND.matrix(kernel)
        assert made is not None
        assert lines_of(made) == [told, told]
        found, wanted = simulate_kernel(kernel)
        np.testing.assert_array_equal(found, times * wanted)


def choose_lines(kernel: SpecOp, line: int) -> SpecOp:
    """A tile kernel whose loads say their lines."""
    module = parse_module(text_of(kernel))
    for one in parse_pipeline("nvptx-select-mma,nvptx-choose-spaces"):
        one.run(module)
    for op in module.walk():
        if isinstance(op, SpecOp) and op.name == "ttile.load":
            op.set_value("swizzle", line)
    verify(module)
    (made,) = [op for op in module.ops if isinstance(op, SpecOp)]
    return made


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(sorted(KERNELS)), st.sampled_from(SPANS))
def test_lines_that_a_kernel_asks_for_are_kept_and_change_nothing(name: str, line: int) -> None:
    kernel = choose_lines(tile_kernel(name, (64, 64, 64), (40, 72, 104), ml_dtypes.bfloat16), line)
    made = BACKEND.matrix(kernel)
    assert made is not None
    assert lines_of(made) == [line, line]
    found, wanted = simulate_kernel(kernel)
    np.testing.assert_array_equal(found, wanted)


def test_swizzling_twice_is_swizzling_once() -> None:
    for block in BLOCKS[:4]:
        kernel = tile_kernel("nn", block, (40, 72, 104), ml_dtypes.bfloat16)
        module = parse_module(text_of(kernel))
        passes = parse_pipeline("nvptx-select-mma,nvptx-choose-spaces,nvptx-swizzle-tiles")
        texts: list[str] = []
        for one in (*passes, passes[-1]):
            one.run(module)
            texts.append(str(module))
        assert texts[-1] == texts[-2] != texts[-3]


# What the machine is told.


@pytest.mark.parametrize("head", [16, 32, 48, 80, 96])
def test_heads_that_are_no_whole_spans_run_on_matrix_units(head: int) -> None:
    """Queries and keys are contiguous in the head: the widest lines that divide it; every descriptor says which."""
    kernel = matrix_of(full, [(1, 2, 200, head)] * 3)
    wanted = next(line for line in SPANS if 2 * head % line == 0)
    across = next((line for line in reversed(SPANS) if line >= 2 * head), 128)
    assert lines_of(kernel) == [wanted, wanted, across]
    told = [int(number) % 2**64 >> 62 for number in re.findall(r"or i64 [^,]+, (-?\d{10,})", BACKEND.code(kernel).text)]
    assert {KINDS[kind] for kind in told} == {wanted, across}
    assert [map.swizzle for map in BACKEND.code(kernel).maps][:3] == [wanted, wanted, across]


CASES: dict[str, Any] = {
    **{f"nn {block}": ("nn", block, ml_dtypes.bfloat16) for block in (BLOCKS[1], BLOCKS[7])},
    f"nt {BLOCKS[4]}": ("nt", BLOCKS[4], ml_dtypes.bfloat16),
    "e4m3": ("parts", (64, 64, 32), E4M3),
    "attention": (causal, 96),
}


@pytest.mark.parametrize("name", CASES)
def test_the_assembler_takes_them_without_bank_conflicts(name: str) -> None:
    case = CASES[name]
    if callable(case[0]):
        kernel: SpecOp | None = matrix_of(case[0], [(1, 2, 200, case[1])] * 3)
    else:
        kernel = BACKEND.matrix(tile_kernel(case[0], case[1], (200, 136, 200), case[2]))
    assert kernel is not None
    assert min(lines_of(kernel)) < 128
    reads = [access for access in shared_accesses(kernel) if access.what == "reads swizzled tiles"]
    assert reads
    assert all(access.degree == 1 for access in reads)
    if assembler() is None:
        pytest.skip("there is no ptxas here; the text was written")
    text = assemble_with_words(compile_text(BACKEND.code(kernel).text, BACKEND.code_target), "sm_90a")[1]
    assert not PROBLEM.search(text), text
    assert "0 bytes spill stores" in text


@pytest.mark.parametrize("line", SPANS)
def test_a_line_of_any_width_is_read_without_waiting(line: int) -> None:
    """Every byte has a place of its own, eight lines are in other banks each, and as they are they would not be."""
    places = {swizzled_offset(row, column, line) for row in range(32) for column in range(line)}
    assert places == set(range(32 * line))
    assert core_matrix_wavefronts(line).degree == 1
    assert core_matrix_wavefronts(line, is_swizzled=False).degree == line // 16


# What breaks a rule.


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("shared_tile", 96, "`swizzle` is of lines of 128, 64, 32 bytes, got 96"),
        ("shared_tile", 128, "rows in eights and whole spans of 128 bytes"),
        ("shared_tile", 32, "lines of 64 bytes are copied to a tile with lines of 32"),
        ("tensor_map", 32, "a row of a swizzled box is 32 bytes, got 32 of bf16"),
        ("tensor_map", 48, "`swizzle` is of lines of 128, 64, 32 bytes, got 48"),
    ],
)
def test_lines_that_do_not_fit_are_refused(name: str, value: int, text: str) -> None:
    kernel = matrix_of(full, [(1, 2, 200, 32)] * 3)
    copy = kernel.clone()
    next(op for op in copy.walk() if isinstance(op, SpecOp) and op.name == f"ttarget.{name}").set_value(
        "swizzle", value
    )
    with pytest.raises(OpError, match=re.escape(text)):
        verify(ModuleOp([copy]))


def test_only_warpgroups_read_narrow_lines() -> None:
    """The same block on single warps goes another way, and a kernel that says otherwise is refused."""
    kernel = tile_kernel("nt", (64, 64, 32), (40, 72, 104), ml_dtypes.bfloat16)
    found = NvptxBackend(GPUS["sm_80"]).fit_tensor_cores(kernel)
    assert found.kernel is None
    assert "k is 32, and a tile along it is made of whole spans" in found.reasons[0]
    whole = NvptxBackend(GPUS["sm_80"]).matrix(tile_kernel("nt", (64, 64, 64), (40, 72, 104), ml_dtypes.bfloat16))
    assert whole is not None
    tile = next(op for op in whole.walk() if isinstance(op, SpecOp) and op.name == "ttarget.shared_tile")
    tile.set_value("swizzle", 64)
    with pytest.raises(OpError, match="only warpgroups read lines of 64 bytes"):
        verify(ModuleOp([whole]))
