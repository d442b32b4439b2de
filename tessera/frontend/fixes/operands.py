"""Fixes of operands: transposed, expanded, padded or cast until the shape rule of their op holds.

A fix is found by trial: candidates are generated from the source of the failed call, the op's own shape rule is run on
the types that each would give, and the first candidate that the rule accepts is offered as an edit. So a fix that is
shown is known to work, and a new op needs no code here.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import combinations, permutations
from types import CodeType
from typing import Any

from tessera.diagnostics.edit import Expression, Part, expression_at
from tessera.diagnostics.error import Fix, Span, TesseraError
from tessera.frontend.concrete import Tracer, is_array
from tessera.frontend.fixes import fixes_of
from tessera.frontend.pytree import is_sequence
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.runtime.foreign import tensor_advice
from tessera.types import dtype as dt
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.promotion import promote_scalar
from tessera.types.shape import TensorType

# Fixes of code that needs the value of a traced tensor or of a symbolic dim.


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


def called_at(span: Span | None) -> str:
    """The last name of the function that is called at a span; empty where none is."""
    expression = expression_at(span)
    return "" if expression is None else expression.called


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
    return fixes_of("statements").size_branch_fix(span)


_ASSERT = re.compile(r"(\s*)assert\s+")


_PLAIN_CALL = re.compile(r"write `tessera\.ops\.(\w+)\([\w, \[\]]*\)`")
_MAKERS = ("asarray", "array", "tensor", "as_tensor")


def numpy_fix(span: Span | None, advice: str) -> Fix | str:
    """Our function in place of one of NumPy or PyTorch, or the tensor where it was to become one of theirs."""
    expression = expression_at(span)
    node = expression.whole.node if expression is not None else None
    if expression is not None and isinstance(node, ast.Subscript):
        return advice if _is_stored(span) else _table_fix(expression, node)
    if expression is None or not isinstance(node, ast.Call):
        return advice
    called = expression.called
    dtype = dt.find_dtype(called)
    if called in _MAKERS or (dtype is not None and len(node.args) == 1):
        return _converted_fix(expression, node, span, advice, dtype)
    plain = _PLAIN_CALL.fullmatch(advice)
    from tessera.frontend.functions import public  # noqa: PLC0415 - loaded by who traces; not for the others

    ours = plain[1] if plain is not None else called
    name, function = expression.name_of(f"ops.{ours}"), getattr(public, ours, None)
    if name is None or not callable(function) or not _takes(function, node):
        return advice
    return expression.inner(node.func).edit(name, advice) or advice


def _is_stored(span: Span | None) -> bool:
    """Whether the expression at a span is what a statement assigns to."""
    source = fixes_of("statements").source_at(span)
    return source is not None and isinstance(getattr(source.chain[0][0], "ctx", None), ast.Store)


def _table_fix(expression: Expression, node: ast.Subscript) -> Fix | str:
    """Of `table[h]`, an array of NumPy that is read where a traced index says: the same of a tensor."""
    table, convert = expression.inner(node.value), expression.name_of("asarray") or "tessera.asarray"
    made = f"{convert}({table.text})"
    once = f", once and for all with `{table.text} = {made}`" if isinstance(table.node, ast.Name) else ""
    advice = f"an array is read by known indices alone: make `{table.text}` a tensor{once}"
    return table.edit(made, advice) or advice


def _converted_fix(
    expression: Expression, node: ast.Call, span: Span | None, advice: str, dtype: DType | None
) -> Fix | str:
    """Of `np.array(x)`, `np.array([x, y])` and `np.float32(x)`."""
    outer = fixes_of("statements").array_fix(span, advice)
    inner = expression.inner(node.args[0]) if node.args else None
    if isinstance(outer, Fix) or inner is None:
        return outer
    stack = expression.name_of("ops.stack")
    if isinstance(inner.node, ast.List | ast.Tuple) and stack is not None:
        return expression.whole.edit(f"{stack}({inner.text})", "make one tensor of several with `stack`") or advice
    if dtype is not None:
        text = f"{inner.operand}.cast({dtype_name(expression, dtype)})"
        return expression.whole.edit(text, f"cast it to {dtype}") or advice
    return itself_fix(span, "use the tensor itself: the function is traced once for all values", _MAKERS)


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


def tensor_fix(span: Span | None, value: Any) -> Fix | str:
    """A list of numbers converted to a tensor; of anything else, what is accepted."""
    advice, expression = tensor_advice(value), expression_at(span)
    if is_sequence(value) and any(isinstance(one, Tracer) for one in value):
        return "make one tensor of several first, as in `tessera.ops.stack([a, b])`"
    array = expression.name_of("array") if expression is not None else None
    literals = expression.literals(value) if expression is not None else ()
    if array is None or len(literals) != 1 or not is_sequence(value):
        return advice
    return literals[0].edit(f"{array}({literals[0].text})", advice) or advice


def annotation_fix(span: Span | None, symbol: str, value: object) -> Fix | str:
    """A number in place of a dim's name, in the signature of the function that a span is in."""
    advice = f"write {value} instead of `{symbol}` in the annotation"
    literals = _named_in_signature(span, symbol) if span is not None else []
    if not literals or any(literal.whole.span.line != literals[0].whole.span.line for literal in literals):
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
    advice, expression = f'cast it, as in `{path}.cast("{dtype}")`', expression_at(span)
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


