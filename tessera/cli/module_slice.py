"""The part of a module that one of its functions needs: commands that look at a function execute nothing else of it.

A script may train a model when it is run, with or without `if __name__ == "__main__"`, and to look at one of its
functions must not. So only those statements of the module itself are executed that define a name the function needs:
its imports, the functions, classes and constants it reads, and what those need in turn. Loops, calls and tests at the
top level are left out, as are assignments to names that nothing needed reads, and loops that change a name which an
assignment or definition binds already: a loop that trains parameters is work, and their first values do. Modules that
it imports are imported as ever, and `sys.argv` holds the file alone. What cannot be told from the source (an object
changed by a call later on) is not done, and `--execute` does all.
"""

from __future__ import annotations
import __future__ as future

import ast
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_SETTINGS = ("sys.path.", "os.environ.", "warnings.", "logging.")
"""Calls that are executed wherever they stand: what follows may not be importable without them."""
_REGISTERS = "register"
"""So are calls of functions that say so: types of trees are registered beside their class."""


@dataclass
class ModuleSlice:
    """A module of which some statements have been executed; more are as other functions of it are asked for."""

    module: ModuleType
    file: str
    statements: list[ast.stmt]
    executed: set[int] = field(default_factory=set[int])

    @property
    def functions(self) -> list[str]:
        """The public functions that it defines."""
        named = [one.name for one in self.statements if isinstance(one, ast.FunctionDef)]
        return [name for name in named if not name.startswith("_")]

    @property
    def skipped_lines(self) -> list[int]:
        """The first lines of statements that were not executed and are no definitions."""
        kept = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        rest = [one for number, one in enumerate(self.statements) if number not in self.executed]
        return [one.lineno for one in rest if not isinstance(one, kept) and not _is_text(one)]

    def provide(self, name: str) -> None:
        """Execute what a name needs, in the order of the source, and nothing that was executed before."""
        needed = sorted(self._find_needed(name) - self.executed)
        self.executed.update(needed)
        flags = future.annotations.compiler_flag if _defers_annotations(self.statements) else 0
        given = sys.argv
        sys.argv = [self.file]  # a parser of arguments must not be given those of this command
        try:
            for number in needed:
                part = ast.Module([self.statements[number]], [])
                exec(compile(part, self.file, "exec", flags=flags, dont_inherit=True), vars(self.module))
        finally:
            sys.argv = given

    def _find_needed(self, name: str) -> set[int]:
        found = {number for number, one in enumerate(self.statements) if _is_always_executed(one)}
        names, waiting = (
            set[str](),
            [name, *(used for number in found for used in _find_names(self.statements[number]))],
        )
        plain = {name for one in self.statements for name in _find_plain_bindings(one)}
        defined = [
            set(_find_bindings(one)) - (plain - set(_find_bindings(one, enters_loops=False))) for one in self.statements
        ]
        while waiting:
            wanted = waiting.pop()
            if wanted in names:
                continue
            names.add(wanted)
            for number, one in enumerate(self.statements):
                if wanted in defined[number] and number not in found and not _is_main(one):
                    found.add(number)
                    waiting += _find_names(one)
        return found


SLICES: dict[str, ModuleSlice] = {}
"""By the name of the module."""


def slice_module(name: str, spec: ModuleSpec) -> ModuleSlice | None:
    """The slice of a module that is one file of Python and not imported yet; None for any other."""
    known = SLICES.get(name)
    if known is not None and sys.modules.get(name) is known.module:
        return known
    is_file = spec.origin is not None and spec.origin.endswith(".py") and spec.submodule_search_locations is None
    if name in sys.modules or not is_file or spec.origin is None:
        return None
    tree = ast.parse(Path(spec.origin).read_bytes(), spec.origin)
    module = importlib.util.module_from_spec(spec)
    module.__doc__ = ast.get_docstring(tree)
    sys.modules[name] = module
    found = SLICES[name] = ModuleSlice(module, spec.origin, tree.body)
    return found


def forget(found: ModuleSlice) -> None:
    """Let a module be imported anew: what it needs failed."""
    sys.modules.pop(found.module.__name__, None)
    SLICES.pop(found.module.__name__, None)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_main(statement: ast.stmt) -> bool:
    """Whether a statement is `if __name__ == "__main__"`, in either order."""
    if not isinstance(statement, ast.If):
        return False
    names = {part.id for part in ast.walk(statement.test) if isinstance(part, ast.Name)}
    texts = {part.value for part in ast.walk(statement.test) if isinstance(part, ast.Constant)}
    return "__name__" in names and "__main__" in texts


def _is_always_executed(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.ImportFrom):
        return any(alias.name == "*" for alias in statement.names)
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    called = ast.unparse(statement.value.func)
    return called.startswith(_SETTINGS) or _REGISTERS in called.rpartition(".")[2]


def _defers_annotations(statements: list[ast.stmt]) -> bool:
    imports = [one for one in statements if isinstance(one, ast.ImportFrom) and one.module == "__future__"]
    return any(alias.name == "annotations" for one in imports for alias in one.names)


def _find_plain_bindings(statement: ast.stmt) -> set[str]:
    """The names that a statement binds wherever it is executed, and without what they were before."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
        return set(_find_bindings(statement))
    if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
        return set()
    names = [part for part in ast.walk(statement) if isinstance(part, ast.Name)]
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    bound = {part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)}
    return bound - {part.id for part in names if isinstance(part.ctx, ast.Load)}


def _find_bindings(statement: ast.AST, *, enters_loops: bool = True) -> Iterator[str]:
    """The names of the module that a statement binds or changes, in loops too or outside of them alone."""
    if isinstance(statement, ast.For | ast.AsyncFor | ast.While) and not enters_loops:
        return
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
        return
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        return
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (name for target in targets for name in _roots(target))
    elif isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
        yield statement.id
    for part in ast.iter_child_nodes(statement):
        yield from _find_bindings(part, enters_loops=enters_loops)


def _roots(target: ast.expr) -> Iterator[str]:
    """The names that an assignment is to: of `a.b[0], c = ...` they are `a` and `c`."""
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _roots(element)
    else:
        while isinstance(target, ast.Attribute | ast.Subscript | ast.Starred):
            target = target.value
        if isinstance(target, ast.Name):
            yield target.id


def _find_names(statement: ast.stmt) -> list[str]:
    """The names that a statement reads, inside of functions and in the text of annotations too."""
    found = [part.id for part in ast.walk(statement) if isinstance(part, ast.Name)]
    for part in ast.walk(statement):
        written = part.annotation if isinstance(part, ast.arg | ast.AnnAssign) else getattr(part, "returns", None)
        if isinstance(written, ast.Constant) and isinstance(written.value, str):
            found += [one.id for one in ast.walk(_parse(written.value)) if isinstance(one, ast.Name)]
    return found


def _parse(text: str) -> ast.AST:
    try:
        return ast.parse(text, mode="eval")
    except SyntaxError:
        return ast.Module([], [])
