"""How many registers a thread of a kernel will need: what is live together in its PTX, before an assembler has seen it.

A value that is the same in all threads (sizes, the number of a block, constants) lives in constant memory or in the
registers of a warp, and predicates in files of their own; none of them counts. Where a kernel says how many registers
its roles have (`setmaxnreg`), every thread gets an equal share at the start, and each role is held to its own. Loads
are taken to stay where they are: where the assembler puts them off until they are wanted, it needs fewer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.backends.nvptx.tensor_cores import MULTIPROCESSORS
from tessera.types.frozen import frozen
from tessera.types.machine import Occupancy, Usage, occupancy, registers_for

# Fitted to what `ptxas -v` (CUDA 13.0, sm_90a) says of the kernels in `tests/backends/nvptx/kernels.py`;
# `test_registers.py` holds the estimate to it.

OVERHEAD = 4
"""What moves and addresses in flight take beside what is live."""
LEAST = 26
"""Below this nobody saves: it costs no resident block."""
SHORT, FEW = 48, 17
"""Instructions and loaded words of a loop that the assembler unrolls: loads of more iterations are live."""
PREFETCHED = 3
"""Iterations whose loads from shared memory come early, in kernels of which few blocks fit anyway."""
FREE, ENOUGH, MUCH = 34, 28, 40
"""Words up to which loads come early; what is kept to where they would take more; and what cannot be kept to."""
GROWTH, SPARE = 1.3, 8
"""What the assembler makes of registers that a kernel says it has (`.minnctapersm`): it computes more side by side."""

_REGISTER = re.compile(r"%(?:rd|rs|rq|r|fd|f|p|h)\d+")
_LABEL = re.compile(r"^(\$L[\w$]*):$")
_WORDS = {"%rd": 2, "%fd": 2, "%rq": 4, "%p": 0}
_ENDS = ("ret", "exit", "trap")
_SILENT = ("st.", "bra", "bar", "red", "fence", "membar", "ret", "exit", "trap", "call", "setmaxnreg", "barrier")
_SILENT_TOO = ("mbarrier.init", "mbarrier.arrive", "mbarrier.try_wait", "cp.async", "stmatrix", "prefetch", "nanosleep")
_ACCUMULATING = ("wgmma.mma_async", "mma.sync")
_VARYING = ("%tid", "%laneid", "%warpid", "%clock")
_UNIFORM_STARTS = ("ld.param", "mov", "cvta", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "cvt")
_UNIFORM_MORE = ("min", "max", "selp", "setp", "neg", "not", "div", "rem", "bfe", "bfi", "prmt")


@frozen
class RegisterEstimate:
    """Registers of a thread: what is live together, what the kernel is expected to take, and what it may have."""

    live: int
    registers: int
    limit: int

    @property
    def spills(self) -> bool:
        """Whether more is live than a thread may have."""
        return self.live + 2 * OVERHEAD > self.limit

    def __str__(self) -> str:
        spill = ", and will spill" if self.spills else ""
        return f"about {self.registers} registers a thread ({self.live} live, {self.limit} at most{spill})"


@dataclass
class _Instruction:
    """One statement: what it reads and writes, where it may go, and whether it goes on."""

    name: str
    text: str
    made: tuple[str, ...]
    read: tuple[str, ...]
    targets: tuple[str, ...] = ()
    falls: bool = True


@dataclass
class _Block:
    """Statements one after the other."""

    instructions: list[_Instruction] = field(default_factory=list[_Instruction])
    following: list[int] = field(default_factory=list[int])


def estimate_registers(ptx: str, architecture: str = "sm_90a") -> RegisterEstimate:
    """The registers that the kernel of a PTX text will take on an architecture."""
    limit = registers_for(MULTIPROCESSORS[architecture], _directive(ptx, "reqntid"), _directive(ptx, "minnctapersm"))
    limit = min(limit, _directive(ptx, "maxnreg", limit))
    live, wanted = _pressure(_body(ptx), has_spare=bool(_directive(ptx, "minnctapersm", 0)))
    grown = [int(count) for count in re.findall(r"setmaxnreg\.inc\.sync\.aligned\.u32\s+(\d+)", ptx)]
    if grown:
        return RegisterEstimate(live, limit, max(grown))
    return RegisterEstimate(live, min(limit, max(LEAST, wanted)), limit)


def _directive(ptx: str, name: str, default: int = 1) -> int:
    found = re.search(rf"\.{name}\s+(\d+)", ptx)
    return int(found[1]) if found else default


# Reading.


def _body(ptx: str) -> list[str]:
    """Statements and labels of the first kernel, inline assembly opened up."""
    start = ptx.index("{", ptx.index(".entry"))
    lines: list[str] = []
    for raw in ptx[start + 1 :].splitlines():
        line = raw.split("//")[0].strip()
        if line.startswith(".") or not line:
            continue
        if raw.startswith("}"):
            break
        lines += _statements(line)
    return lines


def _statements(line: str) -> Iterator[str]:
    """The statements of a line: braces of blocks are left out, braces around vectors stay."""
    label = _LABEL.match(line)
    if label:
        yield line
        return
    for part in line.split(";"):
        text = part.strip()
        text = text.lstrip("{} ")
        # Loops inside of inline assembly carry nothing, so that their labels and branches say nothing here.
        text = re.sub(r"^[A-Z][A-Z0-9_]*:\s*", "", text)
        if text and text != "}" and not text.startswith(".") and not re.search(r"\bbra\s+[A-Z]", text):
            yield text


def _instruction(text: str) -> _Instruction:
    guard = re.match(r"^@!?(%?\w+)\s+(.*)$", text)
    bare = guard[2] if guard else text
    name, _, arguments = bare.partition(" ") if "\t" not in bare else bare.partition("\t")
    name = name.strip()
    parts = _operands(arguments)
    guards = tuple(_REGISTER.findall(guard[1])) if guard else ()
    if name.startswith("bra"):
        return _Instruction(name, text, (), guards, (arguments.strip(),), guard is not None)
    if name in _ENDS:
        return _Instruction(name, text, (), guards, (), guard is not None)
    is_silent = name.startswith((*_SILENT, *_SILENT_TOO))
    made = () if is_silent or not parts else tuple(_REGISTER.findall(parts[0]))
    read = tuple(_REGISTER.findall(" ".join(parts[0 if is_silent else 1 :])))
    if name.startswith(_ACCUMULATING) or guard is not None:
        # What a guarded instruction does not write stays, and sums are read as well as written.
        read = (*read, *made)
    return _Instruction(name, text, made, (*guards, *read))


def _operands(text: str) -> list[str]:
    """Operands, those in one pair of braces or brackets together."""
    found, depth, at = [""], 0, 0
    for letter in text:
        depth += letter in "{[("
        depth -= letter in "}])"
        if letter == "," and depth == 0:
            found.append("")
            at += 1
        else:
            found[at] += letter
    return [part.strip() for part in found if part.strip()]


def _blocks(lines: Iterable[str]) -> list[_Block]:
    blocks, labels = [_Block()], dict[str, int]()
    for line in lines:
        label = _LABEL.match(line)
        if label:
            if blocks[-1].instructions:
                blocks.append(_Block())
            labels[label[1]] = len(blocks) - 1
            continue
        one = _instruction(line)
        blocks[-1].instructions.append(one)
        if one.targets or not one.falls:
            blocks.append(_Block())
    for number, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        if last is None or last.falls:
            block.following += [number + 1] if number + 1 < len(blocks) else []
        block.following += [labels[target] for target in (last.targets if last else ()) if target in labels]
    return blocks


# What is live.


def _pressure(lines: Iterable[str], has_spare: bool) -> tuple[int, int]:
    """The most words that are live in the text, and what the assembler is expected to make of it.

    It moves loads: up, as long as registers cost nothing, and down to where they are used where that keeps them few.
    """
    blocks = _blocks(lines)
    used = (name for block in blocks for one in block.instructions for name in (*one.made, *one.read))
    names = {name: number for number, name in enumerate(dict.fromkeys(used))}
    counted, after = _find_counted(blocks, names), _live_out(blocks, names)
    pairs = _bits((name for name in names if _words(name) == 2), names)

    def count_words(alive: int) -> int:
        return (alive & counted).bit_count() + (alive & counted & pairs).bit_count()

    def count_live(number: int, instructions: Sequence[_Instruction]) -> int:
        """The most words that are live in a block, of registers that differ between threads."""
        alive = after[number]
        found = count_words(alive)
        for one in reversed(instructions):
            made = _bits(one.made, names)
            found = max(found, count_words(alive | made))
            alive = (alive & ~made) | _bits(one.read, names)
        return found

    plain = [count_live(number, block.instructions) for number, block in enumerate(blocks)]
    late = max(count_live(number, _loads_late(block.instructions)) for number, block in enumerate(blocks))
    most = max(plain)
    early = max(_loaded_early(block, number, plain[number], most) for number, block in enumerate(blocks))
    if has_spare and most > MUCH:
        return most, round(GROWTH * most) + SPARE
    return most, (early if early <= FREE or late > MUCH else max(late, ENOUGH)) + OVERHEAD


def _loads_late(instructions: Sequence[_Instruction]) -> list[_Instruction]:
    """The same instructions with every load just before what reads it, or before what it must not pass."""
    positions = sorted((_latest(instructions, at), at) for at in range(len(instructions)))
    return [instructions[at] for _, at in positions]


def _latest(instructions: Sequence[_Instruction], at: int) -> float:
    one = instructions[at]
    if not one.name.startswith(("ld.global", "ld.shared")) or "volatile" in one.name:
        return float(at)
    is_free = ".nc" in one.name
    for index in range(at + 1, len(instructions)):
        other = instructions[index]
        meets = set(one.made) & set(other.read) or set(one.read) & set(other.made)
        is_wall = other.name.startswith(("bar", "membar", "fence", "mbarrier", "cp."))
        if meets or is_wall or (other.name.startswith("st.") and not is_free) or index == len(instructions) - 1:
            return index - 0.5
    return float(at)


def _loaded_early(block: _Block, number: int, live: int, most: int) -> int:
    """What is live in a short loop once it is unrolled, with loads for iterations to come; `most` is live elsewhere."""
    if number not in block.following or len(block.instructions) > SHORT:
        return live
    shared, remote = (
        sum(_words(made) for one in block.instructions if one.name.startswith(name) for made in one.made)
        for name in ("ld.shared", "ld.global")
    )
    found = live + PREFETCHED * shared if shared <= FEW and most > 2 * FREE else live
    return max(found, min(FREE, live + remote))


def _words(name: str) -> int:
    return _WORDS.get(name.rstrip("0123456789"), 1)


def _bits(registers: Iterable[str], names: Mapping[str, int]) -> int:
    found = 0
    for name in registers:
        found |= 1 << names[name]
    return found


def _find_counted(blocks: Iterable[_Block], names: Mapping[str, int]) -> int:
    """Registers that are neither predicates nor the same in all threads."""
    makers: dict[str, list[_Instruction]] = {}
    for block in blocks:
        for one in block.instructions:
            for name in one.made:
                makers.setdefault(name, []).append(one)
    differing = {name for name in names if name not in makers or not all(_may_be_uniform(m) for m in makers[name])}
    is_changing = True
    while is_changing:
        more = {
            name
            for name, found in makers.items()
            if name not in differing and any(read in differing for one in found for read in one.read)
        }
        differing |= more
        is_changing = bool(more)
    return _bits((name for name in differing if not name.startswith("%p")), names)


def _may_be_uniform(one: _Instruction) -> bool:
    is_plain = one.name.startswith((*_UNIFORM_STARTS, *_UNIFORM_MORE)) and not one.text.startswith("@")
    return is_plain and not any(special in one.text for special in _VARYING)


def _live_out(blocks: list[_Block], names: Mapping[str, int]) -> list[int]:
    """What is live at the end of each block, by going backwards until nothing changes."""
    uses, makes = [0] * len(blocks), [0] * len(blocks)
    for number, block in enumerate(blocks):
        for one in block.instructions:
            uses[number] |= _bits(one.read, names) & ~makes[number]
            makes[number] |= _bits(one.made, names)
    live_in, live_out = [0] * len(blocks), [0] * len(blocks)
    is_changing = True
    while is_changing:
        is_changing = False
        for number in range(len(blocks) - 1, -1, -1):
            after = 0
            for following in blocks[number].following:
                after |= live_in[following]
            before = uses[number] | (after & ~makes[number])
            if after != live_out[number] or before != live_in[number]:
                live_out[number], live_in[number], is_changing = after, before, True
    return live_out


# What a kernel takes of a GPU in numbers: threads, registers, shared memory, and the blocks that fit.


@frozen
class Resources:
    """A kernel on a multiprocessor; `resident` is how many of its blocks are launched at most, 0 for one a program."""

    name: str
    threads: int
    shared: int
    resident: int
    registers: RegisterEstimate
    occupancy: Occupancy

    @property
    def launch(self) -> str:
        """How programs come to blocks."""
        return (
            f"persistent, at most {self.resident} blocks share the programs" if self.resident else "one block a program"
        )

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.threads} threads a block, {self.registers}, {self.shared} bytes of shared memory, "
            f"{self.occupancy}; launched {self.launch}"
        )


def resources_of(fact: Mapping[str, Any], ptx: str, architecture: str) -> Resources:
    """The resources of a kernel from what is known of its launch, and its PTX."""
    estimate = estimate_registers(ptx, architecture)
    usage = Usage(fact["threads"], estimate.registers, fact["shared"])
    return Resources(
        fact["name"],
        fact["threads"],
        fact["shared"],
        fact.get("resident", 0),
        estimate,
        occupancy(MULTIPROCESSORS[architecture], usage),
    )


def resources_in(metadata: Mapping[str, Any], objects: Sequence[bytes]) -> list[Resources]:
    """Those of all kernels of an executable for a GPU; what is machine code already is left out."""
    _, *kernels, _ = objects
    return [
        resources_of(fact, code.decode(), metadata["architecture"])
        for fact, code in zip(metadata["kernels"], kernels, strict=True)
        if code.lstrip().startswith(b"//") or b".version" in code[:400]
    ]
