"""Index expressions of neighbours along an axis, from those of the first of them: one division for all.

Where a tensor is written as one long row, coordinates are quotients and remainders of the position. Those of the next
positions follow by a comparison: while a remainder stays below its divisor the quotient stays too, and where it does
not, one is carried. A quotient is so the first one's and a step of 0 or 1, by which the next quotient is found alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tessera.ir.target.llvm.instructions import Index, Value, dim_value
from tessera.ir.target.llvm.text import FunctionText
from tessera.types.dim import Atom, Dim
from tessera.types.shape import is_at_least


def has_division_of(dim: Dim, axis: str) -> bool:
    """Whether an expression divides what moves along an axis by a number that is no power of two."""
    atoms = [atom for monomial, _ in dim.terms for atom in monomial if atom.kind in ("floordiv", "mod")]
    sizes = [atom.args[1].value or 0 for atom in atoms if axis in atom.args[0].symbols]
    return any(size & (size - 1) for size in sizes)


@dataclass
class Neighbours:
    """Expressions at neighbours along `axis`, the first of which is at the coordinates `first`."""

    f: FunctionText
    axis: str
    first: Mapping[str, Index]
    _known: dict[Dim, Value] = field(default_factory=dict[Dim, Value])
    _carries: dict[tuple[Dim, Dim, int], Value] = field(default_factory=dict[tuple[Dim, Dim, int], Value])

    _within: dict[Value, Value] = field(default_factory=dict[Value, Value])
    """Carries that happen only where another does, and that one."""

    def value(self, dim: Dim, number: int) -> Value:
        """The value of an expression at neighbour `number`, an i64."""
        f, grown = self.f, self._grow(dim, number)
        if grown is None:
            return dim_value(f, dim, {**self.first, self.axis: f.add(self.first[self.axis], number)})
        return f.add(self._at_first(dim), f.cast("sext", grown, "i64"))

    def word(self, dim: Dim, number: int) -> Value:
        """The same as an i32, for an expression that fits one."""
        f, grown = self.f, self._grow(dim, number)
        if grown is None:
            return f.cast("trunc", self.value(dim, number), "i32")
        return f.op("add", f.cast("trunc", self._at_first(dim), "i32"), grown)

    def _grow(self, dim: Dim, number: int) -> Value | None:
        """By how much an expression is more than at the first neighbour, an i32; None where that is not found so."""
        f = self.f
        fixed, carried = 0, dict[Value, int]()
        for monomial, factor in dim.terms:
            if not any(map(self._moves, monomial)):
                continue
            steps = self._steps(monomial[0], number) if len(monomial) == 1 else None
            if steps is None:
                return None
            fixed += factor * steps[0]
            for carry, times in steps[1].items():
                carried[carry] = carried.get(carry, 0) + factor * times
        if not all(abs(times) < 1 << 28 for times in (fixed, *carried.values())):
            return None
        total, last, others = f.const("i32", fixed), None, dict[Value, int]()
        for carry, times in carried.items():
            if last is None or self._within.get(carry) == last:
                # Where this carry happens the one before it does too.
                fixed += times
                total = f.select(carry, f.const("i32", fixed), total)
                last = carry
            else:
                others[carry] = times
        for carry, times in others.items():
            total = f.op("add", total, f.select(carry, f.const("i32", times), f.const("i32", 0)))
        return total

    def _moves(self, atom: Atom) -> bool:
        return self.axis in Dim((((atom,), 1),)).symbols

    def _at_first(self, dim: Dim) -> Value:
        if dim not in self._known:
            self._known[dim] = dim_value(self.f, dim, self.first)
        return self._known[dim]

    def _steps(self, atom: Atom, number: int) -> tuple[int, dict[Value, int]] | None:
        """What an atom grows by up to neighbour `number`: a number, and others where carries happen; None: not known.

        A carry is an i1.
        """
        if atom.kind == "symbol":
            return number, {}
        if atom.kind not in ("floordiv", "mod"):
            return None
        above, below = atom.args
        growth, divisor = self._growth(above, number), below.value
        if growth is None or divisor is None or not is_at_least(above, 0) or number >= divisor:
            return None
        carry = self._carry(above, below, number, growth)
        if atom.kind == "floordiv":
            return 0, {carry: 1}
        return (growth, {carry: -divisor}) if isinstance(growth, int) else (0, {growth: 1, carry: -divisor})

    def _growth(self, dim: Dim, number: int) -> Value | int | None:
        """How much an expression grows up to neighbour `number`, a number or a carry; None where that is not known."""
        moving = [(monomial, factor) for monomial, factor in dim.terms if any(map(self._moves, monomial))]
        if len(moving) != 1 or len(moving[0][0]) != 1 or moving[0][1] != 1:
            return None
        (atom,) = moving[0][0]
        steps = self._steps(atom, number) if atom.kind in ("symbol", "floordiv") else None
        return None if steps is None else next(iter(steps[1]), steps[0])

    def _carry(self, above: Dim, below: Dim, number: int, growth: Value | int) -> Value:
        """Whether the first neighbour's remainder reaches the divisor by growing so."""
        key = above, below, number
        if key in self._carries:
            return self._carries[key]
        f = self.f
        rest, end = f.cast("trunc", self._at_first(above % below), "i32"), f.const("i32", below.value or 1)
        if isinstance(growth, int):
            carry = f.icmp("sge", f.op("add", rest, f.const("i32", growth)), end)
        else:
            # What is carried is one, for whatever neighbour.
            full = above, below, 0
            if full not in self._carries:
                self._carries[full] = f.icmp("sge", f.op("add", rest, f.const("i32", 1)), end)
            carry = f.op("and", growth, self._carries[full])
            self._within[carry] = growth
        self._carries[key] = carry
        return carry