_ALIASES = {"concatenate": "concat"}
_MOST_OPERANDS = 8


class _MisfitError(Exception):
    """The rule of an op does not hold."""


class _DTypeMisfitError(_MisfitError):
    """It does not hold for these dtypes."""


class _Strict:
    """Runs a shape rule without assumptions."""

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        if left != right:
            raise _MisfitError(what)
        return left

    def fail(self, message: str, *, help: str = "") -> Exception:
        return _MisfitError(message)

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        return _DTypeMisfitError(message)


@frozen
class _Candidate:
    """Types and attributes of the op after an edit, and the edit."""

    types: Sequence[TensorType]
    attributes: Mapping[str, Any]
    edit: Callable[[], Fix | None]


def shape_fix(
    spec: OpSpec, types: Sequence[TensorType], attributes: Mapping[str, Any], span: Span | None
) -> Fix | None:
    """The edit of one operand, or of the axis, after which the shape rule holds; None where there is none."""
    expression, parts = _find_source(spec, types, span)
    if expression is None:
        return None
    if spec.short_name == "matmul" and not all(type.rank for type in types):
        return expression.whole.edit(" * ".join(part.operand for part in parts), "multiply scalars with `*`")
    candidates = [
        *_other_letters(spec, types, attributes, expression),
        *_other_axis(spec, types, attributes, expression),
        *_with_new_axes(types, attributes, parts),
        *_transpose_fixes(types, attributes, parts),
        *_add_axis_fixes(spec, types, attributes, expression, parts),
    ]
    return _first_that_holds(spec, candidates)


def dtype_fix(
    spec: OpSpec, types: Sequence[TensorType], attributes: Mapping[str, Any], span: Span | None
) -> Fix | None:
    """The edit that casts an operand, or all of them, to what an op takes; None where there is none."""
    expression, parts = _find_source(spec, types, span)
    if expression is None:
        return None
    # A float first: to cast weights to integers would lose them.
    given = sorted((type.dtype for type in types), key=lambda dtype: not dtype.is_float)
    targets = dict.fromkeys((*given, dt.i32, dt.f32, dt.bool_))
    choices = [(at,) for at in range(len(types))] + [tuple(range(len(types)))]
    return _first_that_holds(spec, _cast(types, attributes, expression, parts, targets, choices), dtypes_alone=True)


_PATH = re.compile(r"`(?P<name>\w+)(\[(?P<at>\d+)\])?\.(?P<path>shape\[[^`]*)`")
_WHOLE = re.compile(r"`(?P<name>\w+)` of(?= (?:bool|[a-z]+\d\w*)\b)")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")


def in_users_words(spec: OpSpec, message: str, inputs: Sequence[str], span: Span | None) -> str:
    """A message whose paths (`x.shape[1]`) start with the operands' source text, or the names of inputs.

    Where neither is known, as at a prompt, they are of "the first operand": the names of the op are not the user's.
    """
    given = operand_texts(spec, len(inputs), span)
    declared = [name.rstrip("*?") for name in spec.operands]

    def rename(match: re.Match[str]) -> str:
        at = declared.index(match["name"]) + int(match["at"] or 0) if match["name"] in declared else len(inputs)
        name = (given[at] or inputs[at]) if at < len(inputs) else match["name"]
        return f"`{name}.{match['path']}`" if name else f"`{match['path']}` of the {_ordinal(at)} operand"

    def rename_whole(match: re.Match[str]) -> str:
        at = declared.index(match["name"]) if match["name"] in declared else len(inputs)
        name = (given[at] or inputs[at]) if at < len(inputs) else match["name"]
        return f"`{name}` of" if name else f"the {_ordinal(at)} operand of"

    named = message.replace(f"`{spec.short_name}`", f"`{users_name(spec, span)}`")
    return _WHOLE.sub(rename_whole, _PATH.sub(rename, named))


