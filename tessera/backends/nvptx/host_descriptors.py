"""TMA descriptors of a host program: how one is made, and a cache of those made before, which many threads use.

A descriptor costs the driver more to make than a launch costs, and a call that comes again wants the same ones. So each
access keeps the last of them in an area of the runtime, by the words that they are made of. Readers take no lock: an
entry has a version, which is odd while it is written, and a copy counts only if the version is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.backends.nvptx.text import DescriptorCode
from tessera.ir.target.llvm.instructions import Value, constant_of
from tessera.ir.target.llvm.text import FunctionText

BYTES = 128
"""Of a TMA descriptor (`CUtensorMap`)."""
MAP_DTYPES = {
    **dict.fromkeys(("u8", "i8", "i4", "bool", "f8e4m3", "f8e5m2"), 0),
    **dict.fromkeys(("u16", "i16"), 1),
    **dict(zip(("u32", "i32", "u64", "i64", "f16", "f32", "f64", "bf16"), range(2, 10), strict=True)),
    "tf32": 11,
}
"""The driver's numbers of dtypes (`CUtensorMapDataType`): bytes are copied as they are; a copy as tf32 rounds f32."""
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
_WHOLE_LINES, _L2_128B, _L2_256B = 256, 2, 3
"""Bytes at a time into L2 (`CU_TENSOR_MAP_L2_PROMOTION_L2_256B`): 128 where rows do not begin at multiples of 256, of
which as many would be read for nothing: 3 % of 3000 x 3000 x 3000 in bf16 on an H200."""
NUMBERS = 32
"""Words of memory for the extents, strides, box and steps of a descriptor that is made."""
KEPT = 16
"""Descriptors that are kept for an access, the oldest out first."""
KEY, MAP = 8, 16
"""Words of what a descriptor is made of, and of the descriptor."""
_VERSION, _KEY, _MAP, _ENTRY = 0, 64, 128, 256
"""Bytes from the start of an entry to its parts, and to the next entry; an odd version is being written, 0 is none."""
_HEAD = 64
"""Bytes of counters before entries: a cache line of the CPU."""
REUSED, CREATED = 0, 1
"""The counters, by their words at the start of the area."""


def area_bytes(accesses: int) -> int:
    """Bytes of the area of a program with so many accesses that need descriptors."""
    return _HEAD + accesses * (_HEAD + KEPT * _ENTRY) if accesses else 0


