"""Typed accessors: stubs say what the declarations say, and the classes read and set what the stubs say."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from xdsl.ir import Block

from scripts import typed_ops as stubs
from tessera.ir.base.dialect_of import make
from tessera.ir.base.types import TileAttr
from tessera.ir.tile import typed_ops as ttile
from tessera.types.dtype import f32
from tessera.types.shape import TensorType


@pytest.mark.parametrize("package", stubs.PACKAGES)
def test_stubs_are_what_the_declarations_say(package: str) -> None:
    assert stubs.stub_of(package).read_text(encoding="utf-8") == stubs.render(package), "run scripts/typed_ops.py"


def dot() -> ttile.DotOp:
    tile = TileAttr.of(TensorType.of((16, 16), f32))
    block = Block(arg_types=[tile] * 3)
    op = make("ttile.dot", block.args, {"unit": "wgmma"}, types=[tile])
    assert isinstance(op, ttile.DotOp)
    return op


def test_an_op_is_an_instance_of_the_class_of_its_name() -> None:
    assert not isinstance(dot(), ttile.ReduceOp)


def test_accessors_read_attributes_and_operands_and_set_attributes() -> None:
    op = dot()
    assert op.unit == op.value("unit") == "wgmma"
    assert op.instruction == ()
    assert (op.lhs, op.rhs, op.acc) == tuple(op.operands)
    op.instruction = (64, 16, 16)
    assert op.value("instruction") == (64, 16, 16)


def test_variadic_operands_are_a_sequence() -> None:
    module: Any = importlib.import_module("tessera.ir.tile.typed_ops")
    assert module.LoadOp.at.fget is not None


@pytest.mark.parametrize("name", ["NonsenseOp", "Dot", "dot"])
def test_a_class_that_no_op_has_is_refused_by_name(name: str) -> None:
    with pytest.raises(AttributeError, match=f"`ttile` has no op whose class is `{name}`"):
        getattr(ttile, name)