def operand_texts(spec: OpSpec, count: int, span: Span | None) -> list[str]:
    """How the operands of an op are written at a span; empty texts where that is not known."""
    expression = expression_at(span)
    parts = () if expression is None or not _is_call_of(spec, expression) else expression.operands(count)
    return [part.operand if "\n" not in part.text else "" for part in parts] or [""] * count


def operand_notes(spec: OpSpec, types: Sequence[TensorType], span: Span | None) -> tuple[str, ...]:
    """What the operands of an eager op are, once each: by their source text, else by position and parameter."""
    notes: list[str] = []
    for at, (type, text) in enumerate(zip(types, operand_texts(spec, len(types), span), strict=True)):
        name = spec.operands[at] if at < len(spec.operands) else ""
        is_word = bool(name) and not name.endswith("*") and name not in ("a", "b", "x", "y")
        shown = f"the {_ordinal(at)} operand of `{users_name(spec, span)}`" + f", `{name.rstrip('?')}`," * is_word
        notes.append(f"`{text}` is {type}" if text else f"{shown} is {type}")
    return tuple(dict.fromkeys(notes))


def users_name(spec: OpSpec, span: Span | None) -> str:
    """The function of an op as a user calls it: `layernorm` is `layernorm_safe` unless that is written."""
    written = "" if span is None else span.source_text or span.source_line
    return spec.short_name if spec.short_name in written else spec.short_name.removesuffix("_safe")


def _ordinal(at: int) -> str:
    return _ORDINALS[at] if at < len(_ORDINALS) else f"{at + 1}th"


def mixed_fix(
    span: Span | None, op: str, dtypes: Sequence[DType | None], values: Sequence[Any], narrow: DType, wide: DType
) -> Fix | None:
    """The edit that casts the first operand of dtype `narrow` to the dtype that the op takes."""
    expression = expression_at(span)
    # Those that are promoted come last: `where` has its condition before them.
    count = max(len(dtypes), len(REGISTRY[op].operands) if op in REGISTRY else 0)
    parts = (expression.operands(count) or expression.operands(len(dtypes))) if expression is not None else ()
    parts = parts[len(parts) - len(dtypes) :]
    if not parts or expression is None or narrow not in dtypes:
        return None
    if not _takes_operands(op, wide, len(dtypes)) and _takes_operands(op, narrow, len(dtypes)):
        narrow, wide = wide, narrow
    at = dtypes.index(narrow)
    part = parts[at]
    return part.edit(_cast_text(expression, part, wide, is_array(values[at])), f"cast `{part.text}` to {wide}")


def _takes_operands(op: str, dtype: DType, count: int) -> bool:
    if op not in REGISTRY or any(attribute.is_required for attribute in REGISTRY[op].attributes):
        return True  # a rule that needs attributes cannot be run here
    spec = REGISTRY[op]
    return _holds(spec, _Candidate([TensorType((), dtype)] * count, spec.with_defaults({}), lambda: None))


def number_fix(span: Span | None, dtypes: Sequence[DType | None], values: Sequence[Any], value: float) -> Fix | None:
    """The edit that casts the tensor beside a Python number to a dtype that represents both."""
    expression = expression_at(span)
    parts = expression.operands(len(dtypes)) if expression is not None else ()
    at = next((index for index, dtype in enumerate(dtypes) if dtype is not None), None)
    if not parts or expression is None or at is None:
        return None
    held = dtypes[at]
    wider = [dtype for dtype in (dt.i16, dt.i32, dt.i64) if held is not None and dtype.bits > held.bits]
    target = next((dtype for dtype in wider if promote_scalar(dtype, value) is dtype), None)
    if target is None:
        return None
    text = _cast_text(expression, parts[at], target, is_array(values[at]))
    return parts[at].edit(text, f"cast `{parts[at].text}` to {target}")


def _find_source(
    spec: OpSpec, types: Sequence[TensorType], span: Span | None
) -> tuple[Expression | None, Sequence[Part]]:
    """The source of an op and of its operands; None where the expression may be another op."""
    expression = expression_at(span)
    if expression is None or not 0 < len(types) <= _MOST_OPERANDS:
        return None, ()
    if not _is_call_of(spec, expression):
        return None, ()
    parts = expression.operands(len(types))
    return (expression, parts) if parts else (None, ())


