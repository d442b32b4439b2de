"""Building host programs: one buffer for each value of a plan, and kernel calls in place of its groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from xdsl.ir import Block, OpResult, SSAValue

from tessera.ir.base.dialect_of import make
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.schedule import typed_ops as tsched
from tessera.ir.schedule.dialect import DIALECT
from tessera.ir.schedule.host_program.memory import carried_in, insert_frees, kept_by, overwritten_by, root_of
from tessera.ir.schedule.ops.host import HOST
from tessera.ir.schedule.plan import tensor_of
from tessera.types.dim import Dim
from tessera.types.shape import ZERO, TensorType

_MAKERS = (tsched.FuseOp, tsched.IfOp, tsched.ForOp, tsched.CallbackOp, tsched.CollectiveWaitOp)
"""Ops that can compute a result into a buffer that is chosen for them."""


class HostBuilder:
    """A host program being built from a plan.

    `values` gives the buffer of each value of the plan. `targets` holds values that are to be computed into given
    memory: a buffer, or the number of a result of the program.
    """

    def __init__(self, kernels: Mapping[str, SpecOp], outer: HostBuilder | None = None) -> None:
        self.kernels = kernels
        self.block = Block()
        self.values: dict[SSAValue, SSAValue] = {} if outer is None else dict(outer.values)
        self.targets: dict[SSAValue, SSAValue | int] = {}

    def emit(
        self,
        name: str,
        operands: Sequence[SSAValue] = (),
        values: Mapping[str, Any] | None = None,
        types: Any = (),
        regions: Sequence[Block] = (),
        like: SpecOp | None = None,
    ) -> SpecOp:
        span = like.span if like is not None else None
        op = make(DIALECT[name], list(operands), values, types=types, regions=regions, span=span)
        self.block.add_op(op)
        return op

    def add_argument(self, type: TensorType, name: str | None = None) -> SSAValue:
        """One more argument of the block."""
        new = self.block.insert_arg(BufferAttr.of(type), len(self.block.args))
        new.name_hint = name
        return new

    def allocate(self, type: TensorType, output: int = -1, space: str = "") -> SSAValue:
        """A new buffer for a tensor; `output` is the result of the program that it holds."""
        return self.emit("alloc", (), {"output": output, "space": space}, [BufferAttr.of(type)]).result

    def _buffer_for(self, value: SSAValue) -> SSAValue:
        """The buffer that a value is computed into."""
        target = self.targets.get(value, -1)
        return self.allocate(tensor_of(value), target) if isinstance(target, int) else target

    def set_targets(self, block: Block, values: Sequence[SSAValue], targets: Sequence[SSAValue | int]) -> list[bool]:
        """Have values that a block defines, themselves or in another shape, computed into given buffers.

        Says for each whether that is possible; the others must be copied there.
        """
        found: list[bool] = []
        for value, target in zip(values, targets, strict=True):
            root = root_of(value)
            found.append(_can_target(block, root) and root not in self.targets)
            if found[-1]:
                self.targets[root] = target
        return found

    def translate(self, block: Block) -> None:
        """Build what a block of the plan does, up to its terminator."""
        writers: dict[type[SpecOp], Callable[[Any], None]] = {
            tsched.FuseOp: self._call,
            tsched.CallbackOp: self._call_back,
            **dict.fromkeys((tsched.CollectiveStartOp, tsched.CollectiveWaitOp), self._collective),
            **dict.fromkeys((tsched.OffloadOp, tsched.PrefetchOp), self._move),
            tsched.TileOp: self._tile,
            tsched.IfOp: self._if,
            tsched.WhileOp: self._while,
            tsched.ForOp: self._for,
        }
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if op.spec.is_terminator:
                continue
            if type(op) in writers:
                writers[type(op)](op)
            else:
                # What is left makes a value from values without a kernel: constants and other shapes.
                types = [BufferAttr.of(tensor_of(result)) for result in op.results]
                new = self.emit(op.spec.short_name, [self.values[v] for v in op.operands], op.values(), types, like=op)
                self.values.update(zip(op.results, new.results, strict=True))

    def _call(self, fuse: tsched.FuseOp) -> None:
        over = overwritten_by(fuse)
        for result in fuse.results:
            old = over.get(result.index)
            self.values[result] = self._buffer_for(result) if old is None else self.values[old]
        buffers = [self.values[value] for value in (*fuse.operands, *fuse.results)]
        sizes = dict(fuse.sizes)
        buffers += self._temporaries(fuse, len(buffers), {name: Dim.of(size) for name, size in sizes.items()})
        for number, name in enumerate(fuse.kernels):
            kernel = self.kernels[name]
            values = {
                "kernel": name,
                "sizes": tuple(Dim.of(sizes.get(size, size)) for size in kernel.value("symbols")),
                "part": number,
                # Groups of several kernels are launched one by one: the second needs what the first wrote.
                "launch": fuse.launch if len(fuse.kernels) == 1 else -1,
                # What a group costs is an attribute of its first kernel alone.
                **{name: fuse.value(name) if number == 0 else ZERO for name in ("flops", "bytes", "time")},
            }
            self.emit("call", buffers, values, like=fuse)

    def _temporaries(self, fuse: tsched.FuseOp, known: int, sizes: Mapping[str, Dim]) -> list[SSAValue]:
        """Buffers for what a group's kernels take behind its inputs and outputs."""
        if not fuse.kernels:
            return []
        arguments = self.kernels[fuse.kernels[0]].regions[0].block.args[known:]
        types = [argument.type.data for argument in arguments if isinstance(argument.type, BufferAttr)]
        return [self.allocate(type.substitute(sizes)) for type in types]

    def _tile(self, op: tsched.TileOp) -> None:
        self.emit("tile", [self.values[op.group]], op.values())

    def _call_back(self, op: tsched.CallbackOp) -> None:
        for result in op.results:
            self.values[result] = self._buffer_for(result)
        buffers = [self.values[value] for value in (*op.operands, *op.results)]
        self.emit("callback", buffers, {**op.values(), "outputs": len(op.results)}, like=op)

    def _collective(self, op: tsched.CollectiveStartOp | tsched.CollectiveWaitOp) -> None:
        """The received buffer exists from the start on; the wait names both, so that both are alive until then."""
        if isinstance(op, tsched.CollectiveStartOp):
            (wait,) = [
                use.operation for use in op.results[0].uses if isinstance(use.operation, tsched.CollectiveWaitOp)
            ]
            self.values[op.results[0]] = self._buffer_for(wait.results[0])
        else:
            self.values[op.results[0]] = self.values[op.operands[1]]
        buffers = [self.values[op.operands[0]], self.values[op.results[0]]]
        self.emit(op.spec.short_name, buffers, op.values(), like=op)

    def _move(self, op: tsched.OffloadOp | tsched.PrefetchOp) -> None:
        """A copy to a buffer in host memory, or from there to one of the device."""
        space = HOST if isinstance(op, tsched.OffloadOp) else ""
        target = self.allocate(tensor_of(op.results[0]), space=space)
        self.emit("copy", [self.values[op.operands[0]], target], like=op)
        self.values[op.results[0]] = target

    # Control flow: bodies are blocks of their own, which write to buffers allocated around them.

    def _inside(self, block: Block, arguments: Sequence[SSAValue] = ()) -> HostBuilder:
        """A builder for a body, with a buffer for each argument of the plan's body."""
        inner = HostBuilder(self.kernels, self)
        for argument in arguments:
            inner.values[argument] = inner.add_argument(tensor_of(argument))
        return inner

    def fill(self, block: Block, values: Sequence[SSAValue], targets: Sequence[SSAValue]) -> None:
        """Build a body of the plan whose results, or some of them, go to given buffers, and end it."""
        is_there = self.set_targets(block, values, targets)
        self.translate(block)
        for value, target, done in zip(values, targets, is_there, strict=True):
            if not done:
                self.emit("copy", [self._reshape(self.values[value], target), target])
        self.emit("yield")
        insert_frees(self.block)

    def _reshape(self, source: SSAValue, target: SSAValue) -> SSAValue:
        return source if source.type == target.type else self.emit("alias", [source], types=[target.type]).result

    def _if(self, op: tsched.IfOp) -> None:
        targets = [self._buffer_for(result) for result in op.results]
        self.values.update(zip(op.results, targets, strict=True))
        blocks: list[Block] = []
        for region in op.regions:
            inner = self._inside(region.block)
            inner.fill(region.block, _values_of(region.block), targets)
            blocks.append(inner.block)
        tested = [self.values[value] for value in op.operands]
        self.emit("if", tested, {"size": op.value("size")}, regions=blocks, like=op)

    def _keep(self, op: tsched.WhileOp | tsched.ForOp) -> list[int]:
        """One buffer for each carried value that stays where it is; the numbers of those that do not."""
        (count, start, _), over = carried_in(op), overwritten_by(op)
        kept = kept_by(op)
        for at in kept:
            buffer = self.values[op.operands[start + at]]
            if at not in over:
                old, buffer = buffer, self._buffer_for(op.results[at])
                self.emit("copy", [old, buffer])
            self.values[op.results[at]] = buffer
        return [at for at in range(count) if at not in kept]

    def _pairs(self, values: Sequence[SSAValue]) -> tuple[list[SSAValue], list[SSAValue]]:
        """Two buffers for each carried value: the first holds where it starts, the second its next."""
        current: list[SSAValue] = []
        for value in values:
            if self._is_last_use(value):
                current.append(self.values[value])
                continue
            start = self.allocate(tensor_of(value))
            self.emit("copy", [self.values[value], start])
            current.append(start)
        return current, [self.allocate(tensor_of(value)) for value in values]

    def _is_last_use(self, value: SSAValue) -> bool:
        """Whether the one use of a value is where it is carried into a loop, which may then have its memory."""
        if not isinstance(value, OpResult) or not isinstance(value.owner, tsched.FuseOp) or value in self.targets:
            return False
        uses = [use for use in value.uses if not isinstance(use.operation, tsched.TileOp)]
        return len(uses) == 1 and uses[0].operation.parent is value.owner.parent

    def _loop_body(self, op: tsched.WhileOp | tsched.ForOp, block: Block, moved: Sequence[int]) -> HostBuilder:
        """A builder for a block of a loop: what moves is an argument, and what is kept a buffer from around."""
        count, _, first = carried_in(op)
        inner = self._inside(block, [*block.args[:first], *(block.args[first + at] for at in moved)])
        for at in set(range(count)).difference(moved):
            inner.values[block.args[first + at]] = self.values[op.results[at]]
        return inner

    def _while(self, op: tsched.WhileOp) -> None:
        tests, body = (region.block for region in op.regions)
        moved = self._keep(op)
        current, following = self._pairs([op.operands[at] for at in moved])
        tester = self._loop_body(op, tests, moved)
        tester.translate(tests)
        tester.emit("yield", [tester.values[_values_of(tests)[0]]])
        insert_frees(tester.block)
        inner = self._loop_body(op, body, moved)
        targets = [inner.add_argument(tensor_of(body.args[at])) for at in moved]
        inner.fill(body, [_values_of(body)[at] for at in moved], targets)
        types = [buffer.type for buffer in current]
        new = self.emit("while", [*current, *following], {}, types, [tester.block, inner.block], like=op)
        self.values.update(zip((op.results[at] for at in moved), new.results, strict=True))

    def _for(self, op: tsched.ForOp) -> None:
        """Operands: bounds and the index (or neither), the carried twice, what is scanned, what is stacked."""
        body = op.regions[0].block
        count, start, first = carried_in(op)
        moved = self._keep(op)
        carried, scanned = [op.operands[start + at] for at in moved], op.operands[start + count :]
        current, following = self._pairs(carried)
        index = [self.allocate(tensor_of(value)) for value in body.args[:first]]
        stacked = [self._buffer_for(result) for result in op.results[count:]]
        inner = self._loop_body(op, body, moved)
        targets = [inner.add_argument(tensor_of(value)) for value in carried]
        for argument in body.args[first + count :]:
            inner.values[argument] = inner.add_argument(tensor_of(argument))
        rows = [tensor_of(result).with_shape(tensor_of(result).shape[1:]) for result in op.results[count:]]
        targets += [inner.add_argument(row) for row in rows]
        yielded = _values_of(body)
        inner.fill(body, [*(yielded[at] for at in moved), *yielded[count:]], targets)
        operands = [*(self.values[value] for value in op.operands[:start]), *index, *current, *following]
        operands += [*(self.values[value] for value in scanned), *stacked]
        values = {**op.values(), "carried": len(moved), "stacked": len(stacked), "in_place": ()}
        new = self.emit("for", operands, values, [b.type for b in current], [inner.block], like=op)
        results = [*(op.results[at] for at in moved), *op.results[count:]]
        self.values.update(zip(results, [*new.results, *stacked], strict=True))


def _values_of(block: Block) -> Sequence[SSAValue]:
    """What a body gives at its end."""
    assert block.last_op is not None
    return block.last_op.operands


def _can_target(block: Block, value: SSAValue) -> bool:
    """Whether an op of a block defines a value, and can compute it into a given buffer."""
    if not isinstance(value, OpResult) or value.owner.parent is not block:
        return False
    op = value.owner
    if isinstance(op, tsched.WhileOp | tsched.ForOp) and value.index < carried_in(op)[0]:
        # What is carried ends in one of two buffers, and which one is known only when the loop runs, or in its own.
        return value.index in kept_by(op)
    return isinstance(op, _MAKERS)
