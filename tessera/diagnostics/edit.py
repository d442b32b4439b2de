"""The expression at a span taken apart, so that a fix can say what to type in place of which part of it."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import FrameType, ModuleType
from typing import Any

from tessera.diagnostics.error import Fix, Span

ATOMS = (ast.Name, ast.Attribute, ast.Subscript, ast.Call, ast.List, ast.Tuple)
"""What a dot, a call or an index can follow without parentheses."""


SHARED_NAMES = ("<string>", "<stdin>")
"""File names of many texts: since Python 3.13 one of them is kept, and may be another's than a function's."""


def source_lines(function: Any) -> tuple[list[str], int]:
    """The lines of a function and the number of the first; no lines where Python has no text, or that of another."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if getattr(code, "co_filename", "") in SHARED_NAMES:
        return [], 0
    try:
        return inspect.getsourcelines(function)
    except (OSError, TypeError, IndexError, SyntaxError, tokenize.TokenError):  # a file may have changed since
        return [], 0


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of source: where it stands, how it is written, and what it is."""

    span: Span
    text: str
    node: ast.expr

    @property
    def operand(self) -> str:
        """The text as something that a dot or an index can follow."""
        return self.text if isinstance(self.node, ATOMS) else f"({self.text})"

    @property
    def value(self) -> object:
        """The literal that stands here; None for anything else."""
        try:
            return ast.literal_eval(self.node)
        except ValueError:
            return None

    def edit(self, text: str, message: str) -> Fix | None:
        """Type `text` here instead; None where the part goes over several lines, which a fix cannot show."""
        return None if self.span.end_line > self.span.line else Fix(self.span, text, message)


@dataclass(frozen=True, slots=True)
class Expression:
    """The expression at a span."""

    whole: Part
    lines: tuple[str, ...]

    @property
    def called(self) -> str:
        """The last name of the function that is called; empty where none is."""
        node = self.whole.node
        return _last_name(node.func) if isinstance(node, ast.Call) else ""

    def operands(self, count: int) -> Sequence[Part]:
        """The first `count` things that are worked on, in order; none where the source does not show them all.

        Those of an operator are its operands; those of a function its arguments, with a leading list expanded;
        a method's first is what stands before the dot.
        """
        node = self.whole.node
        match node:
            case ast.BinOp(left=left, right=right):
                nodes = [left, right]
            case ast.Compare(left=left, comparators=[right]):
                nodes = [left, right]
            case ast.UnaryOp(operand=only) | ast.Subscript(value=only):
                nodes = [only]
            case ast.Call():
                nodes = [item for item in self._positional(node) if not _is_text(item)]
                if nodes and isinstance(nodes[0], ast.List | ast.Tuple):
                    nodes = [*nodes[0].elts, *nodes[1:]]
            case _:
                nodes = []
        shown = len(nodes) >= count and not any(isinstance(item, ast.Starred) for item in nodes[:count])
        return [self._part(item) for item in nodes[:count]] if shown else []

    def argument(self, name: str, position: int = -1) -> Part | None:
        """An argument of a call, by keyword, else by position; what stands before a method's dot is the first."""
        node = self.whole.node
        if not isinstance(node, ast.Call):
            return None
        found = next((item.value for item in node.keywords if item.arg == name), None)
        given = self._positional(node)
        if found is None and 0 <= position < len(given):
            before = given[: position + 1]
            found = None if any(isinstance(item, ast.Starred) for item in before) else given[position]
        return None if found is None else self._part(found)

    def keyword(self, name: str) -> Part | None:
        """The name of a keyword argument itself."""
        node = self.whole.node
        for item in node.keywords if isinstance(node, ast.Call) else ():
            if item.arg == name:
                value = self._part(item.value).span
                column = value.column - len(name) - 1
                span = Span(value.file, value.line, column, value.line, column + len(name))
                written = span.source_line[column - 1 : span.end_column - 1]
                return Part(span, name, ast.Name(name)) if written == name else None
        return None

    def items(self) -> Sequence[Part]:
        """What stands in the brackets of `x[...]`."""
        node = self.whole.node
        if not isinstance(node, ast.Subscript):
            return []
        nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return [self._part(item) for item in nodes]

    def literals(self, value: object) -> Sequence[Part]:
        """Every occurrence of this literal in the expression."""
        found = (item for item in ast.walk(self.whole.node) if isinstance(item, ast.expr))
        return [part for part in map(self._part, found) if type(part.value) is type(value) and part.value == value]

    def inner(self, node: ast.expr) -> Part:
        """A node below this expression, as a part."""
        return self._part(node)

    def name_of(self, path: str) -> str | None:
        """How the file writes a name of Tessera such as `ops.pad`; None where it imports nothing that leads there."""
        return name_in(self.whole.span.file, path)

    def is_of(self, node: ast.expr, module: str) -> bool:
        """Whether a node is a call or a name of an imported module, as `np.arange(4)` is of NumPy."""
        func = node.func if isinstance(node, ast.Call) else node
        found = (
            imports_of(self.whole.span.file).get(_root(func), "") if isinstance(func, ast.Attribute | ast.Name) else ""
        )
        return found.split(".")[0] == module

    def _positional(self, node: ast.Call) -> list[ast.expr]:
        """The arguments by position, after what stands before the dot where that is the first; none if not known."""
        if not isinstance(node.func, ast.Attribute) or (is_first := _leads(node.func, self.whole.span)) is False:
            return list(node.args)
        return [node.func.value, *node.args] if is_first else []

    def _part(self, node: ast.expr) -> Part:
        outer = self.whole.span
        first, last = node.lineno, node.end_lineno or node.lineno
        start, end = self._column(first, node.col_offset), self._column(last, node.end_col_offset or 0)
        taken = list(self.lines[first - 1 : last])
        taken[-1] = taken[-1][:end]
        taken[0] = taken[0][start:]
        # The first line was parsed without what stands before the expression, and behind one parenthesis.
        column, end_column = (at + (outer.column - 1 if line == 1 else 1) for at, line in ((start, first), (end, last)))
        span = Span(outer.file, outer.line + first - 1, column, outer.line + last - 1, end_column)
        return Part(span, "\n".join(taken), node)

    def _column(self, line: int, offset: int) -> int:
        return len(self.lines[line - 1].encode()[:offset].decode(errors="replace"))


