"""Running plans and host programs on NumPy arrays: groups by their bodies, calls by the interpreter of tile kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.interpret import InterpretError, Run, bind_dims, handles, perform
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import ShapedAttr
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.host_program.builder import tensor_of
from tessera.ir.schedule.host_program.memory import donated_in, overwritten_by
from tessera.ir.schedule.ops.host import has_buffers
from tessera.ir.schedule.plan import programs_in
from tessera.ir.tile.interpret import run_kernel
from tessera.runtime.ranks import world
from tessera.types.shape import TensorType

POISON = 0xA5
"""The byte that fills memory nobody has written, so that reading it shows."""


def run_program(
    module: ModuleOp, *arrays: Array, symbol: str | None = None, runner: type[Run] | Callable[..., Run] = Run
) -> tuple[Array, ...]:
    """The results of a `tsched.module` for these inputs, after any pass of the schedule stage.

    Once memory is planned, temporaries are at their offsets in one workspace, so that a wrong plan gives wrong results.
    A plan of undefined names takes its inputs in the order of their first use. Raises InterpretError where the arrays
    do not fit, a guard does not hold, or a body is missing. `runner` makes the run from sizes and functions.
    """
    program = next(one for one in programs_in(module) if symbol in (None, one.value("symbol")))
    block = program.regions[0].block
    if len(arrays) != len(block.args):
        raise InterpretError(f"the program takes {len(block.args)} arguments, got {len(arrays)}")
    typed = [(argument, array) for argument, array in zip(block.args, arrays, strict=True) if is_typed(argument)]
    dims = bind_dims([tensor_of(argument) for argument, _ in typed], [array for _, array in typed])
    run = runner(dims, symbol_table(module))
    for left, right, what in program.value("guards"):
        if run.size(left) != run.size(right):
            raise InterpretError(f"{what}: {left} is {run.size(left)}, {right} is {run.size(right)}")
    for space in ("workspace", "offloaded"):
        if program.value(space) is not None:
            run.world[space] = np.full(run.size(program.value(space)), POISON, np.uint8)
    donated = donated_in(program)
    # What the caller donates is written over, so it is copied here.
    given = [np.array(x, order="C", copy=True if at in donated else None) for at, x in enumerate(arrays)]
    return run.block(block, given)


@handles("tsched.fuse")
def _fuse(run: Run, op: SpecOp) -> Sequence[Any]:
    operands = run.operands(op)
    sizes = {str(size): run.size(dim) for size, dim in op.value("sizes")} or dict(run.dims)
    if op.value("kernels"):
        outs = [_fill(run, tensor_of(result)) for result in op.results]
        given = [np.asarray(x, order="C") for x in operands]
        for result in overwritten_by(op):
            number = op.value("in_place")[result]
            given[number] = outs[result] = np.array(operands[number], order="C")
        for name in op.value("kernels"):
            run_kernel(run.functions[name], given + outs, sizes)
        return outs
    body = run.functions.get(op.value("body"))
    if body is None:
        raise InterpretError(f"the body `@{op.value('body')}` of a group is not in the module")
    block = body.regions[0].block
    inner = Run({**bind_dims([tensor_of(argument) for argument in block.args], operands), **sizes}, run.functions)
    return inner.block(block, operands)


def _fill(run: Run, type: TensorType) -> Array:
    """New memory, poisoned."""
    shape = tuple(run.size(dim) for dim in type.shape)
    found: Array = np.empty(shape, numpy_dtype(type.dtype))
    found.reshape(-1).view(np.uint8)[:] = POISON
    return found


@handles("tsched.tile", "tsched.layout", "tsched.collective", "tsched.pipeline", "tsched.guard", "tsched.free")
def _nothing(run: Run, op: SpecOp) -> None:
    """Annotations change how a program runs, not its results."""


@handles("tsched.materialize")
def _materialize(run: Run, op: SpecOp) -> Sequence[Any]:
    return run.operands(op)


@handles("tsched.constant")
def _constant(run: Run, op: SpecOp) -> Sequence[Any]:
    return (op.value("value"),)


@handles("tsched.alias")
def _alias(run: Run, op: SpecOp) -> Sequence[Any]:
    shape = tuple(run.size(dim) for dim in tensor_of(op.result).shape)
    return (np.reshape(run[op.operands[0]], shape),)


@handles("tsched.alloc")
def _alloc(run: Run, op: SpecOp) -> Sequence[Any]:
    type = tensor_of(op.result)
    offset, workspace = op.value("offset"), run.world.get("offloaded" if op.value("space") else "workspace")
    if offset is None or workspace is None:
        return (_fill(run, type),)
    start, count = run.size(offset), run.size(type.bytes)
    part = workspace[start : start + count]
    part[:] = POISON
    return (part.view(numpy_dtype(type.dtype)).reshape(tuple(run.size(dim) for dim in type.shape)),)


@handles("tsched.offload", "tsched.prefetch")
def _move(run: Run, op: SpecOp) -> Sequence[Any]:
    return (np.array(run[op.operands[0]]),)


@handles("tsched.copy")
def _copy(run: Run, op: SpecOp) -> None:
    source, target = run.operands(op)
    target.reshape(-1)[:] = source.reshape(-1)


@handles("tsched.call")
def _call(run: Run, op: SpecOp) -> None:
    kernel = run.functions[op.value("kernel")]
    sizes = dict(zip(kernel.value("symbols"), map(run.size, op.value("sizes")), strict=True))
    run_kernel(kernel, run.operands(op), sizes)


@handles("tsched.callback")
def _callback(run: Run, op: SpecOp) -> Sequence[Any]:
    """In a plan it has results; on buffers, it writes the last of them."""
    count = len(op.operands) - op.value("outputs")
    targets = run.operands(op)[count:]
    types = [tensor_of(value) for value in (op.results or op.operands[count:])]
    wanted = [(type.dtype, tuple(run.size(dim) for dim in type.shape)) for type in types]
    given = perform(op.value("call"), op.value("slot"), op.value("text"), run.operands(op)[:count], wanted)
    for target, result in zip(targets, given, strict=False):
        target[...] = result
    return given if op.results else ()


@handles("tsched.collective_start")
def _start(run: Run, op: SpecOp) -> Sequence[Any]:
    """Between the ranks that run this; the result is not there before it was waited for."""
    source = np.asarray(run[op.operands[0]], order="C")
    target = _fill(run, tensor_of(op.results[0])) if op.results else run[op.operands[1]]
    ranks, dtype = op.value("ranks"), tensor_of(op.operands[0]).dtype
    part = source.nbytes // (ranks if op.value("call") == "all_to_all" else 1)
    memory = (source.ctypes.data, target.ctypes.data, part)
    handle = world.start(op.value("call"), op.value("axis"), ranks, memory, str(dtype))
    # The arrays stay until the wait, whatever becomes of the values.
    run.world.setdefault("collectives", {})[op.value("number")] = handle, source, target
    return (target,) if op.results else ()


@handles("tsched.collective_wait")
def _wait(run: Run, op: SpecOp) -> Sequence[Any]:
    handle, _, target = run.world["collectives"].pop(op.value("number"))
    world.wait(handle)
    return (target,) if op.results else ()


@handles("tsched.if")
def _if(run: Run, op: SpecOp) -> Sequence[Any]:
    size = op.value("size")
    is_first = bool(run[op.operands[0]]) if size is None else run.size(size) > 0
    taken = op.regions[0 if is_first else 1]
    return run.block(taken.block, ())


@handles("tsched.while")
def _while(run: Run, op: SpecOp) -> Sequence[Any]:
    tests, body = (region.block for region in op.regions)
    values, count = run.operands(op), len(op.results)
    while bool(run.block(tests, values[:count])[0]):
        given = run.block(body, values)
        values = [*values[count:], *values[:count]] if has_buffers(op) else list(given)
    return values[:count]


@handles("tsched.for")
def _for(run: Run, op: SpecOp) -> Sequence[Any]:
    return _for_on_buffers(run, op) if has_buffers(op) else _for_on_values(run, op)


def _iterations(run: Run, op: SpecOp) -> list[int]:
    length = op.value("length")
    if length is None:
        return list(range(int(run[op.operands[0]]), int(run[op.operands[1]])))
    iterations = list(range(run.size(length)))
    return iterations[::-1] if op.value("reverse") else iterations


def _for_on_values(run: Run, op: SpecOp) -> Sequence[Any]:
    count, has_bounds = op.value("carried"), op.value("length") is None
    rest = run.operands(op)[2 if has_bounds else 0 :]
    values, scanned = rest[:count], rest[count:]
    stacked = [_fill(run, tensor_of(result)) for result in op.results[count:]]
    body = op.regions[0].block
    for at in _iterations(run, op):
        index = [np.array(at, run[op.operands[0]].dtype)] if has_bounds else []
        given = run.block(body, [*index, *values, *(x[at] for x in scanned)])
        values = list(given[:count])
        for stack, row in zip(stacked, given[count:], strict=True):
            stack[at] = row
    return [*values, *stacked]


def _for_on_buffers(run: Run, op: SpecOp) -> Sequence[Any]:
    count, has_bounds = op.value("carried"), op.value("length") is None
    operands = run.operands(op)
    index = operands[2:3] if has_bounds else []
    rest = operands[3 if has_bounds else 0 :]
    pairs, rows = rest[: 2 * count], rest[2 * count :]
    for at in _iterations(run, op):
        for counter in index:
            counter[...] = at
        run.block(op.regions[0].block, [*index, *pairs, *(x[at : at + 1].reshape(x.shape[1:]) for x in rows)])
        pairs = [*pairs[count:], *pairs[:count]]
    return pairs[:count]


def is_typed(value: SSAValue) -> bool:
    """Whether more than the name of a value is known."""
    return isinstance(value.type, ShapedAttr)
