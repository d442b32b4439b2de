"""Groups that are launched together keep meaning: random updates of trees, donated or not, ragged and empty."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.backends.reference.compile import run_tape
from tessera.ir.base.op import OpError
from tessera.ir.base.tape import DONATED, Tape
from tessera.ir.base.verify import verify
from tessera.ir.schedule.host_program.memory import launch_of
from tessera.ir.schedule.passes.merge_launches import flatten_body
from tessera.ir.schedule.plan import fusions_in, programs_in
from tessera.ir.schedule.typed_ops import CallOp, FuseOp
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import run_schedule, simplify, tensor, trace

SHAPES = ("4 8", "32", "3 5", "0 4", "2 2 8", "7", "B 4", "1")
SIZES = {"B": 5}
MERGED = 5
"""Passes of the schedule stage up to the one that merges."""

LEAVES = st.lists(
    st.tuples(st.sampled_from(SHAPES), st.booleans(), st.sampled_from(["none", "use", "late"])), min_size=1, max_size=6
)


def update(leaves: list[tuple[str, bool, str]]) -> Tape:
    """A step of momentum on some tensors: some decay; some new ones are used by others, or old ones once more."""

    def function(rate: Any, *arguments: Any) -> Any:
        made: list[Any] = []
        for number, (_, decays, then) in enumerate(leaves):
            p, m, g = arguments[3 * number : 3 * number + 3]
            step = 0.9 * m + g
            new = p - rate * (step + 0.1 * p if decays else step)
            made += [new, step]
            if then == "use":
                rate = rate + new.sum()
            elif then == "late":
                made.append(ops.exp(g))
        return tuple(made)

    types = [tensor(shape) for shape, _, _ in leaves for _ in range(3)]
    return trace(function, tensor(""), *types)


def arrays(leaves: list[tuple[str, bool, str]]) -> list[Any]:
    rng = np.random.default_rng(len(leaves))
    shapes = [tuple(SIZES.get(dim) or int(dim) for dim in shape.split()) for shape, _, _ in leaves for _ in range(3)]
    return [np.asarray(rng.normal(), np.float32), *(np.asarray(rng.normal(size=one), np.float32) for one in shapes)]


@pytest.mark.slow
@settings(max_examples=30)
@given(leaves=LEAVES, is_donated=st.booleans())
def test_meaning_is_kept(leaves: list[tuple[str, bool, str]], is_donated: bool) -> None:
    tape = update(leaves)
    if is_donated:
        tape.promises[DONATED] = tuple(at for at in range(1, len(tape.inputs)) if at % 3)
    given = arrays(leaves)
    wanted = run_tape(tape, [array.copy() for array in given])
    for steps in (MERGED, None):
        module = run_schedule(simplify(tape), steps=steps)
        verify(module)
        found = run_program(module, *[array.copy() for array in given])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
    (program,) = programs_in(module)
    for call in program.walk():
        if isinstance(call, CallOp):
            assert len({part.kernel for part in launch_of(call) if isinstance(part, CallOp)}) == 1


def test_a_tree_is_one_launch_for_each_kind_of_size() -> None:
    tape = update([(shape, True, "none") for shape in ("4 8", "32", "16 2", "0 4", "7", "3 5")])
    plan = run_schedule(simplify(tape), steps=MERGED)
    fusions = fusions_in(plan)
    assert [len(launch_of(fuse)) for fuse in fusions] == [4, 4, 4, 4, 2, 2]
    assert len({fuse.body for fuse in fusions}) == 2


@pytest.mark.parametrize(
    "function",
    [ops.tril, lambda x: x + x[0], lambda x: x + ops.transpose(x), lambda x: x * ops.arange(8).cast(ts.f32)],
    ids=["position", "broadcast", "transposed", "coordinates"],
)
def test_bodies_that_depend_on_their_shape_are_not_flattened(function: Any) -> None:
    assert flatten_body(trace(function, tensor("8 8"))) is None
    row = flatten_body(trace(ops.relu, tensor("8 8")))
    assert row is not None
    assert [str(guard.left) for guard in row.guards] == ["(n mod 16)"]


def test_groups_that_share_memory_are_no_launch() -> None:
    tape = update([("4 8", True, "none"), ("32", True, "none")])
    module = run_schedule(simplify(tape), steps=MERGED)
    first, second = (fuse for fuse in module.walk() if isinstance(fuse, FuseOp))
    assert first.launch == second.launch >= 0
    second.operands[0] = first.results[0]
    with pytest.raises(OpError, match="parts of launch 0 run beside each other, and both touch"):
        verify(module)


def test_compiled_launches_have_the_bits_of_single_ones() -> None:
    """Sizes from nothing to many tasks, one of them not a multiple of a vector, on a few threads and on one."""
    shapes = [(0, 3), (1,), (64, 1024), (5, 7), (48,), (300, 16), (70_001,), (1 << 18,)]
    rng = np.random.default_rng(0)
    trees = [[np.asarray(rng.normal(size=shape), np.float32) for shape in shapes] for _ in range(3)]

    def step(params: Any, momentum: Any, gradients: Any) -> Any:
        pairs = [(p - 0.1 * (0.9 * m + g), 0.9 * m + g) for p, m, g in zip(params, momentum, gradients, strict=True)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]

    own = [[ts.array(one) + 0.0 for one in tree] for tree in trees]
    together = ts.jit(step, donate={"params", "momentum"})
    found = together(*own)
    assert "launch = " in str(together.lower().schedule)
    for number, (p, m, g) in enumerate(zip(*trees, strict=True)):
        new = np.float32(0.9) * m + g
        assert np.asarray(found[1][number]).tobytes() == new.tobytes()
        assert np.asarray(found[0][number]).tobytes() == (p - np.float32(0.1) * new).tobytes()


def test_a_launch_in_a_loop_takes_what_it_carries_and_gives_the_next() -> None:
    """One map reads in an iteration what another makes the next of: those are two buffers, whichever is which."""

    def swap(a: Any, b: Any) -> Any:
        def step(_: Any, state: Any) -> Any:
            def inner(_: Any, state: Any) -> Any:
                return state[1] * 0.5 + b, state[0] * 0.5 + a

            a, b = state
            return ts.fori_loop(0, 2, inner, (b * 0.5 + 1.0, a * 0.5 + 1.0))

        return ts.fori_loop(0, 3, step, (a, b))

    rng = np.random.default_rng(0)
    given = [np.asarray(rng.normal(size=(6, 5)), np.float32) for _ in range(2)]
    compiled = ts.jit(swap)
    found = compiled(*given)
    assert str(compiled.lower().schedule).count("launch = ") >= 4
    for one, other in zip(found, ts.jit(swap, backend="reference")(*given), strict=True):
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
