"""Dots on tensor cores of single warps: what kernels become, what is refused, and that the assembler takes them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, bf16, f32, kernel, tile
from tessera.backends.nvptx.bank_lint import conflicts, fragment_wavefronts, row_wavefronts, shared_accesses
from tessera.backends.nvptx.block_model import MMA_SYNC_BLOCKS, contraction_block
from tessera.backends.nvptx.mma.fit import check_fit
from tessera.backends.nvptx.mma.plan import plan_of
from tessera.backends.nvptx.pipeline import MmaChoices
from tessera.backends.nvptx.tensor_cores import GPUS, MMA_SYNC, MMA_SYNC_FEATURES, UnfitError
from tessera.backends.nvptx.text import plain_symbol
from tessera.compiler.compile import compile_tape, lower
from tessera.compiler.options import Options
from tessera.diagnostics.codes import FeatureError, OverrideError
from tessera.ir.base.op import OpError
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.schedule.typed_ops import CallOp
from tessera.ir.target.machine_code import compile_text
from tessera.ir.target.pipeline import check_kernels
from tessera.types.dim import Dim
from tessera.types.machine import AUTOMATIC, PLAIN
from tests.backends.nvptx.kernels import parts_of
from tests.backends.nvptx.matrices import kernels_of, matrix_of, nn, nt, text_of, tn
from tests.backends.nvptx.units import LARGE, PROGRAMS, check_kernel, kernel_of, lower_kernel, of, show_kernel, words_of
from tests.oracles.nvptx_backend import NvptxBackend

OTHERS = ("sm_80", "sm_86", "sm_89", "sm_120a")
"""Machines whose best tensor cores are those of single warps."""


@pytest.mark.parametrize("name", ["nn", "layer", "f32 result", "causal"])
def test_the_assembler_takes_kernels_as_they_are_meant(name: str) -> None:
    """Dots and attention: copies in the background, matrices from shared memory, nothing spilled."""
    lowering = lower_kernel(name, "sm_80")
    assert kernel_of(lowering).name == "ttarget.warp_kernel"
    for word in ("mma.sync.aligned.m16n8k16", "cp.async.cg.shared.global", "ldmatrix.sync.aligned.m8n8.x4"):
        assert word in lowering.texts[0]
    assert "0 bytes spill stores" in words_of(lowering)


@pytest.mark.parametrize("architecture", OTHERS)
def test_the_same_code_is_for_all_machines_without_warpgroups(architecture: str) -> None:
    lowering = lower_kernel("layer", architecture)
    assert kernel_of(lowering).value("features") == MMA_SYNC_FEATURES
    assert kernel_of(lowering).value("shared") <= GPUS[architecture].shared
    if architecture == "sm_89":
        assert "0 bytes spill stores" in words_of(lowering)


def test_the_largest_block_fits_registers() -> None:
    lowering = of(nt, LARGE, "sm_80", overrides={"contraction.block": (256, 128, 64)})
    assert "0 bytes spill stores" in words_of(lowering)


def test_an_operand_across_k_is_transposed_as_it_is_read() -> None:
    """No operand is copied to be transposed: `ldmatrix` does it."""
    for function, turned in ((nt, (False, False)), (nn, (False, True)), (tn, (True, True))):
        lowering = of(function, [(256, 256), (256, 256)], "sm_80")
        text = show_kernel(lowering)
        assert ('lhs_major = "mn"' in text, 'rhs_major = "mn"' in text) == turned
        assert ("x4.trans" in lowering.texts[0]) == any(turned)
        assert text.count("ttarget.copy_async") % 2 == 0


@pytest.mark.parametrize(
    ("dtype", "name"), [(np.float16, "m16n8k16.row.col.f32.f16"), (np.int8, "m16n8k32.row.col.s32.s8")]
)
def test_other_dtypes_have_dots(dtype: Any, name: str) -> None:
    def accumulate(x: Any, w: Any) -> Any:
        return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.i32 if dtype is np.int8 else None)

    lowering = of(accumulate, [(256, 256), (256, 256)], "sm_80", dtype)
    assert f"mma.sync.aligned.{name}" in lowering.texts[0]
    if dtype is np.int8:
        assert "0 bytes spill stores" in words_of(lowering)


def test_f32_has_dots_where_it_was_rounded_to_tf32() -> None:
    """And only there: the low bits of other numbers would be cut off."""
    arrays = [np.zeros((256, 256), np.float32)] * 2
    options = Options.of(backend="cuda", features=("sm_80",))
    plain = lower(ts.jit(nt).trace(*arrays).tape, options)
    asked = lower(ts.jit(nt, policy=ts.compute(ts.tf32)).trace(*arrays).tape, options)
    assert not any("mma.sync" in text for text in plain.texts)
    assert any("m16n8k8.row.col.f32.tf32.tf32.f32" in text for text in asked.texts)
    (written,) = [text for text in map(text_of, asked.targets) if "ttarget.mma_sync" in text]
    broken = written.replace('mode = "tf32"', 'mode = "f32"')
    with pytest.raises(OpError, match="`mode` is tf32 or none"):
        check_kernel(broken)


def test_ragged_edges_are_zeros_that_copies_make() -> None:
    """What is outside is neither read nor tested for again: copies of fewer bytes fill up with zeros."""
    text = of(nt, [(300, 200), (520, 200)], "sm_80").texts[0]
    assert "selp.b32 n" in text
    assert "st.shared.v4.b32" in text  # rows that begin anywhere are put together by threads


@pytest.mark.parametrize(("name", "architecture"), [("layer", "sm_80"), ("full", "sm_80"), ("layer", "sm_100a")])
def test_there_are_no_bank_conflicts(name: str, architecture: str) -> None:
    """Copies, matrices and rows on their way out; without the swizzle up to eight rows would share their banks."""
    kernel = kernel_of(lower_kernel(name, architecture))
    assert len(shared_accesses(kernel)) >= 3
    assert conflicts(kernel) == []
    assert fragment_wavefronts(is_swizzled=False).degree == 8
    assert row_wavefronts(is_swizzled=False).degree == 1


def test_nothing_is_copied_beyond_a_tile() -> None:
    """384 threads copy 48 rows at a time, and 64 rows are not a multiple: the last threads copy nothing, not zeros."""
    lowering = lower_kernel("full", "sm_80", (("attention.queries", 192),))
    assert kernel_of(lowering).value("consumers") == 3
    copies = [line for line in lowering.texts[0].splitlines() if "cp.async.cg" in line]
    assert copies
    for line in copies:
        pieces = [piece.strip() for piece in line.split(";")]
        ends = [piece for piece in pieces if "cp.async.cg" in piece and f"$0 + {48 * 128}]" in piece]
        assert all(piece.startswith("@Q ") for piece in ends) or "$0 + 18432]" in line
        assert ends


def test_one_kernel_takes_empty_operands_too() -> None:
    """There is no second kernel beside it for sums of nothing, as those with TMA descriptors need it.

    One has all of K and one segments of it, which a third kernel joins.
    """

    @ts.jit
    def dot(x: ts.Tensor["M", "K", ts.bf16], w: ts.Tensor["N", "K", ts.bf16]) -> Any:
        return ts.ops.matmul(x, ts.ops.transpose(w))

    arrays = [np.zeros((4, 8), ml_dtypes.bfloat16)] * 2
    one_block = {"contraction.block": (128, 128, 64)}
    options = Options.of(backend="cuda", features=("sm_80",), overrides=one_block)
    lowering = lower(dot.trace(*arrays).tape, options)
    whole, segments, join = lowering.targets
    assert {whole.name, segments.name} == {"ttarget.warp_kernel"}
    assert join.value("symbol").startswith("join_segments_")
    assert {plain_symbol(target.value("symbol")) for target in lowering.targets} == {
        op.kernel for op in lowering.program.walk() if isinstance(op, CallOp)
    }
    assert not any("is_nonempty" in text_of(target) for target in lowering.targets)


# What stands in the IR, and what is refused.


@cache
def dot_text() -> str:
    return show_kernel(of(nt, [(256, 192), (512, 192)], "sm_80", overrides={"contraction.block": (128, 128, 64)}))


@cache
def attention_text() -> str:
    return show_kernel(lower_kernel("full", "sm_80"))


@pytest.mark.parametrize("text", [dot_text, attention_text])
def test_kernels_come_back_from_their_text(text: Any) -> None:
    check_kernel(text())
    assert print_module(parse_module(text())).strip() == text().strip()


def test_copies_are_prefetched_by_as_many_steps_as_there_are_stages_to_spare() -> None:
    """One ring of two stages waits for all of its copies, two rings for all but one iteration of both, less one."""
    assert "ttarget.wait_copies\n" in dot_text()
    assert "stages = 2" in dot_text()
    text = attention_text()
    assert "stages = 4" in text
    assert text.count("ttarget.wait_copies {left = 5}") == 2


def test_a_computed_b_operand_is_left_to_others() -> None:
    (wide_sides,) = kernels_of(nt, [(4096, 4096), (4096, 4096)], dtype=np.float32)
    # Blocks of threads have steps of K that no instruction has, which is the first reason of several.
    with pytest.raises(UnfitError, match="k is 16, and a tile along it is made of whole spans"):
        plan_of(wide_sides, MMA_SYNC)
    lowering = of(nt, [(4096, 4096), (4096, 4096)], "sm_80", np.float32)
    assert kernel_of(lowering).name == "ttarget.kernel"
    (line,) = parts_of(lowering).units
    assert f"{PLAIN} (mma.sync: " in line


FAULTS = {
    "features": ('["cp.async", "ldmatrix", "mma.sync"]', '["mma.sync"]', "the target lacks cp.async, ldmatrix"),
    "no groups": ("consumers = 1", "consumers = 0", "a CTA has 1 to 4 groups of four warps, got 0"),
    "rows": ("consumers = 1", "consumers = 4", "128 rows are not shared by 4 groups"),
    "shared": ("shared = 73728", "shared = 300000", "at most 232448 bytes of shared memory, got 300000"),
    "beyond shared": ("shared = 73728", "shared = 65536", "and the kernel has 65536 shared bytes"),
    "overlap": ("offset = 32768, stages = 2", "offset = 31744, stages = 2", "overlap"),
    "alignment": ("offset = 32768, stages = 2", "offset = 32784, stages = 2", "begins at a multiple of 1024 bytes"),
    "along memory": (
        'axes = ["_m", "_k"], map = [_m, _k], bounds = [-1, 192]',
        'axes = ["_k", "_m"], map = [_m, _k], bounds = [192, -1]',
        "columns of the tile are contiguous in memory, and `_m` walks _m, _k",
    ),
    "strided": ("map = [_m, _k], bounds = [-1, 192]", "map = [_m, 2*_k], bounds = [-1, 192]", "`_k` walks _m, 2*_k"),
    "strided store": (
        "map = [_m, _n], bounds = [-1, -1]",
        "map = [_m, 2*_n], bounds = [-1, -1]",
        "columns of the tile are contiguous in memory, and `_n` walks _m, 2*_n",
    ),
    "negative wait": ("ttarget.wait_copies\n", "ttarget.wait_copies {left = -1}\n", "counts groups of copies, got -1"),
    "too many left": ("ttarget.wait_copies\n", "ttarget.wait_copies {left = 1}\n", "which nobody waited for"),
    "writes": ("writes = [2]", "writes = [1]", "`ttarget.store_rows` writes argument 2 of"),
    "stages": ("stage_after %15 {by = 1, stages = 2}", "stage_after %15 {by = 1, stages = 9}", "1 to 8 stages"),
    "a tile of fewer stages": (
        "offset = 32768, stages = 2",
        "offset = 32768, stages = 1",
        "a copy goes to stage 1, counted from 0, and its tile has 1",
    ),
    "other units": (
        "ttarget.commit_copies\n",
        'ttarget.commit_copies\nttarget.pingpong {mode = "take"}\n',
        "which single warps do not have",
    ),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_a_kernel_that_breaks_a_rule_is_refused(name: str) -> None:
    old, new, message = FAULTS[name]
    text = dot_text()
    if name == "stages":
        (line,) = [line for line in text.splitlines() if "ttarget.stage_after" in line and "yield" not in line][:1]
        old, new = line, line.replace("stages = 2", "stages = 9")
    assert old in text, f"{old} is not in the kernel"
    with pytest.raises(OpError) as caught:
        check_kernel(text.replace(old, new))
    assert message in str(caught.value)


@pytest.mark.parametrize("text", [dot_text, attention_text])
@pytest.mark.parametrize("other", [1, 3, 5])
def test_cursors_wrap_around_as_tiles_have_stages(text: Any, other: int) -> None:
    lines = text().splitlines()
    for at in [at for at, line in enumerate(lines) if "ttarget.stage_after" in line]:
        with pytest.raises(OpError):
            check_kernel(
                "\n".join([*lines[:at], re.sub(r"stages = \d+", f"stages = {other}", lines[at]), *lines[at + 1 :]])
            )


def test_what_a_kernel_declares_to_write_is_written() -> None:
    kept = [line for line in dot_text().splitlines() if "ttarget.store_rows" not in line]
    with pytest.raises(OpError, match="declares that it writes argument 2, and nothing does"):
        check_kernel("\n".join(kept))


STEPS = ("ttarget.commit_copies", "ttarget.wait_copies", "ttarget.copy_async")


@pytest.mark.parametrize("text", [dot_text, attention_text])
def test_a_sequence_that_lacks_one_step_is_refused(text: Any) -> None:
    """Each copy, commit and wait, left out alone, would be a race; all are found."""
    lines = text().splitlines()
    steps = [at for at, line in enumerate(lines) if line.strip().startswith(STEPS)]
    assert len(steps) > 5
    if text is attention_text:
        # What is copied once may be part of the group after it: the first commit does nothing for the order.
        check_kernel("\n".join(lines[: steps[1]] + lines[steps[1] + 1 :]))
        del steps[1]
    for at in steps:
        with pytest.raises(OpError):
            check_kernel("\n".join(lines[:at] + lines[at + 1 :]))


@pytest.mark.parametrize("left", [6, 7, 8, 11, 100])
def test_a_wait_that_leaves_too_much_is_refused(left: int) -> None:
    """Five groups may be left, and one more is what the dot reads; also where so many are never under way."""
    with pytest.raises(OpError, match="a dot reads stage 0, which nobody waited for"):
        check_kernel(attention_text().replace("{left = 5}", f"{{left = {left}}}"))


def test_what_only_a_loop_waits_for_may_not_be_there_after_it() -> None:
    """A loop may have no steps; one that has is known to, and a wait after it settles the matter."""
    lines = dot_text().splitlines()
    (end,) = [at for at, line in enumerate(lines) if line.strip().startswith("}) : ") and "fragment" in line]
    (dot,) = [line for line in lines if "ttarget.mma_sync" in line]
    again = dot.replace("%21 = ttarget.mma_sync %17, %3, %4, %18, %18", "%90 = ttarget.mma_sync %14, %3, %4, %8, %8")
    assert again != dot
    text = "\n".join([*lines[: end + 1], again, *lines[end + 1 :]])
    check_kernel(text)
    text = text.replace(", is_nonempty = true", "")
    with pytest.raises(OpError, match="a dot reads stage 0, which nobody waited for"):
        check_kernel(text)
    check_kernel(text.replace(again, f"ttarget.wait_copies\n{again}"))


def test_a_copy_does_not_go_where_others_read() -> None:
    """Copies of the next step before all warps have met: some may still read what they go to."""
    lines = dot_text().splitlines()
    (wait,) = [at for at, line in enumerate(lines) if "ttarget.wait_copies" in line]
    (dot,) = [at for at, line in enumerate(lines) if "ttarget.mma_sync" in line]
    moved = [*lines[:wait], *lines[wait + 1 : dot], lines[wait], *lines[dot:]]
    with pytest.raises(OpError, match="which other warps may still be reading"):
        check_kernel("\n".join(moved))


# Which machine has what.

GATES = {
    "sm_80": {"cp.async", "ldmatrix", "mma.sync"},
    "sm_90a": {"cp.async", "ldmatrix", "mma.sync", "tma", "mbarrier", "cluster", "wgmma", "setmaxnreg"},
    "sm_100a": {"cp.async", "ldmatrix", "mma.sync", "tma", "mbarrier", "cluster", "tcgen05"},
}
KERNELS = {
    "ttarget.warp_kernel": ("sm_80", "sm_90a", "sm_100a"),
    "ttarget.matrix_kernel": ("sm_90a",),
    "ttarget.tensor_kernel": ("sm_100a",),
}


@pytest.mark.parametrize("name", GATES)
def test_machines_have_the_instructions_of_their_generation(name: str) -> None:
    assert {one for one in GPUS[name].features if not one.startswith("sm_")} == GATES[name]


@pytest.mark.parametrize("machine", GATES)
@pytest.mark.parametrize(
    ("kernel", "units", "architecture"),
    [
        ("ttarget.warp_kernel", "mma.sync", "sm_80"),
        ("ttarget.matrix_kernel", "wgmma", "sm_90a"),
        ("ttarget.tensor_kernel", "tcgen05", "sm_100a"),
    ],
)
def test_a_kernel_goes_to_machines_that_have_what_it_needs(
    kernel: str, units: str, architecture: str, machine: str
) -> None:
    """The same dot on all tensor cores; the exit verifier of every machine takes it or names what is missing."""
    target = kernel_of(of(nt, LARGE, architecture, overrides={"matrix.instruction": units})).clone()
    assert target.name == kernel
    if machine in KERNELS[kernel]:
        check_kernels([target], GPUS[machine])  # type: ignore[list-item]
        return
    with pytest.raises(FeatureError) as caught:
        check_kernels([target], GPUS[machine])  # type: ignore[list-item]
    assert units in str(caught.value)
    best = "tcgen05" if machine == "sm_100a" else "wgmma" if machine == "sm_90a" else "mma.sync"
    assert f"dots run on {best} there" in str(caught.value.fix)


def test_units_that_a_machine_lacks_are_not_a_choice() -> None:
    assert GPUS["sm_80"].matrix_choices == (AUTOMATIC, "mma.sync", PLAIN)
    assert GPUS["sm_90a"].matrix_choices == (AUTOMATIC, "wgmma", "mma.sync", PLAIN)
    assert GPUS["sm_100a"].matrix_choices == (AUTOMATIC, "tcgen05", "mma.sync", PLAIN)
    with pytest.raises(OverrideError, match=r"`matrix\.instruction` cannot be wgmma") as caught:
        of(nt, LARGE, "sm_80", overrides={"matrix.instruction": "wgmma"})
    assert "mma.sync" in str(caught.value.fix)


def test_who_asks_gets_other_units() -> None:
    """On Hopper, dots of warps are there for who asks, and plain multiply-adds too."""
    assert kernel_of(of(nt, LARGE, "sm_90a")).name == "ttarget.matrix_kernel"
    asked = of(nt, LARGE, "sm_90a", overrides={"matrix.instruction": "mma.sync"})
    assert kernel_of(asked).name == "ttarget.warp_kernel"
    assert kernel_of(of(nt, LARGE, "sm_90a", overrides={"matrix.instruction": PLAIN})).name == "ttarget.kernel"


def test_a_machine_without_them_has_no_such_kernels() -> None:
    (kernel,) = kernels_of(nt, PROGRAMS["nt"][1])
    bare = replace(GPUS["sm_80"], features=("sm_80",))
    with pytest.raises(UnfitError, match=r"lacks cp\.async or ldmatrix or mma\.sync"):
        check_fit(kernel, MMA_SYNC, bare)
    assert NvptxBackend(bare).matrix(kernel) is None


def test_a_kernel_that_does_not_fit_two_stages_is_left_to_others() -> None:
    (kernel,) = kernels_of(nt, PROGRAMS["nt"][1], overrides={"contraction.block": (128, 128, 64)})
    with pytest.raises(UnfitError, match="two stages of 32768 bytes do not fit beside 8192 of 65536"):
        check_fit(kernel, MMA_SYNC, replace(GPUS["sm_80"], shared=65536))


@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(1, 9000), st.sampled_from(OTHERS))
def test_blocks_that_are_chosen_fit_the_units(m: int, n: int, k: int, name: str) -> None:
    """Whatever the size, the block is one of the candidates, and its sums fit the registers of whole warps."""
    context = {"machine": GPUS[name], "m": Dim.of(m), "n": Dim.of(n), "k": Dim.of(k), "dtype": ts.bf16}
    block = contraction_block(MMA_SYNC_BLOCKS, context)
    assert block in MMA_SYNC_BLOCKS
    assert MMA_SYNC.groups(block[0], [block[1]]) in (1, 2)


def test_explain_says_which_units_run_what() -> None:
    arrays = [np.zeros(shape, np.float32) for shape in PROGRAMS["ragged"][1]]
    made = compile_tape(ts.jit(nt).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_80",)))
    report = made.metadata["report"]
    assert report["machine"] == "cuda-sm_80, never executed: assembled only"
    (line,) = report["tensor cores"]
    assert f": {PLAIN} (mma.sync: there is no `mma.sync` of f32" in line
    here = compile_tape(ts.jit(nt).trace(*arrays).tape, Options.of(backend="cuda", features=("sm_90a",)))
    assert here.metadata["report"]["machine"] == "cuda-sm_90a"


def test_explain_lists_what_the_machine_approximates() -> None:
    """An epilogue of these kernels has the same short functions as one of Hopper's, and they are listed."""
    lowering = lower_kernel("layer", "sm_80")
    (found,) = parts_of(lowering).approximations().values()
    assert any("gelu_tanh" in text for text in found)


