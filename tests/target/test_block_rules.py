"""Blocks, scratch and kernels at every limit of theirs, and one step beyond it."""

from __future__ import annotations

import pytest
from xdsl.ir import Operation

from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.target import typed_ops as ops
from tessera.ir.target.limits import MAX_ARGUMENTS, MAX_SCRATCH, MAX_SIZES
from tessera.ir.target.ops.blocks import SWIZZLES, swizzle_index, why_not_swizzled
from tests.target.test_gpu_limits import gpu_kernel
from tests.target.texts import BUFFER, INDEX, check, check_refused, kernel, load, store

# Kernels of threads.

GPU = "sm_90a"
THREADS = {
    **{f"vector {count}": (gpu_kernel(GPU, vector=count), "") for count in (1, 2, 4, 8, 16)},
    **{
        f"vector {count}": (gpu_kernel(GPU, vector=count), "`vector` is a power of two")
        for count in (0, 3, 5, 9, 17, 32)
    },
    **{f"align {count}": (gpu_kernel(GPU, align=count), "") for count in (0, 4, 8, 16)},
    **{f"align {count}": (gpu_kernel(GPU, align=count), "`align` up to 16 bytes") for count in (1, 2, 5, 9, 17, 32)},
    **{f"{count} warps a row": (gpu_kernel(GPU, warps_per_row=count), "") for count in (0, 1, 2, 11, 16, 32)},
    **{
        f"{count} warps a row": (gpu_kernel(GPU, warps_per_row=count), "loops are shared by 1 to 32 warps")
        for count in (33, 64)
    },
    "rows of two warps": (gpu_kernel(GPU, warps_per_row=4, threads=64), "got 4 warps and programs of 64 threads"),
    "negative shared": (gpu_kernel(GPU, max_shared=-1), "`max_shared` allows -1 bytes"),
    "shared": (gpu_kernel(GPU, 128, max_shared=128), ""),
    "too much shared": (gpu_kernel(GPU, 129, max_shared=128), "its shared scratch alone takes 129"),
    "private beside shared": (
        gpu_kernel(GPU, 192, max_shared=128).replace('space = "shared"', 'space = "private"'),
        "",
    ),
    "registers of a CPU": (
        kernel(max_registers="64"),
        "caps of registers and shared memory are for programs of threads",
    ),
    "shared of a CPU": (kernel(max_shared="64"), "caps of registers and shared memory are for programs of threads"),
    **{f"{count} threads": (gpu_kernel(GPU, threads=count), "") for count in (1, 32, 96, 1024)},
    **{
        f"{count} threads": (gpu_kernel(GPU, threads=count), "one thread, or whole warps of up to 1024 threads")
        for count in (-32, 2, 33, 1056)
    },
    **{f"{count} registers": (gpu_kernel(GPU, max_registers=count), "") for count in (0, 16, 255)},
    **{
        f"{count} registers": (gpu_kernel(GPU, max_registers=count), "`max_registers` is 16 to 255 of a thread")
        for count in (-1, 15, 256)
    },
    "barrier": (gpu_kernel(GPU).replace("ttarget.yield", "ttarget.barrier\nttarget.yield"), ""),
    "barrier of a CPU": (kernel(load(), store(), "ttarget.barrier"), "is for programs of several threads"),
}

# Kernels of any machine.

MANY = ", ".join(f"%a{number}: {BUFFER}" for number in range(MAX_ARGUMENTS - 2))
BOTH = f"%x: {BUFFER}, %y: {BUFFER}"
NAMES = ", ".join(f'"s{number}"' for number in range(MAX_SIZES - 2))


def scratch(name: str, offset: str, shape: str = "[16]", **values: str) -> str:
    given = "".join(f", {key} = {value}" for key, value in values.items())
    return f"%{name} = ttarget.scratch {{offset = {offset}{given}}} : () -> !ttile.buffer<{shape}, f32>"


ROW = {
    "coords": '["j"]',
    "at": "%j",
    "offset": "j",
    "guarded": "[]",
    "bounds": "[]",
    "type": "!ttile.buffer<[16], f32>",
}


