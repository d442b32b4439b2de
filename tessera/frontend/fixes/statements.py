"""Fixes of Python that needs the value of a tracer or of a symbolic dim, by the statement that it stands in.

Python asks for a value in few ways (`bool`, `index`, `float`, `format`), and a traced value answers all of them with an
error. What helps depends on what the user wrote: a branch, a loop, `and`, `range`, a slice. So the source around it
is parsed, and the innermost construct that explains the question gives the headline and the fix.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from tessera.diagnostics.edit import ATOMS, imports_of, name_in
from tessera.diagnostics.error import Fix, Span


class Demand(NamedTuple):
    """What asks for a value, as a headline names it, and what to write instead."""

    what: str
    fix: Fix | str


def bool_demand(span: Span | None, is_bool: bool = True) -> Demand:
    """Of `bool(x)`: a branch, a loop, an operator of Python's own, or a function that compares.

    `is_bool` is whether the tensor is one of bools, which `&`, `|` and `~` are for.
    """
    source = source_at(span)
    if source is not None and isinstance(source.chain[0][0], ast.Call):
        asked = _statement_demand(source, *source.chain[0])
        return asked or _call_demand(source, source.chain[0][0])
    operator: Any = None
    for node, parent in _conditions_in(source.chain) if source is not None else ():
        if source is None:
            break
        operator = node if _is_python_operator(node) else operator
        if (asked := _statement_demand(source, node, parent)) is not None:
            return asked
        if operator is not None and not _is_python_operator(parent) and not _is_test(operator, parent):
            text = _elementwise(source, operator) if is_bool else _of_numbers(source, operator)
            return Demand(
                _operator_name(operator), source.edit(operator, text, _precedence_reason(source, operator, text))
            )
    advice = (
        "choose with `tessera.ops.where(condition, a, b)`, branch with `tessera.cond`, loop with `tessera.while_loop`"
    )
    return Demand("bool()", advice)


def _conditions_in(chain: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """The nodes around a span, and first the condition of a statement that is the whole of it: Python blames that."""
    whole = chain[0][0]
    if isinstance(whole, ast.If | ast.While | ast.IfExp):
        yield whole.test, whole
    elif isinstance(whole, ast.ListComp | ast.SetComp | ast.GeneratorExp) and whole.generators[0].ifs:
        yield whole.generators[0].ifs[0], whole.generators[0]
    yield from chain


def _statement_demand(source: Source, node: Any, parent: Any) -> Demand | None:
    """Of the statement whose condition a node is."""
    where = source.name_of("ops.where")
    match node, parent:
        case _, ast.While(test=test) if node is test:
            return Demand("`while`", _while_fix(source, parent))
        case _, ast.IfExp(test=test) if node is test:
            return Demand("`if`", _where_fix(source, parent))
        case _, ast.If(test=test) if node is test:
            return Demand("`if`", _branch_fix(source, node))
        case (ast.Assert(), _) | (_, ast.Assert()):
            advice = "return the condition and check it after the call, or promise it with `tessera.verify.numerics`"
            return Demand("`assert`", advice)
        case (_, ast.MatchValue() | ast.match_case()) | (ast.MatchValue(), _):
            return Demand("`match`", f"choose with `{where}(x == value, a, b)`, one for each case")
        case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Tuple(elts=items) | ast.List(elts=items)]), _:
            each = [f"({ast.unparse(ast.Compare(left, [ast.Eq()], [one]))})" for one in items]
            return Demand("`in`", source.edit(node, " | ".join(each))) if each else None
        case _, ast.comprehension():
            return Demand("`if`", f"the shape does not depend on values: choose with `{where}(condition, x, 0)`")
        case _:
            return None


def _is_test(node: Any, parent: Any) -> bool:
    return getattr(parent, "test", None) is node or isinstance(parent, ast.comprehension)


def _is_python_operator(node: Any) -> bool:
    match node:
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()) | ast.Compare(ops=[_, _, *_]):
            return True
        case _:
            return False


def _operator_name(node: Any) -> str:
    match node:
        case ast.BoolOp(op=op):
            return "`and`" if isinstance(op, ast.And) else "`or`"
        case ast.UnaryOp():
            return "`not`"
        case _:
            return "a chained comparison"


def index_demand(span: Span | None, shape: Sequence[Any] = ()) -> Demand:
    """Of `index(x)`: a loop of Python's, a slice, or an item of a list; `shape` is that of what is sliced."""
    source = source_at(span)
    number = "pass it as a Python int, which is static: the function is compiled for each"
    if source is None:
        return Demand("an index", f"index a tensor, as in `x[i]`, loop with `tessera.fori_loop`, or {number}")
    for node, parent in source.chain:
        match node:
            case ast.Call(func=ast.Name(id="range")):
                return Demand("`range`", _range_fix(source, node, parent))
            case ast.Subscript(slice=index) if any(isinstance(one, ast.Slice) for one in _items(index)):
                return Demand("a slice", _slice_fix(source, node))
            case ast.Subscript(value=value):
                stack = source.name_of("ops.stack")
                text = f"{stack}({source.text(value)})[{source.text(node.slice)}]"
                is_list = isinstance(value, ast.List | ast.Tuple)
                advice = f"a list takes ints; stack it to a tensor first: `{text}`"
                return Demand("an index of a list", (is_list and source.edit(node, text, advice)) or advice)
            case ast.Call():
                return _call_demand(source, node, number)
            case _:
                continue
    return Demand("an index", number)


