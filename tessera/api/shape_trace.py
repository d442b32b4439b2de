"""`shape_trace`: what a function does to shapes, op by op, in names and in numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tessera.api.jit import Jit
from tessera.diagnostics.error import Span, TesseraError, readable
from tessera.frontend.bind import Call, named_sizes
from tessera.frontend.shape_inference import Assumption
from tessera.frontend.trace import Trace, trace_function
from tessera.ir.base.tape import Tape
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType, text


@frozen
class ShapeStep:
    """One op: the types it takes and gives, the same with the sizes of the call, and the line it stands on.

    `depth` is 1 and more inside the bodies of loops and branches.
    """

    op: str
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    sizes_in: tuple[TensorType, ...]
    sizes_out: tuple[TensorType, ...]
    span: Span | None
    depth: int = 0


@frozen
class ShapeTrace:
    """The steps of a function; printed, a table. `error` is what it broke off with, if it did."""

    name: str
    inputs: tuple[tuple[str, TensorType, TensorType], ...]
    steps: tuple[ShapeStep, ...]
    guards: tuple[str, ...] = ()
    error: TesseraError | None = None

    def __iter__(self) -> Iterator[ShapeStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        given = [ShapeStep(name, (), (type,), (), (sizes,), None) for name, type, sizes in self.inputs]
        is_free = any(type.symbols for step in (*given, *self.steps) for type in (*step.inputs, *step.outputs))
        header = ("op", "in", "out", "sizes in", "sizes out", "at")
        rows = [header, *(_row(step) for step in (*given, *self.steps))]
        if not is_free:
            # Without names, sizes would only repeat the shapes.
            rows = [(*row[:3], row[5]) for row in rows]
        lines = [self.name, *_table(rows), *(f"guard: {guard}" for guard in self.guards)]
        return "\n".join([*map(readable, lines), *([str(self.error)] if self.error is not None else [])])


def shape_trace(function: Callable[..., Any]) -> Callable[..., ShapeTrace]:
    """A function that, called as `function` would be, gives the shapes of every op of it; nothing is computed.

    Where the function is wrong, the table ends with the last op that is right, and with the error.

    >>> @ts.jit
    ... def scores(q: ts.Tensor["B", "S", 8, ts.f32], k: ts.Tensor["B", "T", 8, ts.f32]):
    ...     return ts.ops.softmax(q @ k.transpose(0, 2, 1))
    >>> for step in ts.shape_trace(scores)(ts.ones((2, 3, 8)), ts.ones((2, 5, 8))):
    ...     print(step.op, *step.outputs, *step.sizes_out, sep="; ")
    transpose; [B, 8, T] f32; [2, 8, 5] f32
    matmul; [B, S, T] f32; [2, 3, 5] f32
    softmax; [B, S, T] f32; [2, 3, 5] f32
    """
    jitted = function if isinstance(function, Jit) else Jit(function)

    def trace_shapes(*args: Any, **kwargs: Any) -> ShapeTrace:
        return jitted.with_values(lambda: trace_call(jitted.bind(*args, **kwargs)))

    def trace_call(call: Call) -> ShapeTrace:
        trace, error = Trace(), None
        try:
            trace_function(jitted.function, jitted.python_signature, call.signature, jitted.constraints, trace)
        except TesseraError as found:
            error = found
        sizes = {name: Dim.constant(size) for name, (size, _) in named_sizes(call.signature, call.tensors).items()}
        tape = trace.tape
        inputs: list[tuple[str, TensorType, TensorType]] = []
        for number, (name, value) in enumerate(zip(tape.names, tape.inputs, strict=True)):
            type = tape.types[value]
            is_given = number < len(call.tensors)
            inputs.append((name, type, type.with_shape(call.tensors[number].shape) if is_given else type))
        guards = dict.fromkeys(_guard(item, sizes) for item in trace.facts.assumptions)
        return ShapeTrace(jitted.name, tuple(inputs), tuple(_steps(tape, sizes)), tuple(guards), error)

    return trace_shapes


def _guard(item: Assumption, sizes: Mapping[str, Dim]) -> str:
    left, right = item.left.substitute(sizes), item.right.substitute(sizes)
    broken = f", broken here ({left} and {right})" if left.is_static and right.is_static and left != right else ""
    return f"{item.left} == {item.right}{broken}, for {item.rule}"


def _steps(tape: Tape, sizes: Mapping[str, Dim], nesting: int = 0) -> Iterator[ShapeStep]:
    for record in tape.records:
        inputs, outputs = (tuple(tape.types[value] for value in values) for values in (record.operands, record.results))
        concrete = [tuple(type.substitute(sizes) for type in types) for types in (inputs, outputs)]
        name = record.op.split(".", 1)[-1]
        yield ShapeStep(name, inputs, outputs, concrete[0], concrete[1], record.span, nesting)
        for body in record.bodies:
            yield from _steps(body, sizes, nesting + 1)


def _row(step: ShapeStep) -> tuple[str, ...]:
    """The cells of a step; the element types of results stand once, behind their dims."""
    outputs = ", ".join(map(str, step.outputs))
    shapes = [", ".join(text(type.shape) for type in types) for types in (step.inputs, step.sizes_in, step.sizes_out)]
    return "  " * step.depth + step.op, shapes[0], outputs, shapes[1], shapes[2], str(step.span or "")


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]
