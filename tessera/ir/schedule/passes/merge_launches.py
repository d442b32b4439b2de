"""Launch groups of one body that do not need each other together: the update of a whole tree is a few launches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, OpResult, SSAValue
from xdsl.rewriter import Rewriter

from tessera.ir.base.dialect_of import make
from tessera.ir.base.index_maps import coordinates
from tessera.ir.base.passes import Pass
from tessera.ir.base.tape import Guard, Tape, tape_text
from tessera.ir.base.types import TensorAttr
from tessera.ir.base.verify import symbol_table
from tessera.ir.schedule.bodies import canonicalize, name_of
from tessera.ir.schedule.emit.evaluate import Leaves, spec_of
from tessera.ir.schedule.host_program.memory import ANNOTATIONS, overwritten_by, root_of, strip_aliases
from tessera.ir.schedule.plan import (
    body_of,
    function_of,
    fusions_in,
    overwritten_arguments,
    programs_in,
    tape_in,
    tensor_of,
)
from tessera.ir.schedule.typed_ops import AliasOp, ConstantOp, FuseOp, ReturnOp
from tessera.ir.target.limits import is_multiple
from tessera.ir.tile.facets import Pointwise
from tessera.types.dim import Dim, product
from tessera.types.shape import TensorType

MERGED = ("map",)
"""Kinds whose groups are merged: on every machine their kernels have no scratch, and one block for each program."""
HELD = 1 << 22
"""Bytes that may wait for a later group while others take new memory: more of them would raise the peak."""
ALIGNED = 16
"""Sizes that are multiples of it say so in a body of any size, which then moves whole vectors."""

Key: TypeAlias = tuple[Any, ...]


class MergeLaunches(Pass):
    """Number groups of one body that are independent, and put them side by side: they are one launch.

    Before: `%1 = tsched.fuse @update_8x64(%p, %g)`, `%2 = tsched.fuse @sum(%x)`, `%3 = tsched.fuse @update_32(%q, %h)`,
    of which neither update reads what comes between them. After: `%2`, and behind it `%1` and `%3`, both `tsched.fuse
    @update {launch = 0}`. Where each element of a map depends on the same element of its operands alone, the shape does
    not matter: operands are seen as rows (`tsched.alias`), and bodies that differ in nothing but shapes become one, of
    a symbolic size. Groups move down only, to the last of them, and no further than the first reader of a result.
    """

    def run(self, module: ModuleOp) -> None:
        bodies = _Bodies(module)
        for program in programs_in(module):
            if any(op.name.startswith("tsched.collective") for op in program.walk()):
                continue  # other work is moved between their start and wait
            for block in [region.block for op in program.walk() for region in op.regions]:
                for group in _find_groups(block, bodies):
                    bodies.merge(group)
        bodies.drop_unused()


# Which groups may be launched together.


@dataclass
class _Group:
    """Groups of one key that may run beside each other, and what must not happen before they do."""

    members: list[FuseOp] = field(default_factory=list[FuseOp])
    read: set[SSAValue] = field(default_factory=set[SSAValue])
    """The memory that they read."""
    made: set[SSAValue] = field(default_factory=set[SSAValue])
    held: Dim = field(default_factory=lambda: Dim.constant(0))
    """Bytes of what the program computed for them, which can be freed once they have run."""

    def add(self, fuse: FuseOp) -> None:
        self.members.append(fuse)
        self.read |= {root_of(value) for value in fuse.operands}
        self.made |= set(fuse.results)
        computed = dict.fromkeys(value for value in map(root_of, fuse.operands) if isinstance(value, OpResult))
        self.held = self.held + sum((tensor_of(value).bytes for value in computed), Dim.constant(0))

    @property
    def is_light(self) -> bool:
        """Whether what they hold may wait while other ops take memory."""
        return self.held.value is not None and self.held.value <= HELD

    def conflicts_with(self, op: Operation) -> bool:
        """Whether an op needs their results, or changes what they read."""
        used = {strip_aliases(value) for inner in op.walk() for value in inner.operands}
        written = {root_of(old) for inner in op.walk() for old in overwritten_by(inner).values()}
        return bool(used & self.made or written & self.read)


def _find_groups(block: Block, bodies: _Bodies) -> Iterator[_Group]:
    """Groups of at least two that are launched together, in the order in which they are complete."""
    open_groups: dict[Key, _Group] = {}
    for op in list(block.ops):
        key = bodies.key_of(op)
        is_heavy = key not in open_groups and _takes_memory(op)
        for other, group in list(open_groups.items()):
            if group.conflicts_with(op) or (is_heavy and not group.is_light):
                yield open_groups.pop(other)
        if key is not None:
            assert isinstance(op, FuseOp)
            open_groups.setdefault(key, _Group()).add(op)
    yield from open_groups.values()


def _takes_memory(op: Operation) -> bool:
    """Whether an op has results in memory that is reused later: not a caller's, nor that of an operand."""
    if isinstance(op, (AliasOp, ConstantOp, *ANNOTATIONS)):
        return False
    over = overwritten_by(op)
    kept = [result for result in op.results if result.index not in over]
    return bool(op.regions) or any(not isinstance(use.operation, ReturnOp) for one in kept for use in one.uses)


