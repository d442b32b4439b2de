"""`tessera_launch`: a launch as a graph of one kernel that is told new arguments, which costs the host less.

It takes what `cuLaunchKernel` takes, but for the first: in place of a kernel it gets the record of a node
(`runtime/devices/cuda/graphs.py`). Where another thread is at that node, or the queue is being recorded, it launches.
"""

from __future__ import annotations

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText, ModuleText
from tessera.runtime.devices.cuda.graphs import GRID, NODE, PARAMETERS, STRUCT

_NULL = Value("ptr", "null")
_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")


def write_launch(module: ModuleText) -> None:
    """Write the function."""
    given = [("ptr", "record"), *(("i32", name) for name in _SHAPE)]
    given += [("ptr", "stream"), ("ptr", "parameters"), ("ptr", "extra")]
    _Launch(module.function("tessera_launch", given, ret="i32")).run()


class _Launch:
    def __init__(self, f: FunctionText) -> None:
        self.f, self.record, self.stream = f, f.arguments[0], f.arguments[8]
        self.state = f.alloca("i32")

    def run(self) -> None:
        f = self.f
        f.if_(f.icmp("ne", self.stream, _NULL), self._look)
        pair = f.raw("{ i64, i1 }", f"cmpxchg ptr {self._at('lock').text}, i64 0, i64 1 acquire monotonic, align 8")
        is_mine = f.raw("i1", f"extractvalue {pair}, 1")
        f.if_(is_mine, lambda: None, self._plain)
        for at, value in enumerate(f.arguments[1:8]):
            f.store(value, f.gep(self.record, STRUCT + GRID + 4 * at, "i8"), align=4)
        f.store(f.arguments[9], f.gep(self.record, STRUCT + PARAMETERS, "i8"), align=8)
        graph, node = (f.load(self._at(name), "ptr") for name in ("graph", "node"))
        code = self._asked("set", [graph, node, f.gep(self.record, STRUCT, "i8")])

        def refuse() -> None:
            self._leave()
            self._plain()

        f.if_(f.icmp("ne", code, Value("i32", "0")), refuse)
        code = self._asked("play", [graph, self.stream])
        self._leave()
        f.ret(code)

    def _at(self, name: str) -> Value:
        return self.f.gep(self.record, NODE.index(name), "i64")

    def _asked(self, name: str, given: list[Value]) -> Value:
        function = self.f.load(self._at(name), "ptr")
        return self.f.raw("i32", f"call i32 {function.text}({', '.join(map(str, given))})")

    def _look(self) -> None:
        """A queue that somebody records takes launches alone."""
        f = self.f
        code = self._asked("recorded", [self.stream, self.state])
        is_free = f.icmp("eq", f.op("or", code, f.load(self.state, "i32")), Value("i32", "0"))
        f.if_(is_free, lambda: None, self._plain)

    def _leave(self) -> None:
        self.f.line(f"store atomic i64 0, ptr {self._at('lock').text} release, align 8")

    def _plain(self) -> None:
        f = self.f
        f.ret(self._asked("launch", [f.load(self._at("kernel"), "ptr"), *f.arguments[1:]]))
