"""The PTX of a kernel of rows, run on the CPU thread by thread: what a GPU would store, without one.

PTX becomes Python, a generator for each thread, which stops where threads exchange something or wait for each other.
Memory that is nobody's is an error, and so is a result that is written twice, or not at all. Blocks of a cluster run
together, all others one after the other. It knows the instructions that such kernels have and no others; f32 is
rounded as the machine does it.
"""

# Functions are called by the text that is made here, and numbers have no types.
# pyright: reportUnusedFunction=false, reportUnknownLambdaType=false, reportUnknownVariableType=false
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
from __future__ import annotations

import ctypes
import math
import re
import struct
from collections.abc import Generator, Sequence
from functools import cache
from typing import Any

import numpy as np

WARP = 32
SHARED, CLUSTER, BASE, SPAN = 1 << 60, 1 << 24, 1 << 32, 1 << 32
"""Where shared memory is for generic pointers, the blocks of a cluster in it, and buffers, which are so far apart."""
_ALIGNED = 16


_word, _single, _double, _long = (struct.Struct(f"<{kind}") for kind in "Ifdq")
_cell = ctypes.c_float()
"""What is put there is rounded to f32, an overflow to an infinity."""


def _f(word: int, pack: Any = _word.pack, unpack: Any = _single.unpack) -> float:
    return unpack(pack(word & 0xFFFFFFFF))[0]


def _w(number: float, pack: Any = _single.pack, unpack: Any = _word.unpack) -> int:
    if number != number:
        return 0x7FFFFFFF
    try:
        return unpack(pack(number))[0]
    except OverflowError:
        return 0x7F800000 if number > 0 else 0xFF800000


def _fma(a: float, b: float, c: float) -> float:
    """Rounded to odd in f64, so that rounding to f32 is that of the exact sum."""
    product = a * b
    total = product + c
    if not math.isfinite(total):
        return total
    back = total - product
    error = (product - (total - back)) + (c - back)
    if error:
        bits = _long.unpack(_double.pack(total))[0]
        if not bits & 1:
            up = (error > 0) == (total > 0)
            total = _double.unpack(_long.pack(bits + (1 if up else -1)))[0]
    return total


def _divide(a: float, b: float) -> float:
    if b == 0:
        return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1, b)
    return a / b


def _minmax(name: str, a: float, b: float) -> float:
    if a != a or b != b:
        return math.nan
    if a == b:
        return a if (math.copysign(1, a) > 0) == (name == "max") else b
    return max(a, b) if name == "max" else min(a, b)


def _bf16(number: float) -> int:
    word = _w(number)
    return 0x7FFF if number != number else (word + 0x7FFF + (word >> 16 & 1)) >> 16 & 0xFFFF


