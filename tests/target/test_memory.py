"""Accesses that say something of themselves which is not so are refused, each with its reason."""

from __future__ import annotations

import pytest

from tests.target.texts import BUFFER, INDEX, LINE, check, check_refused, kernel, load, store

SCRATCH = "%s = ttarget.scratch {offset = 0} : () -> !ttile.buffer<[64, 16], f32>"
HERE = {"type": "!ttile.buffer<[64, 16], f32>", "offset": "16*i + j", "guarded": "[]", "bounds": "[]"}
INDICES = "!ttarget.vector<[16], i64>"
GATHER = (
    f"%t = ttarget.constant {{value = 0}} : () -> {INDICES}",
    load(offset="N*i + t0", pattern='"indexed"')
    .replace("%i, %j {", "%i, %j, %t {")
    .replace(f"{INDEX}) ->", f"{INDEX}, {INDICES}) ->"),
)

ROWS = {"block": "!ttarget.vector<[4, 16], f32>", "at": "%b, %j", "axes": '["i", "j"]', "offset": "4*i + j"}
BLOCK = (load("%s", **{**HERE, **ROWS}), store("%s", **{**HERE, **ROWS, "align": "64"}))
"""A block whose first row begins at 64 bytes, and whose second does not."""


def loading(**changes: str) -> str:
    return kernel(load(**changes), store())


def storing(**changes: str) -> str:
    return kernel(load(), store(**changes))