# Bodies of any shape.


class _Bodies:
    """The bodies of a module, and those of them that need not know a shape."""

    def __init__(self, module: ModuleOp) -> None:
        self.module, self.functions = module, symbol_table(module)
        self._flat: dict[str, Tape | None] = {}
        self._launches = 0
        self._replaced: set[str] = set()

    def key_of(self, op: Operation) -> Key | None:
        """What groups must have in common to be launched together; None for what is launched alone."""
        if not isinstance(op, FuseOp) or op.kind not in MERGED or op.body not in self.functions or op.launch >= 0:
            return None
        if any(isinstance(value.owner, AliasOp) and value.owner.space for value in op.operands):
            return None  # it says of a load where to put it
        about = (tuple(op.in_place), str(op.pipeline))
        found = self._flatten(op)
        return (*about, op.body) if found is None else (*about, tape_text(found))

    def _flatten(self, fuse: FuseOp) -> Tape | None:
        if fuse.body not in self._flat:
            tape = tape_in(body_of(fuse, self.functions))
            self._flat[fuse.body] = flatten_body(tape)
        return self._flat[fuse.body]

    def merge(self, group: _Group) -> None:
        """Put groups side by side, where the last of them is, with one body."""
        members, last = group.members, group.members[-1]
        if len(members) < 2:
            return
        for fuse in members[:-1]:
            fuse.detach()
            block = last.parent
            assert block is not None
            block.insert_op_before(fuse, last)
        if len({fuse.body for fuse in members}) > 1:
            for fuse in members:
                self._view_as_row(fuse)
        for fuse in members:
            fuse.launch = self._launches
        self._launches += 1

    def _view_as_row(self, fuse: FuseOp) -> None:
        """Let a group compute the body of any shape, on operands that are seen as rows."""
        found = self._flat[fuse.body]
        assert found is not None
        here = {name: Dim.of(dim) for name, dim in fuse.sizes}
        size = tensor_of(fuse.results[0]).size
        tape, sizes = canonicalize(found)
        name = name_of(tape, fuse.kind, (), overwritten_arguments(fuse))
        if name not in self.functions:
            function = self.functions[name] = function_of(tape, name, tape.guards)
            self.module.body.block.insert_op_before(function, self.functions[fuse.body])
        self._replaced.add(fuse.body)
        fuse.body = name
        fuse.sizes = tuple((own, dim.substitute({**here, _SIZE: size})) for own, dim in sizes.items())
        block = fuse.parent
        assert block is not None
        for number, value in enumerate(fuse.operands):
            type = TensorAttr.of(_as_row(tensor_of(value), size))
            if type != value.type:
                seen = make("tsched.alias", [value], types=[type])
                block.insert_op_before(seen, fuse)
                fuse.operands[number] = seen.results[0]
        for result in list(fuse.results):
            old, type = result.type, TensorAttr.of(_as_row(tensor_of(result), size))
            if type != old:
                new = Rewriter.replace_value_with_new_type(result, type)
                seen = make("tsched.alias", [new], types=[old])
                block.insert_op_after(seen, fuse)
                new.replace_uses_with_if(seen.results[0], lambda use, seen=seen: use.operation is not seen)

    def drop_unused(self) -> None:
        """Remove the bodies that no group has any more."""
        used = {fuse.body for fuse in fusions_in(self.module)}
        for name in self._replaced - used:
            self.functions[name].detach()
            self.functions[name].erase()


_SIZE = "n"


def _as_row(type: TensorType, size: Dim) -> TensorType:
    return type if not type.rank else TensorType.of([size], type.dtype)


def flatten_body(body: Tape) -> Tape | None:
    """The body of a map on rows of `n` elements in place of its shape; a guard says where `n` is a multiple of 16.

    None where the shape matters: an operand is broadcast, seen in another order or gathered, or an op asks where an
    element is.
    """
    shape = body.types[body.outputs[0]].shape
    if not shape or any(type.rank and type.shape != shape for type in body.types):
        return None
    for record in body.records:
        is_scalar = not record.operands and all(not body.types[value].rank for value in record.results)
        if not is_scalar and not isinstance(spec_of(record).lower, Pointwise):
            return None
        if any(_names_shape(value) for value in record.attributes.values()):
            return None
    leaves = Leaves(body, body.inputs)
    for output in body.outputs:
        leaves.visit(output, coordinates(len(shape)))
    if leaves.numbers:
        return None
    size = Dim.symbol(_SIZE)
    guards = [Guard(size % ALIGNED, Dim.constant(0), "")] if is_multiple(product(shape), ALIGNED) else []
    return replace(body, types=[_as_row(type, size) for type in body.types], guards=guards)


def _names_shape(value: Any) -> bool:
    """Whether an attribute may say something of a shape."""
    return isinstance(value, Dim | Tape | TensorType) or (isinstance(value, tuple | list) and value != ())
