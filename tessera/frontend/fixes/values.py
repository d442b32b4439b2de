"""Fixes of code that needs the value of a traced tensor or of a symbolic dim."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Callable, Sequence
from types import CodeType

from tessera.diagnostics.edit import Expression, expression_at
from tessera.diagnostics.error import Fix
from tessera.diagnostics.span import Span
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.dtype import DType


def itself_fix(span: Span | None, advice: str, names: tuple[str, ...]) -> Fix | str:
    """The value itself, in place of `float(value)` or `value.item()`."""
    expression = expression_at(span)
    node = expression.whole.node if expression is not None else None
    if expression is None or not isinstance(node, ast.Call) or expression.called not in names:
        return advice
    inner = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if inner is None and isinstance(node.func, ast.Attribute) and not node.args:
        inner = node.func.value
    return (inner is not None and expression.whole.edit(expression.inner(inner).operand, advice)) or advice


def length_fix(span: Span | None) -> Fix | str:
    """The first dim, in place of `len(x)`."""
    advice, expression = "write `x.shape[0]` instead of `len(x)`: it may stay symbolic", expression_at(span)
    node = expression.whole.node if expression is not None else None
    if expression is None or not isinstance(node, ast.Call) or expression.called != "len" or len(node.args) != 1:
        return advice
    size = f"{expression.inner(node.args[0]).operand}.shape[0]"
    return expression.whole.edit(size, f"write `{size}`, which may stay symbolic") or advice


def branch_fix(span: Span | None) -> Fix | str:
    """A `require` in place of a branch on a symbolic dim, where an `assert` or a `require` has it."""
    line = span.source_line if span is not None else ""
    asserted = _ASSERT.match(line)
    if span is not None and asserted is not None and span.column == asserted.end() + 1:
        expression = expression_at(span)
        require = (expression.name_of("require") if expression is not None else None) or "tessera.require"
        where, text = Span(span.file, span.line, asserted.end(1) + 1, span.line, len(line) + 1), line[span.column - 1 :]
        if expression is not None and span.end_column == len(line) + 1:
            return Fix(where, f"{require}({text})", "require it: every call is then checked")
        return f"require it instead, as in `{require}({expression.whole.text if expression else '...'})`"
    if span is not None and "require(" in line[: span.column - 1]:
        return "write one `require` for each condition: `and`, `or` and `not` need a bool now"
    return "write a number in the annotation to make the dimension static, or choose with `tessera.ops.where`"


_ASSERT = re.compile(r"(\s*)assert\s+")


def numpy_fix(span: Span | None, advice: str) -> Fix | str:
    """Tessera's function of the same name in place of NumPy's, or the tensor where it was to become an array."""
    expression = expression_at(span)
    node = expression.whole.node if expression is not None else None
    if expression is None or not isinstance(node, ast.Call):
        return advice
    if expression.called in ("asarray", "array"):
        return itself_fix(span, advice, ("asarray", "array"))
    from tessera.frontend.functions import public  # noqa: PLC0415 - loaded by who traces; not for the others

    name, function = expression.name_of(f"ops.{expression.called}"), getattr(public, expression.called, None)
    if name is None or not callable(function) or not _takes(function, node):
        return advice
    return expression.inner(node.func).edit(name, advice) or advice


def _takes(function: Callable[..., object], call: ast.Call) -> bool:
    """Whether a call fits the signature of a function; False where its arguments are only known at run time."""
    names = [keyword.arg for keyword in call.keywords]
    if None in names or any(isinstance(argument, ast.Starred) for argument in call.args):
        return False
    try:
        inspect.signature(function).bind(*call.args, **dict.fromkeys(filter(None, names)))
    except TypeError:
        return False
    return True


def tensor_fix(span: Span | None, value: object) -> Fix | str:
    """A list of numbers converted to a tensor."""
    advice, expression = "convert it with `tessera.array`", expression_at(span)
    array = expression.name_of("array") if expression is not None else None
    literals = expression.literals(value) if expression is not None else ()
    if array is None or len(literals) != 1 or not isinstance(value, list | tuple):
        return advice
    return literals[0].edit(f"{array}({literals[0].text})", advice) or advice


def annotation_fix(span: Span | None, symbol: str, value: object) -> Fix | str:
    """A number in place of a dim's name, in the signature of the function that a span is in."""
    advice = f"write {value} instead of `{symbol}` in the annotation"
    literals = _named_in_signature(span, symbol) if span is not None else []
    if not literals or any(place.whole.span.line != literals[0].whole.span.line for place in literals):
        return advice
    first, last = literals[0].whole.span, literals[-1].whole.span
    line = first.source_line
    text = line[first.column - 1 : last.end_column - 1].replace(literals[0].whole.text, str(value))
    return Fix(Span(first.file, first.line, first.column, last.line, last.end_column), text, advice)


def _named_in_signature(span: Span, symbol: str) -> list[Expression]:
    """Every `"symbol"` in the annotations of the innermost function around a span, in order."""
    try:
        tree = ast.parse("".join(linecache.getlines(span.file)))
    except SyntaxError:
        return []
    around = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.lineno <= span.line <= (node.end_lineno or node.lineno)
    ]
    if not around:
        return []
    arguments = max(around, key=lambda node: node.lineno).args
    annotations = [item.annotation for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    found: list[Expression] = []
    for annotation in annotations:
        for node in ast.walk(annotation) if annotation is not None else ():
            expression = expression_at(Span.of_node(span.file, node)) if isinstance(node, ast.Constant) else None
            if expression is not None and expression.whole.value == symbol:
                found.append(expression)
    return sorted(found, key=lambda item: (item.whole.span.line, item.whole.span.column))


def cast_fix(span: Span | None, path: str, dtype: DType) -> Fix | str:
    """The expression of a result, cast to the declared dtype."""
    advice, expression = f"cast it, as in `{path}.cast({dtype})`", expression_at(span)
    if expression is None:
        return advice
    whole = expression.whole
    text = f"{whole.operand}.cast({expression.name_of(str(dtype)) or dtype})"
    return whole.edit(text, f"cast `{path}` to {dtype}") or advice


def returned_fix(function: object, shape: Sequence[Dim], wanted: TensorAnnotation) -> Fix | str:
    """The dims that a function returns, as its annotations name them, in place of those in its return annotation."""
    declared = TensorAnnotation(tuple(shape), wanted.dtype, wanted.policy)
    advice = f"declare the returned `{declared}`, or return the declared sizes"
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    node = _return_annotation(code) if code is not None else None
    items = node.slice.elts if node is not None and isinstance(node.slice, ast.Tuple) else [node.slice] if node else []
    dims = items[: len(shape)]
    if code is None or len(dims) != len(shape) or not dims or any(not isinstance(item, ast.Constant) for item in dims):
        return advice
    first, last = (Span.of_node(code.co_filename, item) for item in (dims[0], dims[-1]))
    if first.line != last.end_line:
        return advice
    text = ", ".join(str(dim) if dim.is_static else f'"{dim}"' for dim in shape)
    return Fix(Span(first.file, first.line, first.column, last.line, last.end_column), text, advice)


def _return_annotation(code: CodeType) -> ast.Subscript | None:
    """The annotation `Tensor[...]` of what the function of some code returns, as its source has it."""
    try:
        tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    except SyntaxError:
        return None
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == code.co_name]
    lines = [(min([node.lineno, *(item.lineno for item in node.decorator_list)]), node) for node in functions]
    found = next((node for line, node in lines if line == code.co_firstlineno), None)
    return found.returns if found is not None and isinstance(found.returns, ast.Subscript) else None
