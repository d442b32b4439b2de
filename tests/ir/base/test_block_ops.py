"""Ops on blocks are verified alike in Tile and Target IR: each rule at its limit and one beyond it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tessera.backends.nvptx.types import FragmentAttr
from tessera.ir.base.block_ops import SHARED, STORE_MODES, WARP, partner, shuffle, vote
from tessera.ir.base.dialect_of import make, op_class
from tessera.ir.base.op import OpError
from tessera.types.dim import Dim
from tests.ir.base.verdicts import BLOCKS, op_of, refusal_of, type_of

ROW, COLUMN, N = Dim.symbol("i"), Dim.symbol("j"), Dim.symbol("N")
AT = {"coords": ("i", "j"), "axes": ("i", "j")}
CLIP = {**AT, "axis": "j", "bound": N, "identity": 0}
SCALED = {"format": "f8e4m3", "rounding": "stochastic"}
LINES = "f32{N} i64{N} f32{N} i64{N}"

Case = tuple[str, str, dict[str, Any], str]
"""An op, its signature, its attributes, and what is said of it: nothing where it is right."""

ELEMENTWISE: list[Case] = [
    ("elementwise", "f32[4] f32[4] -> f32[4]", {"fn": "add"}, ""),
    ("elementwise", "f32[] -> f32[]", {"fn": "neg"}, ""),
    ("elementwise", "f32[4] f32[4] -> bool[4]", {"fn": "lt"}, ""),
    ("elementwise", "i32[4] i32[4] -> i32[4]", {"fn": "lt"}, "`lt` of i32 gives bool, not i32"),
    ("elementwise", "f32[4] f32[4] -> bool[4]", {"fn": "add"}, "`add` of f32 gives f32, not bool"),
    ("elementwise", "f32[4] i32[4] -> f32[4]", {"fn": "add"}, "of one type, got"),
    ("elementwise", "f32[4] f32[8] -> f32[4]", {"fn": "add"}, "of one shape, got [8] and [4]"),
    ("elementwise", "f32[4] f32[4] -> f32[8]", {"fn": "add"}, "of one shape, got [4] and [8]"),
    ("elementwise", "f32[4] -> f32[4]", {"fn": "add"}, "`add` takes 2"),
    ("elementwise", "f32[4] f32[4] -> f32[4]", {"fn": "plus"}, "there is no elementwise function `plus`"),
    ("elementwise", "f32[4] f32{4} -> f32[4]", {"fn": "add"}, "s, got !ttile.buffer<[4], f32>"),
    ("elementwise", "f32[4] f32[4] -> index", {"fn": "add"}, "s, got !ttile.index"),
    ("select", "bool[4] f32[4] f32[4] -> f32[4]", {}, ""),
    ("select", "i32[4] f32[4] f32[4] -> f32[4]", {}, "chooses by bool, got i32"),
    ("select", "bool[4] f32[4] i32[4] -> f32[4]", {}, "of one type, got"),
    ("select", "bool[4] f32[4] f32[4] -> i32[4]", {}, "of one type, got"),
    ("select", "bool[8] f32[4] f32[4] -> f32[4]", {}, "of one shape, got [8] and [4]"),
    ("constant", "-> f32[4]", {"value": 1}, ""),
    ("constant", "-> f32{4}", {"value": 1}, "s, got !ttile.buffer<[4], f32>"),
]
CONVERSIONS: list[Case] = [
    ("cast", "f32[4] -> bf16[4]", {"rounding": "nearest_even"}, ""),
    ("cast", "bf16[4] -> f32[4]", {}, ""),
    ("cast", "f32[4] -> bf16[4]", {}, "rounds `nearest_even`, got `nothing`"),
    ("cast", "bf16[4] -> f32[4]", {"rounding": "nearest_even"}, "rounds `nothing`, got `nearest_even`"),
    ("cast", "bf16[4] -> f32[8]", {}, "of one shape"),
    ("bitcast", "f32[4] -> u32[4]", {}, ""),
    ("bitcast", "f32[4] -> f64[4]", {}, "f32 has 32 of them, f64 64"),
    ("bitcast", "f32[4] -> u32[2]", {}, "of one shape"),
    ("round", "f32[4] -> f32[4]", {"format": "bf16"}, ""),
    ("round", "f32[4] u32[4] -> f32[4]", SCALED, ""),
    ("round", "f32[4] -> f32[4]", SCALED, "takes random bits beside its values, got 1 operands"),
    ("round", "f32[4] u32[4] -> f32[4]", {"format": "bf16"}, "takes its values and nothing else, got 2"),
    ("round", "f32[4] -> f32[4]", {"format": "bf17"}, "bf17"),
    ("round", "f64[4] -> f32[4]", {"format": "bf16"}, "rounds f32 by bits of u32, got f64 f32"),
    ("round", "f32[4] -> f64[4]", {"format": "bf16"}, "rounds f32 by bits of u32, got f32 f64"),
    ("round", "f32[4] i32[4] -> f32[4]", SCALED, "rounds f32 by bits of u32, got f32 i32 f32"),
    ("round", "f32[4] u32[8] -> f32[4]", SCALED, "of one shape"),
]
SHAPES: list[Case] = [
    ("broadcast", "f32[4] -> f32[4,8]", {"axes": (0,)}, ""),
    ("broadcast", "f32[8] -> f32[4,8]", {"axes": (1,)}, ""),
    ("broadcast", "f32[4,8] -> f32[4,2,8]", {"axes": (0, 2)}, ""),
    ("broadcast", "f32[] -> f32[4]", {"axes": ()}, ""),
    ("broadcast", "f32[8] -> f32[4,8]", {"axes": (2,)}, "puts 1 axes among 2, in order, got [2]"),
    ("broadcast", "f32[8] -> f32[4,8]", {"axes": (-1,)}, "puts 1 axes among 2, in order, got [-1]"),
    ("broadcast", "f32[8] -> f32[4,8]", {"axes": (0, 1)}, "puts 1 axes among 2, in order, got [0, 1]"),
    ("broadcast", "f32[4,4] -> f32[4,4]", {"axes": (1, 0)}, "puts 2 axes among 2, in order, got [1, 0]"),
    ("broadcast", "f32[4,4] -> f32[4,4]", {"axes": (1, 1)}, "puts 2 axes among 2, in order, got [1, 1]"),
    ("broadcast", "f32[4] -> f32[4,8]", {"axes": (1,)}, "[4] cannot be broadcast to [4, 8] along [1]"),
    ("broadcast", "f32[4] -> f64[4,8]", {"axes": (0,)}, "keeps the dtype, got f32 for f64"),
    ("transpose", "f32[4,8] -> f32[8,4]", {}, ""),
    ("transpose", "f32[4,8] -> f32[4,8]", {}, "makes [B, A] of [A, B]"),
    ("transpose", "f32[4,8] -> f64[8,4]", {}, "makes [B, A] of [A, B]"),
    ("transpose", "f32[4] -> f32[4]", {}, "makes [B, A] of [A, B]"),
    ("dot", "f32[4,2] f32[2,8] f32[4,8] -> f32[4,8]", {}, ""),
    ("dot", "f32[4,2] f32[4,8] f32[4,8] -> f32[4,8]", {}, "multiplies [M, K] by [K, N], got [4, 2] by [4, 8]"),
    ("dot", "f32[2] f32[2,8] f32[4,8] -> f32[4,8]", {}, "multiplies [M, K] by [K, N], got [2] by [2, 8]"),
    ("dot", "f32[4,2] f32[2] f32[4,8] -> f32[4,8]", {}, "multiplies [M, K] by [K, N], got [4, 2] by [2]"),
    ("dot", "f32[4,2] f32[2,8] f32[4,8] -> f64[4,8]", {}, "gives [4, 8] as its accumulator is"),
    ("dot", "f32[4,2] f32[2,8] f32[8,4] -> f32[8,4]", {}, "gives [4, 8] as its accumulator is"),
]
REDUCTIONS: list[Case] = [
    ("reduce", "f32[4,8] -> f32[8]", {"kind": "sum", "axis": 0}, ""),
    ("reduce", "f32[4,8] -> f32[4]", {"kind": "max", "axis": 1}, ""),
    ("reduce", "f32[4,1] -> f32[4]", {"kind": "max", "axis": 1}, ""),
    ("reduce", "f32[4,8] -> f32[4]", {"kind": "mean", "axis": 1}, "`kind` is one of"),
    ("reduce", "f32[4,8] -> f32[4]", {"kind": "argmax", "axis": 1}, "`kind` is one of"),
    ("reduce", "f32[4,8] -> f32[4]", {"kind": "sum", "axis": 2}, "`axis` must be in 0..1, got 2"),
    ("reduce", "f32[4,8] -> f32[4]", {"kind": "sum", "axis": -1}, "`axis` must be in 0..1, got -1"),
    ("reduce", "f32[4,0] -> f32[4]", {"kind": "sum", "axis": 1}, "must have elements, got 0"),
    ("reduce", "f32[4,8] -> f32[8]", {"kind": "sum", "axis": 1}, "gives [4], not"),
    ("reduce", "f32[4,8] -> f32[4]", {"kind": "sum", "axis": 0}, "gives [8], not"),
    ("reduce", "f32[4,8] -> f64[8]", {"kind": "sum", "axis": 0}, "keeps the dtype, got f32 for f64"),
    ("arg_reduce", "f32[4,8] i64[4,8] -> i64[4]", {"kind": "argmax", "axis": 1}, ""),
    ("arg_reduce", "f32[4,8] i64[4,8] -> i64[8]", {"kind": "argmin", "axis": 0}, ""),
    ("arg_reduce", "f32[4,8] i64[4,8] -> i64[4]", {"kind": "max", "axis": 1}, "`kind` is one of argmax, argmin"),
    ("arg_reduce", "f32[4,8] i64[8,4] -> i64[4]", {"kind": "argmax", "axis": 1}, "of one shape, got"),
    ("arg_reduce", "f32[4,8] i64[4,8] -> f32[4]", {"kind": "argmax", "axis": 1}, "keeps the dtype, got i64 for f32"),
]
INDICES: list[Case] = [
    ("index", "index index -> index", {"names": ("i", "j"), "expr": ROW + COLUMN}, ""),
    ("index", "-> index", {"names": (), "expr": N}, ""),
    ("index", "index -> index", {"names": ("i", "j"), "expr": ROW}, "names 2 indices and has 1"),
    ("index", "index index -> index", {"names": ("i",), "expr": ROW}, "names 1 indices and has 2"),
    ("index", "index index -> index", {"names": ("i", "i"), "expr": ROW}, "has a name twice, in ['i', 'i']"),
    ("index", "index f32[4] -> index", {"names": ("i",), "expr": ROW}, "takes one index for each name"),
    ("index", "f32[4] index -> index", {"names": ("i",), "expr": ROW}, "names 1 indices and has 1"),
    ("coordinate", "index index -> i32[4,8]", {**AT, "expr": ROW + COLUMN}, ""),
    ("coordinate", "index index -> i32[8]", {**AT, "axes": ("j",), "expr": ROW + COLUMN}, ""),
    ("coordinate", "index index -> i32[8]", {**AT, "expr": ROW}, "of rank 1; each must be in ['i', 'j']"),
    ("coordinate", "index index -> i32[8]", {**AT, "axes": ("k",), "expr": ROW}, "each must be in ['i', 'j']"),
    ("coordinate", "index index -> i32[8,8]", {**AT, "axes": ("i", "i"), "expr": ROW}, "has an axis twice: ['i', 'i']"),
    ("coordinate", "index index -> i32{4,8}", {**AT, "expr": ROW}, "s, got !ttile.buffer<[4, 8], i32>"),
    ("clip", "f32[4,8] index index -> f32[4,8]", CLIP, ""),
    ("clip", "f32[4,8] index index -> f32[4,8]", {**CLIP, "axis": "i"}, ""),
    ("clip", "f32[4,8] index index -> f32[4,8]", {**CLIP, "axis": "k"}, "clips one of ['i', 'j'], got k"),
    ("clip", "f64[4,8] index index -> f32[4,8]", CLIP, "clips one of"),
    ("clip", "f32[4,8] index -> f32[4,8]", CLIP, "names 2 indices and has 1"),
    ("clip", "f32[8] index index -> f32[8]", CLIP, "of rank 1; each must be in ['i', 'j']"),
]
LANES: list[Case] = [
    *(("shuffle", "f32[4,32] -> f32[4,32]", {"mode": mode, "by": 31}, "") for mode in ("down", "up", "index")),
    ("shuffle", "f32[4,32] -> f32[4,32]", {"mode": "down", "by": 0}, ""),
    ("shuffle", "f32[64] -> f32[64]", {"mode": "down", "by": 3, "width": 4}, ""),
    ("shuffle", "f32[3] -> f32[3]", {"mode": "down", "by": 0, "width": 1}, ""),
    ("shuffle", "f32[32] -> f32[32]", {"mode": "down", "by": 32}, "`by` must be in 0..31"),
    ("shuffle", "f32[32] -> f32[32]", {"mode": "down", "by": -1}, "`by` must be in 0..31"),
    ("shuffle", "f32[32] -> f32[32]", {"mode": "left", "by": 1}, "`mode` is one of down, up, index"),
    ("shuffle", "f32[32] -> i32[32]", {"mode": "down", "by": 1}, "gives what it takes"),
    ("shuffle", "f32[] -> f32[]", {"mode": "down", "by": 0}, "lanes run along the last axis of a tile"),
    ("shuffle", "index -> index", {"mode": "down", "by": 0}, "lanes run along the last axis of a tile"),
    ("shuffle", "f32[64] -> f32[64]", {"mode": "down", "by": 0, "width": 64}, "a power of two of lanes up to 32"),
    ("shuffle", "f32[64] -> f32[64]", {"mode": "down", "by": 0, "width": 0}, "a power of two of lanes up to 32"),
    ("shuffle", "f32[24] -> f32[24]", {"mode": "down", "by": 0, "width": 24}, "a power of two of lanes up to 32"),
    ("shuffle", "f32[32,4] -> f32[32,4]", {"mode": "down", "by": 0, "width": 8}, "must fill the last axis"),
    ("shuffle", "f32[N] -> f32[N]", {"mode": "down", "by": 0, "width": 8}, "must fill the last axis"),
    ("vote", "bool[4,32] -> bool[4,32]", {"kind": "any"}, ""),
    ("vote", "bool[32] -> bool[32]", {"kind": "all"}, ""),
    ("vote", "bool[32] -> u32[32]", {"kind": "ballot"}, ""),
    ("vote", "bool[32] -> i32[32]", {"kind": "count", "width": 16}, ""),
    ("vote", "bool[32] -> i32[32]", {"kind": "count", "width": 33}, "a power of two of lanes"),
    ("vote", "bool[32] -> u32[32]", {"kind": "most"}, "`kind` is one of any, all, ballot, count, got most"),
    ("vote", "i32[32] -> u32[32]", {"kind": "ballot"}, "lanes vote with bools, got i32"),
    ("vote", "bool[32] -> i32[32]", {"kind": "ballot"}, "gives u32 of its shape"),
    ("vote", "bool[32] -> u32[64]", {"kind": "ballot"}, "gives u32 of its shape"),
    ("vote", "bool[32] -> index", {"kind": "ballot"}, "gives u32 of its shape"),
]
SORTS: list[Case] = [
    ("sort", f"{LINES} index ->", {}, ""),
    ("sort", "i32{N} i64{N} i32{N} i64{N} index ->", {"descending": True}, ""),
    ("sort", "f32{N,4} i64{N} f32{N} i64{N} index ->", {}, "takes four buffers of rank 1 and a count"),
    ("sort", "f32{N} i64{N} f32[4] i64{N} index ->", {}, "takes four buffers of rank 1 and a count"),
    ("sort", f"{LINES} i64{{N}} ->", {}, "takes four buffers of rank 1 and a count"),
    ("sort", "bool{N} i64{N} bool{N} i64{N} index ->", {}, "does not compare bool"),
    ("sort", "bf16{N} i64{N} bf16{N} i64{N} index ->", {}, "does not compare bf16"),
    ("sort", "f32{N} i16{N} f32{N} i16{N} index ->", {}, "indices are u16, i32 or i64, got i16"),
    ("sort", "f32{N} i64{N} f64{N} i64{N} index ->", {}, "spare memory is of f32 and i64, got f64 and i64"),
    ("sort", "f32{N} i64{N} f32{N} i32{N} index ->", {}, "spare memory is of f32 and i64, got f32 and i32"),
]
TREES: list[Case] = [
    ("tree", "f32{N,4} index ->", {"kind": "sum"}, ""),
    ("tree", "i64{N,1} index ->", {"kind": "max"}, ""),
    ("tree", "f32{N} index ->", {"kind": "sum"}, "takes a buffer of rank 2 and a count of its lines"),
    ("tree", "f32[4,4] index ->", {"kind": "sum"}, "takes a buffer of rank 2 and a count of its lines"),
    ("tree", "f32{N,4} i64[4] ->", {"kind": "sum"}, "takes a buffer of rank 2 and a count of its lines"),
    ("tree", "f32{N,4} index ->", {"kind": "mean"}, "`kind` is one of"),
    ("tree", "bf16{N,4} index ->", {"kind": "sum"}, "does not compute in bf16"),
]
CASES = [*ELEMENTWISE, *CONVERSIONS, *SHAPES, *REDUCTIONS, *INDICES, *LANES, *SORTS, *TREES]


@pytest.mark.parametrize("dialect", ["ttile", "ttarget"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]} {case[3]}"[:80])
def test_each_rule_is_said_in_both_dialects(dialect: str, case: Case) -> None:
    name, signature, values, said = case
    found = refusal_of(op_of(f"{dialect}.{name}", signature, values))
    assert said in found if said else not found, found


def test_a_case_stands_for_every_shared_op_that_has_a_rule() -> None:
    assert {name for name, *_ in CASES} == {shared.name for shared in SHARED if shared.check is not None}


@pytest.mark.parametrize(("dialect", "noun"), [("ttile", "tile"), ("ttarget", "block")])
def test_operands_are_called_by_the_noun_of_their_dialect(dialect: str, noun: str) -> None:
    assert op_class(f"{dialect}.elementwise").spec.operands == (f"{noun}s*",)
    assert op_class(f"{dialect}.clip").spec.operands == (noun, "at*")
    found = refusal_of(op_of(f"{dialect}.cast", "f32{4} -> f32[4]", {}))
    assert found == f"`{dialect}.cast` works on {noun}s, got !ttile.buffer<[4], f32>"


def test_a_butterfly_of_tiles_is_an_op_of_its_own() -> None:
    xor = {"mode": "xor", "by": 1}
    assert refusal_of(op_of("ttarget.shuffle", "f32[32] -> f32[32]", xor)) == ""
    for mode, advice in (("xor", "write `ttile.butterfly`"), ("left", "")):
        with pytest.raises(OpError, match="`mode` is one of down, up, index, got") as caught:
            op_of("ttile.shuffle", "f32[32] -> f32[32]", {**xor, "mode": mode}).verify_()
        assert caught.value.advice == advice
    assert refusal_of(op_of("ttile.butterfly", "f32[32] -> f32[32]", {"by": 31})) == ""
    assert "0..31" in refusal_of(op_of("ttile.butterfly", "f32[32] -> f32[32]", {"by": 32}))


def test_tiles_ask_for_a_dtype_that_is_computed_in() -> None:
    narrow = ("elementwise", "bf16[4] bf16[4] -> bf16[4]", {"fn": "add"})
    assert refusal_of(op_of(f"ttarget.{narrow[0]}", *narrow[1:])) == ""
    assert refusal_of(op_of(f"ttile.{narrow[0]}", *narrow[1:])) == "`add` does not compute in bf16"


def test_a_function_of_fragments_gives_fragments() -> None:
    vector = type_of("f32[8,8]", BLOCKS["ttarget"])
    fragment = FragmentAttr.of(vector.data)
    op = op_of("ttarget.elementwise", "f32[8,8] -> f32[8,8]", {"fn": "neg"})
    (operand,) = op.operands
    assert refusal_of(make("ttarget.elementwise", [operand], {"fn": "neg"}, types=[vector])) == ""
    said = refusal_of(make("ttarget.elementwise", [operand], {"fn": "neg"}, types=[fragment]))
    assert said == f"`neg` of f32 gives f32, not {fragment}"


@pytest.mark.parametrize("mode", [*STORE_MODES, "atomic_mul", ""])
def test_a_store_has_a_mode_that_there_is(mode: str) -> None:
    values = {"coords": ("i",), "axes": (), "map": (ROW,), "bounds": (), "mode": mode}
    said = refusal_of(op_of("ttile.store", "f32[] f32{N} index ->", values))
    assert said == ("" if mode in STORE_MODES else f"`mode` is one of {', '.join(STORE_MODES)}, got {mode}")


# What lanes give each other, against a walk over segments.


@pytest.mark.parametrize("width", [1, 2, 8, 32])
def test_partners_are_in_the_segment_or_the_lane_itself(width: int) -> None:
    for by in range(width):
        for index in range(2 * WARP):
            start, lane = index - index % width, index % width
            other = {"down": lane + by, "up": lane - by, "index": by, "xor": lane ^ by}
            for mode, wanted in other.items():
                stays = not 0 <= wanted < width
                assert partner(mode, by, width, index) == (index if stays else start + wanted), (mode, by, index)


def ballot(lanes: list[bool]) -> int:
    return sum(1 << at for at, lane in enumerate(lanes) if lane)


@pytest.mark.parametrize("width", [1, 4, 32])
def test_votes_count_the_lanes_of_each_segment(width: int) -> None:
    votes = np.random.default_rng(width).random((3, 64)) < 0.5
    votes[0], votes[1] = True, False
    kinds: dict[str, Callable[[list[bool]], int]] = {"any": any, "all": all, "count": sum, "ballot": ballot}
    for kind, reduce in kinds.items():
        found = vote(votes, kind=kind, width=width)
        assert found.flags.c_contiguous
        assert found.shape == votes.shape
        assert found.dtype == {"count": np.int32, "ballot": np.uint32}.get(kind, np.bool_)
        for row in range(3):
            for start in range(0, 64, width):
                wanted = reduce(votes[row, start : start + width].tolist())
                assert (found[row, start : start + width] == wanted).all(), kind


def test_a_shuffle_keeps_rows_apart() -> None:
    block = np.arange(128).reshape(2, 64)
    found = shuffle(block, mode="down", by=1, width=4)
    assert found.flags.c_contiguous
    assert found.tolist() == [[i if i % 4 == 3 else i + 1 for i in row] for row in block.tolist()]
