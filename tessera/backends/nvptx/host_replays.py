"""Native code that finds launches which were recorded for the very same addresses, and notes those that come again.

All that a host program puts into a queue follows from its sizes, which belong to a plan, and from the addresses of its
results, its workspace and its inputs. Where these are as they were, a graph of the driver made from the launches does
the same at the cost of one of them. The table that says which graphs there are is the runtime's
(`runtime/devices/cuda/graphs.py`), and is looked at only while the thread has Python.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText
from tessera.runtime.devices.cuda.graphs import HEAD, MISSED, NEEDED, NOBODY, NODES, OFTEN, WAY, WAYS

_NULL = Value("ptr", "null")


class Replays:
    """The writing of one look into a table that may not be there, for `count` addresses that lie at `words`."""

    def __init__(self, f: FunctionText, table: Value, words: Value, count: int) -> None:
        self.f, self.table, self.words, self.count = f, table, words, count
        self.has_table = f.icmp("ne", table, _NULL)
        self.state = f.alloca("i32")
        self.way = self.graph = _NULL
        self.is_replay = Value("i1", "false")

    def begin(self, stream: Value) -> None:
        """Look for the graph of these addresses, which then stays until `end`.

        A queue that somebody records takes launches, and no graphs; the one that everybody shares is never recorded.
        """
        f = self.f
        is_named = f.op("and", self.has_table, f.icmp("ne", stream, _NULL))
        is_free = f.if_(is_named, lambda: self._is_free(stream), lambda: Value("i1", "true"))[0]
        self.has_table = f.op("and", self.has_table, is_free)
        way, graph = f.if_(self.has_table, self._found, lambda: [_NULL, _NULL])
        self.way, self.graph, self.is_replay = way, graph, f.icmp("ne", graph, _NULL)
        f.if_(self.is_replay, self._began)

    def run(self, stream: Value, plain: Callable[[], Value]) -> Value:
        """Launch the graph, or do it plainly where there is none."""
        f = self.f

        def launch() -> Value:
            function = f.load(self._place("launch"), "ptr")
            return f.cast("zext", f.raw("i32", f"call i32 {function.text}({self.graph}, {stream})"), "i64")

        return f.if_(self.is_replay, launch, plain)[0]

    def end(self) -> None:
        """The graph may go; whoever finds what he looks for has nothing to complain of."""
        self.f.if_(self.is_replay, self._ended)

    def _is_free(self, stream: Value) -> Value:
        """Whether nobody records a queue."""
        f = self.f
        function = f.load(self._place("recorded"), "ptr")
        code = f.raw("i32", f"call i32 {function.text}({stream}, {self.state})")
        return f.icmp("eq", f.op("or", code, f.load(self.state, "i32")), Value("i32", "0"))

    def _began(self) -> None:
        self._add("busy", 1)

    def _ended(self) -> None:
        self._add("busy", -1)
        self.f.store(self.f.const_i(0), self._place("missed"), align=8)

    def note(self, fail: Callable[[], None]) -> None:
        """Note a call that was made plainly; one that comes often is recorded by Python, which may `fail`."""
        f = self.f
        is_plain = f.op("and", self.has_table, f.op("xor", self.is_replay, Value("i1", "true")))
        is_known = f.icmp("ne", self.way, _NULL)

        def plain() -> None:
            launched = self._add("plain", 1)
            f.if_(f.icmp("eq", launched, OFTEN), lambda: self._ask(f.const_i(NODES), fail))
            f.if_(is_known, lambda: self._again(fail), lambda: self._new(fail))

        f.if_(is_plain, plain)

    def _place(self, name: str) -> Value:
        return self.f.gep(self.table, HEAD.index(name), "i64")

    def _add(self, name: str, step: int) -> Value:
        place = self._place(name)
        found = self.f.add(self.f.load(place, "i64"), step)
        self.f.store(found, place, align=8)
        return found

    def _way(self, at: Value) -> Value:
        start = self.f.add(self.f.mul(at, len(WAY) + self.count), len(HEAD))
        return self.f.gep(self.table, start, "i64")

    def _found(self) -> list[Value]:
        """The way of these addresses, if there is one, and its graph, if that was made."""
        f = self.f

        def goes_on(state: list[Value]) -> Value:
            return f.op("and", f.icmp("slt", state[0], WAYS), f.icmp("eq", state[1], _NULL))

        def look(state: list[Value]) -> list[Value]:
            way = self._way(state[0])
            return [f.add(state[0], 1), f.select(self._is_same(way), way, _NULL)]

        _, way = f.while_([f.const_i(0), _NULL], goes_on, look)
        graph = f.if_(f.icmp("ne", way, _NULL), lambda: f.load(way, "ptr"), lambda: _NULL)[0]
        return [way, graph]

    def _is_same(self, way: Value) -> Value:
        f = self.f

        def is_equal(at: Value) -> Value:
            mine, other = f.gep(self.words, at, "i64"), f.gep(way, f.add(at, len(WAY)), "i64")
            return f.icmp("eq", f.load(mine, "i64"), f.load(other, "i64"))

        def goes_on(state: list[Value]) -> Value:
            is_inside = f.icmp("slt", state[0], self.count)
            return f.if_(is_inside, lambda: is_equal(state[0]), lambda: Value("i1", "false"))[0]

        (at,) = f.while_([f.const_i(0)], goes_on, lambda state: [f.add(state[0], 1)])
        return f.icmp("eq", at, self.count)

    def _again(self, fail: Callable[[], None]) -> None:
        """One more call with addresses that are known."""
        f = self.f
        place = f.gep(self.way, WAY.index("count"), "i64")
        count = f.add(f.load(place, "i64"), 1)
        f.store(count, place, align=8)
        f.if_(f.icmp("eq", count, NEEDED), lambda: self._ask(f.raw("i64", f"ptrtoint {self.way} to i64"), fail))

    def _new(self, fail: Callable[[], None]) -> None:
        """Addresses that are not known take the next way, unless that has a graph; too many of them, and all go."""
        f = self.f
        at = f.load(self._place("next"), "i64")
        f.store(f.urem(f.add(at, 1), WAYS), self._place("next"), align=8)
        way = self._way(at)

        def take() -> None:
            f.store(f.const_i(1), f.gep(way, WAY.index("count"), "i64"), align=8)

            def copy(one: Value) -> None:
                word = f.load(f.gep(self.words, one, "i64"), "i64")
                f.store(word, f.gep(way, f.add(one, len(WAY)), "i64"), align=8)

            f.loop(0, self.count, 1, copy)

        def miss() -> None:
            missed = self._add("missed", 1)
            f.if_(f.icmp("eq", missed, MISSED), lambda: self._ask(f.const_i(NOBODY), fail))

        f.if_(f.icmp("eq", f.load(way, "ptr"), _NULL), take, miss)

    def _ask(self, wanted: Value, fail: Callable[[], None]) -> None:
        """Ask Python to record the calls of a way, or to let all graphs go."""
        f = self.f
        f.store(wanted, self._place("wanted"), align=8)
        answer = f.call("PyObject_CallNoArgs", [f.load(self._place("maker"), "ptr")], "ptr")
        f.if_(f.icmp("eq", answer, _NULL), fail)
        f.call("Py_DecRef", [answer])
