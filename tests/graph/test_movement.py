"""Views: maps against references on random shapes, small maps for common reshapes, rules and refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tessera.ir.base.arrays import Array
from tessera.ir.base.index_maps import reshape_map
from tessera.ir.graph.ops import movement
from tessera.ir.graph.samples import retype
from tessera.ir.tile.facets import View
from tessera.types.dim import Dim
from tessera.types.dtype import bf16, bool_, f32, i4, i8
from tessera.types.shape import normalize_slice
from tests.graph.eager import RuleError, Rules, infer, reference, registry, tensor, type_of
from tests.graph.views import read

SPECS = movement.SPECS


def read_view(name: str, x: Array, **attributes: Any) -> list[Array]:
    """What the maps of a view read."""
    spec = registry()[name]
    assert isinstance(spec.lower, View)
    outs = infer(name, type_of(x), **attributes)
    maps = spec.lower.maps(type_of(x), outs, spec.with_defaults(attributes))
    return [read(x, m, [dim.value or 0 for dim in out.shape]) for m, out in zip(maps, outs, strict=True)]


def check(name: str, x: Array, **attributes: Any) -> None:
    """Maps and reference agree."""
    given: Any = reference(name, x, **attributes)
    expected: list[Array] = list(given) if name == "split" else [given]
    for found, wanted in zip(read_view(name, x, **attributes), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def dims(*sizes: int) -> tuple[Dim, ...]:
    return tuple(Dim.of(size) for size in sizes)


def number_elements(shape: tuple[int, ...]) -> Array:
    return np.arange(math.prod(shape), dtype=np.int64).reshape(shape)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_maps_read_what_references_give(spec: Any) -> None:
    for sample in spec.samples:
        check(spec.short_name, sample.make(np.random.default_rng(0))[0], **sample.attributes)


def test_every_dtype_moves() -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for dtype in (bf16, bool_, i4, i8):
        moved = reference("transpose", retype(x, dtype), axes=(1, 0))
        np.testing.assert_array_equal(moved, retype(x, dtype).T)


shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of one size, from the same prime factors."""
    factors = draw(st.lists(st.sampled_from([1, 2, 2, 3, 5]), max_size=5))

    def group_factors(order: list[int]) -> tuple[int, ...]:
        dims: list[int] = []
        for factor in order:
            if dims and draw(st.booleans()):
                dims[-1] *= factor
            else:
                dims.append(factor)
        return tuple(dims)

    return group_factors(factors), group_factors(draw(st.permutations(factors)))


