"""The LLVM text of a matmul of threads, run on the CPU thread by thread: what a GPU would store, without one.

Text becomes Python, a function for each kernel, which stops at barriers. Memory that is nobody's, or that no copy has
reached yet, is an error. Copies (`cp.async`) arrive when they are waited for and no sooner, so that a wait too few
shows. It knows the instructions that such kernels have and no others.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from tessera.backends.nvptx import text
from tessera.backends.nvptx.text import KernelCode

SHARED, SPAN = 1 << 60, 1 << 40
"""Where shared memory begins for generic pointers, and how far buffers are apart."""
_CONSTANTS = {
    f"addrspacecast (ptr addrspace(3) @{text.SHARED} to ptr)": "%SHARED",
    f"addrspacecast (ptr addrspace(1) @{text.NOTHING} to ptr)": "%NOTHING",
}
_NAME = re.compile(r"%[\w.]+")
_SIZES = {"i8": 1, "float": 4, "i32": 4, "i64": 8}


class Thread:
    """One thread: where it is, its memory, and the copies that it has under way; `nctaid` is that of z."""

    def __init__(self, number: int, block: int, memory: Memory) -> None:
        self.tid, self.ctaid, self.memory = number, block, memory
        self.nctaid = 1
        self.open: list[tuple[int, Any]] = []
        self.groups: list[list[tuple[int, Any]]] = []

    def copy(self, target: int, source: int, count: int, taken: int) -> None:
        assert target % count == source % count == 0, "a copy is aligned to its size"
        words = [self.memory.read(source + 4 * at) if taken else 0.0 for at in range(count // 4)]
        self.open += [(SHARED + target + 4 * at, word) for at, word in enumerate(words)]

    def commit(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait(self, left: int) -> None:
        while len(self.groups) > left:
            for address, word in self.groups.pop(0):
                self.memory.write(address, word)


class Memory:
    """Buffers of a call, and the shared memory of a block, all of f32."""

    def __init__(self, buffers: Sequence[Any], shared: int) -> None:
        self.buffers, self.shared = list(buffers), np.full(shared // 4, np.nan, np.float32)
        self.is_written = np.zeros(shared // 4, bool)

    def _where(self, address: int) -> tuple[Any, int]:
        assert address % 4 == 0
        if address >= SHARED:
            return self.shared, (address - SHARED) // 4
        number, offset = divmod(address, SPAN)
        return self.buffers[number - 1], offset // 4

    def reserve(self, count: int) -> int:
        """Local memory of a thread, of so many elements."""
        self.buffers.append(np.full(count, np.nan, np.float32))
        return SPAN * len(self.buffers)

    def read(self, address: int) -> Any:
        memory, at = self._where(address)
        assert 0 <= at < memory.size, f"element {at} of {memory.size} is read"
        assert memory is not self.shared or self.is_written[at], f"word {at} of shared memory was never written"
        return memory.item(at)

    def write(self, address: int, value: Any) -> None:
        memory, at = self._where(address)
        assert 0 <= at < memory.size, f"element {at} of {memory.size} is written"
        memory.reshape(-1)[at] = value
        if memory is self.shared:
            self.is_written[at] = True


def run_kernel(code: KernelCode, buffers: Sequence[Any], sizes: Sequence[int] = (), blocks: int = 0) -> None:
    """Run all blocks of a kernel of programs over buffers of f32; the grid is known, or `blocks` says it."""
    space: dict[str, Any] = {"fma": _fma, "rounded": _rounded, "SHARED": SHARED, "NOTHING": SPAN * (len(buffers) + 1)}
    exec(_python(code.text), space)
    pointers = [SPAN * (at + 1) for at in range(len(buffers))]
    for block in range(blocks or code.grid.value or 0):
        memory = Memory([*buffers, np.zeros(4, np.float32)], code.shared)
        threads = [
            space["kernel"](Thread(number, block, memory), *pointers, *sizes, 0) for number in range(code.threads)
        ]
        # A kernel without barriers is no generator: it has run.
        _run_threads([thread for thread in threads if thread is not None])


def _run_threads(threads: Sequence[Generator[None, None, None]]) -> None:
    """All threads from barrier to barrier; they come to as many."""
    ends = object()
    while True:
        states = [next(thread, ends) for thread in threads]
        if all(state is ends for state in states):
            return
        assert not any(state is ends for state in states), "some threads wait at a barrier that others never reach"


# Numbers are floats of Python's, rounded to f32 by being put here: several times faster than scalars of NumPy's.
_cell = ctypes.c_float()


def _fma(a: float, b: float, c: float) -> float:
    _cell.value = a * b + c
    return _cell.value


def _rounded(number: float) -> float:
    _cell.value = number
    return _cell.value


# Text to Python.


def _python(source: str) -> str:
    """The only kernel of a module as a generator function `kernel(thread, arguments...)`."""
    for constant, name in _CONSTANTS.items():
        source = source.replace(constant, name)
    found = re.search(r"define ptx_kernel void @\w+\((.*?)\) #\d+ \{\n(.*?)\n\}", source, re.DOTALL)
    assert found is not None
    head, body = found.groups()
    arguments = [_name(one) for one in _NAME.findall(head)]
    blocks: dict[str, list[str]] = {}
    label = ""
    for line in body.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            label = line[:-1]
            blocks[label] = []
        elif line.strip():
            blocks[label].append(line.strip())
    phis = {label: [line for line in lines if " = phi " in line] for label, lines in blocks.items()}
    out = [f"def kernel(thread, {', '.join(arguments)}):", "    at = 'entry'", "    while True:"]
    for number, (label, lines) in enumerate(blocks.items()):
        out.append(f"        {'elif' if number else 'if'} at == '{label}':")
        for line in lines:
            if " = phi " not in line:
                out += [f"            {one}" for one in _statement(line, label, phis)]
    return "\n".join(out)


def _name(text: str) -> str:
    return text[1:].replace(".", "_") if text.startswith("%") else text


def _value(text: str) -> str:
    """An operand as Python: a name, a number, or the start of shared memory."""
    text = text.strip()
    if text.startswith("%"):
        return _name(text)
    if re.fullmatch(r"0x[0-9A-F]+", text):
        return repr(float(np.frombuffer(int(text, 16).to_bytes(8, "little"), np.float64)[0]))
    return {"true": "1", "false": "0", "poison": "None"}.get(text, text)


def _jump(label: str, here: str, phis: dict[str, list[str]]) -> str:
    """Go to a block: what its phis are from here, all together."""
    names: list[str] = []
    given: list[str] = []
    for line in phis[label]:
        name, _, right = line.partition(" = phi ")
        for value, source in re.findall(r"\[(.*?), %(\w+)\]", right):
            if source == here:
                names.append(_name(name))
                given.append(_value(value))
    moves = f"{', '.join(names)}, = {', '.join(given)}, ; " if names else ""
    return f"{moves}at = '{label}'; continue"


def _statement(line: str, here: str, phis: dict[str, list[str]]) -> list[str]:
    if line.startswith("br label"):
        return [_jump(line.split("%")[1], here, phis)]
    if line.startswith("br i1"):
        condition, yes, no = line.removeprefix("br i1 ").replace("label %", "").split(", ")
        return [f"if {_value(condition)}:", f"    {_jump(yes, here, phis)}", _jump(no, here, phis)]
    if line == "ret void":
        return ["return"]
    if line.startswith("store"):
        value, pointer = re.fullmatch(r"store (?:volatile )?(.*), ptr (.*), align \d+", line).groups()  # type: ignore[union-attr]
        kind, _, name = value.rpartition(" ")
        lanes = [f"{_name(name)}[{at}]" for at in range(int(kind[1]))] if kind[0] == "<" else [_value(name)]
        return [f"thread.memory.write({_value(pointer)} + {4 * at}, {lane})" for at, lane in enumerate(lanes)]
    if line.startswith("call void"):
        return [_effect(line)]
    name, _, right = line.partition(" = ")
    return [f"{_name(name)} = {_expression(right)}"]


def _effect(line: str) -> str:
    if "barrier" in line:
        return "yield"
    text = re.search(r'"(.*?)"', line)
    assert text is not None
    if "wait_group" in line:
        (left,) = re.findall(r"wait_group (\d+)", line)
        return f"thread.wait({left})"
    if "commit_group" in line:
        return "thread.commit()"
    assert "cp.async" in line, line
    args = [_value(one.split(" ", 1)[1]) for one in re.findall(r"\((.*)\) convergent", line)[0].split(", ")]
    found = re.search(r"\[\$0 \+ (\d+)\], \[\$1 \+ (-?\d+)\], (\d+)(, \$2)?;", line)
    assert found is not None, line
    taken = args[2] if found[4] else found[3]
    copy = f"thread.copy({args[0]} + {found[1]}, {args[1]} + {found[2]}, {found[3]}, {taken})"
    return f"{copy} if {args[-1]} else None" if "@P" in line else copy


_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "udiv": "//",
    "urem": "%",
    "and": "&",
    "or": "|",
    "xor": "^",
    "fadd": "+",
    "fmul": "*",
}
_COMPARED = {"slt": "<", "sle": "<=", "sgt": ">", "sge": ">=", "eq": "==", "ne": "!=", "ult": "<"}


def _expression(text: str) -> str:
    op, _, tail = text.partition(" ")
    if op in _SIGNS:
        left, right = tail.removeprefix("nsw ").split(" ", 1)[1].split(", ")
        found = f"{_value(left)} {_SIGNS[op]} {_value(right)}"
        return f"rounded({found})" if op.startswith("f") else found
    if op == "icmp":
        sign, type_, pair = tail.split(" ", 2)
        left, right = (_value(one) for one in pair.split(", "))
        if sign == "ult":
            left, right = (f"({one}) % 2**{type_[1:]}" for one in (left, right))
        return f"{left} {_COMPARED[sign]} {right}"
    if op in ("zext", "trunc", "sext", "ptrtoint", "bitcast"):  # words of memory are floats here as they are
        return _value(tail.rpartition(" to ")[0].split(" ")[-1])
    if op == "addrspacecast":
        return f"{_value(tail.split(' ')[1])} - SHARED"
    if op == "getelementptr":
        element, pointer, index = re.fullmatch(r"(\w+), ptr (.*), i64 (\S+)", tail).groups()  # type: ignore[union-attr]
        return f"{_value(pointer)} + {_SIZES[element]} * {_value(index)}"
    if op == "select":
        condition, yes, no = (_value(part.strip().rpartition(" ")[2]) for part in tail.split(", "))
        return f"{yes} if {condition} else {no}"
    if op == "alloca":
        (count,) = re.findall(r"float, i64 (\d+)", tail)
        return f"thread.memory.reserve({count})"
    return _other(op, tail)


def _other(op: str, tail: str) -> str:
    if op == "load":
        kind, pointer = re.match(r"(?:volatile )?(<\d x float>|float|i32), ptr (.*?), align", tail).groups()  # type: ignore[union-attr]
        if kind[0] != "<":
            return f"thread.memory.read({_value(pointer)})"
        return f"[thread.memory.read({_value(pointer)} + 4 * i) for i in range({kind[1]})]"
    if op == "extractelement":
        return f"{_value(tail.split('> ')[1].split(',')[0])}[{tail.rpartition(' ')[2]}]"
    if op == "insertelement":
        count, vector, scalar, lane = re.fullmatch(r"<(\d) x \w+> (\S+), \w+ (\S+), i64 (\d+)", tail).groups()  # type: ignore[union-attr]
        before = "[None] * " + count if vector == "poison" else _value(vector)
        return f"[*({before})[:{lane}], {_value(scalar)}, *({before})[{int(lane) + 1}:]]"
    if "ld.global.nc" in tail:
        given = re.findall(r"\((i1 .*)\)", tail)[0].split(", ")
        mask, address, *zeros = (_value(one.split(" ", 1)[1]) for one in given)
        words = [f"thread.memory.read({address} + {4 * at})" for at in range(len(zeros))]
        return f"{words[0]} if {mask} else 0" if len(zeros) == 1 else f"[{', '.join(words)}] if {mask} else {zeros}"
    if op == "extractvalue":
        return f"{_value(tail.split('} ')[1].split(',')[0])}[{tail.rpartition(' ')[2]}]"
    if "sreg" in tail:
        (name,) = re.findall(r"sreg\.(\w+)", tail)
        return f"thread.{name}"
    if "llvm.fma" in tail:
        factors = re.findall(r"float ([^,)]+)", tail.split("(", 1)[1])
        return f"fma({', '.join(map(_value, factors))})"
    if "llvm.smin" in tail or "llvm.smax" in tail:
        pair = ", ".join(_value(one) for one in re.findall(r"i64 ([^,)]+)", tail.split("(", 1)[1]))
        return f"{'min' if 'smin' in tail else 'max'}({pair})"
    raise AssertionError(f"`{op} {tail}` is not known here")
