"""The evaluator of kernel source: Python for values known at compile time, tile ops for the others.

The AST is interpreted once, on abstract tiles: values that have a shape, a dtype and a number in the builder, but no
data. Static values (ints, shapes, `if` conditions, helper functions) are computed by Python itself, so an `if`
selects a branch and a Python loop is unrolled; an operator on a tile emits a tile op at the span of its node. A loop
over blocks is evaluated once for all its iterations: names that its body assigns become values that the loop carries
(`loops.py`).
"""

from __future__ import annotations

import ast
import builtins
import inspect
import operator
import types
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from itertools import islice
from typing import Any, cast

import numpy as np

from tessera.diagnostics.calls import explain_call
from tessera.diagnostics.codes import ArgumentError, KernelError
from tessera.diagnostics.error import FixLike, TesseraError
from tessera.frontend.kernel.block_scope import check_choice, numbers_in, per_block, tile_shape
from tessera.frontend.kernel.builder import KernelBuilder
from tessera.frontend.kernel.extents import Index, Loop, check_static, is_number, roles_of, with_roles
from tessera.frontend.kernel.indexing import TensorRef
from tessera.frontend.kernel.loops import Blocks, Pipeline, write_loop
from tessera.frontend.kernel.rows import NeedsNumber
from tessera.frontend.kernel.source import GONE, Source, rebound_name, source_of
from tessera.frontend.kernel.suggestions import (
    attribute_refusal,
    call_refusal,
    is_of_library,
    is_of_tensors,
    tensor_refusal,
)
from tessera.frontend.kernel.tiles import Operand
from tessera.frontend.pytree import as_tuple, is_sequence

