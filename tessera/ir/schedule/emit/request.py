"""What a kernel is made from: its body, sizes, grid and buffers, the walk over its parallel dims, and the library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from xdsl.ir import Operation, OpResult, SSAValue

from tessera.ir.base.compilation import Chooser
from tessera.ir.base.dialect_of import make
from tessera.ir.base.index_maps import IndexMap, collapse, delinear
from tessera.ir.base.op import SpecOp
from tessera.ir.base.tape import Tape
from tessera.ir.schedule.emit.evaluate import producers, spec_of
from tessera.ir.schedule.program import prefetch_space
from tessera.ir.schedule.typed_ops import AliasOp, FuseOp
from tessera.ir.tile.facets import View
from tessera.ir.tile.language import TileBuilder, tile_type
from tessera.ir.tile.typed_ops import CastOp, ForOp, LoadOp, RoundOp
from tessera.types.dim import Dim, product
from tessera.types.dtype import FORMATS, bf16, f16, f32
from tessera.types.frozen import frozen
from tessera.types.machine import Machine
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType

# What is done to every emitted kernel: prefetch depths and hints on loops and loads, and plain roundings dropped.


def prefetched_arguments(fuse: FuseOp, body: Tape) -> dict[int, str]:
    """The arguments of a group's kernels that the user asked to be prefetched, each with the memory it goes to."""
    found = {number: space for number, value in enumerate(fuse.operands) if (space := _space_of_value(value))}
    makers = producers(body)
    for record in body.records:
        space = prefetch_space(record)
        value = record.operands[0] if space else -1
        while value in makers and isinstance(spec_of(makers[value]).lower, View):
            (value,) = makers[value].operands
        if value in body.inputs:
            found[body.inputs.index(value)] = space
    return found


def _space_of_value(value: SSAValue) -> str:
    return value.owner.space if isinstance(value, OpResult) and isinstance(value.owner, AliasOp) else ""


def set_prefetch(kernel: SpecOp, stages: int, prefetched: Mapping[int, str]) -> None:
    """Write how far loops prefetch: `stages` buffers for each tile they load, where 0 leaves it to the machine.

    Loads of `prefetched` arguments get a hint, and the loops around them prefetch one step where nothing else is said:
    one buffer alone leaves nothing to prefetch into, so they then have two.
    """
    if stages:
        for loop in kernel.walk():
            if isinstance(loop, ForOp) and any(isinstance(part, LoadOp) for part in loop.walk()):
                loop.prefetch, loop.buffers = stages - 1, stages
    arguments = kernel.regions[0].block.args
    for op in list(kernel.walk()):
        number = next((at for at in prefetched if at < len(arguments) and op.operands[:1] == (arguments[at],)), None)
        if not isinstance(op, LoadOp) or number is None:
            continue
        hints: dict[str, Any] = {**(op.hints or {}), "space": prefetched[number]}
        op.hints = dict(sorted(hints.items()))
        for loop in _loops_around(op):
            if not loop.prefetch:
                loop.prefetch, loop.buffers = 1, 2 if loop.buffers else 0


def _loops_around(op: SpecOp) -> Iterator[ForOp]:
    around = op.parent_op()
    while isinstance(around, SpecOp):
        if isinstance(around, ForOp):
            yield around
        around = around.parent_op()


_FORMATS = {"bf16": bf16, "f16": f16}
_NEAREST, _SATURATED = ("nearest_even", "", "keep"), ("nearest_even", "saturate", "keep")


def drop_plain_roundings(kernel: SpecOp, policies: Iterable[Policy]) -> None:
    """Cast what was rounded instead of what it was rounded to, wherever the cast alone gives the same bits.

    Before: `%1 = ttile.round %0 {format = "bf16"}`, `%2 = ttile.cast %1` to bf16. After: `%2 = ttile.cast %0`. What
    saturates is clamped to the ends of the format first: `%1` is the maximum of `%0` and the lowest number, and then
    the minimum of that and the largest. Where every policy asks for another rounding, a plain cast is what its check
    looks for, and what is there stays.
    """
    listed = list(policies)
    modes = [] if listed and all(policy.rounds_otherwise for policy in listed) else [_NEAREST]
    modes += [_SATURATED] if any(policy.only_saturates for policy in listed) else []
    for op in list(kernel.walk()):
        if isinstance(op, RoundOp) and (mode := _mode_of(op)) in modes:
            users = [use.operation for use in op.results[0].uses if _casts_to(use.operation, op.format)]
            value = _clamp(op) if users and mode == _SATURATED else op.operands[0]
            for user in users:
                user.operands[0] = value
            if not list(op.results[0].uses):
                op.detach()
                op.erase()


def _mode_of(op: RoundOp) -> tuple[str, str, str] | None:
    """How an op rounds to a format that casts have too."""
    if op.format not in _FORMATS or len(op.operands) > 1:
        return None
    return op.rounding, op.saturation, op.denormals


def _clamp(op: RoundOp) -> SSAValue:
    """The operand of a rounding, clamped to the ends of its format; NaN stays NaN."""
    value, largest, block = op.operands[0], FORMATS[op.format].largest, op.parent_block()
    assert block is not None
    for fn, end in (("max", -largest), ("min", largest)):
        limit = make("ttile.constant", (), {"value": end}, types=[value.type], span=op.span)
        made = make("ttile.elementwise", (value, limit.results[0]), {"fn": fn}, types=[value.type], span=op.span)
        block.insert_ops_before([limit, made], op)
        value = made.results[0]
    return value


