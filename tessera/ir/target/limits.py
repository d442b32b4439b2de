"""What kernels may ask for, how far their indices reach, and what an op inside of one can see."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd, prod

from xdsl.ir import BlockArgument, Operation, SSAValue

from tessera.diagnostics.codes import FeatureError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, ShapedAttr, VectorAttr
from tessera.ir.base.verify import around
from tessera.ir.target.architectures import CpuMatrixInstruction, architectures
from tessera.types.device import moves, problem
from tessera.types.dim import Atom, Dim
from tessera.types.frozen import frozen
from tessera.types.shape import is_at_least

# What ops of Target IR move between which memory spaces, and with which feature of the machine.


@frozen
class Move:
    """From one space to another, by a feature; "" is what every machine does."""

    source: str
    target: str
    feature: str = ""


MOVES: dict[str, tuple[Move, ...]] = {}
"""What ops move, by name; backends add theirs."""


def space_of(buffer: SSAValue) -> str:
    """Where a buffer of a kernel is: arguments and private scratch in global memory, the only one of a CPU."""
    op = _maker(buffer, "ttarget.scratch")
    if op is not None:
        return {"shared": "shared", "registers": "register"}.get(op.value("space"), "global")
    assert isinstance(buffer.type, BufferAttr)
    return "global"


def _maker(value: SSAValue, name: str) -> SpecOp | None:
    """The op of a name that makes a value; None where another does, or none."""
    op = value.owner
    return op if isinstance(op, SpecOp) and op.name == name else None


def moves_of(op: SpecOp) -> tuple[Move, ...]:
    """What an op moves."""
    if op.name == "ttarget.load":
        return (Move(space_of(op.operands[0]), "register"),)
    if op.name == "ttarget.store":
        return (Move("register", space_of(op.operands[1])),)
    return MOVES.get(op.name, ())


def check_moves(kernel: SpecOp, features: tuple[str, ...]) -> None:
    """Raises FeatureError (T0602) for an op that moves what the machine cannot, with what it can do instead."""
    for op in kernel.walk():
        for move in moves_of(op) if isinstance(op, SpecOp) else ():
            wrong = problem(move.source, move.target)
            if not wrong and move.feature and move.feature not in features:
                wrong = f"moving from {move.source} to {move.target} memory by {move.feature} is not this machine's"
            if wrong:
                kinds = [kind or "plain loads and stores" for kind in moves(move.source, move.target)]
                others = [kind for kind in kinds if kind in (*features, "plain loads and stores")]
                by_registers = "pass through registers" if "register" not in (move.source, move.target) else ""
                advice = f"it moves there by {others[0]}" if others else by_registers
                raise FeatureError(f"`{op.name}`: {wrong}", span=getattr(op, "span", None), fix=advice or None)


# How far an index of a kernel reaches: its largest value over the sizes, by which guards are left out.


def largest(expr: Dim, tops: Mapping[str, Dim | None]) -> Dim | None:
    """The largest value of an expression, where `tops` has that of each index; None where it is not known.

    An expression that falls as an index grows, or goes up and down, is not known.
    """
    known = {name: top for name, top in tops.items() if name in expr.symbols and top is not None}
    if len(known) < len(expr.symbols & tops.keys()) or not _grows(expr, known):
        return None
    return expr.substitute(known)


def _grows(expr: Dim, names: Mapping[str, Dim]) -> bool:
    """Whether an expression does not fall when one of the names grows; sizes and indices are not negative."""
    return all(
        not _uses_any(atom, names) or (coefficient > 0 and _atom_grows(atom, names))
        for monomial, coefficient in expr.terms
        for atom in monomial
    )


def _uses_any(atom: Atom, names: Mapping[str, Dim]) -> bool:
    return atom.name in names if atom.kind == "symbol" else any(arg.symbols & names.keys() for arg in atom.args)


def _atom_grows(atom: Atom, names: Mapping[str, Dim]) -> bool:
    if atom.kind == "symbol":
        return True
    first, second = atom.args
    if atom.kind == "floordiv":
        return (second.value or 0) > 0 and _grows(first, names)
    return atom.kind in ("min", "max") and _grows(first, names) and _grows(second, names)


def fits(top: Dim, size: int, bound: Dim) -> bool:
    """Whether `size` elements from `top` end below the bound, for all sizes."""
    return is_at_least(bound - top - size, 0)


class IndexRanges:
    """How far the indices of a kernel reach, found while its ops are walked in order.

    Each index is an expression whose names are sizes, program ids and loop indices. From the largest value of those
    follows the largest index that an access reaches, and with it whether the access needs a guard.
    """

    def __init__(self, kernel: SpecOp) -> None:
        self.kernel = kernel
        self.exprs: dict[SSAValue, Dim] = {}
        self.tops: dict[str, Dim | None] = {}
        """The largest value of each program id and loop index; None where it is unknown."""

    def name_index(self, index: SSAValue, top: Dim | None) -> None:
        """Let an index be known by a name, which no size has, and its largest value."""
        name = f"%{len(self.tops)}"
        self.exprs[index], self.tops[name] = Dim.symbol(name), top

    def name_program(self, op: SpecOp) -> None:
        """Let a program id be known by a name."""
        self.name_index(op.result, self.kernel.value("grid")[op.value("axis")] - 1)

    def substitute_index(self, op: SpecOp) -> None:
        """Let what `ttile.index` gives be known by its expression."""
        names = {name: self.expr(value) for name, value in zip(op.value("names"), op.operands, strict=True)}
        self.exprs[op.result] = op.value("expr").substitute(names)

    def expr(self, index: SSAValue) -> Dim:
        """An index as an expression; one of which nothing is known has a name of its own."""
        if index not in self.exprs:
            self.name_index(index, None)
        return self.exprs[index]

    def is_safe(self, coordinate: SSAValue, bound: Dim, size: int) -> bool:
        """Whether a tile that begins at the coordinate cannot reach beyond the bound."""
        if not bound.symbols <= set(self.kernel.value("symbols")):
            return False
        top = largest(self.expr(coordinate), self.tops)
        return top is not None and fits(top, size, bound)

    def is_clip_safe(self, op: SpecOp) -> bool:
        """Whether a `ttile.clip` replaces nothing."""
        where, type = dict(zip(op.value("coords"), op.operands[1:], strict=True)), op.operands[0].type
        assert isinstance(type, ShapedAttr)
        axes: tuple[str, ...] = op.value("axes")
        return self.is_safe(where[op.value("axis")], op.value("bound"), type.sizes[axes.index(op.value("axis"))])


def is_multiple(dim: Dim, size: int) -> bool:
    """Whether a dim is a multiple of a number for all sizes; False means not proven."""
    return all(
        coefficient % size == 0 or any(_is_multiple_atom(atom, size) for atom in monomial)
        for monomial, coefficient in dim.terms
    )


def _is_multiple_atom(atom: Atom, size: int) -> bool:
    return atom.kind in ("min", "max") and all(is_multiple(arg, size) for arg in atom.args)


@frozen
class Width:
    """Vectors of so many f32: the feature they come with, and how many registers there are."""

    lanes: int
    needs: str
    registers: int


WARP = 32
"""Threads that run as one on a GPU."""

MAX_REGISTERS_OF_THREAD = 255
"""Registers of a thread of a GPU (CUDA C++ Programming Guide, technical specifications)."""

_CPUS = tuple(architectures().values())

WIDTHS: list[Width] = list(
    dict.fromkeys(
        Width(level.lanes, level.width, level.registers)
        for level in reversed([level for architecture in _CPUS for level in architecture.levels])
    )
)
"""Vectors that kernels may be made of; backends of GPUs add those of a warp."""

FEATURES: dict[str, str] = {name: needs for architecture in _CPUS for name, needs in architecture.features.items()}
"""Names as LLVM spells them, each with the one that it cannot be without; backends add those of their machines."""

LEVELS: dict[str, tuple[str, ...]] = {
    level: names for architecture in _CPUS for level, names in architecture.first_levels.items()
}
"""The level of an architecture that first has each feature."""

CPU_MATRIX_INSTRUCTIONS: dict[str, CpuMatrixInstruction] = {
    one.name: one for architecture in _CPUS for one in architecture.matrix_instructions
}
"""Matrix instructions of CPUs, by the feature they come with."""

MATRIX_FEATURES: list[str] = []
"""Matrix instructions among the features, the best first; backends add theirs."""


def add_features(
    features: Mapping[str, str],
    levels: Mapping[str, tuple[str, ...]],
    widths: Iterable[Width],
    matrix: Iterable[str],
) -> None:
    """Let verifiers know features, levels, widths and matrix instructions of a backend's machines."""
    FEATURES.update(features)
    LEVELS.update(levels)
    WIDTHS.extend(width for width in widths if width not in WIDTHS)
    MATRIX_FEATURES.extend(name for name in matrix if name not in MATRIX_FEATURES)


