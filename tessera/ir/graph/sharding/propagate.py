"""Propagation: from the shardings that somebody gave to those of all other values, through factors of ops.

An axis that cuts a dim cuts its factor, and with it the dims of that factor in all other tensors of the op, forwards
and backwards, until nothing changes. What was given stays. First only ops go that move elements or take one at a time,
then contractions and reductions as well, so that a choice made by the shape of a program comes before one made by its
sums. Where two tensors of an op want an axis for different factors, neither gets it there: that is a conflict, which
names both, and conversions are inserted later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING

from tessera.diagnostics.error import Span
from tessera.ir.base.tape import Record, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.sharding.factors import FactorRule
from tessera.ir.graph.sharding.rules import factor_rule
from tessera.types.frozen import frozen
from tessera.types.sharding import Sharding, check_sharding

if TYPE_CHECKING:
    from tessera.types.shape import TensorType

CONSTRAINT = "tgraph.shard"
"""The op that says how its operand is sharded."""


@frozen
class Conflict:
    """Two tensors of an op that want an axis for different factors: by name, with the dims that it cuts."""

    op: str
    axis: str
    first: str
    second: str
    span: Span | None = None

    def __str__(self) -> str:
        where = f" at {self.span.described}" if self.span is not None else ""
        dims = f"at {self.first} and at {self.second}, which are not the same dim"
        return f"`{self.op}`{where} has axis `{self.axis}` {dims}"


class ProgramRules:
    """The factor rules of the records of a tape, and names of its values."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.rules: list[FactorRule | None] = [self._rule(record) for record in tape.records]

    def _rule(self, record: Record) -> FactorRule | None:
        types = self.tape.types
        operands, results = ([types[value] for value in own] for own in (record.operands, record.results))
        return factor_rule(REGISTRY[record.op], operands, results, record.attributes)

    @cached_property
    def names(self) -> dict[int, str]:
        """What values are called: inputs by their paths, others by their op and line."""
        found = dict(zip(self.tape.inputs, self.tape.names, strict=True))
        for record in self.tape.records:
            line = f" at line {record.span.line}" if record.span is not None else ""
            for result in record.results:
                found[result] = f"{record.op.partition('.')[2]}{line}"
        return found


class Propagation:
    """The shardings of all values of a tape on a mesh, from those that are given; they stay as they are."""

    def __init__(
        self,
        tape: Tape,
        mesh: Mapping[str, int],
        given: Mapping[int, Sharding],
        rules: ProgramRules | None = None,
        *,
        is_part: bool = False,
    ) -> None:
        """`is_part` says that the mesh has only some of the axes that constraints name."""
        self.tape, self.mesh = tape, mesh
        self.program = rules or ProgramRules(tape)
        self.given = {**given, **_constraints(tape, mesh if is_part else None)}
        for value, sharding in self.given.items():
            check_sharding(self.program.names[value], tape.types[value], sharding, mesh)
        whole = {value: Sharding.whole(type.rank) for value, type in enumerate(tape.types)}
        self.shardings: dict[int, Sharding] = {**whole, **self.given}
        self._conflicts: dict[tuple[int, str], Conflict] = {}
        for weight in (0, 1):
            while self._sweep(weight):
                pass

    @property
    def conflicts(self) -> tuple[Conflict, ...]:
        """Axes that tensors of one op want for different factors, in the order of the program."""
        return tuple(self._conflicts[key] for key in sorted(self._conflicts))

    def _sweep(self, weight: int) -> bool:
        """Go through all ops of at most a weight, forwards and backwards; whether anything changed."""
        numbers = [at for at, rule in enumerate(self.program.rules) if rule is not None and rule.weight <= weight]
        return sum(self._visit(at) for at in (*numbers, *reversed(numbers))) > 0

    def _visit(self, at: int) -> bool:
        record, rule = self.tape.records[at], self.program.rules[at]
        assert rule is not None
        values = (*record.operands, *record.results)
        changed = False
        for axis in self.mesh:
            wanted = self._factors_of(rule, values, axis)
            if len(wanted) > 1:
                (_, first), (_, second) = list(wanted.items())[:2]
                self._conflicts[at, axis] = Conflict(
                    record.op.partition(".")[2], axis, self._place(first), self._place(second), record.span
                )
            if len(wanted) == 1:
                self._conflicts.pop((at, axis), None)
                changed |= self._extend(rule, values, next(iter(wanted)), axis)
        return changed

    def _place(self, found: tuple[int, int]) -> str:
        value, dim = found
        return f"dim {dim} of `{self.program.names[value]}`"

    def _factors_of(self, rule: FactorRule, values: Sequence[int], axis: str) -> dict[int, tuple[int, int]]:
        """The factors that an axis cuts in the tensors of an op: each with a value and its dim."""
        found: dict[int, tuple[int, int]] = {}
        for number, (value, dims) in enumerate(zip(values, rule.tensors(), strict=True)):
            dim = None if number in rule.ignored else self.shardings[value].dim_of(axis)
            factor = None if dim is None else rule.factor_at(dims, dim)
            if dim is not None and factor is not None and rule.can_shard(factor, self.mesh[axis]):
                found.setdefault(factor, (value, dim))
        return found

    def _extend(self, rule: FactorRule, values: Sequence[int], factor: int, axis: str) -> bool:
        """Cut a factor in all tensors that have it, where they may be and are not cut by the axis elsewhere."""
        changed = False
        for value, dims in zip(values, rule.tensors(), strict=True):
            dim, own = rule.axis_of(dims, factor), self.shardings[value]
            if dim is None or value in self.given or axis in own.axes:
                continue
            axes = sorted((*own.dims[dim], axis), key=list(self.mesh).index)
            if self._divides(self.tape.types[value], dim, axes) and rule.can_shard(factor, self._ranks(axes)):
                self.shardings[value] = own.with_dim(dim, axes)
                changed = True
        return changed

    def _ranks(self, axes: Sequence[str]) -> int:
        return prod(self.mesh[axis] for axis in axes)

    def _divides(self, type: TensorType, dim: int, axes: Sequence[str]) -> bool:
        size = type.shape[dim].value
        return size is not None and size > 0 and size % self._ranks(axes) == 0


def _constraints(tape: Tape, axes: Mapping[str, int] | None) -> dict[int, Sharding]:
    """What the program itself says of its values, of some axes alone where they are given."""
    found: dict[int, Sharding] = {}
    for record in tape.records:
        if record.op == CONSTRAINT:
            sharding = Sharding.parse(record.attributes["sharding"])
            found[record.results[0]] = sharding if axes is None else sharding.only(*axes)
    return found
