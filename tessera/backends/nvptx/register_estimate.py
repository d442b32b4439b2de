"""How many registers a thread of a kernel will need: what is live together in its PTX, before an assembler has seen it.

A value that is the same in all threads (sizes, the number of a block, constants) lives in constant memory or in the
registers of a warp, and predicates in files of their own; none of them counts. Of 64 bits whose upper half is zero, or
which nothing reads, one word does. Where a kernel says how many registers its roles have (`setmaxnreg`), every thread
gets an equal share at the start, and each role is held to its own.

The assembler orders instructions anew. It begins with few registers: loads come just before what reads them, past
branches that it turns into guards (`register_order.py`). Where that takes few, it uses what costs no resident block to
have more loads in flight; where it takes more, it stays between that and the order of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from tessera.backends.nvptx.ptx_blocks import Block, Instruction, blocks_of, body_of, join_blocks
from tessera.backends.nvptx.register_order import count_ordered
from tessera.backends.nvptx.tensor_cores import MULTIPROCESSORS
from tessera.types.frozen import frozen
from tessera.types.machine import Occupancy, Usage, occupancy, registers_for

# Fitted to what `ptxas -v` (CUDA 13.0, sm_90a) says of kernels in `tests/backends/nvptx/kernels.py` and of 90 random
# ones; `test_registers.py` holds the estimate to the former, `tests/trials/register_estimates.py` counts it for others.

OVERHEAD = 5
"""What moves and addresses in flight take beside what is live."""
SAVED = 8
"""What moves and addresses take at least where a thread may have no more."""
LEAST = 24
"""Below this nobody saves: it costs no resident block."""
SHORT, FEW = 48, 17
"""Instructions and loaded words of a loop that the assembler unrolls: loads of more iterations are live."""
PREFETCHED = 3
"""Iterations whose loads from shared memory come early, in kernels of which few blocks fit anyway."""
FREE, MUCH, MOVED = 33, 30, 12
"""Registers that are used where an order with few takes no more than `MUCH` words, and what moves add to small ones."""
GROWTH, SPARE = 1.35, 2
"""What the assembler makes of registers that a kernel says it has (`.minnctapersm`): it computes more side by side."""

_WORDS = {"%rd": 2, "%fd": 2, "%rq": 4, "%p": 0}
_HALVES = ("ld.shared", "cvt.u32.u64", "cvt.u16.u64")
"""What reads the lower word alone, and so do"""
_LOWER = ("add.s64", "sub.s64", "mul.lo.s64", "mad.lo.s64", "shl.b64", "and.b64", "or.b64", "xor.b64", "mov.b64")
"""these, where the lower word of what they make is all that is read."""
_EXTENDED = ("cvt.u64.u32",)
_VARYING = ("%tid", "%laneid", "%warpid", "%clock")
_UNIFORM_STARTS = ("ld.param", "mov", "cvta", "add", "sub", "mul", "mad", "shl", "shr", "and", "or", "xor", "cvt")
_UNIFORM_MORE = ("min", "max", "selp", "setp", "neg", "not", "div", "rem", "bfe", "bfi", "prmt")


@frozen
class RegisterEstimate:
    """Registers of a thread: what is live together, what the kernel is expected to take, and what it may have."""

    live: int
    registers: int
    limit: int
    least: int = 0
    """What is live in an order of instructions with few registers; 0 for one that nobody looked for."""

    @property
    def spills(self) -> bool:
        """Whether more is live than a thread may have, in whatever order."""
        return (self.least or self.live) + SAVED > self.limit

    def __str__(self) -> str:
        spill = ", and will spill" if self.spills else ""
        return f"about {self.registers} registers a thread ({self.live} live, {self.limit} at most{spill})"


def estimate_registers(ptx: str, architecture: str = "sm_90a") -> RegisterEstimate:
    """The registers that the kernel of a PTX text will take on an architecture."""
    limit = registers_for(MULTIPROCESSORS[architecture], _threads_of(ptx), _directive(ptx, "minnctapersm"))
    limit = min(limit, _directive(ptx, "maxnreg", limit))
    found = _pressure(body_of(ptx))
    wanted = _expect(found, has_spare=bool(_directive(ptx, "minnctapersm", 0)))
    grown = [int(count) for count in re.findall(r"setmaxnreg\.inc\.sync\.aligned\.u32\s+(\d+)", ptx)]
    if grown:
        return RegisterEstimate(found.text, limit, max(grown), found.ordered)
    return RegisterEstimate(found.text, min(limit, max(LEAST, wanted)), limit, found.ordered)


def _threads_of(ptx: str) -> int:
    """Threads of a block: all of them, or the most that a launch may have."""
    return _directive(ptx, "reqntid", 0) or _directive(ptx, "maxntid")


def _directive(ptx: str, name: str, default: int = 1) -> int:
    found = re.search(rf"\.{name}\s+(\d+)", ptx)
    return int(found[1]) if found else default


# What is live.


@frozen
class _Pressure:
    """Words that are live together: in the text, in an order with few, and with loads of later iterations."""

    text: int
    ordered: int
    early: int


def _pressure(lines: Iterable[str]) -> _Pressure:
    """What is live in the text, and what the assembler can make of it: it moves instructions up and down."""
    blocks = blocks_of(lines)
    used = (name for block in blocks for one in block.instructions for name in (*one.made, *one.read))
    names = {name: number for number, name in enumerate(dict.fromkeys(used))}
    counted, narrow = _find_counted(blocks, names), _find_narrow(blocks)
    pairs = _bits((name for name in names if _words(name) == 2 and name not in narrow), names)
    plain = _count_live(blocks, names, counted, pairs)
    most = max(plain)
    early = max(_loaded_early(block, number, plain[number], most) for number, block in enumerate(blocks))
    joined = join_blocks(blocks)
    after = _live_out(joined, names)

    @cache
    def words(name: str) -> int:
        register = name.partition(".")[0]
        bit = 1 << names[register]
        return bool(counted & bit) + bool(counted & pairs & bit)

    def count_least(number: int, in_text: int) -> int:
        live = [name for name, place in names.items() if after[number] & counted & 1 << place]
        return min(in_text, count_ordered(joined[number].instructions, live, words)) if in_text > FREE // 2 else in_text

    ordered = max(count_least(number, found) for number, found in enumerate(_count_live(joined, names, counted, pairs)))
    return _Pressure(most, min(ordered, most), early)


def _find_narrow(blocks: Iterable[Block]) -> set[str]:
    """Registers of 64 bits of which one word is kept: the other is zero, or nothing reads it.

    Shared memory has addresses of 32 bits, though LLVM computes them with 64.
    """
    instructions = [one for block in blocks for one in block.instructions]
    extended = {name for one in instructions if one.name.startswith(_EXTENDED) for name in one.made}
    extended -= {name for one in instructions if not one.name.startswith(_EXTENDED) for name in one.made}
    wide = {name for one in instructions for name in one.read if _words(name) == 2}
    narrow: set[str] = set()
    while wide:
        whole = {
            name
            for one in instructions
            if not one.name.startswith(_HALVES) and not (one.name.startswith(_LOWER) and narrow.issuperset(one.made))
            for name in one.read
        }
        if wide <= whole:
            break
        narrow |= wide - whole
        wide &= whole
    return narrow | extended


def _count_live(blocks: Sequence[Block], names: Mapping[str, int], counted: int, pairs: int) -> list[int]:
    """The most words that are live in each block, of registers that differ between threads."""
    bits = {id(one): (_bits(one.made, names), _bits(one.read, names)) for block in blocks for one in block.instructions}
    found: list[int] = []
    for block, alive in zip(blocks, _live_out(list(blocks), names), strict=True):
        most = _count_words(alive & counted, pairs)
        for one in reversed(block.instructions):
            made, read = bits[id(one)]
            most = max(most, _count_words((alive | made) & counted, pairs))
            alive = (alive & ~made) | read
        found.append(most)
    return found


def _count_words(alive: int, pairs: int) -> int:
    return alive.bit_count() + (alive & pairs).bit_count()


def _expect(pressure: _Pressure, has_spare: bool) -> int:
    """The registers that the assembler is expected to use."""
    if has_spare:
        # What only the order of the text keeps live is loads that come early, and they are put off.
        kept = pressure.ordered if 2 * pressure.ordered < pressure.text else pressure.text
        return round(GROWTH * kept) + SPARE
    if pressure.ordered <= MUCH:
        return min(FREE, max(pressure.text, pressure.early) + MOVED)
    if pressure.early > pressure.text:
        return pressure.early + OVERHEAD
    return (pressure.ordered + pressure.text) // 2 + OVERHEAD


def _loaded_early(block: Block, number: int, live: int, most: int) -> int:
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


def _find_counted(blocks: Iterable[Block], names: Mapping[str, int]) -> int:
    """Registers that are neither predicates nor the same in all threads."""
    makers: dict[str, list[Instruction]] = {}
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


def _may_be_uniform(one: Instruction) -> bool:
    is_plain = one.name.startswith((*_UNIFORM_STARTS, *_UNIFORM_MORE)) and not one.text.startswith("@")
    return is_plain and not any(special in one.text for special in _VARYING)


def _live_out(blocks: list[Block], names: Mapping[str, int]) -> list[int]:
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
