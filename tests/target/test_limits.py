"""How far indices reach, what they are multiples of, and what ops move: compared with all values, and with tables."""

from __future__ import annotations

import itertools
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import FeatureError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import BufferAttr, IndexAttr
from tessera.ir.target.limits import (
    MOVES,
    IndexRanges,
    Move,
    Width,
    buffer_alignment,
    check_moves,
    check_written,
    fits,
    index_multiple,
    is_multiple,
    largest,
    moves_of,
    multiple_of,
    registers_of,
    space_of,
    width_for,
    widths_of,
)
from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import f64
from tessera.types.shape import TensorType
from tests.backends.nvptx.instructions import value_of
from tests.target.texts import BUFFER, INDEX, check, check_refused, kernel, load, store

P, J, M, N = (Dim.symbol(name) for name in "ijMN")
TOPS = {"i": 4 * M - 1, "j": N}
"""How far two indices reach, in terms of sizes."""

KNOWN = {
    "a size": (3 * M - N + 2, 3 * M - N + 2),
    "an index": (P, 4 * M - 1),
    "a row and a column": (N * P + J, N * (4 * M - 1) + N),
    "an index and sizes taken from it": (P - 2 * N, 4 * M - 1 - 2 * N),
    "in fours": (P // 4, (4 * M - 1) // 4),
    "the smaller": (minimum(P, J), minimum(4 * M - 1, N)),
    "the larger": (maximum(P, 8), maximum(4 * M - 1, 8)),
    "a size in parts of a size": (M // N, M // N),
    "a remainder of a size": (M % 3 + J, M % 3 + N),
}
UNKNOWN = {
    "falls": M - P,
    "falls in fours": (M - P) // 4,
    "falls and grows": P - J,
    "the smaller of one that falls": minimum(P, M - J),
    "the smaller of one that falls, first": minimum(M - J, P),
    "the larger of one that falls": maximum(M - J, P),
    "goes up and down": P % 4,
    "the smaller of one that falls, last": minimum(3 * J, M - P),
    "the larger of one that falls, last": maximum(3 * J, M - P),
    "in parts that are negative": P // -2,
    "in no parts": P // 0,
    "in parts of a size, which may be 0": P // N,
    "by an index": M // P,
    "a product with what falls": (M - P) * N,
}


@pytest.mark.parametrize("case", KNOWN)
def test_the_largest_value_of_what_grows(case: str) -> None:
    expr, top = KNOWN[case]
    assert largest(expr, TOPS) == top


@pytest.mark.parametrize("case", UNKNOWN)
def test_of_what_falls_nothing_is_known(case: str) -> None:
    assert largest(UNKNOWN[case], TOPS) is None


def test_an_index_of_which_nothing_is_known() -> None:
    assert largest(P, {"i": None}) is None
    assert largest(P + J, {"i": M, "j": None}) is None
    assert largest(P, {"i": M, "j": None}) == M
    assert largest(P + J, {"i": None, "j": M, "k": N}) is None


ATOMS = st.sampled_from(
    [P, J, M, N, Dim.constant(3), P // 4, J // 2, minimum(P, J), maximum(P, N), M % 3, (M - P) // 2]
)
EXPRS = st.lists(st.tuples(st.integers(-3, 3), ATOMS, ATOMS), min_size=1, max_size=3).map(
    lambda terms: sum((count * (one * two) for count, one, two in terms), Dim.constant(0))
)


@given(EXPRS)
def test_no_value_is_above_the_largest(expr: Dim) -> None:
    top = largest(expr, TOPS)
    if top is None:
        return
    for m, n in itertools.product(range(1, 4), range(1, 4)):
        sizes = {"M": m, "N": n}
        highest = {name: bound.evaluate(sizes) for name, bound in TOPS.items()}
        most = top.evaluate({**sizes, **highest})
        for i, j in itertools.product(range(highest["i"] + 1), range(highest["j"] + 1)):
            assert expr.evaluate({**sizes, "i": i, "j": j}) <= most


def test_elements_end_below_their_bound() -> None:
    assert fits(M - 8, 8, M)
    assert not fits(M - 7, 8, M)
    assert not fits(M, 8, N)


@given(EXPRS, st.sampled_from([2, 3, 4]))
def test_multiples_are_multiples(expr: Dim, size: int) -> None:
    values = [
        expr.evaluate({"M": m, "N": n, "i": i, "j": j})
        for m, n, i, j in itertools.product(range(1, 4), range(1, 4), range(4), range(4))
    ]
    if is_multiple(expr, size):
        assert all(value % size == 0 for value in values)
    scaled = [
        expr.evaluate({"M": 4 * m, "N": n, "i": 6 * i, "j": j})
        for m, n, i, j in itertools.product(range(1, 4), range(1, 4), range(4), range(4))
    ]
    number = multiple_of(expr, {"M": 4, "i": 6})
    assert all(value % number == 0 if number else value == 0 for value in scaled)


def test_what_is_known_to_be_a_multiple() -> None:
    assert is_multiple(8 * P + 16, 8)
    assert is_multiple(minimum(8 * P, 16 * J), 8)
    assert is_multiple(3 * maximum(8 * P, 16), 8)
    assert not is_multiple(minimum(8 * P, 4 * J), 8)
    assert not is_multiple(8 * P + 4, 8)
    assert not is_multiple((8 * P) // 2, 8)
    assert multiple_of(6 * P * J, {"i": 4}) == 24
    assert multiple_of(12 * P - 18 * J, {}) == 6
    assert multiple_of(minimum(8 * P, 12 * J), {}) == 4
    assert multiple_of(5 * minimum(8 * P, 12 * J), {"j": 2}) == 40
    assert multiple_of(4 * (P // 2), {}) == 4
    assert multiple_of(Dim.constant(0), {}) == 0


@pytest.mark.parametrize(
    ("sizes", "lanes", "count"),
    [((), 8, 1), ((8,), 8, 1), ((24,), 8, 3), ((4,), 8, 1), ((9,), 8, 9), ((2, 3, 16), 8, 12), ((3, 0), 8, 0)],
)
def test_vector_registers_of_a_block(sizes: tuple[int, ...], lanes: int, count: int) -> None:
    assert registers_of(sizes, lanes) == count


def test_widths_are_found_by_lanes_and_by_features() -> None:
    assert {width.lanes for width in widths_of(8)} == {8}
    (wide,) = widths_of(16)
    assert width_for(16, [wide.needs]) is wide
    assert width_for(16, ["avx2"]) is None
    assert isinstance(wide, Width)


# What is known of values of a kernel.

ARGUMENTS = f"%x: {BUFFER}, %y: {BUFFER}, %w: !ttile.buffer<[16], i64>"
SCRATCH = "%s = ttarget.scratch {{offset = {offset}, space = {space}}} : () -> !ttile.buffer<[64, 16], f32>"
HERE = {"type": "!ttile.buffer<[64, 16], f32>", "offset": "16*i + j", "guarded": "[]", "bounds": "[]"}


def ops_of(text: str) -> list[SpecOp]:
    load_dialects()
    return [op for op in parse_module(text).walk() if isinstance(op, SpecOp)]


@pytest.mark.parametrize(("space", "wanted"), [("private", "global"), ("shared", "shared"), ("registers", "register")])
def test_loads_and_stores_move_between_registers_and_where_a_buffer_is(space: str, wanted: str) -> None:
    scratch = SCRATCH.format(offset=64, space=f'"{space}"')
    ops = ops_of(kernel(scratch, load(), store("%s", **HERE), load("%s", **HERE).replace("%v", "%w", 1), store()))
    loads, stores = ([op for op in ops if op.name == f"ttarget.{name}"] for name in ("load", "store"))
    assert [moves_of(op) for op in loads] == [(Move("global", "register"),), (Move(wanted, "register"),)]
    assert [moves_of(op) for op in stores] == [(Move("register", wanted),), (Move("register", "global"),)]
    assert [space_of(op.operands[1]) for op in stores] == [wanted, "global"]
    (other,) = [op for op in ops if op.name == "ttarget.scratch"]
    assert moves_of(other) == ()


@pytest.mark.parametrize(("offset", "wanted"), [(0, 64), (64, 64), (32, 32), (48, 16)])
def test_scratch_is_aligned_to_lines_where_it_begins_at_one(offset: int, wanted: int) -> None:
    (scratch,) = [
        op
        for op in ops_of(kernel(SCRATCH.format(offset=offset, space='"private"')))
        if op.results[:1] and op.name == "ttarget.scratch"
    ]
    assert buffer_alignment(scratch.result) == wanted


@pytest.mark.parametrize(("align", "dtype", "wanted"), [(0, "f32", 4), (16, "f32", 16), (4, "f64", 8), (0, "i8", 1)])
def test_arguments_are_aligned_as_their_kernel_says(align: int, dtype: str, wanted: int) -> None:
    text = kernel(arguments=f"%x: {BUFFER}, %y: {BUFFER}", align=str(align)).replace("f32", dtype)
    (found,) = [op for op in ops_of(text) if op.name == "ttarget.kernel"]
    assert buffer_alignment(found.regions[0].block.args[0]) == wanted


def test_indices_are_multiples_of_what_makes_them() -> None:
    """Of a constant, of what an expression is of, of the first index and the step of a loop; others of nothing."""
    text = kernel(
        f"%a = ttarget.index {{names = [], expr = 24}} : () -> {INDEX}",
        f'%b = ttarget.index %i {{names = ["p"], expr = 6*p}} : ({INDEX}) -> {INDEX}',
        f'%c = ttarget.index %b, %a {{names = ["p", "q"], expr = 2*p + q}} : ({INDEX}, {INDEX}) -> {INDEX}',
        f"""ttarget.loop %a, %c {{step = 16}} ({{
    ^bb0(%q: {INDEX}):
      %d = ttarget.index %q {{names = ["p"], expr = p}} : ({INDEX}) -> {INDEX}
      ttarget.yield
    }}) : ({INDEX}, {INDEX}) -> ()""",
        f"""ttarget.tail %j, %c {{step = 16}} ({{
    ^bb0(%q: {INDEX}):
      %e = ttarget.index %q {{names = ["p"], expr = p}} : ({INDEX}) -> {INDEX}
      ttarget.yield
    }}) : ({INDEX}, {INDEX}) -> ()""",
    )
    ops = ops_of(text)
    indices = [index_multiple(op.result) for op in ops if op.name == "ttarget.index"]
    assert indices == [0, 24, 6, 12, gcd(24, 16), 16]
    (programs,) = [op for op in ops if op.name == "ttarget.programs"]
    assert index_multiple(programs.regions[0].block.args[0]) == 1


def test_what_a_loop_carries_is_a_multiple_of_nothing() -> None:
    text = kernel(
        f"""%l = ttarget.loop %j, %j, %j {{step = 16}} ({{
    ^bb0(%q: {INDEX}, %r: {INDEX}):
      ttarget.yield %r : ({INDEX}) -> ()
    }}) : ({INDEX}, {INDEX}, {INDEX}) -> {INDEX}"""
    )
    (loop,) = [op for op in ops_of(text) if op.name == "ttarget.loop"]
    assert [index_multiple(argument) for argument in loop.regions[0].block.args] == [16, 1]


def test_of_values_that_no_op_of_theirs_makes_little_is_known() -> None:
    """Neither of what nobody makes, nor of what another op does."""
    assert index_multiple(value_of(IndexAttr(None))) == 1
    buffer = value_of(BufferAttr.of(TensorType.of((4,), f64)))
    assert (buffer_alignment(buffer), space_of(buffer)) == (8, "global")
    fetch = f'%q = ttarget.fetch %w, %i {{coords = ["i"], offset = i}} : (!ttile.buffer<[16], i64>, {INDEX}) -> {INDEX}'
    (op,) = [op for op in ops_of(kernel(fetch, arguments=ARGUMENTS)) if op.name == "ttarget.fetch"]
    assert index_multiple(op.result) == 1


def test_what_a_loop_carries_begins_anywhere() -> None:
    """Memory that a loop would carry is no argument: neither what its kernel says of those, nor what it declares."""
    loop = f"""%l = ttarget.loop %j, %j, %x {{step = 16}} ({{
    ^bb0(%q: {INDEX}, %r: {BUFFER}):
      ttarget.yield %r : ({BUFFER}) -> ()
    }}) : ({INDEX}, {INDEX}, {BUFFER}) -> {BUFFER}"""
    ops = ops_of(kernel(loop, align="16"))
    (found,) = [op for op in ops if op.name == "ttarget.loop"]
    carried = found.regions[0].block.args[1]
    assert buffer_alignment(carried) == 4
    check_written(found, carried)
    check_written(found, found.result)
    check_written(found, value_of(carried.type))
    (owner,) = [op for op in ops if op.name == "ttarget.kernel"]
    check_written(found, owner.regions[0].block.args[1])
    with pytest.raises(OpError, match="writes argument 0 of `@k`"):
        check_written(found, owner.regions[0].block.args[0])


MOVED = [
    (Move("global", "shared", "tma"), ("tma",), "", ""),
    (Move("global", "shared", "tma"), ("cp.async",), "by tma is not this machine's", "it moves there by cp.async"),
    (Move("global", "shared", "tma"), (), "by tma is not this machine's", "pass through registers"),
    (Move("shared", "global", "tma"), (), "by tma is not this machine's", "pass through registers"),
    (Move("register", "shared"), (), "", ""),
    (Move("register", "global", "tma"), (), "by tma is not this machine's", "it moves there by plain loads and stores"),
    (Move("global", "tmem", "tma"), (), "there is no direct transfer from global to tmem", "pass through registers"),
    (Move("global", "tmem"), (), "there is no direct transfer from global to tmem memory", "pass through registers"),
    (
        Move("tmem", "shared", "tma"),
        ("tma",),
        "there is no direct transfer from tmem to shared",
        "pass through registers",
    ),
]


@pytest.mark.parametrize(("move", "features", "words", "fix"), MOVED)
def test_what_a_machine_does_not_move_is_refused_with_what_it_does(
    move: Move, features: tuple[str, ...], words: str, fix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MOVES, "ttarget.index", (move,))
    (owner,) = [op for op in ops_of(kernel()) if op.name == "ttarget.kernel"]
    if not words:
        check_moves(owner, features)
        return
    with pytest.raises(FeatureError) as caught:
        check_moves(owner, features)
    assert words in caught.value.message
    assert fix in str(caught.value.fix)


def test_a_store_writes_what_its_kernel_declares() -> None:
    check(kernel())
    assert "writes argument 0 of `@k`, which only writes [1]" in check_refused(kernel(load(), store("%x"), store()))


def test_a_loop_carries_no_memory() -> None:
    """A store to what is carried would be to an argument that the kernel need not declare to write."""
    text = kernel(
        load(),
        f"""%l = ttarget.loop %j, %j, %x {{step = 16}} ({{
    ^bb0(%q: {INDEX}, %r: {BUFFER}):
      {store("%r")}
      ttarget.yield %r : ({BUFFER}) -> ()
    }}) : ({INDEX}, {INDEX}, {BUFFER}) -> {BUFFER}""",
        store(),
    )
    assert check_refused(text).startswith(f"`ttarget.loop` carries {BUFFER}, and memory is used by its name")


class TestIndexRanges:
    """Indices of a kernel, each an expression of program ids and loop indices."""

    def make(self) -> tuple[IndexRanges, dict[str, SpecOp]]:
        ops = ops_of(kernel(f'%a = ttarget.index %i {{names = ["p"], expr = 8*p}} : ({INDEX}) -> {INDEX}'))
        (owner,) = [op for op in ops if op.name == "ttarget.kernel"]
        return IndexRanges(owner), {str(at): op for at, op in enumerate(op for op in ops if op.name == "ttarget.index")}

    def test_an_index_is_safe_where_its_largest_value_is(self) -> None:
        ranges, ops = self.make()
        index = ops["1"]
        ranges.name_index(index.operands[0], M - 1)
        ranges.substitute_index(index)
        assert ranges.is_safe(index.result, 8 * M, 8)
        assert not ranges.is_safe(index.result, 8 * M, 9)
        assert not ranges.is_safe(index.result, 8 * Dim.symbol("K"), 8)

    def test_a_bound_may_use_every_size(self) -> None:
        ranges, ops = self.make()
        ranges.name_index(ops["0"].result, M * N - 1)
        assert ranges.is_safe(ops["0"].result, M * N, 1)
        assert not ranges.is_safe(ops["0"].result, M * N, 2)

    def test_programs_and_clips_of_tiles(self) -> None:
        """A program id ends before the extent of its axis; a clip replaces nothing where its block ends before that."""
        text = f"""ttile.kernel @t() attributes {{symbols = ["M", "N"], grid = [N, M], writes = []}} {{
  %p = ttile.program_id {{axis = 1}} : () -> {INDEX}
  %i = ttile.index %p {{names = ["p"], expr = 8*p}} : ({INDEX}) -> {INDEX}
  %z = ttile.index {{names = [], expr = 0}} : () -> {INDEX}
  %c = ttile.constant {{value = 0}} : () -> !ttile.tile<[4, 8], f32>
  %d = ttile.clip %c, %z, %i {{coords = ["a", "b"], axes = ["a", "b"], axis = "b", bound = 8*M, identity = 0}} : (!ttile.tile<[4, 8], f32>, {INDEX}, {INDEX}) -> !ttile.tile<[4, 8], f32>
  ttile.return
}}"""  # noqa: E501 - IR as it is printed
        for bound, is_safe in (("8*M", True), ("8*M - 1", False)):
            ops = ops_of(text.replace("bound = 8*M", f"bound = {bound}"))
            by_name = {op.name: op for op in ops if op.name != "ttile.index"}
            ranges = IndexRanges(by_name["ttile.kernel"])
            ranges.name_program(by_name["ttile.program_id"])
            for op in ops:
                if op.name == "ttile.index":
                    ranges.substitute_index(op)
            assert ranges.is_clip_safe(by_name["ttile.clip"]) == is_safe

    def test_of_an_index_that_nobody_named_nothing_is_known(self) -> None:
        ranges, ops = self.make()
        ranges.substitute_index(ops["1"])
        assert not ranges.is_safe(ops["1"].result, 8 * M, 1)
        assert ranges.expr(ops["1"].operands[0]) == ranges.expr(ops["1"].operands[0])
        assert ranges.expr(ops["0"].result) != ranges.expr(ops["1"].operands[0])