MAX_THREADS = 1024
"""Threads of a block (CUDA C++ Programming Guide, technical specifications per compute capability)."""

MOST_ROW_WARPS = MAX_THREADS // 32
"""Warps of a block that share a row at most."""

MAX_ARGUMENTS = 1024
MAX_SIZES = 1024
MAX_SCRATCH = 1 << 31
"""Bytes of scratch one thread may be asked for where the size is static."""

LINE = 64
"""Bytes of a cache line: scratch begins at one, and so does each part of it."""

MAX_REGISTERS = 64
"""A block may be as large as so many times the register file: every vector of it is code of its own."""
MAX_THREAD_REGISTERS = 8 * (MAX_REGISTERS_OF_THREAD + 1)
"""Elements of a block that one of a program's threads may have, most of which it then keeps in memory of its own.

A power of two, as blocks and threads are: a block of 2^19 elements is 2048 for each of 256 threads.
"""


def registers_of(sizes: Sequence[int], lanes: int) -> int:
    """Vector registers that a block takes: rows of its last axis, each in registers of its own."""
    *outer, last = (1, *sizes)
    count = last // min(lanes, last) if last and last % min(lanes, last) == 0 else last
    for size in outer:
        count *= size
    return count


def widths_of(lanes: int) -> list[Width]:
    """The vectors of so many f32, one for each architecture that has them."""
    return [width for width in WIDTHS if width.lanes == lanes]


