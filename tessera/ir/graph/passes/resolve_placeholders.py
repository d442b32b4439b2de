"""Resolve placeholders: `#attr.tessera.width` becomes the value that a function, its module or an option gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any, cast

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntegerAttr, ModuleOp, StringAttr, i1
from xdsl.ir import Attribute, Operation

from tessera.diagnostics.error import find_nearest
from tessera.ir.base.literal import Placeholder, is_placeholder, is_readable_as, text_of
from tessera.ir.base.op import DISCARDABLE, OpError, SpecOp
from tessera.ir.base.passes import Pass, user_error
from tessera.ir.base.types import ValueAttr, attribute_of
from tessera.ir.base.verify import verify
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

_PREFIX = "tessera."


@frozen
class ResolvePlaceholders(Pass):
    """Put the values that placeholders stand for in their place, and check the ops that had them.

    Before: `tgraph.func @f attributes {tessera.axis = 1}` with `tgraph.softmax %x {axis = #attr.tessera.axis}`. After:
    `tgraph.softmax %x {axis = 1}`, which passes can match and inline. The innermost function or module that gives
    the name holds, and else the option `values`. One that nothing gives, or gives a value of another kind, is refused
    (T0301).
    """

    values: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def run(self, module: ModuleOp) -> None:
        found = [op for op in module.walk() if isinstance(op, SpecOp) and any(_placeholders_of(op))]
        if not found:
            return
        used: set[tuple[Operation, str]] = set()
        for op in found:
            for name, value in list(_placeholders_of(op)):
                op.properties[name] = self._resolve(op, name, value, used)
        for holder, name in used:
            if isinstance(holder, SpecOp) and name not in DISCARDABLE:
                del holder.attributes[name]
        try:
            verify(module)
        except OpError as error:
            raise user_error("graph", error) from error

    def _resolve(self, op: SpecOp, name: str, value: Any, used: set[tuple[Operation, str]]) -> ValueAttr:
        kind = op.kinds[name]
        if isinstance(value, tuple):
            parts = cast("tuple[Any]", value)
            made: Any = tuple(self._look_up(op, part, used) if is_placeholder(part) else part for part in parts)
        else:
            made = self._look_up(op, value, used)
        if not _is_of_kind(kind, made):
            advice = f"give it a value of kind {kind}"
            message = f"`{name}` of `{op.name}` is of kind {kind}, and {text_of(value)} is {text_of(made)}"
            raise user_error("graph", OpError(op, message, advice))
        return attribute_of(kind, made)

    def _look_up(self, op: SpecOp, placeholder: Placeholder, used: set[tuple[Operation, str]]) -> Any:
        """What the innermost op around gives, or else the option."""
        wanted, known = f"{_PREFIX}{placeholder.name}", set(self.values)
        around = op.parent_op()
        while around is not None:
            if wanted in around.attributes:
                used.add((around, wanted))
                return _plain(around.attributes[wanted])
            known |= {name.removeprefix(_PREFIX) for name in around.attributes if name.startswith(_PREFIX)}
            around = around.parent_op()
        if placeholder.name in self.values:
            return self.values[placeholder.name]
        near = find_nearest(placeholder.name, sorted(known - {"version"}))
        guess = f"did you mean `#attr.tessera.{near[0]}`? " if near else ""
        advice = f"{guess}write `{wanted} = ...` among the attributes of the function or of its module"
        raise user_error("graph", OpError(op, f"nothing says what `{placeholder}` is", advice))


def _is_of_kind(kind: str, value: Any) -> bool:
    """Whether a value fits where one of this kind is wanted; a size may be a number."""
    if kind == "dim":
        return isinstance(value, Dim) or type(value) is int
    if kind == "dims":
        return isinstance(value, tuple) and all(_is_of_kind("dim", one) for one in cast("tuple[Any]", value))
    return is_readable_as(kind, value)


def _placeholders_of(op: SpecOp) -> Iterator[tuple[str, Any]]:
    for name, attribute in op.properties.items():
        if isinstance(attribute, ValueAttr) and is_placeholder(attribute.data):
            yield name, attribute.data


def _plain(attribute: Attribute) -> Any:
    """The value of an attribute of ours, or of one that MLIR has."""
    if isinstance(attribute, ValueAttr):
        return attribute.data
    if isinstance(attribute, StringAttr):
        return attribute.data
    if isinstance(attribute, IntegerAttr):
        number = cast("IntegerAttr[Any]", attribute)
        return bool(number.value.data) if number.type == i1 else number.value.data
    if isinstance(attribute, FloatAttr):
        return attribute.value.data
    if isinstance(attribute, ArrayAttr):
        return tuple(_plain(item) for item in cast("ArrayAttr[Attribute]", attribute).data)
    return str(attribute)
