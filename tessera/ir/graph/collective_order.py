"""Which values are equal on all ranks of a mesh axis, and whether all ranks reach collectives in one order.

A collective that some ranks skip, or reach in another order, deadlocks. So a value is followed with the set of mesh
axes along which it is uniform: constants and the results of reductions and gathers are, arguments are not. Control flow
whose condition is not uniform along an axis may hold no collective of that axis, unless both branches have the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import EffectOrderError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TensorAttr

Axes: TypeAlias = "frozenset[str]"
"""Mesh axes along which a value is uniform, or along which all ranks execute an op."""

_UNIFORM_RESULTS = ("tgraph.all_reduce", "tgraph.all_gather", "tgraph.replicated")
"""Ops whose results are equal on all ranks of their axis."""


def check_collective_order(function: SpecOp) -> None:
    """Raises EffectOrderError (T0302) for a collective that some ranks of its axis could skip, or reach out of order.

    Arguments may differ from rank to rank; constants do not, and neither does what was reduced or gathered along an
    axis, or is promised to be `replicated`.
    """
    _UniformityWalk(function).run()


class _UniformityWalk:
    """For each value, the axes along which it is uniform."""

    def __init__(self, function: SpecOp) -> None:
        self.function = function
        self.every: Axes = frozenset(axis for op in function.walk() if (axis := _axis(op)))
        self.uniform: dict[SSAValue, Axes] = {}

    def run(self) -> None:
        block = self.function.regions[0].block
        unknown: Axes = frozenset()
        self._block(block, [unknown] * len(block.args), self.every, None)

    def _block(self, block: Block, arguments: Sequence[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        """The uniformity of what a block yields; ranks of `together` execute it, and `around` is why others do not."""
        self.uniform.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            assert isinstance(op, SpecOp)
            operands = [self.uniform[value] for value in op.operands]
            if op.spec.is_terminator:
                return operands
            if op.regions:
                results = self._flow(op, operands, together, around)
            else:
                _check(op, together, around)
                results = [self._result(op, operands)] * len(op.results)
            self.uniform.update(zip(op.results, results, strict=True))
        return []

    def _result(self, op: SpecOp, operands: Sequence[Axes]) -> Axes:
        found = self.every.intersection(*operands)
        axis = _axis(op)
        if "io" in op.spec.effects:
            return frozenset()
        if axis and op.name in _UNIFORM_RESULTS:
            return found | {axis}
        return found - {axis} if axis else found

    def _flow(self, op: SpecOp, operands: list[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        bodies = tuple(op.spec.region_names)
        if bodies == ("then", "otherwise"):
            return self._branch(op, operands, together, around)
        lowest: Axes = self.every
        if "carried" not in op.kinds:
            return self._unknown(op)
        if bodies == ("condition", "body"):
            return self._loop(op, operands, (), lowest, together, around)
        if op.name == "tgraph.fori":
            lowest = operands[0] & operands[1]
            return self._loop(op, operands[2:], (lowest,), lowest, together, around)
        return self._loop(op, operands, (), lowest, together, around)

    def _unknown(self, op: SpecOp) -> list[Axes]:
        """An op of another kind: nothing is known of which ranks execute its bodies, and how often."""
        nothing: Axes = frozenset()
        for region in op.regions:
            self._block(region.block, [nothing] * len(region.block.args), nothing, op)
        return [nothing] * len(op.results)

    def _branch(self, op: SpecOp, operands: list[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        decided, operands = operands[0], operands[1:]
        alike = len({_signature(region.block) for region in op.regions}) == 1
        inside, why = (together, around) if alike else (together & decided, op if together - decided else around)
        branches = [self._block(region.block, operands, inside, why) for region in op.regions]
        return [left & right & decided for left, right in zip(*branches, strict=True)]

    def _loop(
        self,
        op: SpecOp,
        operands: Sequence[Axes],
        index: tuple[Axes, ...],
        repeated: Axes,
        together: Axes,
        around: SpecOp | None,
    ) -> list[Axes]:
        """A loop, to a fixed point: what it carries is uniform where it starts and stays so, and `repeated` is too."""
        count, others = op.value("carried"), list(operands[op.value("carried") :])
        carried = list(operands[:count])
        while True:
            # Errors are raised after the fixed point alone: later iterations may see less uniform values.
            yielded, decided = self._iteration(op, [*index, *carried, *others], repeated, self.every, None)
            merged = [own & new & decided for own, new in zip(carried, yielded, strict=False)]
            if merged == carried:
                break
            carried = merged
        inside, why = together & decided, op if together - decided else around
        yielded, _ = self._iteration(op, [*index, *carried, *others], repeated, inside, why)
        return [*carried, *(own & decided for own in yielded[count:])]

    def _iteration(
        self, op: SpecOp, arguments: list[Axes], repeated: Axes, together: Axes, around: SpecOp | None
    ) -> tuple[list[Axes], Axes]:
        *tests, body = (region.block for region in op.regions)
        for test in tests:
            repeated = repeated & self._block(test, arguments, together, around)[0]
        return self._block(body, arguments, together, around), repeated


def _axis(op: Any) -> str:
    """The mesh axis that an op communicates over, if it has more than one rank."""
    if not isinstance(op, SpecOp) or not {"axis", "size"} <= op.kinds.keys() or op.kinds["axis"] != "str":
        return ""
    sizes = op.value("size")
    return "" if sizes and sizes[0].value == 1 else str(op.value("axis"))


def _check(op: SpecOp, together: Axes, around: SpecOp | None) -> None:
    axis = _axis(op)
    if "collective" not in op.spec.effects or not axis or axis in together:
        return
    location = f" at {around.span}" if around is not None and around.span is not None else ""
    flow = around.spec.short_name if around is not None else "control flow"
    raise EffectOrderError(
        f"ranks of `{axis}` could reach `{op.spec.short_name}` in different orders: "
        f"the condition of the `{flow}` around it may differ between them",
        span=op.span,
        notes=(f"the `{flow}` is{location}",) if location else (),
        fix=f"branch on a value that all ranks share: reduce it with `dist.all_reduce(value, {axis!r}, 'max')`, "
        f"or promise it with `dist.replicated(value, {axis!r})`",
    )


def _signature(block: Block) -> tuple[Any, ...]:
    """The collectives of a block in order, with all that ranks must agree on; loops and branches as nested lists."""
    found: list[Any] = []
    for op in block.ops:
        if not isinstance(op, SpecOp):
            continue
        if _axis(op) and "collective" in op.spec.effects:
            types = tuple(value.type.data for value in op.operands if isinstance(value.type, TensorAttr))
            found.append((op.name, tuple(sorted((name, str(value)) for name, value in op.values().items())), types))
        inner = [_signature(region.block) for region in op.regions]
        if any(inner):
            # How often a loop runs is not known here, so no two of them are equal.
            found.append((op.name, id(op), *inner))
    return tuple(found)
