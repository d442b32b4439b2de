"""Runs examples of the API reference, and finds shapes, dtypes and machines of ops by tracing them."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import os
import re
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np

import tessera as ts
from scripts.api_examples import VALUES
from tessera import tile
from tessera.types import dtype as dtypes


class Runner:
    """Runs examples in a folder of their own, since a kernel is compiled from its source file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0

    def run(self, program: str, name: str = "example") -> tuple[str, dict[str, Any]]:
        """What a program prints, the value of its last line included, and its names; `name` is that of its file."""
        file = self.folder / f"{name}.py"
        self.count += 1
        if file.exists():  # what was compiled from it is still in use
            file = self.folder / f"{name}_{self.count}.py"
        file.write_text(program, encoding="utf-8")
        tree = ast.parse(program)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        names: dict[str, Any] = {"ts": ts, "np": np, "tile": tile, "__name__": "__main__"}
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(tree, str(file), "exec", dont_inherit=True), names)
            if isinstance(last, ast.Expr):
                value = eval(compile(ast.Expression(last.value), str(file), "eval", dont_inherit=True), names)
                if value is not None:
                    print(repr(value))
        return printed.getvalue(), names


@contextlib.contextmanager
def runner() -> Generator[Runner]:
    """A runner in a temporary folder, which is the current one meanwhile."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield Runner(Path(folder))
        finally:
            os.chdir(before)


def used_values(code: str) -> list[str]:
    """The shared values that an example reads outside of functions and does not make itself."""
    read: list[str] = []
    made: set[str] = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            return
        if isinstance(node, ast.Name):
            (read.append if isinstance(node.ctx, ast.Load) else made.add)(node.id)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(ast.parse(code))
    return [name for name in dict.fromkeys(read) if name in VALUES and name not in made]


def with_values(code: str) -> str:
    """An example with what it uses in front of it."""
    lines = [f"{name} = {VALUES[name]}" for name in used_values(code)]
    return "\n".join([*lines, code])


def _parameters_of(call: str, function: Any) -> dict[str, str]:
    """The parameters that the values of a call are passed as, where they are passed as they are."""
    (statement,) = ast.parse(call).body
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call) or function is None:
        return {}
    found = [*zip(inspect.signature(function).parameters, statement.value.args, strict=False)]
    found += [(one.arg, one.value) for one in statement.value.keywords if one.arg is not None]
    return {value.id: parameter for parameter, value in found if isinstance(value, ast.Name)}


def facts_of(code: str, op: Any = None) -> list[str]:
    """Shapes, dtypes and where it runs, from traces of an example of `ts.ops`.

    Values are shown by the names of the parameters of `op` that they are passed as.
    """
    call = re.sub(r"\.shape$|(?<=\))\[[:\w]+\]$", "", code)
    names = [name for name in used_values(call) if name != "key"]
    values = {name: eval(VALUES[name], {"ts": ts}) for name in names}
    function = eval(f"lambda {', '.join(names)}: {call}", {"ts": ts, "key": ts.random.key(0)})
    traced = _trace(function, values)
    if traced is None:
        return []
    tape = traced.tape
    shapes = [tape.types[number].shape for number in (*tape.inputs[: len(names)], *tape.outputs)]
    letters = _letters(shapes)
    parameters = _parameters_of(call, op)
    shown = [parameters.get(name, name) for name in names]
    ins = ", ".join(f"`{name}{letters(shape)}`" for name, shape in zip(shown, shapes, strict=False))
    outs = ", ".join(f"`{letters(shape)}`" for shape in shapes[len(names) :])
    lines = [f"- Shapes: {ins} → {outs}" if names else f"- Shapes: {outs}"]
    if names:
        lines.append(f"- Dtypes of `{shown[0]}`: {_dtype_text(_accepted(function, values))}")
    ops = list(dict.fromkeys(record.op for record in tape.records))
    lines.append(f"- Runs on: {runs_on(ops)}" + (f"; in Graph IR {', '.join(f'`{op}`' for op in ops)}" if ops else ""))
    return lines


def kernel_facts(kernel: Any) -> list[str]:
    """Shapes and dtypes of a kernel of one operand, whose block is called `a` inside."""
    found: dict[str, Any] = {}
    for one in dtypes.ALL:
        with contextlib.suppress(ts.TesseraError):
            found[one.name] = kernel.trace(ts.Tensor.empty((2, 2), one)).tape
    tape = found.get("f32") or next(iter(found.values()), None)
    if tape is None:
        return []
    for kind in ("is_integer", "is_bool"):  # what the front end takes, code is made of: tried for one of each kind
        members = [one for one in dtypes.ALL if getattr(one, kind) and one.name in found]
        if members and not _compiles(kernel, members[0]):
            found = {name: tape for name, tape in found.items() if name not in {one.name for one in members}}
    given, made = (tape.types[number].shape for number in (tape.inputs[0], tape.outputs[0]))
    shapes = [", ".join("N" if str(dim) == "2" else str(dim) for dim in shape) for shape in (given, made)]
    lines = [f"- Shapes: `a[{shapes[0]}]` → `[{shapes[1]}]`", f"- Dtypes of `a`: {_dtype_text(set(found))}"]
    return [*lines, "- Runs on: CPU and NVIDIA GPU, and in the interpreter"]


def _compiles(kernel: Any, dtype: Any) -> bool:
    try:
        kernel(ts.Tensor.of([[1, 0], [1, 1]], ts.i64).cast(dtype))
    except (ts.TesseraError, ts.InternalError):
        return False
    return True


def _trace(function: Callable[..., Any], values: dict[str, Any]) -> Any:
    for dynamic in (True, False):
        with contextlib.suppress(ts.TesseraError):
            return ts.jit(function, dynamic=dynamic).trace(**values)
    return None


def _letters(shapes: list[Any]) -> Callable[[Any], str]:
    """Shapes as text, with letters for symbolic dims in the order in which they occur."""
    symbols = list(dict.fromkeys(re.findall(r"[A-Za-z_]+_\d+", " ".join(str(dim) for s in shapes for dim in s))))
    names = dict(zip(symbols, "ABCDEFGHIJKLMNOP", strict=False))

    def show(shape: Any) -> str:
        text = ", ".join(str(dim) for dim in shape)
        return "[" + re.sub(r"[A-Za-z_]+_\d+", lambda match: names[match.group()], text) + "]"

    return show


def _accepted(function: Callable[..., Any], values: dict[str, Any]) -> set[str]:
    """The dtypes with which a trace goes through; all operands of the first one's dtype have them."""
    first = next(iter(values.values())).dtype
    found: set[str] = set()
    for one in dtypes.ALL:
        asked = {n: ts.Tensor.empty(v.shape, one) if v.dtype == first else v for n, v in values.items()}
        with contextlib.suppress(ts.TesseraError):
            ts.jit(function).trace(**asked)
            found.add(one.name)
    return found


def _dtype_text(found: set[str]) -> str:
    """Kinds of dtypes where all of a kind are there, else their names."""
    parts: list[str] = []
    narrow = {"i4"}  # stored and converted; most ops take it as i8
    kinds = {
        "floats": [one.name for one in dtypes.ALL if one.is_float],
        "integers": [one.name for one in dtypes.ALL if one.is_integer and one.name not in narrow],
        "": sorted(narrow),
        "bool": [one.name for one in dtypes.ALL if one.is_bool],
    }
    for kind, members in kinds.items():
        there = [name for name in members if name in found]
        parts += [kind] if kind and there == members else [f"`{name}`" for name in there]
    return ", ".join(parts) or "-"


def runs_on(ops: list[str]) -> str:
    """Where programs of these Graph IR ops run, by their declarations."""
    registry = importlib.import_module("tessera.ir.graph.ops").REGISTRY
    specs = [registry[op] for op in ops]
    if any("collective" in spec.effects for spec in specs):
        return "CPU; ranks of one machine"
    on_host = [spec.short_name for spec in specs if spec.lower is None and spec.decompose is None]
    if on_host:
        return "CPU and NVIDIA GPU, by the host program"
    return "CPU and NVIDIA GPU"