def float_demand(span: Span | None, what: str, advice: str) -> Demand:
    """Of `float(x)` and `round(x)`: a function of `math`, or of Python's own."""
    source = source_at(span)
    node = source.chain[0][0] if source is not None and source.chain else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Constant):
        return Demand("a format", 'print it while it runs: `tessera.debug_print("{:.2f}", x)`')
    if source is None or not isinstance(node, ast.Call):
        return Demand(what, advice)
    return _call_demand(source, node, advice)


def size_fix(span: Span | None, advice: str) -> Fix | str:
    """Of a symbolic dim as a number: a loop over `range`, or a function of another library that makes a tensor."""
    source = source_at(span)
    for node, parent in source.chain if source is not None else ():
        if source is None or not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "range":
            return _range_fix(source, node, parent)
        is_loop = any(isinstance(one, ast.GeneratorExp | ast.ListComp) for one in node.args)
        return advice if is_loop else _call_demand(source, node, advice).fix
    return advice


def contains_fix(span: Span | None) -> Fix | str:
    """Of `value in x`."""
    source = source_at(span)
    match source.chain[0][0] if source is not None else None:
        case ast.Compare(left=left, ops=[ast.In()], comparators=[right]) as node if source is not None:
            text = f"{source.name_of('ops.any')}({_operand(source, right)} == {source.text(left)})"
            return source.edit(node, text)
        case _:
            return "write `tessera.ops.any(x == value)`"


def size_branch_fix(span: Span | None) -> Fix | str:
    """Of a condition on a symbolic dim: `where`, `cond` and `while_loop` decide it where the program runs."""
    advice = "write a number in the annotation to make the dimension static, or choose with `tessera.ops.where`"
    demand = bool_demand(span)
    if demand.what == "`if`" and not isinstance(demand.fix, Fix):
        return f"{demand.fix}; a number in the annotation makes the dimension static"
    return demand.fix if isinstance(demand.fix, Fix) and demand.what in _DECIDED else advice


_DECIDED = ("`if`", "`while`", "`max`", "`min`")


def scalar_size_fix(span: Span | None, advice: str) -> Fix | str:
    """Of a symbolic dim in arithmetic of floats: a scalar tensor of it."""
    source = source_at(span)
    node = source.chain[0][0] if source is not None else None
    if source is None:
        return advice
    cast, dtype = source.name_of("ops.cast"), source.name_of("f32")
    match node:
        case ast.BinOp(left=left, op=ast.Pow() | ast.Div(), right=right):
            size = right if isinstance(left, ast.Constant) else left
            if isinstance(size, ast.Name | ast.Attribute | ast.Subscript):
                return source.edit(size, f"{cast}({source.text(size)}, {dtype})", "convert it to a scalar tensor first")
        case ast.Call(func=func, args=[inner]):
            called = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            ours = source.name_of(f"ops.{called}")
            if called in ("arange", "eye", "zeros", "ones"):
                return source.edit(func, ours, f"use `tessera.ops.{called}`")
            if _is_function(called) and not source.text(func).startswith(ours):
                text = f"{ours}({cast}({source.text(inner)}, {dtype}))"
                return source.edit(node, text, f"use `tessera.ops.{called}` of a scalar tensor")
        case _:
            pass
    return advice