def expression_at(span: Span | None) -> Expression | None:
    """The expression that a span covers; None where there is no source, or it is something else."""
    if span is None:
        return None
    last = max(span.line, span.end_line)
    lines = [linecache.getline(span.file, line).rstrip("\r\n") for line in range(span.line, last + 1)]
    lines[-1] = lines[-1][: span.end_column - 1]
    lines[0] = lines[0][span.column - 1 :]
    text = "\n".join(lines)
    if not text.strip():
        return None
    try:
        node = ast.parse(f"({text})", mode="eval").body
    except SyntaxError:
        return None
    return Expression(Part(span, text, node), (f"({lines[0]}", *lines[1:]))


def edit_literal(span: Span | None, value: object, text: str, message: str) -> Fix | None:
    """The fix that types another text in place of a literal, where it stands once in the expression at a span."""
    expression = expression_at(span)
    matches = expression.literals(value) if expression is not None else ()
    return matches[0].edit(text, message) if len(matches) == 1 else None


def edit_text(span: Span | None, text: str, changed: str, message: str) -> Fix | None:
    """The fix that types another text between the quotes of a string."""
    expression = expression_at(span)
    matches = expression.literals(text) if expression is not None else ()
    if len(matches) != 1 or matches[0].text[0] not in "\"'":
        return None
    quote = matches[0].text[0]
    return matches[0].edit(f"{quote}{changed}{quote}", message)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


# What a call's receiver is: the first operand, as a tensor is, or where the function is found, as in a module.

_UNKNOWN: Any = object()


def _leads(func: ast.Attribute, span: Span) -> bool | None:
    """Whether a function that is called takes what stands before its dot for the first argument; None if not known."""
    text, root = "".join(linecache.getlines(span.file)), _root(func)
    if (receiver := _value_of(func.value, span)) is not _UNKNOWN:
        return _binds(receiver, func.attr)
    if not root:
        # A program that is made on the spot, as `ts.jit(f).lower(x)` has it, is none of its own arguments.
        return not (isinstance(func.value, ast.Call) and _last_name(func.value.func) == "jit")
    if root in imports_of(span.file) or root in _local_aliases(text, span.line):
        return False
    return True if root in _assigned_in(text) else None


def _binds(receiver: Any, name: str) -> bool:
    """Whether `receiver.name(x)` is called with the receiver first, in terms of who reads its arguments.

    That is so of tensors and of methods of a user's object; a jitted function's methods take that function's arguments.
    """
    kind = receiver.__class__
    if issubclass(kind, ModuleType | type) or hasattr(kind, "shape"):
        return not issubclass(kind, ModuleType | type)
    held = inspect.getattr_static(receiver, name, None)
    is_method = held is inspect.getattr_static(kind, name, _UNKNOWN) and not isinstance(held, staticmethod)
    return is_method and kind.__module__.split(".")[0] != "tessera"


