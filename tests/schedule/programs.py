"""Programs to schedule: traced functions on symbolic sizes, and random ones."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from tessera import ops
from tessera.backends.reference.compile import run_tape
from tessera.diagnostics.error import InternalError
from tessera.frontend.trace import Trace
from tessera.ir.base import dispatch
from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.compilation import StaticChooser
from tessera.ir.base.op import OpError
from tessera.ir.base.passes import Pass, Stages
from tessera.ir.base.tape import Tape
from tessera.ir.base.verify import Legality, verify
from tessera.ir.graph import pipeline as graph
from tessera.ir.graph.dialect import from_tape
from tessera.ir.schedule import pipeline as schedule
from tessera.stdlib.kernels import StandardLibrary
from tessera.types.dtype import BY_NAME
from tessera.types.machine import Machine
from tessera.types.shape import TensorType
from tests.oracles.schedule_interpreter import run_program

MACHINE = Machine("test", lanes=8)
ONES = {"A": 1, "B": 1}


def tensor(dims: str, dtype: str = "f32") -> TensorType:
    """A type from text: `typed("B S 4")`."""
    shape = [int(dim) if dim.isdigit() else dim for dim in dims.split()]
    return TensorType.of(shape, BY_NAME[dtype])


def trace(function: Callable[..., Any], *types: TensorType) -> Tape:
    """The tape of a function of tensors."""
    recorder = Trace()
    with dispatch.record_on(recorder):
        arguments: list[Any] = []
        for number, type in enumerate(types):
            recorder.facts.anchor(type)
            arguments.append(recorder.add_input(f"x{number}", type))
        result = function(*arguments)
    return recorder.finish(list(result) if isinstance(result, tuple) else [result])  # pyright: ignore[reportUnknownArgumentType]


def simplify(tape: Tape) -> ModuleOp:
    """The tape as Graph IR that can be scheduled."""
    module = from_tape(tape)
    Stages(lambda: from_tape(tape)).run("graph", graph.pipeline(), module, graph.EXIT)
    return module


def run_schedule(
    module: ModuleOp,
    steps: int | None = None,
    chooser: StaticChooser | None = None,
    *,
    fusion: bool = True,
    memory: int = -1,
    machine: Machine = MACHINE,
) -> ModuleOp:
    """A module after the first passes of the stage, or all of them; each is verified."""
    chooser = chooser or StaticChooser()
    passes = schedule.pipeline(machine, chooser, StandardLibrary(), fusion=fusion, memory=memory)
    run_verified(passes[:steps], module, schedule.EXIT if steps is None else None)
    return module


def run_verified(passes: Sequence[Pass], module: ModuleOp, legality: Legality | None) -> None:
    """Take a module through passes of the schedule stage; each is verified.

    What a failure is blamed on is found from a copy: the text before each pass would take longer than they do.
    """
    before = module.clone()

    def check(name: str, after: ModuleOp) -> None:
        try:
            verify(after)
        except OpError as error:
            raise InternalError(error.message, where=name) from error

    Stages(before.clone, observe=check).run("schedule", passes, module, legality)


def inputs_for(tape: Tape, sizes: dict[str, int], seed: int = 0) -> list[Array]:
    """Arrays that fit a tape's inputs."""
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for value in tape.inputs:
        type = tape.types[value]
        shape = [dim.evaluate(sizes) for dim in type.shape]
        array = rng.standard_normal(shape) if type.dtype.is_float else rng.integers(0, 3, shape)
        found.append(np.asarray(array).astype(numpy_dtype(type.dtype)))
    return found


def assert_close(found: Sequence[Array], expected: Sequence[Array]) -> None:
    """Equal up to the order of sums; NaN and infinities at the same indices."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        assert one.dtype == other.dtype
        narrow = one.dtype.itemsize < 4 and one.dtype.kind not in "iub"
        tolerance = 3e-2 if narrow else 3e-5
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=tolerance, atol=tolerance)


# Random programs: each step is drawn from those that fit the values there are.

_UNARY: tuple[Callable[[Any], Any], ...] = (ops.tanh, ops.sigmoid, ops.neg, ops.abs, lambda x: x * 0.5 + 1.0)


@st.composite
def tapes(draw: st.DrawFn, shapes: Sequence[str] = ("AB", "AA")) -> Tape:
    """A program of some ops on two matrices and a vector with symbolic sizes.

    With square matrices a value of the rows fits where one of the columns is meant: only index maps tell them apart.
    """
    steps = draw(st.integers(1, 9))
    rows, columns = draw(st.sampled_from(shapes))

    def program(x: Any, y: Any, v: Any) -> tuple[Any, ...]:
        values: list[Any] = [x, y, v]
        for _ in range(steps):
            source = values[draw(st.integers(0, len(values) - 1))]
            other = values[draw(st.integers(0, len(values) - 1))]
            values.append(draw(st.sampled_from(_choices(source, other)))())
        wanted = draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=3))
        return (values[-1], *(values[number] for number in wanted))

    matrix = tensor(f"{rows} {columns}")
    tape = trace(program, matrix, matrix, tensor(columns))
    # The maximum of no elements is refused: such a program does not run at all sizes that tests use.
    assume(all(guard.left.evaluate(ONES) == guard.right.evaluate(ONES) for guard in tape.guards))
    return tape


def _choices(x: Any, y: Any) -> list[Callable[[], Any]]:
    """What can be done with two values."""
    found: list[Callable[[], Any]] = [lambda function=function: function(x) for function in _UNARY]
    shape, other = x.type.shape, y.type.shape
    rank = len(shape)
    if shape == other or (len(other) == 1 and rank == 2 and other[0] == shape[1]):
        found += [lambda: x + y, lambda: x * y, lambda: ops.maximum(x, y), lambda: ops.where(x > y, x, y)]
    for axis in range(rank):
        found += [
            lambda axis=axis: ops.sum(x, axis=axis, keepdims=True) * 0.1 + x,
            lambda axis=axis: ops.max(x, axis=axis),
            lambda axis=axis: ops.softmax(x, axis=axis),
        ]
    if rank == 2:
        found += [
            lambda: ops.transpose(x),
            lambda: ops.reshape(x, (-1,)),
            lambda: (x @ ops.transpose(x)) * 0.1,
            lambda: ops.concat([x, x * 2.0], axis=0),
            lambda: ops.rmsnorm(x, ops.sum(x, axis=0) * 0.1),
            lambda: x[1:, ::-1],
        ]
    if rank == 2 and shape[0] == shape[1]:
        found += [
            lambda: ops.tanh(x) + ops.max(x, axis=1),
            lambda: ops.tanh(x) + ops.transpose(x),
            lambda: (lambda p: p + ops.transpose(p))((x @ x) * 0.1),
        ]
    return found


def check_meaning(tape: Tape, given: Sequence[Array]) -> ModuleOp:
    """Interpret the plan of a tape, and its host program, against the tape itself; the host program."""
    wanted = run_tape(tape, [array.copy() for array in given])
    module = ModuleOp([])
    for count in (2, None):
        module = run_schedule(simplify(tape), steps=count)
        verify(module)
        found = run_program(module, *[array.copy() for array in given])
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    return module