def format_fix(span: Span | None) -> Fix | str:
    """`debug_print` in place of `print` of a formatted string."""
    advice, source = 'print it while it runs: `tessera.debug_print("{:.2f}", x)`', source_at(span)
    if source is None:
        return advice
    for node, _ in source.chain:
        match node:
            case ast.Call(func=ast.Name(id="print"), args=[ast.JoinedStr(values=values)], keywords=[]):
                text = _format_text(values)
                given = [ast.unparse(one.value) for one in values if isinstance(one, ast.FormattedValue)]
                whole = f"{source.name_of('debug_print')}({text!r}, {', '.join(given)})".replace("'", '"')
                return source.edit(node, whole, "print it while it runs") or advice
            case _:
                continue
    return advice


def array_fix(span: Span | None, advice: str) -> Fix | str:
    """Ours in place of a NumPy function around `np.asarray(x)`, which would be refused next."""
    source = source_at(span)
    if source is None or len(source.chain) < 2:
        return advice
    node, parent = source.chain[0]
    match node, parent:
        case ast.Call(args=[inner]), ast.Call(func=ast.Attribute(value=ast.Name(id=root), attr=called)) if (
            node in parent.args and root == source.text(node.func).split(".")[0] and _is_function(called)
        ):
            given = [source.text(inner if one is node else one) for one in parent.args]
            given += [f"{one.arg}={source.text(one.value)}" for one in parent.keywords]
            return source.edit(parent, f"{source.name_of(f'ops.{called}')}({', '.join(given)})", advice)
        case _:
            return advice


def _is_function(name: str) -> bool:
    from tessera.frontend.functions import public  # noqa: PLC0415 - loaded by who traces; not for the others

    return bool(name) and callable(getattr(public, name, None))


# The source around a span.


class Source:
    """A file parsed, and the nodes around a span of it, innermost first, each with its parent."""

    def __init__(self, span: Span, lines: Sequence[str], chain: list[tuple[Any, Any]]) -> None:
        self.span, self.lines, self.chain = span, lines, chain

    def text(self, node: ast.AST) -> str:
        """How a node is written."""
        return ast.get_source_segment("".join(self.lines), node) or ast.unparse(node)

    def name_of(self, path: str) -> str:
        """How the file writes a name of Tessera."""
        return name_in(self.span.file, path) or f"tessera.{path}"

    def is_whole(self, node: ast.AST) -> bool:
        """Whether the span is of this node."""
        return node is self.chain[0][0]

    def edit(self, node: Any, text: str, message: str = "") -> Fix | str:
        """Write `text` in place of a node, also of one of several lines."""
        message = message or f"write `{text}`"
        return Fix(Span.of_node(self.span.file, node), text, message)


def source_at(span: Span | None) -> Source | None:
    """The file that a span is of, parsed; None where there is no source."""
    lines = linecache.getlines(span.file) if span is not None else []
    tree = _parse("".join(lines)) if lines else None
    if span is None or tree is None or not 0 < span.line <= len(lines):
        return None
    last = max(span.line, span.end_line)
    start = span.line, len(lines[span.line - 1][: span.column - 1].encode())
    end = last, len(lines[last - 1][: span.end_column - 1].encode())
    chain = [pair for pair in _around(tree, start, end) if not isinstance(pair[0], ast.Module)]
    return Source(span, lines, chain[::-1]) if chain else None


@lru_cache(maxsize=8)
def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except SyntaxError:
        return None