def width_for(lanes: int, features: Sequence[str]) -> Width | None:
    """The vectors of so many f32 that come with one of the features; None where none do."""
    return next((width for width in widths_of(lanes) if width.needs in features), None)


# What an op of a kernel can see and what is known there: sizes, arguments, scratch, and alignment of addresses.


def kernel_around(op: Operation) -> SpecOp | None:
    """The kernel that an op is in; None where it is in none."""
    return around(op, "ttarget.kernel")


def check_written(op: SpecOp, buffer: SSAValue) -> None:
    """Fails where an op writes an argument that its kernel, of whatever kind, does not declare to write."""
    if not isinstance(buffer, BlockArgument):
        return
    kernel = buffer.block.parent_op()
    if isinstance(kernel, SpecOp) and "writes" in kernel.kinds and buffer.index not in kernel.value("writes"):
        writes, name = list(kernel.value("writes")), kernel.value("symbol")
        op.fail(f"`{op.name}` writes argument {buffer.index} of `@{name}`, which only writes {writes}")


def multiple_of(dim: Dim, multiples: Mapping[str, int]) -> int:
    """A number that an expression is a multiple of, where each name is one of `multiples`; 0 where it is always 0."""
    found = 0
    for monomial, coefficient in dim.terms:
        part = abs(coefficient)
        for atom in monomial:
            if atom.kind == "symbol":
                part *= multiples.get(atom.name, 1)
            elif atom.kind in ("min", "max", "mod"):
                part *= gcd(*(multiple_of(arg, multiples) for arg in atom.args))
        found = gcd(found, part)
    return found


def size_multiples(op: Operation) -> dict[str, int]:
    """Numbers that the sizes of the kernel around an op are known to be multiples of, by name."""
    kernel = kernel_around(op)
    if kernel is None or not kernel.value("multiples"):
        return {}
    return dict(zip(kernel.value("symbols"), kernel.value("multiples"), strict=True))


def index_multiple(value: SSAValue) -> int:
    """A number that an index is always a multiple of; 0 where it is always 0."""
    op = _maker(value, "ttarget.index")
    if op is not None:
        inner = dict(zip(op.value("names"), map(index_multiple, op.operands), strict=False))
        return multiple_of(op.value("expr"), {**size_multiples(op), **inner})
    if isinstance(value, BlockArgument) and value.index == 0:
        owner = value.block.parent_op()
        if isinstance(owner, SpecOp) and owner.name in ("ttarget.loop", "ttarget.tail"):
            return gcd(index_multiple(owner.operands[0]), owner.value("step"))
    return 1


# How large the numbers are that indices are computed from: GPUs divide 32 bits several times faster than 64.

_WORD = 1 << 31


def magnitude(dim: Dim, tops: Mapping[str, int | None]) -> int | None:
    """A bound of the absolute value of an expression, where `tops` has those of its names; None where none is known."""
    total = 0
    for monomial, coefficient in dim.terms:
        parts = [_atom_magnitude(atom, tops) for atom in monomial]
        if None in parts:
            return None
        total += abs(coefficient) * prod(part for part in parts if part is not None)
    return total


