"""Accesses, kernels and loops of Tile IR: each rule of their verifiers at its limit and one beyond it."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.ir import Block

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX
from tessera.ir.tile.choices import BOXES, LINES, MAX_STAGES
from tessera.ir.tile.ops.access import ATOMIC
from tessera.types.dim import Dim
from tests.ir.base.verdicts import op_of, refusal_of, type_of

ROW, N = Dim.symbol("i"), Dim.symbol("N")
LINE = {"coords": ("i",), "axes": ("i",), "map": (ROW,), "bounds": (N,)}
SHARED = {**LINE, "space": "shared"}
MATRIX = {"coords": ("i", "j"), "axes": ("i", "j"), "map": (ROW, Dim.symbol("j")), "bounds": (N, N), "space": "shared"}
WIDEST, BOX = max(LINES), max(BOXES)
LOAD, STORE, TILES = "f32{N} index -> f32[8]", "f32[8] f32{N} index ->", "f32{N,N} index index -> f32[8,8]"

Case = tuple[str, str, dict[str, Any], str]
"""An op, its signature, its attributes, and what is said of it: nothing where it is right."""

ACCESSES: list[Case] = [
    ("load", LOAD, LINE, ""),
    ("store", STORE, LINE, ""),
    *(("load", LOAD, {**LINE, "bounds": (Dim.constant(extent),)}, "") for extent in (-1, 0, 1)),
    ("load", LOAD, {**LINE, "bounds": (Dim.constant(-2),)}, "is not negative, or -1 for none, got ['-2']"),
    ("load", LOAD, {**LINE, "bounds": ()}, "has 0 bounds for 1 axes"),
    ("load", LOAD, {**LINE, "bounds": (N, N)}, "has 2 bounds for 1 axes"),
    ("store", STORE, {**LINE, "bounds": (N, N)}, "has 2 bounds for 1 axes"),
    ("load", LOAD, {**LINE, "map": (ROW, ROW)}, "has a map of 2 expressions into a buffer of rank 1"),
    ("load", LOAD, {**LINE, "map": ()}, "has a map of 0 expressions into a buffer of rank 1"),
    ("load", "f32[8] index -> f32[8]", LINE, "takes a buffer, got !ttile.tile<[8], f32>"),
    ("store", "f32[8] f32[8] index ->", LINE, "takes a buffer, got !ttile.tile<[8], f32>"),
    ("load", "f32{N} index -> f32{8}", LINE, "works on tiles"),
    ("store", "f32{8} f32{N} index ->", LINE, "works on tiles"),
    ("load", "f32{N} -> f32[8]", LINE, "names 1 indices and has 0"),
    ("store", "f32[8] f32{N} ->", LINE, "names 1 indices and has 0"),
    ("load", "f64{N} index -> f32[8]", LINE, "moves f32 and the buffer holds f64"),
    ("store", "f32[8] f64{N} index ->", LINE, "moves f32 and the buffer holds f64"),
    ("load", "f32{N} index -> f32[N]", LINE, "a tile has static sizes, got [N]"),
    ("load", "f32{N} index i64[8] -> f32[8]", {**LINE, "map": (Dim.symbol("t0"),)}, ""),
    ("load", "f32{N} index i64[4] -> f32[8]", LINE, "not integers of shape [8]"),
    ("load", "f32{N} index f32[8] -> f32[8]", LINE, "not integers of shape [8]"),
    ("load", "f32{N} index i64{8} -> f32[8]", LINE, "not integers of shape [8]"),
    ("load", LOAD, {**LINE, "windows": (ROW, N)}, ""),
    ("load", LOAD, {**LINE, "windows": (ROW,)}, "`windows` are pairs"),
    ("load", LOAD, {**LINE, "windows": (ROW, N, ROW)}, "`windows` are pairs"),
    *(("store", f"{dtype}[8] {dtype}{{N}} index ->", {**LINE, "mode": "atomic_add"}, "") for dtype in ATOMIC),
    ("store", "bf16[8] bf16{N} index ->", {**LINE, "mode": "atomic_add"}, "atomics take f32"),
    ("store", "bf16[8] bf16{N} index ->", {**LINE, "mode": "add"}, ""),
    ("store", STORE, {**LINE, "mode": "sub"}, "`mode` is one of"),
    ("fetch", "i32{N} index -> index", {"coords": ("i",), "map": (ROW,)}, ""),
    ("fetch", "i32{N} index -> index", {"coords": ("i",), "map": ()}, "a map of 0 expressions into a buffer of rank 1"),
    ("fetch", "f32{N} index -> index", {"coords": ("i",), "map": (ROW,)}, "reads a buffer of integers"),
    ("fetch", "i32[8] index -> index", {"coords": ("i",), "map": (ROW,)}, "reads a buffer of integers"),
    ("fetch", "i32{N} -> index", {"coords": ("i",), "map": (ROW,)}, "names 1 indices and has 0"),
    ("fetch", "i32{N} index i32[8] -> index", {"coords": ("i",), "map": (ROW,)}, "takes one index for each name"),
]
SPACES: list[Case] = [
    *(("load", LOAD, {**LINE, "space": space}, "") for space in ("", "shared", "registers")),
    ("load", LOAD, {**LINE, "space": "texture"}, "`space` is one of shared, registers, got texture"),
    ("store", STORE, {**LINE, "space": "texture"}, "`space` is one of shared, registers, got texture"),
    *(("load", TILES, {**MATRIX, "layout": layout}, "") for layout in ("rows", "columns")),
    ("load", TILES, {**MATRIX, "layout": "diagonal"}, "`layout` is one of rows, columns, got diagonal"),
    ("load", TILES, {**MATRIX, "layout": "rows", "space": "registers"}, "are those of shared memory"),
    ("load", TILES, {**MATRIX, "swizzle": WIDEST, "space": ""}, "are those of shared memory"),
    ("load", TILES, {**MATRIX, "box": (8, 8), "space": ""}, "and `space` is not chosen"),
    ("load", LOAD, {**SHARED, "layout": "rows"}, "a tile of 1 dims has no rows"),
    *(("load", TILES, {**MATRIX, "swizzle": line}, "") for line in LINES),
    ("load", TILES, {**MATRIX, "swizzle": WIDEST + 1}, f"bytes are swizzled, got {WIDEST + 1}"),
    ("load", TILES, {**MATRIX, "box": (1, BOX)}, ""),
    ("load", TILES, {**MATRIX, "box": (1, BOX + 1)}, f"`box` has 1 to {BOX} elements along each of 2 dims"),
    ("load", TILES, {**MATRIX, "box": (0, 8)}, f"`box` has 1 to {BOX} elements along each of 2 dims"),
    ("load", TILES, {**MATRIX, "box": (8,)}, "along each of 2 dims, got [8]"),
    ("load", LOAD, {**LINE, "windows": (ROW, N), "space": "shared", "box": (8, 8)}, ""),
    ("load", LOAD, {**LINE, "windows": (ROW, N), "space": "shared", "box": (8,)}, "along each of 2 dims, got [8]"),
    ("load", TILES, {**MATRIX, "box": (8, WIDEST // 4), "swizzle": WIDEST}, ""),
    ("load", TILES, {**MATRIX, "box": (8, 4), "swizzle": WIDEST}, "`box` has 4 elements of f32 in one"),
    ("load", LOAD, {**SHARED, "ring": 0}, ""),
    ("load", LOAD, {**LINE, "ring": -1}, ""),
    ("load", LOAD, {**SHARED, "ring": -2}, "a `ring` is the number of one in shared memory, got -2"),
    ("load", LOAD, {**LINE, "ring": 0}, "a `ring` is the number of one in shared memory, got 0"),
    ("load", LOAD, {**SHARED, "stages": MAX_STAGES}, ""),
    ("load", LOAD, {**SHARED, "stages": MAX_STAGES + 1}, f"there are 1 to {MAX_STAGES} stages"),
    ("load", LOAD, {**SHARED, "stages": -1}, f"there are 1 to {MAX_STAGES} stages"),
    ("load", LOAD, {**LINE, "stages": 1}, "`stages` are those of a load to shared memory"),
    ("scratch", "-> f32{N}", {}, ""),
    ("scratch", "-> f32{N}", {"space": "shared"}, ""),
    ("scratch", "-> f32{N}", {"space": "global"}, "`space` is one of private, shared, got global"),
    ("scratch", "-> f32{8,32}", {"space": "shared", "swizzle": 16}, ""),
    ("scratch", "-> f32{8,32}", {"space": "shared", "swizzle": 12}, "`swizzle`"),
]


@pytest.mark.parametrize("case", [*ACCESSES, *SPACES], ids=lambda case: f"{case[0]} {case[1]} {case[3]}"[:80])
def test_each_rule_of_an_access_is_said(case: Case) -> None:
    name, signature, values, said = case
    found = refusal_of(op_of(f"ttile.{name}", signature, values))
    assert said in found if said else not found, found


# Loops.


def loop(carried: str = "", body: str | None = None, results: str | None = None, **values: Any) -> SpecOp:
    """A loop that carries values of these types; its body takes and yields them, or others."""
    taken = [INDEX, *(type_of(text) for text in (carried if body is None else body).split())]
    block = Block(arg_types=taken)
    block.add_op(make("ttile.yield", block.args[1:], types=()))
    signature = f"index index {carried} -> {carried if results is None else results}"
    return op_of("ttile.for", signature, {"step": 1, **values}, [block])


AHEAD = f"a loop has 1 to {MAX_STAGES} stages"
LOOPS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"carried": "f32[4] i32[]"}, ""),
    ({"step": 0}, "`step` must be positive, got 0"),
    ({"prefetch": 0, "buffers": 0}, ""),
    ({"prefetch": 3}, ""),
    ({"prefetch": -1}, "`prefetch` counts steps ahead, got -1"),
    ({"prefetch": 0, "buffers": 1}, ""),
    ({"prefetch": 1, "buffers": 2}, ""),
    ({"prefetch": 2, "buffers": 2}, "2 buffers hold what is copied up to 1 steps ahead, and `prefetch` is 2"),
    ({"prefetch": 1, "buffers": 1}, "1 buffers hold what is copied up to 0 steps ahead, and `prefetch` is 1"),
    *(({"stages": stages}, "") for stages in (0, 1, MAX_STAGES)),
    ({"stages": -1}, AHEAD),
    ({"stages": MAX_STAGES + 1}, AHEAD),
    *(({"form": form}, "") for form in ("", "sum", "skewed", "ordered")),
    ({"form": "late"}, "`form` is one of sum, skewed, ordered, got late"),
    ({"form": "skewed", "pingpong": True}, ""),
    ({"form": "sum", "pingpong": True}, "`pingpong` is that of a skewed loop, and `form` is sum"),
    ({"awaits": (0, 1), "releases": (1,)}, ""),
    ({"awaits": (0, -1)}, "`awaits` are numbers of rings, each once, got [0, -1]"),
    ({"releases": (1, 1)}, "`releases` are numbers of rings, each once, got [1, 1]"),
    ({"carried": "f32{N}"}, "a loop carries tiles, not memory"),
    ({"carried": "f32[4] f32{N}"}, "a loop carries tiles, not memory"),
    ({"carried": "f32[4]", "body": "f32[8]"}, "the body of a loop takes its index and what it carries"),
    ({"carried": "f32[4]", "body": ""}, "the body of a loop takes its index and what it carries"),
    ({"carried": "f32[4]", "results": "f32[8]"}, "a loop gives what it carries"),
    ({"carried": "f32[4]", "results": ""}, "a loop gives what it carries"),
]


@pytest.mark.parametrize(("values", "said"), LOOPS, ids=str)
def test_each_rule_of_a_loop_is_said(values: dict[str, Any], said: str) -> None:
    found = refusal_of(loop(**values))
    assert said in found if said else not found, found


def test_a_loop_runs_from_an_index_to_an_index() -> None:
    block = Block(arg_types=[INDEX])
    block.add_op(make("ttile.yield", (), types=()))
    said = refusal_of(op_of("ttile.for", "index i32[] ->", {"step": 1}, [block]))
    assert said == "`ttile.for` runs from an index to an index, got ['!ttile.index', '!ttile.tile<[], i32>']"


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        (lambda: op_of("ttile.scratch", "-> f32{N}", {"space": "private"}), ""),
        (lambda: op_of("ttile.scratch", "-> f32{N}", {"space": "shared"}), "a program has its shared memory once"),
        (lambda: op_of("ttile.load", LOAD, SHARED), ""),
        (lambda: op_of("ttile.load", LOAD, {**SHARED, "stages": 2}), "`stages` are those of a load to shared memory"),
    ],
)
def test_what_stands_in_a_loop_has_no_memory_or_stages_of_its_own(inner: Any, said: str) -> None:
    around, op = loop(), inner()
    last = around.regions[0].block.last_op
    assert last is not None
    around.regions[0].block.insert_op_before(op, last)
    found = refusal_of(op)
    assert found.startswith(said) if said else not found, found


# Kernels, and where a program stands in their grid.


def kernel(arguments: str = "f32{N}", **values: Any) -> SpecOp:
    block = Block(arg_types=[type_of(text) for text in arguments.split()])
    block.add_op(make("ttile.return", types=()))
    given = {"symbol": "f", "symbols": ("N",), "grid": (N, N), "writes": (0,), **values}
    return make("ttile.kernel", (), given, types=(), regions=[block])


COUNTS = ("warps", "stages", "max_registers", "max_shared")
PRODUCER = {"roles": "producer", "registers": (24, 240)}
KERNELS: list[tuple[dict[str, Any], str]] = [
    ({}, ""),
    ({"arguments": "f32{N} i32{N,4}", "writes": (0, 1)}, ""),
    ({"writes": (1,)}, "`writes` names arguments 0..0, got [1]"),
    ({"writes": (-1,)}, "`writes` names arguments 0..0, got [-1]"),
    ({"arguments": "f32{N} f32[8]"}, "argument 1 of `@f` is !ttile.tile<[8], f32>, not a buffer"),
    ({"grid": (Dim.symbol("M"),)}, "the grid uses ['M'], and the kernel's sizes are ['N']"),
    ({"schedule": None}, ""),
    ({"schedule": {"block": -1, "vector": "wide"}}, ""),
    *(({"schedule": {name: count}}, "") for name in COUNTS for count in (0, 4)),
    *(({"schedule": {name: -1}}, f"`{name}` of a schedule is a count, got -1") for name in COUNTS),
    ({"schedule": {"warps": True}}, "`warps` of a schedule is a count, got True"),
    ({"schedule": {"warps": "4"}}, "`warps` of a schedule is a count, got 4"),
    ({"schedule": {"block": 8, "warps": -1}}, "`warps` of a schedule is a count, got -1"),
    ({"scheduler": "persistent", "group": 2, "multicast": True}, ""),
    ({"scheduler": "often"}, "`scheduler` is one of once, persistent, dynamic, got often"),
    ({"scheduler": "once", "group": 2, "multicast": True}, "the programs of a pair are neighbours in time"),
    ({"scheduler": "persistent", "group": 3, "multicast": True}, "the programs of a pair are neighbours in time"),
    ({"scheduler": "once", "group": 0}, "`group` at least 1"),
    ({"group": 2}, "are the order of a `scheduler`, and none is said"),
    ({"descending": True}, "are the order of a `scheduler`, and none is said"),
    ({"warpgroups": -1}, "are at least 0"),
    ({"epilogue": "after", "lag": 1}, ""),
    ({"epilogue": "after", "lag": -1}, "are at least 0"),
    ({"lag": 1}, "`lag` is said together with the `epilogue`"),
    ({"epilogue": "before"}, "`epilogue` is one of beside, after, got before"),
    ({"roles": "consumer"}, "`roles` is one of producer, uniform, got consumer"),
    ({"warps_n": 1}, ""),
    ({"warps_n": -1}, "`warps_n` counts warps, got -1"),
    (PRODUCER, ""),
    ({**PRODUCER, "roles": "uniform"}, "and there is no producer"),
    *(
        ({**PRODUCER, "registers": pair}, "multiples of 8 from 24 to 240, for both roles")
        for pair in ((16, 240), (24, 248), (24, 100), (24,))
    ),
]


@pytest.mark.parametrize(("values", "said"), KERNELS, ids=str)
def test_each_rule_of_a_kernel_is_said(values: dict[str, Any], said: str) -> None:
    found = refusal_of(kernel(**values))
    assert said in found if said else not found, found


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_a_program_has_an_index_along_each_axis_of_its_grid(axis: int) -> None:
    op = make("ttile.program_id", (), {"axis": axis}, types=[INDEX])
    assert refusal_of(op) == "", "the grid is that of the kernel around, and there is none"
    block = kernel().regions[0].block
    assert block.first_op is not None
    block.insert_op_before(op, block.first_op)
    assert refusal_of(op) == ("" if axis in (0, 1) else f"the grid has 2 axes, got axis {axis}")


EXPRESSIONS: list[tuple[str, str, dict[str, Any], str]] = [
    ("index", "index -> index", {"names": ("i",)}, "expr"),
    ("coordinate", "index -> i64[8]", {"coords": ("i",), "axes": ("i",)}, "expr"),
    ("clip", "f32[8] index -> f32[8]", {"coords": ("i",), "axes": ("i",), "axis": "i", "identity": 0}, "bound"),
]


@pytest.mark.parametrize(("name", "signature", "values", "attribute"), EXPRESSIONS)
def test_an_expression_uses_its_names_and_the_sizes_of_its_kernel(
    name: str, signature: str, values: dict[str, Any], attribute: str
) -> None:
    what = "the bound" if attribute == "bound" else "the expression"
    said = f"{what} `M` uses ['M'], and what is known is ['N', 'i']"
    for expr, wanted in ((ROW, ""), (N, ""), (ROW + N, ""), (Dim.symbol("M"), said)):
        op = op_of(f"ttile.{name}", signature, {**values, attribute: expr})
        assert refusal_of(op) == "", "sizes are those of the kernel around, and there is none"
        block = kernel().regions[0].block
        assert block.first_op is not None
        block.insert_op_before(op, block.first_op)
        assert refusal_of(op) == wanted
