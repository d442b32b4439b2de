"""Why a function was specialized again: what changed between two calls, and what to write so that it would not."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.edit import name_in, source_lines
from tessera.frontend.bind import Leaf, Signature
from tessera.frontend.pytree import as_tuple
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.policy import Policy

if TYPE_CHECKING:
    from tessera.api.specialization import Around


@frozen
class Known:
    """What is known of a function: floats whose values it needs, annotations that are not Tessera's, and itself.

    `has_floats` is whether an argument is a tensor of floats, which a number is then computed with.
    """

    needed: Mapping[str, str]
    annotations: Mapping[str, str]
    function: Any
    has_floats: bool = False


def scope_changes(old: Around, new: Around) -> list[str]:
    """Of the scopes that two calls were made in."""
    devices = [repr(one.device) if one.device is not None else "none" for one in (old, new)]
    promises = [one.promise or "none" for one in (old, new)]
    changed = (("device of the scope around the call", devices), ("promise of its caller", promises))
    return [f"  the {what} changed from {pair[0]} to {pair[1]}" for what, pair in changed if pair[0] != pair[1]]


def policy_change(old: Policy, new: Policy) -> list[str]:
    """Of the policies that two calls were made under."""
    before, after = (str(one) if one else "none" for one in (old, new))
    return [
        f"  the policy around the call changed from {before} to {after}: each policy is its own code",
        "    = help: declare it on the function, as in `jit(policy=...)`, or call it in scopes of one policy",
    ]


def captured_changes(paths: Sequence[str]) -> list[str]:
    """Of captured variables."""
    lines = [f"  captured variable `{path}` changed" for path in paths]
    return [*lines, "    = help: hold a number that changes in a tensor, which is read at each call"] if lines else []


def leaf_changes(old: Signature, new: Signature, known: Known) -> list[str]:
    """Of the leaves of two signatures of one form."""
    lines: list[str] = []
    known = replace(known, has_floats=any(leaf.dtype is not None and leaf.dtype.is_float for leaf in new.leaves))
    for path, before, after in zip(new.paths(), old.leaves, new.leaves, strict=True):
        if before != after:
            lines += [f"  {line}" for line in _changes(path, before, after, known)]
    return lines


def form_changes(old: Signature, new: Signature) -> list[str]:
    """Of the containers that two calls were made with."""
    lines: list[str] = []
    trees = [zip(as_tuple(tree.data), tree.children, strict=True) for tree in (old.tree, new.tree)]
    before, after = ({name: str(form) for name, form in pairs} for pairs in trees)
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            was, now = (one.get(name, "nothing").replace("*", "a leaf") for one in (before, after))
            lines.append(f"  the form of `{name}` changed from {was} to {now}")
    return lines


def _changes(path: str, before: Leaf, after: Leaf, known: Known) -> list[str]:
    if before.dtype is None and after.dtype is None:
        return [_static_change(path, before, after, known)]
    if before.dtype is None or after.dtype is None:
        return [f"`{path}` changed between a Python value and a tensor"]
    lines: list[str] = []
    if before.dtype is not after.dtype:
        lines.append(f"`{path}.dtype` changed from {before.dtype} to {after.dtype}: each dtype is its own code")
    if len(before.dims) != len(after.dims):
        lines.append(f"`{path}` changed from {len(before.dims)} dims to {len(after.dims)}: each rank is its own code")
        return lines
    changed = [axis for axis, pair in enumerate(zip(before.dims, after.dims, strict=True)) if pair[0] != pair[1]]
    for axis in changed:
        lines.append(f"`{path}.shape[{axis}]` changed from {before.dims[axis]} to {after.dims[axis]}")
    if changed:
        lines.append(f"  = help: {_annotation_help(path, _freeing(after, changed, known.function), known)}")
    return lines


def _annotation_help(path: str, annotation: str, known: Known) -> str:
    """Where to annotate: a parameter, a field of a dataclass, or a parameter of its own for an item of a container."""
    own = known.annotations.get(path)
    instead = f", in place of `{own}`, which says no sizes," if own else ""
    name = re.split(r"\W+", path.rstrip("]'\""))[-1]
    if path != name and not path.endswith(f".{name}"):
        shown = name if name.isidentifier() else "x"
        return f"pass it as an argument of its own, annotated `{shown}: {annotation}`, to serve all sizes"
    where = "annotate" if path == name else "annotate the field"
    return f"{where} `{name}: {annotation}`{instead} to serve all sizes with one compilation"


def _static_change(path: str, before: Leaf, after: Leaf, known: Known) -> str:
    line = f"`{path}` changed from {before.static!r} to {after.static!r}: "
    if needed := known.needed.get(path):
        advice = "choose with `tessera.ops.where` or `tessera.cond`, so that it stays a number of the program"
        return f"{line}{needed}\n    = help: {advice}"
    line += "Python values are static"
    if isinstance(after.static, float):
        line += "\n    = help: pass it as an argument of its own, or in a tensor, as a number that may change"
    elif isinstance(after.static, int) and not isinstance(after.static, bool):
        line += f"\n    = help: {_integer_help(path, known)}"
    return line


def _integer_help(path: str, known: Known) -> str:
    """What lets an integer change without a compilation, by what the function does with it."""
    uses = _uses_of(path, known.function)
    if uses == {"number"} and known.has_floats:
        return f"pass `float({path})`: a float that is an argument of its own is a number that may change"
    if uses and uses <= {"number", "index"}:
        tensor, dtype = (_spell(known.function, name) for name in ("Tensor", "i64"))
        return f"annotate `{path}: {tensor}[{dtype}]` to pass it as an integer that may change"
    loop = _spell(known.function, "fori_loop")
    return f"sizes and loops of Python's are part of the program: pass few values of it, or loop with `{loop}`"


def _uses_of(name: str, function: Any) -> set[str]:
    """What a function does with a parameter: it is a `number` in arithmetic, an `index`, or something `else`."""
    try:
        tree = ast.parse(textwrap.dedent("".join(source_lines(function)[0])))
    except SyntaxError:
        return set()
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    used = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == name]
    return {_use_of(node, parents) for node in used}


def _use_of(node: ast.AST, parents: Mapping[ast.AST, ast.AST]) -> str:
    match parents.get(node):
        case ast.BinOp() | ast.UnaryOp(op=ast.USub()) as outer:
            use = _use_of(outer, parents)
            return "number" if use == "else" else use
        case ast.AugAssign(value=value) if value is node:
            return "number"
        case ast.Subscript(slice=index) if index is node:
            return "index"
        case ast.Call(func=ast.Attribute(attr="fori_loop") | ast.Name(id="fori_loop")):
            return "index"
        case ast.Call() | ast.keyword() | ast.Tuple() | ast.Slice() | ast.Compare():
            return "value"
        case _:
            return "else"


def _spell(function: Any, name: str) -> str:
    """A name of Tessera as the file of a function writes it."""
    code = getattr(function, "__code__", None)
    return (code is not None and name_in(code.co_filename, name)) or f"tessera.{name}"


def _freeing(leaf: Leaf, changed: list[int], function: Any) -> str:
    names = ("B", "S", "D", "E")
    items = [
        f'"{names[axis] if axis < len(names) else f"N{axis}"}"' if axis in changed else _dim_text(dim)
        for axis, dim in enumerate(leaf.dims)
    ]
    return f"{_spell(function, 'Tensor')}[{', '.join([*items, _spell(function, str(leaf.dtype))])}]"


def _dim_text(dim: int | Dim | None) -> str:
    return str(dim) if isinstance(dim, int) else f'"{dim or "_"}"'
