"""The source of a kernel as a syntax tree with the line and column numbers of the user's file.

`inspect` returns the lines of one function, which must be dedented before they parse: the tree then counts lines from
1 and columns from the dedented margin. Both are shifted back here, so that every node has its span in the user's
file.

At a prompt there is no file. Notebooks and newer prompts register what is typed with `linecache`, where `inspect` finds
it. For the others, the text that Python still has is searched for the function: the command of `python -c`, standard
input where it is a file, and the history of the prompt. A candidate is taken only if it compiles to the same code.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
import stat
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from tessera.diagnostics.codes import KernelError
from tessera.diagnostics.edit import source_lines
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
    lines, first, file = _find_lines(function, name)
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
    found = Source(file, tree, function)
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


def _find_lines(function: Callable[..., Any], name: str) -> tuple[list[str], int, str]:
    """The lines of a function, the number of the first, and the name of the text that they are in."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = getattr(code, "co_filename", "")
    lines, first = source_lines(function)
    if lines:
        return lines, first, inspect.getsourcefile(function) or function.__code__.co_filename
    for text in _typed_texts(where):
        if code is None:  # what is no function has no text
            break
        found = _block_of(text.splitlines(keepends=True), code)
        if found is not None:
            # Under a name of its own: `<stdin>` is the name of every statement of a prompt.
            file = f"<{where.strip('<>')} {name}>"
            linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
            return *found, file
    raise KernelError(
        f"`{name}` has no source, and kernels are compiled from source",
        span=None,
        notes=(_explain_missing(where),),
        fix="write the kernel in a file and import it, or define it in a notebook cell or at the prompt of IPython",
    )


def _explain_missing(where: str) -> str:
    """Why Python has no source of a function."""
    if where == "<stdin>":
        return "it was read from a pipe, or typed at a prompt without history, and Python keeps no text of that"
    if where == "<string>":
        return (
            "it was made by `exec` of a string; `linecache.cache[name] = (len(text), None, lines, name)` keeps its text"
        )
    return f"nothing has the text of `{where}`"


def _typed_texts(where: str) -> Iterator[str]:
    """Texts that a function without a file may be in."""
    yield "".join(linecache.getlines(where))
    if where == "<string>" and "-c" in sys.orig_argv[:-1]:
        yield sys.orig_argv[sys.orig_argv.index("-c") + 1]
    if where != "<stdin>":
        return
    status = os.fstat(0)
    if stat.S_ISREG(status.st_mode):  # `python < file`: it can be read again, past what was consumed
        yield os.pread(0, status.st_size, 0).decode(errors="replace")
    history = sys.modules.get("readline")
    if history is not None:
        count = history.get_current_history_length()
        yield "".join(f"{history.get_history_item(at) or ''}\n" for at in range(1, count + 1))


def _block_of(lines: list[str], code: types.CodeType) -> tuple[list[str], int] | None:
    """The lines of the last `def` that compiles to some code, decorators included, and the number of the first."""
    # The compiler treats names that a module imports otherwise, so the whole text is compiled too, where it can be.
    whole = [one for one in _codes_in("".join(lines), code.co_filename) if one.co_name == code.co_name]
    head = re.compile(rf"\s*def\s+{re.escape(code.co_name)}\s*\(")
    for at in reversed([number for number, line in enumerate(lines) if head.match(line)]):
        first = at
        while first and lines[first - 1].lstrip().startswith("@"):
            first -= 1
        block = inspect.getblock(lines[first:])
        made = _codes_in(textwrap.dedent("".join(block)), code.co_filename)
        made += [one for one in whole if one.co_firstlineno == first + 1]
        if any(_is_same(one, code) for one in made):
            return block, first + 1
    return None


def _codes_in(text: str, file: str) -> list[types.CodeType]:
    """The code of every function in a text, nested ones included; none where it is not Python."""
    try:
        found = [compile(text, file, "exec")]
    except (SyntaxError, ValueError):
        return []
    for one in found:
        found += [part for part in one.co_consts if isinstance(part, types.CodeType)]
    return found[1:]


def _is_same(first: types.CodeType, second: types.CodeType) -> bool:
    """Whether two functions are compiled from the same text, wherever it stands."""
    if (first.co_name, first.co_varnames) != (second.co_name, second.co_varnames):
        return False
    if second.co_freevars:  # of an enclosing function, which a block alone does not show
        return True
    if (first.co_code, first.co_names) != (second.co_code, second.co_names):
        return False
    if len(first.co_consts) != len(second.co_consts):
        return False
    return all(
        _is_same(one, other) if isinstance(one, types.CodeType) and isinstance(other, types.CodeType) else one == other
        for one, other in zip(first.co_consts, second.co_consts, strict=True)
    )


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
