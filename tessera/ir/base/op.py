"""`SpecOp`: an op of any of our dialects, all it does read from its `OpSpec`: access, text, and its own check."""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

from xdsl.dialects.builtin import UNKNOWN_LOC, LocationAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue, SSAValues, Use
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from tessera.diagnostics.error import Span
from tessera.ir.base.infer import Guards, RuleContext, RuleError
from tessera.ir.base.literal import COMPOSITE, Reader, is_placeholder, normalize, text_of
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.types import ShapedAttr, TensorAttr, ValueAttr, attribute_of, read_with, span_of, type_text_of
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from xdsl.parser import Parser, UnresolvedOperand

CURRENT = 4
"""The version of the text of all our dialects; `UPGRADES` in `text.py` says what changed before it."""

TAPES = ("tape", "tapes")
_NO_ATTRIBUTES: Mapping[str, Attribute] = {}


class OpError(VerifyException):
    """An op breaks a rule of its dialect."""

    def __init__(self, op: Operation, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.op, self.message, self.advice = op, message, advice

    @property
    def span(self) -> Span | None:
        return span_of(self.op)


class _OpClass(ABCMeta):
    """The class of op classes: `isinstance` goes by inheritance alone, at a fraction of what it costs with an ABC."""

    __instancecheck__ = type.__instancecheck__


class SpecOp(Operation, metaclass=_OpClass):
    """An op whose class holds nothing but its spec; attributes are xDSL properties that wrap plain values.

    Text: `%r = tgraph.sum %x {axes = [1]} : (!tgraph.tensor<[B, 4], f32>) -> !tgraph.tensor<[B], f32>`; attributes
    that have their default value are left out, regions stand in parentheses before the colon. Functions are written
    `tgraph.func @f(%x: T) -> T attributes {...} {...}`.
    """

    spec: ClassVar[OpSpec]
    kinds: ClassVar[dict[str, str]]
    """The kind of each attribute that is not a tape."""
    defaults: ClassVar[dict[str, Any]]
    """The attribute (an xDSL one) that stands for each default."""
    counts: ClassVar[tuple[int, int, int] | None]
    """How many operands, results and regions there are, or None where that may vary."""

    # Ops are the keys of many tables: an object's own hash is its address too, and needs no call.
    __hash__ = object.__hash__
    __eq__ = object.__eq__  # pyright: ignore[reportAssignmentType]

    operand_values = property(attrgetter("_operands"))
    """The operands as a tuple, without the view through which `operands` lets them be changed."""

    @classmethod
    def create(
        cls,
        *,
        operands: Sequence[SSAValue] = (),
        result_types: Sequence[Attribute] = (),
        properties: Mapping[str, Attribute] = _NO_ATTRIBUTES,
        attributes: Mapping[str, Attribute] = _NO_ATTRIBUTES,
        location: LocationAttr | None = None,
        successors: Sequence[Block] = (),
        regions: Sequence[Region] = (),
    ) -> Self:
        """An op as xDSL makes it, but for setters that take away what is not there yet; ours have no successors."""
        assert not successors, f"`{cls.name}` has no successors"
        op = cls.__new__(cls)
        values, uses = SSAValues(operands), [Use(op, at) for at in range(len(operands))]
        for value, use in zip(values, uses, strict=True):
            value.add_use(use)
        op._operands, op._operand_uses = values, tuple(uses)
        op._successors = op._successor_uses = ()
        op.results = SSAValues([OpResult(type, op, at) for at, type in enumerate(result_types)])
        op.properties, op.attributes = dict(properties), dict(attributes)
        op.location = UNKNOWN_LOC if location is None else location
        for region in regions:
            op.add_region(region)
        return op

    def value(self, name: str) -> Any:
        """The plain value of an attribute."""
        found = self.properties.get(name)
        if found is None:
            return self.defaults[name].data
        assert isinstance(found, ValueAttr), f"{found} is not an attribute of ours"  # `plain`, without a call
        return found.data

    def values(self) -> dict[str, Any]:
        """The plain values of all attributes but tapes, in the order of the spec."""
        properties, defaults = self.properties, self.defaults
        found: dict[str, Any] = {name: properties.get(name) or defaults[name] for name in self.kinds}
        return {name: attribute.data for name, attribute in found.items()}

    @classmethod
    def takes_none(cls, name: str) -> bool:
        """Whether an attribute may say nothing: its default does, or its kind is any."""
        default = cls.defaults.get(name)
        return cls.kinds[name] == "any" or (default is not None and default.data is None)

    def set_value(self, name: str, value: Any) -> None:
        self.properties[name] = attribute_of(self.kinds[name], value)

    def operand(self, name: str) -> SSAValue:
        """The operand of a name; for a name ending in `*` see `operands_named`."""
        return self.operands[self.spec.operands.index(name)]

    def operands_named(self, name: str) -> Sequence[SSAValue]:
        """The operands behind a last name ending in `*`."""
        return self.operands[self.spec.operands.index(name) :]

    def region(self, name: str) -> Region:
        return self.regions[[n.rstrip("*") for n in self.spec.region_names].index(name)]

    @property
    def span(self) -> Span | None:
        return span_of(self)

    @property
    def result(self) -> SSAValue:
        """The only result."""
        (found,) = self.results
        return found

    def walk(self, *, reverse: bool = False, region_first: bool = False) -> Iterator[Operation]:
        """This op and all inside it, as xDSL gives them, without a generator for every block and region on the way."""
        if reverse or region_first:
            yield from super().walk(reverse=reverse, region_first=region_first)
            return
        yield self
        for region in self.regions:
            for block in region.blocks:
                following = block.first_op
                while following is not None:
                    # The field behind `next_op`: a program is walked some hundred times.
                    op, following = following, following._next_op  # pyright: ignore[reportPrivateUsage]
                    if op.regions:
                        yield from op.walk()
                    else:
                        yield op

    def fail(self, message: str, advice: str = "") -> NoReturn:
        raise OpError(self, message, advice)

    def print(self, printer: Printer) -> None:
        FORMS[self.spec.form].print(self, printer)

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        return FORMS[cls.spec.form].parse(cls, parser)

    def verify_(self) -> None:
        check_form(self)
        check_meaning(self, guards_of(self))


def plain(attribute: Attribute) -> Any:
    """The plain value in an attribute of ours."""
    assert isinstance(attribute, ValueAttr), f"{attribute} is not an attribute of ours"
    return attribute.data


def guards_of(op: Operation) -> Guards:
    """The guards of the function around an op."""
    at: Operation | None = op
    while at is not None:
        found = at.properties.get("guards")
        if isinstance(found, ValueAttr):
            return Guards(found.data)
        at = at.parent_op()
    return Guards()


def check_form(op: SpecOp) -> None:
    """Raises OpError unless the op has the operands, results, regions and attributes of its spec."""
    found = (len(op.operand_values), len(op.results), len(op.regions))
    if found != op.counts:
        spec = op.spec
        _check_arity(op, "operands", spec.operands, found[0])
        _check_arity(op, "results", spec.results, found[1])
        _check_arity(op, "regions", spec.region_names, found[2])
    _check_attributes(op)


def has_placeholder(op: SpecOp) -> bool:
    """Whether the value of an attribute, or a part of one, is given elsewhere: `#attr.tessera.width`."""
    return any(isinstance(one, ValueAttr) and is_placeholder(one.data) for one in op.properties.values())


def check_meaning(op: SpecOp, guards: Guards) -> None:
    """Raises OpError unless the types are right and the spec's own check passes; its regions are right already."""
    spec = op.spec
    if spec.form == "function" and len(op.regions[0].blocks) != 1:
        op.fail(f"`{spec.name}` has {len(op.regions[0].blocks)} blocks, not one")
    if has_placeholder(op):
        return  # what it means is known once `graph-resolve-placeholders` has run
    if not spec.is_structural:
        _check_inferred(op, guards)
    elif spec.type_rule is not None:
        wanted = tuple(spec.type_rule([value.type for value in op.operands], op.values()))
        if wanted != tuple(result.type for result in op.results):
            op.fail(f"`{spec.name}` gives {types_text(wanted)} here, not {types_text(op.result_types)}")
    if spec.verify is not None:
        spec.verify(op)


def _check_arity(op: SpecOp, what: str, names: Sequence[str], count: int) -> None:
    fixed = len(names) - 1 if names and names[-1].endswith("*") else len(names)
    if count < fixed or (count > fixed and fixed == len(names)):
        least = "at least " if fixed < len(names) else ""
        listed = f" ({', '.join(names)})" if names else ""
        op.fail(f"`{op.name}` has {least}{fixed} {what}{listed}, got {count}")


def _check_attributes(op: SpecOp) -> None:
    for name, attribute in op.properties.items():
        kind = op.kinds.get(name)
        if kind is None:
            op.fail(f"`{op.name}` has no attribute `{name}`; it has {sorted(op.kinds)}")
        if isinstance(attribute, ValueAttr) and (kind in ("array", "any") or attribute.known_kind == kind):
            continue
        is_none = isinstance(attribute, ValueAttr) and attribute.data is None
        if not (op.takes_none(name) if is_none else _is_of_kind(kind, attribute)):
            op.fail(f"`{name}` of `{op.name}` must be a value of kind {kind}, got {value_text(attribute)}")
    for name, attribute in op.attributes.items():
        if name in DISCARDABLE and not _is_of_kind(DISCARDABLE[name], attribute):
            kind = DISCARDABLE[name]
            op.fail(f"`{name}` of `{op.name}` must be a value of kind {kind}, got {value_text(attribute)}")
    if len(op.properties) == len(op.kinds):
        return
    for name in op.kinds.keys() - op.properties.keys():
        if name not in op.defaults:
            op.fail(f"`{op.name}` needs attribute `{name}`")


DISCARDABLE: dict[str, str] = {
    "tessera.deterministic": "determinism",
    "tessera.device": "str",
    "tessera.donated": "ints",
    "tessera.effects": "strs",
    "tessera.mesh": "any",
    "tessera.numerics.policy": "policies",
    "tessera.recognized": "strs",
    "tessera.region": "str",
    "numerics.bounded": "range",
    "numerics.fused": "int",
    "numerics.inputs": "ranges",
    "numerics.policy": "str",
}
"""The kinds of attributes that any op may carry beside its own; a backend adds those that its passes write."""


def _is_of_kind(kind: str, attribute: Any) -> bool:
    if isinstance(attribute, ValueAttr) and is_placeholder(attribute.data):
        return True  # of any, until it is resolved
    if not isinstance(attribute, ValueAttr) or attribute.data is None or not _fits(kind, attribute.data):
        return False
    attribute.remember_kind(kind)
    return True


def _fits(kind: str, value: Any) -> bool:
    try:
        if kind in COMPOSITE:
            return COMPOSITE[kind](value)
        if isinstance(value, tuple) and None in value:
            return False
        return text_of(normalize(kind, value)) == text_of(value)
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        return False


_INFERRED: set[Any] = set()
"""What shape rules have found right without guards: layers repeat, and so do their ops."""
_INFERRED_LIMIT = 1 << 16


def _check_inferred(op: SpecOp, guards: Guards) -> None:
    types = [value.type for value in (*op.operand_values, *op.results)]
    key = (type(op), tuple(op.properties.values()), len(op.results), *types)
    if op.regions or guards.pairs or key not in _INFERRED:
        _check_shape_rule(op, guards)
        if not op.regions and not guards.pairs:
            if len(_INFERRED) >= _INFERRED_LIMIT:
                _INFERRED.clear()
            _INFERRED.add(key)


def _check_shape_rule(op: SpecOp, guards: Guards) -> None:
    operands: list[Any] = []
    for value in op.operands:
        if not isinstance(value.type, ShapedAttr):
            op.fail(f"`{op.name}` takes tensors, got {value.type}")
        operands.append(value.type.data)
    try:
        wanted = op.spec.infer(RuleContext(guards), operands, rule_attributes(op))
    except RuleError as error:
        raise OpError(op, error.message, error.advice) from error
    found = [result.type for result in op.results]
    if len(wanted) != len(found):
        op.fail(f"`{op.name}` has {len(wanted)} results here, got {len(found)}")
    for index, (want, have) in enumerate(zip(wanted, found, strict=True)):
        if not isinstance(have, TensorAttr) or not guards.are_same(want, have.data):
            op.fail(f"result {index} of `{op.name}` is {TensorAttr.of(want)} by its shape rule, not {have}")


def rule_attributes(op: SpecOp) -> dict[str, Any]:
    """All attributes as a shape rule sees them: regions made from tapes are given as tapes."""
    values: dict[str, Any] = op.values()
    if op.regions:
        from tessera.ir.base.build import tapes_of  # noqa: PLC0415 - it reads ops, so it imports this file

        values.update(tapes_of(op))
    return values


def types_text(types: Sequence[Any]) -> str:
    """One type, or several in parentheses."""
    if len(types) == 1:
        return type_text_of(types[0])
    return "(" + ", ".join([type_text_of(type) for type in types]) + ")"


def attributes_text(op: SpecOp, hidden: Collection[str] = ()) -> str:
    """` {a = 1}` with what is not at its default, or nothing."""
    parts: list[str] = []
    for name, kind in op.kinds.items():
        attribute = op.properties.get(name)
        if name not in hidden and attribute is not None and attribute != op.defaults.get(name):
            parts.append(f"{name} = {text_of(plain(attribute), kind)}")
    parts += [f"{name} = {value_text(attribute)}" for name, attribute in op.attributes.items()]
    return " {" + ", ".join(parts) + "}" if parts else ""


def value_text(attribute: Any) -> str:
    """The text of an attribute that no spec declares."""
    if isinstance(attribute, ValueAttr):
        return attribute.text
    return text_of(attribute.data) if isinstance(attribute, StringAttr) else str(attribute)


def print_op(op: SpecOp, printer: Printer) -> None:
    """Operands, attributes, regions, and the types of both ends."""
    if op.operands:
        printer.print_string(" ")
        printer.print_list(op.operands, printer.print_ssa_value)
    printer.print_string(attributes_text(op))
    printer.print_regions(op.regions)
    if op.operands or op.results:
        operands = ", ".join([type_text_of(value.type) for value in op.operands])
        printer.print_string(f" : ({operands}) -> {types_text(op.result_types)}")


def print_function(op: SpecOp, printer: Printer) -> None:
    """The name, arguments with types, result types, attributes, and the body."""
    printer.print_string(f" @{op.value('symbol')}(")
    block = op.regions[0].block
    for index, argument in enumerate(block.args):
        printer.print_string(", " if index else "")
        printer.print_ssa_value(argument)
        printer.print_string(f": {type_text_of(argument.type)}")
    printer.print_string(")")
    given = function_results(op)
    if given:
        printer.print_string(f" -> {types_text(given)}")
    attributes = attributes_text(op, hidden=("symbol",))
    if attributes:
        printer.print_string(f" attributes{attributes}")
    printer.print_string(" ")
    printer.print_region(op.regions[0], print_entry_block_args=False, print_empty_block=False)


def function_results(op: SpecOp) -> Sequence[Any]:
    """The types that a function returns: those of its terminator's operands."""
    last = op.regions[0].block.last_op
    return () if last is None else last.operand_types


def parse_attributes(
    cls: type[SpecOp], parser: Parser, brackets: str = "{}"
) -> tuple[dict[str, ValueAttr], dict[str, ValueAttr]]:
    """Properties and discardable attributes of `{...}`; the latter have a dot in their name."""

    def read(reader: Reader) -> dict[str, Any]:
        return reader.entries(lambda name: cls.kinds.get(name, "any"), brackets)

    start = parser.pos
    entries = read_with(parser, read)
    properties: dict[str, ValueAttr] = {}
    attributes: dict[str, ValueAttr] = {}
    for name, value in entries.items():
        if name in cls.kinds:
            properties[name] = attribute_of(cls.kinds[name], value)
        elif "." in name:
            attributes[name] = attribute_of("any", value)
        elif getattr(parser, "version", CURRENT) < CURRENT:
            properties[name] = attribute_of("any", value)  # the upgrade of this version knows it
        else:
            parser.raise_error(f"`{cls.name}` has no attribute `{name}`; it has {sorted(cls.kinds)}", start, start + 1)
    return properties, attributes


def complete(cls: type[SpecOp], given: Mapping[str, Any]) -> dict[str, Any]:
    """The properties in the order of the spec, those left out at their defaults."""
    found = {**cls.defaults, **given}
    return {name: found[name] for name in (*cls.kinds, *(given.keys() - cls.kinds.keys())) if name in found}


def parse_op(cls: type[SpecOp], parser: Parser) -> Any:
    """What `print_op` wrote."""
    operands: list[UnresolvedOperand] = []
    # Where nothing goes in or out no types follow, and the next `%` is a result of the next line.
    is_bare = not (cls.spec.operands or cls.spec.results or cls.spec.is_terminator)
    first = None if is_bare else parser.parse_optional_unresolved_operand()
    if first is not None:
        operands.append(first)
        while parser.parse_optional_punctuation(",") is not None:
            operands.append(parser.parse_unresolved_operand())
    properties: dict[str, ValueAttr] = {}
    attributes: dict[str, ValueAttr] = {}
    if parser.lexer.input.at(parser.pos) == "{":
        properties, attributes = parse_attributes(cls, parser)
    regions = parser.parse_region_list()
    inputs: Sequence[Any] = ()
    outputs: Sequence[Any] = ()
    at = parser.pos
    if operands or parser.lexer.input.at(parser.pos) == ":":
        parser.parse_punctuation(":")
        at = parser.pos
        signature = parser.parse_function_type()
        inputs, outputs = signature.inputs.data, signature.outputs.data
    return cls.create(
        operands=parser.resolve_operands(operands, inputs, at),
        result_types=outputs,
        properties=complete(cls, properties),
        attributes=attributes,
        regions=regions,
    )


def parse_body(parser: Parser, arguments: Any = None) -> Region:
    """A region of one block."""
    start = parser.pos
    region = parser.parse_region(arguments)
    if len(region.blocks) != 1:
        parser.raise_error(f"a body has one block, and this one has {len(region.blocks)}", start, start + 1)
    return region


def parse_function(cls: type[SpecOp], parser: Parser) -> Any:
    """What `print_function` wrote."""
    symbol = parser.parse_symbol_name().data
    arguments = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_argument)
    at = parser.pos
    results: Sequence[Any] = ()
    if parser.parse_optional_punctuation("->") is not None:
        if parser.lexer.input.at(parser.pos) == "(":
            results = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
        else:
            results = [parser.parse_type()]
    properties: dict[str, ValueAttr] = {}
    attributes: dict[str, ValueAttr] = {}
    if parser.parse_optional_keyword("attributes") is not None:
        properties, attributes = parse_attributes(cls, parser)
    properties["symbol"] = attribute_of("symbol", symbol)
    region = parse_body(parser, arguments)
    op = cls.create(properties=complete(cls, properties), attributes=attributes, regions=[region])
    if tuple(results) != tuple(function_results(op)):
        got = types_text(function_results(op))
        parser.raise_error(
            f"`@{symbol}` is declared to give {types_text(results)}, but its end gives {got}", at, at + 1
        )
    return op


@frozen
class Form:
    """How ops of a form are written: both ways."""

    print: Callable[[SpecOp, Printer], None]
    parse: Callable[[type[Any], Parser], Any]


FORMS: dict[str, Form] = {"op": Form(print_op, parse_op), "function": Form(print_function, parse_function)}
"""By `OpSpec.form`; a dialect may add its own."""
