"""Kernels that ask for what no machine has, or that do not fit their own parts, are refused with the reason."""

from __future__ import annotations

import pytest

from tessera.backends.cpu.compile import CpuBackend
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.diagnostics.codes import TargetVerifyError
from tessera.ir.base.op import SpecOp
from tessera.ir.target.limits import (
    FEATURES,
    MAX_ARGUMENTS,
    MAX_REGISTERS,
    MAX_SCRATCH,
    WARP,
    WIDTHS,
    registers_of,
    width_for,
    widths_of,
)
from tessera.ir.tile.language import TileBuilder, TileRegion
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.machine import Machine
from tessera.types.shape import TensorType
from tests.backends.cpu.native import machines
from tests.oracles.nvptx_backend import NvptxBackend
from tests.target.texts import BUFFER, INDEX, LINE, check, check_refused, kernel, load, store

WIDE = '["avx2", "avx512f"]'
BOTH = f"%x: {BUFFER}, %y: {BUFFER}"
MANY = ", ".join([BOTH, *(f"%a{number}: {BUFFER}" for number in range(MAX_ARGUMENTS - 1))])
LOOP = f"ttarget.loop %j, %j {{step = 0}} ({{\n^bb0(%q: {INDEX}):\nttarget.yield\n}}) : ({INDEX}, {INDEX}) -> ()"
NOTHING = "  ttarget.programs {grid = []} ({\n    ttarget.yield\n  })\n  ttarget.return"
SCRATCH = f"%s = ttarget.scratch {{offset = 0}} : () -> {BUFFER}"