def both(one: str, two: str, size: str = "128") -> str:
    """Two parts of scratch."""
    return kernel(scratch("s", one), scratch("t", two), load(), store(), scratch=size)


KERNELS = {
    "as many arguments as there may be": (kernel(arguments=f"{BOTH}, {MANY}"), ""),
    "as many sizes as there may be": (kernel(symbols=f'["M", "N", {NAMES}]'), ""),
    "a size too many": (kernel(symbols=f'["M", "N", "more", {NAMES}]'), f"at most {MAX_SIZES} sizes"),
    "as much scratch as there may be": (kernel(scratch=str(MAX_SCRATCH)), ""),
    "no scratch": (kernel(scratch="0"), ""),
    "an empty body": (kernel().split("  ttarget.programs")[0] + "  ttarget.return\n}", ""),
    **{
        f"a block of {shape}": (
            kernel(load(), store(), f"%c = ttarget.constant {{value = 0}} : () -> !ttarget.vector<{shape}, f32>"),
            words,
        )
        for shape, words in (
            ("[1]", ""),
            ("[]", ""),
            ("[0]", "has sizes of its own"),
            ("[4, M]", "has sizes of its own"),
        )
    },
    "parts side by side": (both("0", "64"), ""),
    "parts side by side, the last first": (both("64", "0"), ""),
    "parts apart": (both("0", "128", "192"), ""),
    "one part twice": (both("0", "0"), "parts of scratch at 0..64 and 0..64 may overlap"),
    "parts that overlap": (
        kernel(scratch("s", "0", "[32]"), scratch("t", "64"), load(), store(), scratch="128"),
        "parts of scratch at 64..128 and 0..128 may overlap",
    ),
    "parts that overlap, the last first": (
        kernel(scratch("t", "64"), scratch("s", "0", "[32]"), load(), store(), scratch="128"),
        "parts of scratch at 0..128 and 64..128 may overlap",
    ),
    "the third part": (
        kernel(scratch("s", "0"), scratch("t", "64"), scratch("u", "0"), load(), store(), scratch="128"),
        "parts of scratch at 0..64 and 0..64 may overlap",
    ),
    "a part that is too long": (both("0", "64", "64"), "a part of scratch ends at 128, and the kernel has 64 bytes"),
    "scratch that is added to": (
        kernel(scratch("s", "0"), load(), store("%s", mode='"add"', **ROW), store(), scratch="64"),
        "`ttarget.store` reads scratch that nothing has written yet",
    ),
    "scratch that is set, and added to": (
        kernel(scratch("s", "0"), load(), store("%s", **ROW), store("%s", mode='"add"', **ROW), store(), scratch="64"),
        "",
    ),
    "an argument that is added to": (kernel(load(), store(mode='"add"')), ""),
}

# Ops that read and write memory in other ways: sorts, dots of blocks, single integers.

KEYS, PLACES = "!ttile.buffer<[16], f32>", "!ttile.buffer<[16], i64>"


def integers(name: str, offset: int) -> str:
    return f"%{name} = ttarget.scratch {{offset = {offset}}} : () -> {PLACES}"


FOUR = (scratch("a", "0"), integers("b", 64), scratch("c", "192"), integers("d", 256))
ZEROS = "%z = ttarget.constant {value = 0} : () -> !ttarget.vector<[16], i64>"
KEYS_SET = store("%a", **ROW)
PLACES_SET = store("%b", **{**ROW, "type": PLACES, "align": "8"}, block="!ttarget.vector<[16], i64>").replace(
    "%v", "%z", 1
)
SORT = f"ttarget.sort %a, %b, %c, %d, %i : ({KEYS}, {PLACES}, {KEYS}, {PLACES}, {INDEX}) -> ()"


def sorting(*middle: str) -> str:
    return kernel(*FOUR, ZEROS, load(), *middle, store(), scratch="384")


