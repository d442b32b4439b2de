"""Modules as text: parsing with source locations, printing, versions with their upgrades, and content hashes."""

from __future__ import annotations

import hashlib
import linecache
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from io import StringIO
from typing import Any, TypeAlias

from xdsl.dialects.builtin import UNKNOWN_LOC, IntegerAttr, ModuleOp, i64
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.printer import Printer
from xdsl.utils.exceptions import ParseError, VerifyException

from tessera.diagnostics.codes import IRSyntaxError, VersionError
from tessera.diagnostics.error import Fix, Span, find_nearest
from tessera.ir.base.dialect_of import DialectContext, installed_dialects, is_isolated, properties_of
from tessera.ir.base.op import CURRENT, FORMS, SpecOp, value_text
from tessera.ir.base.types import MarkAttr, ValueAttr, location_of, type_text_of
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

# The version every IR text carries, the refusal of versions we do not read, and how older texts are upgraded.

KEY = "tessera.version"
_WRITTEN = re.compile(rf'^[^\n]*?(?<![\w.])"?{re.escape(KEY)}"?\s*=\s*([^\s,}}]+)', re.MULTILINE)

Renames: TypeAlias = Mapping[str, str]


@frozen
class Upgrade:
    """What the next version renamed: ops, attributes of ops, and names in their expressions.

    Attributes and names are found by the newest name of the op.
    """

    ops: Renames
    attributes: Mapping[str, Renames]
    symbols: Mapping[str, Renames] = field(default_factory=dict[str, Renames])


_COORDS = {"names": "coords"}
_ACCESS = {**_COORDS, "way": "pattern"}

UPGRADES: dict[int, Upgrade] = {
    # Version 1 ended functions and loop bodies alike in `tgraph.output`, and wrote `tgraph.function`.
    1: Upgrade(
        ops={"tgraph.function": "tgraph.func", "tgraph.output": "tgraph.return"},
        attributes={"tgraph.func": {"arguments": "names"}},
    ),
    # Version 2 had other names in Target IR for the ops and attributes of Tile IR.
    2: Upgrade(
        ops={
            "ttarget.math": "ttarget.elementwise",
            "ttarget.convert": "ttarget.cast",
            "ttarget.spread": "ttarget.broadcast",
            "ttarget.fold": "ttarget.reduce",
            "ttarget.fold_place": "ttarget.arg_reduce",
            "ttarget.fold_rows": "ttarget.reduce_rows",
        },
        attributes={
            "ttarget.load": _ACCESS,
            "ttarget.store": _ACCESS,
            "ttarget.fetch": _COORDS,
            "ttarget.coordinate": _COORDS,
            "ttarget.clip": _COORDS,
            "ttarget.copy_async": _COORDS,
            "ttarget.fragment_load": _COORDS,
            "ttarget.fragment_store": _COORDS,
            "ttarget.store_rows": _COORDS,
            "ttarget.store_tile": _COORDS,
            "ttarget.kernel": {"shares": "warps_per_row"},
            "ttarget.block_dot": {"rows": "max_rows", "depth": "max_k"},
            "ttarget.shuffle": {"way": "mode"},
            "ttile.shuffle": {"way": "mode"},
        },
        symbols={"ttarget.block_dot": {"_depth": "_inner_k"}},
    ),
    # Version 3 had other names for how programs are scheduled and warps divided.
    3: Upgrade(
        ops={"ttarget.turn": "ttarget.pingpong", "ttarget.rest": "ttarget.epilogue"},
        attributes={
            "tgraph.index_get": {"place": "out_axis"},
            "tgraph.index_legal": {"place": "out_axis"},
            "ttile.kernel": {"walk": "scheduler", "pair": "multicast", "across": "warps_n"},
            "ttile.for": {"turns": "pingpong", "leaves": "releases"},
            "ttile.dot": {"leaves": "releases"},
            "ttarget.matrix_kernel": {"pair": "multicast"},
            "ttarget.warp_kernel": {"across": "warps_n"},
            "ttarget.pingpong": {"way": "mode"},
        },
    ),
}
"""By the version that a text comes from: one table of renames for each."""


def version_of_text(text: str, name: str = "<text>") -> int:
    """The version that a text says it is; one that says nothing is of this version.

    Raises VersionError (T0303) for a version newer than this one, older than the oldest upgrade, or no number.
    """
    found = next((match for match in _WRITTEN.finditer(text) if "//" not in match.group().split(KEY)[0]), None)
    if found is None:
        return CURRENT
    written = found.group(1)
    version = int(written) if re.fullmatch("[0-9]{1,9}", written) else -1
    if version != CURRENT and version not in UPGRADES:
        line = text.count("\n", 0, found.start(1)) + 1
        column = found.start(1) - text.rfind("\n", 0, found.start(1))
        raise VersionError(
            f"this is IR of version {written[:40]}, and this Tessera reads versions {min(UPGRADES)} to {CURRENT}",
            span=Span(name, line, column, line, column + len(written)),
            fix="write the text again with the Tessera that made it, or use a newer one here",
        )
    return version


