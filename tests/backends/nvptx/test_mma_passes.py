"""Passes that choose for tensor cores change no meaning, choose once, and keep or refuse what a kernel says itself."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import parse_pipeline
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.target.architectures import machine_of
from tessera.ir.tile.interpret import run_kernel
from tests.backends.nvptx.matrices import arrays_of, causal, full, kernels_of, layer, nn, nt, text_of, tn
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_simulator import simulate

E4M3 = ml_dtypes.float8_e4m3fn
PASSES = (
    *("nvptx-select-mma", "nvptx-choose-spaces", "nvptx-swizzle-tiles", "nvptx-place-barriers"),
    "nvptx-pipeline-copies",
    *("nvptx-schedule-programs", "nvptx-specialize-warps", "nvptx-overlap-mma"),
)
WITHOUT_MACHINES = ("nvptx-choose-spaces", "nvptx-swizzle-tiles", "nvptx-place-barriers", "nvptx-specialize-warps")
MACHINES = ("sm_80", "sm_90a", "sm_100a")


def narrow(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.f32)


PROGRAMS: dict[str, tuple[Any, list[tuple[int, ...]], Any]] = {
    "nt": (nt, [(70, 40), (72, 40)], ml_dtypes.bfloat16),
    "nn": (nn, [(70, 72), (72, 136)], ml_dtypes.bfloat16),
    "tn": (tn, [(40, 72), (40, 72)], np.float16),
    "layer": (layer, [(70, 40), (40, 72), (72,)], ml_dtypes.bfloat16),
    "8-bit": (narrow, [(40, 150), (64, 150)], E4M3),
    "full": (full, [(1, 1, 40, 64), (1, 1, 190, 64), (1, 1, 190, 64)], ml_dtypes.bfloat16),
    "causal": (causal, [(1, 1, 70, 64), (1, 1, 190, 64), (1, 1, 190, 64)], ml_dtypes.bfloat16),
    "wide": (nt, [(70, 40), (72, 40)], np.float32),
}


@cache
def kernel_text(name: str) -> str:
    """The one tile kernel of a program."""
    function, shapes, dtype = PROGRAMS[name]
    overrides = {"contraction.block": (64, 64, 128)} if name == "8-bit" else {}
    (kernel,) = kernels_of(function, shapes, dtype, overrides=overrides)
    return text_of(kernel)


def kernel_of(text: str) -> SpecOp:
    (kernel,) = [op for op in parse_module(text).ops if isinstance(op, SpecOp)]
    return kernel


def after(text: str, passes: str) -> str:
    """The text of a kernel after passes; what they leave verifies."""
    module = parse_module(text)
    for one in parse_pipeline(passes):
        one.run(module)
    verify(module)
    return text_of(kernel_of_module(module))


def kernel_of_module(module: ModuleOp) -> SpecOp:
    (kernel,) = [op for op in module.ops if isinstance(op, SpecOp)]
    return kernel


def line(machine: str, count: int = len(PASSES)) -> str:
    """The passes for a machine, up to one of them."""
    return ",".join(name if name in WITHOUT_MACHINES else f'{name}{{machine = "{machine}"}}' for name in PASSES[:count])


def interpret_kernel(text: str) -> Any:
    kernel = kernel_of(text)
    arrays = arrays_of(kernel)
    run_kernel(kernel, arrays, {})
    return arrays[kernel.value("writes")[0]].astype(np.float64)


@cache
def meaning(name: str) -> Any:
    return interpret_kernel(kernel_text(name))


def lower_kernel(text: str, machine: str) -> str:
    """What a kernel becomes on a machine; empty where no tensor cores take it."""
    found = NvptxBackend(GPUS[machine]).matrix(kernel_of(text))
    return "" if found is None else text_of(found)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("machine", MACHINES)
def test_choosing_twice_is_choosing_once_and_changes_no_code(name: str, machine: str) -> None:
    once = after(kernel_text(name), line(machine))
    assert once != kernel_text(name)
    assert after(once, line(machine)) == once
    assert lower_kernel(once, machine) == lower_kernel(kernel_text(name), machine)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(sorted(PROGRAMS)), st.sampled_from(MACHINES), st.integers(1, len(PASSES)))
def test_the_interpreter_gives_the_same_before_and_after(name: str, machine: str, count: int) -> None:
    np.testing.assert_array_equal(interpret_kernel(after(kernel_text(name), line(machine, count))), meaning(name))


def simulate_kernel(text: str) -> Any:
    """What a kernel gives as one for warpgroups."""
    kernel = kernel_of(text)
    arrays = arrays_of(kernel)
    place = kernel.value("writes")[0]
    arrays[place][...] = np.asarray(77).astype(arrays[place].dtype)
    made = NvptxBackend(GPUS["sm_90a"]).matrix(kernel)
    assert made is not None
    assert made.name == "ttarget.matrix_kernel"
    simulate(made, arrays, {})
    return arrays[place].astype(np.float64)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from((8, 16, 32, 64)))
def test_columns_of_an_instruction_are_kept_where_accumulators_are_added_up_outside(columns: int) -> None:
    """Any number of columns that divides them: it says how many sums are on their way at a time."""
    chosen = after(kernel_text("8-bit"), line("sm_90a", 1))
    assert "instruction = [64, 64, 32]" in chosen
    written = chosen.replace("instruction = [64, 64, 32]", f"instruction = [64, {columns}, 32]")
    assert after(written, line("sm_90a")).count(f"instruction = [64, {columns}, 32]") == 1
    np.testing.assert_array_equal(simulate_kernel(written), meaning("8-bit"))


def test_a_kernel_runs_on_the_units_that_it_names() -> None:
    chosen = after(kernel_text("nt"), line("sm_80", 1))
    assert 'unit = "mma.sync"' in chosen
    assert "ttarget.warp_kernel" in lower_kernel(chosen, "sm_90a")
    plain = re.sub(r"(ttile\.dot [^:]*) :", r'\1 {unit = "multiply-adds"} :', kernel_text("nt"))
    assert lower_kernel(kernel_text("nt"), "sm_90a")
    assert not lower_kernel(plain, "sm_90a")


def test_one_kernel_is_for_one_kind_of_units() -> None:
    chosen = after(kernel_text("full"), line("sm_90a", 1))
    mixed = chosen.replace('unit = "wgmma", instruction = [64, 64, 16]', 'unit = "mma.sync"', 1)
    with pytest.raises(TesseraError, match=r"are on mma\.sync and wgmma, and a kernel is for one of them"):
        after(mixed, line("sm_90a", 1))


def place_loads(text: str, at: int, place: str) -> str:
    """A kernel in which an access, counted from 0, says its place: loads first, then stores."""
    lines = text.splitlines()
    numbers = [number for name in ("load", "store") for number, line in enumerate(lines) if f"ttile.{name} " in line]
    lines[numbers[at]] = lines[numbers[at]].replace("{coords", f"{{{place}, coords", 1)
    return "\n".join(lines)


def test_an_a_operand_may_stay_in_registers_and_a_b_operand_may_not() -> None:
    left = place_loads(kernel_text("nn"), 0, 'space = "registers"')
    chosen = after(left, line("sm_90a"))
    assert chosen.count('space = "shared"') == 2
    text = lower_kernel(left, "sm_90a")
    assert "ttarget.pack" in text
    assert text.count("ttarget.copy ") == 1
    np.testing.assert_array_equal(simulate_kernel(left), meaning("nn"))
    right = place_loads(after(kernel_text("nn"), line("sm_90a", 1)), 1, 'space = "registers"')
    with pytest.raises(TesseraError, match="an operand that is computed is transposed, and fragments are not"):
        after(right, line("sm_90a"))


def test_results_leave_element_by_element_where_a_store_says_so() -> None:
    store = place_loads(kernel_text("nt"), -1, 'space = "registers"')
    assert "ttarget.store_tile" in lower_kernel(kernel_text("nt"), "sm_90a")
    assert "ttarget.store_tile" not in lower_kernel(store, "sm_90a")
    np.testing.assert_array_equal(simulate_kernel(store), meaning("nt"))


def test_few_rows_are_copied_whole_where_a_load_says_so() -> None:
    (kernel,) = kernels_of(nt, [(16, 128), (64, 128)], overrides={"contraction.block": (64, 64, 64)})
    text = text_of(kernel)
    assert "box = [16, 64]" in after(text, line("sm_90a"))
    whole = place_loads(text, 0, 'space = "shared", box = [64, 64]')
    assert "{box = [16, 64]}" not in lower_kernel(whole, "sm_90a")
    np.testing.assert_array_equal(simulate_kernel(whole), interpret_kernel(text))


@pytest.mark.parametrize(
    ("at", "place", "text"),
    [
        (0, 'space = "shared", box = [32, 64]', r"`box` is \[32, 64\], and what is copied at a time is \[64, 64\]"),
        (0, 'space = "shared", layout = "columns"', "`layout` is columns, and rows of the tile are contiguous"),
        (-1, 'space = "shared", box = [8, 64]', r"`box` is \[8, 64\], and what is stored at a time is \[64, 64\]"),
        (-1, 'space = "shared", layout = "columns"', "columns are contiguous in memory, and rows leave"),
    ],
)
def test_places_that_do_not_fit_are_refused(at: int, place: str, text: str) -> None:
    written = place_loads(kernel_text("nt"), at, place)
    for passes in (line("sm_90a", 1), line("sm_90a")):
        with pytest.raises(TesseraError, match=text):
            after(written, passes)
    chosen = place_loads(after(kernel_text("nt"), line("sm_90a", 1)), at, place)
    with pytest.raises(TesseraError, match=text):
        after(chosen, "nvptx-choose-spaces")


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(("nt", "8-bit", "causal")), st.integers(1, 8))
def test_any_stages_that_a_loop_says_are_kept(name: str, stages: int) -> None:
    stages = min(stages, 4) if name == "causal" else stages  # no more fit
    written = kernel_text(name).replace("{step", f"{{stages = {stages}, step")
    assert f"stages = {stages}" in after(written, line("sm_90a", 5))
    assert f"stages = {stages}" in lower_kernel(written, "sm_90a")
    np.testing.assert_allclose(simulate_kernel(written), meaning(name), atol=0.06 if name == "causal" else 0)


def test_stages_that_do_not_fit_are_refused_and_not_cut() -> None:
    (kernel,) = kernels_of(nt, [(256, 512), (512, 512)], overrides={"contraction.block": (128, 256, 64)})
    text = text_of(kernel)
    assert "stages = 4" in after(text, line("sm_90a"))
    written = text.replace("{step", "{stages = 7, step")
    text = "7 stages of 49152 bytes do not fit beside all else in 232448, and 4 do"
    for passes in (line("sm_90a"), line("sm_90a", 1)):
        with pytest.raises(TesseraError, match=text):
            after(written, passes)


@pytest.mark.parametrize("machine", ["sm_80", "sm_100a"])
def test_one_stage_is_refused_where_dots_stay_in_flight(machine: str) -> None:
    written = kernel_text("nt").replace("{step", "{stages = 1, step")
    with pytest.raises(TesseraError, match="dots stay in flight over 2 stages at least, and a loop says 1"):
        NvptxBackend(GPUS[machine]).matrix(kernel_of(written))


def saying(text: str, words: str) -> str:
    """A kernel that says how it runs."""
    return text.replace("attributes {symbols", f"attributes {{{words}, symbols", 1)


@cache
def wide_text() -> str:
    """A dot of two rows and two columns of blocks, with steps enough for what follows dots."""
    (kernel,) = kernels_of(nt, [(256, 320), (256, 320)], overrides={"contraction.block": (128, 128, 64)})
    return text_of(kernel)


@cache
def wide_meaning() -> Any:
    return interpret_kernel(wide_text())


@settings(max_examples=5, deadline=None)
@given(st.sampled_from(("persistent", "dynamic")), st.sampled_from((1, 2, 3, 16)), st.booleans(), st.booleans())
def test_any_order_of_programs_gives_the_same(walk: str, group: int, descending: bool, pair: bool) -> None:
    pair = pair and walk == "persistent" and group % 2 == 0
    order = {
        "scheduler": f'"{walk}"',
        "group": group,
        "descending": str(descending).lower(),
        "multicast": str(pair).lower(),
    }
    written = saying(wide_text(), ", ".join(f"{name} = {value}" for name, value in order.items()))
    text = lower_kernel(written, "sm_90a")
    assert ("mailbox" in text) == (walk == "dynamic")
    assert ("multicast = true" in text) == pair
    np.testing.assert_array_equal(simulate_kernel(written), wide_meaning())


def test_programs_of_unequal_length_may_be_taken_in_order() -> None:
    assert "mailbox" in lower_kernel(kernel_text("causal"), "sm_90a")
    written = saying(kernel_text("causal"), 'scheduler = "persistent"')
    assert "mailbox" not in lower_kernel(written, "sm_90a")
    np.testing.assert_allclose(simulate_kernel(written), meaning("causal"), atol=0.06)


PAIR = 'scheduler = "persistent", group = 2, multicast = true'


@pytest.mark.parametrize(
    ("name", "words", "machine", "text"),
    [
        ("full", PAIR, "sm_90a", "clusters share the B operand of one dot, and there are 2"),
        ("8-bit", PAIR, "sm_90a", "clusters need an even number of rows of blocks, and there are 1"),
        ("nt", 'scheduler = "once"', "sm_90a", "on wgmma the scheduler is persistent or dynamic, not once"),
        ("nt", 'scheduler = "persistent"', "sm_80", "on mma.sync the scheduler is once, not persistent"),
        ("full", 'roles = "uniform"', "sm_90a", "an operand that is copied once for each program is copied by a"),
        ("8-bit", 'roles = "uniform"', "sm_90a", "without a producer loops do nothing but add up one dot"),
        ("nt", 'roles = "uniform", epilogue = "beside"', "sm_90a", "what follows the dots is not done beside those"),
        ("nt", 'roles = "uniform", scheduler = "dynamic"', "sm_90a", "without a producer the scheduler is persistent"),
        ("nt", 'roles = "producer"', "sm_80", "kernels on mma.sync copy by all threads, and `roles` is producer"),
        ("full", 'epilogue = "beside"', "sm_90a", "what follows the dots is not done beside those of the next"),
        ("nt", 'epilogue = "after", lag = 2', "sm_90a", "groups of warps begin 0 stages apart at most, not 2"),
    ],
)
def test_what_a_kernel_says_and_cannot_do_is_refused(name: str, words: str, machine: str, text: str) -> None:
    written = saying(kernel_text(name), words)
    with pytest.raises(TesseraError, match=text):
        after(written, line(machine))
    with pytest.raises(TesseraError, match=text):
        lower_kernel(written, machine)


def test_registers_that_a_kernel_says_are_those_of_its_roles() -> None:
    assert "registers = [40, 232]" in lower_kernel(wide_text(), "sm_90a")
    written = saying(wide_text(), 'roles = "producer", registers = [56, 224]')
    assert "registers = [56, 224]" in lower_kernel(written, "sm_90a")
    with pytest.raises(TesseraError, match="take 70656 of 65536"):
        after(saying(wide_text(), 'roles = "producer", registers = [72, 240]'), line("sm_90a"))


def test_registers_are_refused_where_threads_share_them_equally() -> None:
    (kernel,) = kernels_of(nt, [(256, 128), (256, 128)], overrides={"contraction.block": (128, 128, 64)})
    text = text_of(kernel)
    assert "ttarget.tensor_kernel" in lower_kernel(text, "sm_100a")
    with pytest.raises(TesseraError, match="kernels on tcgen05 copy by TMA descriptors, which one thread starts"):
        after(saying(text, 'roles = "uniform"'), line("sm_100a"))
    written = saying(text, 'roles = "producer", registers = [40, 232]')
    for make in (lambda: after(written, line("sm_100a")), lambda: lower_kernel(written, "sm_100a")):
        with pytest.raises(TesseraError, match="threads of kernels on tcgen05 have equal shares of registers"):
            make()


def form_loops(text: str, words: str) -> str:
    """A kernel whose loops say what overlaps."""
    return text.replace("{step", f"{{{words}, step")


@pytest.mark.parametrize("name", ["nt", "causal"])
def test_a_loop_may_run_in_the_order_of_the_program(name: str) -> None:
    assert "left = 1" in lower_kernel(kernel_text(name), "sm_90a")
    written = form_loops(kernel_text(name), 'form = "ordered"')
    assert "left = 1" not in lower_kernel(written, "sm_90a")
    np.testing.assert_allclose(simulate_kernel(written), meaning(name), atol=0.06 if name == "causal" else 0)


def test_groups_of_warps_need_not_start_dots_in_order() -> None:
    (kernel,) = kernels_of(full, [(1, 1, 128, 128), (1, 1, 256, 128), (1, 1, 256, 128)])
    text = text_of(kernel)
    assert "ttarget.pingpong" in lower_kernel(text, "sm_90a")
    written = form_loops(text, 'form = "skewed"')
    assert "ttarget.pingpong" not in lower_kernel(written, "sm_90a")
    assert "pingpong" not in after(written, line("sm_90a"))


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("causal", 'form = "sum"', "a loop says that it is sum, and on wgmma it is skewed or ordered"),
        ("nt", 'form = "skewed"', "a loop says that it is skewed, and on wgmma it is sum or ordered"),
        ("full", 'form = "skewed", pingpong = true', "two groups of warps alternate in starting dots, and there are 1"),
    ],
)
def test_what_a_loop_says_and_cannot_do_is_refused(name: str, words: str, text: str) -> None:
    with pytest.raises(TesseraError, match=text):
        after(form_loops(kernel_text(name), words), line("sm_90a"))


@pytest.mark.parametrize("epilogue", ["beside", "after"])
def test_an_epilogue_is_done_where_a_kernel_says(epilogue: str) -> None:
    written = saying(wide_text(), f'epilogue = "{epilogue}"')
    assert ("ttarget.epilogue" in lower_kernel(written, "sm_90a")) == (epilogue == "beside")
    np.testing.assert_array_equal(simulate_kernel(written), wide_meaning())


def test_groups_of_warps_are_as_far_apart_as_a_kernel_says() -> None:
    (kernel,) = kernels_of(narrow, [(128, 640), (64, 640)], E4M3, overrides={"contraction.block": (128, 64, 64)})
    text = text_of(kernel)
    for lag in (1, 3):
        written = saying(text, f'epilogue = "after", lag = {lag}')
        (found,) = [part for part in lower_kernel(written, "sm_90a").splitlines() if "ttarget.lag" in part]
        assert ("stages = 3" in found) == (lag == 3)
        np.testing.assert_array_equal(simulate_kernel(written), interpret_kernel(text))


def test_a_kernel_that_says_how_it_runs_does_not_run_otherwise() -> None:
    """No units take dots of f32: what it says would be lost."""
    assert not lower_kernel(kernel_text("wide"), "sm_90a")
    for written in (
        saying(kernel_text("wide"), 'scheduler = "persistent"'),
        form_loops(kernel_text("wide"), "stages = 2"),
    ):
        with pytest.raises(TesseraError, match="says what does not fit: wgmma: "):
            lower_kernel(written, "sm_90a")


@pytest.mark.parametrize(
    "words", ['scheduler = "persistent"', "warpgroups = 1", 'roles = "producer"', 'epilogue = "after"']
)
def test_multiply_adds_have_nothing_of_matrix_units(words: str) -> None:
    """Whoever asks for them: the dots themselves, or an override."""
    plain = re.sub(r"(ttile\.dot [^:]*) :", r'\1 {unit = "multiply-adds"} :', kernel_text("nt"))
    text = "says what does not fit: its dots are multiply-adds"
    with pytest.raises(TesseraError, match=text):
        after(saying(plain, words), line("sm_90a"))
    with pytest.raises(TesseraError, match=text):
        after(saying(kernel_text("nt"), words), 'nvptx-select-mma{machine = "sm_90a", units = "multiply-adds"}')


@pytest.mark.parametrize("machine", MACHINES)
def test_operands_in_a_buffer_that_the_kernel_writes_are_not_prefetched(machine: str) -> None:
    text = kernel_text("nt")
    assert "writes = [2]" in text
    assert NvptxBackend(GPUS[machine]).fit_tensor_cores(kernel_of(text)).kernel is not None
    found = NvptxBackend(GPUS[machine]).fit_tensor_cores(kernel_of(text.replace("writes = [2]", "writes = [1, 2]")))
    assert found.kernel is None
    assert "the kernel writes the buffer that it reads" in " ".join(found.reasons)


def test_cpus_refuse_choices_of_tensor_cores() -> None:
    text = kernel_text("nt")
    unit = re.sub(r"(ttile\.dot [^:]*) :", r'\1 {unit = "wgmma"} :', text)
    for written, name in (
        (saying(text, 'scheduler = "persistent"'), "scheduler"),
        (form_loops(text, "stages = 2"), "stages"),
        (unit, "unit"),
    ):
        with pytest.raises(TesseraError, match=f"has `{name}`, and CPUs have no tensor cores"):
            CpuBackend(machine_of(frozenset())).lower(kernel_of(written))
    plain = unit.replace("wgmma", "multiply-adds")
    assert CpuBackend(machine_of(frozenset())).lower(kernel_of(plain)).name == "ttarget.kernel"
