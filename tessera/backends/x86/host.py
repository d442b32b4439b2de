"""The host program as LLVM text: the four functions of an executable, with kernels called through the thread pool."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.dims import dim_value
from tessera.ir.target.llvm.instructions import Index, TargetText, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.runtime.callback import Callback
from tessera.runtime.launch import CALLBACK
from tessera.types.dim import Dim, product
from tessera.types.frozen import frozen
from tessera.types.tensor_type import TensorType

_MOST = 2**63 - 1


@frozen
class Interface:
    """What a program takes and gives, as the runtime sees it: see `runtime/executable.py`."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    symbols: tuple[str, ...]
    binding: tuple[int, ...]


def interface_of(program: SpecOp) -> Interface:
    """The interface of a `tsched.module`: each symbol is bound from the first input dim that is just it."""
    block = program.regions[0].block
    inputs = tuple(buffer_type(argument) for argument in block.args)
    last = block.last_op
    assert last is not None
    outputs = tuple(buffer_type(value) for value in last.operands)
    bound: dict[str, int] = {}
    dims = [dim for type in inputs for dim in type.shape]
    for place, dim in enumerate(dims):
        if dim.symbol_name is not None:
            bound.setdefault(dim.symbol_name, place)
    return Interface(inputs, outputs, tuple(bound), tuple(bound.values()))


def buffer_type(value: SSAValue) -> TensorType:
    """The shape and dtype of a buffer."""
    assert isinstance(value.type, BufferAttr)
    return value.type.data


def host_text(program: SpecOp, target: TargetText) -> str:
    """The LLVM module of a host program."""
    module = ModuleText(target)
    face = interface_of(program)
    _emit_check(module, program, face)
    _emit_shapes(module, face)
    _emit_workspace(module, program, face)
    f = module.function(
        "tessera_entry", [("ptr", "inputs"), ("ptr", "outputs"), ("ptr", "symbols"), ("ptr", "workspace")], ret="i64"
    )
    _Entry(f, program, face).run()
    f.ret(f.const_i(0))
    return module.text()


def _symbols(f: FunctionText, pointer: Value, names: Sequence[str]) -> dict[str, Index]:
    return {name: f.load(f.gep(pointer, at, "i64"), "i64") for at, name in enumerate(names)}


def _emit_check(module: ModuleText, program: SpecOp, face: Interface) -> None:
    """Guards in order, then every input dim against its expression; the number of the first that fails, plus 1."""
    f = module.function("tessera_check", [("ptr", "symbols"), ("ptr", "in_dims")], ret="i64")
    symbols = _symbols(f, f.arguments[0], face.symbols)
    number = 0
    for guard in (op for op in program.regions[0].block.ops if op.name == "tsched.guard"):
        assert isinstance(guard, SpecOp)
        number += 1
        left, right = (checked_dim(f, guard.value(side), symbols) for side in ("left", "right"))
        _fail_unless_equal(f, left, right, number)
    dims = [dim for type in face.inputs for dim in type.shape]
    for place, dim in enumerate(dims):
        number += 1
        if place not in face.binding:
            given = f.load(f.gep(f.arguments[1], place, "i64"), "i64")
            _fail_unless_equal(f, (given, Value("i1", "false")), checked_dim(f, dim, symbols), number)
    f.ret(f.const_i(0))


def checked_dim(f: FunctionText, dim: Dim, symbols: dict[str, Index]) -> tuple[Value, Value]:
    """The value of a dim, and whether it, or a part of it, is beyond 64 bits."""
    return f.overflow_of(lambda: dim_value(f, dim, symbols))


def _counted(f: FunctionText, dim: Dim, symbols: dict[str, Index]) -> Value:
    """The value of a dim, or the most there is where it is beyond 64 bits: what no memory is found for."""
    value, overflow = checked_dim(f, dim, symbols)
    return value if overflow.text == "false" else f.select(overflow, f.const_i(_MOST), value)