def _atom_magnitude(atom: Atom, tops: Mapping[str, int | None]) -> int | None:
    if atom.kind == "symbol":
        return tops.get(atom.name)
    sizes = [magnitude(arg, tops) for arg in atom.args]
    first, second = sizes
    if first is None or second is None:
        return None
    return max(first, second) if atom.kind in ("min", "max") else second if atom.kind == "mod" else first + 1


def index_top(value: SSAValue) -> int | None:
    """A bound of the absolute value of an index; None where none is known."""
    op = _maker(value, "ttarget.index")
    if op is not None:
        return magnitude(op.value("expr"), dict(zip(op.value("names"), map(index_top, op.operands), strict=False)))
    owner = value.block.parent_op() if isinstance(value, BlockArgument) else None
    if isinstance(owner, SpecOp) and isinstance(value, BlockArgument):
        if owner.name == "ttarget.programs":
            return owner.value("grid")[value.index].value
        if owner.name in ("ttarget.loop", "ttarget.tail") and value.index == 0:
            return index_top(owner.operands[1])
    return None


def index_end(value: SSAValue) -> Dim | None:
    """One more than the largest value of an index that is computed from those of programs; None for any other."""
    op = _maker(value, "ttarget.index")
    given = [value] if op is None else list(op.operands)
    tops: list[Dim] = []
    for one in given:
        owner = one.block.parent_op() if isinstance(one, BlockArgument) else None
        if not isinstance(owner, SpecOp) or owner.name != "ttarget.programs" or not isinstance(one, BlockArgument):
            return None
        tops.append(owner.value("grid")[one.index] - 1)
    if op is None:
        return tops[0] + 1
    top = largest(op.value("expr"), dict(zip(op.value("names"), tops, strict=True)))
    return None if top is None else top + 1


def divides_words(kernel: SpecOp) -> bool:
    """Whether all that expressions of a kernel divide or compare with windows has an absolute value below 2^31."""
    for op in kernel.walk():
        if not isinstance(op, SpecOp):
            continue
        dims = [dim for name in ("expr", "offset", "bound") if name in op.kinds for dim in [op.value(name)]]
        dims += [dim for name in ("bounds", "windows") if name in op.kinds for dim in op.value(name)]
        divided = [part for dim in dims if isinstance(dim, Dim) for part in _find_divided(dim)]
        divided += op.value("windows") if "windows" in op.kinds else ()
        if divided and not all((magnitude(part, _tops(op)) or _WORD) < _WORD for part in divided):
            return False
    return True


def fit_words(op: SpecOp, dims: Sequence[Dim]) -> bool:
    """Whether expressions over the coordinates of an op have absolute values below 2^31."""
    tops = _tops(op)
    found = [magnitude(dim, tops) for dim in dims]
    return all(size is not None and size < _WORD for size in found)


def _tops(op: SpecOp) -> dict[str, int | None]:
    """Bounds of the names of an op's coordinates, along its block too."""
    names = next((op.value(name) for name in ("coords", "names") if name in op.kinds), ())
    indices = [value for value in op.operands if value.type == INDEX]
    tops: dict[str, int | None] = dict(zip(names, map(index_top, indices), strict=False))
    axes: tuple[str, ...] = op.value("axes") if "axes" in op.kinds and "coords" in op.kinds else ()
    blocks = [value.type.sizes for value in (*op.results, *op.operands) if isinstance(value.type, VectorAttr)]
    sizes: Sequence[int] = blocks[0] if blocks else ()
    for axis, size in zip(axes, sizes, strict=False):
        top = tops.get(axis)
        tops[axis] = None if top is None else top + size
    return tops


def _find_divided(dim: Dim) -> Iterator[Dim]:
    """Dividends and divisors in an expression, those within others too."""
    for monomial, _ in dim.terms:
        for atom in monomial:
            for arg in atom.args:
                yield from _find_divided(arg)
                if atom.kind in ("floordiv", "mod"):
                    yield arg


def buffer_alignment(buffer: SSAValue) -> int:
    """Bytes that the start of a buffer is a multiple of: a line in scratch; of an argument what its kernel says."""
    assert isinstance(buffer.type, BufferAttr)
    op = _maker(buffer, "ttarget.scratch")
    if op is not None:
        return gcd(LINE, multiple_of(op.value("offset"), {}))
    owner = buffer.block.parent_op() if isinstance(buffer, BlockArgument) else None
    if isinstance(owner, SpecOp) and owner.name == "ttarget.kernel":
        return max(owner.value("align"), buffer.type.dtype.bytes)
    return buffer.type.dtype.bytes
