"""Rules of kernels for tensor cores as wholes: what a CTA may have, how roles agree, what warps and columns share."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest

from tessera.backends.nvptx.ops.wgmma_kernel import parts_of, pieces_of
from tessera.ir.base.op import OpError
from tests.backends.nvptx.instructions import Instruction, fragment
from tests.backends.nvptx.test_operand_faults import MATRIX, matrix_kernel
from tests.backends.nvptx.units import check_kernel

INDEX, CURSOR = "!ttile.index", "!ttarget.cursor"
AFTER = f"%c = ttarget.cursor : () -> {CURSOR}\n%d = ttarget.stage_after %c {{stages = 2}} : ({CURSOR}) -> {CURSOR}"


@cache
def text_of(name: str) -> str:
    """A lowered kernel."""
    return str(matrix_kernel(name))


def without_offsets(text: str) -> str:
    """A kernel whose shared memory is still to be laid out, so that parts of it may be of any size."""
    return re.sub(r"(, )?(shared|offset) = \d+(, (?=stages))?", "", text).replace(" {}", "")


def warps(body: str = "", setup: str = "", consumers: int = 1, across: int = 1) -> str:
    """A kernel of warps that does one program."""
    return f"""
ttarget.warp_kernel @k(%x: !ttile.buffer<[64, 64], bf16>) attributes {{symbols = [], grid = [1], writes = [],
    features = ["cp.async", "ldmatrix", "mma.sync"], consumers = {consumers}, warps_n = {across}}} {{
  {setup}
  ttarget.tiles {{grid = [1], group = 1}} ({{
  ^bb0(%i: {INDEX}):
    {body}
    ttarget.yield
  }})
  ttarget.return
}}"""


def tile(columns: int, dtype: str = "f32") -> str:
    return f"%f = ttarget.constant {{value = 0}} : () -> !ttarget.fragment<[64, {columns}], {dtype}>\n"


REDUCED = (
    '%r = ttarget.reduce_rows %f {kind = "sum"} : (!ttarget.fragment<[64, 256], f32>) -> !ttarget.row_vector<[64], f32>'
)
PACKED = "%p = ttarget.pack %f : (!ttarget.fragment<[64, 256], bf16>) -> !ttarget.operand<[64, 256], bf16>"
ACCESS = '{coords = ["m", "n"], axes = ["m", "n"], map = [m, n], bounds = [-1, -1]}'
BUFFER, SHARED = "!ttile.buffer<[64, 64], bf16>", "!ttarget.shared_tile<[64, 64], bf16>"
ELSEWHERE = f"%s = ttarget.scratch {{offset = 0}} : () -> {BUFFER}\n"
TILE = f"%t = ttarget.shared_tile : () -> {SHARED}"
COPY = f"""%c = ttarget.cursor : () -> {CURSOR}
    ttarget.copy_async %t, %c, BUFFER, %i, %i {ACCESS} : ({SHARED}, {CURSOR}, {BUFFER}, {INDEX}, {INDEX}) -> ()
    ttarget.commit_copies"""


def stored(buffer: str, columns: int = 64, staging: str = SHARED, to: str = BUFFER) -> str:
    """A store of rows."""
    given = f"(!ttarget.fragment<[64, {columns}], bf16>, {staging}, {to}, {INDEX}, {INDEX}) -> ()"
    return f"{tile(columns, 'bf16')}ttarget.store_rows %f, %t, {buffer}, %i, %i {ACCESS} : {given}"


def staged(rows: int, columns: int) -> tuple[str, str]:
    """A tile to pass through, and a store through it."""
    staging = f"!ttarget.shared_tile<[{rows}, {columns}], bf16>"
    return stored("%x", staging=staging), f"%t = ttarget.shared_tile : () -> {staging}"


def written(text: str) -> str:
    return text.replace("writes = []", "writes = [0]")


ROWS = "%r = ttarget.constant {value = 0} : () -> !ttarget.row_vector<[64], bf16>\n"
ROW_ACCESS = '{coords = ["m"], axes = ["m"], map = [m, 0], bounds = [-1]}'
ROW_STORE = (
    f"{ROWS}ttarget.fragment_store %r, %x, %i {ROW_ACCESS} : (!ttarget.row_vector<[64], bf16>, {BUFFER}, {INDEX}) -> ()"
)
FULL_STORE = (
    f"{tile(256, 'bf16')}ttarget.fragment_store %f, %x, %i, %i {ACCESS} : "
    f"(!ttarget.fragment<[64, 256], bf16>, {BUFFER}, {INDEX}, {INDEX}) -> ()"
)

WARPS = {
    **{f"{count} groups": (warps(consumers=count), "") for count in (1, 4)},
    **{f"{count} groups": (warps(consumers=count), "a CTA has 1 to 4 groups of four warps") for count in (0, 5)},
    **{f"{count} across": (warps(across=count), "") for count in (1, 2, 4)},
    **{f"{count} across": (warps(across=count), "1, 2, 4 warps stand side by side") for count in (0, 3, 8)},
    "columns of two": (warps(tile(128), across=2), ""),
    "too few columns of two": (warps(tile(64), across=2), "2 warps side by side have multiples of 64 columns each"),
    "columns of four": (warps(tile(256), across=4), ""),
    "too few columns of four": (warps(tile(128), across=4), "4 warps side by side have multiples of 64 columns each"),
    "any columns of one": (warps(tile(8)), ""),
    "whole rows": (warps(tile(256) + REDUCED), ""),
    "shared rows": (warps(tile(256) + REDUCED, across=2), "`ttarget.reduce_rows` needs whole rows, and 2 warps share"),
    "whole operands": (warps(tile(256, "bf16") + PACKED), ""),
    "shared operands": (warps(tile(256, "bf16") + PACKED, across=2), "`ttarget.pack` needs whole rows"),
    "a vector of one": (written(warps(ROW_STORE)), ""),
    "a vector of two": (written(warps(ROW_STORE, across=2)), "a vector is stored by who has it, and 2 warps"),
    "a tile of two": (written(warps(FULL_STORE, across=2)), ""),
    "one stage where there is no tile": (warps(AFTER.replace("stages = 2", "stages = 1")), ""),
    "two stages where there is no tile": (warps(AFTER), "wraps around after 2 stages, and tiles have 1"),
    "two stages": (warps(AFTER, TILE.replace("tile :", "tile {stages = 2} :")), ""),
    "narrow lines": (
        warps(setup="%t = ttarget.shared_tile {swizzle = 64} : () -> !ttarget.shared_tile<[64, 32], bf16>"),
        "only warpgroups read lines of 64 bytes, and others those of 128",
    ),
    "a copy": (warps(COPY.replace("BUFFER", "%x"), TILE), ""),
    "a copy from elsewhere": (warps(ELSEWHERE + COPY.replace("BUFFER", "%s"), TILE), "is no argument of the kernel"),
    "a store": (written(warps(stored("%x"), TILE)), ""),
    "a store elsewhere": (warps(ELSEWHERE + stored("%s"), TILE), "is no argument of the kernel"),
    "a store to what is read": (warps(stored("%x"), TILE), "writes argument 0 of `@k`, which only writes []"),
    "a store of half a span": (written(warps(stored("%x", 32), TILE)), "rows leave in spans of 128 bytes"),
    "a store of two": (written(warps(*staged(128, 64), consumers=2)), ""),
    "staging of one for two": (written(warps(stored("%x"), TILE, consumers=2)), "in all 128 rows"),
    "wide staging": (written(warps(*staged(64, 128))), "each warp has 16 rows of 128 bytes to pass through"),
    "a vector to what is read": (warps(ROW_STORE), "writes argument 0 of `@k`, which only writes []"),
}


@pytest.mark.parametrize("case", WARPS)
def test_kernels_of_warps(case: str) -> None:
    text, words = WARPS[case]
    check(text, words)


def check(text: str, words: str) -> None:
    """Verify, and expect to be refused where there are words."""
    if not words:
        check_kernel(text)
        return
    with pytest.raises(OpError) as caught:
        check_kernel(text)
    assert words in caught.value.message


LAG = "ttarget.lag %6, %26 {stages = 4}"
EPILOGUE = "ttarget.epilogue %46 ({"
LOW = f'%51 = ttarget.index %48 {{names = ["_n"], expr = 256*_n}} : ({INDEX}) -> {INDEX}'

CHANGES: list[tuple[str, tuple[Any, ...], str]] = [
    # Registers and consumers.
    ("nt", ("consumers = 1,", "consumers = 1, registers = [24, 240],"), ""),
    *(("nt", ("consumers = 1,", f"consumers = {count},"), "a CTA has 1 to 3 consumers") for count in (0, 4)),
    ("nt", ("consumers = 1,", "consumers = 3,"), "rows are not shared by 3 consumers in blocks of 64"),
    ("loose", ("stages = 2}", "stages = 3}"), "1 consumers have two staging buffers each, and there are 3"),
    *(
        ("nt", ("consumers = 1,", f"consumers = 1, registers = {registers},"), "multiples of 8 from 24 to 240")
        for registers in ("[40]", "[40, 232, 40]", "[16, 232]", "[40, 248]", "[44, 232]", "[40, 228]")
    ),
    ("beside", ("registers = [40, 232]", "registers = [32, 240]"), ""),
    ("beside", ("registers = [40, 232]", "registers = [40, 240]"), "take 66560, and there are 65536"),
    # Clusters.
    ("pairs", (", multicast = true}", "}"), "half of a tile is copied, and there is no other CTA"),
    *(
        ("pairs", ("grid = [8, 8]", grid), "clusters take two programs along the last axis but")
        for grid in ("grid = [7, 8]", "grid = [M, 8]")
    ),
    ("pairs", ("grid = [8, 8]", "grid = [8]", 1), "clusters take two programs along"),
    ("pairs", ("grid = [8, 8]", "grid = [8, 7]"), ""),
    ("odd pairs", ("group = 10", "group = 5"), "are neighbours in time, in groups of an even number"),
    ("odd pairs", ("group = 10", "group = 10, mailbox = 147584"), "are neighbours in time"),
    # Roles.
    *(
        (name, (old, new, 1), "both roles take the same tiles in the same order")
        for name, old, new in (
            ("nt", "{grid = [2, 2], group = 10}", "{grid = [2, 3], group = 10}"),
            ("nt", "group = 10}", "group = 9}"),
            ("nt", "group = 10}", "group = 10, is_descending = true}"),
            ("causal", "mailbox = 147456}", "mailbox = 147464}"),
        )
    ),
    (
        "beside",
        ("    ttarget.tiles %10", '    ttarget.pingpong {mode = "take"}\n    ttarget.tiles %10'),
        "walks the tiles of",
    ),
    ("nt", ("group = 10}", "group = 0}"), "`group` is at least 1, got 0"),
    ("nt", ("group = 10}", "group = 10, mailbox = 147588}"), "a mailbox begins at a multiple of 8 bytes, got 147588"),
    ("nt", (f"      ttarget.yield %18 : ({CURSOR}) -> ()", "      ttarget.yield", 1), "yields what it carries"),
    ("nt", ("{grid = [2, 2], group", "{grid = [2], group", 1), "takes 1 indices and what is carried"),
    # Consumers that set out one after the other.
    ("apart", (LAG, LAG.replace("4", "5")), ""),
    *(("apart", (LAG, LAG.replace("4", count)), "the last of 2 consumers waits for stage") for count in ("6", "0")),
    (
        "apart",
        (
            "    ttarget.tiles %10",
            f"    {LAG.replace('%26', '%10')} : (!ttarget.ring, {CURSOR}) -> ()\n    ttarget.tiles %10",
        ),
        "and there is one producer",
    ),
    # Epilogues beside the dots of the next program: parts, pieces, and steps enough.
    *(
        ("beside", (EPILOGUE, EPILOGUE.replace("(", f"{{columns = {columns}, pieces = {pieces}}} (")), "")
        for columns, pieces in ((64, 1), (128, 1), (128, 2), (192, 3), (256, 1), (256, 2), (256, 4), (320, 1))
    ),
    *(
        ("beside", (EPILOGUE, EPILOGUE.replace("(", f"{{columns = {columns}}} (")), "in parts of whole 64s of columns")
        for columns in (-64, 0, 32, 96)
    ),
    *(
        (
            "beside",
            (EPILOGUE, EPILOGUE.replace("(", f"{{columns = {columns}, pieces = {pieces}}} (")),
            "pieces are of 16",
        )
        for columns, pieces in ((64, 0), (64, -1), (64, 3), (64, 8), (192, 2), (128, 16))
    ),
    *(("beside", ("expr = 512", f"expr = {end}"), "") for end in (384, 321)),
    *(("beside", ("expr = 512", f"expr = {end}"), "4 pieces run before the waits of as many") for end in (320, 257)),
    (
        "beside",
        ("ttarget.mma_wait {left = 1}", "ttarget.mma_wait {left = 1}\nttarget.mma_wait {left = 1}"),
        "4 pieces run",
    ),
    (
        "beside",
        (
            "%34 = ttarget.index {names = [], expr = 512} : ()",
            f'%34 = ttarget.index %28 {{names = ["n"], expr = n}} : ({INDEX})',
        ),
        "runs beside one loop whose steps are known",
    ),
    (
        "beside",
        (
            "%33 = ttarget.index {names = [], expr = 0} : ()",
            f'%33 = ttarget.index %28 {{names = ["n"], expr = n}} : ({INDEX})',
        ),
        "runs beside one loop whose steps are known",
    ),
    ("beside", (LOW, f'{LOW}\nttarget.pingpong {{mode = "take"}}'), "is not done some columns at a time"),
    ("beside", (LOW, LOW.replace("%48", "%28")), "takes what is another program's by then"),
    (
        "beside",
        (
            "      ttarget.yield %37",
            f"      %z = ttarget.index {{names = [], expr = 0}} : () -> {INDEX}\n      ttarget.yield %37",
        ),
        "is the end of a program, and the next one is known",
    ),
    # Descriptors.
    (
        "nt",
        (
            "%7 = ttarget.tensor_map %0",
            "%s = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[70, 136], bf16>\n%7 = ttarget.tensor_map %s",
        ),
        "a TMA descriptor is of an argument of the kernel",
    ),
    # Tensor memory.
    *(("wide staging", ("consumers = 1", f"consumers = {count}"), "") for count in (1, 2)),
    *(("wide staging", ("consumers = 1", f"consumers = {count}"), "1 or 2 warpgroups read") for count in (0, 3)),
    ("two memories", ("columns = 128", "columns = 256"), ""),
    (
        "two memories",
        ("columns = 128", "columns = 512"),
        "a CTA asks for 768 columns of tensor memory, and there are 512",
    ),
    (
        "wide staging",
        (
            "  ttarget.roles",
            "  %t = ttarget.shared_tile {swizzle = 64} : () -> !ttarget.shared_tile<[64, 32], bf16>\n  ttarget.roles",
        ),
        "only warpgroups read lines of 64 bytes",
    ),
    ("causal", ("writes = [3]", "writes = [2]"), "`ttarget.fragment_store` writes argument 3 of"),
]


@cache
def changed_kernel(name: str) -> str:
    """A lowered kernel, or one that is made from it."""
    if name == "loose":
        return without_offsets(text_of("nt"))
    if name == "odd pairs":
        return text_of("pairs").replace("shared = 147584", "shared = 147632")
    if name in ("wide staging", "two memories"):
        loose = without_offsets(text_of("tensor memory"))
        wide = "!ttarget.shared_tile<[192, 64], bf16>"
        (staging,) = re.findall(r"store_rows %\d+, (%\d+),", loose)
        lines = [
            line.replace("!ttarget.shared_tile<[64, 64], bf16>", wide)
            if f"{staging} = " in line or "store_rows" in line
            else line
            for line in loose.splitlines()
        ]
        loose = "\n".join(lines)
        if name == "wide staging":
            return loose
        memory = "!ttarget.tensor_memory<[128, 128], f32>"
        more = f"%q = ttarget.tensor_alloc {{columns = 256}} : () -> {memory}\n"
        (alloc,) = [line for line in loose.splitlines() if "tensor_alloc" in line]
        (free,) = [line for line in loose.splitlines() if "tensor_dealloc" in line]
        freed = f"ttarget.tensor_dealloc %q : ({memory}) -> ()\n"
        return loose.replace(alloc, more + alloc).replace(free, freed + free)
    return text_of(name)


@pytest.mark.parametrize("name", MATRIX)
def test_lowered_kernels_hold(name: str) -> None:
    check_kernel(text_of(name))


@pytest.mark.parametrize(("name", "change", "words"), CHANGES)
def test_kernels_with_roles(name: str, change: tuple[Any, ...], words: str) -> None:
    text, (old, new) = changed_kernel(name), change[:2]
    assert old in text, f"{old} is not in the kernel"
    changed = text.replace(*change)
    if "grid = [M" in new:
        changed = changed.replace("symbols = []", 'symbols = ["M"]')
    check(re.sub(r"(ttarget\.tiles [^\n]*)multicast = true, ", r"\1", changed), words)


def test_a_wait_that_leaves_more_than_there_is_ends_no_dot() -> None:
    """A dot of the first stage and two of the second, of which a wait may leave four: the first stage is still read."""
    text = text_of("nt")
    (issue,) = [line for line in text.splitlines() if "mma_issue" in line]
    (wait,) = [line for line in text.splitlines() if "mma_wait {left = 1}" in line]
    (release,) = [line for line in text.splitlines() if "ttarget.release %6, %42" in line]
    (advance,) = [line for line in text.splitlines() if "%44 = ttarget.advance" in line]
    later = issue.replace("%41, %41", "%44, %44")
    more = "\n".join(
        [
            f"ttarget.await %6, %44 : (!ttarget.ring, {CURSOR}) -> ()",
            later.replace("%43 =", "%90 =").replace("mma_issue %40", "mma_issue %43"),
            later.replace("%43 =", "%91 =").replace("mma_issue %40", "mma_issue %90"),
        ]
    )
    early = f"ttarget.release %6, %41 : (!ttarget.ring, {CURSOR}) -> ()"
    body = "\n".join([issue, advance, more, wait.replace("left = 1", "left = 4"), early])
    changed = text.replace(advance, "").replace(release, "").replace(wait, "").replace(issue, body)
    check(changed, "a stage is released while a dot in flight reads it")


@pytest.mark.parametrize(
    ("total", "columns", "pieces", "wanted"),
    [
        (256, 64, 1, [(0, 64), (64, 64), (128, 64), (192, 64)]),
        (96, 64, 2, [(0, 32), (32, 32), (64, 32)]),
        (80, 64, 2, [(0, 32), (32, 32), (64, 16)]),
        (200, 128, 1, [(0, 128), (128, 72)]),
        (200, 128, 2, [(0, 64), (64, 64), (128, 64), (192, 8)]),
    ],
)
def test_pieces_of_an_epilogue(total: int, columns: int, pieces: int, wanted: list[tuple[int, int]]) -> None:
    from tessera.backends.nvptx import typed_ops as ops

    values = {"columns": columns, "pieces": pieces}
    op = Instruction(ops.EpilogueOp, (fragment(64, total),), (), values).build()
    assert pieces_of(op) == wanted
    assert parts_of(op) == [(at, min(columns, total - at)) for at in range(0, total, columns)]
