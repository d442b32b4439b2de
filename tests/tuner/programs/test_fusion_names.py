"""Choices of fusion are named by what they fuse: an edit elsewhere changes none of the names."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.space import ProgramSpace, space_of


def space(function: Any, *shapes: tuple[int, ...]) -> ProgramSpace:
    jitted: Any = ts.jit(function)
    return space_of(jitted.trace(*(np.zeros(shape, np.float32) for shape in shapes)).tape, jitted.options)


def fusions(found: ProgramSpace) -> list[str]:
    return [knob.key for knob in found.knobs if knob.key.startswith("fusion.")]


def layer(x: Any, w: Any, act: Any) -> Any:
    return act(x @ w) + 1


def test_an_edit_of_one_layer_keeps_the_names_of_the_others() -> None:
    def model(act: Any) -> Any:
        def call(x: Any, a: Any, b: Any, c: Any) -> Any:
            first = layer(x, a, ts.ops.gelu)
            second = layer(first, b, act)
            return ts.ops.softmax(layer(second, c, ts.ops.tanh), axis=-1)

        return call

    shapes = ((32, 64), (64, 96), (96, 128), (128, 16))
    before, after = space(model(ts.ops.relu), *shapes), space(model(ts.ops.sigmoid), *shapes)
    names, later = ({group.name for group in found.groups} for found in (before, after))
    assert len(names & later) == len(names) - 1  # one group changed
    assert len(set(fusions(before)) & set(fusions(after))) >= len(set(fusions(before))) - 1


def test_an_op_in_front_of_all_others_renames_nothing() -> None:
    def plain(x: Any, w: Any) -> Any:
        return ts.ops.softmax(ts.ops.gelu(x @ w), axis=-1)

    def longer(x: Any, w: Any) -> Any:
        return plain(ts.ops.sort(x), w)

    shapes = ((32, 64), (64, 96))
    assert set(fusions(space(plain, *shapes))) <= set(fusions(space(longer, *shapes)))


def test_equal_layers_share_one_name_and_one_answer() -> None:
    def model(x: Any, a: Any, b: Any, c: Any) -> Any:
        for weight in (a, b, c):
            x = ts.ops.gelu(x @ weight)
        return x

    shapes = ((32, 64), (64, 64), (64, 64), (64, 64))
    found = space(model, *shapes)
    assert len([key for key in fusions(found) if "contraction" in key]) == 1
    apart = ts.jit(model, overrides={key: False for key in fusions(found) if "contraction" in key})
    assert len(space_of(apart.trace(*(np.zeros(s, np.float32) for s in shapes)).tape, apart.options).groups) == 2


def test_names_of_dims_do_not_matter() -> None:
    def one(x: ts.Tensor["N", "M", ts.f32]) -> Any:
        return ts.ops.softmax(ts.ops.exp(x) * 2, axis=-1)

    def other(x: ts.Tensor["B", "D", ts.f32]) -> Any:
        return ts.ops.softmax(ts.ops.exp(x) * 2, axis=-1)

    assert fusions(space(one, (8, 16))) == fusions(space(other, (8, 16)))


@given(st.integers(0, 3), st.sampled_from(["relu", "tanh", "exp"]))
def test_whichever_layer_is_edited_the_groups_of_the_others_stay(number: int, name: str) -> None:
    def model(acts: list[Any]) -> Any:
        def call(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
            for act, weight in zip(acts, (a, b, c, d), strict=True):
                x = act(x @ weight)
            return x

        return call

    usual = [ts.ops.gelu, ts.ops.sigmoid, ts.ops.silu, ts.ops.abs]
    edited = [*usual]
    edited[number] = getattr(ts.ops, name)
    shapes = ((8, 16), (16, 24), (24, 32), (32, 40), (40, 48))
    before, after = ({group.name for group in space(model(acts), *shapes).groups} for acts in (usual, edited))
    assert len(before - after) <= 1