def _is_call_of(spec: OpSpec, expression: Expression) -> bool:
    """Whether an expression is an operator, or a call of the op's own function and not of one built on it."""
    called = expression.called
    return not called or spec.short_name.startswith(_ALIASES.get(called, called))


def _first_that_holds(
    spec: OpSpec, candidates: Sequence[_Candidate] | Iterator[_Candidate], *, dtypes_alone: bool = False
) -> Fix | None:
    for candidate in candidates:
        fix = candidate.edit() if _holds(spec, candidate, dtypes_alone=dtypes_alone) else None
        if fix is not None:
            return fix
    return None


def _holds(spec: OpSpec, candidate: _Candidate, *, dtypes_alone: bool = False) -> bool:
    """Whether the rule of an op holds; with `dtypes_alone` shapes may still be wrong, which is another error."""
    try:
        spec.infer(_Strict(), list(candidate.types), candidate.attributes)
    except _DTypeMisfitError:
        return False
    except _MisfitError:
        return dtypes_alone
    except (TesseraError, ValueError, IndexError):  # it is nothing that the rule can even ask about
        return False
    return True


def _with_type(types: Sequence[TensorType], at: int, type: TensorType) -> list[TensorType]:
    return [type if index == at else other for index, other in enumerate(types)]


def _other_axis(
    spec: OpSpec, types: Sequence[TensorType], attributes: Mapping[str, Any], expression: Expression
) -> Iterator[_Candidate]:
    """Along another axis: where tensors are joined, or an axis of 1 is dropped."""
    name = {"concat": "axis", "squeeze": "axes"}.get(spec.short_name)
    part = expression.argument("axis", 1) if name is not None else None
    if part is None or name is None or not isinstance(part.value, int):
        return
    for axis in range(types[0].rank):
        value = axis if name == "axis" else (axis,)
        if value == attributes[name]:
            continue
        message = f"along axis {axis} it fits"
        yield _Candidate(
            types, {**attributes, name: value}, lambda axis=axis, message=message: part.edit(str(axis), message)
        )


def _other_letters(
    spec: OpSpec, types: Sequence[TensorType], attributes: Mapping[str, Any], expression: Expression
) -> Iterator[_Candidate]:
    """The letters of one operand of an `einsum` in another order."""
    equation = attributes.get("equation")
    part = expression.argument("equation", 0)
    if not isinstance(equation, str) or "->" not in equation or part is None or part.value != equation:
        return
    inputs, _, output = equation.partition("->")
    terms = inputs.split(",")
    for at in reversed(range(len(terms))):
        for letters in permutations(terms[at]) if len(terms[at]) in (2, 3) else ():
            changed = ",".join((*terms[:at], "".join(letters), *terms[at + 1 :])) + f"->{output}"
            edit = partial(part.edit, f'"{changed}"', f"name the axes of the operand in the order `{''.join(letters)}`")
            yield _Candidate(types, {**attributes, "equation": changed}, edit)


def _transpose_fixes(
    types: Sequence[TensorType], attributes: Mapping[str, Any], parts: Sequence[Part]
) -> Iterator[_Candidate]:
    """One operand with its last two axes transposed."""
    for at in reversed(range(len(types))) if len(types) > 1 else ():
        shape, part = types[at].shape, parts[at]
        if len(shape) < 2:
            continue
        swapped = types[at].with_shape((*shape[:-2], shape[-1], shape[-2]))
        suffix = "T" if len(shape) == 2 else "mT"
        message = f"transpose `{part.text}`, which is {shape_text(types[at])}"
        yield _Candidate(
            _with_type(types, at, swapped), attributes, partial(part.edit, f"{part.operand}.{suffix}", message)
        )


def _with_new_axes(
    types: Sequence[TensorType], attributes: Mapping[str, Any], parts: Sequence[Part]
) -> Iterator[_Candidate]:
    """One operand with axes of size 1 inserted, so that all have the same rank."""
    rank = max(type.rank for type in types)
    for at in reversed(range(len(types))):
        missing = rank - types[at].rank
        if not 0 < missing < 3 or not types[at].rank:
            continue
        for added in combinations(range(rank), missing):
            dims = iter(types[at].shape)
            shape = tuple(Dim.constant(1) if axis in added else next(dims) for axis in range(rank))
            index = ", ".join("None" if axis in added else ":" for axis in range(max(added) + 1))
            made = types[at].with_shape(shape)
            edit = partial(parts[at].edit, f"{parts[at].operand}[{index}]", _to(parts[at], "reshape", types[at], made))
            yield _Candidate(_with_type(types, at, made), attributes, edit)


