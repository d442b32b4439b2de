"""Index maps as arrays, as integer sets and as intervals: each is compared with evaluating them at every point."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.dialect_of import make
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import INDEX
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.tile.indexing import (
    Affine,
    alike,
    along,
    cells_of,
    evaluate,
    evaluate_at,
    index_expr,
    isl_set,
    known_ends,
    point_of,
    size_conditions,
    size_expr,
)
from tessera.ir.tile.sites import Axis, Site, Variable, is_in_bounds, sites_of, timeline_of
from tessera.types.dim import Dim, maximum, minimum
from tests.ir.base.verdicts import type_of
from tests.tile.kernels import M, N
from tests.tile.test_op_verifiers import loop

I, J, K = Dim.symbol("%i"), Dim.symbol("%j"), Dim.symbol("K")  # noqa: E741 - two indices, as in every index map
ZERO = Dim.constant(0)

# Expressions on arrays.

ARRAYS = [
    ZERO,
    3 * I - 2 * J + 5,
    I * J * J,
    I // 3 + J % 4,
    I // J,
    I % J,
    maximum(I, J) - minimum(I, J),
    (I + 7) // N * N + I % N,
    N // M + N % M,
    N // J - N % J,
    maximum(N, J) * minimum(M, J),
]


@pytest.mark.parametrize("expr", ARRAYS, ids=str)
def test_an_expression_on_arrays_is_what_it_is_at_each_element(expr: Dim) -> None:
    i, j = np.arange(-6, 7).reshape(-1, 1), np.arange(-3, 4).reshape(1, -1)
    for n, m in ((0, 3), (5, 0), (5, 2)):
        found = np.broadcast_to(np.asarray(evaluate(expr, {"%i": i, "%j": j, "N": n, "M": m})), (13, 7))
        for (row, column), value in np.ndenumerate(found):
            point = {"%i": int(i[row, 0]), "%j": int(j[0, column]), "N": n, "M": m}
            assert value == expr.evaluate(point), point


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (3, 1, 2)])
def test_coordinates_grow_along_their_own_axis(shape: tuple[int, ...]) -> None:
    axes = [f"x{number}" for number in range(len(shape))][::-1]
    starts = {name: 10 * number for number, name in enumerate(axes)}
    env = along({**starts, "k": 7}, axes, shape, {"N": 9})
    assert (env["k"], env["N"]) == (7, 9)
    for element in np.ndindex(*shape):
        for position, name in enumerate(axes):
            assert np.broadcast_to(env[name], shape)[element] == starts[name] + element[position]


@pytest.mark.parametrize(("bound", "window"), [(-1, 9), (3, 9), (0, 9), (-1, 2), (3, 2)])
def test_cells_are_those_inside_bounds_and_windows(bound: int, window: int) -> None:
    shape, gathered = (4, 3), np.array([[2, 0, 5], [1, 1, 9], [0, 3, 2], [4, 4, 4]], np.int32)
    i, j, t = (Dim.symbol(name) for name in ("i", "j", "t0"))
    values = {
        "axes": ("i", "j"),
        "bounds": (Dim.constant(bound), ZERO + N),
        "windows": (i - j, Dim.constant(window), i + j, Dim.constant(5)),
        "map": (i + 1, t * 2 + j),
    }
    env = along({"i": 0, "j": 1}, ("i", "j"), shape, {"N": 3})
    cells = cells_of(values, env, shape, [gathered])
    inside: list[tuple[int, int]] = []
    for a, b in np.ndindex(*shape):
        y, x = a, b + 1
        wanted = (bound == -1 or y < bound) and x < 3 and 0 <= y - x < window and y + x < 5
        assert bool(cells.inside[a, b]) is wanted, (a, b)
        if wanted:
            index = (y + 1, int(gathered[a, b]) * 2 + x)
            assert tuple(int(part[a, b]) for part in cells.indices) == index
            inside.append(index)
    assert cells.flat((9, 99)).tolist() == [row * 99 + column for row, column in inside]


def test_a_buffer_of_rank_0_has_one_cell() -> None:
    values = {"axes": ("i",), "bounds": (N,), "windows": (), "map": ()}
    cells = cells_of(values, along({"i": 1}, ("i",), (4,), {"N": 3}), (4,), [])
    assert cells.flat(()).tolist() == [0, 0]


def test_an_index_is_known_by_the_expression_that_made_it() -> None:
    fixed = make("ttile.index", (), {"names": (), "expr": N + 1}, types=[INDEX]).results[0]
    moved = make("ttile.index", [fixed], {"names": ("i",), "expr": Dim.symbol("i") + 2}, types=[INDEX]).results[0]
    program = make("ttile.program_id", (), {"axis": 0}, types=[INDEX]).results[0]
    body = loop().regions[0].block.args[0]
    assert (index_expr(fixed), size_expr(fixed)) == (N + 1, N + 1)
    assert (index_expr(moved), size_expr(moved)) == (Dim.symbol("i") + 2, None)
    for value in (program, body):
        assert index_expr(value) is size_expr(value) is None


@pytest.mark.parametrize(("low", "high", "wanted"), [(0, 4, (0, 4)), (3, 0, (3, 0)), (0, N, None), (N, 4, None)])
def test_ends_of_a_loop_are_numbers_or_unknown(low: Dim | int, high: Dim | int, wanted: tuple[int, int] | None) -> None:
    ends = [
        make("ttile.index", (), {"names": (), "expr": Dim.of(end)}, types=[INDEX]).results[0] for end in (low, high)
    ]
    carried = make("ttile.constant", (), {"value": 0}, types=[type_of("f32[4]")]).results
    around = loop("f32[4]")
    around.operands = [*ends, *carried]
    assert known_ends(around) == wanted


# Expressions as integer sets.

EXACT = [ZERO, 3 * I - 2 * J + 5 * N, I // 3, (I - 4) % 5, maximum(I, J), minimum(I - N, 2), (I + J) // 2 % 3]
WIDENED = [
    I // -2,
    I % -3,
    I // 0,
    I * J,
    I * N,
    M * N,
    I // N,
    I % N,
    I % (N - 2),
    I // (J + 4),
    N // M,
    N % M,
    I * J + I % N,
]


def contains(expr: Dim, sizes: Mapping[str, int], i: int, j: int, value: int) -> bool:
    """Whether the set of all values of an expression has `value` at a point."""
    writer = Affine(sorted(sizes))
    names = [writer.name("%i"), writer.name("%j")]
    text = writer.text(expr)
    at = [f"{writer.name(name)} = {size}" for name, size in sizes.items()]
    conditions = [*writer.conditions, *at, f"{names[0]} = {i}", f"{names[1]} = {j}", f"c = {text}", f"c = {value}"]
    return not isl_set(writer.parameters, [*writer.inner_names, "c"], conditions).is_empty()


@pytest.mark.parametrize("expr", [*EXACT, *WIDENED], ids=str)
def test_a_set_has_the_value_of_an_expression_and_no_other_where_it_is_exact(expr: Dim) -> None:
    for i, j, n, m in itertools.product((-5, 0, 4), (-3, 2), (0, 1, 3), (0, 2)):
        sizes = {"M": m, "N": n}
        value = expr.evaluate({"%i": i, "%j": j, **sizes})
        assert contains(expr, sizes, i, j, value), (i, j, n, m)
        if expr in EXACT:
            assert not contains(expr, sizes, i, j, value + 1)
            assert not contains(expr, sizes, i, j, value - 1)


@pytest.mark.parametrize("expr", [*EXACT, *WIDENED], ids=str)
def test_what_is_widened_is_not_exact(expr: Dim) -> None:
    writer = Affine(["M", "N"])
    writer.text(expr)
    assert writer.exact is (expr in EXACT)


def test_what_is_widened_keeps_what_is_known_of_it() -> None:
    sizes = {"M": 2, "N": 3}
    assert not contains(M * N, sizes, 0, 0, -1), "sizes are natural, and so is their product"
    assert contains(M * N, sizes, 0, 0, 0)
    assert contains(I * N, sizes, 0, 0, -1), "an index may be anything"
    for value in range(-2, 6):
        assert contains(I % N, sizes, 4, 0, value) is (0 <= value < 3)
    assert contains(I % N - I % N, sizes, 4, 0, 0)
    writer = Affine(["M", "N"])
    assert writer.text(I * N) == writer.text(I * N), "one name for one expression"
    assert len(writer.extra) == 1


@pytest.mark.parametrize("pace", [1, 2, 3])
def test_a_domain_holds_where_a_site_is_reached(pace: int) -> None:
    step = Variable("%l1", "loop", Dim.constant(1), N, pace)
    element = Variable("%e0", "element", ZERO, Dim.constant(4))
    axis = Axis(step.dim * 2, element, M)
    op = make("ttile.barrier", types=())
    site = Site(op, 0, (N,), (axis.dim,), (step, element), (axis,), ((axis.dim - 3, M),), ())
    writer = Affine(["M", "N"])
    writer.domain(site)
    assert writer.exact
    for size, count in ((11, 9), (5, 2), (8, 0)):
        fixed = [f"S0 = {size}", f"S1 = {count}"]
        found = isl_set(writer.parameters, writer.inner_names, [*writer.conditions, *fixed])
        for at, index in itertools.product(range(-1, 11), range(-1, 5)):
            point = isl_set(writer.parameters, writer.inner_names, [f"v0 = {at}", f"v1 = {index}"])
            is_reached = at in range(1, count, pace) and index in range(4) and 3 <= 2 * at + index < size
            assert found.intersect(point).is_empty() is not is_reached, (size, count, at, index)
    gathered = Affine([])
    gathered.domain(Site(op, 0, (), (), (), (), (), ("%t0",)))
    assert not gathered.exact, "what is read from memory may be anything"


def test_sizes_are_natural_and_equal_where_a_guard_says_so() -> None:
    sizes = ["M", "N"]
    assert size_conditions(sizes, [(M * N, N), (K, N)]) == ["S0 >= 0", "S1 >= 0"]
    for guards, wanted in (((), 16), ([(M, N)], 4), ([(M, N + 1)], 3), ([(M, 2 * N)], 2)):
        conditions = [*size_conditions(sizes, guards), "S0 < 4", "S1 < 4"]
        found = isl_set("[S0, S1]", [], conditions)
        count = sum(
            not found.intersect(isl_set("[S0, S1]", [], [f"S0 = {m}", f"S1 = {n}"])).is_empty()
            for m, n in itertools.product(range(-1, 5), repeat=2)
        )
        assert count == wanted, guards
    assert alike(["A", "B", "C"]) == ["S1 = S0", "S2 = S0"]
    assert alike(["A"]) == []


def test_a_point_is_the_smallest_and_gives_expressions_their_values() -> None:
    writer = Affine(["N"])
    name = writer.name("%i")
    found = isl_set(writer.parameters, [name], [f"{name} >= 2", f"{name} < 9", "S0 = 5"])
    point = point_of(found, ["N"], [name])
    assert point == {"N": 5, name: 2}
    assert evaluate_at(point, I * N + 1, writer) == 11


# Sites of a kernel, as expressions.

GATHERED = "(!ttile.buffer<[M, N], f32>, !ttile.index, !ttile.index, !ttile.tile<[4, 2], i64>)"
SITES = f"""
ttile.kernel @f(%x: !ttile.buffer<[M, N], f32>, %w: !ttile.buffer<[N], i64>) attributes {{
  symbols = ["M", "N"], grid = [M, N], writes = [0]
}} {{
  %p = ttile.program_id {{axis = 0}} : () -> !ttile.index
  %q = ttile.program_id {{axis = 1}} : () -> !ttile.index
  %b = ttile.index %p, %q {{names = ["a", "b"], expr = 8*a - b}} : (!ttile.index, !ttile.index) -> !ttile.index
  %0 = ttile.index {{names = [], expr = 0}} : () -> !ttile.index
  %f = ttile.fetch %w, %q {{coords = ["i"], map = [i + 1]}} : (!ttile.buffer<[N], i64>, !ttile.index) -> !ttile.index
  ttile.barrier
  ttile.for %0, %f {{step = 4}} ({{
  ^bb0(%k: !ttile.index):
    ttile.for %k, %b {{step = 2}} ({{
    ^bb0(%l: !ttile.index):
      %g = ttile.fetch %w, %l {{coords = ["i"], map = [i]}} : (!ttile.buffer<[N], i64>, !ttile.index) -> !ttile.index
      %t = ttile.constant {{value = 1}} : () -> !ttile.tile<[4, 2], i64>
      %v = ttile.load %x, %k, %g, %t {{
        coords = ["i", "j"], axes = ["i", "j"], map = [i + 2, t0], bounds = [N - 1, -1], windows = [i - 3, M, j, N]
      }} : {GATHERED} -> !ttile.tile<[4, 2], f32>
      ttile.barrier
      ttile.yield
    }}) : (!ttile.index, !ttile.index) -> ()
    ttile.yield
  }}) : (!ttile.index, !ttile.index) -> ()
  %s = ttile.scratch {{space = "shared"}} : () -> !ttile.buffer<[4], f32>
  %u = ttile.constant {{value = 1.0}} : () -> !ttile.tile<[], f32>
  ttile.store %u, %s, %p {{
    coords = ["i"], axes = [], map = [i], bounds = []
  }} : (!ttile.tile<[], f32>, !ttile.buffer<[4], f32>, !ttile.index) -> ()
  ttile.return
}}
"""


def describe(site: Site) -> list[str]:
    """What a site says, in words that a person can check against the kernel."""
    variables = [f"{one.kind} {one.name} {one.low}..{one.high}/{one.step}" for one in site.variables]
    axes = [f"{axis.start} {axis.element.name} {axis.bound}" for axis in site.axes]
    windows = [f"{expr} in {extent}" for expr, extent in site.windows]
    words = [site.op.name.removeprefix("ttile."), str(site.argument), str(list(site.shape)), str(list(site.indices))]
    return [" ".join(words), "; ".join(variables), "; ".join(axes), "; ".join(windows), " ".join(site.gathered)]


PROGRAMS = "program %p0 0..M/1; program %p1 0..N/1"
AROUND = f"{PROGRAMS}; loop %l1 0..%f0/4; loop %l2 %l1..8*%p0 - %p1/2"


def test_sites_are_over_programs_steps_elements_and_what_is_fetched() -> None:
    module = parse_module(SITES)
    verify(module)
    kernel = symbol_table(module)["f"]
    timeline = timeline_of(kernel)
    assert [describe(site) for site in timeline.sites] == [
        ["fetch 1 [N] [%p1 + 1]", PROGRAMS, "", "", ""],
        ["fetch 1 [N] [%l2]", AROUND, "", "", "%f0"],
        [
            "load 0 [M, N] [%e0 + %l1 + 2, %t0]",
            f"{AROUND}; element %e0 0..4/1; element %e1 0..2/1",
            "%l1 %e0 N - 1; %f1 %e1 None",
            "%e0 + %l1 - 3 in M; %e1 + %f1 in N",
            "%t0 %f0 %f1",
        ],
        ["store None [4] [%p0]", PROGRAMS, "", "", ""],
    ]
    assert [describe(site)[1] for site in timeline.barriers] == [PROGRAMS, AROUND]
    assert [site.gathered for site in timeline.barriers] == [(), ("%f0",)]
    assert timeline.settled == ("%f0",), "in a loop it is another number in each step"
    assert [describe(site) for site in sites_of(kernel)] == [describe(site) for site in timeline.sites]
    load, store = timeline.sites[2:]
    assert (load.is_store, load.verb, load.buffer) == (False, "reads", load.op.operands[0])
    assert (store.is_store, store.verb, store.buffer) == (True, "writes", store.op.operands[1])
    small = load.at_sizes({"M": 5, "N": 7})
    assert describe(small)[:4] == [
        "load 0 [5, 7] [%e0 + %l1 + 2, %t0]",
        "program %p0 0..5/1; program %p1 0..7/1; loop %l1 0..%f0/4; loop %l2 %l1..8*%p0 - %p1/2; "
        "element %e0 0..4/1; element %e1 0..2/1",
        "%l1 %e0 6; %f1 %e1 None",
        "%e0 + %l1 - 3 in 5; %e1 + %f1 in 7",
    ]


def test_sizes_behind_an_index_are_those_that_decide_it() -> None:
    a, b, c, d, e, f = (Dim.symbol(name) for name in "ABCDEF")
    site = site_of(L + a, d, programs=[e], steps=[(P * b, c, 1)])
    assert site.sizes_behind(0) == {"A", "B", "C", "D", "E"}
    assert site_of(P, d, programs=[e, f]).sizes_behind(0) == {"D", "E"}, "another program decides nothing"
    assert site_of(P, d, programs=[e], windows=[(Q + a, f)]).sizes_behind(0) == {"A", "D", "E", "F"}
    assert site_of(E, d, axes=[(ZERO, 4, f)]).sizes_behind(0) == {"D", "F"}
    assert site_of(E, d, axes=[(ZERO, 4, None)]).sizes_behind(0) == {"D"}
    assert site_of(ZERO + 1, ZERO + 4, programs=[e]).sizes_behind(0) == set()


# Intervals: a proof holds at every size that is tried, and what is known to follow is proven.


def points_of(site: Site, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Every point at which a site is reached."""

    def extend(point: dict[str, int], variables: Sequence[Variable]) -> Iterator[dict[str, int]]:
        if not variables:
            yield point
            return
        first, *rest = variables
        for value in range(first.low.evaluate(point), first.high.evaluate(point), first.step):
            yield from extend({**point, first.name: value}, rest)

    for point in extend(dict(sizes), site.variables):
        axes = all(axis.bound is None or axis.dim.evaluate(point) < axis.bound.evaluate(point) for axis in site.axes)
        if axes and all(0 <= expr.evaluate(point) < extent.evaluate(point) for expr, extent in site.windows):
            yield point