def reading(name: str) -> str:
    if name in "ac":
        return load(f"%{name}", **ROW).replace("%v", "%q", 1)
    return load(f"%{name}", **{**ROW, "type": PLACES, "align": "8"}, block="!ttarget.vector<[16], i64>").replace(
        "%v", "%q", 1
    )


def sorting_arguments(writes: str) -> str:
    types = {"x": BUFFER, "y": BUFFER, "a": KEYS, "b": PLACES, "c": KEYS, "d": PLACES}
    arguments = ", ".join(f"%{name}: {type}" for name, type in types.items())
    return kernel(load(), SORT, store(), arguments=arguments, writes=writes)


LHS, RHS, PANELS = "!ttile.buffer<[4, 4], f32>", "!ttile.buffer<[4, 16], f32>", "!ttile.buffer<[320], i8>"
DOT = (
    "{names = [], m = 4, n = 16, k = 4, max_rows = 4, max_k = 4, lhs_offset = 4*_row + _inner_k, "
    "rhs_offset = 16*_inner_k + _col, out_stride = 16, is_fresh = FRESH}"
)


ZERO = (
    "%z = ttarget.constant {value = 0} : () -> !ttarget.vector<[4, 16], f32>\n"
    'ttarget.store %z, %o, %j, %j {coords = ["a", "b"], axes = ["a", "b"], offset = 16*a + b, pattern = "contiguous", '
    f"align = 4}} : (!ttarget.vector<[4, 16], f32>, {RHS}, {INDEX}, {INDEX}) -> ()"
)


def multiplying(fresh: str, lhs: str = "%l", rhs: str = "%r", before: str = "") -> str:
    """A dot into scratch, with panels in scratch."""
    arguments = f"{BOTH}, %l: {LHS}, %r: {RHS}"
    parts = (
        f"%o = ttarget.scratch {{offset = 0}} : () -> {RHS}",
        f"%p = ttarget.scratch {{offset = 256}} : () -> {PANELS}",
        f"%e = ttarget.scratch {{offset = 576}} : () -> {LHS}",
        f"%f = ttarget.scratch {{offset = 640}} : () -> {RHS}",
    )
    dot = (
        f"ttarget.block_dot {lhs}, {rhs}, %o, %p {DOT.replace('FRESH', fresh)} : ({LHS}, {RHS}, {RHS}, {PANELS}) -> ()"
    )
    return kernel(*parts, load(), before, dot, store(), arguments=arguments, scratch="896")


UNWRITTEN = "reads scratch that nothing has written yet"
FETCH = f'%q = ttarget.fetch BUFFER, %i {{coords = ["i"], offset = OFFSET}} : (TYPE, {INDEX}) -> {INDEX}'


def fetching(buffer: str = "%w", type: str = PLACES, offset: str = "i") -> str:
    fetch = FETCH.replace("BUFFER", buffer).replace("TYPE", type).replace("OFFSET", offset)
    arguments = f"{BOTH}, %w: {PLACES}"
    return kernel(integers("s", 0), load(), fetch, store(), arguments=arguments, scratch="128")


OTHERS = {
    "a sort": (sorting(KEYS_SET, PLACES_SET, SORT), ""),
    "a sort of nothing": (sorting(SORT), f"`ttarget.sort` {UNWRITTEN}"),
    "a sort of no keys": (sorting(PLACES_SET, SORT), f"`ttarget.sort` {UNWRITTEN}"),
    "a sort of no indices": (sorting(KEYS_SET, SORT), f"`ttarget.sort` {UNWRITTEN}"),
    **{f"{name} after a sort": (sorting(KEYS_SET, PLACES_SET, SORT, reading(name)), "") for name in "abcd"},
    **{f"{name} before a sort": (sorting(KEYS_SET, PLACES_SET, reading(name), SORT), UNWRITTEN) for name in "cd"},
    "a sort of arguments": (sorting_arguments("[1, 2, 3, 4, 5]"), ""),
    **{
        f"a sort that writes {at}": (
            sorting_arguments(str([one for one in (1, 2, 3, 4, 5) if one != at])),
            f"`ttarget.sort` writes argument {at} of `@k`",
        )
        for at in (2, 3, 4, 5)
    },
    "a fresh dot": (multiplying("true"), ""),
    "a dot that adds to nothing": (multiplying("false"), f"`ttarget.block_dot` {UNWRITTEN}"),
    "a dot that adds to zeros": (multiplying("false", before=ZERO), ""),
    "a dot of nothing": (multiplying("true", lhs="%e"), f"`ttarget.block_dot` {UNWRITTEN}"),
    "a dot by nothing": (multiplying("true", rhs="%f"), f"`ttarget.block_dot` {UNWRITTEN}"),
    "a fetch": (fetching(), ""),
    "a fetch of nothing": (fetching("%s"), f"`ttarget.fetch` {UNWRITTEN}"),
    "a fetch of floats": (fetching("%x", BUFFER), "`ttarget.fetch` reads a buffer of integers"),
    "a fetch by another name": (fetching(offset="q"), "the offset `q` uses ['q']"),
}

