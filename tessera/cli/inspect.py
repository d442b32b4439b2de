"""`tessera inspect module:function`: a function at four levels, side by side in the terminal and as a page."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tessera.api.jit import Jit, jit
from tessera.compiler.inspect import LEVELS, Inspection, Line, inspect_tape
from tessera.compiler.inspect_page import page
from tessera.diagnostics.error import TesseraError
from tessera.ir.base.arrays import numpy_dtype
from tessera.types.annotation import TensorAnnotation
from tessera.types.dtype import BY_NAME, f32

_SIGNATURE = re.compile(r" : \(.*$| : !.*$")
_SHORTER = (
    (re.compile(r"\b(?:tgraph|tsched|ttile|ttarget)\.(?=\w)"), ""),
    (re.compile(r"^(kernel @\w+).*"), r"\1"),
    (re.compile(r"^(call .*\]) \{flops.*\}"), r"\1"),
    (re.compile(r" candidates = \[.*\] chosen"), " chosen"),
)
_ROWS = 24
"""Lines of a cell; the page has all of them."""


class TargetError(Exception):
    """What was asked for is not a function that can be inspected; the message says why."""


def show(target: str, shapes: Sequence[str], output: str, rows: int = _ROWS) -> int:
    """Print the levels of a function and write its page; the exit status."""
    console = Console()
    try:
        function = find(target)
        tape = function.trace(*arguments_for(function, shapes)).tape
        found = inspect_tape(tape, function.options)
    except TargetError as error:
        console.print(Text(f"tessera inspect: {error}"), style="red")
        return 2
    except TesseraError as error:
        console.print(Text(error.render()))
        return 1
    console.print(side_by_side(found, rows or _ROWS))
    Path(output).write_text(page(found, target), encoding="utf-8")
    console.print(Text(f"the whole of it, to click through: {output}"))
    return 0


def find(target: str) -> Jit:
    """The function that `module:function` names, jitted if it is not."""
    module, _, name = target.partition(":")
    if not name:
        raise TargetError(f"`{target}` must be module:function, such as `model:forward`")
    sys.path.insert(0, "")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise TargetError(str(error)) from error
    if isinstance(found, Jit):
        return found
    if not callable(found):
        raise TargetError(f"`{target}` is a {type(found).__name__}, not a function")
    return jit(found)


def arguments_for(function: Jit, shapes: Sequence[str]) -> list[Any]:
    """An argument for each parameter: of the shape given, or of its annotation with some size for each name.

    Raises TargetError for a parameter of which neither is known.
    """
    given = dict(_shape(text) for text in shapes)
    sizes: dict[str, int] = {}
    found: list[Any] = []
    for parameter in function.parameters:
        name, annotation = parameter.name, parameter.annotation
        default = function.python_signature.parameters[name].default
        if name in given:
            found.append(given.pop(name))
        elif isinstance(annotation, TensorAnnotation):
            found.append(_example(annotation, sizes))
        elif default is not inspect.Parameter.empty:
            found.append(default)
        else:
            raise TargetError(f"nothing says what `{name}` is; annotate it, or give --shape {name}=64x128")
    if given:
        raise TargetError(f"the function has no parameter `{min(given)}`")
    return found


def _shape(text: str) -> tuple[str, Any]:
    """`x=64x128:bf16` as a name and an array."""
    found = re.fullmatch(r"(\w+)=((?:\d+(?:x\d+)*)?)(?::(\w+))?", text)
    if found is None or (found.group(3) or "f32") not in BY_NAME:
        raise TargetError(f"`{text}` is no shape; write name=64x128, or name=64x128:bf16")
    dims = [int(dim) for dim in found.group(2).split("x") if dim]
    return found.group(1), np.zeros(dims, numpy_dtype(BY_NAME[found.group(3) or "f32"]))


def _example(annotation: TensorAnnotation, sizes: dict[str, int]) -> Any:
    shape: list[int] = []
    for dim in annotation.dims:
        for symbol in sorted(dim.symbols):
            # Different sizes for different names, so that nothing is equal by accident.
            sizes.setdefault(symbol, 16 * (len(sizes) + 1))
        shape.append(dim.evaluate(sizes))
    return np.zeros(shape, numpy_dtype(annotation.dtype or f32))


def side_by_side(found: Inspection, rows: int) -> Table:
    """One row for each source line, and in it what became of the line at each level."""
    table = Table(show_lines=True, expand=True, highlight=False)
    table.add_column("source", ratio=2, overflow="fold")
    for level in LEVELS:
        table.add_column(level, ratio=3, overflow="fold")
    for key, source in found.sources.items():
        file, _, line = key.rpartition(":")
        cells = [_cell(found.levels[level], key, rows) for level in LEVELS]
        table.add_row(Text(f"{Path(file).name}:{line}\n{source.strip()}", style="bold"), *cells)
    return table


def _cell(lines: Sequence[Line], key: str, rows: int) -> Text:
    own = [_short(line.text) for line in lines if key in line.keys]
    shown = own[:rows]
    if len(own) > rows:
        shown.append(f"... and {len(own) - rows} more")
    return Text("\n".join(shown))


def _short(text: str) -> str:
    """A line without types, costs and alternatives, and without the dialect, which the column says."""
    bare = _SIGNATURE.sub("", text.strip())
    for pattern, instead in _SHORTER:
        bare = pattern.sub(instead, bare)
    return bare
