"""Shape rules on symbolic dims: broadcasting laws, axes, slices against Python's, and what is provable."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.types.dim import Dim, maximum, minimum
from tessera.types.shape import (
    Named,
    broadcast,
    clamp,
    is_at_least,
    is_at_most,
    is_refuted,
    normalize_axes,
    normalize_axis,
    normalize_slice,
    path,
    resolve_reshape,
    text,
)

B, S, T = (Dim.symbol(name) for name in "BST")


class RefusedError(Exception):
    """A rule said no."""


class Context:
    """A context that keeps its guards and the help it was given."""

    def __init__(self) -> None:
        self.guards: list[tuple[Dim, Dim, str]] = []

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        self.guards.append((left, right, what))
        return left

    def fail(self, message: str, *, help: str = "") -> Exception:
        return RefusedError(f"{message} | {help}")


def dims(*sizes: int | str) -> tuple[Dim, ...]:
    return tuple(Dim.of(size) for size in sizes)


def joined(*shapes: tuple[Dim, ...], context: Context | None = None) -> tuple[Dim, ...]:
    names = ("x", "y", "z")
    return broadcast(context or Context(), "add", *(Named(n, s) for n, s in zip(names, shapes, strict=False)))


sizes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


@given(sizes, sizes)
def test_broadcasting_is_numpys_on_static_shapes(x: tuple[int, ...], y: tuple[int, ...]) -> None:
    try:
        expected = np.broadcast_shapes(x, y)
    except ValueError:
        with pytest.raises(RefusedError, match="cannot broadcast"):
            joined(dims(*x), dims(*y))
    else:
        assert joined(dims(*x), dims(*y)) == dims(*expected)


symbolic = st.lists(st.sampled_from([B, S, Dim.of(1), Dim.of(3), B * S]), max_size=3).map(tuple)


@given(symbolic)
def test_broadcasting_with_itself_or_a_scalar_changes_nothing(x: tuple[Dim, ...]) -> None:
    assert joined(x, x) == x == joined(x, ()) == joined((), x)


@given(symbolic, symbolic, symbolic)
def test_broadcasting_is_associative_where_nothing_needs_a_guard(
    x: tuple[Dim, ...], y: tuple[Dim, ...], z: tuple[Dim, ...]
) -> None:
    context = Context()
    whole = joined(x, y, z, context=context)
    if not context.guards:
        assert whole == joined(joined(x, y), z) == joined(x, joined(y, z))


@given(symbolic, symbolic)
def test_broadcasting_commutes_up_to_guards(x: tuple[Dim, ...], y: tuple[Dim, ...]) -> None:
    left, right = Context(), Context()
    a, b = joined(x, y, context=left), joined(y, x, context=right)
    assert {frozenset(guard[:2]) for guard in left.guards} == {frozenset(guard[:2]) for guard in right.guards}
    assert left.guards or a == b


def test_two_dims_that_may_be_equal_become_a_guard_with_both_paths() -> None:
    context = Context()
    assert joined(dims("B", 3), dims("S", 1), context=context) == dims("B", 3)
    assert context.guards == [(B, S, "`add` broadcasts `x.shape[0] = B` with `y.shape[0] = S`")]


def test_two_dims_that_cannot_be_equal_are_named() -> None:
    with pytest.raises(RefusedError) as refused:
        joined(dims("B", 3), dims(4))
    assert str(refused.value) == (
        "`add` cannot broadcast [B, 3] with [4]: `x.shape[1] = 3` and `y.shape[0] = 4` differ"
        " | dims broadcast when they are equal, or when one of them is the number 1"
    )
    with pytest.raises(RefusedError, match=r"x.shape\[0\] = S` and `y.shape\[0\] = S \+ 1"):
        joined(dims("S"), dims("S+1"))


def test_a_symbolic_dim_never_stretches() -> None:
    context = Context()
    joined(dims("B"), dims(3), context=context)
    assert [guard[:2] for guard in context.guards] == [(B, Dim.of(3))]


def test_axes() -> None:
    assert [normalize_axis(Context(), "sum", axis, 3) for axis in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    assert normalize_axes(Context(), "sum", (-1, 0), 3) == (0, 2)
    for axes, rank in (((3,), 3), ((-4,), 3), ((0,), 0), ((1, -2), 3)):
        with pytest.raises(RefusedError):
            normalize_axes(Context(), "sum", axes, rank)


def test_paths_and_shapes_read_well() -> None:
    assert path("x", 2, S) == "`x.shape[2] = S`"
    assert text(dims("B", 3)) == "[B, 3]"
    assert text(()) == "[]"


bound = st.one_of(st.none(), st.integers(-9, 9))


@given(st.integers(0, 7), bound, bound, st.one_of(st.none(), st.sampled_from([-3, -2, -1, 1, 2, 3])))
def test_slices_are_pythons_for_known_and_for_free_sizes(
    size: int, start: int | None, stop: int | None, step: int | None
) -> None:
    expected = list(range(size))[start:stop:step]
    for dim, env in ((Dim.of(size), {}), (S, {"S": size})):
        first, last, by, extent = (
            value if isinstance(value, int) else value.evaluate(env)
            for value in normalize_slice(dim, start, stop, step)
        )
        assert [first + by * at for at in range(extent)] == expected
        assert list(range(first, last, by)) == expected


def test_slices_of_free_sizes_stay_simple_where_they_can() -> None:
    assert normalize_slice(S, None, None, None) == (Dim.of(0), S, 1, S)
    assert normalize_slice(S, None, None, -1) == (S - 1, Dim.of(-1), -1, S)
    assert normalize_slice(S, 0, S, 2)[3] == (S + 1) // 2
    with pytest.raises(ValueError, match="step"):
        normalize_slice(S, None, None, 0)


@pytest.mark.parametrize(
    ("dim", "least"),
    [
        (S, 0),
        (S + 3, 3),
        (S * B + 1, 1),
        (maximum(S - 3, 0), 0),
        (minimum(S, 5), 0),
        (S - minimum(S, 5), 0),
        (S % 4, 0),
    ],
)
def test_lower_bounds_that_are_proven(dim: Dim, least: int) -> None:
    assert is_at_least(dim, least)
    assert not is_at_least(dim, least + 1)


@given(
    st.lists(
        st.sampled_from(["S", "B", "3", "max(S, B)", "min(S, 4)", "S // 2", "B % 3", "S*B"]), min_size=1, max_size=3
    ),
    st.lists(st.sampled_from(["+", "-"]), min_size=2, max_size=2),
    st.integers(0, 6),
    st.integers(0, 6),
)
def test_a_proof_is_never_wrong(terms: list[str], signs: list[str], s: int, b: int) -> None:
    written = terms[0] + "".join(sign + term for sign, term in zip(signs, terms[1:], strict=False))
    dim = Dim.of(written)
    value = dim.evaluate({"S": s, "B": b})
    for least in (-3, 0, 1, 4):
        assert not is_at_least(dim, least) or value >= least
    assert not is_refuted(dim, Dim.of(value))
    assert clamp(dim, Dim.of(0), S).evaluate({"S": s, "B": b}) == max(0, min(value, s))


def test_order_of_sizes() -> None:
    assert is_at_most(S, S + 1)
    assert not is_at_most(S, T)
    assert is_refuted(S, S + 1)
    assert not is_refuted(S, T)


def test_the_missing_dim_of_a_reshape() -> None:
    assert resolve_reshape(Context(), "reshape", B * S * 4, (B, -1, 2)) == (B, S * 2, Dim.of(2))
    assert resolve_reshape(Context(), "reshape", Dim.of(6), (2, 3)) == dims(2, 3)
    for size, shape in ((6, (-1, -1)), (6, (-1, 4)), (0, (-1, 0))):
        with pytest.raises(RefusedError):
            resolve_reshape(Context(), "reshape", Dim.of(size), shape)