# Accesses and scratch.

SHARED = {"space": '"shared"'}


def one_part(offset: str = "0", shape: str = "[16]", size: str = "64", kernel_of: str = "", **values: str) -> str:
    """A part of scratch, in a kernel of threads where there is one."""
    part = scratch("s", offset, shape, **values)
    if kernel_of:
        return kernel_of.replace("ttarget.yield", f"{part}\nttarget.yield").replace("symbols = []", 'symbols = ["N"]')
    return kernel(part, load(), store(), scratch=size)


LINES = "64*((4*N + 63) floordiv 64)"
ROWS_BY_WARPS = gpu_kernel(GPU, warps_per_row=4, scratch=LINES)
ROWS_BY_ONE = gpu_kernel(GPU, scratch=LINES)
DYNAMIC = "has static sizes, got !ttile.buffer<[N], f32>"
SWIZZLED = {**ROW, "type": "!ttile.buffer<[4, 32], f32>"}
ACCESSES = {
    "guarded twice": (kernel(load(guarded='["j", "j"]', bounds="[N, N]"), store()), "every guarded axis is an axis"),
    "no extent": (kernel(load(bounds="[0]"), store()), ""),
    "windows": (kernel(load(windows="[i, M, j, N]"), store()), ""),
    **{
        f"window {text}": (kernel(load(windows=text), store()), words)
        for text, words in (
            ("[q, M]", "the window `q` uses ['q']"),
            ("[i, M, q, N]", "the window `q` uses ['q']"),
            ("[i, M, j, N, q, N]", "the window `q` uses ['q']"),
            ("[i, j]", "the extent of a window `j` uses ['j']"),
            ("[i, M, j, q]", "the extent of a window `q` uses ['q']"),
            ("[i, M, j, N, i, j]", "the extent of a window `j` uses ['j']"),
            ("[i, M, j]", "`windows` are pairs of an expression and an extent, got 3 expressions"),
        )
    },
    "bytes": (kernel(load(align="1"), store(align="1")).replace("f32", "i8"), ""),
    "doubles": (kernel(load(align="8"), store(align="8")).replace("f32", "f64"), ""),
    "a column": (kernel(load(axes='["i"]', guarded="[]", bounds="[]", pattern='"strided"'), store()), ""),
    "every second": (kernel(load(offset="2*j", pattern='"strided"'), store()), ""),
    "all lanes to one, unguarded": (
        kernel(load(), store(offset="N*i", pattern='"uniform"', guarded="[]", bounds="[]")),
        "all lanes of a store would write one element",
    ),
    "all lanes to one of two": (
        kernel(load(), store(offset="N*i", pattern='"uniform"', bounds="[2]")),
        "all lanes of a store would write one element",
    ),
    **{f"pad {pad} of f32": (kernel(load(pad=pad), store()), "") for pad in ("1", "1.5", "true", "-inf")},
    **{
        f"pad {pad} of i32": (kernel(load(pad=pad), store()).replace("f32", "i32"), words)
        for pad, words in (
            ("1", ""),
            ("2.0", ""),
            ("true", ""),
            ("1.5", "is a number of i32"),
            ("inf", "is a number of i32"),
        )
    },
    "dynamic private scratch": (one_part(shape="[N]", size=LINES), ""),
    "scratch of no size": (one_part(shape="[Q]", size="64*N"), "the offset `Q` uses ['Q']"),
    "scratch at no size": (one_part("64*Q", size="64*N"), "the offset `64*Q` uses ['Q']"),
    "scratch before all": (one_part("-64"), "begins at a line of 64 bytes, got -64"),
    "scratch perhaps before all": (one_part("64*N - 128"), "begins at a line of 64 bytes, got 64*N - 128"),
    "scratch in a line": (one_part("32"), "begins at a line of 64 bytes, got 32"),
    "another space": (one_part(space='"constant"'), "`space` is one of private, shared, registers, got constant"),
    "registers of warps that share rows": (one_part(shape="[N]", kernel_of=ROWS_BY_WARPS, space='"registers"'), ""),
    "registers of one warp": (one_part(shape="[N]", kernel_of=ROWS_BY_ONE, space='"registers"'), DYNAMIC),
    "shared memory of warps that share rows": (one_part(shape="[N]", kernel_of=ROWS_BY_WARPS, **SHARED), DYNAMIC),
    "static registers": (one_part(kernel_of=gpu_kernel(GPU, scratch=64), space='"registers"'), ""),
    "swizzled": (one_part(shape="[4, 32]", size="512", swizzle="16", **SHARED), ""),
    "swizzled, written and read": (
        kernel(
            scratch("s", "0", "[4, 32]", swizzle="16", **SHARED),
            load(),
            store("%s", **SWIZZLED),
            load("%s", **SWIZZLED).replace("%v", "%q", 1),
            store(),
            scratch="512",
        ),
        "",
    ),
    "swizzled by three": (
        one_part(shape="[4, 32]", size="512", swizzle="3", **SHARED),
        "`swizzle` is one of 0, 4, 8, 16",
    ),
    "swizzled in private": (one_part(shape="[4, 32]", size="512", swizzle="16"), "`swizzle` orders shared memory"),
    "a swizzled number": (one_part(shape="[]", swizzle="16", **SHARED), "swizzled memory has rows of a static size"),
    "short swizzled rows": (
        one_part(shape="[32, 4]", size="512", swizzle="16", **SHARED),
        "two at least, got 4 elements",
    ),
}
TABLES = {"threads": THREADS, "kernels": KERNELS, "others": OTHERS, "accesses": ACCESSES}


