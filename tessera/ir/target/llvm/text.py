"""LLVM IR as text: a module and its functions, written line by line in final SSA form.

No optimiser runs on this text, so the builder does constant folding of index arithmetic itself, and loops come out
rotated and guarded.
Every value carries its LLVM type; indices are i64 and may be given as Python ints.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, overload

from xdsl.ir import Block, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.llvm.instructions import (
    Index,
    Instructions,
    TargetText,
    Value,
    constant_of,
    constant_text,
    dim_value,
)
from tessera.types.dim import Atom, Dim, product
from tessera.types.shape import TensorType

Results: TypeAlias = "Sequence[Value] | Value | None"
"""What a loop or branch body gives back."""


_WRITTEN: dict[str, str] = {}
"""Modules of shared functions by their symbols: a symbol says all that its text depends on."""


class ModuleText:
    """A module being written: functions, the declarations they need, constant tables.

    With `shares`, outlined functions that many modules have in common are left out of the text, declared instead, and
    given by `shared` as modules of their own: the same text every time, so they are compiled once and kept.
    """

    def __init__(self, target: TargetText, shares: bool = False) -> None:
        self.target = target
        self.shares = shares
        self._shared: dict[str, str] = {}
        self._functions: dict[str, FunctionText] = {}
        self._declared: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._constant_names: dict[str, Value] = {}
        self._outlined: dict[object, str] = {}
        self._counter = 0

    def unique(self, name: str) -> str:
        """A function name not used before."""
        self._counter += 1
        return f"{name}.{self._counter}"

    def function(
        self, name: str, arguments: Sequence[tuple[str, str]], ret: str = "void", internal: bool = False
    ) -> FunctionText:
        """Begin a function; a pointer type may carry attributes (`ptr noalias`); `internal` is never inlined."""
        if name in self._functions:
            raise ValueError(f"function `{name}` is already defined")
        function = FunctionText(self, name, arguments, ret, internal)
        self._functions[name] = function
        return function

    def has_function(self, name: str) -> bool:
        """Whether a function of this name was begun."""
        return name in self._functions

    def outline(
        self,
        key: object,
        name: str,
        arguments: Sequence[tuple[str, str]],
        build: Callable[[FunctionText], None],
        ret: str = "void",
        shared: bool = False,
    ) -> str:
        """The name of the internal function `build` writes, written once per `key`.

        A `shared` one depends on nothing but its key, which then must print the same in every process.
        """
        if key not in self._outlined and shared and self.shares:
            digest = hashlib.sha256(repr((key, self.target)).encode()).hexdigest()[:16]
            symbol = self._outlined[key] = f"tessera_{name}_{digest}"
            if symbol not in _WRITTEN:
                apart = ModuleText(self.target)
                build(apart.function(symbol, arguments, ret))
                _WRITTEN[symbol] = apart.text()
            self._shared[symbol] = _WRITTEN[symbol]
            types = ", ".join(_bare(type_) for type_, _ in arguments)
            self._declared[symbol] = f"declare hidden {ret} @{symbol}({types})"
        elif key not in self._outlined:
            function = self.function(self.unique(name), arguments, ret, internal=True)
            self._outlined[key] = function.name
            build(function)
        return self._outlined[key]

    def constant(self, element: str, values: Sequence[float | int], align: int = 64) -> Value:
        """A pointer to a read-only table; equal tables are shared."""
        body = ", ".join(f"{element} {constant_text(element, value)}" for value in values)
        text = f"private unnamed_addr constant [{len(values)} x {element}] [{body}], align {align}"
        if text not in self._constant_names:
            name = f"@table.{len(self._constants)}"
            self._constants[name] = text
            self._constant_names[text] = Value("ptr", name)
        return self._constant_names[text]

    def declare(self, name: str, ret: str, types: Sequence[str]) -> None:
        """Declare an external function; repeating it is fine, changing its signature is not."""
        if name in self._shared:
            return
        text = f"declare {ret} @{name}({', '.join(types)})"
        if self._declared.setdefault(name, text) != text:
            raise ValueError(f"`{name}` is declared twice: {self._declared[name]!r} and {text!r}")

    def shared_modules(self) -> dict[str, str]:
        """The modules of the shared functions this one calls, by the symbol each defines."""
        return dict(self._shared)

    def text(self) -> str:
        """The whole module."""
        parts = [f"{name} = {body}" for name, body in self._constants.items()]
        parts += [function.text() for function in self._functions.values()]
        parts += [text for name, text in self._declared.items() if name not in self._functions]
        parts.append(f"attributes #0 = {{ {self.target.attributes} }}")
        parts.append("!0 = !{i32 1}\n")
        return "\n".join(parts)


def _bare(type_: str) -> str:
    """The type of an argument without its attributes."""
    return type_ if type_[0] == "<" else type_.split(" ")[0]


class FunctionText(Instructions):
    """A function being written, at the end of its last block: `Instructions` plus control flow."""

    def __init__(
        self, module: ModuleText, name: str, arguments: Sequence[tuple[str, str]], ret: str, internal: bool
    ) -> None:
        super().__init__(module.target, module.declare)
        self.module = module
        self.name = name
        self.arguments = [Value(_bare(type_), f"%.{arg}") for type_, arg in arguments]
        signature = ", ".join(f"{type_} %.{arg}" for type_, arg in arguments)
        linkage, inlining = ("internal ", "noinline ") if internal else ("", "")
        self._head = f"define {linkage}{ret} @{name}({signature}) {inlining}#0 {{"
        self._block = "entry"
        self._closed = False
        self.parts: dict[Atom, Index] = {}
        """Parts of dims that are computed on every path to here, where all dims are of the same sizes."""

    def text(self) -> str:
        """The function as LLVM reads it."""
        if not self._closed:
            raise ValueError(f"function `{self.name}` has no return at its end")
        return "\n".join([self._head, "entry:", *self._allocas, *self._first, *self._lines, "}\n"])

    def _label(self) -> str:
        self._count += 1
        return f"L{self._count}"

    def _place(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label
        if self.known is not None:
            self.known.clear()
        self._closed = False

    def _jump(self, label: str) -> None:
        """End the block, unless it already returned."""
        if not self._closed:
            self._lines.append(f"  br label %{label}")

    def _branch(self, condition: Value, then: str, otherwise: str) -> None:
        self._lines.append(f"  br i1 {condition.text}, label %{then}, label %{otherwise}")

    def ret(self, value: Value | None = None) -> None:
        """Return; also allowed inside a branch."""
        self.line(f"ret {value}" if value else "ret void")
        self._closed = True

    @overload
    def loop(self, lo: Index, hi: Index, step: Index, body: Callable[[Value], None]) -> list[Value]: ...
    @overload
    def loop(
        self,
        lo: Index,
        hi: Index,
        step: Index,
        body: Callable[[Value, list[Value]], Results],
        carried: Sequence[Value],
        is_nonempty: bool = False,
    ) -> list[Value]: ...
    def loop(
        self,
        lo: Index,
        hi: Index,
        step: Index,
        body: Callable[..., Results],
        carried: Sequence[Value] | None = None,
        is_nonempty: bool = False,
    ) -> list[Value]:
        """`for i in range(lo, hi, step)`: `body(i)`, or `body(i, values)` giving the next values; returns the last.

        The step is positive. The test is at the end, with one guard before the first iteration unless both bounds are
        known or there is an iteration for sure (`is_nonempty`).
        """
        first, last = constant_of(lo), constant_of(hi)
        guarded = not is_nonempty and (first is None or last is None)
        starts = carried or ()
        if first is not None and last is not None and first >= last:
            return list(starts)
        lo, hi = self.index(lo), self.index(hi)
        before, top, after, parts = self._block, self._label(), self._label(), dict(self.parts)
        if guarded:
            self._branch(self.icmp("slt", lo, hi), top, after)
        else:
            self._jump(top)
        self._place(top)
        index = Value("i64", self._name())
        heads = [Value(value.type, self._name()) for value in starts]
        position = len(self._lines)
        self._lines.append("")
        outs = _as_list(body(index) if carried is None else body(index, heads))
        _check_types(heads, outs)
        following = self.raw("i64", f"add nsw {index}, {self.index(step).text}")
        self._branch(self.icmp("slt", following, hi), top, after)
        latch = self._block
        phis = [f"  {index.text} = phi i64 [{lo.text}, %{before}], [{following.text}, %{latch}]"]
        for head, start, out in zip(heads, starts, outs, strict=True):
            phis.append(f"  {head.text} = phi {head.type} [{start.text}, %{before}], [{out.text}, %{latch}]")
        self._lines[position] = "\n".join(phis)
        self._place(after)
        self.parts = parts
        if not guarded:
            return outs
        return [self._phi([(start, before), (out, latch)]) for start, out in zip(starts, outs, strict=True)]

    def while_(
        self,
        carried: Sequence[Value],
        condition: Callable[[list[Value]], Value],
        body: Callable[[list[Value]], Results],
    ) -> list[Value]:
        """Repeat `body(values)` while `condition(values)` holds; returns the last carried values."""
        before, top, inside, after = self._block, self._label(), self._label(), self._label()
        parts = dict(self.parts)
        self._jump(top)
        self._place(top)
        heads = [Value(value.type, self._name()) for value in carried]
        position = len(self._lines)
        self._lines.append("")
        self._branch(condition(heads), inside, after)
        self._place(inside)
        outs = _as_list(body(heads))
        _check_types(heads, outs)
        self._jump(top)
        latch = self._block
        self._lines[position] = "\n".join(
            f"  {head.text} = phi {head.type} [{start.text}, %{before}], [{out.text}, %{latch}]"
            for head, start, out in zip(heads, carried, outs, strict=True)
        )
        self._place(after)
        self.parts = parts
        return heads

    def if_(
        self, condition: Value, then: Callable[[], Results], else_: Callable[[], Results] | None = None
    ) -> list[Value]:
        """Run one branch; what both give back is merged. A known condition emits only the branch it takes."""
        if condition.text in ("true", "false"):
            taken = then if condition.text == "true" else else_
            return _as_list(taken()) if taken else []
        yes, no, after = self._label(), self._label(), self._label()
        self._branch(condition, yes, no if else_ else after)
        arms = [self._arm(yes, then, after)]
        if else_:
            arms.append(self._arm(no, else_, after))
        live = [arm for arm in arms if arm is not None]
        if else_ and not live:
            return []
        self._place(after)
        if not live or not live[0][0] or (len(live) == 1 and else_):
            return live[0][0] if live and else_ else []
        if not else_:
            raise ValueError("a branch that gives values back needs an else")
        (left, left_block), (right, right_block) = live
        _check_types(left, right)
        return [self._phi([(a, left_block), (b, right_block)]) for a, b in zip(left, right, strict=True)]

    def _arm(self, label: str, body: Callable[[], Results], after: str) -> tuple[list[Value], str] | None:
        """Emit one branch; its values and last block, or None when it returned."""
        parts = dict(self.parts)
        self._place(label)
        values = _as_list(body())
        self.parts = parts
        if self._closed:
            return None
        self._jump(after)
        return values, self._block

    def switch(
        self, value: Value, cases: Mapping[int, Callable[[], None]], default: Callable[[], None] | None = None
    ) -> None:
        """Run the case an integer names, else the default."""
        labels = {case: self._label() for case in cases}
        other, after = self._label(), self._label()
        table = " ".join(f"{value.type} {case}, label %{label}" for case, label in labels.items())
        self.line(f"switch {value}, label %{other if default else after} [ {table} ]")
        for case, body in cases.items():
            self._arm(labels[case], body, after)
        if default:
            self._arm(other, default, after)
        self._place(after)

    def _phi(self, incoming: Sequence[tuple[Value, str]]) -> Value:
        type_ = incoming[0][0].type
        return self.raw(type_, f"phi {type_} " + ", ".join(f"[{value.text}, %{block}]" for value, block in incoming))


def _as_list(results: Results) -> list[Value]:
    if results is None:
        return []
    return [results] if isinstance(results, Value) else list(results)


def _check_types(expected: Sequence[Value], given: Sequence[Value]) -> None:
    if [value.type for value in expected] != [value.type for value in given]:
        raise ValueError(f"carried types {[v.type for v in expected]} became {[v.type for v in given]}")


# The host program as text, whatever runs its kernels: buffers, blocks, branches and loops over pointers.

_SILENT = ("tsched.guard", "tsched.free", "tsched.tile", "tsched.layout", "tsched.collective", "tsched.pipeline")
"""Ops that say how a program is, and do nothing when it comes to them."""


def buffer_type(value: SSAValue) -> TensorType:
    """The shape and dtype of a buffer."""
    assert isinstance(value.type, BufferAttr)
    return value.type.data


EXCHANGES = ("tsched.collective_start", "tsched.collective_wait")
"""Ops that communicate with other ranks, through Python."""


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
        return dim_value(self.f, dim, self.symbols, self.f.parts)

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
            start = self.host_memory() if op.value("space") else self.workspace
            self.pointers[op.result] = f.gep(start, self.dim(op.value("offset")), "i8")

    def host_memory(self) -> Value:
        """Where offloaded values are: behind the workspace, where there is one memory."""
        return self.f.gep(self.workspace, self.dim(self.program.value("workspace")), "i8")

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
        size = op.value("size")
        holds = self._holds(op.operands[0]) if size is None else self.f.icmp("sgt", self.dim(size), 0)
        self.f.if_(holds, lambda: self._block(then), lambda: self._block(otherwise))

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
