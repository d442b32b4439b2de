"""The source of a kernel as a syntax tree with the line and column numbers of the user's file.

`inspect` returns the lines of one function, which must be dedented before they parse: the tree then counts lines from
1 and columns from the dedented margin. Both are shifted back here, so that every node has its span in the user's
file.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tessera.diagnostics.codes import KernelError
from tessera.diagnostics.error import Span
from tessera.types.frozen import frozen

WRITERS = ("store", "atomic_add", "atomic_max", "atomic_min")
MOST_NESTED = 200
"""Levels of an expression: each takes a few frames of Python's stack."""
REBINDING = ("mask_causal",)
"""Functions that rebind their first argument when called as a statement."""
GONE: Any = object()
"""The value of a name that was assigned in a loop only, after that loop."""


@frozen
class Source:
    """The syntax tree of a function, its file, and the function itself."""

    file: str
    tree: ast.FunctionDef
    function: Any

    def span(self, node: ast.expr | ast.stmt) -> Span:
        return Span.of_node(self.file, node)


@lru_cache(maxsize=512)
def source_of(function: Callable[..., Any]) -> Source:
    """The source of a Python function; raises KernelError (T0206) where Python has none."""
    name = getattr(function, "__name__", str(function))
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise KernelError(
            f"`{name}` has no source, and kernels are compiled from source",
            span=None,
            fix="write the kernel in a file",
        ) from None
    text = "".join(lines)
    indent = len(lines[0]) - len(lines[0].lstrip())
    module = ast.parse(textwrap.dedent(text))
    tree = module.body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"`{name}` is not a function defined with `def`", span=None, fix="write it with `def`")
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt | ast.arg | ast.keyword):
            node.lineno += first - 1
            node.end_lineno = (node.end_lineno or node.lineno) + first - 1
            node.col_offset += indent
            node.end_col_offset = (node.end_col_offset or 0) + indent
    found = Source(inspect.getsourcefile(function) or "<kernel>", tree, function)
    _check_nesting(found)
    return found


def _check_nesting(source: Source) -> None:
    """Raise KernelError (T0206) for an expression that is too deep to be evaluated, or written as text, recursively."""
    waiting: list[tuple[ast.AST, int]] = [(source.tree, 0)]
    while waiting:
        node, depth = waiting.pop()
        if depth > MOST_NESTED and isinstance(node, ast.expr):
            raise KernelError(
                f"an expression of `{source.tree.name}` nests more than {MOST_NESTED} deep",
                span=source.span(node),
                fix="compute parts of it in statements of their own, or in a loop",
            )
        inside = depth + 1 if isinstance(node, ast.expr) else 0
        waiting += [(child, inside) for child in ast.iter_child_nodes(node)]


def called_names(tree: ast.AST) -> set[str]:
    """The last name of everything that is called."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found.add(last_name(node.func))
    return found


def last_name(node: ast.expr) -> str:
    """`store` of `tile.store`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def written_names(tree: ast.AST) -> set[str]:
    """Names that are stored to."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in WRITERS and node.args:
            first = node.args[0]
            if isinstance(first, ast.Name):
                found.add(first.id)
    return found


def assigned_names(statements: list[ast.stmt]) -> list[str]:
    """Names that statements assign, in order, each once."""
    found: dict[str, None] = {}
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id] = None
            elif isinstance(node, ast.Expr) and (name := rebound_name(node)) is not None:
                found[name] = None
    return list(found)


def rebound_name(statement: ast.Expr) -> str | None:
    """The name that a call rebinds when it is a statement."""
    call = statement.value
    if isinstance(call, ast.Call) and last_name(call.func) in REBINDING and call.args:
        first = call.args[0]
        return first.id if isinstance(first, ast.Name) else None
    return None
