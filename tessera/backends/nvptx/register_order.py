"""An order of PTX instructions in which few registers are live: what an assembler falls back to where they are scarce.

A block is ordered from its end. Of what is ready, whose results are all read further down, that comes next which ends
the life of more words than it begins, else what was made ready last: each value is so made just before it is read, and
loads sink to what reads them. Of the operands of one instruction that comes last which takes the fewest registers to
compute (Sethi and Ullman's numbers): while the others are computed, it would only be in the way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from tessera.backends.nvptx.ptx_blocks import Instruction

_FIXED = ("bar", "membar", "fence", "mbarrier", "cp.", "wgmma", "atom", "red", "shfl", "vote", "call", "setmaxnreg")
_FIXED_TOO = ("stmatrix", "ldmatrix", "mma", "activemask", "match", "bra", "ret", "exit", "trap")
_CONVERSIONS = ("selp", "cvt", "mov", "prmt")
_WINDOW = 48
"""How many of the instructions that are ready are looked at, the last ones first: more change little."""

Words = Callable[[str], int]
"""The words of a register that count."""


def count_ordered(instructions: Sequence[Instruction], after: Iterable[str], words: Words) -> int:
    """The most words that are live in a block, in the best of some orders; `after` are live behind it."""
    renamed, live = rename_values(instructions, after)
    orders = find_orders(renamed, find_order(renamed), live, words)
    return min(_count_live([renamed[at] for at in order], live, words) for order in orders)


def find_orders(
    instructions: Sequence[Instruction], before: Sequence[set[int]], after: Iterable[str], words: Words
) -> list[list[int]]:
    """Some orders of a block, each as the positions of its instructions."""
    weights = _find_weights(instructions, words)
    return [
        _sink(instructions, before),
        _order_from_end(instructions, before, weights, after, words),
        _order_from_end(instructions, before, [0] * len(instructions), after, words),
    ]


def rename_values(
    instructions: Sequence[Instruction], after: Iterable[str]
) -> tuple[list[Instruction], frozenset[str]]:
    """The block with a name for each value, so that reads may pass what writes the same register later.

    A register has its own name from its last writing on, as behind the block, and others with a dot before.
    """
    left = Counter(name for one in instructions for name in one.made)
    written: dict[str, int] = {}

    def name_of(name: str) -> str:
        count = left[name] - written.get(name, 0)
        return f"{name}.{count}" if count else name

    found: list[Instruction] = []
    for one in instructions:
        read = tuple(map(name_of, one.read))
        for name in one.made:
            written[name] = written.get(name, 0) + 1
        found.append(Instruction(one.name, one.text, tuple(map(name_of, one.made)), read, one.targets, one.falls))
    return found, frozenset(after)


def _count_live(instructions: Sequence[Instruction], after: Iterable[str], words: Words) -> int:
    live = set(after)
    most = count = sum(map(words, live))
    for one in reversed(instructions):
        most = max(most, count + sum(words(name) for name in set(one.made) - live))
        begun, ended = set(one.read) - live, live.intersection(one.made) - set(one.read)
        count += sum(map(words, begun)) - sum(map(words, ended))
        live -= ended
        live |= begun
        most = max(most, count)
    return most


def _sink(instructions: Sequence[Instruction], before: Sequence[set[int]]) -> list[int]:
    """The order of the text with each load, what its address takes, and its conversion just before what reads it."""
    sinking = _find_sinking(instructions, before)
    late = list(range(len(instructions)))
    first: dict[int, int] = {}
    for at in range(len(instructions) - 1, -1, -1):
        if sinking[at]:
            late[at] = first.get(at, at)
        for needed in before[at]:
            first[needed] = min(first.get(needed, late[at]), late[at])
    return sorted(range(len(instructions)), key=lambda at: (late[at], at))


def _find_sinking(instructions: Sequence[Instruction], before: Sequence[set[int]]) -> list[bool]:
    """Whether each instruction is a load, converts what one loaded, or computes nothing but addresses of loads."""
    found: list[bool] = []
    for one, needed in zip(instructions, before, strict=True):
        is_conversion = one.name.startswith(_CONVERSIONS) and any(found[at] for at in needed)
        found.append((one.name.startswith("ld.") and not _is_fixed(one)) or is_conversion)
    readers: list[list[int]] = [[] for _ in instructions]
    for at in range(len(instructions) - 1, -1, -1):
        if readers[at] and instructions[at].made and not _is_fixed(instructions[at]):
            found[at] = found[at] or all(found[reader] for reader in readers[at])
        for needed in before[at] if not instructions[at].targets else ():
            readers[needed].append(at)
    return found


def _order_from_end(
    instructions: Sequence[Instruction],
    before: Sequence[set[int]],
    weights: Sequence[int],
    after: Iterable[str],
    words: Words,
) -> list[int]:
    """Instructions as each is wanted, lighter operands later."""
    missing = [0] * len(instructions)
    for needed in before:
        for at in needed:
            missing[at] += 1
    live, order = set(after), list[int]()
    ready = sorted((at for at, left in enumerate(missing) if not left), key=lambda at: (-weights[at], at))
    while ready:
        at = _choose(ready, instructions, live, words)
        ready.remove(at)
        order.append(at)
        live.difference_update(instructions[at].made)
        live.update(instructions[at].read)
        for needed in sorted(before[at], key=lambda at: (-weights[at], at)):
            missing[needed] -= 1
            if not missing[needed]:
                ready.append(needed)
    return order[::-1]


def _choose(ready: Sequence[int], instructions: Sequence[Instruction], live: set[str], words: Words) -> int:
    """The last that makes fewer words live, else the last."""
    for at in reversed(ready[-_WINDOW:]):
        one = instructions[at]
        begun = sum(words(name) for name in set(one.read) - live)
        if begun < sum(words(name) for name in live.intersection(one.made)):
            return at
    return ready[-1]


def _is_fixed(one: Instruction) -> bool:
    return one.name.startswith((*_FIXED, *_FIXED_TOO)) or "volatile" in one.name


def find_order(instructions: Sequence[Instruction]) -> list[set[int]]:
    """What has to come before each instruction: who makes what it reads, and memory in order."""
    before: list[set[int]] = []
    makers: dict[str, int] = {}
    wall, loads, stores = -1, list[int](), list[int]()
    for at, one in enumerate(instructions):
        needed = {makers[name] for name in one.read if name in makers}
        makers.update(dict.fromkeys(one.made, at))
        is_fixed = _is_fixed(one)
        is_load = one.name.startswith("ld.") and ".nc" not in one.name and not one.name.startswith("ld.param")
        if is_fixed or is_load or one.name.startswith("st."):
            needed |= {wall} if wall >= 0 else set()
            needed.update(stores if is_load else [*stores, *loads])
        if is_fixed:
            wall, loads, stores = at, [], []
        elif is_load:
            loads.append(at)
        elif one.name.startswith("st."):
            stores.append(at)
        before.append(set(range(at)) if one.targets else needed - {at})
    return before


def _find_weights(instructions: Sequence[Instruction], words: Words) -> list[int]:
    """The registers that each instruction takes together with what it is computed from."""
    weights: list[int] = []
    makers: dict[str, int] = {}
    for at, one in enumerate(instructions):
        made = sorted((weights[maker] for maker in {makers[name] for name in one.read if name in makers}), reverse=True)
        weights.append(max([sum(map(words, one.made)), *(weight + number for number, weight in enumerate(made))]))
        makers.update(dict.fromkeys(one.made, at))
    return weights
