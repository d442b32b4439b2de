"""Kernels of Target IR as text, with every part replaceable: what the tests of the verifiers are made of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import OpError
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify

BUFFER, INDEX, LINE = "!ttile.buffer<[M, N], f32>", "!ttile.index", "!ttarget.vector<[16], f32>"
ATTRIBUTES: Mapping[str, str] = {
    "symbols": '["M", "N"]',
    "writes": "[1]",
    "lanes": "8",
    "features": '["avx2", "fma"]',
    "scratch": "0",
}
ACCESS: Mapping[str, str] = {
    "coords": '["i", "j"]',
    "axes": '["j"]',
    "offset": "N*i + j",
    "pattern": '"contiguous"',
    "align": "4",
    "guarded": '["j"]',
    "bounds": "[N]",
}


def list_parts(attributes: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name} = {value}" for name, value in attributes.items()) + "}"


def load(buffer: str = "%x", type: str = BUFFER, block: str = LINE, at: str = "%i, %j", **changes: str) -> str:
    """A load of a row; `%v` is what it gives."""
    indices = ", ".join([INDEX] * len(at.split(", ")))
    return f"%v = ttarget.load {buffer}, {at} {list_parts({**ACCESS, **changes})} : ({type}, {indices}) -> {block}"


def store(buffer: str = "%y", type: str = BUFFER, block: str = LINE, at: str = "%i, %j", **changes: str) -> str:
    """A store of a row."""
    indices = ", ".join([INDEX] * len(at.split(", ")))
    return f"ttarget.store %v, {buffer}, {at} {list_parts({**ACCESS, **changes})} : ({block}, {type}, {indices}) -> ()"


def kernel(*ops: str, arguments: str = f"%x: {BUFFER}, %y: {BUFFER}", grid: str = "[M]", **changes: str) -> str:
    """A kernel of one program for a row `%i`, with `%j` its first column; without ops, a copy of 16 columns."""
    body = "\n".join(ops or (load(), store()))
    return f"""
ttarget.kernel @k({arguments}) attributes {list_parts({**ATTRIBUTES, **changes})} {{
  ttarget.programs {{grid = {grid}}} ({{
  ^bb0(%i: {INDEX}):
    %j = ttarget.index {{names = [], expr = 0}} : () -> {INDEX}
    {body}
    ttarget.yield
  }})
  ttarget.return
}}"""


def check(text: str) -> None:
    """Parse and verify."""
    load_dialects()
    verify(parse_module(text, "test.mlir"))


def check_refused(text: str) -> str:
    """The message with which a text is refused."""
    with pytest.raises(OpError) as caught:
        check(text)
    return caught.value.message
