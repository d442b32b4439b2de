"""Constraints go through the shape rule of every op: what they prove needs no guard, what they exclude is refused."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import BroadcastError, ShapeError
from tessera.diagnostics.error import TesseraError
from tessera.frontend.constraints import assume_constraint
from tessera.frontend.shape_inference import Assumption, Facts
from tessera.frontend.trace import Trace, TracedTensor
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.spec import OpSpec, Sample
from tessera.ir.graph.ops import REGISTRY
from tessera.types.constraint import Constraint
from tessera.types.dim import Dim
from tessera.types.shape import TensorType
from tests.graph.eager import reference

SPECS = [spec for spec in REGISTRY if spec.samples]


def sizes_of(arrays: list[Any], fixed: frozenset[str] = frozenset()) -> dict[str, int]:
    """A name for every dim of every operand and its size, but for those that are `fixed` or 1, which broadcasts."""
    named = {f"x{at}_{axis}": size for at, array in enumerate(arrays) for axis, size in enumerate(array.shape)}
    return {name: size for name, size in named.items() if name not in fixed and size != 1}


def traced(spec: OpSpec, sample: Sample, sizes: Mapping[str, int], *, is_told: bool) -> tuple[Trace, list[Any]]:
    """One op on operands whose dims are names; the constraints say what each is, where the trace `is_told`."""
    arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
    trace = Trace(facts=Facts())
    operands: list[TracedTensor] = []
    for at, array in enumerate(arrays):
        names = [(f"x{at}_{axis}", size) for axis, size in enumerate(array.shape)]
        type = TensorType.of([name if name in sizes else size for name, size in names], dtype_of(array))
        trace.facts.anchor(type)
        operands.append(trace.add_input(f"x{at}", type))
    for name, size in sizes.items() if is_told else ():
        # A range of one size: an equality would be put into the types, and nothing would be asked of the solver.
        assume_constraint(trace, Constraint.parse(f"{name} in {size}..={size}", None), None)
    with dispatch.record_on(trace):
        made: Any = trace.record(spec.short_name, operands, sample.attributes)
    outputs: list[Any] = list(made) if isinstance(made, tuple) else [made]  # pyright: ignore[reportUnknownArgumentType]
    return trace, [output for output in outputs if isinstance(output, TracedTensor)]


def free_sizes(spec: OpSpec, sample: Sample) -> tuple[dict[str, int], Trace]:
    """The names that an op lets its dims have, and the trace with nothing told: some dims must be numbers."""
    arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
    names = list(sizes_of(arrays))
    for fixed in ((), *_growing(names)):
        sizes = sizes_of(arrays, frozenset(fixed))
        try:
            return sizes, traced(spec, sample, sizes, is_told=False)[0]
        except TesseraError:
            continue
    raise AssertionError(f"`{spec.short_name}` takes no dynamic dim and not even its own sample")


def _growing(names: list[str]) -> list[list[str]]:
    """Dims to fix: each by itself, those of each operand, the last of each, then all."""
    operands = sorted({name.split("_")[0] for name in names})
    whole = [[name for name in names if name.startswith(f"{operand}_")] for operand in operands]
    return [*([name] for name in names), *whole, [own[-1] for own in whole if own], names]


def asked(trace: Trace) -> list[Assumption]:
    """What the op's own rule had to assume."""
    return [item for item in trace.facts.assumptions if item.constraint is None]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_what_constraints_prove_is_not_guarded(spec: OpSpec) -> None:
    for sample in spec.samples[:3]:
        sizes, _ = free_sizes(spec, sample)
        trace, outputs = traced(spec, sample, sizes, is_told=True)
        assert asked(trace) == [], f"{spec.short_name}: {sample.name}"
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
        with np.errstate(all="ignore"):
            executed: Any = reference(spec.short_name, *arrays, **sample.attributes) if spec.reference else outputs
        given: list[Any] = [executed] if hasattr(executed, "dtype") else list(executed)
        solver = trace.facts.solver_in_use() if sizes else None
        for output, array in zip(outputs, given, strict=True):
            for dim, size in zip(output.type.shape, array.shape, strict=True):
                if dim.value is None and isinstance(size, int):
                    assert solver is not None
                    answer = solver.decide(Constraint(dim, "==", Dim.constant(size)))
                    assert answer.is_proved, f"{spec.short_name}: {dim} is {size}, and the constraints say {answer}"


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_what_constraints_exclude_is_refused(spec: OpSpec) -> None:
    for sample in spec.samples[:2]:
        sizes, free = free_sizes(spec, sample)
        for item in asked(free):
            changed = next((name for name in sorted(item.left.symbols ^ item.right.symbols) if name in sizes), None)
            if changed is None:
                continue
            wrong = {**sizes, changed: sizes[changed] + 1}
            env = {name: size for name, size in wrong.items() if name in item.left.symbols | item.right.symbols}
            if item.left.evaluate(env) == item.right.evaluate(env):
                continue
            with pytest.raises((ShapeError, BroadcastError), match=r"differ because of|differ"):
                traced(spec, sample, wrong, is_told=True)


