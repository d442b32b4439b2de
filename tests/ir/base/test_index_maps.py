"""Index maps: offsets from coordinates and back, remainders put together again, and dims that are walked as one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.ir.base.index_maps import (
    broadcast_at,
    collapse,
    compose,
    delinear,
    linear,
    reshape_map,
    roll_map,
    simplify,
    strides,
)
from tessera.types.dim import Atom, Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType

A, B, C, X = (Dim.symbol(name) for name in ("A", "B", "C", "x"))
SHAPES = st.lists(st.integers(1, 6), max_size=4)


def symbols(count: int) -> list[Dim]:
    return [Dim.symbol(f"d{axis}") for axis in range(count)]


def dims(sizes: Sequence[int]) -> list[Dim]:
    return [Dim.constant(size) for size in sizes]


@given(SHAPES)
def test_places_are_those_of_numpy(sizes: list[int]) -> None:
    place = linear(symbols(len(sizes)), dims(sizes))
    for at in itertools.product(*map(range, sizes)):
        env = {f"d{axis}": index for axis, index in enumerate(at)}
        assert place.evaluate(env) == (np.ravel_multi_index(at, sizes) if sizes else 0)


@given(SHAPES)
def test_a_place_taken_apart_and_put_together_is_itself(sizes: list[int]) -> None:
    assert simplify(linear(delinear(X, dims(sizes)), dims(sizes))) == (X if sizes else Dim.constant(0))


def test_dims_of_one_element_take_no_part() -> None:
    assert delinear(X, dims([1, 5])) == (Dim.constant(0), X)
    assert delinear(X, dims([1, 1])) == (Dim.constant(0), X)
    assert delinear(X, [A, Dim.constant(1), B]) == (X // B, Dim.constant(0), X % B)


def test_free_sizes_are_put_together_too() -> None:
    assert linear(delinear(X, [A, B, C]), [A, B, C]) == X
    assert linear([X // B, X % B], [A, B]) == X
    assert linear([X // B, X % B + 1], [A, B]) == X + 1
    # The parts of different numbers stay apart.
    assert linear([X // B, X % C], [A, B]) != X


def test_dims_of_one_element_join_whatever_their_stride() -> None:
    names, one = ["i", "j", "k"], Dim.constant(1)
    i, j, k = (Dim.symbol(name) for name in names)
    assert collapse(names, [one, A, B], [7 * i + j * B + k]) == [[0, 1, 2]]
    assert collapse(names, [A, one, B], [i * B + 7 * j + k]) == [[0, 1, 2]]
    assert collapse(names, [A, B, one], [i * B + j + 7 * k]) == [[0, 1, 2]]
    assert collapse(names, [one, one, B], [7 * i + 5 * j + k]) == [[0, 1, 2]]
    assert collapse(names, [A, one, B], [i * C + 7 * j + k]) == [[0, 1], [2]]
    assert collapse(names, [A, B, C], [i * B * C + j * C + k]) == [[0, 1, 2]]
    assert collapse(names, [A, B, C], [i * B * C + j * C + k], [j]) == [[0], [1], [2]]
    assert collapse([], [], []) == []


def test_what_is_rolled_reads_ahead() -> None:
    rolls = (((5,), (2,), (0,)), ((5,), (-7,), (0,)), ((3, 4), (1, 6), (1, 0)), ((4,), (1, 3), (0, 0)))
    for sizes, shifts, axes in rolls:
        x = np.arange(np.prod(sizes)).reshape(sizes)
        for shape, env in ((dims(sizes), {}), ([A, B][: len(sizes)], dict(zip("AB", sizes, strict=False)))):
            found = roll_map(tuple(shape), shifts, axes)
            for at in itertools.product(*map(range, sizes)):
                here = {f"d{axis}": index for axis, index in enumerate(at)} | env
                assert (
                    x[tuple(one.evaluate(here) % n for one, n in zip(found, sizes, strict=True))]
                    == np.roll(x, shifts, axes)[at]
                )
    assert roll_map(tuple(dims([0, 3])), (2, 3), (0, 1)) == tuple(symbols(2))


def test_remainders_and_quotients_are_put_together_by_their_factors_alone() -> None:
    assert simplify(X % 4 + 4 * (X // 4)) == X
    assert simplify(A * (X % 4) + 4 * A * (X // 4)) == A * X
    assert simplify(X % B + B * (X // B) + 7) == X + 7
    assert simplify(X // 3 % 4 + 4 * (X // 12)) == X // 3
    assert simplify(X // 3 % B + B * (X // (3 * B))) == X // 3
    flat = 466 * A - X + 465  # a flipped row of a reshape: multiples of a divisor leave both of its parts
    apart = delinear(flat, dims((699, 13, 19, 2)))
    assert simplify(linear(apart, dims((699, 13, 19, 2)))) == flat
    assert simplify(X % 50 + 50 * (X // 50 % 1498)) == X % 74900
    assert simplify(2 * (X % 5) + 10 * ((A + X // 5) % 7)) == 2 * ((5 * A + X) % 35)
    assert simplify(X % 5 + 10 * (X // 5 % 7)) == X % 5 + 10 * (X // 5 % 7)
    nested = Dim((((Atom("floordiv", "", (X // 3, Dim.constant(3))),), 9),))  # as lowering writes it
    assert simplify(X % 3 + 3 * (X // 3 % 3) + nested) == X
    for apart in (
        X % 4 + 3 * (X // 4),
        X % 4 + X // 4,
        X % 4 - 4 * (X // 4),
        X % 4 + 4 * (X // 5),
        X % 4 + 4 * (A // 4),
    ):
        assert simplify(apart) == apart
    for apart in (X // 3 % 4 + 4 * (X // 7), (X // 3 + 1) % 4 + 4 * (X // 12), (X % 4) * (X % 4) + 4 * (X // 4)):
        assert simplify(apart) == apart


@pytest.mark.parametrize(
    ("taken", "given"),
    [
        ((6, 4), (2, 3, 4)),
        ((2, 3, 4), (6, 4)),
        ((2, 3, 4), (24,)),
        ((24,), (4, 1, 6)),
        ((4, 6), (6, 4)),
        ((1, 4, 1, 6), (2, 2, 6, 1)),
        ((3, 1), (3,)),
        ((), (1, 1)),
    ],
)
def test_a_reshape_reads_the_same_position(taken: tuple[int, ...], given: tuple[int, ...]) -> None:
    x = np.arange(math.prod(taken)).reshape(taken)
    found = reshape_map(tuple(dims(taken)), tuple(dims(given)))
    for at in itertools.product(*map(range, given)):
        here = {f"d{axis}": index for axis, index in enumerate(at)}
        assert x[tuple(one.evaluate(here) for one in found)] == x.reshape(given)[at]


def test_a_reshape_of_sizes_that_are_equal_by_a_guard_reads_the_same_position() -> None:
    found = reshape_map((A, B), (C, Dim.constant(2)))
    for size, rows, width in ((6, 2, 3), (4, 1, 4), (6, 3, 2)):
        x = np.arange(size).reshape(rows, width)
        for at in itertools.product(range(size // 2), range(2)):
            here = {"d0": at[0], "d1": at[1], "A": rows, "B": width, "C": size // 2}
            assert x[tuple(one.evaluate(here) for one in found)] == x.reshape(-1, 2)[at]
    assert reshape_map((A, Dim.constant(0)), (Dim.constant(0),)) == tuple(dims([0, 0]))
    assert reshape_map((A, B * 2), (A, B, Dim.constant(2))) == (symbols(1)[0], symbols(3)[1] * 2 + symbols(3)[2])


def test_strides_of_free_sizes() -> None:
    assert strides([A, B, C]) == (B * C, C, Dim.constant(1))
    assert strides([]) == ()


def test_maps_compose_from_the_inside() -> None:
    """Reversed, then transposed: coordinates of the result go through the outer map first."""
    d0, d1 = symbols(2)
    assert compose((A - 1 - d0, d1), (d1, d0)) == (A - 1 - d1, d0)


def test_a_one_is_stretched_and_missing_dims_are_in_front() -> None:
    out = TensorType.of([A, B, 1], f32)
    at = symbols(3)
    assert broadcast_at(TensorType.of([B, 1], f32), out, at) == (at[1], at[2])
    assert broadcast_at(TensorType.of([1, 1], f32), out, at) == (Dim.constant(0), at[2])


def groups_of(*views: tuple[int, ...], numbers: Sequence[Dim] = ()) -> list[list[int]]:
    """Groups of the dims A, B, C for accesses that walk them in these orders."""
    at, extents = symbols(3), [A, B, C]
    addresses = [linear([at[axis] for axis in view], [extents[axis] for axis in view]) for view in views]
    return collapse([f"d{axis}" for axis in range(3)], extents, addresses, numbers)


def test_contiguous_dims_are_one() -> None:
    assert groups_of((0, 1, 2)) == [[0, 1, 2]]
    assert groups_of((0, 1, 2), (0, 1, 2)) == [[0, 1, 2]]


def test_every_access_has_a_say() -> None:
    assert groups_of((0, 1, 2), (1, 2, 0)) == [[0], [1, 2]]
    assert groups_of((0, 1, 2), (2, 1, 0)) == [[0], [1], [2]]
    assert groups_of((0, 1, 2), (1, 2)) == [[0], [1, 2]]
    assert groups_of((0, 1, 2), (0, 1)) == [[0, 1], [2]]


def test_a_coordinate_that_is_a_number_stands_alone() -> None:
    assert groups_of((0, 1, 2), numbers=[Dim.symbol("d1")]) == [[0], [1], [2]]


def test_dims_of_one_element_join_any_neighbour() -> None:
    at = symbols(3)
    extents = [A, Dim.constant(1), C]
    turned = linear([at[2], at[1], at[0]], [C, Dim.constant(1), A])
    assert collapse(["d0", "d1", "d2"], extents, [linear(at, extents), turned]) == [[0, 1], [2]]
