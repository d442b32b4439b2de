"""Making ops where a pass stands: the `Builder` that `decompose` gets and the `Simplifier` that `simplify` gets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from tessera.diagnostics.span import Span
from tessera.ir.base.dialect_of import inferred_types, op_class, properties_of
from tessera.ir.base.infer import Guards, RuleContext
from tessera.ir.base.location import location_of
from tessera.ir.base.op import SpecOp, rule_attributes
from tessera.ir.base.spec import Producer
from tessera.ir.base.types import ShapedAttr, TensorAttr
from tessera.types.dim import Dim
from tessera.types.tensor_type import TensorType


class Build:
    """Puts ops into a block before `before` (or at its end), with one span, running their shape rules.

    Equalities that nothing proves become guards of the function around; ops made are in `made`, in order, and say of
    themselves what `promises` say.
    """

    def __init__(
        self,
        block: Block,
        before: Operation | None = None,
        span: Span | None = None,
        dialect: str = "tgraph",
        promises: Mapping[str, Attribute] | None = None,
    ) -> None:
        self.block, self.before, self.dialect = block, before, dialect
        self.promises = promises
        self.location = location_of(span)
        self.made: list[SpecOp] = []
        self._rules: RuleContext | None = None

    @property
    def _context(self) -> RuleContext:
        # Found at the first emit: most rules look at an op and make nothing.
        if self._rules is None:
            self._function = _function_around(self.block)
            pairs = self._function.value("guards") if self._function is not None else ()
            self._rules = RuleContext(Guards(pairs or ()), self._guard)
        return self._rules

    def _guard(self, left: Dim, right: Dim, what: str) -> None:
        guards = self._context.guards
        guards.add(left, right, what)
        if self._function is not None:
            self._function.set_value("guards", tuple(guards.pairs))

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The result of op `<dialect>.<name>`, or a tuple when it has several."""
        cls = op_class(name if "." in name else f"{self.dialect}.{name}")
        properties = properties_of(cls, attributes)
        regions: Any = ()
        values = {name: attribute.data for name, attribute in properties.items()}
        if cls.spec.region_names:
            from tessera.ir.base.region_tape import regions_of  # noqa: PLC0415 - few ops have regions

            values.update({k: v for k, v in attributes.items() if k not in cls.kinds})
            regions = regions_of(cls, values)
        op = cls.create(
            operands=operands,
            result_types=inferred_types(cls, operands, properties, values, self._context),
            properties=properties,
            location=self.location,
            regions=regions,
        )
        self.insert(op)
        several = len(cls.spec.results) != 1 or cls.spec.results[0].endswith("*")
        return tuple(op.results) if several else op.results[0]

    def insert(self, op: SpecOp) -> None:
        self.made.append(op)
        if self.promises:
            op.attributes.update(self.promises)
        if self.before is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.before)

    def type_of(self, value: Any) -> TensorType:
        type = value.type
        assert isinstance(type, ShapedAttr)
        return type.data

    def producer(self, value: Any) -> Producer | None:
        """The op whose only result `value` is; None for an argument, or one result of several."""
        op = value.owner if isinstance(value, OpResult) else None
        if not isinstance(op, SpecOp) or len(op.results) != 1:
            return None
        attributes = rule_attributes(op) if op.regions else op.values()
        return Producer(op.spec.short_name, tuple(op.operands), attributes, op.spec.moves_elements)

    def undo(self) -> None:
        """Take back what was made."""
        for op in reversed(self.made):
            op.detach()
            op.erase()
        self.made.clear()


def _function_around(block: Block) -> SpecOp | None:
    at = block.parent_op()
    while at is not None:
        if isinstance(at, SpecOp) and at.spec.form == "function" and "guards" in at.kinds:
            return at
        at = at.parent_op()
    return None


def tensor_value(value: SSAValue) -> TensorType:
    """The plain type of a value of Graph IR."""
    assert isinstance(value.type, TensorAttr)
    return value.type.data