def _fail_unless_equal(f: FunctionText, left: tuple[Value, Value], right: tuple[Value, Value], number: int) -> None:
    fails = f.icmp("ne", left[0], right[0])
    for _, overflow in (left, right):
        if overflow.text != "false":
            fails = f.op("or", fails, overflow)
    f.if_(fails, lambda: f.ret(f.const_i(number)))


def _emit_shapes(module: ModuleText, face: Interface) -> None:
    f = module.function("tessera_shapes", [("ptr", "symbols"), ("ptr", "out_dims")])
    symbols = _symbols(f, f.arguments[0], face.symbols)
    for place, dim in enumerate(dim for type in face.outputs for dim in type.shape):
        f.store(_counted(f, dim, symbols), f.gep(f.arguments[1], place, "i64"))
    f.ret()


def _emit_workspace(module: ModuleText, program: SpecOp, face: Interface) -> None:
    f = module.function("tessera_workspace", [("ptr", "symbols")], ret="i64")
    symbols = _symbols(f, f.arguments[0], face.symbols)
    f.ret(_counted(f, program.value("workspace") or Dim.constant(0), symbols))


_SILENT = ("tsched.guard", "tsched.free", "tsched.tile", "tsched.layout", "tsched.collective", "tsched.pipeline")
"""Ops that say how a program is, and do nothing when it comes to them."""


