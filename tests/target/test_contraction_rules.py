"""Contractions that do not fit their operands, their accumulators or their memory are refused; at a limit they hold."""

from __future__ import annotations

import pytest

from tests.target.texts import INDEX, check, check_refused, list_parts

# A whole contraction: batch indices, a row, a column and one register of accumulators go to its epilogue.

GEMM = {
    "batch": "[B]",
    "m": "M",
    "n": "N",
    "k": "K",
    "lhs_offset": "M*K*_b0 + K*_m + _k",
    "rhs_offset": "N*_k + _n",
    "lhs_dtype": "f32",
    "rhs_dtype": "f32",
}
LHS, RHS, OUT = "!ttile.buffer<[B, M, K], f32>", "!ttile.buffer<[K, N], f32>", "!ttile.buffer<[B, M, N], f32>"


def gemm(acc: str = "[1, 8], f32", heads: str = "3", lhs: str = LHS, last: str = "", **changes: str) -> str:
    """A contraction whose epilogue does nothing."""
    indices = ", ".join(f"%i{number}: {INDEX}" for number in range(int(heads)))
    return f"""
ttarget.kernel @k(%x: {LHS}, %w: {RHS}, %h: !ttile.buffer<[B, M, K], bf16>) attributes {{symbols = ["B", "M", "N", "K"],
    writes = [], lanes = 8, features = ["avx2"], scratch = 0}} {{
  ttarget.gemm {"%x" if lhs == LHS else "%h"}, %w {list_parts({**GEMM, **changes})} ({{
  ^bb0({indices}, %acc: {last or f"!ttarget.vector<{acc}>"}):
    ttarget.yield
  }}) : ({lhs}, {RHS}) -> ()
  ttarget.return
}}"""


HALF = "!ttile.buffer<[B, M, K], bf16>"
TWO = "[_m, M, _k, K]"
GEMMS = {
    "plain": (gemm(), ""),
    "in f64": (gemm("[1, 4], f64"), ""),
    "windows": (gemm(lhs_windows=TWO, rhs_windows="[_n, N]"), ""),
    "too few indices": (gemm(heads="2"), "the epilogue takes 1 batch indices, a row, a column and accumulators"),
    "too many indices": (gemm(heads="4"), "the epilogue takes 1 batch indices, a row, a column and accumulators"),
    "no accumulators": (gemm(last=INDEX), "the epilogue takes 1 batch indices, a row, a column and accumulators"),
    "two registers": (gemm("[1, 16], f32"), "an epilogue gets one register of 8 accumulators of f32"),
    "half a register": (gemm("[1, 8], f64"), "an epilogue gets one register of 4 accumulators of f64"),
    "two rows": (gemm("[2, 8], f32"), "an epilogue gets one register of 8 accumulators of f32"),
    "short integers": (gemm("[1, 16], i16"), "a dot of f32 by f32 cannot accumulate in i16"),
    "truths": (gemm("[1, 32], bool"), "a dot of f32 by f32 cannot accumulate in bool"),
    **{
        f"extent {name}": (gemm(**{name: value}), "the extent `Q` uses ['Q']")
        for name, value in (("batch", "[Q]"), ("m", "Q"), ("n", "Q"), ("k", "Q"))
    },
    "another dtype": (gemm(lhs=HALF), "the lhs of a contraction is a buffer of f32"),
    "a dtype of its own": (gemm(rhs_dtype="bf16"), "the rhs of a contraction is a buffer of bf16"),
    "no buffer": (
        gemm().replace("gemm %x", "gemm %z").replace(f": ({LHS}", ": (!ttarget.vector<[8], f32>"),
        "the lhs of a contraction is a buffer of f32, got !ttarget.vector<[8], f32>",
    ),
    **{
        f"{name} {count} windows": (
            gemm(**{f"{name}_windows": "[" + ", ".join(["M"] * count) + "]"}),
            f"`{name}_windows` are pairs of an expression and an extent, got {count} expressions",
        )
        for name in ("lhs", "rhs")
        for count in (1, 3)
    },
    "offset of lhs": (gemm(lhs_offset="K*_m + _n"), "the offset of lhs `K*_m + _n` uses ['_n']"),
    "offset of rhs": (gemm(rhs_offset="N*_k + _m"), "the offset of rhs `N*_k + _m` uses ['_m']"),
    "offset of a batch": (gemm(lhs_offset="_b1 + _k"), "the offset of lhs `_b1 + _k` uses ['_b1']"),
    "window of lhs": (gemm(lhs_windows="[_m, M, _n, N]"), "the window of lhs `_n` uses ['_n']"),
    "first window of lhs": (gemm(lhs_windows="[_n, N, _m, M]"), "the window of lhs `_n` uses ['_n']"),
    "extent of a window": (gemm(lhs_windows="[_m, M, _k, _m]"), "the extent of a window of lhs `_m` uses ['_m']"),
    "extent of the first window": (gemm(rhs_windows="[_n, Q]"), "the extent of a window of rhs `Q` uses ['Q']"),
}
VECTOR = "%z = ttarget.constant {value = 0} : () -> !ttarget.vector<[8], f32>\n  ttarget.gemm"
GEMMS["no buffer"] = (GEMMS["no buffer"][0].replace("ttarget.gemm", VECTOR), GEMMS["no buffer"][1])


