"""Fixes of assignments to elements: the statement that makes a new tensor, and binds it where the old one was.

`x[0] = v` changes `x` in NumPy, and nothing here. What to write instead depends on where the tensor is held: in a name,
in a dict or a list, in an attribute, in a field of something that does not change either. The source says how
the statement is written, and the frame that it runs in what its names hold, so that the replacement runs as it stands.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from tessera.diagnostics.edit import ATOMS
from tessera.diagnostics.error import Fix, Span, user_frame
from tessera.frontend.concrete import Tracer, is_concrete
from tessera.frontend.fixes.statements import Source, source_at
from tessera.ir.base import dispatch

_MESSAGE = "make a new tensor: the old one stays as it is"
_UPDATES: dict[type[ast.operator], str] = {ast.Add: "add", ast.Mult: "mul"}
_SIGNS: dict[type[ast.operator], str] = {
    ast.Sub: "-",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Add: "+",
    ast.Mult: "*",
}


def assignment_fix(span: Span | None, index: Any, tensor: Any) -> Fix | str:
    """The statement that does what `tensor[index] = value` would: `x = x.at[0].set(value)`."""
    advice = f"make a new tensor, as in `x = x.at[{index_text(index)}].set(value)`"
    found = _target_at(span)
    if found is None:
        return advice
    source, target, statement = found
    writer = _Writer(source, span, index, tensor)
    match statement:
        case ast.Assign(targets=[ast.Subscript()], value=value) | ast.AnnAssign(value=ast.expr() as value):
            made = writer.update(target, lambda _: source.text(value))
        case ast.AugAssign(op=op, value=value):
            made = writer.combine(target, op, value)
        case ast.Assign(targets=targets, value=value):
            return source.edit(statement, writer.unpack(targets, target, value), _MESSAGE)
        case _:  # the target of a loop, or of `with`
            text = writer.bind(*writer.update(target, lambda _: "value"))
            return f"bind a name such as `value` there, and then make a new tensor: `{text}`"
    return writer.replace(statement, *made)


def deletion_fix(span: Span | None, tensor: Any) -> Fix | str:
    """What is left without the elements of `del x[0]`, joined."""
    found = _target_at(span)
    is_one = found is not None and isinstance(found[2], ast.Delete) and len(found[2].targets) == 1
    if found is None or not is_one or isinstance(found[1].slice, ast.Tuple):
        return "make a tensor of what stays, as in `x = tessera.ops.concat([x[:i], x[i + 1 :]])`"
    source, target, statement = found
    base = source.text(target.value)
    start, stop = _ends(source, target.slice)
    before, after = f"{base}[:{start}]", f"{base}[{stop}:]"
    joined = f"{source.name_of('ops.concat')}([{before}, {after}])"
    kept = after if start in ("", "0") else before if not stop else joined
    return _Writer(source, span, None, tensor).replace(statement, target.value, kept)


def mask_fix(span: Span | None, mask: Any, tensor: Any) -> Fix | str:
    """`where` in place of an index by a traced mask, whether it reads or assigns."""
    advice, source = "write `tessera.ops.where(mask, x, other)`", source_at(span)
    if source is None:
        return advice
    writer = _Writer(source, span, mask, tensor)
    match source.chain[0]:
        case ast.Subscript(slice=ast.expr()) as node, ast.AugAssign(op=op, value=value) as statement:
            return writer.replace(statement, *writer.combine(node, op, value))
        case ast.Subscript(slice=ast.expr() as index) as node, _ if not isinstance(index, ast.Tuple | ast.Slice):
            made = writer.choose(node, node.value, lambda held: held, "0")
            return source.edit(node, made, "`where` keeps the shape: 0 where the mask is false")
        case _:
            return advice


def _ends(source: Source, index: ast.expr) -> tuple[str, str]:
    """Where what is deleted begins, and where it ends; empty where that is the end of the axis."""
    match index:
        case ast.Slice(lower=lower, upper=upper, step=None):
            return source.text(lower) if lower else "", source.text(upper) if upper else ""
        case ast.Constant(value=int(number)):
            return str(number), str(number + 1)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(number))):
            return str(-number), str(1 - number) if number > 1 else ""
        case _:
            text = source.text(index)
            return text, f"{text} + 1"


def index_text(index: Any) -> str:
    """An index as it would be typed; a tensor in it by the word `index`."""
    if isinstance(index, tuple):
        return ", ".join(map(index_text, cast("tuple[Any, ...]", index)))
    if isinstance(index, slice):
        given = cast("slice[Any, Any, Any]", index)
        ends = [given.start, given.stop, *([] if given.step is None else [given.step])]
        return ":".join("" if one is None else index_text(one) for one in ends)
    is_plain = index is None or isinstance(index, int)
    return str(index) if is_plain else "..." if index is Ellipsis else "index"


def _target_at(span: Span | None) -> tuple[Source, ast.Subscript, Any] | None:
    """The target at a span, and the statement that assigns to it."""
    source = source_at(span)
    if source is None or not isinstance(source.chain[0][0], ast.Subscript):
        return None
    statement = next((node for node, _ in source.chain if isinstance(node, ast.stmt)), None)
    return None if statement is None else (source, source.chain[0][0], statement)


_UNKNOWN = object()


def _look_up(names: Mapping[str, Any], node: ast.expr) -> Any:
    """What an expression of names, fields and constant keys holds; nothing of the user's runs to find out."""
    match node:
        case ast.Name(id=name):
            return names.get(name, _UNKNOWN)
        case ast.Attribute(value=inner, attr=name):
            fields: Any = getattr(_look_up(names, inner), "__dict__", {})
            return fields.get(name, _UNKNOWN)
        case ast.Subscript(value=inner, slice=key):
            holder = _look_up(names, inner)
            at = key.value if isinstance(key, ast.Constant) else _look_up(names, key)
            if type(holder) not in (dict, list, tuple) or not isinstance(at, str | int):
                return _UNKNOWN
            try:
                return holder[at]
            except LookupError:
                return _UNKNOWN
        case _:
            return _UNKNOWN


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tracer) or is_concrete(value)


