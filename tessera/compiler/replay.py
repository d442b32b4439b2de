"""Compiling a program again from its text: what the scripts of failed compilations call."""

from __future__ import annotations

from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import symbol_table
from tessera.ir.graph.from_tape import to_tape
from tessera.runtime.executable import Executable


def replay(graph: str, options: str) -> Executable:
    """The executable of a program given as Graph IR and the text of its options; raises as compiling it did."""
    function = symbol_table(parse_module(graph))["main"]
    return compile_tape(to_tape(function), Options.parse(options))
