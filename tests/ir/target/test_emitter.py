"""Emitters: Target IR leaves as LLVM text, which is compiled, or as text of another language, as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.ir import SSAValue

from tessera.backends.cpu.compile import CpuBackend
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.verify import verify
from tessera.ir.target.architectures import host_machine
from tessera.ir.target.program import LLVM, Emitter, TextEmitter
from tessera.ir.target.typed_ops import ElementwiseOp, LoadOp, ProgramsOp, StoreOp, YieldOp

TEXT = """
ttarget.kernel @double(%x: !ttile.buffer<[N], f32>, %y: !ttile.buffer<[N], f32>)
    attributes {symbols = ["N"], writes = [1], lanes = 4, features = ["sse2"], scratch = 0} {
  ttarget.programs {grid = [N]} ({
  ^bb0(%i: !ttile.index):
    %v = ttarget.load %x, %i {coords = ["i"], axes = [], offset = i, pattern = "contiguous", align = 4}
      : (!ttile.buffer<[N], f32>, !ttile.index) -> !ttarget.vector<[], f32>
    %w = ttarget.elementwise %v, %v {fn = "add"}
      : (!ttarget.vector<[], f32>, !ttarget.vector<[], f32>) -> !ttarget.vector<[], f32>
    ttarget.store %w, %y, %i {coords = ["i"], axes = [], offset = i, pattern = "contiguous", align = 4}
      : (!ttarget.vector<[], f32>, !ttile.buffer<[N], f32>, !ttile.index) -> ()
    ttarget.yield
  })
  ttarget.return
}
"""


def write_loops(kernel: SpecOp) -> str:
    """A kernel of single elements in a toy language of loops and assignments."""
    names: dict[SSAValue, str] = {value: f"b{at}" for at, value in enumerate(kernel.regions[0].block.args)}
    (programs,) = (op for op in kernel.regions[0].block.ops if isinstance(op, ProgramsOp))
    lines = [f"kernel {kernel.value('symbol')}:", f"for {', '.join(map(str, programs.grid))}:"]
    for op in programs.body.block.ops:
        for result in op.results:
            names[result] = f"v{len(names)}"
        if isinstance(op, LoadOp):
            lines.append(f"  {names[op.result]} = {names[op.buffer]}[{op.offset}]")
        elif isinstance(op, ElementwiseOp):
            lines.append(f"  {names[op.result]} = {op.fn}({', '.join(names[block] for block in op.blocks)})")
        elif isinstance(op, StoreOp):
            lines.append(f"  {names[op.buffer]}[{op.offset}] = {names[op.block]}")
        else:
            assert isinstance(op, YieldOp)
    return "\n".join(lines)


def kernel_of(text: str) -> SpecOp:
    load_dialects()
    module = parse_module(text)
    verify(module)
    (kernel,) = module.ops
    assert isinstance(kernel, SpecOp)
    return kernel


EMITTERS: dict[str, Callable[[], Emitter]] = {
    LLVM: lambda: CpuBackend(host_machine()).emitter,
    "loops": lambda: TextEmitter("loops", write_loops),
}


@pytest.mark.parametrize("language", EMITTERS)
def test_one_kernel_leaves_through_either_emitter(language: str) -> None:
    emitter = EMITTERS[language]()
    assert emitter.language == language
    text = emitter.text(kernel_of(TEXT))
    (found,) = emitter.objects([text])
    assert "double" in text
    assert found.startswith(b"\x7fELF") == (language == LLVM)


def test_text_of_another_language_leaves_as_it_is() -> None:
    emitter = TextEmitter("loops", write_loops)
    text = emitter.text(kernel_of(TEXT))
    assert text == "kernel double:\nfor N:\n  v2 = b0[i]\n  v3 = add(v2, v2)\n  b1[i] = v3"
    assert emitter.objects([text]) == [text.encode()]
