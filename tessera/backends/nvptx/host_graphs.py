"""CUDA graphs in native code: launches captured for the very same addresses are replayed as one graph.

All that a host program launches follows from its sizes, which belong to a plan, and from the addresses of its results,
its workspace and its inputs. Where these are as they were, a graph captured from the launches does the same at the cost
of one of them. The table that says which graphs there are is the runtime's (`runtime/devices/cuda/graphs.py`), and is
read only while the thread holds the GIL.

A single launch can go through a graph too: one of one kernel node whose parameters are set before each launch, which
costs the host less than a launch (`tessera_launch`).
"""

from __future__ import annotations

from collections.abc import Callable

from tessera.ir.target.llvm.instructions import Index, Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.runtime.devices.cuda import graphs
from tessera.runtime.devices.cuda.program import PLAN
from tessera.runtime.native.support import OFFSETS

_NULL = Value("ptr", "null")


class GraphReplay:
    """One look-up in a table of graphs, if there is one, for `count` addresses at `words`."""

    def __init__(self, f: FunctionText, table: Value, words: Value, count: int) -> None:
        self.f, self.table, self.words, self.count = f, table, words, count
        self.has_table = f.icmp("ne", table, _NULL)
        self.state = f.alloca("i32")
        self.entry = self.graph = _NULL
        self.is_replay = Value("i1", "false")

    def begin(self, stream: Value) -> None:
        """Look for the graph of these addresses, which then stays until `end`.

        A stream that is being captured takes launches, and no graphs; the default stream is never captured.
        """
        f = self.f
        is_named = f.op("and", self.has_table, f.icmp("ne", stream, _NULL))
        is_free = f.if_(is_named, lambda: self._is_free(stream), lambda: Value("i1", "true"))[0]
        self.has_table = f.op("and", self.has_table, is_free)
        entry, graph = f.if_(self.has_table, self._find, lambda: [_NULL, _NULL])
        self.entry, self.graph, self.is_replay = entry, graph, f.icmp("ne", graph, _NULL)
        f.if_(self.is_replay, lambda: self._add("busy", 1) and None)

    def run(self, stream: Value, plain: Callable[[], Value]) -> Value:
        """Launch the graph, or run `plain` where there is none."""
        f = self.f

        def launch() -> Value:
            function = f.load(self._address("launch"), "ptr")
            return f.cast("zext", f.raw("i32", f"call i32 {function.text}({self.graph}, {stream})"), "i64")

        return f.if_(self.is_replay, launch, plain)[0]

    def end(self) -> None:
        """The graph may be destroyed; a look-up that found one starts the count of misses anew."""
        self.f.if_(self.is_replay, self._release)

    def _is_free(self, stream: Value) -> Value:
        """Whether a stream is not being captured."""
        f = self.f
        function = f.load(self._address("is_capturing"), "ptr")
        code = f.raw("i32", f"call i32 {function.text}({stream}, {self.state})")
        return f.icmp("eq", f.op("or", code, f.load(self.state, "i32")), Value("i32", "0"))

    def _release(self) -> None:
        self._add("busy", -1)
        self.f.store(self.f.const_i(0), self._address("missed"), align=8)

    def note(self, fail: Callable[[], None]) -> None:
        """Count a call that was not replayed; one that comes often is captured by Python, which may `fail`."""
        f = self.f
        is_plain = f.op("and", self.has_table, f.op("xor", self.is_replay, Value("i1", "true")))
        is_known = f.icmp("ne", self.entry, _NULL)

        def plain() -> None:
            launched = self._add("plain", 1)
            f.if_(f.icmp("eq", launched, graphs.NODES_AFTER), lambda: self._ask(f.const_i(graphs.NODES), fail))
            f.if_(is_known, lambda: self._count_known(fail), lambda: self._enter(fail))

        f.if_(is_plain, plain)

    def _address(self, name: str) -> Value:
        return self.f.gep(self.table, graphs.HEAD.index(name), "i64")

    def _add(self, name: str, step: int) -> Value:
        address = self._address(name)
        found = self.f.add(self.f.load(address, "i64"), step)
        self.f.store(found, address, align=8)
        return found

    def _entry_at(self, at: Value) -> Value:
        start = self.f.add(self.f.mul(at, len(graphs.ENTRY) + self.count), len(graphs.HEAD))
        return self.f.gep(self.table, start, "i64")

    def _find(self) -> list[Value]:
        """The entry of these addresses, if there is one, and its graph, if that was captured."""
        f = self.f

        def goes_on(state: list[Value]) -> Value:
            return f.op("and", f.icmp("slt", state[0], graphs.ENTRIES), f.icmp("eq", state[1], _NULL))

        def look(state: list[Value]) -> list[Value]:
            entry = self._entry_at(state[0])
            return [f.add(state[0], 1), f.select(self._has_same_addresses(entry), entry, _NULL)]

        _, entry = f.while_([f.const_i(0), _NULL], goes_on, look)
        graph = f.if_(f.icmp("ne", entry, _NULL), lambda: f.load(entry, "ptr"), lambda: _NULL)[0]
        return [entry, graph]

    def _has_same_addresses(self, entry: Value) -> Value:
        f = self.f

        def is_equal(at: Value) -> Value:
            mine, other = f.gep(self.words, at, "i64"), f.gep(entry, f.add(at, len(graphs.ENTRY)), "i64")
            return f.icmp("eq", f.load(mine, "i64"), f.load(other, "i64"))

        return _holds_for_all(f, self.count, is_equal)

    def _count_known(self, fail: Callable[[], None]) -> None:
        """One more call with addresses that are known."""
        f = self.f
        address = f.gep(self.entry, graphs.ENTRY.index("count"), "i64")
        count = f.add(f.load(address, "i64"), 1)
        f.store(count, address, align=8)
        f.if_(
            f.icmp("eq", count, graphs.CAPTURE_AFTER),
            lambda: self._ask(f.raw("i64", f"ptrtoint {self.entry} to i64"), fail),
        )

    def _enter(self, fail: Callable[[], None]) -> None:
        """Addresses that are not known take the next entry, unless that has a graph; too many of them, and all go."""
        f = self.f
        at = f.load(self._address("next"), "i64")
        f.store(f.urem(f.add(at, 1), graphs.ENTRIES), self._address("next"), align=8)
        entry = self._entry_at(at)

        def take() -> None:
            f.store(f.const_i(1), f.gep(entry, graphs.ENTRY.index("count"), "i64"), align=8)

            def copy(one: Value) -> None:
                word = f.load(f.gep(self.words, one, "i64"), "i64")
                f.store(word, f.gep(entry, f.add(one, len(graphs.ENTRY)), "i64"), align=8)

            f.loop(0, self.count, 1, copy)

        def miss() -> None:
            missed = self._add("missed", 1)
            f.if_(f.icmp("eq", missed, graphs.RELEASE_AFTER), lambda: self._ask(f.const_i(graphs.RELEASE), fail))

        f.if_(f.icmp("eq", f.load(entry, "ptr"), _NULL), take, miss)

    def _ask(self, wanted: Value, fail: Callable[[], None]) -> None:
        """Ask Python to capture the calls of an entry, or to destroy all graphs."""
        f = self.f
        f.store(wanted, self._address("wanted"), align=8)
        answer = f.call("PyObject_CallNoArgs", [f.load(self._address("maker"), "ptr")], "ptr")
        f.if_(f.icmp("eq", answer, _NULL), fail)
        f.call("Py_DecRef", [answer])


