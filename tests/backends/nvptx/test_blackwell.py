"""Dots in tensor memory: what kernels become, what is refused, and that the assembler takes what never ran."""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.blackwell.emit import instruction
from tessera.backends.nvptx.mma.fit import check_fit
from tessera.backends.nvptx.tensor_cores import GPUS, MIN_TMEM_COLUMNS, TCGEN05, TMEM_COLUMNS, UnfitError, tmem_columns
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.ir.base.op import OpError
from tessera.ir.base.text import parse_module, print_module
from tests.backends.nvptx.kernels import parts_of
from tests.backends.nvptx.matrices import kernels_of, nn, nt, tn
from tests.backends.nvptx.units import LARGE, PROGRAMS, check_kernel, kernel_of, lower_kernel, of, show_kernel, words_of

ORDER = (
    *("tcgen05.alloc", "tcgen05.relinquish_alloc_permit", "tcgen05.mma.cta_group::1.kind::f16"),
    *("tcgen05.commit.cta_group::1.mbarrier::arrive::one", "tcgen05.fence::after_thread_sync"),
    *("tcgen05.ld.sync.aligned.16x256b", "tcgen05.wait::ld", "tcgen05.dealloc"),
)


@pytest.mark.parametrize("name", ["layer", "f32 result", "ragged"])
def test_the_assembler_takes_dots_with_an_epilogue(name: str) -> None:
    lowering = lower_kernel(name, "sm_100a")
    assert kernel_of(lowering).name == "ttarget.tensor_kernel"
    places = [lowering.texts[0].index(word) for word in ORDER if word != "tcgen05.fence::after_thread_sync"]
    assert places == sorted(places)
    assert all(word in lowering.texts[0] for word in ORDER)
    assert "cp.async.bulk.tensor" in lowering.texts[0]
    assert "0 bytes spill stores" in words_of(lowering)


def test_the_widest_dot_fits_registers() -> None:
    """256 columns are shared by two warpgroups, which read 16 of each 32 lanes."""
    lowering = of(nt, LARGE, "sm_100a", overrides={"contraction.block": (128, 256, 64)})
    assert kernel_of(lowering).value("consumers") == 2
    assert "16x256b.x32" in lowering.texts[0]
    assert "0 bytes spill stores" in words_of(lowering)


def test_what_does_not_fit_runs_on_warps_or_by_multiply_adds_with_reasons() -> None:
    """Attention has two dots in one loop; f32 has no dots of tensor cores at all."""
    attention = lower_kernel("causal", "sm_100a")
    assert kernel_of(attention).name == "ttarget.warp_kernel"
    assert "mma.sync (tcgen05: tensor memory takes one dot" in parts_of(attention).units[0]
    plain = of(nt, LARGE, "sm_100a", np.float32)
    assert kernel_of(plain).name == "ttarget.kernel"
    assert "multiply-adds (tcgen05: " in parts_of(plain).units[0]
    assert "; mma.sync: " in parts_of(plain).units[0]