def _around(
    node: ast.AST, start: tuple[int, int], end: tuple[int, int], parent: Any = None
) -> Iterator[tuple[Any, Any]]:
    """The nodes that contain a range of text, outermost first."""
    yield node, parent
    for child in ast.iter_child_nodes(node):
        place: Any = child
        if not hasattr(child, "lineno"):  # the clause of a comprehension has no position of its own
            inner = next((one for one in ast.iter_child_nodes(child) if _contains(one, start, end)), None)
            if inner is not None:
                yield from _around(inner, start, end, child)
                return
        elif _contains(place, start, end):
            yield from _around(child, start, end, node)
            return


def _contains(node: Any, start: tuple[int, int], end: tuple[int, int]) -> bool:
    if not hasattr(node, "lineno"):
        return False
    return (node.lineno, node.col_offset) <= start and end <= (node.end_lineno or 0, node.end_col_offset or 0)


def _items(index: ast.expr) -> Sequence[ast.expr]:
    return index.elts if isinstance(index, ast.Tuple) else [index]


# What to write instead.


def _of_numbers(source: Source, node: ast.expr) -> str:
    """What Python's own operators give of numbers: `a or b` is `a` where that is not 0."""
    where = source.name_of("ops.where")
    match node:
        case ast.BoolOp(op=op, values=[first, second]):
            left, right = source.text(first), source.text(second)
            chosen = f"{left}, {right}" if isinstance(op, ast.Or) else f"{right}, {left}"
            return f"{where}({_operand(source, first)} != 0, {chosen})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({_operand(source, operand)} == 0)"
        case _:
            return _elementwise(source, node)


def _operand(source: Source, node: ast.expr) -> str:
    return source.text(node) if isinstance(node, ATOMS) else f"({source.text(node)})"


def _elementwise(source: Source, node: ast.expr) -> str:
    """`a & b`, `a | b` and `~a` of a condition with Python's own operators."""
    match node:
        case ast.BoolOp(op=op, values=values):
            return (" & " if isinstance(op, ast.And) else " | ").join(_elementwise(source, one) for one in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"~{_elementwise(source, operand)}"
        case ast.Compare(ops=[_, _, *_]):
            return " ".join(f"{link.sign} {link.text(source)}".strip() for link in _links(source, node))
        case ast.Name() | ast.Call() | ast.Attribute() | ast.Subscript():
            return source.text(node)
        case _:
            return f"({source.text(node)})"


class _Link(NamedTuple):
    """Comparisons of a chain that stand between two signs such as `&`, and the sign before them."""

    sign: str
    operands: list[ast.expr]
    ops: list[ast.cmpop]

    def text(self, source: Source) -> str:
        """The comparisons one by one; what is compared with nothing as it is."""
        pairs = zip(self.operands, self.ops, self.operands[1:], strict=False)
        each = [f"({ast.unparse(ast.Compare(one, [op], [other]))})" for one, op, other in pairs]
        return " & ".join(each) or _operand(source, self.operands[0])


_SIGNS = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}


def _links(source: Source, node: ast.Compare) -> list[_Link]:
    """A chain of comparisons as it was meant: of `i >= j & i - j < 4` Python compares `j & i - j`, and nobody else."""
    found, start = list[_Link](), (node.lineno, node.col_offset)
    for op, operand in zip([None, *node.ops], [node.left, *node.comparators], strict=True):
        for sign, piece in _pieces(source, operand, start):
            if sign or op is None:
                found.append(_Link(sign, [piece], []))
            else:
                found[-1].operands.append(piece)
                found[-1].ops.append(op)
        start = _end(operand)
    return found


def _pieces(source: Source, node: ast.expr, start: tuple[int, int]) -> list[tuple[str, ast.expr]]:
    """What `&`, `|` and `^` join, each with the sign before it; one piece in parentheses, which begin after `start`.

    With a number behind them they are of bits, unless that is 0: `flags & 7` is one piece.
    """
    gap = ast.Pass(lineno=start[0], col_offset=start[1], end_lineno=node.lineno, end_col_offset=node.col_offset)
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.BitXor() as op, right=right) if (
            "(" not in source.text(gap) and not (isinstance(right, ast.Constant) and right.value)
        ):
            (_, first), *others = _pieces(source, right, _end(left))
            return [*_pieces(source, left, (node.lineno, node.col_offset)), (_SIGNS[type(op)], first), *others]
        case _:
            return [("", node)]


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


