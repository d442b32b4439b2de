"""Pytrees: what comes apart goes back together, and every leaf has a path."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics.codes import PytreeError
from tessera.frontend.pytree import flatten, leaf_paths, map_leaves, register, unflatten


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


@dataclass(frozen=True)
class Box:
    """A dataclass."""

    low: Any
    high: Any


class Held:
    """A container that says by itself how it comes apart."""

    def __init__(self, inside: Any, label: str) -> None:
        self.inside, self.label = inside, label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and (self.inside, self.label) == (other.inside, other.label)

    def __hash__(self) -> int:
        return hash(self.label)


register(Held, lambda held: ((held.inside,), held.label), lambda label, children: Held(children[0], str(label)))

TREES = st.recursive(
    st.one_of(st.integers(), st.none(), st.text(max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
        st.builds(Point, inner, inner),
        st.builds(Box, inner, inner),
        st.builds(Held, inner, st.sampled_from(["one", "two"])),
    ),
    max_leaves=12,
)


@given(TREES)
def test_unflatten_undoes_flatten(value: Any) -> None:
    leaves, tree = flatten(value)
    assert unflatten(tree, leaves) == value
    assert tree.leaf_count == len(leaves) == len(leaf_paths(tree, "x"))


@given(TREES)
def test_the_form_does_not_depend_on_the_leaves(value: Any) -> None:
    leaves, tree = flatten(value)
    other = unflatten(tree, [object() for _ in leaves])
    assert flatten(other)[1] == tree
    assert hash(flatten(other)[1]) == hash(tree)


@given(TREES)
def test_paths_lead_to_their_leaves(value: Any) -> None:
    leaves, tree = flatten(value)
    for leaf, path in zip(leaves, leaf_paths(tree, "value"), strict=True):
        if "[0]" in path and "Held" in str(tree):
            continue  # a registered container need not be indexable
        assert eval(path, {"value": value}) == leaf


def test_paths_read_as_python() -> None:
    _, tree = flatten({"layers": [Box(1, Point(2, 3)), None]})
    assert leaf_paths(tree, "params") == [
        "params['layers'][0].low",
        "params['layers'][0].high.x",
        "params['layers'][0].high.y",
    ]


def test_map_leaves_walks_several_trees_together() -> None:
    assert map_leaves(lambda a, b: a + b, {"x": [1, 2]}, {"x": [10, 20]}) == {"x": [11, 22]}
    with pytest.raises(PytreeError, match="differ in form"):
        map_leaves(lambda a, b: a + b, [1, 2], [1])


def test_a_dataclass_comes_back_without_its_checks() -> None:
    @dataclass
    class Picky:
        """Refuses anything but ints."""

        value: Any

        def __post_init__(self) -> None:
            assert isinstance(self.value, int)

    leaves, tree = flatten(Picky(3))
    assert leaves == [3]
    assert unflatten(tree, ["text"]).value == "text"


def test_a_container_is_registered_once() -> None:
    with pytest.raises(PytreeError, match="already"):
        register(Held, lambda held: ((), None), lambda data, children: None)