def new_name(name: str, version: int) -> str:
    """What an op of an older version is called now."""
    for step in range(version, CURRENT):
        name = UPGRADES[step].ops.get(name, name)
    return name


def upgrade(op: SpecOp, version: int) -> None:
    """Bring the attributes of an op parsed from an older version up to this one."""
    for step in range(version, CURRENT):
        renames = UPGRADES[step].attributes.get(op.name, {})
        symbols = {old: Dim.symbol(new) for old, new in UPGRADES[step].symbols.get(op.name, {}).items()}
        if renames or symbols:
            given = {name: value.data for name, value in op.properties.items() if isinstance(value, ValueAttr)}
            values = {renames.get(name, name): _substitute(value, symbols) for name, value in given.items()}
            op.properties = properties_of(type(op), values)


def _substitute(value: Any, symbols: Mapping[str, Dim]) -> Any:
    return value.substitute(symbols) if symbols and isinstance(value, Dim) else value


def stamp(module: ModuleOp) -> None:
    """Write this version on a module."""
    module.attributes[KEY] = IntegerAttr(CURRENT, i64)


# The content hash of IR: the same in every process, blind to spans, names of values and the order of attributes.


def content_hash(op: Operation) -> str:
    """A SHA-256 that two ops share exactly when their texts are equal but for names and spans."""
    return hashlib.sha256(canonical_text(op).encode()).hexdigest()


def canonical_text(op: Operation) -> str:
    """What is hashed: one op a line, values numbered in the order they are defined."""
    lines: list[str] = []
    _write_op(op, {}, lines, 0)
    return "\n".join(lines)


def _write_op(op: Operation, numbers: dict[SSAValue, int], lines: list[str], level: int) -> None:
    operands = ",".join([str(numbers[value]) if value in numbers else "free" for value in op.operands])
    types = ",".join([type_text_of(result.type) for result in op.results])
    lines.append(f"{level} {op.name}({operands}){_attributes(op)}:{types}")
    for result in op.results:
        numbers[result] = len(numbers)
    for region in op.regions:
        for block in region.blocks:
            _write_block(block, numbers, lines, level + 1)


def _write_block(block: Block, numbers: dict[SSAValue, int], lines: list[str], level: int) -> None:
    for argument in block.args:
        numbers[argument] = len(numbers)
    lines.append(f"{level} block({','.join([type_text_of(argument.type) for argument in block.args])})")
    for op in block.ops:
        _write_op(op, numbers, lines, level)


def _attributes(op: Operation) -> str:
    properties: dict[str, Any] = dict(op.properties)
    if isinstance(op, SpecOp) and op.defaults.keys() - properties.keys():
        properties = {**op.defaults, **properties}
    parts = [f"{name}={value_text(value)}" for name, value in sorted(properties.items())]
    parts += [f"+{name}={value_text(value)}" for name, value in sorted(op.attributes.items())]
    return "{" + ",".join(parts) + "}" if parts else ""


_LONGEST_NUMBER = 400
"""Letters of a number: Python reads no integer of more than 4,300 digits, and a double prints in fewer than 400."""
_WIDEST = re.compile(r"[su]?i\d{7,}")
"""A type of integers whose limits nobody writes down, and xDSL would compute."""
_DEEPEST = 100
"""Python's limit of 1,000 frames is some 130 regions to xDSL's parser, of which half the stack may be taken."""
_BRACKET = re.compile(r""""(?:[^"\\\n]|\\.)*+"|//[^\n]*|->|(?P<open>[(\[{<])|(?P<close>[)\]}>])""")


@cache
def _lexer_class() -> Any:
    """The class of lexers, made with that of parsers."""
    from xdsl.utils.mlir_lexer import MLIRLexer  # noqa: PLC0415 - as below

    class TextLexer(MLIRLexer):
        """A lexer that takes linear time, and refuses what xDSL's takes for a number and Python does not read."""

        # xDSL's pattern repeats a repetition: on a quote that nothing closes it tries exponentially many ways.
        _unescaped_characters_regex = re.compile(r'"(?:[^"\\\n\v\f]|\\(?:["nt\\]|[0-9A-Fa-f]{2}))*+"')

        def _lex_number(self, start_pos: int) -> Any:
            token = super()._lex_number(start_pos)
            if not token.text.isascii() or len(token.text) > _LONGEST_NUMBER:
                what = f"a number of {len(token.text)} digits" if token.text.isascii() else f"`{token.text}`"
                raise ParseError(token.span, f"{what} is no number here")
            return token

        def _lex_bare_identifier(self, start_pos: int) -> Any:
            token = super()._lex_bare_identifier(start_pos)
            if _WIDEST.fullmatch(token.text):
                raise ParseError(token.span, f"`{token.text[:40]}` is a wider integer than any type here")
            return token

    return TextLexer


