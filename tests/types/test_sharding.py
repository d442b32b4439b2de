"""Shardings of tensors: text and back, parts, and what is refused, with tensor, dim, axis and sizes in the text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import ShardingError
from tessera.types.dtype import f32
from tessera.types.shape import TensorType
from tessera.types.sharding import Sharding, check_sharding

AXES = ("dp", "tp", "sp", "pp")


@st.composite
def shardings(draw: st.DrawFn) -> Sharding:
    rank = draw(st.integers(0, 4))
    places = [draw(st.integers(-2, rank - 1)) for _ in AXES]
    dims = [tuple(axis for axis, at in zip(AXES, places, strict=True) if at == own) for own in range(rank)]
    return Sharding.of(*dims, partial=[axis for axis, at in zip(AXES, places, strict=True) if at == -1])


@given(shardings())
def test_text_is_parsed_back(sharding: Sharding) -> None:
    assert Sharding.parse(str(sharding)) == sharding


def test_a_part_is_the_whole_over_the_ranks_of_its_axes() -> None:
    sharding = Sharding.of("dp", None, ("tp", "sp"))
    assert sharding.local_shape((8, 5, 12), {"dp": 2, "tp": 2, "sp": 3}) == (4, 5, 2)
    assert sharding.dim_of("sp") == 2
    assert sharding.dim_of("pp") is None
    assert Sharding.whole(2).is_whole
    assert sharding.with_dim(0, ()) == Sharding.of(None, None, ("tp", "sp"))


MESH = {"dp": 2, "tp": 4}
REFUSED = [
    ((8, 8), Sharding.of("dp"), r"`x` is \[8, 8\] f32 of 2 dims, and its sharding \[{dp}\] is of 1"),
    ((8, 8), Sharding.of("dp", "ep"), r"`x.shape\[1\] = 8`.*mesh axis `ep`.*`dp` \(2 ranks\), `tp` \(4 ranks\)"),
    ((8, 6), Sharding.of("dp", "tp"), r"`x.shape\[1\] = 6`.*4 equal parts over `tp` 4"),
    ((4, 6), Sharding.of(("dp", "tp"), None), r"`x.shape\[0\] = 4`.*8 equal parts over `dp` 2 \* `tp` 4"),
    ((8, 8), Sharding.of(("tp", "dp"), None), r"`x.shape\[0\] = 8`.*over tp, dp.*another order"),
    ((0, 8), Sharding.of("dp", None), r"`x.shape\[0\] = 0`.*2 equal parts"),
    ((8, 8), Sharding.of(None, None, partial=["ep"]), r"mesh axis `ep`"),
    (("B", 8), Sharding.of("dp", None), r"`x.shape\[0\] = B`.*2 equal parts"),
]


@pytest.mark.parametrize(("shape", "sharding", "message"), REFUSED)
def test_what_cannot_be_is_refused_by_name(shape: tuple[int | str, ...], sharding: Sharding, message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        check_sharding("x", TensorType.of(shape, f32), sharding, MESH)


def test_what_can_be_is_not() -> None:
    check_sharding("x", TensorType.of([8, 5], f32), Sharding.of(("dp", "tp"), None), MESH)
    check_sharding("x", TensorType.of([8, "B"], f32), Sharding.of("tp", None, partial=["dp"]), MESH)


@pytest.mark.parametrize("text", ["", "[dp]", "[{dp}", "[{dp}] over {tp}", "{dp}"])
def test_what_is_no_sharding_is_not_parsed(text: str) -> None:
    with pytest.raises(ShardingError, match="is no sharding"):
        Sharding.parse(text)


def test_an_axis_is_there_once_and_a_name() -> None:
    with pytest.raises(ShardingError, match=r"`dp` is there 2 times.*dim 0, dim 1"):
        Sharding.of("dp", "dp")
    with pytest.raises(ShardingError, match=r"`dp` is there 2 times"):
        Sharding.of("dp", partial=["dp"])
    with pytest.raises(ShardingError, match="by name, got 3"):
        Sharding.of([3])  # pyright: ignore[reportArgumentType]
