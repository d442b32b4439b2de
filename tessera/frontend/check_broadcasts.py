"""Broadcasts checked before tracing: the statements of a function that always run, read under the types of a call.

Nothing of the user's runs for it. The source of the function is read as far as it is a straight line: assignments and
returns, Python's operators, and functions of ours whose shape rule is known. Whatever else stands there has an unknown
shape, and ends what is read where it might return. So does whatever may run code of others: a call of what is not ours,
and an attribute, an item or an operator of an object that is neither a tensor nor a plain number. It may raise an error
of the user's, rebind a name, or give what it likes. An op of known shapes goes through the rule that tracing would
ask, with the same facts about symbolic dims, so only what tracing would refuse is refused.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tessera.diagnostics.codes import ShapeError
from tessera.diagnostics.error import Span, TesseraError
from tessera.frontend.bind import Signature, input_types
from tessera.frontend.concrete import concrete_type
from tessera.frontend.shape_inference import Facts, Inference
from tessera.frontend.trace import Trace
from tessera.ir.base.tape import Record
from tessera.ir.graph.ops import REGISTRY
from tessera.types.promotion import promote_all
from tessera.types.shape import TensorType

_BINARY: Mapping[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
_UNARY = (
    "abs ceil cos erf exp exp2 expm1 floor gelu log log1p log2 neg relu rsqrt sigmoid sign silu sin softplus sqrt"
    " square tan tanh softmax softmax_safe log_softmax rmsnorm rmsnorm_safe layernorm layernorm_safe"
)
_SAME_SHAPE = frozenset(_UNARY.split())
"""Functions of one tensor whose result has its shape."""
_ELEMENTWISE = frozenset([*_BINARY.values(), "maximum", "minimum"])


class _Scalar:
    """A Python number, which broadcasts to anything."""


_SCALAR = _Scalar()
_NUMBERS = (bool, int, float)
_ARRAYS = {("numpy", "ndarray"), ("tessera.runtime.tensor", "Tensor")}
"""Classes of numbers and arrays whose operators are known: a class that is derived from one may have others."""


class _Stopped(Exception):  # noqa: N818 - no error: the end of what is read
    """Code of others runs here, and nothing is certain after it."""


def check_broadcasts(function: Callable[..., Any], signature: Signature) -> None:
    """Raise BroadcastError (T0106) at an op of the function whose operands cannot be broadcast for such arguments."""
    node = _find_definition(function)
    if node is None or not isinstance(function, FunctionType):
        return
    types, declared = input_types(signature)
    trace = Trace(facts=Facts(declared))
    known: dict[str, Any] = {}
    remaining = iter(types)
    for path, leaf in zip(signature.paths(), signature.leaves, strict=True):
        if leaf.dtype is not None:
            found = next(remaining)
            trace.facts.anchor(found)
            known[path] = trace.add_input(path, found, given=not leaf.is_declared).value
        elif type(leaf.static) in _NUMBERS:
            known[path] = _SCALAR
    names = {argument.arg for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
    rebound = {name for one in ast.walk(node) if isinstance(one, ast.Nonlocal | ast.Global) for name in one.names}
    reader = _Reader(trace, function, {name: value for name, value in known.items() if name in names}, rebound)
    with suppress(_Stopped):
        reader.read(node.body)


class _Reader:
    """Reads statements; `env` has the value numbers of names whose shape is known."""

    def __init__(self, trace: Trace, function: FunctionType, env: dict[str, Any], rebound: set[str]) -> None:
        self.trace, self.file = trace, function.__code__.co_filename
        self.env = {name: value for name, value in env.items() if name not in rebound}
        self.rebound = rebound  # by a function inside, or for others: whenever that is
        self.local = {*function.__code__.co_varnames, *function.__code__.co_cellvars}
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self.outside = {**function.__globals__, **{name: value for name, cell in cells for value in _read_cell(cell)}}

    def read(self, body: Sequence[ast.stmt]) -> bool:
        """Whether what follows still runs for certain."""
        return all(self._read_statement(statement) for statement in body)

    def _read_statement(self, node: ast.stmt) -> bool:
        # A name that is bound inside an expression has two values in it.
        is_plain = isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return)
        if not is_plain or any(isinstance(one, ast.NamedExpr) for one in ast.walk(node)):
            return self._read_block(node)
        self._stop_at_code(node)
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self._bind(name, self.value_of(value))
            case ast.Assign(targets=targets, value=value):
                if not isinstance(value, ast.Tuple | ast.List):
                    raise _Stopped  # it is iterated over, or assigned to several
                self.value_of(value)
                self._forget(targets)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value) if name in self.env:
                left = self.env[name]
                self._bind(name, self._operate(node, _BINARY.get(type(op)), left, self.value_of(value)))
            case ast.Expr(value=value):
                self.value_of(value)
            case ast.Return(value=value):
                if value is not None:
                    self.value_of(value)
                return False
            case ast.AugAssign():
                raise _Stopped
        return True

    def _read_block(self, node: ast.stmt) -> bool:
        """Of statements in which others stand, a scope of ours is read; what the others bind is unknown after them."""
        if isinstance(node, ast.With) and all(self._is_ours(item.context_expr) for item in node.items):
            self._stop_at_code(*(item.context_expr for item in node.items))
            self._forget(node.items)
            return self.read(node.body)
        match node:
            case ast.FunctionDef(decorator_list=[], args=arguments):
                self._stop_at_code(arguments)
            case ast.FunctionDef() | ast.ClassDef() | ast.With() | ast.Import() | ast.ImportFrom():
                raise _Stopped
            case _:
                self._stop_at_code(node)
        self._forget([node])
        return not any(isinstance(one, ast.Return | ast.Raise | ast.Assert) for one in ast.walk(node))

    def _stop_at_code(self, *nodes: ast.AST) -> None:
        """Raise _Stopped where something in the nodes may run code of others."""
        if not all(self._runs_nothing(one) for node in nodes for one in ast.walk(node)):
            raise _Stopped

    def _runs_nothing(self, node: ast.AST) -> bool:
        """Whether a node, apart from those in it, runs no code but Python's and ours."""
        match node:
            case ast.Call():
                return self._is_harmless(node)
            case ast.Attribute(value=inner, ctx=ast.Load()):
                return self._is_tensor(inner) or self._is_module(inner) or self._is_ours(node)
            case ast.Subscript(value=inner, ctx=ast.Load()):
                return self._is_tensor(inner) or (isinstance(inner, ast.Attribute) and self._is_tensor(inner.value))
            case (
                ast.Attribute() | ast.Subscript() | ast.Starred() | ast.JoinedStr() | ast.comprehension() | ast.Await()
            ):
                return False
            case ast.BinOp(left=left, right=right):
                return self._is_known(left) and self._is_known(right)
            case ast.Compare(left=left, comparators=others):
                return all(self._is_known(one) for one in (left, *others))
            case ast.UnaryOp(operand=inner) | ast.IfExp(test=inner) | ast.If(test=inner) | ast.While(test=inner):
                return self._is_known(inner)
            case ast.BoolOp(values=values):
                return all(self._is_known(one) for one in values)
            case ast.For(iter=given):
                return isinstance(given, ast.Tuple | ast.List | ast.Call) or self._is_tensor(given)
            case _:
                return not isinstance(node, ast.Match | ast.AsyncFor | ast.AsyncWith | ast.Yield | ast.YieldFrom)

    def _is_tensor(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and isinstance(self.env.get(node.id), int)

    def _is_module(self, node: ast.expr) -> bool:
        """Whether a name is a module, or a list: their attributes are there, and are not computed."""
        if not isinstance(node, ast.Name) or node.id in {*self.local, *self.rebound}:
            return False
        return type(self.outside.get(node.id)) in (ModuleType, list)

    def _is_known(self, node: ast.expr) -> bool:
        """Whether an expression gives a tensor or a plain value of Python's: their operators run nothing of others."""
        match node:
            case ast.Name(id=name):
                is_outer = name not in {*self.env, *self.local, *self.rebound}
                is_plain = is_outer and type(self.outside.get(name, self)) in (*_NUMBERS, str, type(None))
                return name in self.env or is_plain or self._look_up(name) is not None
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return all(self._is_known(item) for item in items)
            case ast.Attribute(value=inner):
                return self._is_tensor(inner)
            case _:  # what is in it is asked for itself
                return isinstance(
                    node, ast.Constant | ast.BinOp | ast.UnaryOp | ast.Compare | ast.BoolOp | ast.Subscript | ast.Call
                )

    def _is_harmless(self, node: ast.Call) -> bool:
        """Whether a call runs no code but ours: of a function of ours, or of a tensor, with no function given to it."""
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        match node.func:
            case ast.Name(id="range") if self._is_builtin("range"):
                return all(isinstance(one, ast.Constant) and isinstance(one.value, int) for one in given)
            case ast.Attribute(value=ast.Name(id=name)) if isinstance(self.env.get(name), int):
                return all(self._is_data(one) for one in given)
            case ast.Attribute(value=ast.Name(id=name), attr="append") if name not in {*self.local, *self.rebound}:
                return type(self.outside.get(name)) is list and len(given) == 1
            case func:
                name = getattr(func, "attr", getattr(func, "id", ""))
                is_known = name in _SAME_SHAPE | _ELEMENTWISE
                return self._is_ours(func) and (is_known or all(self._is_data(one) for one in given))

    def _is_builtin(self, name: str) -> bool:
        return name not in {*self.local, *self.rebound, *self.outside} and hasattr(builtins, name)

    def _is_data(self, node: ast.expr) -> bool:
        """Whether an argument is for certain no function."""
        match node:
            case ast.Constant() | ast.BinOp() | ast.Compare() | ast.UnaryOp():
                return True
            case ast.Name(id=name):
                return name in self.env or self._look_up(name) is not None
            case ast.Tuple(elts=items) | ast.List(elts=items):
                return all(self._is_data(item) for item in items)
            case ast.Attribute():
                return self._is_ours(node)
            case ast.Call():
                return self._is_harmless(node)
            case _:
                return False

    def _forget(self, nodes: Sequence[ast.AST]) -> None:
        for name in _bound_in(nodes):
            self.env.pop(name, None)

    def _bind(self, name: str, value: Any) -> None:
        if value is None or name in self.rebound:
            self.env.pop(name, None)
        else:
            self.env[name] = value

    def value_of(self, node: ast.expr) -> Any:
        """The value number of an expression whose shape is known, a scalar, or None."""
        match node:
            case ast.Name(id=name):
                return self._look_up(name)
            case ast.Constant(value=bool() | int() | float()):
                return _SCALAR
            case ast.BinOp(left=left, op=op, right=right):
                return self._operate(node, _BINARY.get(type(op)), self.value_of(left), self.value_of(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._operate(node, _BINARY.get(type(op)), self.value_of(left), self.value_of(right))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
                return self.value_of(operand)
            case ast.Attribute(value=ast.Name(id=name), attr="T") if isinstance(self.env.get(name), int):
                return self._reshape(node, lambda shape: tuple(reversed(shape)), self.env[name])
            case ast.Call(func=func, args=args, keywords=[]) if not any(isinstance(one, ast.Starred) for one in args):
                return self._call(node, func, [self.value_of(one) for one in args])
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:
                    self.value_of(item)
                return None
            case _:
                return None

    def _look_up(self, name: str) -> Any:
        if name in self.env:
            return self.env[name]
        if name in self.local or name in self.rebound or name not in self.outside:
            return None
        value = self.outside[name]
        if type(value) in _NUMBERS:
            return _SCALAR
        if (type(value).__module__, type(value).__name__) not in _ARRAYS:
            return None  # one of another class may have operators of its own
        try:
            found = concrete_type(value)
        except TesseraError:
            return None
        return None if found is None else self.trace.add_input(name, found).value

    def _call(self, node: ast.Call, func: ast.expr, values: Sequence[Any]) -> Any:
        name = str(getattr(self._find_ours(func), "__name__", ""))  # its own: a file may call it otherwise
        if name in _SAME_SHAPE and len(values) == 1 and isinstance(values[0], int):
            return self._reshape(node, lambda shape: shape, values[0])
        return self._operate(node, name, *values) if name in _ELEMENTWISE and len(values) == 2 else None

    def _is_ours(self, node: ast.expr) -> bool:
        return self._find_ours(node) is not None

    def _find_ours(self, node: ast.expr) -> Any:
        """What of Tessera an expression names, or calls; None for a name that the function binds."""
        found: Any = node.func if isinstance(node, ast.Call) else node
        parts: list[str] = []
        while isinstance(found, ast.Attribute):
            parts.append(found.attr)
            found = found.value
        if not isinstance(found, ast.Name) or found.id in self.local:
            return None
        value = self.outside.get(found.id)
        for part in reversed(parts):
            value = getattr(value, part, None) if isinstance(value, ModuleType) else None
        if isinstance(value, ModuleType) or (callable(value) and not isinstance(value, FunctionType | type)):
            return None  # one of our objects that may hold a function of the user's
        return value if str(getattr(value, "__module__", "")).startswith("tessera.") else None

    def _reshape(self, node: ast.expr, change: Callable[[Any], Any], value: int) -> int:
        """A value of another shape, of which nothing more is known."""
        type = self.trace.tape.types[value]
        return self._add("reshape", (value,), type.with_shape(change(type.shape)), node)

    def _add(self, op: str, values: tuple[int, ...], type: TensorType, node: Any) -> int:
        number = self.trace.tape.new_value(type)
        span = Span.of_node(self.file, node)
        self.trace.tape.records.append(Record(f"tgraph.{op}", values, {}, (number,), span))
        return number

    def _operate(self, node: Any, op: str | None, left: Any, right: Any) -> Any:
        """The result of an elementwise op; raises where its shape rule does."""
        if op is None or left is None or right is None:
            return None
        if not isinstance(left, int) or not isinstance(right, int):
            return left if isinstance(left, int) else right
        types = [self.trace.tape.types[value] for value in (left, right)]
        dtype = promote_all([type.dtype for type in types])
        if dtype is None:
            return None
        spec, span = REGISTRY[op], Span.of_node(self.file, node)
        context = Inference(self.trace, spec, (left, right), span, {})
        try:
            (result,) = spec.infer(context, [type.with_dtype(dtype) for type in types], spec.with_defaults({}))
        except ShapeError:
            raise
        except TesseraError as error:
            if error.code == "T0106":
                raise
            return None
        return self._add(op, (left, right), result, node)


# The source of a function, and proof that it is what runs.


def _find_definition(function: Callable[..., Any]) -> ast.FunctionDef | None:
    """The definition of a function, at its lines and columns; None where its source is not what was compiled."""
    if not isinstance(function, FunctionType) or function.__code__.co_name == "<lambda>":
        return None
    if function.__code__.co_flags & _DEFERRED:
        return None
    from tessera.diagnostics.edit import source_lines  # noqa: PLC0415 - few functions are read

    lines, first = source_lines(function)
    try:
        node = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (SyntaxError, IndexError):
        return None
    if not isinstance(node, ast.FunctionDef) or not _is_compiled_from(function.__code__, node):
        return None
    indent = len(lines[0]) - len(lines[0].lstrip())
    for one in ast.walk(node):
        if isinstance(one, ast.expr | ast.stmt):
            one.lineno, one.end_lineno = one.lineno + first - 1, (one.end_lineno or one.lineno) + first - 1
            one.col_offset, one.end_col_offset = one.col_offset + indent, (one.end_col_offset or 0) + indent
    return node


def _is_compiled_from(code: CodeType, node: ast.FunctionDef) -> bool:
    """Whether a definition gives this code: a file may have changed since it was imported."""
    inner = ast.FunctionDef(node.name, node.args, node.body, [], None, None, lineno=1, col_offset=0)
    cells = [ast.arg(name, lineno=1, col_offset=0) for name in code.co_freevars]
    arguments = ast.arguments([], cells, None, [], [], None, [])
    outer = ast.FunctionDef("outer", arguments, [inner], [], None, None, lineno=1, col_offset=0)
    try:
        module = ast.fix_missing_locations(ast.Module([outer], []))
        made = compile(module, code.co_filename, "exec", code.co_flags & _FUTURE, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    found = next((one for one in _codes_in(made) if one.co_name == code.co_name), None)
    return found is not None and _list_instructions(found) == _list_instructions(code)


def _list_instructions(code: CodeType) -> list[tuple[str, str]]:
    """What a code does, without how: attributes of imported modules are loaded in another way than methods."""
    found: list[tuple[str, str]] = []
    for one in dis.get_instructions(code):
        if one.opname not in ("PUSH_NULL", "PRECALL", "NOP", "RESUME"):
            is_plain = "JUMP" in one.opname or isinstance(one.argval, CodeType)
            found.append((one.opname.replace("LOAD_METHOD", "LOAD_ATTR"), "" if is_plain else repr(one.argval)))
    return found


_DEFERRED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUTURE = 0x1000000
"""The flag of a code whose annotations are not evaluated (`__future__.annotations.compiler_flag`)."""


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from (inner for inner in one.co_consts if isinstance(inner, CodeType))


def _read_cell(cell: Any) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []  # it is not filled yet


def _bound_in(nodes: Sequence[ast.AST]) -> list[str]:
    """The names that statements bind, in functions inside them too, which may rebind names of the outer one."""
    found: list[str] = []
    for node in nodes:
        for one in ast.walk(node):
            match one:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    found.append(name)
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found.append(name)
                case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                    found.append(name)
                case ast.ExceptHandler(name=str(name)):
                    found.append(name)
                case ast.alias(name=name, asname=given):
                    found.append(given or name.partition(".")[0])
                case ast.Nonlocal(names=names) | ast.Global(names=names):
                    found += names
                case _:
                    continue
    return found