def _holds_for_all(f: FunctionText, count: int, holds: Callable[[Value], Value]) -> Value:
    """Whether something holds for all numbers below a count; asked up to the first that it does not hold for."""

    def goes_on(state: list[Value]) -> Value:
        is_inside = f.icmp("slt", state[0], count)
        return f.if_(is_inside, lambda: holds(state[0]), lambda: Value("i1", "false"))[0]

    (at,) = f.while_([f.const_i(0)], goes_on, lambda state: [f.add(state[0], 1)])
    return f.icmp("eq", at, count)


_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")


def write_launch(module: ModuleText) -> None:
    """Write `tessera_launch`, a launch through a graph of one kernel node.

    It takes what `cuLaunchKernel` takes, but for the first: in place of a kernel it gets the record of a node
    (`runtime/devices/cuda/graphs.py`). Where another thread is at that node, or the stream is being captured, it
    launches the kernel.
    """
    arguments = [("ptr", "record"), *(("i32", name) for name in _SHAPE)]
    arguments += [("ptr", "stream"), ("ptr", "parameters"), ("ptr", "extra")]
    _NodeLaunch(module.function("tessera_launch", arguments, ret="i32")).run()


class _NodeLaunch:
    """That function, written."""

    def __init__(self, f: FunctionText) -> None:
        self.f, self.record, self.stream = f, f.arguments[0], f.arguments[8]
        self.state = f.alloca("i32")

    def run(self) -> None:
        f = self.f
        f.if_(f.icmp("ne", self.stream, _NULL), self._launch_if_captured)
        pair = f.raw("{ i64, i1 }", f"cmpxchg ptr {self._at('lock').text}, i64 0, i64 1 acquire monotonic, align 8")
        is_mine = f.raw("i1", f"extractvalue {pair}, 1")
        f.if_(is_mine, lambda: None, self._launch)
        for at, value in enumerate(f.arguments[1:8]):
            f.store(value, f.gep(self.record, graphs.STRUCT + graphs.GRID + 4 * at, "i8"), align=4)
        f.store(f.arguments[9], f.gep(self.record, graphs.STRUCT + graphs.PARAMETERS, "i8"), align=8)
        graph, node = (f.load(self._at(name), "ptr") for name in ("graph", "node"))
        code = self._call("set", [graph, node, f.gep(self.record, graphs.STRUCT, "i8")])

        def refuse() -> None:
            self._unlock()
            self._launch()

        f.if_(f.icmp("ne", code, Value("i32", "0")), refuse)
        code = self._call("replay", [graph, self.stream])
        self._unlock()
        f.ret(code)

    def _at(self, name: str) -> Value:
        return self.f.gep(self.record, graphs.NODE.index(name), "i64")

    def _call(self, name: str, arguments: list[Value]) -> Value:
        function = self.f.load(self._at(name), "ptr")
        return self.f.raw("i32", f"call i32 {function.text}({', '.join(map(str, arguments))})")

    def _launch_if_captured(self) -> None:
        """A stream that is being captured takes launches alone."""
        f = self.f
        code = self._call("is_capturing", [self.stream, self.state])
        is_free = f.icmp("eq", f.op("or", code, f.load(self.state, "i32")), Value("i32", "0"))
        f.if_(is_free, lambda: None, self._launch)

    def _unlock(self) -> None:
        self.f.line(f"store atomic i64 0, ptr {self._at('lock').text} release, align 8")

    def _launch(self) -> None:
        f = self.f
        f.ret(self._call("launch", [f.load(self._at("kernel"), "ptr"), *f.arguments[1:]]))