def _casts_to(user: Operation, format: str) -> bool:
    if not isinstance(user, CastOp):
        return False
    source, target = tile_type(user.operands[0]).dtype, tile_type(user.results[0]).dtype
    return source is f32 and target is _FORMATS[format]


class KernelLibrary(Protocol):
    """Kernels by name, which `api` gives the compiler."""

    def emit(self, name: str, request: Request) -> Sequence[SpecOp]:
        """The tile kernels of entry `name` for the one library op of `request.body`, in the order they run.

        Each takes the body's inputs and then its outputs as buffers, and is named after `request.name`.
        """
        ...


@frozen
class Request:
    """One kernel to emit: its name, its body, the machine and who chooses sizes."""

    name: str
    body: Tape
    machine: Machine
    chooser: Chooser
    policy: Policy = SILENT
    """The policy of records that have none of their own."""
    axes: tuple[int, ...] = ()
    """The reduced axes of a row group."""
    library: KernelLibrary | None = None
    """Where kernels of library ops come from."""
    temporaries: tuple[TensorType, ...] = ()
    """Memory between the kernels of a group: arguments behind inputs and outputs."""
    in_place: tuple[int, ...] = ()
    """The input that each output is stored to, where it is written over; -1, or none, for the output's own argument."""

    @property
    def sizes(self) -> list[str]:
        """The names of the sizes a kernel of this body takes, in order."""
        return size_names(self.body)

    @property
    def arguments(self) -> list[TensorType]:
        """Inputs, then outputs, then temporaries."""
        return [*(self.body.types[value] for value in (*self.body.inputs, *self.body.outputs)), *self.temporaries]

    @property
    def writes(self) -> list[int]:
        return sorted(self.target(number) for number in range(len(self.body.outputs)))

    def target(self, output: int) -> int:
        """The argument that an output is stored to: its own, which is behind the inputs, or one that it is over."""
        over = self.in_place[output] if output < len(self.in_place) else -1
        return len(self.body.inputs) + output if over < 0 else over

    def choose(self, knob: str, candidates: Sequence[Any], **context: object) -> Any:
        return self.chooser.choose(f"{knob}@{self.name}", candidates, {"machine": self.machine, **context}).value

    def builder(self, grid: Sequence[Dim], kind: str, flat: bool, writes: Sequence[int] | None = None) -> TileBuilder:
        """A builder of the kernel, which writes all outputs where it is not said what."""
        types = [TensorType.of([t.size], t.dtype) if flat else t for t in self.arguments]
        written = self.writes if writes is None else writes
        return TileBuilder(self.name, types, symbols=self.sizes, grid=grid, writes=written, kind=kind)


def size_names(body: Tape) -> list[str]:
    """All symbols of a body: of its types, and of the dims among its attributes."""
    found: set[str] = set()
    for type in body.types:
        found |= type.symbols
    for record in body.records:
        for value in record.attributes.values():
            found |= _symbols(value)
    return sorted(found)


def _symbols(value: object) -> set[str]:
    if isinstance(value, Dim):
        return set(value.symbols)
    found: set[str] = set()
    if isinstance(value, (tuple, list)):
        for part in cast("Sequence[object]", value):
            found |= _symbols(part)
    return found


@frozen
class Walk:
    """The parallel dims in groups that are walked as one: coordinate `names[g]` runs over all dims of group `g`."""

    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    shape: tuple[Dim, ...]

    @property
    def extents(self) -> tuple[Dim, ...]:
        return tuple(product(self.shape[axis] for axis in group) for group in self.groups)

    def as_one_row(self, joined: int | None = None) -> Walk:
        """All dims in one group, or those of the last `joined` groups."""
        kept = 0 if joined is None else len(self.groups) - joined
        row = tuple(axis for group in self.groups[kept:] for axis in group)
        return Walk((*self.names[:kept], f"_p{kept}"), (*self.groups[:kept], row), self.shape)

    def at(self) -> IndexMap:
        """The coordinates of every dim, from those of the groups."""
        found: dict[int, Dim] = {}
        for name, group in zip(self.names, self.groups, strict=True):
            parts = delinear(Dim.symbol(name), [self.shape[axis] for axis in group])
            found.update(zip(group, parts, strict=True))
        return tuple(found[axis] for axis in range(len(self.shape)))


def walk_over(names: Sequence[str], extents: Sequence[Dim], addresses: Sequence[Dim], numbers: Sequence[Dim]) -> Walk:
    """The walk over dims that joins as many as all addresses allow, but for those used as `numbers`."""
    groups = collapse(names, extents, addresses, numbers)
    return Walk(tuple(f"_p{g}" for g in range(len(groups))), tuple(map(tuple, groups)), tuple(extents))


def buffers_of(body: Tape, tile: TileBuilder) -> tuple[dict[int, SSAValue], list[SSAValue]]:
    """The buffers of inputs by value, and of outputs in order."""
    count = len(body.inputs)
    inputs = dict(zip(body.inputs, tile.arguments[:count], strict=True))
    return inputs, tile.arguments[count:]