REFUSED = {
    "width": (kernel(lanes="7"), "`lanes` is one of [4, 8, 16, 32], got 7"),
    "too wide": (kernel(lanes="32", features=WIDE), "32 lanes need the feature sm_80"),
    "warp without threads": (
        kernel(lanes="32", features='["sm_80"]'),
        "a program has threads where lanes are those of a warp, got 0 threads of 32 lanes",
    ),
    "feature of a newer GPU": (
        kernel(lanes="32", features='["sm_80", "wgmma"]'),
        "the feature wgmma comes with sm_90a, which is missing",
    ),
    "wide without feature": (kernel(lanes="16"), "16 lanes need the feature avx512f"),
    "half without feature": (kernel(features='["fma"]'), "8 lanes need the feature avx2"),
    "narrow without feature": (kernel(lanes="4"), "4 lanes need the feature sse2"),
    "unknown feature": (kernel(features='["avx2", "neon"]'), "there is no feature `neon`"),
    "feature without its base": (
        kernel(features='["avx2", "avx512bw"]'),
        "the feature avx512bw comes with avx512f, which is missing",
    ),
    "feature twice": (kernel(features='["avx2", "avx2"]'), "a feature is named twice in ['avx2', 'avx2']"),
    "too many arguments": (
        kernel(arguments=MANY),
        f"a kernel takes at most {MAX_ARGUMENTS} buffers, got {MAX_ARGUMENTS + 1}",
    ),
    "no buffer": (kernel(arguments=f"{BOTH}, %z: {INDEX}"), f"argument 2 of `@k` is {INDEX}, not a buffer"),
    "sizes of an argument": (
        kernel(arguments=f"{BOTH}, %z: !ttile.buffer<[K], f32>"),
        "argument 2 is !ttile.buffer<[K], f32>, and the kernel is not given ['K']",
    ),
    "a size twice": (
        kernel(symbols='["M", "N", "N"]'),
        "a kernel takes at most 1024 sizes, each of a name of its own, got ['M', 'N', 'N']",
    ),
    "writes what is not there": (kernel(writes="[1, 2]"), "`writes` names arguments 0..1, got [1, 2]"),
    "writes twice": (kernel(writes="[1, 1]"), "`writes` is sorted and names no argument twice, got [1, 1]"),
    "writes in no order": (kernel(writes="[1, 0]"), "`writes` is sorted and names no argument twice, got [1, 0]"),
    "writes what nothing stores": (
        kernel(writes="[0, 1]"),
        "`@k` declares that it writes argument 0, and nothing does",
    ),
    "scratch too large": (
        kernel(scratch=str(MAX_SCRATCH + 64)),
        f"a thread has at most {MAX_SCRATCH} bytes of scratch, got {MAX_SCRATCH + 64}",
    ),
    "scratch below zero": (kernel(scratch="-64"), f"a thread has at most {MAX_SCRATCH} bytes of scratch, got -64"),
    "scratch maybe below zero": (
        kernel(scratch="64*N - 64"),
        "the size of scratch is 64*N - 64, which may be negative",
    ),
    "scratch of unknown size": (
        kernel(scratch="64*K"),
        "the size of scratch uses ['K'], which the kernel is not given",
    ),
    "scratch in part lines": (kernel(scratch="4*N"), "scratch is whole lines of 64 bytes, got 4*N"),
    "part of scratch outside": (
        kernel(SCRATCH, load(), store(), store("%s"), scratch="64*N"),
        "a part of scratch ends at 64*((4*M*N + 63) floordiv 64), and the kernel has 64*N bytes",
    ),
    "part of scratch off a line": (
        kernel(f"%s = ttarget.scratch {{offset = 16}} : () -> {BUFFER}", load(), store()),
        "a part of scratch begins at a line of 64 bytes, got 16",
    ),
    "scratch read first": (
        kernel(SCRATCH, load("%s"), store(), scratch="64*((4*M*N + 63) floordiv 64)"),
        "`ttarget.load` reads scratch that nothing has written yet",
    ),
    "grid of unknown size": (kernel(grid="[K]"), "the extent `K` uses ['K'], and what is known is ['M', 'N']"),
    "grid of two axes": (kernel(grid="[M, N]"), "a program takes 2 indices, one per axis of the grid"),
    "block without sizes": (
        kernel(load(block="!ttarget.vector<[N], f32>"), store(block="!ttarget.vector<[N], f32>")),
        "a block in registers has sizes of its own, got !ttarget.vector<[N], f32>",
    ),
    "block too large": (
        kernel(load(), store(), "%c = ttarget.constant {value = 0} : () -> !ttarget.vector<[64, 256], f32>"),
        "!ttarget.vector<[64, 256], f32> takes 2048 registers, and code is written for 1024 at most",
    ),
    "loop without step": (
        kernel(load(), store(), LOOP),
        "`step` must be positive, got 0",
    ),
    "two bodies": (
        kernel().replace("  ttarget.return", NOTHING),
        "`@k` is programs or one contraction, got ttarget.programs, ttarget.programs",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, message = REFUSED[case]
    assert check_refused(text) == message


def test_there_are_enough_of_them() -> None:
    assert len(REFUSED) >= 15


@pytest.mark.parametrize("lanes", [width.lanes for width in WIDTHS if width.lanes != WARP])
def test_every_width_is_accepted_with_its_feature(lanes: int) -> None:
    (needs,) = (width.needs for width in widths_of(lanes))
    features = [name for name in ("avx2", needs) if name == needs or FEATURES[needs] == name]
    check(kernel(lanes=str(lanes), features=str(sorted(set(features))).replace("'", '"')))


def test_the_widths_are_those_of_the_machines() -> None:
    for machine in machines():
        width = width_for(machine.lanes, machine.features)
        assert width is not None
        assert machine.registers == width.registers
        assert set(machine.features) <= FEATURES.keys()


def test_scratch_and_rows_of_it_are_accepted() -> None:
    body = (SCRATCH, load(), store("%s"), f"%w = {load('%s').split(' = ', 1)[1]}", store())
    check(kernel(*body, scratch="64*((4*M*N + 63) floordiv 64)"))


@pytest.mark.parametrize(
    ("sizes", "lanes", "count"), [((16,), 8, 2), ((3, 16), 16, 3), ((), 8, 1), ((6,), 4, 6), ((4, 2), 8, 4)]
)
def test_registers_of_a_block(sizes: tuple[int, ...], lanes: int, count: int) -> None:
    assert registers_of(sizes, lanes) == count


def large(rows: int, columns: int) -> SpecOp:
    """One tile of a matrix, doubled."""
    type = TensorType.of([rows, columns], f32)
    b = TileBuilder("large", [type, type], symbols=[], grid=[1], writes=[1], kind="map")
    zero = b.index(0)
    region = TileRegion({"i": zero, "j": zero}, ("i", "j"), (rows, columns))
    at = [Dim.symbol("i"), Dim.symbol("j")]
    x = b.load(b.arguments[0], at, region)
    b.store(b.elementwise("add", x, x), b.arguments[1], at, region)
    return b.finish()


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_a_tile_that_no_registers_hold_is_refused_with_the_numbers(machine: Machine) -> None:
    backend = CpuBackend(machine)
    most = MAX_REGISTERS * machine.registers
    backend.lower(large(most, machine.lanes))
    with pytest.raises(TargetVerifyError, match=f"takes {2 * most} registers, and code is written for {most} at most"):
        backend.lower(large(2 * most, machine.lanes))


def test_a_thread_of_a_gpu_has_2048_elements_of_a_block_and_no_more() -> None:
    backend = NvptxBackend(GPUS["sm_90a"])
    backend.lower(large(512, 1024))
    with pytest.raises(TargetVerifyError, match=r"takes 4096 registers of each of 256 threads, .* for 2048 at most"):
        backend.lower(large(1024, 1024))


def test_the_plain_copy_is_accepted() -> None:
    check(kernel())
    assert LINE in kernel()
