"""Shape rules on symbolic dims: broadcasting laws, axes, slices against Python's, and what is provable."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.types.dim import Dim, maximum, minimum
from tessera.types.dtype import bf16, f32
from tessera.types.shape import (
    Named,
    TensorType,
    broadcast,
    clamp,
    equal_dims,
    is_at_least,
    is_at_most,
    is_refuted,
    normalize_axes,
    normalize_axis,
    normalize_slice,
    path,
    resolve_reshape,
    slice_extent,
    text,
    without_axes,
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


def test_axes_that_are_wrong_are_named() -> None:
    for axis, rank, said in (
        (3, 3, "`sum` has no axis 3 on a value of rank 3 | axes are -3..2"),
        (-4, 3, "`sum` has no axis -4 on a value of rank 3 | axes are -3..2"),
        (0, 0, "`sum` has no axis 0 on a value of rank 0 | axes are none, as it is a scalar"),
    ):
        with pytest.raises(RefusedError) as refused:
            normalize_axis(Context(), "sum", axis, rank)
        assert str(refused.value) == said
    with pytest.raises(RefusedError, match="`sum` got axis 1 twice"):
        normalize_axes(Context(), "sum", (1, 0, -2), 3)


def test_what_reducing_axes_leaves() -> None:
    assert without_axes(dims("B", 3, "S"), (0, 2), keepdims=False) == dims(3)
    assert without_axes(dims("B", 3, "S"), (0, 2), keepdims=True) == dims(1, 3, 1)
    assert (
        without_axes(dims("B", 3), (), keepdims=True) == dims("B", 3) == without_axes(dims("B", 3), (), keepdims=False)
    )


def test_dims_that_must_be_equal() -> None:
    context = Context()
    assert equal_dims(context, "dot", B, B, "`x` and `y`") == B
    assert context.guards == []
    assert equal_dims(context, "dot", B, S, "`x` and `y`") == B
    assert context.guards == [(B, S, "`dot` needs equal sizes: `x` and `y`")]
    with pytest.raises(RefusedError, match="`dot` needs equal sizes: `x` and `y` differ"):
        equal_dims(context, "dot", S, S + 1, "`x` and `y`")


def test_a_trace_may_take_a_symbolic_dim_for_a_broadcast_one() -> None:
    class Stretching(Context):
        asked: list[tuple[Dim, Dim, str]] = []

        def stretches(self, dim: Dim, other: Dim, what: str) -> bool:
            self.asked.append((dim, other, what))
            return dim == S

    context, what = Stretching(), "`add` broadcasts `x.shape[0] = {}` with `y.shape[0] = {}`"
    assert joined((S,), (B,), context=context) == (B,)
    assert joined((B,), (S,), context=context) == (B,)
    assert joined((B,), (T,), context=context) == (B,)
    first, second, third = what.format(S, B), what.format(B, S), what.format(B, T)
    assert context.asked == [(S, B, first), (B, S, second), (S, B, second), (B, T, third), (T, B, third)]
    assert context.guards == [(B, T, third)]


def test_three_shapes_name_the_first_that_has_the_dim() -> None:
    with pytest.raises(RefusedError) as refused:
        joined(dims(1, 5), dims("B", 2, 5), dims(2, 6))
    assert "`x.shape[1] = 5` and `z.shape[1] = 6` differ" in str(refused.value)
    assert "[1, 5] with [B, 2, 5] with [2, 6]" in str(refused.value)
    assert joined(dims(1, 5), dims("B", 2, 5), dims(2, 1)) == dims("B", 2, 5)
    assert joined() == ()
    assert joined(dims(1), dims(1)) == dims(1)


def test_tensor_types() -> None:
    kind = TensorType.of(("B", 3, "S"), f32)
    assert (kind.rank, kind.size, kind.bytes) == (3, B * S * 3, B * S * 12)
    assert kind.symbols == {"B", "S"}
    assert kind.with_dtype(bf16).bytes == B * S * 6
    assert kind.with_shape((2, "T")) == TensorType.of((2, "T"), f32)
    assert kind.substitute({"B": 4}) == TensorType.of((4, 3, "S"), f32)
    assert str(kind) == "[B, 3, S] f32"


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


def test_slices_with_symbolic_ends_are_pythons() -> None:
    for start, stop, step in product((None, T, T + 1, 2, -2), (None, T, B, S - 1, -1), (1, 2, -1, -2)):
        found = normalize_slice(S, start, stop, step)
        for size, t, b in product(range(5), range(4), range(4)):
            env = {"S": size, "T": t, "B": b}
            ends = [None if end is None else Dim.of(end).evaluate(env) for end in (start, stop)]
            if isinstance(stop, Dim) and (ends[1] or 0) < 0:
                continue  # a symbolic end is no negative one
            first, _, by, extent = (one if isinstance(one, int) else one.evaluate(env) for one in found)
            assert [first + by * at for at in range(extent)] == list(range(size))[ends[0] : ends[1] : step]


def test_a_slice_needs_no_bound_that_is_proven() -> None:
    assert clamp(S, Dim.of(0), S + 1) == S
    assert clamp(S + 2, Dim.of(0), S) == S
    assert clamp(S - S - 1, Dim.of(0), S) == Dim.of(0)
    assert clamp(T, Dim.of(0), S) == minimum(S, T)
    assert clamp(S - 3, Dim.of(0), S) == maximum(S - 3, 0)
    assert slice_extent(T, T + 4, 3) == Dim.of(2)
    assert slice_extent(T + 4, T, 3) == Dim.of(0)
    assert slice_extent(T + 4, T, -3) == Dim.of(2)
    assert str(slice_extent(Dim.of(0), T - 2, 1)) == "max(0, T - 2)"
    assert slice_extent(Dim.of(0), T - 2, 1, T - 2) == T - 2, "all of an axis, of which a guard says that it is there"
    assert normalize_slice(T - 2, None, None, None) == (Dim.of(0), T - 2, 1, T - 2)
    assert slice_extent(T, S, 1) == maximum(S - T, 0)
    assert is_at_least(slice_extent(T, S, 1), 0)


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


@pytest.mark.parametrize(
    ("dim", "least"),
    [
        (3 - S % 4, 0),
        ((S - 9) % 4, 0),
        ((S - 9) % 1, 0),
        (-(S % 0), 0),
        (S % B, 0),
        (S // B, 0),
        (S // 2 + B * (S % 3), 0),
        (B * 4 - B * (S % 4), None),
        (6 - (S % 4) * (T % 3), 0),
        ((S + 1) // 2 * B - 2, -2),
        (maximum(S, B) - S, 0),
        (maximum(S, B) * 2 - S - B, None),
        (2 * S - minimum(S, B) - minimum(S, T), 0),
        (7 - minimum(S, 5), 2),
        (minimum(S, 5) - minimum(B, 5), -5),
        (maximum(S - 4, 2) + minimum(B + 1, 3), 3),
        (sum((maximum(Dim.symbol(name) - 3, 0) for name in "abcdef"), Dim.of(0)), 0),
    ],
    ids=str,
)
def test_what_is_proven_is_neither_more_nor_less(dim: Dim, least: int | None) -> None:
    for bound in range(-8, 9):
        assert is_at_least(dim, bound) is (least is not None and bound <= least), f"{dim} >= {bound}"


def test_what_may_be_negative_is_not_proven_to_be_a_size() -> None:
    for dim in (S - 1, S // -2, (S - 9) // B, S % -4, (S - 9) % B, S % (B - 9), S * (B // -1), S * ((B - 9) // 2), -S):
        assert not is_at_least(dim, 0), str(dim)
    assert not is_at_least(S * B - S, 0)
    assert not is_at_least(100 - S * B, 0)


def test_six_maxima_are_taken_apart_and_no_more() -> None:
    several = [maximum(Dim.symbol(f"n{number}") - 3, 0) for number in range(7)]
    assert is_at_least(sum(several[:6], Dim.of(0)), 0)
    assert not is_at_least(sum(several, Dim.of(0)), 0)
    for count in (4, 5):
        inner = sum(several[:count], Dim.of(0))
        assert is_at_least(inner // 2, 0) is is_at_least(S // inner, 0) is (count == 4)


def test_order_of_sizes() -> None:
    assert [is_refuted(Dim.of(3), Dim.of(other)) for other in (2, 3, 4)] == [True, False, True]
    assert is_refuted(S + 1, S)
    assert is_at_most(S, S + 1)
    assert not is_at_most(S, T)
    assert is_refuted(S, S + 1)
    assert not is_refuted(S, T)


def test_the_missing_dim_of_a_reshape() -> None:
    assert resolve_reshape(Context(), "reshape", B * S * 4, (B, -1, 2)) == (B, S * 2, Dim.of(2))
    assert resolve_reshape(Context(), "reshape", Dim.of(6), (2, 3)) == dims(2, 3)
    assert resolve_reshape(Context(), "reshape", Dim.of(6), (4, 3)) == dims(4, 3)
    assert resolve_reshape(Context(), "reshape", Dim.of(0), (-1, 3)) == dims(0, 3)
    assert resolve_reshape(Context(), "reshape", B, (-1, 3)) == (B // 3, Dim.of(3))
    assert resolve_reshape(Context(), "reshape", Dim.of(6), (3, -1)) == dims(3, 2)
    for size, shape, said in (
        (6, (-1, -1), "can work out one dim of -1, got 2"),
        (6, (-1, 4), r"cannot split 6 elements into \[-1, 4\]: 6 is no multiple of 4"),
        (0, (-1, 0), "cannot work out -1 beside a dim of 0"),
    ):
        with pytest.raises(RefusedError, match=f"`reshape` {said}"):
            resolve_reshape(Context(), "reshape", Dim.of(size), shape)
