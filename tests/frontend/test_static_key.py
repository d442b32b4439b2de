"""`static_key` tells Python values apart where a trace could, in signatures and outside `jit`."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tessera as ts
from tessera.frontend.pytree import static_key

F32 = np.float32
ONE = np.ones(1, F32)


@dataclass(frozen=True)
class Config:
    """A value."""

    scale: float = 1.0
    more: tuple[Any, ...] = ()


def number(value: Any) -> float:
    return float(np.asarray(value).reshape(-1)[0])


@pytest.mark.parametrize(
    ("first", "second"),
    [(0.0, -0.0), (1, 1.0), (1, True), ((2,), (2.0,)), ((0.0,), (-0.0,)), (Config(0.0), Config(-0.0))],
)
def test_equal_static_values_that_trace_differently(first: Any, second: Any) -> None:
    seen: list[Any] = []

    @ts.jit(static_argnames="mode", backend="reference")
    def f(x: Any, mode: Any) -> Any:
        seen.append(mode)
        return x + 1

    for value in (first, second, first, second):
        f(ONE, value)
    assert [repr(value) for value in seen] == [repr(first), repr(second)]


def test_nan_is_one_key() -> None:
    f = ts.jit(lambda x, by: x * by, backend="reference")
    for _ in range(5):
        f(ONE, float("nan"))
    assert f.cache_info().size == 1


def test_eager_attributes_are_told_apart() -> None:
    zero = np.zeros(1, F32)
    assert number(ts.ops.full((1,), 0.0)) == 0
    signs = [float(np.signbit(np.asarray(ts.ops.full((1,), value, "f32")))[0]) for value in (0.0, -0.0, 0.0)]
    assert signs == [0.0, 1.0, 0.0]
    assert number(ts.ops.add(zero, 1)) == 1


PLAIN = st.recursive(
    st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=3), st.none(), st.complex_numbers()),
    lambda inner: st.one_of(st.tuples(inner, inner), st.frozensets(inner, max_size=2), st.builds(Config, inner)),
    max_leaves=4,
)


@given(PLAIN, PLAIN)
def test_keys_are_equal_exactly_where_texts_are(left: Any, right: Any) -> None:
    def text(value: Any) -> Any:
        if isinstance(value, frozenset):
            return sorted(map(str, map(text, value)))
        if isinstance(value, tuple):
            return [text(item) for item in value]
        return ["Config", text(value.scale), text(value.more)] if isinstance(value, Config) else repr(value)

    def kind(value: Any) -> Any:
        return [type(value), [kind(item) for item in value]] if isinstance(value, tuple) else type(value)

    assert static_key(left) == static_key(left)
    assert hash(static_key(left)) == hash(static_key(left))
    is_same = text(left) == text(right) and kind(left) == kind(right)
    assert (static_key(left) == static_key(right)) == is_same