@cache
def _parser_class() -> Any:
    """The class of parsers, made when a text is first parsed: compilations parse none, and load no parser."""
    from xdsl.parser import Parser, ParserState  # noqa: PLC0415 - see above
    from xdsl.utils.lexer import Input  # noqa: PLC0415
    from xdsl.utils.lexer import Span as Part  # noqa: PLC0415

    class TextParser(Parser):
        """A parser that gives each op its location in the text, where the text does not give one itself."""

        def __init__(self, source: _Source, version: int) -> None:
            super().__init__(DialectContext(), "", source.name)
            self._parser_state = ParserState(_lexer_class()(Input(source.text, source.name)))
            self.version, self.source = version, source
            self.level, self.free = 0, dict[str, SSAValue]()

        def parse_operation(self) -> Operation:
            start = self.pos
            self.level += 1
            op = super().parse_operation()
            self.level -= 1
            self.free.update(_take_free_names(self))
            if isinstance(op, SpecOp):
                try:
                    upgrade(op, self.version)
                except (TypeError, ValueError) as error:  # an attribute that is missing, or of another kind
                    raise ParseError(Part(start, self.pos, self._parser_state.lexer.input), str(error)) from error
            if op.location == UNKNOWN_LOC:
                op.location = location_of(self.source.span_at(start))
            return op

        def _parse_generic_operation(self, op_type: type[Operation]) -> Operation:
            return op_type.parse(self) if _is_quoted(op_type, self) else super()._parse_generic_operation(op_type)

        def _get_op_by_name(self, name: str) -> type[Operation]:
            return super()._get_op_by_name(new_name(name, self.version))

    return TextParser


def _is_free(value: SSAValue) -> bool:
    """Whether a value has no type and is used by ops of a module, or of regions in it, and of no function."""
    if not (isinstance(value.type, MarkAttr) and value.type.is_unknown):
        return False
    for use in value.uses:
        at = use.operation.parent_op()
        while isinstance(at, SpecOp):
            if is_isolated(at.spec):
                return False
            at = at.parent_op()
    return True


def _take_free_names(parser: Any) -> dict[str, SSAValue]:
    """Values of which only names are known, used in no function: inputs of the module, which is not there yet."""
    waiting: dict[str, dict[int, SSAValue]] = {} if parser.level else parser.forward_ssa_references
    found = {name: values[0] for name, values in waiting.items() if set(values) == {0} and _is_free(values[0])}
    for name, value in found.items():
        parser.ssa_values[name] = (value,)
        del waiting[name]
    return found


def _bind_arguments(free: Mapping[str, SSAValue], module: ModuleOp) -> None:
    """Make each value that nothing defines an argument of the module around its first use."""
    for name, value in free.items():
        at: Operation | None = next(iter(value.uses)).operation
        while at is not None and not isinstance(at, ModuleOp):
            at = at.parent_op()
        block = (at or module).body.block
        argument = block.insert_arg(value.type, len(block.args))
        argument.name_hint = name if SSAValue.is_valid_name(name) else None
        value.replace_all_uses_with(argument)


def _is_quoted(op_type: type[Operation], parser: Any) -> bool:
    """Whether an op has a form with its name in quotes, and stands in it; in MLIR's generic form it has properties."""
    if not (issubclass(op_type, SpecOp) and op_type.spec.form == "quoted"):
        return False
    start = parser.pos
    parser.parse_op_args_list()
    has_properties = parser.lexer.input.at(parser.pos) == "<"
    parser._resume_from(start)  # pyright: ignore[reportPrivateUsage]
    return not has_properties


class _TextPrinter(Printer):
    """A printer that leaves out the arguments of a module, which are names without types, and writes quoted forms."""

    def print_region(self, region: Region, print_entry_block_args: bool = True, *rest: Any, **names: Any) -> None:
        is_shown = print_entry_block_args and not isinstance(region.parent, ModuleOp)
        super().print_region(region, is_shown, *rest, **names)

    def print_op_with_default_format(self, op: Operation) -> None:
        if isinstance(op, SpecOp) and op.spec.form == "quoted" and not self.print_generic_format:
            FORMS["quoted"].print(op, self)
        else:
            super().print_op_with_default_format(op)