def _precedence_reason(source: Source, node: ast.expr, text: str) -> str:
    """Why a chain of comparisons is one, where a sign such as `&` makes it; empty for any other."""
    signs = [link.sign for link in _links(source, node) if link.sign] if isinstance(node, ast.Compare) else []
    return f"`{signs[0]}` binds tighter than comparisons: write `{text}`" if signs else ""


_OF_ONE = {"any": "any", "all": "all", "max": "max", "min": "min", "sorted": "sort", "sum": "sum", "round": "round"}
_OF_TWO = {"max": "maximum", "min": "minimum"}


def _call_demand(source: Source, node: ast.Call, advice: str = "use the tensor itself") -> Demand:
    """Of a function of Python, `math` or NumPy that wants a number: ours of that name, where there is one."""
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    is_method = isinstance(node.func, ast.Attribute) and not isinstance(node.func.value, ast.Name)
    what = f"`{called}`" if called and not is_method else "a function"
    is_imported = imports_of(source.span.file).get(called, "").split(".")[0] in ("math", "numpy")
    if isinstance(node.func, ast.Name) and not is_imported:
        table = _OF_ONE if len(node.args) == 1 else _OF_TWO if len(node.args) == 2 else {}
        ours = table.get(called, "")
    else:
        ours = _OTHER_FUNCTIONS.get(called, called)
    if called == "bool" and len(node.args) == 1:
        inner = node.args[0]
        return Demand("bool()", source.edit(node, f"({source.text(inner)} != 0)", "compare it with 0"))
    if node.keywords or is_method or any(isinstance(one, ast.Starred) for one in node.args) or not _is_function(ours):
        return Demand(what, advice)
    root = source.text(node.func).split(".")[0]
    name = source.name_of(f"ops.{ours}")
    if not isinstance(node.func, ast.Name) and name.split(".")[0] == root:
        return Demand(what, advice)  # it is ours
    if (listed := _stack_text(source, node)) is not None:
        return Demand(what, source.edit(node, f"{name}({listed})", f"use `tessera.ops.{ours}` of all of them"))
    return Demand(what, source.edit(node.func, name, f"use `tessera.ops.{ours}`"))


def _stack_text(source: Source, node: ast.Call) -> str | None:
    """One tensor of several that are the only argument, as a list or one by one; None where it is no such list."""
    match node.args:
        case [ast.List() | ast.Tuple() | ast.ListComp() as items]:
            text = source.text(items)
        case [ast.GeneratorExp() as items]:
            text = f"[{source.text(items).removeprefix('(').removesuffix(')')}]"
        case _:
            return None
    return f"{source.name_of('ops.stack')}({text})"


_OTHER_FUNCTIONS = {"pow": "pow", "fabs": "abs", "atan2": "atan2", "empty": "zeros", "empty_like": "zeros_like"}


def _where_fix(source: Source, node: ast.IfExp) -> Fix | str:
    parts = ", ".join(source.text(part) for part in (node.test, node.body, node.orelse))
    return source.edit(node, f"{source.name_of('ops.where')}({parts})", "choose with `where`, elementwise")


def _branch_fix(source: Source, test: ast.expr) -> str:
    text = _elementwise(source, test) if _has_python_operators(test) else source.text(test)
    where, cond = source.name_of("ops.where"), source.name_of("cond")
    return f"choose with `{where}({text}, a, b)`, or branch with `{cond}({text}, then, otherwise, x)`"


def _has_python_operators(test: ast.expr) -> bool:
    return any(_is_python_operator(one) for one in ast.walk(test))


