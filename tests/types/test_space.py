"""Memory spaces: a lattice of who sees what, and every pair of spaces is moved between, or refused with a route."""

from __future__ import annotations

import itertools

import pytest

from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.frontend.kernel.memory import SPACES as LANGUAGE
from tessera.ir.target.ops.blocks import SPACES as SCRATCH
from tessera.types.device import SCOPES, SPACES, TRANSFERS, is_seen_by, join, moves, problem, route

NAMES = tuple(SPACES)
PAIRS = list(itertools.product(NAMES, NAMES))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_a_pair_is_moved_directly_or_through_other_spaces(source: str, target: str) -> None:
    reason = problem(source, target)
    if moves(source, target):
        assert reason == ""
        return
    steps = route(source, target)
    assert reason.startswith(f"there is no direct transfer from {source} to {target} memory: go from {source} to ") or (
        source == target == "tmem"
    )
    assert all(moves(one, other) for one, other in itertools.pairwise(steps))


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_the_join_is_that_of_a_lattice(source: str, target: str) -> None:
    top = join(source, target)
    assert top == join(target, source)
    assert join(top, source) == join(top, target) == top
    for third in NAMES:
        assert join(join(source, target), third) == join(source, join(target, third))
    assert SCOPES.index(SPACES[top].scope) >= max(SCOPES.index(SPACES[one].scope) for one in (source, target))
    assert join(source, source) == source


def test_who_sees_what() -> None:
    assert [scope for scope in SCOPES if is_seen_by("shared", scope)] == ["thread", "block"]
    assert not is_seen_by("host", "thread")
    assert is_seen_by("managed", "thread")


@pytest.mark.parametrize("cpu", sorted(GPUS))
def test_a_machine_moves_with_what_it_has(cpu: str) -> None:
    """Tensor memory is Blackwell's; all copy from global to shared memory, each by its own instruction."""
    features = GPUS[cpu].features
    assert problem("global", "shared", features) == ""
    has_tensor_memory = "tcgen05" in features
    assert (problem("tmem", "register", features) == "") == has_tensor_memory
    reason = problem("shared", "global", features)
    assert reason == "" if "tma" in features else "takes tma" in reason


def test_all_parts_name_the_same_spaces() -> None:
    assert set(LANGUAGE) <= set(SPACES)
    assert {space.removesuffix("s") for space in SCRATCH} - {"private"} <= set(SPACES)
    assert {name for pair in TRANSFERS for name in pair} == set(SPACES)
    assert problem("moon", "shared").startswith("there is no memory `moon`; there are register, shared")