class _Writer:
    """Writes the statement that replaces an assignment to `tensor[index]`, in the frame that it runs in."""

    def __init__(self, source: Source, span: Span | None, index: Any, tensor: Any) -> None:
        self.source, self.index, self.tensor = source, index, tensor
        frame = user_frame()
        is_here = span is not None and frame is not None and frame.f_code.co_filename == span.file
        self.local: Mapping[str, Any] = frame.f_locals if is_here and frame is not None else {}
        self.names = {**frame.f_globals, **self.local} if is_here and frame is not None else {}
        self.is_function = is_here and frame is not None and frame.f_locals is not frame.f_globals

    def replace(self, statement: ast.stmt, node: ast.expr, made: str) -> Fix | str:
        """The edit after which `node` is `made`; advice where the function must not rebind it."""
        if self._is_captured(node):
            name = node.attr if isinstance(node, ast.Attribute) else "new"
            return f"write `{name} = {made}`, and use `{name}` from there on: what the function captures stays as it is"
        text = self.bind(node, made)
        if "dataclasses.replace" in text and "dataclasses" not in self.names:
            return f"`import dataclasses`, and write `{text}`"
        return self.source.edit(statement, text, _MESSAGE)

    def bind(self, node: ast.expr, made: str) -> str:
        """The assignment after which `node` is `made`."""
        return " = ".join(self._rebind(node, made))

    def _is_captured(self, node: ast.expr) -> bool:
        """Whether what holds the tensor is of an outer scope, or is an object that a trace must not change."""
        root = node
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        is_outer = isinstance(root, ast.Name) and root.id in self.names and root.id not in self.local
        is_leak = dispatch.tracing() is not None and not isinstance(self.tensor, Tracer) and root is not node
        return self.is_function and (is_outer or is_leak)

    def update(self, target: ast.Subscript, value: Callable[[str], str]) -> tuple[ast.expr, str]:
        """What a target is of, and that with new elements: `value` writes them, where the old ones are a text."""
        if self.mask_axes is not None:
            return target.value, self.choose(target, target.value, value, self.source.text(target.value))
        return self._base(target), f"{self._at(target)}.set({value(self.source.text(target))})"

    def combine(self, target: ast.Subscript, op: ast.operator, value: ast.expr) -> tuple[ast.expr, str]:
        """The same of `x[0] += value`."""
        method, given = _UPDATES.get(type(op)), self._operand(value)
        if method is not None and self.mask_axes is None:
            return self._base(target), f"{self._at(target)}.{method}({self.source.text(value)})"
        return self.update(target, lambda old: f"{old} {_SIGNS[type(op)]} {given}")

    def unpack(self, targets: Sequence[ast.expr], target: ast.Subscript, value: ast.expr) -> str:
        """Of `x[0], y = a, b`, of `x[0], y = pair()` and of `x[0] = x[1] = value`."""
        base = ast.dump(target.value)
        match targets, value:
            case [ast.Tuple(elts=names) | ast.List(elts=names)], ast.Tuple(elts=values) if len(names) == len(
                values
            ) and not any(isinstance(one, ast.Starred) for one in (*names, *values)):
                text = self._assign_together(names, values, target)
                if text:
                    return text
            case _:
                pass
        temporary = next(name for name in ("value", "new", "element", "_") if name not in self.names)
        later: list[str] = []

        def keep(node: ast.expr) -> str:
            match node:
                case ast.Subscript(value=held) if ast.dump(held) == base:
                    name = f"{temporary}{len(later) or ''}" if len(targets) == 1 else temporary
                    later.append(self.bind(*self.update(node, lambda _: name)))
                    return name
                case ast.Tuple(elts=items) | ast.List(elts=items):
                    return ", ".join(map(keep, items))
                case _:
                    return self.source.text(node)

        kept = list(dict.fromkeys(map(keep, targets)))
        return "; ".join([f"{' = '.join(kept)} = {self.source.text(value)}", *later])

    def _assign_together(self, names: Sequence[ast.expr], values: Sequence[ast.expr], target: ast.Subscript) -> str:
        """`x, y = x.at[0].set(a), b`; nothing where an index reads what the statement binds."""
        base = ast.dump(target.value)
        own = [one for one in names if isinstance(one, ast.Subscript) and ast.dump(one.value) == base]
        read = {node.id for one in own for node in ast.walk(one.slice) if isinstance(node, ast.Name)}
        bound = {node.id for one in names for node in ast.walk(one) if isinstance(node, ast.Name)} - read
        bound |= {one.id for one in names if isinstance(one, ast.Name)}
        if read & bound or self.mask_axes is not None or not isinstance(target.value, ast.Name):
            return ""
        made, left, right = self.source.text(target.value), list[str](), list[str]()
        for one, value in zip(names, values, strict=True):
            if isinstance(one, ast.Subscript) and one in own:
                made = f"{made}.at[{self.source.text(one.slice)}].set({self.source.text(value)})"
            else:
                left.append(self.source.text(one))
                right.append(self.source.text(value))
        first = self.source.text(target.value)
        return f"{', '.join([first, *left])} = {', '.join([made, *right])}"

    def _operand(self, node: ast.expr) -> str:
        text = self.source.text(node)
        return text if isinstance(node, (*ATOMS, ast.Constant)) else f"({text})"

    @property
    def mask_axes(self) -> int | None:
        """How many axes a traced mask lacks that is the whole index; None where the index is none."""
        dtype = getattr(self.index, "dtype", None)
        if not isinstance(self.index, Tracer) or not getattr(dtype, "is_bool", False):
            return None
        return max(0, self.tensor.ndim - getattr(self.index, "ndim", 0))

    def choose(self, target: ast.Subscript, base: ast.expr, value: Callable[[str], str], other: str) -> str:
        """`where(mask, value, other)`, with the mask that is the index of the target."""
        mask = self.source.text(target.slice)
        if self.mask_axes:
            mask = f"{self._operand(target.slice)}[..., {', '.join(['None'] * self.mask_axes)}]"
        return f"{self.source.name_of('ops.where')}({mask}, {value(self.source.text(base))}, {other})"

    def _at(self, target: ast.Subscript) -> str:
        """`x.at[i, j]`, of `x[j]` and of `x[i][j]` where `i` picks one row."""
        return f"{self.source.text(self._base(target))}.at[{', '.join(self._indices(target))}]"

    def _indices(self, target: ast.Subscript) -> list[str]:
        own = [self.source.text(target.slice)]
        inner = target.value
        return [*self._indices(inner), *own] if isinstance(inner, ast.Subscript) and self._picks_row(inner) else own

    def _base(self, target: ast.Subscript) -> ast.expr:
        inner = target.value
        return self._base(inner) if isinstance(inner, ast.Subscript) and self._picks_row(inner) else inner

    def _picks_row(self, node: ast.Subscript) -> bool:
        """Whether a subscript is of a tensor and by integers, so that one more may be joined to it."""
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return _is_tensor(self._value_of(node.value)) and all(self._is_integer(one) for one in items)

    def _is_integer(self, node: ast.expr) -> bool:
        value: Any = node.value if isinstance(node, ast.Constant) else self._value_of(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._is_integer(node.operand)
        is_scalar = _is_tensor(value) and not value.shape
        return is_scalar or (isinstance(value, int) and not isinstance(value, bool))

    def _value_of(self, node: ast.expr) -> Any:
        """What an expression holds; a row or a slice of a tensor is a tensor."""
        if isinstance(node, ast.Subscript) and _is_tensor(self._value_of(node.value)):
            return self.tensor
        if isinstance(node, ast.Attribute) and node.attr in ("T", "mT") and _is_tensor(self._value_of(node.value)):
            return self.tensor
        return _look_up(self.names, node)

    def _rebind(self, node: ast.expr, made: str) -> tuple[str, str]:
        """The target and the value of an assignment after which `node` is `made`."""
        text = self.source.text(node)
        match node:
            case ast.Subscript(value=inner, slice=key):
                return self._rebind_item(node, inner, self.source.text(key), made)
            case ast.Attribute(value=inner, attr=name):
                return self._rebind_attribute(node, inner, name, made)
            case ast.Name():
                return text, made
            case _:  # a call: its result is nowhere else
                return "x", made

    def _rebind_item(self, node: ast.Subscript, inner: ast.expr, key: str, made: str) -> tuple[str, str]:
        holder, base = self._value_of(inner), self.source.text(inner)
        if _is_tensor(holder):
            return self._rebind(inner, f"{base}.at[{key}].set({made})")
        if isinstance(holder, tuple):
            return self._rebind(inner, f"(*{base}[:{key}], {made}, *{base}[{key} + 1 :])")
        return self.source.text(node), made

    def _rebind_attribute(self, node: ast.Attribute, inner: ast.expr, name: str, made: str) -> tuple[str, str]:
        holder, base = self._value_of(inner), self.source.text(inner)
        if _is_tensor(holder):  # `x.T`
            return self._rebind(inner, f"{made}.{name}")
        kind = cast("type[Any]", type(holder))
        if hasattr(kind, "_replace"):
            return self._rebind(inner, f"{base}._replace({name}={made})")
        parameters = getattr(kind, "__dataclass_params__", None)
        if parameters is not None and parameters.frozen:
            replace = "replace" if self.names.get("replace") is dataclasses.replace else "dataclasses.replace"
            return self._rebind(inner, f"{replace}({base}, {name}={made})")
        return self.source.text(node), made
