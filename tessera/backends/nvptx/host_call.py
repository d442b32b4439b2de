"""A call from Python to the entry of a host program, as native code that knows how many tensors there are.

`tessera_call` is a builtin of CPython. It takes tensors of the device whose forms, all of them, belong to one of the
plans of the program, on the thread's current stream; memory for the results must be free. To anything else its answer
is NotImplemented, and the runtime does the call in Python.

A plan may have a table of CUDA graphs (`host_graphs.py`), which replay launches for the very same addresses.
"""

from __future__ import annotations

from tessera.backends.nvptx.host_graphs import GraphReplay
from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.runtime.devices.cuda.native_call import PLAN
from tessera.runtime.native.layout import OFFSETS

RECORD = ("type", "refused", "queue", "handle", "calls", "plans", "address", "form", "lane", "stream", "_owner")
"""Words that the runtime fills: objects of Python, how often the entry ran, the first plan, offsets of slots."""
# A plan has the words of `PLAN`, then the forms of its inputs, then form, home, free blocks of each output and how many
# it needs. The last three of the first are the free blocks that the workspace comes from, how many, and its graphs.
_TYPE, _POINTER = OFFSETS["PyObject.ob_type"], OFFSETS["PyCapsule.pointer"]
"""Bytes from the start of an object to its type, and to the pointer of a capsule."""
_NULL = Value("ptr", "null")


def write_call(module: ModuleText, inputs: int, outputs: int) -> None:
    """Write `tessera_call` for an entry with so many inputs and outputs."""
    given = [("ptr", "self"), ("ptr", "given"), ("i64", "count")]
    _Call(module.function("tessera_call", given, ret="ptr"), inputs, outputs).run()


