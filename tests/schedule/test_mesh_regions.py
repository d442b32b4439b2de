"""Scopes of mesh axes in traced programs: regions of the plan, their nesting, and nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.diagnostics.codes import ScheduleError, TracingError
from tessera.ir.base.build import region_of
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.fusion import RULES
from tessera.ir.schedule.grouping import Group, Groups
from tessera.ir.schedule.passes.form_mesh_regions import FormMeshRegions, inline_regions
from tessera.ir.schedule.plan import programs_in
from tessera.ir.schedule.program import Program

load_dialects()
X = np.linspace(-2.0, 2.0, 8 * 16, dtype=np.float32).reshape(8, 16)
W = np.cos(np.arange(256, dtype=np.float32)).reshape(16, 16)


def regions_of(text: str) -> list[tuple[int, str]]:
    """Axes of the regions of a plan, with the depth at which each stands."""
    found: list[tuple[int, str]] = []
    for op in parse_module(text).walk():
        if op.name == "tsched.mesh.region":
            depth, at = 0, op.parent_op()
            while at is not None:
                depth, at = depth + (at.name == "tsched.mesh.region"), at.parent_op()
            assert isinstance(op, SpecOp)
            found.append((depth, str(op.value("axis"))))
    return found


def test_the_context_of_the_document_maps_to_a_region() -> None:
    with ts.dist.mesh(data=4, model=2) as mesh:

        @ts.jit
        def step(x: Any, w: Any) -> Any:
            with mesh.axis("data"):
                y = ts.dist.all_reduce(x @ w, axis="data")
            return ops.relu(y)

        text = step.schedule(X, W)
    assert regions_of(text) == [(0, "data")]
    assert "mesh = {data = 4, model = 2}" in text
    (program,) = programs_in(parse_module(text))
    (region,) = [op for op in program.walk() if op.name == "tsched.mesh.region"]
    inside = [op.name for op in region.regions[0].block.ops]
    assert inside.count("tsched.fuse") == 2, "the product, and the sum over ranks"
    assert {"tsched.collective_start", "tsched.collective_wait", "tsched.yield"} <= set(inside)
    outside = [op.name for op in program.regions[0].block.ops]
    assert outside.count("tsched.fuse") == 1, "`relu` is behind the scope, and fused with nothing in it"


def test_axes_nest_and_follow_each_other() -> None:
    with ts.dist.mesh(data=4, model=2) as mesh:

        @ts.jit
        def step(x: Any, w: Any) -> Any:
            with mesh.axis("data"):
                h = x @ w
                with mesh.axis("model"):
                    h = ops.gelu(h)
            with mesh.axis("model"):
                return h @ w

        assert regions_of(step.schedule(X, W)) == [(0, "data"), (1, "model"), (0, "model")]


def test_a_scope_goes_into_loops_and_gradients() -> None:
    with ts.dist.mesh(data=4) as mesh:

        def loss(x: Any, w: Any) -> Any:
            with mesh.axis("data"):
                h = ts.fori_loop(0, 3, lambda _, y: ops.tanh(y @ w), x)
            return ops.sum(h)

        text = ts.jit(loss).schedule(X, W)
        assert regions_of(text) == [(0, "data")]
        derived = ts.jit(ts.grad(loss)).schedule(X, W)
        assert {axis for _, axis in regions_of(derived)} == {"data"}


def test_an_axis_that_is_not_there_is_named_with_those_that_are() -> None:
    with ts.dist.mesh(data=4, model=2) as mesh:

        @ts.jit
        def step(x: Any) -> Any:
            with mesh.axis("pipe"):
                return x * 2.0

        with pytest.raises(TracingError, match="takes an axis of the mesh, got 'pipe'") as error:
            step.schedule(X)
        assert error.value.notes == ("mesh(data=4, model=2) has `data` (4 ranks), `model` (2 ranks)",)
        assert error.value.fix is not None
        assert 'mesh.axis("data")' in error.value.fix.message


def test_an_axis_does_not_nest_in_itself() -> None:
    with ts.dist.mesh(data=4, model=2) as mesh:

        @ts.jit
        def step(x: Any) -> Any:
            with mesh.axis("data"), mesh.axis("model"), mesh.axis("data"):
                return x * 2.0

        with pytest.raises(
            TracingError, match="is within another of that axis; the axes around it are `data`, `model`"
        ):
            step.schedule(X)


def test_a_collective_is_over_an_axis_of_the_scopes_around_it() -> None:
    with ts.dist.mesh(data=4, model=2) as mesh:

        @ts.jit
        def step(x: Any) -> Any:
            with mesh.axis("data"):
                return ts.dist.all_reduce(x, axis="model")

        with pytest.raises(TracingError, match="over mesh axis `model`, and the scopes around it are of 'data'"):
            step.schedule(X)


def test_a_scope_stands_in_a_program() -> None:
    with (
        ts.dist.mesh(data=4) as mesh,
        pytest.raises(TracingError, match=r'`mesh.axis."data".` marks a part of a program'),
        mesh.axis("data"),
    ):
        pass


def test_a_plan_with_regions_compiles_to_the_same_bits() -> None:
    with ts.dist.mesh(data=1, model=1) as mesh:

        @ts.jit
        def step(x: Any, w: Any) -> Any:
            with mesh.axis("data"):
                h = ops.gelu(x @ w)
            return ops.softmax(h)

        text = step.schedule(X, W)
        assert regions_of(text) == [(0, "data")]
        planned = step.with_plan(text)
        assert np.array_equal(np.asarray(planned(X, W)), np.asarray(step(X, W)))
        for edited in (
            text.replace('axis = "data", size = 1', 'axis = "model", size = 1'),
            text.replace("mesh = {data = 1, model = 1}", "mesh = {data = 1, model = 1, extra = 2}"),
        ):
            assert edited != text
            with pytest.raises(ScheduleError, match="of the program"):
                step.with_plan(edited)(X, W)


Steps = list[tuple[int, tuple[str, ...]]]
_OPS: list[Callable[[Any, Any], Any]] = [
    lambda x, w: x @ w,
    lambda x, w: ops.gelu(x),
    lambda x, w: x + w[0],
    lambda x, w: ops.softmax(x),
]
_SCOPES = [(), ("data",), ("model",), ("data", "model"), ("model", "data")]


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(_SCOPES)), min_size=1, max_size=6))
def test_meaning_is_kept_and_regions_are_those_of_the_scopes(steps: Steps) -> None:
    with ts.dist.mesh(data=1, model=1) as mesh:

        def program(x: Any, w: Any, *, scoped: bool) -> Any:
            for number, axes in steps:
                with ExitStack() as stack:
                    for axis in axes if scoped else ():
                        stack.enter_context(mesh.axis(axis))
                    x = _OPS[number](x, w)
            return x

        plain, scoped = (ts.jit(partial(program, scoped=is_scoped)) for is_scoped in (False, True))
        assert np.array_equal(np.asarray(scoped(X, W)), np.asarray(plain(X, W)))
        module = parse_module(scoped.schedule(X, W))
        verify(module)
        (written,) = programs_in(module)
        inline_regions(written)
        marked = print_module(module)
        found = {region_of(op) for op in written.walk() if op.name == "tsched.fuse"}
        assert found <= {"/".join(f"{axis}=1" for axis in axes) for _, axes in steps}
        FormMeshRegions().run(module)
        verify(module)
        inline_regions(written)
        assert print_module(module) == marked


class _Counted(dict[int, int]):
    """What each group depends on, and how often that was asked."""

    asked = 0

    def __getitem__(self, group: int) -> int:
        self.asked += 1
        return super().__getitem__(group)


def _first_that_can_run(groups: Groups, ordered: list[Group]) -> list[int]:
    """The order as it is said: within the region as long as something of it can run, then the first that can."""
    left, found, region = list(ordered), list[int](), ""
    while left:
        ready = [one for one in left if not any(groups.order.depends(one.number, other.number) for other in left)]
        taken = next((one for one in ready if groups.region(one) == region), ready[0])
        region = groups.region(taken)
        left.remove(taken)
        found.append(taken.number)
    return found


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.sampled_from(_SCOPES)), min_size=1, max_size=24))
def test_groups_leave_a_region_when_nothing_of_it_can_run(steps: list[tuple[int, int, tuple[str, ...]]]) -> None:
    with ts.dist.mesh(data=1, model=1) as mesh:

        def program(x: Any) -> Any:
            made = [x]
            for left, right, axes in steps:
                with ExitStack() as stack:
                    for axis in axes:
                        stack.enter_context(mesh.axis(axis))
                    made.append(made[left % len(made)] @ made[right % len(made)])
            return tuple(made[1:])

        tape = ts.jit(program).trace(W).tape
    groups = Groups(Program(tape), lambda knob, record: True, RULES)
    found = groups.run().groups
    ordered = sorted(found, key=lambda group: (groups.order.before[group.number].bit_count(), group.first))
    assert [group.number for group in found] == _first_that_can_run(groups, ordered)


def test_a_group_is_looked_at_when_what_it_waits_for_has_run() -> None:
    with ts.dist.mesh(data=1, model=1) as mesh:

        def program(x: Any, w: Any) -> Any:
            for number in range(60):
                with mesh.axis("data" if number % 2 else "model"):
                    x = x @ w
            return x

        tape = ts.jit(program).trace(X, W).tape
    groups = Groups(Program(tape), lambda knob, record: True, RULES)
    found = groups.run().groups
    assert len(found) == 60
    groups.order.before = counted = _Counted(groups.order.before)
    assert list(found) == groups._in_order()  # pyright: ignore[reportPrivateUsage] - how often it asks is its own
    assert counted.asked <= 3 * len(found)