def _pairs(name: str, a: int, b: int) -> int:
    functions = {"add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y}
    function = functions.get(name, lambda x, y: _minmax(name, x, y))
    halves = [_bf16(_f(_w(function(_f(a << at & 0xFFFF0000), _f(b << at & 0xFFFF0000))))) for at in (16, 0)]
    return halves[0] | halves[1] << 16


def _half(number: float) -> int:
    with np.errstate(over="ignore"):
        return int(np.float32(number).astype(np.float16).view(np.uint16))


def _wide(half: int) -> float:
    return float(np.uint16(half & 0xFFFF).view(np.float16))


def _s(number: int, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> bits - 1 else number


class Memory:
    """Buffers of a call, which may be read to the end of their last 16 bytes, and shared memory of a cluster."""

    def __init__(self, buffers: Sequence[Any], blocks: int, shared: int) -> None:
        self.buffers = [bytearray(one.tobytes()) for one in buffers]
        self.written = [bytearray(len(one)) for one in self.buffers]
        self.shared = [bytearray(b"\xff" * shared) for _ in range(blocks)]
        self.barriers: dict[int, list[int]] = {}
        """By address: the parity of the phase, arrivals, and bytes that are missing."""

    def begin(self, address: int, arrivals: int) -> None:
        assert arrivals == 1, "one thread arrives, and copies"
        self.barriers[address] = [0, 1, 0]

    def phase(self, address: int) -> int:
        return self.barriers[address][0]

    def expect(self, address: int, count: int) -> None:
        state = self.barriers[address]
        assert state[1] == 1, "a phase ends before the next begins"
        state[1:] = [0, state[2] + count]
        self._end(state)

    def copy(self, target: int, source: int, count: int, barrier: int) -> None:
        """All of it at once, the worst case for whoever still reads what was there."""
        assert target % _ALIGNED == source % _ALIGNED == count % _ALIGNED == 0, "a copy is of 16 aligned bytes"
        for at in range(0, count, 4):
            self.store(target + at, 4, self.load(source + at, 4))
        state = self.barriers[barrier]
        state[2] -= count
        self._end(state)

    @staticmethod
    def _end(state: list[int]) -> None:
        if state[1:] == [0, 0]:
            state[:] = [state[0] ^ 1, 1, 0]

    def load(self, address: int, size: int) -> int:
        assert address % size == 0, "an access is aligned to its size"
        if address >= SHARED:
            block, at = divmod(address - SHARED, CLUSTER)
            assert at + size <= len(self.shared[block])
            return int.from_bytes(self.shared[block][at : at + size], "little")
        number, at = divmod(address - BASE, SPAN)
        held = self.buffers[number]
        assert 0 <= at <= -(-len(held) // _ALIGNED) * _ALIGNED - size, f"byte {at} of {len(held)} is read"
        return int.from_bytes((held[at : at + size] + b"\xff" * size)[:size], "little")

    def store(self, address: int, size: int, value: int) -> None:
        assert address % size == 0, "an access is aligned to its size"
        data = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
        if address >= SHARED:
            block, at = divmod(address - SHARED, CLUSTER)
            assert at + size <= len(self.shared[block])
            self.shared[block][at : at + size] = data
            return
        number, at = divmod(address - BASE, SPAN)
        assert 0 <= at <= len(self.buffers[number]) - size, f"byte {at} of {len(self.buffers[number])} is written"
        assert not any(self.written[number][at : at + size]), f"byte {at} is written twice"
        self.buffers[number][at : at + size] = data
        self.written[number][at : at + size] = b"\1" * size


# PTX to Python.

_REGISTER = re.compile(r"%(\w+)")
_SPECIAL = {"%tid.x": "tid", "%ctaid.x": "ctaid", "%ntid.x": "ntid", "%nctaid.x": "nctaid", "%laneid": "tid % 32"}
_COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _operand(text: str) -> str:
    text = text.strip()
    if text in _SPECIAL:
        return _SPECIAL[text]
    if text.startswith("0f"):
        return str(int(text[2:], 16))
    if text.startswith("%"):
        return text[1:]
    return {"shared_memory": str(SHARED), "true": "1"}.get(text, text)


def _split(text: str) -> list[str]:
    """Operands, those in braces as one."""
    return [part.strip() for part in re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s][^,]*", text)]


def _address(text: str) -> str:
    return "(" + "+".join(_operand(part) for part in text.strip("[] ").split("+")) + ")"


def _integer(op: str, args: list[str], suffix: str) -> str:
    bits = int(suffix[1:])
    mask = (1 << bits) - 1
    a, b = (args[1], args[2]) if len(args) > 2 else (args[1], "0")
    if suffix[0] == "s" and op in ("min", "max"):
        return f"{op}(_s({a}, {bits}), _s({b}, {bits})) & {mask}"
    if op == "shr" and suffix[0] == "s":
        return f"(_s({a}, {bits}) >> {b}) & {mask}"
    signs = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
    if op in signs:
        return f"(({a}) {signs[op]} ({b})) & {mask}"
    if op == "shl":
        return f"(({a}) << min({b}, 64)) & {mask}"
    if op == "shr":
        return f"(({a}) & {mask}) >> min({b}, 64)"
    a = f"(({a}) & {mask})"
    found = {"not": f"~{a} & {mask}", "div": f"{a} // (({b}) & {mask})", "rem": f"{a} % ({b})",
        "min": f"min({a}, {b})", "max": f"max({a}, {b})", "neg": f"-{a} & {mask}"}  # fmt: skip
    return found[op]


_FLOAT = {"add": "{}+{}", "sub": "{}-{}", "mul": "{}*{}", "div": "_divide({},{})", "fma": "_fma({},{},{})",
    "rcp": "_divide(1.0,{})", "sqrt": "math.sqrt({})", "abs": "abs({})", "neg": "-{}",
    "max": "_minmax('max',{},{})", "min": "_minmax('min',{},{})"}  # fmt: skip


def _float(op: str, args: list[str]) -> str:
    return f"_w({_FLOAT[op].format(*(f'_f({arg})' for arg in args[1:]))})"


def _convert(kinds: list[str], args: list[str]) -> str:
    if kinds[-2:] == ["bf16x2", "f32"]:
        return f"_bf16(_f({args[2]})) | _bf16(_f({args[1]})) << 16"
    target, source = kinds[-2:]
    if target in ("bf16", "f16") and source == "f32":
        return f"{'_bf16' if target == 'bf16' else '_half'}(_f({args[1]}))"
    if kinds[-2:] == ["f16x2", "f32"]:
        return f"_half(_f({args[2]})) | _half(_f({args[1]})) << 16"
    if source == "f16":
        return f"_w(_wide({args[1]}))"
    if target == "f32":
        return f"_w(float(_s({args[1]}, {source[1:]})))"
    value = f"_s({args[1]}, {source[1:]})" if source[0] == "s" else f"(({args[1]}) & {(1 << int(source[1:])) - 1})"
    return f"{value} & {(1 << int(target[1:])) - 1}"


def _access(parts: list[str], args: list[str]) -> list[str]:
    """A load or store, of one register or several."""
    size = int(re.sub(r"\D", "", parts[-1])) // 8
    is_load = parts[0] == "ld"
    place, given = (args[1], args[0]) if is_load else (args[0], args[1])
    registers = [_operand(one) for one in given.strip("{} ").split(",")]
    address = _address(place)
    if "param" in parts:
        number = place.strip("[] ").rpartition("_")[2]
        return [f"{registers[0]} = parameter[{number}]"]
    if "cluster" in "".join(parts):
        address = f"({SHARED} + {address})"
    elif "shared" in parts:
        address = f"({address} if {address} >= {SHARED} else {SHARED} + {address})"
        address = f"own({address})"
    if len(registers) > 1:
        check = f"assert {address} % {size * len(registers)} == 0, 'an access is aligned to its size'"
    else:
        check = "pass"
    each = [f"{address} + {size * at}" for at in range(len(registers))]
    if is_load:
        return [check, *(f"{name} = memory.load({where}, {size})" for name, where in zip(registers, each, strict=True))]
    return [check, *(f"memory.store({where}, {size}, {name})" for name, where in zip(registers, each, strict=True))]


def _statement(text: str) -> list[str]:
    """One instruction without its guard."""
    name, _, tail = text.partition(" ") if " " in text else text.partition("\t")
    parts, raw = name.replace("::", ".").split("."), _split(tail)
    args = [_operand(one) for one in raw]
    op, last = parts[0], parts[-1]
    if op in ("ld", "st"):
        return _access(parts, raw)
    if op in ("await", "fence", "mbarrier", "cp"):
        return _copies(parts, raw, args)
    if op == "shfl":
        return [f"{args[0]} = yield ('shfl', {parts[2]!r}, {args[1]}, {args[2]})"]
    if op in ("bar", "barrier"):
        return [_barrier(parts, args)]
    if op in ("mov", "cvta"):
        return _move(raw, args)
    return [f"{args[0]} = {_formula(op, parts, last, args)}"]


def _copies(parts: list[str], raw: list[str], args: list[str]) -> list[str]:
    """Copies to shared memory, and barriers that count their bytes."""
    if parts[0] == "await":
        return [f"while memory.phase(own({SHARED} + {_address(raw[0])})) == {args[1]}:", "    yield ('copy',)"]
    if parts[0] == "mbarrier":
        where = f"own({SHARED} + {_address(raw[0] if parts[1] == 'init' else raw[1])})"
        return [f"memory.{'begin' if parts[1] == 'init' else 'expect'}({where}, {args[-1]})"]
    if parts[0] == "cp":
        target, barrier = (f"own({SHARED} + {_address(raw[at])})" for at in (0, 3))
        return [f"memory.copy({target}, {_address(raw[1])}, {args[2]}, {barrier})"]
    return ["pass"]


def _move(raw: list[str], args: list[str]) -> list[str]:
    """A register, or a word to two halves or from them."""
    if raw[0].startswith("{"):
        low, high = (_operand(one) for one in raw[0].strip("{} ").split(","))
        return [f"{low}, {high} = {args[1]} & 0xFFFF, {args[1]} >> 16 & 0xFFFF"]
    if raw[1].startswith("{"):
        low, high = (_operand(one) for one in raw[1].strip("{} ").split(","))
        return [f"{args[0]} = {low} & 0xFFFF | ({high} & 0xFFFF) << 16"]
    return [f"{args[0]} = {args[1]}"]


def _compare(kind: str, type_: str, args: list[str]) -> str:
    if type_.startswith("f"):
        a, b = f"_f({args[1]})", f"_f({args[2]})"
        if kind.endswith("u") and kind[:-1] in _COMPARE:
            other = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}[kind[:-1]]
            return f"not ({a} {_COMPARE[other]} {b})"
        return f"{a} {_COMPARE[kind]} {b}"
    bits = int(type_[1:])
    a, b = (f"_s({one}, {bits})" if type_[0] == "s" else f"(({one}) & {(1 << bits) - 1})" for one in args[1:3])
    return f"{a} {_COMPARE[kind]} {b}"


def _formula(op: str, parts: list[str], last: str, args: list[str]) -> str:
    """What an instruction of registers gives."""
    if op in ("setp", "selp"):
        return _compare(parts[1], last, args) if op == "setp" else f"{args[1]} if {args[3]} else {args[2]}"
    if op == "mapa":
        return f"({args[1]}) % {CLUSTER} + ({args[2]}) * {CLUSTER}"
    if last == "pred":
        sign = {"and": "and", "or": "or", "xor": "!="}.get(op)
        return f"{args[1]} {sign} {args[2]}" if sign else f"not {args[1]}"
    if op == "cvt":
        return _convert(parts, args)
    if op == "shf":
        return f"(({args[2]}) << 32 | ({args[1]})) >> (({args[3]}) & 31) & 0xFFFFFFFF"
    if op == "bfe":
        value = f"({args[1]}) >> ({args[2]}) & (1 << ({args[3]})) - 1"
        return f"_s({value}, {args[3]}) & 0xFFFFFFFF" if last[0] == "s" else value
    if last == "bf16x2":
        return f"_pairs({op!r}, {args[1]}, {args[2]})"
    if last == "f32":
        return _float(op, args)
    if op in ("mul", "mad"):
        return _product(parts, last, args)
    found = _integer(op, args, last)
    return f"max(0, _s({found}, {last[1:]}))" if "relu" in parts else found


def _product(parts: list[str], last: str, args: list[str]) -> str:
    kind = f"_s({{}}, {last[1:]})" if last[0] == "s" and parts[1] == "wide" else "({})"
    bits = 64 if parts[1] == "wide" else int(last[1:])
    added = f" + {args[3]}" if parts[0] == "mad" else ""
    return f"({kind.format(args[1])} * {kind.format(args[2])}{added}) & {(1 << bits) - 1}"


def _barrier(parts: list[str], args: list[str]) -> str:
    if parts[1] == "warp":
        return "yield ('warp',)"
    if parts[1] == "cluster":
        return "yield ('cluster',)" if parts[2] == "wait" else "pass"
    return f"yield ('bar', {args[0]}, {args[1] if len(args) > 1 else 'ntid'})"


def _lines(ptx: str) -> list[str]:
    """Instructions and labels, one to a line."""
    body = ptx[ptx.index("{", ptx.index(".entry")) + 1 : ptx.rindex("}")]
    found: list[str] = []
    for line in body.splitlines():
        line = line.partition("//")[0].strip()
        inner = line[1:-1] if line.startswith("{") and line.endswith("}") else line
        if "mbarrier.try_wait" in line:
            inner = re.sub(r".*mbarrier\.try_wait\S* \w+, (\[[^\]]*\]), ([^;]*);.*", r"await \1, \2", line)
        for part in inner.split(";"):
            part = part.strip()
            if part and not part.startswith((".reg", ".loc", ".pragma")):
                found.append(part)
    return found


_WORDS_ALONE = {"st", "await", "mbarrier", "cp", "fence", "bar", "barrier"}
"""Instructions whose first operand is none that they write."""


def _reads(line: str) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    """Registers that an instruction reads as numbers, as words, and whose word it hands on, with where to."""
    found = re.match(r"@!?%(\w+)\s+(.*)", line)
    guard, text = ([found[1]], found[2]) if found else ([], line)
    name, _, tail = text.partition(" ") if " " in text else text.partition("\t")
    parts, raw = name.replace("::", ".").split("."), _split(tail)
    registers = [_REGISTER.findall(one) for one in raw]
    everything = [one for some in registers[1:] for one in some]
    is_plain = all(len(some) <= 1 for some in registers)
    if parts[-1] == "f32" and (parts[0] in _FLOAT or parts[0] in ("setp", "cvt")):
        return everything, guard, []
    if parts[0] in ("mov", "selp", "shfl") and is_plain and registers[0]:
        handed = registers[1:3] if parts[0] == "selp" else registers[1:2]
        kept = registers[3:] if parts[0] == "selp" else registers[2:]
        return (
            [],
            [*guard, *(one for some in kept for one in some)],
            [(one, registers[0][0]) for (one,) in filter(None, handed)],
        )
    written = raw[:1] if parts[0] in _WORDS_ALONE or (parts[0] == "mov" and raw[0].startswith("{")) else []
    return [], [*guard, *everything, *(one for some in written for one in _REGISTER.findall(some))], []


def _numbers(lines: Sequence[str]) -> frozenset[str]:
    """Registers that nothing reads but as numbers: those hold a float, not its word."""
    reads = [_reads(line) for line in lines if not line.endswith(":")]
    words = {one for _, some, _ in reads for one in some}
    handed = [pair for _, _, some in reads for pair in some]
    while new := {source for source, target in handed if target in words} - words:
        words |= new
    return frozenset({one for some, _, _ in reads for one in some} | {source for source, _ in handed}) - words


@cache
def translate(ptx: str) -> Any:
    """A function that gives the generator of a thread."""
    blocks: list[list[str]] = [[]]
    labels: dict[str, int] = {}
    lines = _lines(ptx)
    numbers = _numbers(lines)
    for line in lines:
        if line.endswith(":"):
            if blocks[-1]:
                blocks.append([])
            labels[line[:-1]] = len(blocks) - 1
            continue
        blocks[-1].append(line)
        if re.match(r"(@!?%\w+\s+)?bra", line):
            blocks.append([])
    text = ["def thread(memory, parameter, tid, ctaid, ntid, nctaid, own):", "    at = 0", "    while True:"]
    for number, block in enumerate(blocks):
        text.append(f"        {'if' if number == 0 else 'elif'} at == {number}:")
        for line in block:
            text += _guarded(line, labels, numbers)
        text += [f"            at = {number + 1}"]
    text += ["        else:", "            return"]
    scope: dict[str, Any] = dict(globals())
    exec("\n".join(text), scope)
    return scope["thread"]


def _guarded(line: str, labels: dict[str, int], numbers: frozenset[str]) -> list[str]:
    found = re.match(r"@(!?)%?(\w+)\s+(.*)", line)
    condition, inner = "", line
    if found:
        condition, inner = f"{'not ' if found[1] else ''}{found[2]}", found[3]
    if inner.startswith("bra"):
        made = [f"at = {labels[inner.split()[-1]]}", "continue"]
    elif inner in ("ret", "exit"):
        made = ["return"]
    else:
        made = _as_numbers(_statement(inner), inner, numbers)
    if not condition:
        return [f"            {one}" for one in made]
    return [f"            if {condition}:", *(f"                {one}" for one in made)]


def _as_numbers(statements: list[str], text: str, numbers: frozenset[str]) -> list[str]:
    """Statements on words, as they are where some registers hold numbers."""
    made: list[str] = []
    is_handed = text.startswith(("mov", "selp", "shfl"))
    for one in statements:
        one = re.sub(r"\b_f\((\w+)\)", lambda found: _number(found[1], numbers), one)
        target, equals, value = one.partition(" = ")
        if not equals or target not in numbers:
            made.append(one)
        elif value.startswith("_w("):
            made += [f"_cell.value = {value[3:-1]}", f"{target} = _cell.value"]
        elif is_handed:
            made.append(f"{target} = {_handed(value, text, numbers)}")
        else:
            made.append(f"{target} = _f({value})")
    return made


def _number(text: str, numbers: frozenset[str]) -> str:
    """A register, or the word of a constant, as a number."""
    if text.isdigit() and math.isfinite(_f(int(text))):
        return repr(_f(int(text)))
    return text if text in numbers else f"_f({text})"


def _handed(value: str, text: str, numbers: frozenset[str]) -> str:
    """A value that goes from register to register, as a number."""
    args = [_operand(one) for one in _split(text.split(maxsplit=1)[1])]
    if text.startswith("shfl"):
        return value if args[1] in numbers else value.replace(f", {args[1]}, ", f", _f({args[1]}), ", 1)
    parts = [_number(one, numbers) for one in args[1:3]]
    return parts[0] if text.startswith("mov") else f"{parts[0]} if {args[3]} else {parts[1]}"


# Threads together.


class _Block:
    """The threads of a block, and what each waits for."""

    def __init__(self, make: Any, memory: Memory, given: Sequence[int], number: int, rank: int, launch: Any) -> None:
        threads, blocks = launch

        def own(address: int) -> int:
            return address + rank * CLUSTER

        self.threads: list[Generator[Any, Any, None] | None] = [
            make(memory, given, at, number, threads, blocks, own) for at in range(threads)
        ]
        self.waits: list[Any] = [None] * threads
        for at in range(threads):
            self.go(at, None)

    def go(self, at: int, value: Any) -> None:
        thread = self.threads[at]
        assert thread is not None
        try:
            self.waits[at] = thread.send(value)
        except StopIteration:
            self.threads[at], self.waits[at] = None, None

    def step(self) -> bool:
        """Let go on whoever can; whether anyone could."""
        moved = False
        for first in range(0, len(self.threads), WARP):
            warp = range(first, first + WARP)
            kinds = {self.waits[at][0] if self.waits[at] else None for at in warp}
            if kinds <= {"shfl"} or kinds <= {"warp"}:
                moved = True
                self._exchange(warp)
            elif "copy" in kinds:
                for at in warp:
                    if self.waits[at] and self.waits[at][0] == "copy":
                        self.go(at, None)
                        moved |= not self.waits[at] or self.waits[at][0] != "copy"
        return moved or self._meet()

    def _exchange(self, warp: range) -> None:
        waits = [self.waits[at] for at in warp]
        values = [wait[2] if wait[0] == "shfl" else None for wait in waits]
        for lane, (at, wait) in enumerate(zip(warp, waits, strict=True)):
            other = 0
            if wait[0] == "shfl":
                other = lane ^ wait[3] if wait[1] == "bfly" else wait[3]
            self.go(at, values[other])

    def _meet(self) -> bool:
        groups: dict[int, list[int]] = {}
        for at, wait in enumerate(self.waits):
            if wait and wait[0] == "bar":
                groups.setdefault(wait[1], []).append(at)
        ready = [group for group in groups.values() if len(group) == self.waits[group[0]][2]]
        for group in ready:
            for at in group:
                self.go(at, None)
        return bool(ready)

    @property
    def is_at_cluster(self) -> bool:
        """Whether all threads that are left wait for the cluster."""
        return all(wait is None or wait[0] == "cluster" for wait in self.waits)


def run_rows(ptx: str, buffers: Sequence[Any], sizes: Sequence[int], launch: tuple[int, int, int, int]) -> list[Any]:
    """What a kernel leaves in its buffers; `launch` is threads, blocks, those of a cluster, bytes of shared memory."""
    threads, blocks, cluster, shared = launch
    make, memory = translate(ptx), Memory(buffers, cluster, shared)
    given = [*(BASE + SPAN * at for at in range(len(buffers))), *sizes, 0]
    for first in range(0, blocks, cluster):
        made = [_Block(make, memory, given, first + rank, rank, (threads, blocks)) for rank in range(cluster)]
        while any(any(one.waits) for one in made):
            moved = [one.step() for one in made]
            if not any(moved):
                assert all(one.is_at_cluster for one in made), "threads wait for each other for ever"
                for one in made:
                    for at, wait in enumerate(one.waits):
                        if wait:
                            one.go(at, None)
    written = [flags for flags in memory.written if any(flags)]
    assert all(all(flags) for flags in written), "a part of a result is not written"
    return [
        np.frombuffer(bytes(held), one.dtype).reshape(one.shape)
        for held, one in zip(memory.buffers, buffers, strict=True)
    ]