# Ops without samples: those that hold functions or meet the world, as users call them.


@ts.kernel
def _doubled(x: ts.KTile["M", "N", ts.f32]) -> Any:
    T = ts.tile.context()
    return ts.tile.load(x, rows=T.m, cols=T.n) * 2.0


@ts.custom_vjp
def _added(x: Any, y: Any) -> Any:
    return x + y


_added.defvjp(lambda x, y: (x + y, ()), lambda _, g: (g, g))

OTHERS: dict[str, Callable[[Any, Any], Any]] = {
    "custom_function": lambda x, y: ts.grad(lambda z: (z * _added(x, y)).sum())(x) + y,
    "checkpoint": lambda x, y: ts.checkpoint(lambda a, b: a + b)(x, y),
    "cond": lambda x, y: ts.cond(x.sum() > 0.0, lambda: x + y, lambda: x - y),
    "while": lambda x, y: ts.while_loop(lambda s: (s + y).sum() < 9.0, lambda s: s + y, x),
    "fori": lambda x, y: ts.fori_loop(0, x.shape[0], lambda i, s: s + y, x),
    "scan": lambda x, y: ts.scan(lambda s, row: (s + row[0] - row[1], s), ts.ops.zeros(()), (x, y))[1] + y,
    "kernel_call": lambda x, y: _doubled(x[None] + y[None])[0] + y,
    "debug_print": lambda x, y: (ts.debug_print("{}", x), x + y)[1],
    "io_callback": lambda x, y: ts.io_callback(lambda v: v, x, result=y) + x,
    "fresh_key": lambda x, y: x + ts.random.uniform(ts.random.key(), x.shape) + y,
    "fused": lambda x, y: ts.ops.epilogue.chain([ts.ops.epilogue.bias(y)])(x[None] @ ts.ops.ones((4, 4))),
}


def test_every_op_is_asked() -> None:
    # A `custom_linear` is never part of a program: it is transposed, or its rule takes its place; a `size_cond` is made
    # by a pass.
    named = {spec.short_name for spec in SPECS} | OTHERS.keys() | {"custom_linear", "size_cond"}
    assert {spec.short_name for spec in REGISTRY} == named


@pytest.mark.parametrize("op", OTHERS)
def test_what_constraints_prove_is_not_guarded_in_bodies(op: str) -> None:
    def f(x: ts.Tensor["N", ts.f32], y: ts.Tensor["M", ts.f32]) -> Any:
        return OTHERS[op](x, y)

    given = np.ones(4, np.float32), np.ones(4, np.float32)
    told = ts.jit(f, constraints=("N in 4..=4", "M in 4..=4"), backend="reference").trace(*given)
    assert [item for item in told.assumptions if item.constraint is None] == []
    assert any(record.op == f"tgraph.{op}" for record in told.tape.records)
    free = ts.jit(f, backend="reference")
    if op != "fused":  # whose product fixes the size
        assert [item for item in free.trace(*given).assumptions if item.constraint is None]
    wrong = ts.jit(f, constraints=("N in 4..=4", "M in 5..=5"), backend="reference")
    with pytest.raises((ShapeError, BroadcastError), match=r"differ because of .*`M in 5"):
        wrong.trace(np.ones(4, np.float32), np.ones(5, np.float32))
