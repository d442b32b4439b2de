"""Images whose channels are along another axis than a convolution takes them from are refused, with the shape given."""

from __future__ import annotations

from typing import Any

import pytest

import tessera as ts
from tessera.diagnostics.codes import ArgumentError, ShapeError


@pytest.mark.parametrize(
    ("op", "x", "w", "options", "fix"),
    [
        ("conv2d", (2, 16, 16, 3), (8, 3, 3, 3), {}, "write `channels_last=True`: axis 3 of `x` has 3"),
        ("conv2d", (2, 3, 16, 16), (8, 3, 3, 3), {"channels_last": True}, "leave out `channels_last`: axis 1"),
        ("conv2d", (2, 16, 16, 5), (8, 3, 3, 3), {"channels_last": True}, "give `x` with 3 channels along axis 3"),
        ("conv1d", (2, 9, 6), (8, 3, 3), {"groups": 2}, "write `channels_last=True`: axis 2 of `x` has 6"),
        ("conv_transpose2d", (2, 9, 9, 4), (4, 8, 3, 3), {}, "write `channels_last=True`: axis 3 of `x` has 4"),
    ],
)
def test_the_axis_of_channels_is_named(op: str, x: Any, w: Any, options: dict[str, Any], fix: str) -> None:
    with pytest.raises(ShapeError) as caught:
        getattr(ts.ops, op)(ts.ones(x), ts.ones(w), **options)
    assert str(list(x)) in caught.value.message
    assert fix in str(caught.value)


def test_channels_that_are_nowhere_are_said_by_the_op() -> None:
    with pytest.raises(ShapeError, match="the channels differ"):
        ts.ops.conv2d(ts.ones((2, 4, 9, 9)), ts.ones((8, 3, 3, 3)))


@pytest.mark.parametrize("word", ["explicit", "SAME", "full"])
def test_a_padding_is_numbers_or_a_known_word(word: str) -> None:
    x, w = ts.ones((1, 2, 5, 5)), ts.ones((3, 2, 3, 3))
    for call in (
        lambda: ts.ops.conv2d(x, w, padding=word),
        lambda: ts.ops.conv_transpose2d(x, ts.ones((2, 3, 3, 3)), padding=word),
        lambda: ts.ops.max_pool(x, 3, padding=word),
    ):
        with pytest.raises(ArgumentError, match=f"takes `padding` as numbers, or as 'same' or 'valid', got '{word}'"):
            call()
    assert ts.ops.conv2d(x, w, padding="same").shape == (1, 3, 5, 5)
    assert ts.ops.conv2d(x, w, padding="valid").shape == (1, 3, 3, 3)
