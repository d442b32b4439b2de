"""Faults to put into memory ops of Target IR, each a real one: with it the kernel is not the one that was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from xdsl.ir import BlockArgument, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import IndexAttr, VectorAttr
from tessera.ir.target.limits import index_multiple, kernel_around
from tessera.ir.target.ops.blocks import PATTERNS
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f64, i8
from tessera.types.shape import TensorType

ACCESSES = ("ttarget.load", "ttarget.store", "ttarget.gemm", "ttarget.block_dot", "ttarget.scratch")
LOOPS = ("ttarget.loop", "ttarget.tail")


@dataclass(frozen=True)
class Fault:
    """A change of one op: `kind` says of what, `inject` makes it on that op of a copy of the kernel."""

    kind: str
    what: str
    inject: Callable[[SpecOp], None]


def faults_of(op: SpecOp) -> Iterator[Fault]:
    """Every fault that can be put into an op."""
    if op.name in ("ttarget.load", "ttarget.store"):
        yield from _access_faults(op)
    elif op.name == "ttarget.gemm":
        yield from _gemm_faults(op)
    elif op.name == "ttarget.block_dot":
        yield from _block_dot_faults(op)
    elif op.name == "ttarget.scratch":
        for by in (32, 64, -64):
            yield _set(op, "scratch", "offset", op.value("offset") + by)
    elif op.name in LOOPS:
        yield _set(op, "loop", "step", op.value("step") * 2)
        yield Fault("loop", "ends swapped", lambda loop: _swap(loop, 0, 1))
        if op.name == "ttarget.tail" and not op.results:
            yield Fault("loop", "tail gone", lambda loop: (loop.detach(), None)[1])


def _set(op: SpecOp, kind: str, name: str, value: object) -> Fault:
    return Fault(kind, f"{name} = {value}", lambda copy: copy.set_value(name, value))


def _swap(op: SpecOp, first: int, second: int) -> None:
    operands: list[SSAValue] = list(op.operands)
    operands[first], operands[second] = operands[second], operands[first]
    op.operands = operands


def change(op: SpecOp, name: str) -> list[Dim]:
    """An expression with one coefficient, one term or its start off; a term that is always 0 may be anything."""
    dim: Dim = op.value(name)
    indices = [value for value in op.operands if isinstance(value.type, IndexAttr)]
    names = next((op.value(name) for name in ("coords", "names") if name in op.kinds), ())
    zeros = {name for name, value in zip(names, indices, strict=True) if index_multiple(value) == 0}
    found = [dim + 1, dim - 1]
    for term in dim.terms:
        single = Dim((term,))
        if not single.symbols & zeros - set(op.value("axes") if "axes" in op.kinds else ()):
            found += [dim + single, dim - single, dim - single * 2]
    return found


def _access_faults(op: SpecOp) -> Iterator[Fault]:
    place = 1 if op.name == "ttarget.store" else 0
    yield from (
        _set(op, "pattern", "pattern", pattern)
        for pattern in (*PATTERNS, "scattered")
        if pattern != op.value("pattern")
    )
    # An argument is aligned to its elements and no more; of scratch more may be known, and saying so is no fault.
    more = (op.value("align") * 2, 64) if isinstance(op.operands[place], BlockArgument) else ()
    yield from (_set(op, "align", "align", align) for align in (0, 3, 128, *more))
    yield from (_set(op, "offset", "offset", offset) for offset in change(op, "offset"))
    yield from _edge_faults(op)
    yield from _name_faults(op, place)
    yield from _buffer_faults(op, place)
    if place:
        yield _set(op, "mode", "mode", "add" if op.value("mode") == "set" else "set")
        yield _set(op, "mode", "mode", "xor")
    elif op.value("guarded") or op.value("windows"):
        yield _set(op, "pad", "pad", 1)


def _edge_faults(op: SpecOp) -> Iterator[Fault]:
    guarded, bounds, windows = op.value("guarded"), op.value("bounds"), op.value("windows")
    for at in range(len(guarded)):
        others = guarded[:at] + guarded[at + 1 :], bounds[:at] + bounds[at + 1 :]

        def drop(copy: SpecOp, others: tuple[tuple[str, ...], tuple[Dim, ...]] = others) -> None:
            copy.set_value("guarded", others[0])
            copy.set_value("bounds", others[1])

        yield Fault("guard", f"{guarded[at]} unguarded", drop)
        for bound in (bounds[at] + 1, bounds[at] - 1, bounds[at] * 2, Dim.constant(7)):
            yield _set(op, "bound", "bounds", (*bounds[:at], bound, *bounds[at + 1 :]))
    yield _set(op, "bound", "bounds", (*bounds, Dim.constant(8)))
    yield _set(op, "window", "windows", (*windows, Dim.constant(1)))
    yield _set(op, "window", "windows", (*windows, op.value("offset"), Dim.constant(5)))
    if windows:
        yield _set(op, "window", "windows", windows[2:])
        yield _set(op, "window", "windows", (windows[0] + 1, *windows[1:]))


def _name_faults(op: SpecOp, place: int) -> Iterator[Fault]:
    names, axes = op.value("coords"), op.value("axes")
    indices = [at for at, value in enumerate(op.operands) if at > place and isinstance(value.type, IndexAttr)]
    yield _set(op, "name", "coords", tuple(f"{name}x" for name in names) or ("x",))
    for other in names:
        if axes and other not in axes:
            yield _set(op, "axis", "axes", (*axes[:-1], other))
    if len(axes) > 1:
        yield _set(op, "axis", "axes", axes[::-1])
    yield _set(op, "axis", "axes", (*axes, "x"))
    for left, right in pairwise(indices):
        if op.operands[left] is op.operands[right]:
            continue
        turned = list(names)
        first, second = left - place - 1, right - place - 1
        turned[first], turned[second] = turned[second], turned[first]
        if all(names[at] in op.value("offset").symbols for at in (first, second)):
            yield _set(op, "name", "coords", tuple(turned))
            yield Fault("name", "indices swapped", lambda copy, a=left, b=right: _swap(copy, a, b))


def _buffer_faults(op: SpecOp, place: int) -> Iterator[Fault]:
    """Another dtype, another argument of the same type, an argument that is only read."""
    block = op.operands[0] if place else op.results[0]
    assert isinstance(block.type, VectorAttr)
    dtype = i8 if block.type.dtype is not i8 else f64
    if not place:
        yield Fault("dtype", f"{dtype}", lambda copy: _retype(copy, dtype))
    kernel = kernel_around(op)
    assert kernel is not None
    for other in kernel.regions[0].block.args:
        if other is not op.operands[place] and isinstance(op.operands[place], BlockArgument):
            kind = "read-only" if place and other.index not in kernel.value("writes") else "buffer"
            yield Fault(kind, f"argument {other.index}", lambda copy, at=other.index: _rebase(copy, place, at))


def _retype(op: SpecOp, dtype: DType) -> None:
    type = op.results[0].type
    assert isinstance(type, VectorAttr)
    op.results[0]._type = VectorAttr.of(TensorType(type.shape, dtype))  # pyright: ignore[reportPrivateUsage]


def _rebase(op: SpecOp, place: int, argument: int) -> None:
    kernel = kernel_around(op)
    assert kernel is not None
    operands: list[SSAValue] = list(op.operands)
    operands[place] = kernel.regions[0].block.args[argument]
    op.operands = operands


def _gemm_faults(op: SpecOp) -> Iterator[Fault]:
    for name in ("m", "n", "k"):
        yield from (_set(op, "extent", name, dim) for dim in (op.value(name) + 1, op.value(name) - 1, Dim.constant(3)))
    for side in ("lhs", "rhs"):
        yield from (_set(op, "offset", f"{side}_offset", dim) for dim in change(op, f"{side}_offset"))
        windows = op.value(f"{side}_windows")
        yield _set(op, "window", f"{side}_windows", (*windows, Dim.constant(1)))
        if windows:
            yield _set(op, "window", f"{side}_windows", windows[2:])
            yield _set(op, "window", f"{side}_windows", (windows[0], windows[1] + 1, *windows[2:]))
        yield _set(op, "dtype", f"{side}_dtype", i8 if op.value(f"{side}_dtype") is not i8 else f64)
    yield _set(op, "extent", "batch", (*op.value("batch"), Dim.constant(2)))
    yield Fault("buffer", "operands swapped", lambda copy: _swap(copy, 0, 1))


def _block_dot_faults(op: SpecOp) -> Iterator[Fault]:
    for name in ("m", "n", "k"):
        yield from (_set(op, "extent", name, dim) for dim in (op.value(name) + 1, op.value(name) - 1))
    for side in ("lhs", "rhs"):
        yield from (_set(op, "offset", f"{side}_offset", dim) for dim in change(op, f"{side}_offset"))
    yield _set(op, "offset", "out_stride", op.value("out_stride") // 2)
    yield _set(op, "mode", "is_fresh", not op.value("is_fresh"))
    yield Fault("buffer", "operands swapped", lambda copy: _swap(copy, 0, 1))