class _Source:
    """A text and where its lines start."""

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self._starts = [0, *(at + 1 for at, letter in enumerate(text) if letter == "\n")]

    def span_at(self, start: int, end: int | None = None) -> Span:
        """The span from one offset to another, or to the end of its line."""
        row = bisect_right(self._starts, start) - 1
        line_end = self.text.find("\n", start)
        line_end = len(self.text) if line_end < 0 else line_end
        end = line_end if end is None else min(end, line_end)
        column = start - self._starts[row] + 1
        return Span(self.name, row + 1, column, row + 1, max(column + 1, end - self._starts[row] + 1))

    def check_nesting(self) -> None:
        """Raises IRSyntaxError (T0304) where brackets nest deeper than parsers, verifiers and passes can recurse."""
        depth = 0
        for match in _BRACKET.finditer(self.text):
            if match.lastgroup == "open":
                depth += 1
                if depth > _DEEPEST:
                    raise IRSyntaxError(
                        f"brackets nest {_DEEPEST + 1} deep, and IR is read to a depth of {_DEEPEST}",
                        span=self.span_at(*match.span()),
                        fix="nest fewer regions, or name parts of the expression",
                    )
            elif match.lastgroup == "close":
                depth = max(0, depth - 1)


def _parse(parser: Any, source: _Source) -> ModuleOp:
    try:
        return parser.parse_module()
    except VerifyException as error:  # an attribute that cannot be made, such as an integer that its type cannot hold
        raise IRSyntaxError(str(error), span=source.span_at(parser.pos), fix="write a value of that type") from error


def parse_module(text: str, name: str = "<text>") -> ModuleOp:
    """The module of a text; a text of an older version is upgraded to this one.

    Raises IRSyntaxError (T0304) where the text is not a module, VersionError (T0303) for a version that
    this one does not read. Nothing is verified.
    """
    if name.startswith("<"):
        # No file has these lines, so errors find them here.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    source = _Source(text, name)
    version = version_of_text(text, name)
    source.check_nesting()
    try:
        parser = _parser_class()(source, version)
        module = _parse(parser, source)
    except ParseError as error:
        span = _error_span(error, source)
        raise IRSyntaxError(_syntax_message(error, text), span=span, fix=_suggest_op(error, span)) from error
    _bind_arguments(parser.free, module)
    stamp(module)
    return module


def _syntax_message(error: ParseError, text: str) -> str:
    """What is wrong with a text; of a region that does not go on as one, xDSL says only where it was."""
    if error.msg.strip() != "in block definition":
        return error.msg
    if not text[error.span.start :].strip():
        return "the text ends inside a region: `}` is missing"
    return "expected an op, a block (`^name:`) or the `}` that ends the region"


_UNKNOWN_OP = re.compile(r"Operation (\S+) is not registered")


def _suggest_op(error: ParseError, span: Span) -> Fix | str | None:
    """What to write in place of an op that no dialect has: the nearest name, in its own dialect if that is one."""
    found = _UNKNOWN_OP.match(error.msg)
    if found is None:
        return None
    dialect, _, name = found[1].rpartition(".")
    dialects = installed_dialects()
    if dialect and dialect not in dialects:
        listed = f"dialects are {', '.join(sorted(dialects))}"
        near = [f"{one}.{name}" for one in find_nearest(dialect, dialects)]
    else:
        wanted = [dialects[dialect]] if dialect else dialects.values()
        listed = "restore the op as it was written"
        near = find_nearest(found[1], [spec.name for registry in wanted for spec in registry], cutoff=0.7)
    return Fix(span, near[0], f"did you mean `{near[0]}`?") if near else listed


def _error_span(error: ParseError, source: _Source) -> Span:
    """Where a text is wrong.

    That a value is defined nowhere is noticed at the end, and is shown where it is used; that an op is unknown is
    noticed behind its name, and is shown there.
    """
    op = _UNKNOWN_OP.match(error.msg)
    start = source.text.rfind(op[1], 0, error.span.start) if op is not None else -1
    if op is not None and start >= 0:
        return source.span_at(start, start + len(op[1]))
    unknown = re.match(r"values used but not defined: \[(%[\w.$-]+)", error.msg)
    used = re.search(rf"{re.escape(unknown.group(1))}(?![\w.$-])", source.text) if unknown else None
    return source.span_at(*used.span()) if used else source.span_at(error.span.start, error.span.end)


def print_module(op: Operation, *, generic: bool = False, locations: bool = False) -> str:
    """The text of a module or of any op, ending in a new line."""
    stream = StringIO()
    _TextPrinter(stream, print_generic_format=generic, print_debuginfo=locations).print_op(op)
    return stream.getvalue() + "\n"