class _Call:
    """One such function, written."""

    def __init__(self, f: FunctionText, inputs: int, outputs: int) -> None:
        self.f, self.inputs, self.outputs = f, inputs, outputs
        # Results, workspace and inputs in one piece: what graphs are found by.
        self.results = f.alloca("i64", outputs + 1 + max(1, inputs))
        self.addresses = f.gep(self.results, outputs + 1, "i64")

    def run(self) -> None:
        f = self.f
        this, given, count = f.arguments
        self.record = self._pointer(this, _POINTER // 8)
        self._refuse_unless(f.icmp("eq", count, self.inputs))
        tensors = [self._pointer(given, at) for at in range(self.inputs)]
        self.type = self._word("type")
        is_tensor = Value("i1", "true")
        for tensor in tensors:
            is_tensor = f.op("and", is_tensor, f.icmp("eq", self._pointer(tensor, _TYPE // 8), self.type))
        self._refuse_unless(is_tensor)
        stream = self._stream()
        is_here = Value("i1", "true")
        for tensor in tensors:
            is_here = f.op("and", is_here, f.icmp("eq", self._slot(tensor, "lane"), stream))
        self._refuse_unless(is_here)
        plan = self._plan(stream, [self._slot(tensor, "form") for tensor in tensors])
        self._launch(plan, stream, tensors)

    def _pointer(self, base: Value, at: int) -> Value:
        return self.f.load(self.f.gep(base, at, "ptr"), "ptr")

    def _word(self, name: str) -> Value:
        return self._pointer(self.record, RECORD.index(name))

    def _slot_address(self, tensor: Value, slot: str) -> Value:
        offset = self.f.load(self.f.gep(self.record, RECORD.index(slot), "i64"), "i64")
        return self.f.gep(tensor, offset, "i8")

    def _slot(self, tensor: Value, slot: str) -> Value:
        return self.f.load(self._slot_address(tensor, slot), "ptr")

    def _refuse(self) -> None:
        refused = self._word("refused")
        self.f.call("Py_IncRef", [refused])
        self.f.ret(refused)

    def _refuse_unless(self, condition: Value) -> None:
        self.f.if_(condition, lambda: None, self._refuse)

    def _stream(self) -> Value:
        """The stream of this thread as a Python int, which somebody holds all the while."""
        f = self.f
        found = f.call("PyObject_GetAttr", [self._word("queue"), self._word("handle")], "ptr")
        f.if_(f.icmp("eq", found, _NULL), lambda: f.ret(_NULL))
        f.call("Py_DecRef", [found])
        return found

    def _plan(self, stream: Value, forms: list[Value]) -> Value:
        """The plan for these forms on the stream."""
        f = self.f

        def goes_on(state: list[Value]) -> Value:
            return f.op("and", f.icmp("ne", state[0], _NULL), f.op("xor", state[1], Value("i1", "true")))

        def look(state: list[Value]) -> list[Value]:
            plan = state[0]
            same = f.icmp("eq", self._pointer(plan, PLAN.index("stream")), stream)
            for at, form in enumerate(forms):
                same = f.op("and", same, f.icmp("eq", self._pointer(plan, len(PLAN) + at), form))
            return [f.select(same, plan, self._pointer(plan, PLAN.index("next"))), same]

        plan, found = f.while_([self._word("plans"), Value("i1", "false")], goes_on, look)
        self._refuse_unless(found)
        return plan

    def _launch(self, plan: Value, stream: Value, tensors: list[Value]) -> None:
        f = self.f
        first = len(PLAN) + self.inputs
        parts = [[self._pointer(plan, first + 4 * at + part) for part in range(3)] for at in range(self.outputs)]
        own = self._pointer(plan, PLAN.index("workspace"))
        has_own = f.icmp("ne", own, _NULL)
        for at, (_, _, free) in enumerate(parts):
            self._refuse_unless(self._has(free, plan, first + 4 * at + 3))
        f.if_(has_own, lambda: self._refuse_unless(self._has(own, plan, PLAN.index("needed"))))
        for at, tensor in enumerate(tensors):
            f.store(self._number(self._slot(tensor, "address")), f.gep(self.addresses, at, "i64"), align=8)
        made = [self._make_tensor(at, stream, *part) for at, part in enumerate(parts)]
        keeper = self._pointer(plan, PLAN.index("self"))
        f.call("Py_IncRef", [keeper])
        none = Value("i64", "0")
        block, space = f.if_(has_own, lambda: self._take_block(own), lambda: [_NULL, none])
        f.store(space, f.gep(self.results, self.outputs, "i64"), align=8)
        code = self._run_entry(plan, space)

        def put_back() -> None:
            f.call("PyList_Append", [own, block], "i32")
            f.call("Py_DecRef", [block])

        f.if_(has_own, put_back)
        f.call("Py_DecRef", [keeper])

        def fail() -> None:
            # The runtime runs it once more, and says what was wrong.
            for tensor in made:
                f.call("Py_DecRef", [tensor])
            self._refuse()

        f.if_(f.icmp("ne", code, 0), fail)
        self.replay.note(lambda: self._raise(made))
        calls = f.gep(self.record, RECORD.index("calls"), "i64")
        f.store(f.add(f.load(calls, "i64"), 1), calls, align=8)
        f.ret(self._result(made))

    def _raise(self, made: list[Value]) -> None:
        """Python raised: the results are released, and the exception goes on."""
        for tensor in made:
            self.f.call("Py_DecRef", [tensor])
        self.f.ret(_NULL)

    def _has(self, free: Value, plan: Value, at: int) -> Value:
        """Whether a list has as many blocks as all that take of it."""
        f = self.f
        return f.icmp("sge", f.call("PyList_Size", [free], "i64"), f.load(f.gep(plan, at, "i64"), "i64"))

    def _number(self, number: Value) -> Value:
        return self.f.call("PyLong_AsUnsignedLongLong", [number], "i64")

    def _take_block(self, free: Value) -> list[Value]:
        """The last block of a list, as a Python int that we own then, and as an address."""
        f = self.f
        last = f.sub(f.call("PyList_Size", [free], "i64"), 1)
        block = f.call("PyList_GetItem", [free, last], "ptr")
        f.call("Py_IncRef", [block])
        f.call("PyList_SetSlice", [free, last, f.add(last, 1), _NULL], "i32")
        return [block, self._number(block)]

    def _make_tensor(self, at: int, stream: Value, form: Value, home: Value, free: Value) -> Value:
        """A tensor for an output."""
        f = self.f
        block, address = self._take_block(free)
        f.store(address, f.gep(self.results, at, "i64"), align=8)
        tensor = f.call("PyType_GenericAlloc", [self.type, f.const_i(0)], "ptr")
        f.if_(f.icmp("eq", tensor, _NULL), lambda: f.ret(_NULL))
        for value in (form, home, stream, stream):
            f.call("Py_IncRef", [value])
        slots = {"address": block, "form": form, "stream": stream, "lane": stream, "_owner": home}
        for slot, value in slots.items():
            f.store(value, self._slot_address(tensor, slot), align=8)
        return tensor

    def _run_entry(self, plan: Value, space: Value) -> Value:
        """Run the entry, or replay its graph, without the GIL."""
        f = self.f
        sizes, state = (self._pointer(plan, PLAN.index(name)) for name in ("sizes", "state"))
        table = self._pointer(plan, PLAN.index("replays"))
        self.replay = GraphReplay(f, table, self.results, self.outputs + 1 + self.inputs)
        stream = self._pointer(state, 0)
        self.replay.begin(stream)
        saved = f.call("PyEval_SaveThread", [], "ptr")
        workspace = f.raw("ptr", f"inttoptr {space} to ptr")
        given = [self.addresses, self.results, sizes, workspace, state]
        code = self.replay.run(stream, lambda: f.call("tessera_entry", given, "i64"))
        f.call("PyEval_RestoreThread", [saved])
        self.replay.end()
        return code

    def _result(self, made: list[Value]) -> Value:
        f = self.f
        if len(made) == 1:
            return made[0]
        several = f.call("PyTuple_New", [f.const_i(len(made))], "ptr")
        f.if_(f.icmp("eq", several, _NULL), lambda: f.ret(_NULL))
        for at, tensor in enumerate(made):
            f.call("PyTuple_SetItem", [several, f.const_i(at), tensor], "i32")
        return several