BLOCK = Schedule(block=(128, 64, 64), warps=8)


@kernel.schedule(BLOCK)
def beside(x: KTile["M", "K", bf16], w: KTile["K", "N", bf16], out: KTile["M", 2, "N", bf16]) -> None:
    """A dot into the first of two slots of each row."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for k in tile.range_k(x.shape, T.k):
        acc += tile.dot(tile.load(x, rows=T.m, cols=k), tile.load(w, rows=k, cols=T.n))
    tile.store(out, tile.cast(acc, bf16), T.m, 0, T.n)


def call_kernel(made: Any) -> Any:
    """A function that calls a kernel, which allocates its results itself."""

    def call(x: Any, w: Any) -> Any:
        return made(x, w)

    return call


@pytest.mark.parametrize(("columns", "is_whole"), [(36, False), (40, True)])
def test_rows_that_end_within_a_piece_leave_what_is_behind_them_alone(columns: int, is_whole: bool) -> None:
    """Rows of 2 x 36 begin at multiples of 16 bytes, and 36 columns end at none: no store of 16 bytes is left."""
    lowering = of(call_kernel(beside), [(256, 64), (64, columns)], "sm_80")
    assert "ttarget.store_rows" in show_kernel(lowering)
    parts = parts_of(lowering)
    (code,) = parts.codes
    assert (b"st.global.v4.b32" in compile_text(code.text, parts.backend.code_target)) == is_whole


@pytest.mark.parametrize("architecture", ["sm_80", "sm_100a"])
def test_a_schedule_has_the_stages_that_it_asks_for(architecture: str) -> None:
    """Without one there are four, or as many as fit; two are the least."""
    for asked, wanted in ((2, 2), (3, 3), (5, 5)):
        made = beside.with_schedule(BLOCK.with_stages(asked))
        text = show_kernel(of(call_kernel(made), [(256, 512), (512, 64)], architecture))
        assert f"stages = {wanted}}} : () -> !ttarget.shared_tile<[128, 64], bf16>" in text


def test_kernels_of_users_are_lowered_alike() -> None:
    from tests.backends.nvptx.test_matrix import attention_by_hand, dot_by_hand

    assert kernel_of(of(dot_by_hand, [(256, 128), (128, 512)], "sm_80")).name == "ttarget.warp_kernel"
    shapes = [(2, 256, 128), (2, 384, 128), (2, 384, 128)]
    (kernel,) = kernels_of(attention_by_hand, shapes)
    found = NvptxBackend(GPUS["sm_90a"], MmaChoices("mma.sync")).matrix(kernel)
    assert found is not None
    assert [op.name for op in found.walk()].count("ttarget.mma_sync") == 2
    assert matrix_of(attention_by_hand, shapes).name == "ttarget.matrix_kernel"
