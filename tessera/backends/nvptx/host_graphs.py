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

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.runtime.devices.cuda.graphs import (
    CAPTURE_AFTER,
    ENTRIES,
    ENTRY,
    GRID,
    HEAD,
    NODE,
    NODES,
    NODES_AFTER,
    PARAMETERS,
    RELEASE,
    RELEASE_AFTER,
    STRUCT,
)

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
        function = f.load(self._address("recorded"), "ptr")
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
            f.if_(f.icmp("eq", launched, NODES_AFTER), lambda: self._ask(f.const_i(NODES), fail))
            f.if_(is_known, lambda: self._count_known(fail), lambda: self._enter(fail))

        f.if_(is_plain, plain)

    def _address(self, name: str) -> Value:
        return self.f.gep(self.table, HEAD.index(name), "i64")

    def _add(self, name: str, step: int) -> Value:
        address = self._address(name)
        found = self.f.add(self.f.load(address, "i64"), step)
        self.f.store(found, address, align=8)
        return found

    def _entry_at(self, at: Value) -> Value:
        start = self.f.add(self.f.mul(at, len(ENTRY) + self.count), len(HEAD))
        return self.f.gep(self.table, start, "i64")

    def _find(self) -> list[Value]:
        """The entry of these addresses, if there is one, and its graph, if that was captured."""
        f = self.f

        def goes_on(state: list[Value]) -> Value:
            return f.op("and", f.icmp("slt", state[0], ENTRIES), f.icmp("eq", state[1], _NULL))

        def look(state: list[Value]) -> list[Value]:
            entry = self._entry_at(state[0])
            return [f.add(state[0], 1), f.select(self._has_same_addresses(entry), entry, _NULL)]

        _, entry = f.while_([f.const_i(0), _NULL], goes_on, look)
        graph = f.if_(f.icmp("ne", entry, _NULL), lambda: f.load(entry, "ptr"), lambda: _NULL)[0]
        return [entry, graph]

    def _has_same_addresses(self, entry: Value) -> Value:
        f = self.f

        def is_equal(at: Value) -> Value:
            mine, other = f.gep(self.words, at, "i64"), f.gep(entry, f.add(at, len(ENTRY)), "i64")
            return f.icmp("eq", f.load(mine, "i64"), f.load(other, "i64"))

        def goes_on(state: list[Value]) -> Value:
            is_inside = f.icmp("slt", state[0], self.count)
            return f.if_(is_inside, lambda: is_equal(state[0]), lambda: Value("i1", "false"))[0]

        (at,) = f.while_([f.const_i(0)], goes_on, lambda state: [f.add(state[0], 1)])
        return f.icmp("eq", at, self.count)

    def _count_known(self, fail: Callable[[], None]) -> None:
        """One more call with addresses that are known."""
        f = self.f
        address = f.gep(self.entry, ENTRY.index("count"), "i64")
        count = f.add(f.load(address, "i64"), 1)
        f.store(count, address, align=8)
        f.if_(
            f.icmp("eq", count, CAPTURE_AFTER), lambda: self._ask(f.raw("i64", f"ptrtoint {self.entry} to i64"), fail)
        )

    def _enter(self, fail: Callable[[], None]) -> None:
        """Addresses that are not known take the next entry, unless that has a graph; too many of them, and all go."""
        f = self.f
        at = f.load(self._address("next"), "i64")
        f.store(f.urem(f.add(at, 1), ENTRIES), self._address("next"), align=8)
        entry = self._entry_at(at)

        def take() -> None:
            f.store(f.const_i(1), f.gep(entry, ENTRY.index("count"), "i64"), align=8)

            def copy(one: Value) -> None:
                word = f.load(f.gep(self.words, one, "i64"), "i64")
                f.store(word, f.gep(entry, f.add(one, len(ENTRY)), "i64"), align=8)

            f.loop(0, self.count, 1, copy)

        def miss() -> None:
            missed = self._add("missed", 1)
            f.if_(f.icmp("eq", missed, RELEASE_AFTER), lambda: self._ask(f.const_i(RELEASE), fail))

        f.if_(f.icmp("eq", f.load(entry, "ptr"), _NULL), take, miss)

    def _ask(self, wanted: Value, fail: Callable[[], None]) -> None:
        """Ask Python to capture the calls of an entry, or to destroy all graphs."""
        f = self.f
        f.store(wanted, self._address("wanted"), align=8)
        answer = f.call("PyObject_CallNoArgs", [f.load(self._address("maker"), "ptr")], "ptr")
        f.if_(f.icmp("eq", answer, _NULL), fail)
        f.call("Py_DecRef", [answer])


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
            f.store(value, f.gep(self.record, STRUCT + GRID + 4 * at, "i8"), align=4)
        f.store(f.arguments[9], f.gep(self.record, STRUCT + PARAMETERS, "i8"), align=8)
        graph, node = (f.load(self._at(name), "ptr") for name in ("graph", "node"))
        code = self._call("set", [graph, node, f.gep(self.record, STRUCT, "i8")])

        def refuse() -> None:
            self._unlock()
            self._launch()

        f.if_(f.icmp("ne", code, Value("i32", "0")), refuse)
        code = self._call("play", [graph, self.stream])
        self._unlock()
        f.ret(code)

    def _at(self, name: str) -> Value:
        return self.f.gep(self.record, NODE.index(name), "i64")

    def _call(self, name: str, arguments: list[Value]) -> Value:
        function = self.f.load(self._at(name), "ptr")
        return self.f.raw("i32", f"call i32 {function.text}({', '.join(map(str, arguments))})")

    def _launch_if_captured(self) -> None:
        """A stream that is being captured takes launches alone."""
        f = self.f
        code = self._call("recorded", [self.stream, self.state])
        is_free = f.icmp("eq", f.op("or", code, f.load(self.state, "i32")), Value("i32", "0"))
        f.if_(is_free, lambda: None, self._launch)

    def _unlock(self) -> None:
        self.f.line(f"store atomic i64 0, ptr {self._at('lock').text} release, align 8")

    def _launch(self) -> None:
        f = self.f
        f.ret(self._call("launch", [f.load(self._at("kernel"), "ptr"), *f.arguments[1:]]))