UNROLLED = 256
"""The most iterations of a Python loop that is unrolled."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
    ast.Pow: lambda a, b: a**b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
    ast.LShift: lambda a, b: a << b,
    ast.RShift: lambda a, b: a >> b,
    ast.MatMult: lambda a, b: a @ b,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
    ast.Invert: operator.invert,
}
SUPPORTED = (
    "assignments, `for` over `tile.range_...` or Python ranges, `if` on values known at compile time, "
    "`with tile.pipeline(...)`, calls, arithmetic and `return`"
)


class _Returned(Exception):  # noqa: N818 - no error: the end of a function
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class Evaluator:
    """The evaluation of one function, with its variables."""

    def __init__(self, b: KernelBuilder, source: Source, env: dict[str, Any], level: int = 0) -> None:
        self.b, self.source, self.env, self.level = b, source, env, level
        self.in_loop = 0
        self.is_checking = self.is_fixing = False  # in an assertion, and in the arguments of `per_block`

    def run(self) -> Any:
        """The return value of the function."""
        try:
            self.statements(self.source.tree.body)
        except _Returned as returned:
            return returned.value
        return None

    # Statements.

    def statements(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self.b.span = self.source.span(statement)
            handler = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if handler is None:
                raise self.refuse(statement, f"`{_word(statement)}` is not part of the kernel language")
            handler(statement)

    def refuse(self, node: Any, message: str, fix: FixLike = "") -> KernelError:
        span = self.source.span(node)
        return KernelError(message, span=span, notes=() if fix else (f"supported: {SUPPORTED}",), fix=fix or None)

    def _do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring, or `...`
        value = self.expression(node.value)
        name = rebound_name(node)
        if name is not None:
            self.env[name] = value

    def _do_pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.expression(node.value)
        for target in node.targets:
            self._bind(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self._bind(node.target, self.expression(node.value))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise self.refuse(node, "only names can be assigned in place", "write `x = x + y`")
        left = self._name(node.target, node.target.id)
        right = self.expression(node.value)
        if is_sequence(left):
            self._choose(node.value, right if not is_sequence(right) else None)
        self.env[node.target.id] = self._run(node, lambda: _BINARY[type(node.op)](left, right), left, right)

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.env[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            items = as_tuple(value) if is_sequence(value) else None
            if items is None or len(items) != len(target.elts):
                got = type(value).__name__ if items is None else f"{len(items)} values"
                raise self.refuse(
                    target, f"{len(target.elts)} names are assigned {got}", "assign as many names as values"
                )
            for part, item in zip(target.elts, items, strict=True):
                self._bind(part, item)
        else:
            raise self.refuse(target, "a tile is immutable: its elements cannot be assigned", "use `tile.where`")

    def _do_if(self, node: ast.If) -> None:
        self.statements(node.body if self._truth(node.test) else node.orelse)

    def _truth(self, node: ast.expr) -> bool:
        value = self.expression(node)
        if isinstance(value, Operand | Index):
            raise self.refuse(
                node,
                "this is known only at run time, and `if` is decided at compile time",
                "choose with `tile.where(condition, a, b)`",
            )
        self._choose(node, value)
        return bool(value)

    def _choose(self, node: ast.expr, *values: Any) -> None:
        """Python decides by these values: no number of the schedule is among them, but for an assertion."""
        if not self.is_checking:
            with self._at(node):
                check_choice(self.b, self.is_fixing, *values)

    def _do_return(self, node: ast.Return) -> None:
        if self.in_loop:
            raise self.refuse(node, "a loop over blocks has no early return", "return after the loop")
        raise _Returned(None if node.value is None else self.expression(node.value))

    def _do_for(self, node: ast.For) -> None:
        if node.orelse:
            raise self.refuse(node, "`else` of a loop is not part of the kernel language")
        over = self.expression(node.iter)
        if isinstance(over, Blocks):
            self.in_loop += 1
            write_loop(self, node, over)
            self.in_loop -= 1
            return
        if not isinstance(over, range | tuple | list | enumerate | zip):
            raise self.refuse(
                node.iter, f"a kernel cannot loop over {type(over).__name__}", "loop over `tile.range_n(x.shape, T.n)`"
            )
        first = islice(cast("Iterable[Any]", over), UNROLLED + 1)
        items: list[Any] = self._run(node.iter, lambda: list(first))
        if len(items) > UNROLLED:
            raise self.refuse(
                node.iter,
                f"a Python loop is unrolled, and this one has more than {UNROLLED} iterations",
                "loop over blocks with `tile.steps(size, by=...)`",
            )
        for item in items:
            self._bind(node.target, item)
            self.statements(node.body)

    def _do_with(self, node: ast.With) -> None:
        if len(node.items) != 1:
            raise self.refuse(node, "`with` takes one pipeline here")
        (item,) = node.items
        manager = self.expression(item.context_expr)
        if not isinstance(manager, Pipeline):
            raise self.refuse(item.context_expr, "`with` is for pipelines", "write `with tile.pipeline(2) as slot:`")
        slot = manager.__enter__()
        if item.optional_vars is not None:
            self._bind(item.optional_vars, slot)
        self.statements(node.body)
        self.b.span = self.source.span(node)
        manager.__exit__(None, None, None)

    def _do_assert(self, node: ast.Assert) -> None:
        outer, self.is_checking = self.is_checking, True
        try:
            is_true = self._truth(node.test)
            message = ast.unparse(node.test) if is_true or node.msg is None else self.expression(node.msg)
        finally:
            self.is_checking = outer
        if not is_true:
            raise self.refuse(node, f"assertion failed in the kernel: {message}", "see the assertion")

    def _do_functiondef(self, node: ast.FunctionDef) -> None:
        raise self.refuse(
            node, "functions inside kernels are not supported", "write a `lambda`, or a function outside of the kernel"
        )

    # Expressions.

    def expression(self, node: ast.expr) -> Any:
        handler = getattr(self, f"_eval_{type(node).__name__.lower()}", None)
        if handler is None:
            raise self.refuse(node, f"`{_word(node)}` is not part of the kernel language")
        return handler(node)

    @contextmanager
    def _at(self, node: ast.expr) -> Any:
        outer, self.b.span = self.b.span, self.source.span(node)
        try:
            yield
        finally:
            self.b.span = outer

    def _run(self, node: Any, work: Callable[[], Any], *operands: Any) -> Any:
        """The result of `work`, with ops at the span of the node; a Python error becomes a KernelError there."""
        check_static(*operands)
        with self._at(node):
            try:
                return with_roles(work(), roles_of(*operands))
            except (TesseraError, NeedsNumber, _Returned):
                raise
            except (TypeError, ValueError, ZeroDivisionError, AttributeError, KeyError, IndexError) as error:
                refusal = tensor_refusal(operands) or (f"Python raised: {error}", "check the operands")
                raise self.refuse(node, *refusal) from error

    def _eval_constant(self, node: ast.Constant) -> Any:
        return node.value

    def _eval_name(self, node: ast.Name) -> Any:
        return self._name(node, node.id)

    def _name(self, node: ast.expr, name: str) -> Any:
        if name in self.env:
            found = self.env[name]
            if found is GONE:
                raise self.refuse(
                    node,
                    f"`{name}` is assigned only inside a loop",
                    "assign it before the loop, so that the loop carries it",
                )
            return found
        function = self.source.function
        captured = _captured_names(function)
        if name in captured:
            return captured[name]
        if hasattr(builtins, name):
            return getattr(builtins, name)
        context = self.b.extents()
        if name in ("m", "n", "k", "d"):
            return getattr(context, name)
        raise self.refuse(node, f"`{name}` is not defined", "define it before the kernel, or pass it as an argument")

    def _eval_attribute(self, node: ast.Attribute) -> Any:
        owner: Any = self.expression(node.value)
        is_own = node.attr in dir(owner)
        refusal = None if is_own else attribute_refusal(owner, node.attr, ast.unparse(node))
        if refusal is not None:
            raise self.refuse(node, *refusal)
        if isinstance(owner, Operand) and node.attr == "shape":
            return tile_shape(self.b, owner)
        roles = roles_of(owner) if isinstance(owner, int | float) else frozenset[str]()
        return with_roles(self._run(node, lambda: getattr(owner, node.attr)), roles)

    def _eval_tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.expression(item) for item in node.elts)

    def _eval_list(self, node: ast.List) -> Any:
        return [self.expression(item) for item in node.elts]

    def _eval_binop(self, node: ast.BinOp) -> Any:
        left, right = self.expression(node.left), self.expression(node.right)
        if (refusal := tensor_refusal((left, right))) is not None:
            raise self.refuse(node, *refusal)
        if is_sequence(left) or is_sequence(right) or isinstance(left, str):
            self._choose(node, *(value for value in (left, right) if not is_sequence(value)))
        return self._run(node, lambda: _BINARY[type(node.op)](left, right), left, right)

    def _eval_unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            self._choose(node, value)
        return self._run(node, lambda: _UNARY[type(node.op)](value), value)

    def _eval_compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise self.refuse(node, "chained comparisons are not part of the kernel language", "join them with `&`")
        left, right = self.expression(node.left), self.expression(node.comparators[0])
        if not isinstance(node.ops[0], ast.Is | ast.IsNot) and not isinstance(left, Operand):
            left, right = self._static_operand(node, left, right), self._static_operand(node, right, left)
            if not isinstance(right, Operand):
                self._choose(node, left, right)
        return self._run(node, lambda: _COMPARE[type(node.ops[0])](left, right), left, right)

    def _static_operand(self, node: ast.Compare, value: Any, other: Any) -> Any:
        """A value to compare, with sizes as numbers; raises for what is known only at run time."""
        if is_sequence(value):
            return type(value)(self._static_operand(node, item, None) for item in value)
        if isinstance(other, Operand) or not isinstance(value, Index | Loop):
            return value
        if isinstance(value, Loop) or value.dim.symbols & set(self.b.coords):
            raise self.refuse(
                node,
                "this is known only at run time, and Python compares at compile time",
                "compare tiles, such as `tile.col_index(step)`, and choose with `tile.where(condition, a, b)`",
            )
        return value.__index__()

    def _eval_boolop(self, node: ast.BoolOp) -> Any:
        is_and, value = isinstance(node.op, ast.And), None
        for part in node.values:
            value = self._truth(part)
            if value is not is_and:
                break
        return value

    def _eval_ifexp(self, node: ast.IfExp) -> Any:
        return self.expression(node.body if self._truth(node.test) else node.orelse)

    def _eval_subscript(self, node: ast.Subscript) -> Any:
        owner, key = self.expression(node.value), self.expression(node.slice)
        if isinstance(owner, _HELD):
            self._choose(node.slice, key)
        return self._run(node, lambda: owner[key], owner)

    def _eval_slice(self, node: ast.Slice) -> Any:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else self.expression(part) for part in parts))

    def _eval_lambda(self, node: ast.Lambda) -> Any:
        names = [argument.arg for argument in node.args.args]

        def function(*values: Any) -> Any:
            if len(values) != len(names):
                raise self.refuse(
                    node, f"this function takes {len(names)} argument{'s' * (len(names) != 1)}, got {len(values)}"
                )
            outer, self.env = self.env, {**self.env, **dict(zip(names, values, strict=True))}
            try:
                return self.expression(node.body)
            finally:
                self.env = outer

        return function

    def _eval_joinedstr(self, node: ast.JoinedStr) -> Any:
        return ast.unparse(node)

    # Calls.

    def _eval_call(self, node: ast.Call) -> Any:
        function = self.expression(node.func)
        outer, self.is_fixing = self.is_fixing, self.is_fixing or function is per_block
        try:
            arguments, named = self._arguments(node)
        finally:
            self.is_fixing = outer
        if len(named) != len(node.keywords):
            raise self.refuse(node, "`**` is not part of the kernel language", "name the arguments")
        if function is builtins.breakpoint:
            return None  # only the interpreter stops, where tiles have data
        if function is builtins.print:
            raise self.refuse(node, "`print` is not part of compiled kernels", "run it with `kernel.interpret(...)`")
        values = (*arguments, *named.values())
        if hasattr(function, "with_schedule"):
            raise self.refuse(
                node,
                f"`{ast.unparse(node.func)}` is a kernel, and a kernel cannot call a kernel",
                "move the shared code into a function, or call one kernel after the other inside `jit`",
            )
        if _takes_no_tiles(function) and any(isinstance(value, Operand | Loop | TensorRef) for value in values):
            scope = _captured_names(self.source.function)
            raise self.refuse(node, *call_refusal(node, self.source.span(node.func), values, scope))
        return self._apply(node, function, arguments, named)

    def _arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        arguments: list[Any] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                arguments += list(self.expression(argument.value))
            else:
                arguments.append(self.expression(argument))
        named = {str(item.arg): self.expression(item.value) for item in node.keywords if item.arg is not None}
        return arguments, named

    def _apply(self, node: ast.Call, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """A call of a function of the language, of the user's, or of Python."""
        values = (*arguments, *named.values())
        is_own = isinstance(function, types.FunctionType) and not _is_language(function) and not is_of_library(function)
        if is_own and function.__name__ == "<lambda>":
            return self._run(node, lambda: function(*arguments, **named))  # its body is an expression of this source
        if is_own:
            return self._inline(node, function, arguments, named)
        if _is_language(function) and getattr(function, "__name__", "") == "rank":
            self.b.rank_span = self.source.span(node)
        if getattr(function, "__name__", "") not in _TAKE_SIZES:
            check_static(*values)
        result = self._run(node, lambda: self._call(node, function, arguments, named))
        if function is per_block:
            return result
        if not _is_of_python(function):
            return with_roles(result, roles_of(*values))
        numbers = numbers_in((getattr(function, "__self__", None), *values))
        if function is not builtins.len and result is not None and not is_number(result):
            self._choose(node, *numbers)
            return result
        return result if function is builtins.len else with_roles(result, roles_of(*numbers))

    def _call(self, node: ast.Call, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """A call, with missing and unexpected arguments of a function of the language explained."""
        try:
            return function(*arguments, **named)
        except TypeError as error:
            # One raised inside of the function is not about its call.
            found = explain_call(function, tuple(arguments), named, error) if _is_language(function) else error
            if not isinstance(found, ArgumentError):
                raise
        advice = found.fix.message if found.fix is not None else "pass what its parameters take"
        raise self.refuse(node, f"{found.message}; {found.notes[0]}", advice)

    def _inline(self, node: ast.Call, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """A function of the user's, inlined at the call."""
        if self.level > 32:
            raise self.refuse(node, "functions recurse too deeply", "kernels have no recursion")

        def work() -> Any:
            bound = inspect.signature(function).bind(*arguments, **named)
            bound.apply_defaults()
            return Evaluator(self.b, source_of(function), dict(bound.arguments), self.level + 1).run()

        return self._run(node, work)


def _captured_names(function: Any) -> dict[str, Any]:
    """The names that a function captures: closure variables, then globals."""
    captured: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            captured[name] = cell.cell_contents
        except ValueError:
            continue
    return {**function.__globals__, **captured}


_HELD: Any = (tuple, list, dict, str, range, np.ndarray)
"""Values of Python that an index chooses from."""


def _is_of_python(function: Any) -> bool:
    """Whether a function of Python or a library computes with numbers: `range`, `min`, `np.add`, a number's method."""
    if isinstance(function, type):
        return function in (range, bool, str, int, float, complex) or is_of_library(function)
    if isinstance(function, types.BuiltinFunctionType | types.MethodWrapperType):
        return function not in (isinstance, id, repr)
    return is_of_library(function)


def _is_language(function: Any) -> bool:
    module = str(getattr(function, "__module__", ""))
    return module.startswith("tessera.")


_TAKE_SIZES = ("load", "store", "atomic_add", "atomic_max", "atomic_min", "zeros", "full", "broadcast", "col_index")
"""Functions of the language that take sizes of tiles, of which some elements may be beyond the end of a dim."""
_KNOWN = (float, int, bool, len, tuple, list, abs, round, isinstance, str)


def _takes_no_tiles(function: Any) -> bool:
    """Whether a function is neither part of the language nor one of the user's, which are inlined."""
    if is_of_tensors(function) or is_of_library(function):
        return True
    return not isinstance(function, types.FunctionType) and _is_foreign(function)


def _is_foreign(function: Any) -> bool:
    if function in _KNOWN or _is_language(function) or str(type(function).__module__).startswith("tessera."):
        return False
    return not str(getattr(getattr(function, "__self__", None), "__class__", type(None)).__module__).startswith(
        "tessera."
    )


def _word(node: Any) -> str:
    return {"While": "while", "Try": "try", "ClassDef": "class", "Import": "import", "ListComp": "[... for ...]"}.get(
        type(node).__name__, type(node).__name__.lower()
    )
