"""The `tsched` dialect: the plan of a program and the host program that runs its kernels, and how they are written.

Operands have no types, and names that are not defined in a module are its inputs: `%a = tsched.fuse @body(%x, %y)
{kind = "map"} : T` is the symbol, operands, what has a keyword, attributes, bodies, and the types of results. Types of
operands are those of the values they name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from xdsl.ir import Region, SSAValue
from xdsl.printer import Printer

from tessera.ir.base.dialect_of import install
from tessera.ir.base.literal import text_of
from tessera.ir.base.op import (
    FORMS,
    Form,
    SpecOp,
    attributes_text,
    complete,
    parse_attributes,
    parse_body,
    parse_function,
    plain,
    print_function,
    types_text,
)
from tessera.ir.base.spec import Attribute, OpSpec, Registry
from tessera.ir.base.types import MarkAttr, ValueAttr, attribute_of, read_with
from tessera.ir.schedule.ops import REGISTRY
from tessera.ir.schedule.ops.plan import stages_of
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from xdsl.parser import Parser, UnresolvedOperand


class UntypedAttr(MarkAttr):
    """The type of a value of which only the name is known; it is left out in text."""

    name = "tsched.value"
    is_unknown = True


class FunctionAttr(MarkAttr):
    """The type of a group made into a kernel."""

    name = "tsched.func"


UNTYPED = UntypedAttr(None)


@frozen
class Shape:
    """What is special in the text of an op: the attribute that comes first as `@name`, and those with a keyword.

    A region is written `name(axis = "pp") {...}`, and gives what its body yields.
    """

    symbol: str = ""
    keywords: tuple[str, ...] = ()
    is_region: bool = False


_SHAPES = {
    "tsched.fuse": Shape("body"),
    "tsched.stage": Shape("body"),
    "tsched.call": Shape("kernel", ("sizes",)),
    "tsched.pipeline": Shape("symbol"),
    "tsched.tile": Shape("", ("candidates", "chosen")),
    "tsched.mesh.region": Shape(is_region=True),
    "tsched.pipeline.region": Shape(is_region=True),
}
_PLAIN = Shape()


def _print(op: SpecOp, printer: Printer) -> None:
    shape = _SHAPES.get(op.name, _PLAIN)
    if shape.is_region:
        printer.print_string(f"({attributes_text(op)[2:-1]}) ")
        printer.print_region(op.regions[0], print_entry_block_args=False, print_empty_block=False)
        return
    if shape.symbol:
        printer.print_string(f" @{op.value(shape.symbol)}")
    if shape.symbol and op.spec.operands:
        printer.print_string("(")
        printer.print_list(op.operands, printer.print_ssa_value)
        printer.print_string(")")
    elif op.operands:
        printer.print_string(" ")
        printer.print_list(op.operands, printer.print_ssa_value)
    for name in shape.keywords:
        attribute = op.properties.get(name)
        if attribute is not None and attribute != op.defaults.get(name):
            printer.print_string(f" {name} = {text_of(plain(attribute), op.kinds[name])}")
    printer.print_string(attributes_text(op, hidden=(shape.symbol, *shape.keywords)))
    printer.print_regions(op.regions)
    if any(type != UNTYPED for type in op.result_types):
        printer.print_string(f" : {types_text(op.result_types)}")


def _parse(cls: type[SpecOp], parser: Parser) -> Any:
    shape = _SHAPES.get(cls.name, _PLAIN)
    if shape.is_region:
        return _parse_region(cls, parser)
    properties: dict[str, ValueAttr] = {}
    operands: list[UnresolvedOperand] = []
    if shape.symbol:
        properties[shape.symbol] = attribute_of("symbol", parser.parse_symbol_name().data)
    if shape.symbol and cls.spec.operands:
        operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
    elif cls.spec.operands:
        operands = _operands(parser)
    for name in shape.keywords:
        if parser.parse_optional_keyword(name) is not None:
            properties[name] = _keyword_value(cls, parser, name)
    attributes: dict[str, ValueAttr] = {}
    if parser.lexer.input.at(parser.pos) == "{":
        given, attributes = parse_attributes(cls, parser)
        properties.update(given)
    regions = parser.parse_region_list()
    return cls.create(
        operands=[_resolve(parser, operand) for operand in operands],
        result_types=_result_types(cls, parser),
        properties=complete(cls, properties),
        attributes=attributes,
        regions=regions,
    )


def _parse_region(cls: type[SpecOp], parser: Parser) -> Any:
    properties, attributes = parse_attributes(cls, parser, "()")
    region = parse_body(parser)
    last = region.block.last_op
    return cls.create(
        result_types=() if last is None else last.operand_types,
        properties=complete(cls, properties),
        attributes=attributes,
        regions=[region],
    )


def _operands(parser: Parser) -> list[UnresolvedOperand]:
    found: list[UnresolvedOperand] = []
    first = parser.parse_optional_unresolved_operand()
    if first is not None:
        found.append(first)
        while parser.parse_optional_punctuation(",") is not None:
            found.append(parser.parse_unresolved_operand())
    return found


def _keyword_value(cls: type[SpecOp], parser: Parser, name: str) -> ValueAttr:
    parser.parse_punctuation("=")
    kind = cls.kinds[name]
    return attribute_of(kind, read_with(parser, lambda reader: reader.value(kind)))


def _resolve(parser: Parser, operand: UnresolvedOperand) -> SSAValue:
    """The value of a name; a name not seen before is an untyped input."""
    known = parser.ssa_values.get(operand.operand_name)
    if known is not None and operand.index < len(known):
        return known[operand.index]
    return parser.resolve_operand(operand, UNTYPED)


def _result_types(cls: type[SpecOp], parser: Parser) -> list[Any]:
    if parser.parse_optional_punctuation(":") is None:
        return [UNTYPED] if cls.spec.results in (("results*",), ("function",)) and not cls.spec.regions else []
    if parser.lexer.input.at(parser.pos) == "(":
        return parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_type)
    return [parser.parse_type()]


def _print_module(op: SpecOp, printer: Printer) -> None:
    if op.value("symbol"):
        print_function(op, printer)
        return
    attributes = attributes_text(op, hidden=("symbol",))
    printer.print_string(f" attributes{attributes} " if attributes else " ")
    printer.print_region(op.regions[0], print_entry_block_args=False, print_empty_block=False)


def _parse_module(cls: type[SpecOp], parser: Parser) -> Any:
    if parser.lexer.input.at(parser.pos) == "@":
        return parse_function(cls, parser)
    properties: dict[str, ValueAttr] = {}
    attributes: dict[str, ValueAttr] = {}
    if parser.parse_optional_keyword("attributes") is not None:
        properties, attributes = parse_attributes(cls, parser)
    # A module is isolated: names of the text around it are others.
    around, outer = dict(parser.forward_ssa_references), dict(parser.ssa_values)
    parser.forward_ssa_references.clear()
    parser.ssa_values.clear()
    region = parse_body(parser)
    _bind_undefined_names(parser, region, list(parser.forward_ssa_references))
    parser.forward_ssa_references.update(around)
    parser.ssa_values.update(outer)
    return cls.create(properties=complete(cls, properties), attributes=attributes, regions=[region])


def _bind_undefined_names(parser: Parser, region: Region, names: list[str]) -> None:
    """Make names that nothing defines the arguments of the block, in the order of their first use."""
    block = region.block
    for name in names:
        for value in parser.forward_ssa_references.pop(name).values():
            argument = block.insert_arg(UNTYPED, len(block.args))
            argument.name_hint = name if SSAValue.is_valid_name(name) else None
            value.replace_all_uses_with(argument)


def _print_annotation(op: SpecOp, printer: Printer) -> None:
    """`"tessera.schedule.pipeline"(%A, %B) {double_buffer=true}`, the name in quotes and printed already."""
    printer.print_string("(")
    printer.print_list(op.operands, printer.print_ssa_value)
    printer.print_string(")")
    printer.print_string(attributes_text(op))


def _parse_annotation(cls: type[SpecOp], parser: Parser) -> Any:
    operands = parser.parse_comma_separated_list(parser.Delimiter.PAREN, parser.parse_unresolved_operand)
    properties: dict[str, ValueAttr] = {}
    attributes: dict[str, ValueAttr] = {}
    if parser.lexer.input.at(parser.pos) == "{":
        properties, attributes = parse_attributes(cls, parser)
    return cls.create(
        operands=[_resolve(parser, operand) for operand in operands],
        result_types=[UNTYPED],
        properties=complete(cls, properties),
        attributes=attributes,
    )


def _check_annotation(op: SpecOp) -> None:
    given = {name: value for name, value in op.values().items() if value is not None}
    try:
        stages_of(given)
    except ValueError as error:
        op.fail(str(error), 'write `"tessera.schedule.pipeline"(%A, %B) {double_buffer = true}`')
    if not op.operands:
        op.fail("`tessera.schedule.pipeline` names the values that loops are to prefetch, and there are none")


ANNOTATIONS = Registry(
    "tessera",
    (
        OpSpec(
            name="tessera.schedule.pipeline",
            summary="Groups that read all of these values prefetch them in their loops, with so many buffers.",
            operands=("values*",),
            results=("pipeline",),
            attributes=(
                Attribute("double_buffer", "bool", None, "two buffers for each tile, or one"),
                Attribute("stages", "int", None, "so many buffers for each tile"),
            ),
            form="quoted",
            verify=_check_annotation,
        ),
    ),
)
"""What says something of a plan and is written with its name in quotes, as ops of no dialect are."""

FORMS["plan"] = Form(_print_module, _parse_module)
FORMS["host"] = Form(_print, _parse)
FORMS["quoted"] = Form(_print_annotation, _parse_annotation)

assert FORMS.keys() >= {spec.form for spec in REGISTRY}, "an op is of a form that nothing prints"

DIALECT = install(REGISTRY, [UntypedAttr, FunctionAttr])
install(ANNOTATIONS)