REFUSED = {
    "pattern of another stride": (
        loading(pattern='"strided"'),
        "lanes of j are 1 elements apart: the access pattern is contiguous, not strided",
    ),
    "contiguous along a column": (
        loading(axes='["i"]', guarded='["i"]', bounds="[M]"),
        "lanes of i are N elements apart: the access pattern is strided, not contiguous",
    ),
    "indexed though linear": (
        loading(pattern='"indexed"'),
        "lanes of j are 1 elements apart: the access pattern is contiguous, not indexed",
    ),
    "not linear": (
        loading(offset="N*i + (j mod 3)"),
        "the offset N*i + (j mod 3) is not linear in j: the access pattern is indexed, not contiguous",
    ),
    "unknown pattern": (
        loading(pattern='"scattered"'),
        "`pattern` is one of contiguous, uniform, strided, indexed, got scattered",
    ),
    "align of no power": (loading(align="12"), "`align` is a power of two up to 64, got 12"),
    "align below an element": (loading(align="2"), "an element of f32 is aligned to 4 bytes at least, got 2"),
    "align that arguments lack": (
        loading(align="16"),
        "all that is known of `N*i + j` is that it is aligned to 4 bytes, not to 16",
    ),
    "align that rows lack": (
        kernel(SCRATCH, load(), store("%s", **{**HERE, "align": "64", "offset": "8*i + j"}), store(), scratch="4096"),
        "all that is known of `8*i + j` is that it is aligned to 32 bytes, not to 64",
    ),
    "align that rows of a block lack": (
        kernel(SCRATCH, "%b = ttarget.index {names = [], expr = 4} : () -> " + INDEX, *BLOCK, scratch="4096"),
        "all that is known of `4*i + j` is that it is aligned to 16 bytes, not to 64",
    ),
    "name that is not there": (
        loading(offset="N*i + j + q"),
        "the offset `N*i + j + q` uses ['q'], and what is known is ['M', 'N', 'i', 'j']",
    ),
    "name without an index": (loading(coords='["i", "j", "q"]'), "`ttarget.load` names 3 indices and has 2"),
    "name twice": (
        loading(coords='["i", "i"]', axes='["i"]'),
        "`ttarget.load` has a name twice, in ['i', 'i']",
    ),
    "axis that has no name": (
        loading(axes='["q"]'),
        "`ttarget.load` has axes ['q'] for a block of rank 1; each must be in ['i', 'j']",
    ),
    "axis too many": (
        loading(axes='["i", "j"]'),
        "`ttarget.load` has axes ['i', 'j'] for a block of rank 1; each must be in ['i', 'j']",
    ),
    "guard of no axis": (loading(guarded='["i"]'), "every guarded axis is an axis of the block and has a bound"),
    "guard without a bound": (loading(bounds="[]"), "every guarded axis is an axis of the block and has a bound"),
    "bound below zero": (loading(bounds="[-1]"), "the extent of an axis is not negative, got ['-1']"),
    "bound of itself": (loading(bounds="[j + 1]"), "the extent `j + 1` of j depends on j itself"),
    "bound of unknown size": (
        loading(bounds="[K]"),
        "the bound `K` uses ['K'], and what is known is ['M', 'N', 'i', 'j']",
    ),
    "half a window": (loading(windows="[j]"), "`windows` are pairs of an expression and an extent, got 1 expressions"),
    "window of unknown size": (
        loading(windows="[j, K]"),
        "the extent of a window `K` uses ['K'], and what is known is ['M', 'N', 'i']",
    ),
    "another dtype": (
        kernel(*("!ttarget.vector<[16], f64>".join(part.split(LINE)) for part in (load(), store()))),
        "`ttarget.load` moves f64 and the buffer holds f32",
    ),
    "pad that is no number": (loading(pad="1.5").replace("f32", "i32"), "`pad` is a number of i32, got 1.5"),
    "unknown mode": (storing(mode='"xor"'), "`mode` is one of set, add, atomic_add, atomic_max, atomic_min, got xor"),
    "argument that is only read": (
        storing(buffer="%x"),
        "`ttarget.store` writes argument 0 of `@k`, which only writes [1]",
    ),
    "all lanes to one element": (
        storing(offset="N*i", pattern='"uniform"'),
        "all lanes of a store would write one element",
    ),
    "no buffer": (loading(buffer="%i", type=INDEX), f"`ttarget.load` takes a buffer, got {INDEX}"),
    "index vectors and another pattern": (
        kernel(GATHER[0], GATHER[1].replace('"indexed"', '"strided"'), store()),
        "the offset N*i + t0 is read from index vectors: the access pattern is indexed, not strided",
    ),
    "index vectors of floats": (
        kernel(GATHER[0].replace("i64", "f32"), GATHER[1].replace("i64", "f32"), store()),
        "an index block of `ttarget.load` is !ttarget.vector<[16], f32>, not integers of shape [16]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    text, message = REFUSED[case]
    assert check_refused(text) == message


def test_accepted() -> None:
    check(loading())
    check(kernel(*GATHER, store()))
    check(storing(mode='"add"'))
    check(kernel(SCRATCH, load(), store("%s", **HERE, align="64"), store(), scratch="4096"))
    check(loading(windows="[i - 1, M]", pad="1.5"))
    check(kernel(load(offset="N*i", pattern='"uniform"'), store()))
    assert BUFFER in load()
    assert LINE in load()


def test_one_column_may_be_stored_by_its_first_lane() -> None:
    check(storing(offset="N*i", pattern='"uniform"', bounds="[1]"))


def test_a_loop_by_eight_keeps_rows_of_eight_aligned() -> None:
    """What is known of an index comes from the loop that counts it."""
    inner = f"""%e = ttarget.index {{names = [], expr = 64}} : () -> {INDEX}
    ttarget.loop %j, %e {{step = STEP}} ({{
    ^bb0(%q: {INDEX}):
      {store("%s", at="%i, %q", align="32", **HERE)}
      ttarget.yield
    }}) : ({INDEX}, {INDEX}) -> ()"""
    check(kernel(SCRATCH, load(), inner.replace("STEP", "8"), store(), scratch="4096"))
    message = check_refused(kernel(SCRATCH, load(), inner.replace("STEP", "4"), store(), scratch="4096"))
    assert message == "all that is known of `16*i + j` is that it is aligned to 16 bytes, not to 32"
