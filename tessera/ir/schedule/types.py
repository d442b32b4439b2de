"""The types of plans whose tensors are not known yet."""

from __future__ import annotations

from tessera.ir.base.types import MarkAttr


class UntypedAttr(MarkAttr):
    """A value of a plan of which only the name is known; it is left out in text."""

    name = "tsched.value"


class FunctionAttr(MarkAttr):
    """A group made into a kernel."""

    name = "tsched.func"


UNTYPED = UntypedAttr(None)
