"""Tensor maps that a host program made before: found again by what they are made of, by many threads at a time.

The runtime gives a program an area of zeros: two counters, then for every place of the program that needs a map a
table of some that it made. A reader copies a map and looks whether it was being written meanwhile; who finds a table
at work goes on without it. So nobody waits, and a map that was made twice is the worst that happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tessera.ir.target.llvm.instructions import Value
from tessera.ir.target.llvm.text import FunctionText

WAYS = 16
"""Maps that are kept for a place, the oldest out first."""
KEY, MAP = 8, 16
"""Words of what a map is made of, and of the map."""
_VERSION, _KEY, _MAP, _ENTRY = 0, 64, 128, 256
"""Bytes from the start of an entry to its parts, and to the next entry; an odd version is being written, 0 is none."""
_HEAD = 64
REUSED, CREATED = 0, 1
"""The counters, by their words at the start of the area."""


def area_bytes(places: int) -> int:
    """Bytes of the area of a program with so many places."""
    return _HEAD + places * (_HEAD + WAYS * _ENTRY) if places else 0


class KeptMaps:
    """The writing of all that a host program does with the maps it keeps."""

    def __init__(self, f: FunctionText, area: Value) -> None:
        self.f, self.area, self.places = f, area, 0
        self._key = f.alloca("i64", KEY)

    def get(self, words: Sequence[Value], target: Value, make: Callable[[], None]) -> None:
        """Put the map that is made of these words at `target`: one that is kept, or what `make` writes there."""
        f, module = self.f, self.f.module
        place = f.gep(self.area, _HEAD + self.places * (_HEAD + WAYS * _ENTRY), "i8")
        self.places += 1
        assert len(words) <= KEY
        for at in range(KEY):
            f.store(words[at] if at < len(words) else f.const_i(0), f.gep(self._key, at, "i64"), align=8)
        pointers = [("ptr", "place"), ("ptr", "key"), ("ptr", "map")]
        find = module.outline("find_map", "find_map", pointers, _write_find, ret="i1")
        keep = module.outline("keep_map", "keep_map", pointers, _write_keep)
        given = f"ptr {place.text}, ptr {self._key.text}, ptr {target.text}"

        def made() -> None:
            make()
            f.line(f"call void @{keep}({given})")
            self._count(CREATED)

        f.if_(f.raw("i1", f"call i1 @{find}({given})"), lambda: self._count(REUSED), made)

    def _count(self, counter: int) -> None:
        self.f.atomic("add", self.f.gep(self.area, counter, "i64"), self.f.const_i(1))


def _load(f: FunctionText, pointer: Value, order: str = "monotonic") -> Value:
    return f.raw("i64", f"load atomic i64, ptr {pointer.text} {order}, align 8")


def _store(f: FunctionText, value: Value, pointer: Value, order: str = "monotonic") -> None:
    f.line(f"store atomic {value}, ptr {pointer.text} {order}, align 8")


def _move(f: FunctionText, source: Value, target: Value, words: int) -> None:
    for at in range(words):
        _store(f, _load(f, f.gep(source, at, "i64")), f.gep(target, at, "i64"))


def _write_find(f: FunctionText) -> None:
    """Copy the map with this key to its target and say so; false where none is kept, or is whole at the moment."""
    place, key, target = f.arguments
    wanted = [f.load(f.gep(key, at, "i64"), "i64") for at in range(KEY)]

    def look(number: Value) -> None:
        entry = f.gep(f.gep(place, _HEAD, "i8"), f.mul(number, _ENTRY), "i8")
        version = _load(f, entry, "acquire")
        whole = f.icmp("eq", f.op("and", version, f.const_i(1)), 0)
        same = f.op("and", whole, f.icmp("ne", version, 0))
        for at, word in enumerate(wanted):
            same = f.op("and", same, f.icmp("eq", _load(f, f.gep(entry, _KEY // 8 + at, "i64")), word))

        def copy() -> None:
            _move(f, f.gep(entry, _MAP, "i8"), target, MAP)
            f.line("fence acquire")
            f.if_(f.icmp("eq", _load(f, entry), version), lambda: f.ret(Value("i1", "true")))

        f.if_(same, copy)

    f.loop(0, WAYS, 1, look)
    f.ret(Value("i1", "false"))


def _write_keep(f: FunctionText) -> None:
    """Put a map into the oldest entry of its place, unless somebody is about to."""
    place, key, source = f.arguments
    turn = f.op("and", f.atomic("add", place, f.const_i(1)), f.const_i(WAYS - 1))
    entry = f.gep(f.gep(place, _HEAD, "i8"), f.mul(turn, _ENTRY), "i8")
    version = _load(f, entry)
    f.if_(f.icmp("ne", f.op("and", version, f.const_i(1)), 0), f.ret)
    odd, even = f.add(version, 1), f.add(version, 2)
    pair = f.raw("{ i64, i1 }", f"cmpxchg ptr {entry.text}, {version}, {odd} acquire monotonic, align 8")
    is_ours = f.raw("i1", f"extractvalue {{ i64, i1 }} {pair.text}, 1")

    def write() -> None:
        f.line("fence release")
        _move(f, key, f.gep(entry, _KEY, "i8"), KEY)
        _move(f, source, f.gep(entry, _MAP, "i8"), MAP)
        _store(f, even, entry, "release")

    f.if_(is_ours, write)
    f.ret()