def site_of(
    index: Dim,
    extent: Dim,
    *,
    programs: Sequence[Dim] = (),
    steps: Sequence[tuple[Dim, Dim, int]] = (),
    axes: Sequence[tuple[Dim, int, Dim | None]] = (),
    windows: Sequence[tuple[Dim, Dim]] = (),
    gathered: Sequence[str] = (),
) -> Site:
    variables = [Variable(f"%p{number}", "program", ZERO, high) for number, high in enumerate(programs)]
    variables += [Variable(f"%l{number}", "loop", *ends) for number, ends in enumerate(steps)]
    elements = [
        Variable(f"%e{number}", "element", ZERO, Dim.constant(size)) for number, (_, size, _) in enumerate(axes)
    ]
    found = [Axis(start, element, bound) for (start, _, bound), element in zip(axes, elements, strict=True)]
    op = make("ttile.barrier", types=())
    every = (*variables, *elements)
    return Site(op, 0, (extent,), (index,), every, tuple(found), tuple(windows), tuple(gathered))


P, Q, L, E, F = (Dim.symbol(name) for name in ("%p0", "%p1", "%l0", "%e0", "%e1"))
BLOCK = P * 4
PROVEN = {
    "a program": site_of(P, N, programs=[N]),
    "the last of them": site_of(N - 1 - P, N, programs=[N]),
    "of two axes": site_of(P * N + Q, M * N, programs=[M, N]),
    "taken apart": site_of(P // N, M, programs=[M * N]),
    "what is left over": site_of(P % N, N, programs=[M * N]),
    "rounded up": site_of(P // 4, N.ceildiv(4), programs=[N]),
    "whole blocks": site_of(P // 4, N, programs=[N * 4]),
    "a block": site_of(BLOCK + E, N, programs=[N.ceildiv(4)], axes=[(BLOCK, 4, N)]),
    "a whole block": site_of(BLOCK + E, N * 4, programs=[N], axes=[(BLOCK, 4, None)]),
    "a row of blocks": site_of(Q * N + BLOCK + E, M * N, programs=[N.ceildiv(4), M], axes=[(BLOCK, 4, N)]),
    "steps": site_of(P * N + L, M * N, programs=[M], steps=[(ZERO, N, 1)]),
    "steps of a block": site_of(L + E, N, steps=[(ZERO, N, 4)], axes=[(L, 4, N)]),
    "a triangle": site_of(P * N + L, N * N, programs=[N], steps=[(ZERO, P + 1, 1)]),
    "what lies behind": site_of(N - 1 - L, N, programs=[N], steps=[(P, N, 1)]),
    "a minimum": site_of(L, N, programs=[N], steps=[(ZERO, minimum(N, P + 4), 1)]),
    "a maximum": site_of(L, N, programs=[N], steps=[(maximum(ZERO, P - 2), N, 1)]),
    "a window": site_of(P + Q - 3, N, programs=[N, N], windows=[(P + Q - 3, N)]),
    "a window on an axis": site_of(BLOCK + E - 1, N, programs=[M], axes=[(BLOCK, 4, M)], windows=[(BLOCK + E - 1, N)]),
    "two windows": site_of((P + Q - 1) * N + L, M * N, programs=[M, M], steps=[(ZERO, N, 1)], windows=[(P + Q - 1, M)]),
    "a gathered row in a window": site_of(
        Dim.symbol("%t0") * N + P, M * N, programs=[N], windows=[(Dim.symbol("%t0"), M)], gathered=["%t0"]
    ),
    "a number": site_of(Dim.constant(2), Dim.constant(3)),
    "a remainder of a row": site_of((P + 3) % N, N, programs=[N]),
    "the last row": site_of(N - 1, N, programs=[N]),
    "a product": site_of(P * Q, M * N, programs=[M, N]),
    "an element alone": site_of(E, ZERO + 4, programs=[N], steps=[(ZERO, maximum(M, P), 1)], axes=[(L, 4, None)]),
    "another element": site_of(
        E, ZERO + 4, programs=[N], steps=[(ZERO, minimum(N, P + 4), 1)], axes=[(N - L, 4, None)]
    ),
    "a window that sizes shift": site_of((Q + N - 5) * N + P, M * N, programs=[N, M], windows=[(Q + N - 5, M)]),
    "the first of two windows": site_of(P + Q, M, programs=[K, K], windows=[(P + Q, M), (Q, N)]),
    "behind a remainder of sizes": site_of(P + N % 4, M + N % 4, programs=[M]),
    "a quotient more": site_of(P, M + N // 4, programs=[M]),
}
UNPROVEN = {
    "one too far": site_of(P + 1, N, programs=[N]),
    "one too low": site_of(P - 1, N, programs=[N]),
    "a whole number more": site_of(P, N, programs=[N + 1]),
    "the last of none": site_of(N - 1, N, programs=[M]),
    "no bound": site_of(BLOCK + E, N, programs=[N.ceildiv(4)], axes=[(BLOCK, 4, None)]),
    "another bound": site_of(BLOCK + E, N, programs=[N.ceildiv(4)], axes=[(BLOCK, 4, M)]),
    "columns first": site_of(P * M + Q, M * N, programs=[M, N]),
    "a quotient too many": site_of(P // N, M, programs=[M * N + 1]),
    "of another divisor": site_of(P % M, N, programs=[M * N]),
    "of what may be negative": site_of((P - 1) // 2, N, programs=[N]),
    "a block too far": site_of(P // 4, N, programs=[N * 4 + 1]),
    "a square": site_of(P * P, N, programs=[N]),
    "a window of every other": site_of(2 * P - 3, N, programs=[N], windows=[(2 * P - 3, N)]),
    "a window elsewhere": site_of(2 * P - 3, N, programs=[N], windows=[(P, N)]),
    "gathered": site_of(Dim.symbol("%t0"), N, gathered=["%t0"]),
    "gathered in another window": site_of(
        Dim.symbol("%t0") + P, N, programs=[N], windows=[(Dim.symbol("%t0"), N)], gathered=["%t0"]
    ),
    "a step before": site_of(L, N, programs=[N], steps=[(P - 1, N, 1)]),
    "one that none may reach": site_of(N - 1, N, programs=[N + 1]),
    "behind a minimum": site_of(N - 1 - L, N, programs=[N], steps=[(ZERO, minimum(N, P + 4), 1)]),
    "up to a maximum": site_of(L, N, programs=[N], steps=[(ZERO, maximum(N, P), 1)]),
    "a third behind a minimum": site_of((N - 1 - L) // 3, N, programs=[N], steps=[(ZERO, minimum(N, P + 4), 1)]),
    "a third up to a maximum": site_of(L // 3, N, programs=[N], steps=[(ZERO, maximum(N, P), 1)]),
    "behind a maximum": site_of(M - 1 - L, M, programs=[N], steps=[(ZERO, maximum(M, P), 1)]),
    "less than a minimum": site_of(L, N - 1, programs=[N], steps=[(ZERO, minimum(N, P + 4), 1)]),
    "half of a window": site_of(P - 6, N, programs=[M], windows=[(2 * P - 6, N)]),
    "a quotient of what may be negative": site_of((P - 2) // 4, N, programs=[N * 4 + 2]),
    "at least a number": site_of(maximum(P, 3), N, programs=[N * 3]),
    "the larger of two": site_of(maximum(P, Q), N, programs=[N, M]),
    "half of the larger": site_of(maximum(P, Q) // 2, N, programs=[N, N]),
    "by the larger": site_of(P // maximum(P, Q), N, programs=[N, N]),
    "a product of what may be negative": site_of(L * Dim.symbol("%l1"), N * N, steps=[(ZERO - 1, N, 1), (ZERO, N, 1)]),
    "a negative quotient more": site_of(P, M + (N - 5) // 4, programs=[M]),
    "a number": site_of(Dim.constant(3), Dim.constant(3)),
    "a number below": site_of(Dim.constant(-1), Dim.constant(3)),
}


@pytest.mark.parametrize("name", PROVEN)
def test_what_follows_from_intervals_is_proven(name: str) -> None:
    assert is_in_bounds(PROVEN[name], 0)


@pytest.mark.parametrize("name", UNPROVEN)
def test_what_does_not_follow_is_not_proven(name: str) -> None:
    assert not is_in_bounds(UNPROVEN[name], 0)


def leaves(site: Site, sizes: Mapping[str, int]) -> bool:
    """Whether a site that gathers nothing touches a cell outside."""
    extent = site.shape[0].evaluate(sizes)
    return any(not 0 <= site.indices[0].evaluate(point) < extent for point in points_of(site, sizes))


@pytest.mark.parametrize("name", [name for name, site in PROVEN.items() if not site.gathered])
def test_a_proof_holds_at_small_sizes(name: str) -> None:
    for m, n in itertools.product(range(6), range(7)):
        assert not leaves(PROVEN[name], {"M": m, "N": n, "K": 3}), (m, n)


EXTENTS = [N, M * N, N + 1, N * 4, N.ceildiv(4), maximum(M, N)]
PARTS = [
    P,
    Q,
    L,
    E,
    F,
    P * 4,
    P * N,
    L * N,
    E * M,
    P // 3,
    P % 3,
    P // N,
    Q % N,
    N - P,
    minimum(L, 3),
    ZERO + 1,
    ZERO - 1,
]


@given(st.data())
def test_no_proof_is_wrong(data: st.DataObject) -> None:
    draw = data.draw
    index = sum((draw(st.sampled_from(PARTS)) for _ in range(draw(st.integers(1, 3)))), ZERO)
    bounds = st.sampled_from([None, N, M, M * N])
    site = site_of(
        index,
        draw(st.sampled_from(EXTENTS)),
        programs=[draw(st.sampled_from(EXTENTS)), draw(st.sampled_from([N, M]))],
        steps=[
            (
                draw(st.sampled_from([ZERO, ZERO, P, ZERO - 1])),
                draw(st.sampled_from([N, M, P + 1])),
                draw(st.integers(1, 3)),
            )
        ],
        axes=[
            (draw(st.sampled_from([P * 4, L, ZERO])), 4, draw(bounds)),
            (draw(st.sampled_from([Q, ZERO])), 2, draw(bounds)),
        ],
        windows=[(draw(st.sampled_from(PARTS)) + draw(st.sampled_from(PARTS)), N)] if draw(st.booleans()) else (),
    )
    if is_in_bounds(site, 0):
        for sizes in ({"M": 2, "N": 3}, {"M": 3, "N": 1}, {"M": 0, "N": 2}, {"M": 1, "N": 5}):
            assert not leaves(site, sizes), sizes