# A contraction on a matrix instruction: a feature of the kernel, dtypes that it takes, its own rows, columns and K.


def matrix(
    unit: str = "amx-int8",
    size: str = "[16, 16, 64]",
    dtypes: tuple[str, str, str] = ("i8", "u8", "i32"),
    features: str = '"avx2", "avx512f", "amx-tile", "amx-int8", "amx-bf16"',
    **changes: str,
) -> str:
    """A contraction of a machine with tiles; `dtypes` are those of lhs, rhs and accumulators."""
    lhs, rhs, acc = dtypes
    types = f"!ttile.buffer<[B, M, K], {lhs}>", f"!ttile.buffer<[K, N], {rhs}>"
    parts = {**GEMM, "lhs_dtype": lhs, "rhs_dtype": rhs, "unit": f'"{unit}"', "instruction": size, **changes}
    return f"""
ttarget.kernel @k(%x: {types[0]}, %w: {types[1]}) attributes {{symbols = ["B", "M", "N", "K"],
    writes = [], lanes = 16, features = [{features}], scratch = 0}} {{
  ttarget.gemm %x, %w {list_parts(parts)} ({{
  ^bb0(%b: {INDEX}, %i: {INDEX}, %j: {INDEX}, %acc: !ttarget.vector<[1, 16], {acc}>):
    ttarget.yield
  }}) : ({types[0]}, {types[1]}) -> ()
  ttarget.return
}}"""


HALVES = ("bf16", "bf16", "f32")
MATRICES = {
    "bytes": (matrix(), ""),
    "halves": (matrix("amx-bf16", "[16, 16, 32]", HALVES), ""),
    "no feature": (
        matrix(features='"avx2", "avx512f"'),
        "`@k` multiplies with amx-int8, which is not among its features",
    ),
    "another feature": (
        matrix("amx-bf16", "[16, 16, 32]", HALVES, features='"avx2", "avx512f", "amx-tile", "amx-int8"'),
        "`@k` multiplies with amx-bf16, which is not among its features",
    ),
    "no tiles": (matrix(features='"avx2", "avx512f", "amx-int8"'), "the feature amx-int8 comes with amx-tile"),
    "no instruction": (matrix("wgmma"), "`unit` is one of amx-int8, amx-bf16, got wgmma"),
    "other operands": (matrix("amx-bf16", "[16, 16, 32]"), "amx-bf16 multiplies bf16 and accumulates in f32, got i8"),
    "other accumulators": (matrix(dtypes=("i8", "i8", "f32")), "amx-int8 multiplies i8 or u8 and accumulates in i32"),
    "wide operands": (matrix(dtypes=("i16", "i16", "i32")), "amx-int8 multiplies i8 or u8"),
    "rows": (matrix(size="[32, 16, 64]"), "one `amx-int8` takes 16 rows, 16 columns"),
    "columns": (matrix(size="[16, 32, 64]"), "one `amx-int8` takes 16 rows, 16 columns"),
    "k": (matrix(size="[16, 16, 32]"), "one `amx-int8` takes 64 of K of i8, got 32"),
    "k of halves": (matrix("amx-bf16", "[16, 16, 64]", HALVES), "one `amx-bf16` takes 32 of K of bf16, got 64"),
    "no size": (matrix(size="[]"), "`instruction` is rows, columns and K"),
    "a size of nothing": (gemm(instruction="[16, 16, 64]"), "got [16, 16, 64] and no `unit`"),
    "windows on tiles": (matrix(lhs_windows="[_k, K]"), "amx-int8 takes operands from strided memory"),
    "no strides": (matrix(rhs_offset="N*_k + (_n mod 2)"), "amx-int8 takes operands from strided memory"),
}


# A dot of blocks in memory: 4 x 6 of a K of 8 at most, into rows of 16; panels of 24 and 32 elements are packed.

DOT = {
    "names": '["a"]',
    "m": "4",
    "n": "N",
    "k": "8",
    "max_rows": "4",
    "max_k": "8",
    "lhs_offset": "8*_row + _inner_k + a",
    "rhs_offset": "16*_inner_k + _col",
    "out_stride": "16",
}
PANELS = (16 + 4) * 8 * 4
TYPES = {"lhs": "[4, 8], f32", "rhs": "[8, 16], f32", "out": "[4, 16], f32", "panels": f"[{PANELS}], i8"}