@pytest.mark.parametrize(("table", "case"), [(table, case) for table, rows in TABLES.items() for case in rows])
def test_rules(table: str, case: str) -> None:
    text, words = TABLES[table][case]
    if words:
        assert words in check_refused(text)
    else:
        check(text)


@pytest.mark.parametrize(
    "type", ["!ttile.buffer<[4, M], f32>", "!ttile.buffer<[M, 32], f32>", "!ttile.tile<[4, 32], f32>"]
)
def test_swizzled_memory_of_tiles_has_rows_of_a_static_size(type: str) -> None:
    part = '%s = ttile.scratch {space = "shared", swizzle = 16} : () -> '
    text = 'ttile.kernel @k() attributes {symbols = ["M"], grid = [M], writes = []} {PARTttile.return\n}'
    check(text.replace("PART", f"\n{part}!ttile.buffer<[4, 32], f32>\n"))
    message = check_refused(text.replace("PART", f"\n{part}{type}\n"))
    assert message == f"swizzled memory has rows of a static size, got {type}"


def test_a_fetch_from_swizzled_memory_is_refused() -> None:
    part = '%s = ttarget.scratch {offset = 0, space = "shared", swizzle = 16} : () -> !ttile.buffer<[4, 32], i32>'
    fetch = FETCH.replace("BUFFER", "%s").replace("TYPE", "!ttile.buffer<[4, 32], i32>").replace("OFFSET", "i")
    text = kernel(part, load(), fetch, store(), scratch="512")
    assert check_refused(text) == "`ttarget.fetch` goes through memory in order, and this is swizzled"


