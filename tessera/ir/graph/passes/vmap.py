"""Batches of functions of Graph IR, by the rules that traced programs are transformed by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from tessera.diagnostics.codes import AxisError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Tape
from tessera.ir.graph.dialect import transform_functions
from tessera.ir.graph.transforms.batch import batch_tape
from tessera.ir.graph.transforms.tape_builder import TapeBuilder, add_inputs, as_values
from tessera.types.dim import Dim
from tessera.types.frozen import frozen


@frozen
class Vmap(Pass):
    """Make of a function for one element a function for a batch of them.

    Before: `@f(%x: [N], %w: [N]) -> [N]`. After `graph-vmap{in_axes = [0, none]}`: `@f(%x: [batch, N], %w: [N]) ->
    [batch, N]`. `in_axes` has the axis of the batch for each argument, none for one that all share, and is 0 for all
    where it is left out; `out_axes` is the same for results. `size` is a number, or the name of a dim; else a new one.
    """

    in_axes: tuple[int | None, ...] = ()
    out_axes: tuple[int | None, ...] = ()
    size: int | str = ""
    function: str = ""

    def run(self, module: ModuleOp) -> None:
        def batch(function: SpecOp, tape: Tape) -> dict[str, Tape]:
            size = _read_size(function, self.size, tape)
            axes = _read_axes(function, "in_axes", self.in_axes, [tape.types[v].rank + 1 for v in tape.inputs])
            made, flags = batch_tape(tape, [axis is not None for axis in axes], size)
            ranks = [tape.types[value].rank + 1 for value in tape.outputs]
            out_axes = _read_axes(function, "out_axes", self.out_axes, ranks)
            for at, (axis, is_batched) in enumerate(zip(out_axes, flags, strict=True)):
                if axis is None and is_batched:
                    raise AxisError(
                        f"`out_axes` of `@{function.value('symbol')}` has none for result {at}, which differs in the "
                        "batch",
                        span=function.span,
                    )
            return {function.value("symbol"): _move_axes(made, axes, out_axes, flags, size)}

        transform_functions(module, self.function, batch)


def _read_size(function: SpecOp, given: Any, tape: Tape) -> Dim:
    """The size of a batch: a number or a name, or a dim that the function does not have yet."""
    if type(given) is int and given >= 0:
        return Dim.constant(given)
    if not isinstance(given, str) or not (given == "" or given.isidentifier()):
        raise AxisError(
            f"`size` is how many elements `@{function.value('symbol')}` is for, a number or the name of a dim, got "
            f"{given!r}",
            span=function.span,
        )
    known = {name for type in tape.types for dim in type.shape for name in dim.symbols}
    fresh = ("batch", *(f"batch_{number}" for number in range(1, len(known) + 1)))
    return Dim.symbol(given or next(name for name in fresh if name not in known))


def _read_axes(function: SpecOp, option: str, given: Any, ranks: Sequence[int]) -> list[int | None]:
    """An axis for each argument or result, counted from the front; 0 where none is given."""
    name, alone = function.value("symbol"), 0 if given == () else given
    axes: list[Any] = list(as_values(given)) if isinstance(given, tuple) and given else [alone] * len(ranks)
    if len(axes) != len(ranks):
        raise AxisError(
            f"`{option}` has {len(axes)} axes, and `@{name}` has {len(ranks)} "
            f"{'arguments' if option == 'in_axes' else 'results'}",
            span=function.span,
            fix="give one for each; none for one without the batch",
        )
    if option == "in_axes" and not any(axis is not None for axis in axes):
        raise AxisError(f"`in_axes` gives no argument of `@{name}` a batch", span=function.span)
    for axis, rank in zip(axes, ranks, strict=True):
        if axis is not None and (type(axis) is not int or not -rank <= axis < rank):
            raise AxisError(
                f"`{option}` of `@{name}` has {axis} for a value that has {rank} axes with the batch",
                span=function.span,
            )
    return [axis if axis is None else axis % rank for axis, rank in zip(axes, ranks, strict=True)]


def _move_axes(
    tape: Tape, in_axes: Sequence[int | None], out_axes: Sequence[int | None], flags: Sequence[bool], size: Dim
) -> Tape:
    """A program with the batch first, as one that has it where the axes say."""
    builder = TapeBuilder()
    made = builder.tape
    made.guards, made.promises, made.functions = list(tape.guards), tape.promises, tape.functions
    types = [tape.types[value] for value in tape.inputs]
    moved = [
        one if axis is None else one.with_shape((*one.shape[1 : axis + 1], size, *one.shape[axis + 1 :]))
        for one, axis in zip(types, in_axes, strict=True)
    ]
    inputs = add_inputs(made, moved, tape.names)
    given = [
        _transpose(builder, value, axis, 0) if axis else value for value, axis in zip(inputs, in_axes, strict=True)
    ]
    for value, axis, is_batched in zip(builder.inline(tape, given), out_axes, flags, strict=True):
        if axis is not None and not is_batched:
            value = builder.emit("broadcast_to", value, shape=(size, *builder.type_of(value).shape))
        made.outputs.append(_transpose(builder, value, 0, axis) if axis else value)
    return made


def _transpose(builder: TapeBuilder, value: int, source: int, target: int) -> int:
    """A value with one axis moved."""
    order = [axis for axis in range(builder.type_of(value).rank) if axis != source]
    order.insert(target, source)
    return builder.emit("transpose", value, axes=tuple(order))