def _add_axis_fixes(
    spec: OpSpec,
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    expression: Expression,
    parts: Sequence[Part],
) -> Iterator[_Candidate]:
    """One operand of a concat or stack, padded to the sizes of the others."""
    pad = expression.name_of("ops.pad")
    if spec.short_name not in ("concat", "stack") or pad is None or len({type.rank for type in types}) > 1:
        return
    for at, type in enumerate(types):
        wanted = [max((other.shape[axis].value or 0) for other in types) for axis in range(type.rank)]
        along = attributes["axis"] if spec.short_name == "concat" else -1
        widths = [0 if axis == along else wanted[axis] - (type.shape[axis].value or 0) for axis in range(type.rank)]
        if any(dim.value is None for dim in type.shape) or not any(widths):
            continue
        shape = tuple(dim + width for dim, width in zip(type.shape, widths, strict=True))
        part, message = (
            parts[at],
            f"pad `{parts[at].text}` from {shape_text(type)} to {shape_text(type.with_shape(shape))}",
        )
        text = f"{pad}({part.text}, {[(0, width) for width in widths]})"
        yield _Candidate(
            _with_type(types, at, type.with_shape(shape)),
            attributes,
            lambda part=part, text=text, message=message: part.edit(text, message),
        )


def _cast(
    types: Sequence[TensorType],
    attributes: Mapping[str, Any],
    expression: Expression,
    parts: Sequence[Part],
    targets: Mapping[DType, None],
    choices: Sequence[tuple[int, ...]],
) -> Iterator[_Candidate]:
    """Some operands in another dtype; Python numbers follow the tensors beside them."""
    numbers = {at for at, part in enumerate(parts) if isinstance(part.value, bool | int | float)}
    for target in targets:
        for chosen in choices:
            picked = tuple(at for at in chosen if at not in numbers)
            for cast in ({*picked}, {*picked, *numbers}) if picked else ():
                made = [type.with_dtype(target) if at in cast else type for at, type in enumerate(types)]
                edit = partial(_cast_edit, expression, parts, picked, target)
                yield _Candidate(made, attributes, edit)


def _cast_edit(expression: Expression, parts: Sequence[Part], picked: Sequence[int], target: DType) -> Fix | None:
    """The edit of one operand, or of the whole expression for several."""
    if len(picked) == 1:
        part = parts[picked[0]]
        return part.edit(_cast_text(expression, part, target), _cast_message(part, target))
    whole = expression.whole
    if whole.span.end_line > whole.span.line:
        return None
    text = whole.text
    for at in reversed(picked):
        part = parts[at]
        start = part.span.column - whole.span.column
        text = text[:start] + _cast_text(expression, part, target) + text[start + len(part.text) :]
    return whole.edit(text, _cast_message(parts[picked[0]], target))


def _cast_message(part: Part, target: DType) -> str:
    return f"compare `{part.text}` with 0" if target.is_bool else f"cast `{part.text}` to {target}"


def _cast_text(expression: Expression, part: Part, target: DType, is_array: bool = False) -> str:
    """The operand in another dtype: an array of NumPy has no method `cast`."""
    if target.is_bool:
        is_argument = isinstance(expression.whole.node, ast.Call)
        return f"{part.operand} != 0" if is_argument else f"({part.operand} != 0)"
    if is_array or expression.is_of(part.node, "numpy"):
        cast = expression.name_of("ops.cast") or "tessera.ops.cast"
        return f"{cast}({part.text}, {dtype_name(expression, target)})"
    return f"{part.operand}.cast({dtype_name(expression, target)})"


def dtype_name(expression: Expression, dtype: DType) -> str:
    """A dtype as the file writes it; as a string where it imports nothing of Tessera."""
    return expression.name_of(str(dtype)) or f'"{dtype}"'


def _to(part: Part, verb: str, before: TensorType, after: TensorType) -> str:
    return f"{verb} `{part.text}` from {shape_text(before)} to {shape_text(after)}"


def shape_text(type: TensorType) -> str:
    """The shape as it is printed."""
    return f"[{', '.join(map(str, type.shape))}]"
