"""What a verifier says of one op, built from a short signature: `f32[4,8] index -> f32[8]`.

`f32[4,8]` is a block (a tile, or vector registers), `f32{N,4}` a buffer, `f32(N)` a tensor, `index` an index.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from xdsl.ir import Block

from tessera.ir.base.dialect_of import load_dialects, make
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.types import INDEX, BufferAttr, ShapedAttr, TensorAttr, TileAttr, VectorAttr
from tessera.types.dim import Dim
from tessera.types.dtype import parse_dtype
from tessera.types.shape import TensorType

load_dialects()

BLOCKS: dict[str, type[ShapedAttr]] = {"ttile": TileAttr, "ttarget": VectorAttr, "tsched": TensorAttr}


def type_of(text: str, block: type[ShapedAttr] = TileAttr) -> Any:
    """The type that a word of a signature means."""
    if text == "index":
        return INDEX
    found = re.fullmatch(r"(\w+)([\[{(])(.*)[\]})]", text)
    assert found is not None, text
    name, bracket, inner = found.groups()
    shape = [int(dim) if dim.lstrip("-").isdigit() else Dim.symbol(dim) for dim in inner.split(",") if dim]
    kind = {"[": block, "{": BufferAttr, "(": TensorAttr}[bracket]
    return kind.of(TensorType.of(shape, parse_dtype(name)))


def op_of(name: str, signature: str, values: dict[str, Any], regions: Sequence[Block] = ()) -> SpecOp:
    """An op on arguments of a block of its own."""
    block = BLOCKS[name.partition(".")[0]]
    operands, _, results = (part.split() for part in signature.partition("->"))
    arguments = Block(arg_types=[type_of(text, block) for text in operands]).args
    return make(name, arguments, values, types=[type_of(text, block) for text in results], regions=regions)


def refusal_of(op: SpecOp) -> str:
    """Why an op breaks a rule of its dialect; empty where it breaks none."""
    try:
        op.verify_()
    except OpError as error:
        return error.message
    return ""