def encode_arguments(
    f: FunctionText, code: DescriptorCode, numbers: Value, buffer: Value, sizes: Sequence[Value], pitch: Value
) -> list[Value]:
    """The arguments of `cuTensorMapEncodeTiled` behind the first; `numbers` is memory for those that are arrays.

    Those of `cuTensorMapEncodeIm2col` for a descriptor of windows.

    `sizes` are the extents of the dims, innermost first, and `pitch` bytes from one row to the next.
    """
    if code.steps:
        return _encode_windows(f, code, numbers, buffer, sizes, pitch)
    dims, strides, box, steps = (f.gep(numbers, NUMBERS // 4 * at, "i64") for at in range(4))
    stride, box_sizes = pitch, list(code.box)
    pairs: list[tuple[Value, Value]] = []
    for at, extent in enumerate(sizes):
        pairs.append((extent, stride))
        if at == code.cut:
            # Rows are counted from the end of the dim, to which a copy adds where it ends.
            pairs.append((f.add(extent, 1), stride))
            box_sizes.insert(at + 1, 1)
            buffer = f.gep(buffer, f.sub(f.const_i(0), f.mul(stride, extent)), "i8")
        stride = f.mul(stride, extent) if at > 0 else stride
    for at, (extent, distance) in enumerate(pairs):
        f.store(extent, f.gep(dims, at, "i64"), align=8)
        if at > 0:
            f.store(distance, f.gep(strides, at - 1, "i64"), align=8)
    for at, size in enumerate(box_sizes):
        f.store(Value("i32", str(size)), f.gep(box, at, "i32"), align=4)
        f.store(Value("i32", "1"), f.gep(steps, at, "i32"), align=4)
    words = (MAP_DTYPES[code.dtype], len(pairs), 0, _SWIZZLES[code.swizzle], 0)
    dtype, rank, interleave, swizzle, fill = (Value("i32", str(number)) for number in words)
    promotion = _promotion(f, pitch)
    return [dtype, rank, buffer, dims, strides, box, steps, interleave, swizzle, promotion, fill]


def _encode_windows(
    f: FunctionText, code: DescriptorCode, numbers: Value, buffer: Value, sizes: Sequence[Value], pitch: Value
) -> list[Value]:
    """The arguments of `cuTensorMapEncodeIm2col` behind the first."""
    dims, strides, corners, steps = (f.gep(numbers, NUMBERS // 4 * at, "i64") for at in range(4))
    stride = pitch
    for at, extent in enumerate(sizes):
        f.store(extent, f.gep(dims, at, "i64"), align=8)
        if at > 0:
            f.store(stride, f.gep(strides, at - 1, "i64"), align=8)
            stride = f.mul(stride, extent)
        step = code.steps[at - 1] if 0 < at < len(sizes) - 1 else 1
        f.store(Value("i32", str(step)), f.gep(steps, at, "i32"), align=4)
    high = f.gep(corners, NUMBERS // 8, "i64")
    for array, own in ((corners, code.low), (high, code.high)):
        for at, corner in enumerate(own):
            f.store(Value("i32", str(corner)), f.gep(array, at, "i32"), align=4)
    words = (MAP_DTYPES[code.dtype], len(sizes), *code.box, 0, _SWIZZLES[code.swizzle], 0)
    dtype, rank, channels, positions, interleave, swizzle, fill = (Value("i32", str(number)) for number in words)
    before = [dtype, rank, buffer, dims, strides, corners, high, channels, positions, steps]
    return [*before, interleave, swizzle, _promotion(f, pitch), fill]


def _promotion(f: FunctionText, pitch: Value) -> Value:
    """How much is read into L2 at a time where rows are so many bytes apart."""
    whole, part = (Value("i32", str(number)) for number in (_L2_256B, _L2_128B))
    known = constant_of(pitch)
    if known is not None:
        return part if known % _WHOLE_LINES else whole
    return f.select(f.icmp("eq", f.urem(pitch, _WHOLE_LINES), 0), whole, part)


class DescriptorCache:
    """All that a host program does with the descriptors it keeps, written.

    A training step has hundreds of descriptors of a few forms. What is done to get one is a function for each form, and
    the sizes of one are a table of constants wherever they are known: a call for each is all that is written.
    """

    def __init__(self, f: FunctionText, area: Value, encode: Value, encode_windows: Value) -> None:
        self.f, self.area, self.accesses = f, area, 0
        self.encode, self.encode_windows = encode, encode_windows
        self._sizes = f.alloca("i64", KEY - 1)

    def get(self, code: DescriptorCode, buffer: Value, sizes: Sequence[Value], pitch: Value, target: Value) -> Value:
        """Put the descriptor of a buffer at `target`, one that is kept or a new one; the driver's error.

        `sizes` are the extents of the dims, innermost first, and `pitch` bytes from one row to the next.
        """
        f, rank = self.f, len(sizes)
        form = (code.dtype, code.box, code.swizzle, code.cut, code.low, code.high, code.steps, rank)
        names = ("area", "place", "sizes", "buffer", "map", "encode")
        pointers = [("ptr", name) for name in names]
        found = f.module.outline(
            ("get_map", form), "get_map", pointers, lambda inner: _write_get(inner, code, rank), ret="i32"
        )
        table = f.gep(self.area, _HEAD + self.accesses * (_HEAD + KEPT * _ENTRY), "i8")
        self.accesses += 1
        encode = self.encode_windows if code.steps else self.encode
        given = (self.area, table, self._table_of([pitch, *sizes]), buffer, target, encode)
        return f.raw("i32", f"call i32 @{found}({', '.join(map(str, given))})")

    def _table_of(self, words: Sequence[Value]) -> Value:
        """Where a function finds the words of a key behind its address: constants, or as this call has them."""
        assert len(words) < KEY
        f, padded = self.f, [*words, *[self.f.const_i(0)] * (KEY - 1 - len(words))]
        known = [number for word in padded if (number := constant_of(word)) is not None]
        if len(known) == len(padded):
            return f.module.constant("i64", known, align=8)
        for at, word in enumerate(padded):
            f.store(word, f.gep(self._sizes, at, "i64"), align=8)
        return self._sizes


def _write_get(f: FunctionText, code: DescriptorCode, rank: int) -> None:
    """Copy the descriptor that is kept for a buffer of these sizes to its target, or make it; the driver's error."""
    area, table, given, buffer, target, encode = f.arguments
    key, numbers = f.alloca("i64", KEY), f.alloca("i64", NUMBERS)
    f.store(f.raw("i64", f"ptrtoint {buffer} to i64"), key, align=8)
    words = [f.load(f.gep(given, at, "i64"), "i64") for at in range(KEY - 1)]
    for at, word in enumerate(words):
        f.store(word, f.gep(key, 1 + at, "i64"), align=8)
    pointers = [("ptr", "place"), ("ptr", "key"), ("ptr", "map")]
    find = f.module.outline("find_map", "find_map", pointers, _write_find, ret="i1")
    keep = f.module.outline("keep_map", "keep_map", pointers, _write_keep)
    arguments = ", ".join(map(str, (table, key, target)))

    def count(counter: int) -> None:
        f.atomic("add", f.gep(area, counter, "i64"), f.const_i(1))
        f.ret(Value("i32", "0"))

    f.if_(f.raw("i1", f"call i1 @{find}({arguments})"), lambda: count(REUSED))
    wanted = [target, *encode_arguments(f, code, numbers, buffer, words[1 : 1 + rank], words[0])]
    failed = f.raw("i32", f"call i32 {encode.text}({', '.join(map(str, wanted))})")
    f.if_(f.icmp("ne", failed, Value("i32", "0")), lambda: f.ret(failed))
    f.line(f"call void @{keep}({arguments})")
    count(CREATED)


def _load(f: FunctionText, pointer: Value, order: str = "monotonic") -> Value:
    return f.raw("i64", f"load atomic i64, ptr {pointer.text} {order}, align 8")


def _store(f: FunctionText, value: Value, pointer: Value, order: str = "monotonic") -> None:
    f.line(f"store atomic {value}, ptr {pointer.text} {order}, align 8")


def _move(f: FunctionText, source: Value, target: Value, words: int) -> None:
    for at in range(words):
        _store(f, _load(f, f.gep(source, at, "i64")), f.gep(target, at, "i64"))


def _write_find(f: FunctionText) -> None:
    """Copy the descriptor with this key to its target and say so; false where none is kept, or is whole now."""
    table, key, target = f.arguments
    wanted = [f.load(f.gep(key, at, "i64"), "i64") for at in range(KEY)]

    def look(number: Value) -> None:
        entry = f.gep(f.gep(table, _HEAD, "i8"), f.mul(number, _ENTRY), "i8")
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

    f.loop(0, KEPT, 1, look)
    f.ret(Value("i1", "false"))


def _write_keep(f: FunctionText) -> None:
    """Put a descriptor into the oldest entry of its table, unless another thread is about to."""
    table, key, source = f.arguments
    number = f.op("and", f.atomic("add", table, f.const_i(1)), f.const_i(KEPT - 1))
    entry = f.gep(f.gep(table, _HEAD, "i8"), f.mul(number, _ENTRY), "i8")
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