@pytest.mark.parametrize(
    ("row", "size"), [(row, size) for row in (1, 2, 3, 4, 6, 8, 16, 32, 48) for size in (1, 2, 4, 8)]
)
@pytest.mark.parametrize("swizzle", [*SWIZZLES, 2, 3, 32])
def test_rows_that_can_be_swizzled(row: int, size: int, swizzle: int) -> None:
    """Pieces of whole elements divide a row into a power of two of them, two at least; no swizzle is always one."""
    pieces = row * size // swizzle if swizzle else 0
    can = (
        swizzle in (4, 8, 16) and swizzle % size == 0 and pieces in (2, 4, 8, 16, 32) and pieces * swizzle == row * size
    )
    why = why_not_swizzled(row, size, swizzle)
    assert (why == "") == (can or swizzle == 0)
    if swizzle in (4, 8, 16):
        assert ("must divide a row" in why) == bool(swizzle % size or row * size % swizzle)


@pytest.mark.parametrize(("row", "piece"), [(8, 1), (8, 2), (16, 4), (32, 4)])
def test_a_swizzle_permutes_pieces_of_a_row_by_its_number(row: int, piece: int) -> None:
    for index in range(row * (row // piece + 3)):
        number, column = divmod(index, row)
        moved = (column // piece ^ number % (row // piece)) * piece + column % piece
        assert swizzle_index(index, row, piece) == number * row + moved


def test_ops_of_kernels_stand_outside_of_them_too() -> None:
    """Where there is no kernel around an op, nothing of one is asked."""
    ops.BarrierOp.create().verify_()
    load_dialects()
    for text, name in ((kernel(SCRATCH_OF_N, scratch="64*N"), "ttarget.scratch"), (kernel(), "ttarget.load")):
        (op,) = [op for op in parse_module(text).walk() if op.name == name]
        alone: Operation = op.clone({operand: operand for operand in op.operands})
        alone.verify_()


SCRATCH_OF_N = scratch("s", "0", "[N]")


def test_memory_in_registers_of_no_kernel_has_static_sizes() -> None:
    load_dialects()
    text = kernel(scratch("s", "0", "[N]", space='"registers"'), scratch="64*N")
    (op,) = [op for op in parse_module(text).walk() if op.name == "ttarget.scratch"]
    with pytest.raises(OpError, match="has static sizes"):
        op.clone().verify_()


def test_loops_have_their_attributes() -> None:
    for op in (ops.LoopOp, ops.TailOp):
        assert op.kinds == {"step": "int", "is_partial": "bool", "unroll": "int"}
        assert {name: value.data for name, value in op.defaults.items()} == {"is_partial": False, "unroll": 1}


# Launches.


def launch(name: str, types: str, arity: int, sizes: str) -> str:
    return f"""
ttile.kernel @outer(%b: {BUFFER}) attributes {{symbols = ["M", "N"], grid = [1], writes = []}} {{
  ttarget.launch %b {{kernel = @{name}, types = {types}, arity = {arity}, sizes = {sizes}}} : ({BUFFER}) -> ()
  ttile.return
}}"""


def test_a_launch_is_of_a_kernel_of_its_module() -> None:
    """Functions of other kinds that have the name are no kernels, and outside of a module there is none."""
    check(launch("outer", f'["{BUFFER}"]', 1, "[4]"))
    load_dialects()
    (outer,) = parse_module(launch("k", f'["{BUFFER}"]', 1, "[4]")).ops
    outer.detach()
    verify(outer)


def test_a_launch_says_of_its_kernel_what_it_is() -> None:
    one = kernel(load(), store("%x"), arguments=f"%x: {BUFFER}", writes="[0]")
    check(one + launch("k", f'["{BUFFER}"]', 2, "[4, 5]"))
    assert "`@k` takes" in check_refused(one + launch("k", '["!ttile.buffer<[M], f32>"]', 2, "[4, 5]"))
    assert "`@k` takes" in check_refused(one + launch("k", f'["{BUFFER}"]', 3, "[4, 5]"))
