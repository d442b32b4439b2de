"""Which values are the same on all ranks of a mesh axis, and whether ranks meet collectives in one order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from xdsl.ir import Block, SSAValue

from tessera.diagnostics.codes import EffectOrderError
from tessera.ir.base.op import SpecOp
from tessera.ir.base.types import TensorAttr

Axes: TypeAlias = "frozenset[str]"
"""Mesh axes along which a value is the same, or along which all ranks take the same way."""

_SHARING = ("tgraph.all_reduce", "tgraph.all_gather", "tgraph.replicated")
"""What these give is the same along their axis."""


def check_collective_order(function: SpecOp) -> None:
    """Raises EffectOrderError (T0302) for a collective that some ranks of its axis could miss, or meet out of order.

    Arguments may differ from rank to rank; constants do not, and neither does what was reduced or gathered along an
    axis, or is promised to be `replicated`. Where the way taken depends on a value that may differ along an axis, no
    collective of that axis may stand, unless all ways have the same ones.
    """
    _Ranks(function).run()


class _Ranks:
    """The walk: for each value the axes along which it is the same."""

    def __init__(self, function: SpecOp) -> None:
        self.function = function
        self.every: Axes = frozenset(axis for op in function.walk() if (axis := _axis(op)))
        self.same: dict[SSAValue, Axes] = {}

    def run(self) -> None:
        block = self.function.regions[0].block
        unknown: Axes = frozenset()
        self._block(block, [unknown] * len(block.args), self.every, None)

    def _block(self, block: Block, arguments: Sequence[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        """What a block passes on, when all ranks of `together` come to it; `around` is why others do not."""
        self.same.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            assert isinstance(op, SpecOp)
            given = [self.same[value] for value in op.operands]
            if op.spec.is_terminator:
                return given
            if op.regions:
                results = self._flow(op, given, together, around)
            else:
                _check(op, together, around)
                results = [self._result(op, given)] * len(op.results)
            self.same.update(zip(op.results, results, strict=True))
        return []

    def _result(self, op: SpecOp, given: Sequence[Axes]) -> Axes:
        found = self.every.intersection(*given)
        axis = _axis(op)
        if "io" in op.spec.effects:
            return frozenset()
        if axis and op.name in _SHARING:
            return found | {axis}
        return found - {axis} if axis else found

    def _flow(self, op: SpecOp, given: list[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        bodies = tuple(op.spec.region_names)
        if bodies == ("then", "otherwise"):
            return self._branch(op, given, together, around)
        lowest: Axes = self.every
        if "carried" not in op.kinds:
            return self._unknown(op)
        if bodies == ("condition", "body"):
            return self._rounds(op, given, (), lowest, together, around)
        if op.name == "tgraph.fori":
            lowest = given[0] & given[1]
            return self._rounds(op, given[2:], (lowest,), lowest, together, around)
        return self._rounds(op, given, (), lowest, together, around)

    def _unknown(self, op: SpecOp) -> list[Axes]:
        """An op of which nobody here knows who enters its bodies, and how often."""
        nothing: Axes = frozenset()
        for region in op.regions:
            self._block(region.block, [nothing] * len(region.block.args), nothing, op)
        return [nothing] * len(op.results)

    def _branch(self, op: SpecOp, given: list[Axes], together: Axes, around: SpecOp | None) -> list[Axes]:
        decided, operands = given[0], given[1:]
        alike = len({_signature(region.block) for region in op.regions}) == 1
        inside, why = (together, around) if alike else (together & decided, op if together - decided else around)
        ways = [self._block(region.block, operands, inside, why) for region in op.regions]
        return [left & right & decided for left, right in zip(*ways, strict=True)]

    def _rounds(
        self,
        op: SpecOp,
        given: Sequence[Axes],
        index: tuple[Axes, ...],
        repeated: Axes,
        together: Axes,
        around: SpecOp | None,
    ) -> list[Axes]:
        """A loop: what it carries is the same where it starts the same and stays so; `repeated` how often, too."""
        count, rest = op.value("carried"), list(given[op.value("carried") :])
        carried = list(given[:count])
        while True:
            # Nothing is reported before it is known what rounds after the first see.
            given_on, decided = self._round(op, [*index, *carried, *rest], repeated, self.every, None)
            merged = [own & new & decided for own, new in zip(carried, given_on, strict=False)]
            if merged == carried:
                break
            carried = merged
        inside, why = together & decided, op if together - decided else around
        given_on, _ = self._round(op, [*index, *carried, *rest], repeated, inside, why)
        return [*carried, *(own & decided for own in given_on[count:])]

    def _round(
        self, op: SpecOp, arguments: list[Axes], repeated: Axes, together: Axes, around: SpecOp | None
    ) -> tuple[list[Axes], Axes]:
        *tests, body = (region.block for region in op.regions)
        for test in tests:
            repeated = repeated & self._block(test, arguments, together, around)[0]
        return self._block(body, arguments, together, around), repeated


def _axis(op: Any) -> str:
    """The mesh axis that an op speaks along, if it has more than one rank."""
    if not isinstance(op, SpecOp) or not {"axis", "size"} <= op.kinds.keys() or op.kinds["axis"] != "str":
        return ""
    sizes = op.value("size")
    return "" if sizes and sizes[0].value == 1 else str(op.value("axis"))


def _check(op: SpecOp, together: Axes, around: SpecOp | None) -> None:
    axis = _axis(op)
    if "collective" not in op.spec.effects or not axis or axis in together:
        return
    place = f" at {around.span}" if around is not None and around.span is not None else ""
    flow = around.spec.short_name if around is not None else "control flow"
    raise EffectOrderError(
        f"ranks of `{axis}` could meet `{op.spec.short_name}` in different orders: "
        f"what decides the `{flow}` around it may differ between them",
        span=op.span,
        notes=(f"the `{flow}` stands{place}",) if place else (),
        fix=f"decide by what all ranks share: reduce it with `dist.all_reduce(value, {axis!r}, 'max')`, "
        f"or promise it with `dist.replicated(value, {axis!r})`",
    )


def _signature(block: Block) -> tuple[Any, ...]:
    """The collectives of a block in order, as far as ranks must agree on them; loops and branches as nested lists."""
    found: list[Any] = []
    for op in block.ops:
        if not isinstance(op, SpecOp):
            continue
        if _axis(op) and "collective" in op.spec.effects:
            types = tuple(value.type.data for value in op.operands if isinstance(value.type, TensorAttr))
            found.append((op.name, tuple(sorted((name, str(value)) for name, value in op.values().items())), types))
        inner = [_signature(region.block) for region in op.regions]
        if any(inner):
            # How often a loop runs is not known here, so no two of them are alike.
            found.append((op.name, id(op), *inner))
    return tuple(found)
