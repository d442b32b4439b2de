"""Building and rewriting IR: the `Builder` that `decompose` gets, writers of blocks, and patterns on a worklist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, OpResult, SSAValue

from tessera.diagnostics.error import Span
from tessera.ir.base.dialect_of import inferred_types, make, op_class, properties_of
from tessera.ir.base.infer import Guards, RuleContext
from tessera.ir.base.op import SpecOp, plain, rule_attributes
from tessera.ir.base.policies import carried_policy
from tessera.ir.base.spec import Attributes, Producer, Registry
from tessera.ir.base.tape import POLICY, REGION, Record, Tape
from tessera.ir.base.types import ShapedAttr, SpanLoc, TensorAttr, ValueAttr, attribute_of, location_of
from tessera.types.device import DEVICE
from tessera.types.dim import Dim
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType

# Writing IR: ops of one dialect, one after the other, into a block.


class OpWriter:
    """A block that grows, at its end or `before` an op, and the line that its next ops come from.

    `dialect` finds ops by their short names.
    """

    dialect: Registry
    block: Block

    def __init__(self, block: Block, before: SpecOp | None = None) -> None:
        self.block, self.before = block, before
        self.span: Span | None = None if before is None else before.span

    def emit(
        self,
        name: str,
        operands: Sequence[SSAValue] = (),
        values: Mapping[str, Any] | None = None,
        types: Sequence[Any] = (),
        regions: Sequence[Any] = (),
    ) -> SpecOp:
        """Write an op."""
        op = make(self.dialect[name], list(operands), values, types=types, regions=regions, span=self.span)
        if self.before is None:
            self.block.add_op(op)
        else:
            self.block.insert_op_before(op, self.before)
        return op


# Blocks and tapes: a traced sub-program as a region, and a region as a tape again.


def block_of(tape: Tape, terminator: str) -> Block:
    """The tape as a block: arguments are its inputs, and `terminator` (an op's full name) takes its outputs."""
    block = Block(arg_types=[TensorAttr.of(tape.types[value]) for value in tape.inputs])
    values: dict[int, SSAValue] = dict(zip(tape.inputs, block.args, strict=True))
    for value, name in zip(tape.inputs, tape.names, strict=False):
        values[value].name_hint = name if SSAValue.is_valid_name(name) else None
    for record in tape.records:
        op = _op_of(record, values, tape)
        block.add_op(op)
        for number, result in zip(record.results, op.results, strict=True):
            values[number] = result
    block.add_op(make(terminator, [values[value] for value in tape.outputs]))
    return block


@lru_cache(maxsize=1 << 8)
def _policy_attribute(policy: Policy) -> ValueAttr:
    """The one attribute of a policy: many ops carry few of them."""
    return attribute_of("any", policy.entries)


def _op_of(record: Record, values: Mapping[int, SSAValue], tape: Tape) -> SpecOp:
    cls = op_class(record.op)
    given, defaults = record.attributes, cls.defaults
    properties: dict[str, Any] = {
        name: attribute_of(kind, given[name]) if name in given else defaults[name] for name, kind in cls.kinds.items()
    }
    regions = regions_of(cls, given) if cls.spec.region_names else ()
    promises = {POLICY: _policy_attribute(record.policy)} if record.policy else {}
    if record.device:
        promises[DEVICE] = attribute_of("str", record.device)
    if record.region:
        promises[REGION] = attribute_of("str", record.region)
    return cls.create(
        operands=[values[operand] for operand in record.operands],
        result_types=[TensorAttr.of(tape.types[result]) for result in record.results],
        properties=properties,
        attributes=promises,
        location=location_of(record.span),
        regions=regions,
    )


def regions_of(cls: type[SpecOp], values: Mapping[str, Any]) -> list[Any]:
    """The tapes among an op's attributes as regions, in the order of the spec."""
    from xdsl.ir import Region  # noqa: PLC0415 - few ops have regions

    terminator = f"{cls.dialect_name()}.yield"
    tapes: list[Tape] = []
    for attribute in cls.spec.attributes:
        if attribute.kind == "tape":
            tapes.append(values[attribute.name])
        elif attribute.kind == "tapes":
            tapes.extend(values[attribute.name])
    return [Region(block_of(tape, terminator)) for tape in tapes]


def tapes_of(op: SpecOp) -> dict[str, Any]:
    """The regions of an op that were tapes, as tapes, by attribute."""
    found: dict[str, Any] = {}
    at = 0
    for attribute in op.spec.attributes:
        if attribute.kind == "tape":
            found[attribute.name] = tape_of(op.regions[at].block)
            at += 1
        elif attribute.kind == "tapes":
            count = len(op.regions) - at - len(op.spec.regions)
            found[attribute.name] = tuple(tape_of(region.block) for region in op.regions[at : at + count])
            at += count
    return found


def tape_of(block: Block, names: Sequence[str] = ()) -> Tape:
    """A block of ops with shape rules, ended by a terminator, as a tape."""
    tape = Tape()
    numbers: dict[SSAValue, int] = {}

    def number(value: SSAValue) -> int:
        assert isinstance(value.type, TensorAttr)
        numbers[value] = tape.new_value(value.type.data)
        return numbers[value]

    tape.inputs = [number(argument) for argument in block.args]
    tape.names = list(names) or [argument.name_hint or f"arg{i}" for i, argument in enumerate(block.args)]
    for op in block.ops:
        assert isinstance(op, SpecOp)
        operands = tuple([numbers[operand] for operand in op.operand_values])
        if op.spec.is_terminator:
            tape.outputs = list(operands)
            continue
        attributes = rule_attributes(op) if op.regions else op.values()
        results = tuple([number(result) for result in op.results])
        own = op.attributes.get(POLICY)
        policy = SILENT if own is None else Policy.of(plain(own))
        device = str(plain(op.attributes[DEVICE])) if DEVICE in op.attributes else ""
        tape.records.append(Record(op.name, operands, attributes, results, op.span, policy, device, region_of(op)))
    return tape


def region_of(op: Operation) -> str:
    """The mesh axes of the scopes around an op, as a record has them."""
    return str(plain(op.attributes[REGION])) if REGION in op.attributes else ""


class _OpProducer(Producer):
    """An op as `simplify` sees it; few rules look beyond the name, so attributes are read where they are asked for."""

    __slots__ = ("_op",)

    def __init__(self, op: SpecOp) -> None:
        object.__setattr__(self, "_op", op)
        object.__setattr__(self, "name", op.spec.short_name)
        object.__setattr__(self, "operands", op.operand_values)
        object.__setattr__(self, "moves_elements", op.spec.moves_elements)

    @property
    def attributes(self) -> Attributes:  # pyright: ignore[reportIncompatibleVariableOverride]
        return rule_attributes(self._op)


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
        if cls.spec.attribute_rule is not None:
            attributes = cls.spec.complete(attributes, [self.type_of(one) for one in operands])
        properties = properties_of(cls, attributes)
        regions: Any = ()
        values = {name: attribute.data for name, attribute in properties.items()}
        if cls.spec.region_names:
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
        return op.results[0] if cls.spec.has_one_result else tuple(op.results)

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
        return _OpProducer(op)

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


# Rewriting by a worklist: patterns found by op name, each change followed to those it touches, within a budget.

Pattern: TypeAlias = "Callable[[SpecOp, Rewriter], bool]"
"""Looks at an op and either changes something through the rewriter and says True, or leaves all as it is."""

Find: TypeAlias = Callable[[SpecOp], Sequence[Pattern]]
"""The patterns for an op; a dict by `op.name` behind it keeps an op that has none at the price of a look-up."""


def replace_ops(module: ModuleOp, name: str, make: Callable[[SpecOp], SpecOp | None]) -> None:
    """Put what is made of each op of a name in its place; those that nothing is made of stay."""
    for op in list(module.ops):
        made = make(op) if isinstance(op, SpecOp) and op.name == name else None
        if made is not None:
            module.body.block.insert_op_before(made, op)
            op.detach()  # and not erased: what shows a program still reads what it was made of


class BudgetError(Exception):
    """Patterns went on changing for longer than any program should take: two of them undo each other."""


class Rewriter:
    """What a pattern may do; every change puts the ops it touches back on the worklist."""

    def __init__(self) -> None:
        self._pending: list[SpecOp] = []
        self._waiting: set[SpecOp] = set()
        self._gone: set[Operation] = set()

    def push(self, op: Operation) -> None:
        if isinstance(op, SpecOp) and op not in self._waiting and op not in self._gone:
            self._waiting.add(op)
            self._pending.append(op)

    def pop(self) -> SpecOp | None:
        while self._pending:
            op = self._pending.pop()
            self._waiting.discard(op)
            if op not in self._gone:
                return op
        return None

    def build(self, op: SpecOp) -> Build:
        """A builder that puts ops before `op`, with its span."""
        assert op.parent is not None
        build = Build(op.parent, op, None, op.dialect_name(), carried_policy(op) if op.attributes else None)
        location: Any = op.location
        build.location = location if isinstance(location, SpanLoc) else location_of(op.span)
        return build

    def replace(self, op: SpecOp, values: Sequence[SSAValue], made: Sequence[SpecOp] = ()) -> None:
        """Use `values` for the op's results and take the op away; `made` are new ops to look at, with those in them."""
        for old, new in zip(op.results, values, strict=True):
            for use in list(old.uses):
                self.push(use.operation)
            if new.name_hint is None:
                new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
        for one in made:
            for inner in reversed(list(one.walk())) if one.regions else (one,):
                self.push(inner)
        self.erase(op)

    def erase(self, op: SpecOp) -> None:
        """Take away an op whose results no one uses; what it used may now be dead too."""
        owners = [value.owner for value in op.operands]
        for inner in op.walk():
            self._gone.add(inner)
        op.detach()
        op.erase()
        for owner in owners:
            if isinstance(owner, Operation):
                self.push(owner)

    def erase_if_dead(self, op: SpecOp) -> bool:
        """Erase a pure op that no one uses, and so on up its operands (through the worklist)."""
        # What most ops are is asked first.
        if is_used(op) or not is_removable(op):
            return False
        self.erase(op)
        return True


def is_used(op: Operation) -> bool:
    """Whether any op uses a result of one."""
    for result in op.results:  # noqa: SIM110 - it is asked of each op many times, and a loop is half as long
        if result.first_use is not None:
            return True
    return False


def is_removable(op: SpecOp) -> bool:
    """Whether nothing is lost with the op but its results: it, and all inside it, is pure but for keyed draws."""
    spec = op.spec
    if spec.is_terminator or spec.form == "function" or not spec.is_mergeable or not op.results:
        return False
    return not op.regions or all(
        isinstance(inner, SpecOp) and inner.spec.is_mergeable for region in op.regions for inner in region.walk()
    )


def rewrite(root: Operation, find: Find, *, budget: int = 16) -> bool:
    """Apply patterns until none applies; whether anything changed. Ops that are dead on the way are removed.

    Ops are looked at in program order, so facts flow from operands to users in one go. Raises BudgetError when the
    changes outnumber `budget` for each op of the program.
    """
    rewriter = Rewriter()
    ops = [op for op in root.walk() if isinstance(op, SpecOp)]
    for op in reversed(ops):
        rewriter.push(op)
    left = budget * (len(ops) + 16)
    counts: Counter[str] = Counter()
    while (op := rewriter.pop()) is not None:
        if rewriter.erase_if_dead(op):
            counts["dead"] += 1
            continue
        for pattern in find(op):
            name = op.name
            if pattern(op, rewriter):
                counts[name] += 1
                left -= 1
                break
        if left < 0:
            worst = ", ".join(f"`{name}` {count} times" for name, count in counts.most_common(3))
            raise BudgetError(f"rewriting does not come to an end: {worst}")
    return bool(counts)