def test_explain_says_that_it_was_never_executed() -> None:
    arrays = [np.zeros(shape, ml_dtypes.bfloat16) for shape in PROGRAMS["ragged"][1]]
    made = compile_tape(ts.jit(nt).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_100a",)))
    report = made.metadata["report"]
    assert report["machine"] == "cuda-sm_100a, never executed: assembled only"
    assert report["tensor cores"][0].endswith(": tcgen05")


@pytest.mark.parametrize(
    ("transposed", "columns", "wanted"),
    [
        ((False, False), 256, 1 << 4 | 1 << 7 | 1 << 10 | 32 << 17 | 8 << 24),
        ((False, True), 128, 1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | 16 << 17 | 8 << 24),
        ((True, True), 64, 1 << 4 | 1 << 7 | 1 << 10 | 1 << 15 | 1 << 16 | 8 << 17 | 8 << 24),
    ],
)
def test_the_instruction_descriptor_has_its_fields(transposed: tuple[bool, bool], columns: int, wanted: int) -> None:
    """Sums of f32, operands of bf16, which of them lie across k, columns in 8s, rows in 16s (PTX ISA, tcgen05.mma)."""
    assert instruction(1, transposed, columns) == wanted


def test_an_operand_across_k_is_in_the_descriptor() -> None:
    for function, transposed in ((nt, (False, False)), (nn, (False, True)), (tn, (True, True))):
        text = show_kernel(of(function, [(256, 256), (256, 256)], "sm_100a"))
        assert ('lhs_major = "mn"' in text, 'rhs_major = "mn"' in text) == transposed


@given(st.integers(1, TMEM_COLUMNS))
def test_columns_are_allocated_as_a_power_of_two(width: int) -> None:
    columns = tmem_columns(width)
    assert width <= columns <= TMEM_COLUMNS
    assert columns >= MIN_TMEM_COLUMNS
    assert columns & (columns - 1) == 0
    assert columns == MIN_TMEM_COLUMNS or columns // 2 < width


@cache
def dot_text() -> str:
    return show_kernel(of(nt, [(256, 192), (512, 192)], "sm_100a", overrides={"contraction.block": (128, 128, 64)}))


def test_kernels_come_back_from_their_text() -> None:
    check_kernel(dot_text())
    assert print_module(parse_module(dot_text())).strip() == dot_text().strip()


FAULTS = {
    "features": ('features = ["tcgen05", "tma"]', 'features = ["tma"]', "the target lacks tcgen05"),
    "few columns": ("columns = 128", "columns = 16", "a power of two from 32 to 512, got 16"),
    "odd columns": ("columns = 128", "columns = 160", "a power of two from 32 to 512, got 160"),
    "many columns": ("columns = 128", "columns = 1024", "a power of two from 32 to 512, got 1024"),
    "too few columns": ("columns = 128", "columns = 64", "64 columns have 128 rows of 64 accumulators"),
    "barrier": ("offset = 204896", "offset = 204892", "begins at a multiple of 8 bytes, got 204892"),
    "other warp": ("ttarget.tensor_dealloc %", "ttarget.tensor_dealloc {warp = 1} %", "and warp 1 frees it"),
    "consumers": ("consumers = 1", "consumers = 0", "1 or 2 warpgroups read tensor memory, got 0"),
    "shared": ("shared = ", "shared = 9", "bytes of shared memory, got 9"),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_kernel_that_breaks_a_rule_is_refused(name: str) -> None:
    old, new, message = FAULTS[name]
    text = dot_text()
    if name == "other warp":
        (line,) = [line for line in text.splitlines() if "tensor_dealloc" in line]
        old, new = line, line.replace(" : (", " {warp = 1} : (")
    assert old in text, f"{old} is not in the kernel"
    with pytest.raises(OpError) as caught:
        check_kernel(text.replace(old, new))
    assert message in str(caught.value)


STEPS = {
    "ttarget.tensor_dealloc": "allocated and never freed",
    "ttarget.tensor_release": "waited for and never released",
    "ttarget.tensor_commit": "a wait for dots that nobody committed never ends",
    "ttarget.tensor_wait": "tensor memory is read while dots in it are not waited for",
    "ttarget.await": "a dot reads a stage that nobody waited for",
    "ttarget.acquire": "a copy goes to a stage that was not acquired",
    "ttarget.copy ": "it would never be full",
    "ttarget.tensor_mma": "before a dot has read it",
}


@pytest.mark.parametrize("name", list(STEPS))
def test_a_sequence_that_lacks_one_step_is_refused(name: str) -> None:
    """Each would be a hang, or a sum that is not done, on a machine that nobody has here."""
    lines = dot_text().splitlines()
    steps = [at for at, line in enumerate(lines) if line.strip().startswith(name)]
    assert steps
    for at in steps:
        with pytest.raises(OpError, match=STEPS[name]):
            check_kernel("\n".join(lines[:at] + lines[at + 1 :]))


@pytest.mark.parametrize("name", ["ttarget.tensor_commit", "ttarget.tensor_release", "ttarget.acquire"])
def test_a_step_that_is_taken_twice_is_refused(name: str) -> None:
    """A barrier would count what nobody waits for."""
    lines = dot_text().splitlines()
    for at in [at for at, line in enumerate(lines) if line.strip().startswith(name)]:
        with pytest.raises(OpError):
            check_kernel("\n".join([*lines[: at + 1], lines[at], *lines[at + 1 :]]))


def test_tensor_memory_is_not_read_after_it_was_freed() -> None:
    lines = dot_text().splitlines()
    (load,) = [line for line in lines if "ttarget.tensor_load" in line]
    (give,) = [at for at, line in enumerate(lines) if "ttarget.tensor_dealloc" in line]
    place = lines.index(load)
    moved = [*lines[:place], lines[give], *lines[place:give], *lines[give + 1 :]]
    with pytest.raises(OpError, match="used after it was freed"):
        check_kernel("\n".join(moved))


def test_other_shapes_are_left_to_others() -> None:
    (small,) = kernels_of(nt, [(256, 192), (512, 192)], overrides={"contraction.block": (64, 64, 64)})
    with pytest.raises(UnfitError, match="one dot of 128 rows by columns in 16s up to 256, got 64 by 64"):
        check_fit(small, TCGEN05, GPUS["sm_100a"])
    with pytest.raises(UnfitError, match="cuda-sm_90a lacks tcgen05 or tma"):
        check_fit(small, TCGEN05, GPUS["sm_90a"])


def test_a_sum_that_begins_with_something_is_left_to_others() -> None:
    """The first dot takes the place of what is in tensor memory."""
    (kernel,) = kernels_of(nt, [(256, 192), (512, 192)], overrides={"contraction.block": (128, 128, 64)})
    started = kernel.clone()
    constants = [op for op in started.walk() if op.name == "ttile.constant"]
    assert constants
    constants[0].set_value("value", 1.0)  # type: ignore[attr-defined]
    with pytest.raises(UnfitError, match="add up one dot from nothing"):
        check_fit(started, TCGEN05, GPUS["sm_100a"])  # type: ignore[arg-type]


def accumulate(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.i32)


def test_integers_run_on_warps_there() -> None:
    lowering = of(accumulate, [(256, 256), (256, 256)], "sm_100a", np.int8)
    assert kernel_of(lowering).name == "ttarget.warp_kernel"


def test_one_source_has_three_lowerings() -> None:
    """The same function for three generations: single warps, warpgroups, tensor memory; no source says which."""
    kernels = {name: kernel_of(of(nt, LARGE, name)) for name in ("sm_80", "sm_90a", "sm_100a")}
    assert {name: kernel.name for name, kernel in kernels.items()} == {
        "sm_80": "ttarget.warp_kernel",
        "sm_90a": "ttarget.matrix_kernel",
        "sm_100a": "ttarget.tensor_kernel",
    }
    for name, kernel in kernels.items():
        assert set(kernel.value("features")) <= set(GPUS[name].features)
