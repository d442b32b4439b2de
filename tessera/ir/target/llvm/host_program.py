"""The host program as text, whatever runs its kernels: buffers, blocks, branches and loops over pointers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Dim, product
from tessera.types.tensor_type import TensorType

_SILENT = ("tsched.guard", "tsched.free", "tsched.tile", "tsched.layout", "tsched.collective", "tsched.pipeline")
"""Ops that say how a program is, and do nothing when it comes to them."""


def buffer_type(value: SSAValue) -> TensorType:
    """The shape and dtype of a buffer."""
    assert isinstance(value.type, BufferAttr)
    return value.type.data


EXCHANGES = ("tsched.collective_start", "tsched.collective_wait")
"""Ops that speak with other ranks, through Python."""


def callbacks_in(program: SpecOp) -> list[SpecOp]:
    """The calls of Python in a program; native code knows each by its index in this list."""
    names = ("tsched.callback", *EXCHANGES)
    return [op for op in program.walk() if isinstance(op, SpecOp) and op.name in names]


def sizes_at(f: FunctionText, pointer: Value, names: Sequence[str]) -> dict[str, Index]:
    """The sizes of a program by name, read from memory in that order."""
    return {name: f.load(f.gep(pointer, at, "i64"), "i64") for at, name in enumerate(names)}


class HostProgram(ABC):
    """The function that runs the program: every buffer is a pointer, every op a few instructions.

    Its first arguments are inputs, outputs, sizes and workspace. A backend says how constants, copies and calls are
    made (`constant`, `copy`, `call`, `call_back`), and how a number in a buffer is read and written.
    """

    def __init__(self, f: FunctionText, program: SpecOp, symbols: Sequence[str]) -> None:
        self.f, self.program = f, program
        inputs, self.outputs, sizes, self.workspace = f.arguments[:4]
        self.symbols = sizes_at(f, sizes, symbols)
        self.pointers: dict[SSAValue, Value] = {}
        for at, argument in enumerate(program.regions[0].block.args):
            self.pointers[argument] = f.load(f.gep(inputs, at, "ptr"), "ptr")

    @abstractmethod
    def constant(self, op: SpecOp) -> None:
        """Let the result point to the bytes of a constant."""

    @abstractmethod
    def copy(self, op: SpecOp) -> None:
        """Copy one buffer to another."""

    @abstractmethod
    def call(self, op: SpecOp) -> None:
        """Run a kernel."""

    @abstractmethod
    def call_back(self, op: SpecOp) -> None:
        """Call Python."""

    @abstractmethod
    def read(self, buffer: SSAValue, type_: str) -> Value:
        """The one element of a buffer."""

    @abstractmethod
    def write(self, number: Value, buffer: SSAValue) -> None:
        """An i64 into a buffer of one integer."""

    @abstractmethod
    def next_round(self) -> None:
        """Between rounds of a loop: let signals be heard, where the program runs with nobody else to hear them."""

    def run(self) -> None:
        """Write all of it."""
        self._block(self.program.regions[0].block)

    def dim(self, dim: Dim) -> Value:
        """The value of a dim."""
        return dim_value(self.f, dim, self.symbols)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if not op.spec.is_terminator:
                self._op(op)

    def _op(self, op: SpecOp) -> None:
        writers: dict[str, Callable[[SpecOp], None]] = {
            "tsched.alloc": self._alloc,
            "tsched.alias": self._alias,
            "tsched.constant": self.constant,
            "tsched.copy": self.copy,
            "tsched.call": self.call,
            "tsched.callback": self.call_back,
            **dict.fromkeys(EXCHANGES, self.call_back),
            "tsched.if": self._if,
            "tsched.while": self._while,
            "tsched.for": self._for,
        }
        if op.name in writers:
            writers[op.name](op)
        else:
            assert op.name in _SILENT, f"`{op.name}` has no lowering in a host program"

    def _alloc(self, op: SpecOp) -> None:
        f, output = self.f, op.value("output")
        if output >= 0:
            self.pointers[op.result] = f.load(f.gep(self.outputs, output, "ptr"), "ptr")
        else:
            self.pointers[op.result] = f.gep(self.workspace, self.dim(op.value("offset")), "i8")

    def _alias(self, op: SpecOp) -> None:
        self.pointers[op.result] = self.pointers[op.operands[0]]

    # Control flow: what is carried is a pair of pointers that are swapped in each iteration.

    def _holds(self, buffer: SSAValue) -> Value:
        return self.f.icmp("ne", self.read(buffer, "i8"), Value("i8", "0"))

    def _integer(self, buffer: SSAValue) -> Value:
        """The number in a buffer of one integer."""
        dtype = buffer_type(buffer).dtype
        value = self.read(buffer, f"i{dtype.bits}")
        return self.f.cast("zext" if dtype.kind == "uint" else "sext", value, "i64")

    def _if(self, op: SpecOp) -> None:
        then, otherwise = (region.block for region in op.regions)
        self.f.if_(self._holds(op.operands[0]), lambda: self._block(then), lambda: self._block(otherwise))

    def _while(self, op: SpecOp) -> None:
        tests, body = (region.block for region in op.regions)
        count = len(op.results)

        def condition(pointers: list[Value]) -> Value:
            self.pointers.update(zip(tests.args, pointers[:count], strict=True))
            self._block(tests)
            last = tests.last_op
            assert last is not None
            return self._holds(last.operands[0])

        def round_(pointers: list[Value]) -> list[Value]:
            self.next_round()
            self.pointers.update(zip(body.args, pointers, strict=True))
            self._block(body)
            return [*pointers[count:], *pointers[:count]]

        starts = [self.pointers[value] for value in op.operands]
        ends = self.f.while_(starts, condition, round_)
        self.pointers.update(zip(op.results, ends[:count], strict=True))

    def _for(self, op: SpecOp) -> None:
        """Operands: bounds and the index (or neither), the carried twice, what is scanned, what is stacked."""
        f, body = self.f, op.regions[0].block
        count, has_bounds = op.value("carried"), op.value("length") is None
        bounds = op.operands[:2] if has_bounds else ()
        index = op.operands[2:3] if has_bounds else ()
        others = op.operands[len(bounds) + len(index) :]
        pairs, rows = others[: 2 * count], others[2 * count :]
        low: Index = 0
        high: Index = self.dim(op.value("length")) if not has_bounds else 0
        if has_bounds:
            low, high = (self._integer(value) for value in bounds)

        def round_(at: Value, pointers: list[Value]) -> list[Value]:
            self.next_round()
            position = f.sub(f.sub(high, 1), at) if op.value("reverse") else at
            for value in index:
                self.write(position, value)
            given = [self.pointers[value] for value in index] + pointers
            for value in rows:
                row = buffer_type(value)
                step = self.dim(Dim.of(row.dtype.bytes) * product(row.shape[1:]))
                given.append(f.gep(self.pointers[value], f.mul(position, step), "i8"))
            self.pointers.update(zip(body.args, given, strict=True))
            self._block(body)
            return [*pointers[count:], *pointers[:count]]

        ends = f.loop(low, high, 1, round_, [self.pointers[value] for value in pairs])
        self.pointers.update(zip(op.results, ends[:count], strict=True))
