"""PTX read as instructions in basic blocks: what each statement makes and reads, and where it may go.

Inline assembly is opened up; its own labels and branches are left out, as loops in it carry nothing. Branches around a
few instructions can be taken away (`join_blocks`): the assembler guards such instructions instead, and moves others
past them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

GUARDED = 24
"""Instructions that the assembler guards one by one instead of branching around them."""

_REGISTER = re.compile(r"%(?:rd|rs|rq|r|fd|f|p|h)\d+")
_LABEL = re.compile(r"^(\$L[\w$]*):$")
_ENDS = ("ret", "exit", "trap")
_SILENT = ("st.", "bra", "bar", "red", "fence", "membar", "ret", "exit", "trap", "call", "setmaxnreg", "barrier")
_SILENT_TOO = ("mbarrier.init", "mbarrier.arrive", "mbarrier.try_wait", "cp.async", "stmatrix", "prefetch", "nanosleep")
_ACCUMULATING = ("wgmma.mma_async", "mma.sync")
_FRESH = "Q"
"""The predicate of a dot that writes its accumulators, and adds nothing to them."""
_UNGUARDED = ("bar", "wgmma", *_ENDS)
"""What stays behind its branch."""


@dataclass
class Instruction:
    """One statement: what it reads and writes, where it may go, and whether it goes on."""

    name: str
    text: str
    made: tuple[str, ...]
    read: tuple[str, ...]
    targets: tuple[str, ...] = ()
    falls: bool = True


@dataclass
class Block:
    """Statements one after the other."""

    instructions: list[Instruction] = field(default_factory=list[Instruction])
    following: list[int] = field(default_factory=list[int])


def body_of(ptx: str) -> list[str]:
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


def _instruction(text: str) -> Instruction:
    guard = re.match(r"^@!?(%?\w+)\s+(.*)$", text)
    bare = guard[2] if guard else text
    name, _, arguments = bare.partition(" ") if "\t" not in bare else bare.partition("\t")
    name = name.strip()
    parts = _operands(arguments)
    guards = tuple(_REGISTER.findall(guard[1])) if guard else ()
    if name.startswith("bra"):
        return Instruction(name, text, (), guards, (arguments.strip(),), guard is not None)
    if name in _ENDS:
        return Instruction(name, text, (), guards, (), guard is not None)
    is_silent = name.startswith((*_SILENT, *_SILENT_TOO))
    made = () if is_silent or not parts else tuple(_REGISTER.findall(parts[0]))
    read = tuple(_REGISTER.findall(" ".join(parts[0 if is_silent else 1 :])))
    is_sum = name.startswith(_ACCUMULATING) and _FRESH not in parts
    if is_sum or guard is not None:
        # What a guarded instruction does not write stays, and sums are read as well as written.
        read = (*read, *made)
    return Instruction(name, text, made, (*guards, *read))


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


def blocks_of(lines: Iterable[str]) -> list[Block]:
    """The basic blocks of statements and labels."""
    blocks, labels = [Block()], dict[str, int]()
    for line in lines:
        label = _LABEL.match(line)
        if label:
            if blocks[-1].instructions:
                blocks.append(Block())
            labels[label[1]] = len(blocks) - 1
            continue
        one = _instruction(line)
        blocks[-1].instructions.append(one)
        if one.targets or not one.falls:
            blocks.append(Block())
    for number, block in enumerate(blocks):
        last = block.instructions[-1] if block.instructions else None
        if last is None or last.falls:
            block.following += [number + 1] if number + 1 < len(blocks) else []
        block.following += [labels[target] for target in (last.targets if last else ()) if target in labels]
    return blocks


# Branches around a few instructions.


def join_blocks(blocks: Iterable[Block]) -> list[Block]:
    """The same program with blocks that follow each other joined, and short branches replaced by guards."""
    found: dict[int, Block] = {}
    for number, block in enumerate(blocks):
        found[number] = Block(list(block.instructions), list(dict.fromkeys(block.following)))
    counts = Counter(name for block in found.values() for one in block.instructions for name in one.made)
    pending = list(found)
    while pending:
        number = pending.pop()
        if number in found and _join(found, number, counts):
            pending += [at for at, block in found.items() if number in block.following]
            pending.append(number)
    places = {number: at for at, number in enumerate(found)}
    for block in found.values():
        block.following = [places[following] for following in block.following]
    return list(found.values())


def _join(blocks: dict[int, Block], number: int, counts: Counter[str]) -> bool:
    """Whether a block has taken up what follows it, or what is behind its branch."""
    block = blocks[number]

    def comes_from(other: int) -> list[int]:
        return [at for at, one in blocks.items() if other in one.following]

    for taken in block.following:
        others = [following for following in block.following if following != taken]
        inner = blocks[taken]
        if taken in (0, number) or comes_from(taken) != [number]:
            continue
        if not others:
            block.instructions = [*_without_branch(block), *inner.instructions]
            block.following = inner.following
        elif inner.following == others and _is_short(inner):
            guards = block.instructions[-1].read
            guarded = [_guard(one, guards, counts) for one in _without_branch(inner)]
            block.instructions = [*_without_branch(block), *guarded]
            block.following = others
        else:
            continue
        del blocks[taken]
        return True
    return False


def _without_branch(block: Block) -> list[Instruction]:
    return [one for one in block.instructions if not one.targets]


def _is_short(block: Block) -> bool:
    return len(block.instructions) <= GUARDED and not any(one.name.startswith(_UNGUARDED) for one in block.instructions)


def _guard(one: Instruction, guards: tuple[str, ...], counts: Counter[str]) -> Instruction:
    """An instruction that may not be done: what others make too stays as it was then."""
    kept = tuple(name for name in one.made if counts[name] > 1)
    return Instruction(one.name, f"@{one.text}", one.made, (*one.read, *kept, *guards))