def _while_fix(source: Source, node: ast.While) -> Fix | str:
    """A `while_loop` whose state is what the body assigns."""
    loop, state = source.name_of("while_loop"), _find_assigned(node.body)
    test = _elementwise(source, node.test) if _has_python_operators(node.test) else source.text(node.test)
    only = _only_assignment(node.body)
    if only is not None and not node.orelse:
        name, value = only[0], only[1]
        text = f"{name} = {loop}(lambda {name}: {test}, lambda {name}: {value}, {name})"
        return source.edit(node, text, "loop where the program runs, with `while_loop`")
    shown = ", ".join(state) or "state"
    return f"write `{loop}(condition, body, ({shown}))`: two functions of the state, which is what the loop assigns"


def _range_fix(source: Source, call: ast.Call, parent: Any) -> Fix | str:
    """A `fori_loop` whose state is what the body assigns."""
    loop = source.name_of("fori_loop")
    ends = [source.text(one) for one in call.args]
    first, last = ("0", ends[0]) if len(ends) == 1 else (ends[0], ends[1]) if len(ends) == 2 else ("0", "n")
    if not isinstance(parent, ast.For) or not isinstance(parent.target, ast.Name) or len(ends) > 2:
        return f"loop with `{loop}({first}, {last}, body, state)`, where `body(i, state)` gives the next state"
    index, only = parent.target.id, _only_assignment(parent.body)
    if only is not None and not parent.orelse:
        name, value = only[0], only[1]
        text = f"{name} = {loop}({first}, {last}, lambda {index}, {name}: {value}, {name})"
        return source.edit(parent, text, "loop where the program runs, with `fori_loop`")
    shown = ", ".join(_find_assigned(parent.body)) or "state"
    return f"write `{loop}({first}, {last}, body, ({shown}))`, where `body({index}, state)` gives the next state"


def _find_assigned(body: Sequence[ast.stmt]) -> list[str]:
    found = [node.id for one in body for node in ast.walk(one) if isinstance(node, ast.Name) and _is_stored(node)]
    return list(dict.fromkeys(found))


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _only_assignment(body: Sequence[ast.stmt]) -> tuple[str, str] | None:
    """The name and the value of a body that is one assignment."""
    match body:
        case [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
            return name, ast.unparse(value)
        case [ast.AugAssign(target=ast.Name(id=name), op=op, value=value)]:
            return name, ast.unparse(ast.BinOp(ast.Name(name), op, value))
        case _:
            return None


def _slice_fix(source: Source, node: ast.Subscript) -> Fix | str:
    """A `dynamic_slice` where each slice has a length that is written: `x[i : i + 2]`."""
    function, base = source.name_of("ops.dynamic_slice"), source.text(node.value)
    advice = f"how long a slice is must be known: `{function}({base}, (start,), (length,))`"
    starts: list[str] = []
    lengths: list[str] = []
    for axis, item in enumerate(_items(node.slice)):
        if not isinstance(item, ast.Slice) or item.step is not None:
            return advice
        length = _length_of(item, f"{base}.shape[{axis}]")
        if length is None:
            return advice
        starts.append("0" if item.lower is None else source.text(item.lower))
        lengths.append(length)
    first, sizes = (f"({', '.join(part)}{',' * (len(part) == 1)})" for part in (starts, lengths))
    return source.edit(node, f"{function}({base}, {first}, {sizes})", "a slice that starts anywhere has a fixed length")


def _length_of(item: ast.Slice, size: str) -> str | None:
    if item.lower is None and item.upper is None:
        return size
    match item.upper:
        case ast.BinOp(left=left, op=ast.Add(), right=right) if item.lower is not None:
            for one, other in ((left, right), (right, left)):
                if ast.dump(one) == ast.dump(item.lower):
                    return ast.unparse(other)
        case _:
            return None
    return None


def _format_text(values: Sequence[ast.expr]) -> str:
    parts: list[str] = []
    for one in values:
        if isinstance(one, ast.FormattedValue):
            spec = one.format_spec
            text = (
                "".join(str(part.value) for part in spec.values if isinstance(part, ast.Constant))
                if isinstance(spec, ast.JoinedStr)
                else ""
            )
            parts.append(f"{{:{text}}}" if text else "{}")
        elif isinstance(one, ast.Constant):
            parts.append(str(one.value).replace("{", "{{").replace("}", "}}"))
    return "".join(parts)