class _Entry:
    """The function that runs the program: every buffer is a pointer, every op a few instructions."""

    def __init__(self, f: FunctionText, program: SpecOp, face: Interface) -> None:
        self.f, self.program = f, program
        inputs, self.outputs, symbols, self.workspace = f.arguments
        self.symbols = _symbols(f, symbols, face.symbols)
        self.pointers: dict[SSAValue, Value] = {}
        for at, argument in enumerate(program.regions[0].block.args):
            self.pointers[argument] = f.load(f.gep(inputs, at, "ptr"), "ptr")
        self.callbacks = callbacks_in(program)
        self.context = f.alloca("i64", _longest_context(program))

    def run(self) -> None:
        self._block(self.program.regions[0].block)

    def _block(self, block: Block) -> None:
        for op in block.ops:
            assert isinstance(op, SpecOp)
            if not op.spec.is_terminator:
                self._op(op)

    def _op(self, op: SpecOp) -> None:
        write = {
            "tsched.alloc": self._alloc,
            "tsched.alias": self._alias,
            "tsched.constant": self._constant,
            "tsched.copy": self._copy,
            "tsched.call": self._call,
            "tsched.callback": self._call_back,
            "tsched.if": self._if,
            "tsched.while": self._while,
            "tsched.for": self._for,
        }.get(op.name)
        if write is not None:
            write(op)
        else:
            assert op.name in _SILENT, f"`{op.name}` has no way into a host program of x86"

    def _dim(self, dim: Dim) -> Value:
        return dim_value(self.f, dim, self.symbols)

    def _alloc(self, op: SpecOp) -> None:
        f, output = self.f, op.value("output")
        if output >= 0:
            self.pointers[op.result] = f.load(f.gep(self.outputs, output, "ptr"), "ptr")
        else:
            self.pointers[op.result] = f.gep(self.workspace, self._dim(op.value("offset")), "i8")

    def _alias(self, op: SpecOp) -> None:
        self.pointers[op.result] = self.pointers[op.operands[0]]

    def _constant(self, op: SpecOp) -> None:
        data: bytes = op.value("value").tobytes()
        self.pointers[op.result] = self.f.module.constant("i8", list(data))

    def _copy(self, op: SpecOp) -> None:
        source, target = (self.pointers[value] for value in op.operands)
        size = self._dim(buffer_type(op.operands[0]).bytes)
        self.f.call("memcpy", [target, source, size], "ptr")

    def _call(self, op: SpecOp) -> None:
        """Fill the context with pointers and sizes, ask how to share the work out, and run."""
        f, name = self.f, op.value("kernel")
        slots = [self.pointers[value] for value in op.operands] + [self._dim(size) for size in op.value("sizes")]
        for at, slot in enumerate(slots):
            f.store(slot, f.gep(self.context, at, "i64"), align=8)
        threads = f.call("tessera_threads", [], "i64")
        tasks = f.call(f"{name}_tasks", [self.context, threads], "i64")

        def run() -> None:
            scratch = f.call(f"{name}_scratch", [self.context], "i64")
            f.declare(name, "void", ["ptr", "i64", "i64", "ptr"])
            missing = f.call("tessera_pool_run", [Value("ptr", f"@{name}"), self.context, tasks, scratch], "i64")
            f.if_(f.icmp("ne", missing, 0), lambda: f.ret(missing))

        f.if_(f.icmp("sgt", tasks, 0), run)

    def _call_back(self, op: SpecOp) -> None:
        """Give Python the buffers and their dims; whatever it raised ends the program."""
        f = self.f
        dims = [dim for value in op.operands for dim in buffer_type(value).shape]
        for at, slot in enumerate([*(self.pointers[value] for value in op.operands), *map(self._dim, dims)]):
            f.store(slot, f.gep(self.context, at, "i64"), align=8)
        failed = f.call(CALLBACK, [f.const_i(self.callbacks.index(op)), self.context], "i64")
        f.if_(f.icmp("ne", failed, 0), lambda: f.ret(failed))

    # Control flow: what is carried is a pair of pointers that change places from round to round.

    def _holds(self, buffer: SSAValue) -> Value:
        f = self.f
        return f.icmp("ne", f.load(self.pointers[buffer], "i8"), Value("i8", "0"))

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
        rest = op.operands[len(bounds) + len(index) :]
        pairs, rows = rest[: 2 * count], rest[2 * count :]
        low: Index = 0
        high: Index = self._dim(op.value("length")) if not has_bounds else 0
        if has_bounds:
            low, high = (self._integer(value) for value in bounds)
        arguments = list(body.args)

        def round_(at: Value, pointers: list[Value]) -> list[Value]:
            place = f.sub(f.sub(high, 1), at) if op.value("reverse") else at
            if index:
                dtype = f"i{buffer_type(index[0]).dtype.bits}"
                counter = f.cast("trunc", place, dtype) if dtype != "i64" else place
                f.store(counter, self.pointers[index[0]])
            given = [self.pointers[value] for value in index] + pointers
            for value in rows:
                row = buffer_type(value)
                step = self._dim(Dim.of(row.dtype.bytes) * product(row.shape[1:]))
                given.append(f.gep(self.pointers[value], f.mul(place, step), "i8"))
            self.pointers.update(zip(arguments, given, strict=True))
            self._block(body)
            return [*pointers[count:], *pointers[:count]]

        ends = f.loop(low, high, 1, round_, [self.pointers[value] for value in pairs])
        self.pointers.update(zip(op.results, ends[:count], strict=True))

    def _integer(self, buffer: SSAValue) -> Value:
        """The number in a buffer of one integer."""
        dtype = buffer_type(buffer).dtype
        value = self.f.load(self.pointers[buffer], f"i{dtype.bits}")
        return self.f.cast("zext" if dtype.kind == "uint" else "sext", value, "i64")


def callbacks_in(program: SpecOp) -> list[SpecOp]:
    """The calls of Python in a program; native code knows each by its place in this list."""
    return [op for op in program.walk() if isinstance(op, SpecOp) and op.name == "tsched.callback"]


def callback_of(op: SpecOp) -> Callback:
    """What the runtime must know to make one of these calls."""
    ports = [(type.dtype.name, type.rank) for type in map(buffer_type, op.operands)]
    count = len(ports) - op.value("outputs")
    return Callback(op.value("call"), op.value("slot"), op.value("text"), tuple(ports[:count]), tuple(ports[count:]))


def _longest_context(program: SpecOp) -> int:
    """Slots of the longest call: buffers, sizes, and one that the kernel keeps its grid of tasks in."""
    calls = (op for op in program.walk() if isinstance(op, SpecOp) and op.name == "tsched.call")
    called = (sum(1 + buffer_type(value).rank for value in op.operands) for op in callbacks_in(program))
    return 1 + max((*(len(op.operands) + len(op.value("sizes")) for op in calls), *called), default=0)