def _value_of(node: ast.expr, span: Span) -> Any:
    """What a name, or an attribute of one, is where the span is evaluated; it runs no property of the user's."""
    if isinstance(node, ast.Name):
        return _lookup(node.id, span)
    inner = _value_of(node.value, span) if isinstance(node, ast.Attribute) else _UNKNOWN
    if inner is _UNKNOWN or not isinstance(node, ast.Attribute) or hasattr(inner.__class__, "shape"):
        return inner  # what a tensor has is a tensor for the purpose, as `x.T` is
    if isinstance(inner, ModuleType):
        return getattr(inner, node.attr, _UNKNOWN)
    return getattr(inner, "__dict__", {}).get(node.attr, _UNKNOWN)


def _lookup(name: str, span: Span) -> Any:
    """What a name is in the frame that evaluates a span; without one, in the module, unless the text assigns it."""
    for frame in _frames_of(span.file):
        if Span.of_frame(frame) == replace(span, role=""):
            return frame.f_locals.get(name, frame.f_globals.get(name, _UNKNOWN))
    is_assigned = name in _assigned_in("".join(linecache.getlines(span.file)))
    return _UNKNOWN if is_assigned else _globals_of(span.file).get(name, _UNKNOWN)


def _frames_of(file: str) -> Iterator[FrameType]:
    """The frames of a file's code that run now, innermost first."""
    frame: FrameType | None = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename == file:
            yield frame
        frame = frame.f_back


def _globals_of(file: str) -> dict[str, Any]:
    """The globals of the code of a file, or of a cell or a prompt."""
    if (frame := next(_frames_of(file), None)) is not None:
        return frame.f_globals
    loaded = [getattr(module, "__dict__", {}) for module in list(sys.modules.values())]
    main = vars(sys.modules["__main__"]) if not os.path.exists(file) else {}
    return next((names for names in loaded if names.get("__file__") == file), main)


@lru_cache(maxsize=16)
def _assigned_in(text: str) -> frozenset[str]:
    """The names that a text gives values: as variables, and as parameters."""
    nodes = list(ast.walk(_parse(text)))
    stored = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(stored | {node.arg for node in nodes if isinstance(node, ast.arg)})


def imports_of(file: str) -> dict[str, str]:
    """What a file imports or shortens: each name it may write, and the path that the name stands for.

    A cell or a prompt has what was imported before it, and a star imports names that the text does not have.
    """
    held = {name: value.__name__ for name, value in _globals_of(file).items() if isinstance(value, ModuleType)}
    return held | _imports_of("".join(linecache.getlines(file)))


@lru_cache(maxsize=16)
def _parse(text: str) -> ast.Module:
    """The program of a text; an empty one where it is none."""
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module([], [])


@lru_cache(maxsize=16)
def _imports_of(text: str) -> dict[str, str]:
    tree = _parse(text)
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {item.asname or item.name.split(".")[0]: _target(item) for item in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {item.asname or item.name: f"{node.module}.{item.name}" for item in node.names}
    return found | _aliases_in(tree.body, found)


def _aliases_in(body: Sequence[ast.stmt], imports: dict[str, str]) -> dict[str, str]:
    """Names that lines such as `ops = ts.ops` give to parts of Tessera."""
    found: dict[str, str] = {}
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value):
                root = _root(value)
                path = imports.get(root, "") + ast.unparse(value)[len(root) :]
                found |= {name: path} if root and path.startswith("tessera.") else {}
            case _:
                continue
    return found


@lru_cache(maxsize=16)
def _local_aliases(text: str, line: int) -> dict[str, str]:
    """The same of the functions that a line is in: names that they give to parts of Tessera."""
    tree = _parse(text)
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.lineno <= line <= (node.end_lineno or node.lineno):
            inner = [item for item in ast.walk(node) if isinstance(item, ast.Assign)]
            found |= _aliases_in(inner, _imports_of(text))
    return found


def _target(item: ast.alias) -> str:
    """`import a.b as c` binds the module itself, `import a.b` only its package."""
    return item.name if item.asname else item.name.split(".")[0]


def name_in(file: str, path: str) -> str | None:
    """How a file writes a name of Tessera such as `ops.pad`; None where it imports nothing that leads there."""
    whole, imports = f"tessera.{path}", imports_of(file)
    found = [name + whole[len(target) :] for name, target in imports.items() if f"{whole}.".startswith(f"{target}.")]
    return min(found, key=len, default=None)