@given(reshapes())
def test_reshapes(pair: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    check("reshape", number_elements(pair[0]), shape=tuple(Dim.of(size) for size in pair[1]))


@given(shapes, st.randoms(use_true_random=False))
def test_transposes(shape: tuple[int, ...], random: Any) -> None:
    axes = list(range(len(shape)))
    random.shuffle(axes)
    check("transpose", number_elements(shape), axes=tuple(axes))
    np.testing.assert_array_equal(
        reference("transpose", number_elements(shape), axes=tuple(axes)), number_elements(shape).transpose(axes)
    )


bound = st.one_of(st.none(), st.integers(-6, 6))
cut = st.tuples(bound, bound, st.sampled_from([-3, -2, -1, 1, 2, 3]))


@given(shapes, st.lists(cut, min_size=4, max_size=4))
def test_slices(shape: tuple[int, ...], cuts: list[tuple[int | None, int | None, int]]) -> None:
    cuts = cuts[: len(shape)]
    normal = [normalize_slice(Dim.of(size), *own) for size, own in zip(shape, cuts, strict=True)]
    attributes = {
        "start": tuple(n[0] for n in normal),
        "stop": tuple(n[1] for n in normal),
        "step": tuple(n[2] for n in normal),
    }
    check("slice", number_elements(shape), **attributes)
    expected = number_elements(shape)[tuple(slice(*own) for own in cuts)]
    np.testing.assert_array_equal(reference("slice", number_elements(shape), **attributes), expected)


@given(shapes, st.integers(-7, 7), st.integers(0, 3), st.randoms(use_true_random=False))
def test_flips_rolls_tiles_and_repeats(shape: tuple[int, ...], shift: int, count: int, random: Any) -> None:
    assume(shape)
    axis: int = random.randrange(len(shape))
    x = number_elements(shape)
    check("flip", x, axes=(axis,))
    check("roll", x, shifts=(shift,), axes=(axis,))
    check("repeat", x, repeats=count, axis=axis)
    check("tile", x, reps=tuple(count if own == axis else 1 for own in range(len(shape))))
    first: int = random.randint(0, shape[axis])
    check("split", x, sizes=dims(first, shape[axis] - first), axis=axis)


@given(shapes, st.lists(st.integers(0, 5), max_size=2))
def test_broadcasts_and_dims_of_one(shape: tuple[int, ...], lead: list[int]) -> None:
    ones = tuple(1 if size % 2 else size for size in shape)
    check("broadcast_to", number_elements(ones), shape=tuple(Dim.of(size) for size in (*lead, *shape)))
    axes = tuple(range(0, len(shape) + 2, 2))[:2]
    wide = reference("expand_dims", number_elements(shape), axes=axes) if len(axes) == 2 else number_elements(shape)
    if len(axes) == 2:
        check("expand_dims", number_elements(shape), axes=axes)
        check("squeeze", wide, axes=axes)
        np.testing.assert_array_equal(reference("squeeze", wide, axes=axes), number_elements(shape))


B, S, H, D = (Dim.symbol(name) for name in "BSHD")


@pytest.mark.parametrize(
    ("x", "out", "expected"),
    [
        ((B, S), (B, S), "d0, d1"),
        ((B, S, H * D), (B, S, H, D), "d0, d1, D*d2 + d3"),
        ((B, S, H, D), (B, S, H * D), "d0, d1, (d2 floordiv D), (d2 mod D)"),
        ((B * S, D), (B, S, D), "S*d0 + d1, d2"),
        ((B, 1, S), (B, S), "d0, 0, d1"),
        ((B, S), (1, B, 1, S, 1), "d1, d3"),
        ((2, 3, 5), (6, 5), "(d0 floordiv 3), (d0 mod 3), d1"),
        ((4, 6), (6, 4), "((4*d0 + d1) floordiv 6), ((4*d0 + d1) mod 6)"),
        ((8, 3), (2, 4, 3), "4*d0 + d1, d2"),
        ((), (1, 1), ""),
    ],
)
def test_common_reshapes_have_small_maps(x: tuple[Any, ...], out: tuple[Any, ...], expected: str) -> None:
    found = reshape_map(tuple(Dim.of(dim) for dim in x), tuple(Dim.of(dim) for dim in out))
    assert ", ".join(map(str, found)) == expected


def test_a_roll_of_a_known_axis_never_reads_below_zero() -> None:
    spec = registry()["roll"]
    x = tensor(7, dtype=f32)
    (index,) = spec.lower.maps(x, [x], {"shifts": (2,), "axes": (0,)})[0]
    assert str(index) == "((d0 + 5) mod 7)"


def test_maps_of_free_sizes_hold_for_each_size() -> None:
    x, out = tensor("B", "S*4", dtype=f32), tensor("B", "S", 4, dtype=f32)
    (index_map,) = registry()["reshape"].lower.maps(x, [out], {"shape": out.shape})
    for b, s in ((1, 1), (2, 3), (0, 2)):
        array = number_elements((b, 4 * s))
        found = read(array, index_map, (b, s, 4), {"B": b, "S": s})
        np.testing.assert_array_equal(found, array.reshape(b, s, 4))


def test_rules_on_free_sizes() -> None:
    x = tensor("B", "S", dtype=f32)
    assert infer("reshape", x, shape=(B * S,)) == [tensor("B*S", dtype=f32)]
    assert infer("transpose", x, axes=(1, 0)) == [tensor("S", "B", dtype=f32)]
    assert infer("tile", x, reps=(1, 3)) == [tensor("B", "3*S", dtype=f32)]
    assert infer("repeat", x, repeats=2, axis=0) == [tensor("2*B", "S", dtype=f32)]
    assert infer("split", x, sizes=(Dim.of(2), S - 2), axis=1) == [
        tensor("B", 2, dtype=f32),
        tensor("B", "S-2", dtype=f32),
    ]
    start, stop, step, _ = normalize_slice(S, -3, None, 1)
    zero = Dim.of(0)
    (cut,) = infer("slice", x, start=(zero, start), stop=(B, stop), step=(1, step))
    assert [cut.shape[1].evaluate({"S": size}) for size in (1, 3, 9)] == [1, 3, 3]
    rules = Rules()
    infer("reshape", x, shape=(D,), rules=rules)
    infer("slice", x, start=(zero, zero), stop=(B, D), step=(1, 1), rules=rules)
    infer("squeeze", x, axes=(0,), rules=rules)
    infer("broadcast_to", x, shape=(B, D), rules=rules)
    assert [str(guard[0]) for guard in rules.guards] == ["B*S", "min(D, S)", "B", "S"]


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        (
            "reshape",
            {"shape": (Dim.of(7),)},
            r"cannot give \[2, 3\] the shape \[7\]: it has 6 elements, the new shape 7",
        ),
        ("reshape", {"shape": (Dim.of(-1),)}, "below zero"),
        ("transpose", {"axes": (0, 0)}, "each axis of"),
        ("transpose", {"axes": (0,)}, "each axis of"),
        ("broadcast_to", {"shape": (Dim.of(3),)}, "cannot drop dims"),
        ("broadcast_to", {"shape": (Dim.of(4), Dim.of(3))}, r"`x.shape\[0\] = 2` and `out.shape\[0\] = 4` differ"),
        ("expand_dims", {"axes": (5,)}, "within 0..2"),
        ("squeeze", {"axes": (0,)}, r"`x.shape\[0\] = 2` and 1 differ"),
        ("slice", {"start": (), "stop": (), "step": ()}, "for each of 2 axes"),
        ("slice", {"start": (Dim.of(0),) * 2, "stop": (Dim.of(2), Dim.of(4)), "step": (1, 1)}, "past the axis"),
        ("slice", {"start": (Dim.of(-1), Dim.of(0)), "stop": (Dim.of(2),) * 2, "step": (1, 1)}, "before the axis"),
        ("slice", {"start": (Dim.of(0),) * 2, "stop": (Dim.of(2),) * 2, "step": (0, 1)}, "cannot be 0"),
        ("flip", {"axes": (2,)}, "no axis 2"),
        ("roll", {"shifts": (1, 2), "axes": (0,)}, "one shift for each axis"),
        ("tile", {"reps": (2,)}, "for each of 2 axes"),
        ("repeat", {"repeats": -1, "axis": 0}, "0 or more"),
        ("split", {"sizes": (Dim.of(1), Dim.of(1)), "axis": 1}, r"`x.shape\[1\] = 3` and 1 \+ 1 = 2 differ"),
    ],
)
def test_what_is_refused(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(RuleError, match=message):
        infer(op, tensor(2, 3, dtype=f32), **attributes)