# A call from Python to the entry of a host program, as native code that knows how many tensors there are.

RECORD = ("type", "refused", "current", "handle", "calls", "plans", "address", "form", "lane", "stream", "_owner")
"""Words that the runtime fills: objects of Python, how often the entry ran, the first plan, offsets of slots."""
# A plan has the words of `PLAN`, then the forms of its inputs, then form, home, free blocks of each output and how many
# it needs. The last three of the first are the free blocks that the workspace comes from, how many, and its graphs.
_TYPE, _POINTER = OFFSETS["PyObject.ob_type"], OFFSETS["PyCapsule.pointer"]
"""Bytes from the start of an object to its type, and to the pointer of a capsule."""


def write_call(module: ModuleText, inputs: int, outputs: int) -> None:
    """Write `tessera_call` for an entry with so many inputs and outputs."""
    given = [("ptr", "self"), ("ptr", "given"), ("i64", "count")]
    _Call(module.function("tessera_call", given, ret="ptr"), inputs, outputs).run()


class _Call:
    """One such function, written: loops over tensors, as a training step has hundreds of them."""

    def __init__(self, f: FunctionText, inputs: int, outputs: int) -> None:
        self.f, self.inputs, self.outputs = f, inputs, outputs
        # Results, workspace and inputs in one piece: what graphs are found by.
        self.results = f.alloca("i64", outputs + 1 + max(1, inputs))
        self.addresses = f.gep(self.results, outputs + 1, "i64")
        self.made = f.alloca("ptr", max(1, outputs))

    def run(self) -> None:
        f = self.f
        this, self.given, count = f.arguments
        self.record = self._pointer(this, _POINTER // 8)
        self._refuse_unless(f.icmp("eq", count, self.inputs))
        self.type = self._word("type")
        self.offsets = {slot: self._offset(slot) for slot in ("address", "form", "lane", "stream", "_owner")}
        self._refuse_unless(
            self._all_inputs(lambda _, tensor: f.icmp("eq", self._pointer(tensor, _TYPE // 8), self.type))
        )
        stream = self._stream()
        self._refuse_unless(self._all_inputs(lambda _, tensor: f.icmp("eq", self._slot(tensor, "lane"), stream)))
        self._launch(self._plan(stream), stream)

    def _pointer(self, base: Value, at: Index) -> Value:
        return self.f.load(self.f.gep(base, at, "ptr"), "ptr")

    def _word(self, name: str) -> Value:
        return self._pointer(self.record, RECORD.index(name))

    def _offset(self, slot: str) -> Value:
        return self.f.load(self.f.gep(self.record, RECORD.index(slot), "i64"), "i64")

    def _slot_address(self, tensor: Value, slot: str) -> Value:
        return self.f.gep(tensor, self.offsets[slot], "i8")

    def _slot(self, tensor: Value, slot: str) -> Value:
        return self.f.load(self._slot_address(tensor, slot), "ptr")

    def _all_inputs(self, holds: Callable[[Value, Value], Value]) -> Value:
        """Whether something holds for each input, given its number and the tensor."""
        return _holds_for_all(self.f, self.inputs, lambda at: holds(at, self._pointer(self.given, at)))

    def _refuse(self) -> None:
        refused = self._word("refused")
        self.f.call("Py_IncRef", [refused])
        self.f.ret(refused)

    def _refuse_unless(self, condition: Value) -> None:
        self.f.if_(condition, lambda: None, self._refuse)

    def _stream(self) -> Value:
        """The stream of this thread as a Python int, which somebody holds all the while."""
        f = self.f
        found = f.call("PyObject_GetAttr", [self._word("current"), self._word("handle")], "ptr")
        f.if_(f.icmp("eq", found, _NULL), lambda: f.ret(_NULL))
        f.call("Py_DecRef", [found])
        return found

    def _plan(self, stream: Value) -> Value:
        """The plan for the forms of the inputs on the stream."""
        f = self.f

        def goes_on(state: list[Value]) -> Value:
            return f.op("and", f.icmp("ne", state[0], _NULL), f.op("xor", state[1], Value("i1", "true")))

        def look(state: list[Value]) -> list[Value]:
            plan = state[0]

            def has_form(at: Value, tensor: Value) -> Value:
                return f.icmp("eq", self._pointer(plan, f.add(at, len(PLAN))), self._slot(tensor, "form"))

            is_here = f.icmp("eq", self._pointer(plan, PLAN.index("stream")), stream)
            same = f.if_(is_here, lambda: self._all_inputs(has_form), lambda: Value("i1", "false"))[0]
            return [f.select(same, plan, self._pointer(plan, PLAN.index("next"))), same]

        plan, found = f.while_([self._word("plans"), Value("i1", "false")], goes_on, look)
        self._refuse_unless(found)
        return plan

    def _launch(self, plan: Value, stream: Value) -> None:
        f = self.f
        own = self._pointer(plan, PLAN.index("workspace"))
        has_own = f.icmp("ne", own, _NULL)

        def check(at: Value) -> None:
            self._refuse_unless(self._has(self._part(plan, at, 2), self._part_address(plan, at, 3)))

        def put_address(at: Value) -> None:
            address = self._number(self._slot(self._pointer(self.given, at), "address"))
            f.store(address, f.gep(self.addresses, at, "i64"), align=8)

        f.loop(0, self.outputs, 1, check)
        needed = f.gep(plan, PLAN.index("needed"), "i64")
        f.if_(has_own, lambda: self._refuse_unless(self._has(own, needed)))
        f.loop(0, self.inputs, 1, put_address)
        f.loop(0, self.outputs, 1, lambda at: self._make_tensor(at, stream, plan))
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
            self._release_results()
            self._refuse()

        f.if_(f.icmp("ne", code, 0), fail)
        self.replay.note(self._raise)
        calls = f.gep(self.record, RECORD.index("calls"), "i64")
        f.store(f.add(f.load(calls, "i64"), 1), calls, align=8)
        f.ret(self._result())

    def _part_address(self, plan: Value, at: Value, part: int) -> Value:
        """Where a plan has one of the four words of an output: form, home, free blocks, how many it needs."""
        return self.f.gep(plan, self.f.add(self.f.mul(at, 4), len(PLAN) + self.inputs + part), "i64")

    def _part(self, plan: Value, at: Value, part: int) -> Value:
        return self.f.load(self._part_address(plan, at, part), "ptr")

    def _release_results(self) -> None:
        self.f.loop(0, self.outputs, 1, lambda at: self.f.call("Py_DecRef", [self._pointer(self.made, at)]) and None)

    def _raise(self) -> None:
        """Python raised: the results are released, and the exception goes on."""
        self._release_results()
        self.f.ret(_NULL)

    def _has(self, free: Value, needed: Value) -> Value:
        """Whether a list has as many blocks as all that take of it."""
        f = self.f
        return f.icmp("sge", f.call("PyList_Size", [free], "i64"), f.load(needed, "i64"))

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

    def _make_tensor(self, at: Value, stream: Value, plan: Value) -> None:
        """A tensor for an output, kept in `made`."""
        f = self.f
        form, home, free = (self._part(plan, at, part) for part in range(3))
        block, address = self._take_block(free)
        f.store(address, f.gep(self.results, at, "i64"), align=8)
        tensor = f.call("PyType_GenericAlloc", [self.type, f.const_i(0)], "ptr")
        f.if_(f.icmp("eq", tensor, _NULL), lambda: f.ret(_NULL))
        for value in (form, home, stream, stream):
            f.call("Py_IncRef", [value])
        slots = {"address": block, "form": form, "stream": stream, "lane": stream, "_owner": home}
        for slot, value in slots.items():
            f.store(value, self._slot_address(tensor, slot), align=8)
        f.store(tensor, f.gep(self.made, at, "ptr"), align=8)

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

    def _result(self) -> Value:
        f = self.f
        if self.outputs == 1:
            return self._pointer(self.made, 0)
        several = f.call("PyTuple_New", [f.const_i(self.outputs)], "ptr")
        f.if_(f.icmp("eq", several, _NULL), lambda: f.ret(_NULL))

        def put(at: Value) -> None:
            f.call("PyTuple_SetItem", [several, at, self._pointer(self.made, at)], "i32")

        f.loop(0, self.outputs, 1, put)
        return several