def dot(writes: str = "[2, 3]", at: str = "%i", operands: str = "", n: str = "min(N, 16)", **changes: str) -> str:
    """A dot of blocks; `lhs`, `rhs`, `out` and `panels` are the types of buffers, other names attributes."""
    types = {name: f"!ttile.buffer<{changes.pop(name, TYPES[name])}>" for name in TYPES}
    arguments = ", ".join(f"%{name}: {type}" for name, type in types.items())
    indices = ", ".join(INDEX for _ in at.split(", ") if at)
    given = operands or ", ".join(f"%{name}" for name in types)
    listed = ", ".join([*(types.get(name[1:], INDEX) for name in given.split(", ")), *([indices] if at else [])])
    return f"""
ttarget.kernel @k({arguments}) attributes {{symbols = ["N"], writes = {writes}, lanes = 8, features = ["avx2"],
    scratch = 0}} {{
  ttarget.programs {{grid = [4]}} ({{
  ^bb0(%i: {INDEX}):
    ttarget.block_dot {given}{", " if at else ""}{at} {list_parts({**DOT, "n": n, **changes})} : ({listed}) -> ()
    ttarget.yield
  }})
  ttarget.return
}}"""


NOT_LINEAR = "is not linear in"
DOTS = {
    "plain": (dot(), ""),
    "no index": (dot(at="", names="[]", lhs_offset="8*_row + _inner_k"), ""),
    "fewer rows": (dot(m="3", k="7", n="15"), ""),
    "narrow operands": (dot(lhs="[4, 8], bf16", rhs="[8, 16], i8"), ""),
    "a size in the offset": (dot(rhs_offset="N*_inner_k + _col"), ""),
    "no buffer": (dot(operands="%lhs, %rhs, %out, %i"), "`ttarget.block_dot` works on buffers"),
    "too few indices": (dot(names='["a", "b"]'), "names 2 indices and has 1, or others"),
    "too many indices": (dot(at="%i, %i"), "names 1 indices and has 2, or others"),
    "a name twice": (dot(names='["a", "a"]', at="%i, %i"), "names 2 indices and has 2, or others"),
    **{
        f"lhs at {offset}": (dot(lhs_offset=offset), f"{NOT_LINEAR} _row and _inner_k")
        for offset in ("(_row mod 2) + _inner_k", "_row + (_inner_k mod 2)", "_row*_inner_k")
    },
    **{
        f"rhs at {offset}": (dot(rhs_offset=offset), f"{NOT_LINEAR} _inner_k and _col")
        for offset in ("(_inner_k mod 2) + _col", "_inner_k + (_col mod 2)", "_inner_k*_col")
    },
    "name in an offset": (
        dot(lhs_offset="8*_row + _inner_k + b"),
        "the offset of lhs `_inner_k + 8*_row + b` uses ['b']",
    ),
    "column in lhs": (dot(lhs_offset="_row + _inner_k + _col"), "uses ['_col']"),
    "row in rhs": (dot(rhs_offset="_inner_k + _col + _row"), "uses ['_row']"),
    **{f"extent {name}": (dot(**{name: "min(Q, 4)"}), "the extent `min(4, Q)` uses ['Q']") for name in ("m", "n", "k")},
    "written": (dot(writes="[3]"), "writes argument 2 of `@k`, which only writes [3]"),
    "panels written": (dot(writes="[2]"), "writes argument 3 of `@k`, which only writes [2]"),
    "wide lhs": (dot(lhs="[4, 8], f64"), "a dot of f64 by f32 cannot accumulate in f32"),
    "wide rhs": (dot(rhs="[8, 16], i32"), "a dot of f32 by i32 cannot accumulate in f32"),
    "rows": (dot(m="5"), "`m` is 5, and it is at most 4"),
    "k": (dot(k="9"), "`k` is 9, and it is at most 8"),
    "columns": (dot(n="17"), "`n` is 17, and it is at most 16"),
    "columns of any number": (dot(n="N"), "`n` is N, and it is at most 16"),
    "small out": (dot(out="[4, 15], f32"), "4 rows of 16 do not fit into"),
    "large out": (dot(out="[64, 64], f32"), ""),
    "small panels": (dot(panels=f"[{PANELS - 1}], i8"), f"two panels are {PANELS} bytes at least"),
    "large panels": (dot(panels=f"[{PANELS}], f32"), ""),
}


@pytest.mark.parametrize("case", GEMMS)
def test_contractions(case: str) -> None:
    verify_as(*GEMMS[case])


@pytest.mark.parametrize("case", MATRICES)
def test_contractions_on_matrix_instructions(case: str) -> None:
    verify_as(*MATRICES[case])


@pytest.mark.parametrize("case", DOTS)
def test_dots_of_blocks(case: str) -> None:
    verify_as(*DOTS[case])


def verify_as(text: str, words: str) -> None:
    """A text holds where there are no words, and is refused with them where there are."""
    if words:
        assert words in check_refused(text)
    else:
        check(text)
