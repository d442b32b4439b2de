"""Graph IR: texts of random programs read back, and broken graphs give one precise error each."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import io
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera.api.autodiff import Program
from tessera.cli import opt
from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.base.op import CURRENT, OpError
from tessera.ir.base.passes import Stages
from tessera.ir.base.text import content_hash, parse_module, print_module
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.dialect import from_tape, to_tape
from tessera.ir.graph.passes.jvp import Jvp
from tessera.ir.graph.passes.vjp import Vjp
from tessera.ir.graph.transforms.linearize import LinearizedTape, linearize
from tessera.ir.graph.transforms.reverse import vjp_tape
from tests.fuzz.generate import random_program

ROOT = Path(__file__).parents[2]


def _read_back(module: ModuleOp) -> ModuleOp:
    """The module of a module's text, which is that module."""
    text = print_module(module)
    again = parse_module(text)
    verify(again)
    assert content_hash(again) == content_hash(module), text
    assert print_module(again) == text
    return again


def test_G1_texts_of_a_hundred_programs_read_back() -> None:
    """And so do those of their derivatives, which are the same whether the program or its text is transformed."""
    differentiated = 0
    for seed in range(100):
        program = random_program(seed)
        tape = program.jitted().trace(*program.arrays(program.sizes[0])).tape
        again = _read_back(from_tape(tape))
        active = [at for at, value in enumerate(tape.inputs) if tape.types[value].dtype.is_float]
        if not active or seed % 3:
            continue
        kind, transform = ((Vjp, vjp_tape), (Jvp, LinearizedTape.jvp_tape))[seed % 2]
        try:
            expected = transform(linearize(tape, active))
        except DifferentiationError:
            continue
        kind().run(again)
        assert content_hash(_read_back(again)) == content_hash(from_tape(expected)), program.script
        differentiated += 1
    assert differentiated >= 25


def layer(x: Any, w: Any) -> Any:
    return (ts.ops.softmax(ts.ops.gelu(x @ w)) ** 2.0).sum()


def recur(x: Any, w: Any) -> Any:
    state, rows = ts.scan(lambda h, row: (ts.ops.tanh(h @ w + row), h * row), w[0], x)
    return state.sum() + (rows * rows).sum()


def choose(x: Any, w: Any) -> Any:
    return ts.cond(x.sum() > 0, lambda: (x @ w)[::2].sum(), lambda: ts.ops.exp(x.at[1].mul(w[0])).sum())


@pytest.mark.parametrize("function", [layer, recur, choose], ids=lambda one: one.__name__)
def test_G2_the_adjoint_of_a_text_computes_the_gradient(function: Callable[..., Any], tmp_path: Path) -> None:
    """By the command, bit for bit: the same rules, on the text alone."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((4, 3)), rng.standard_normal((3, 3))
    file = tmp_path / "forward.mlir"
    file.write_text(print_module(from_tape(ts.jit(function).trace(x, w).tape)))
    output, errors = io.StringIO(), io.StringIO()
    assert opt.run([str(file), "--vjp{argnums = [0, 1]}"], io.StringIO(), output, errors) == 0, errors.getvalue()
    adjoint = to_tape(symbol_table(parse_module(output.getvalue()))["main"])
    found = Program(adjoint, "adjoint")(x, w, np.float64(1.0))
    value, gradients = ts.value_and_grad(function, (0, 1))(x, w)
    for mine, theirs in zip(found, (value, *gradients), strict=True):
        np.testing.assert_array_equal(np.asarray(mine), np.asarray(theirs))


def test_G1_1_a_collective_is_an_op_with_a_mesh_axis() -> None:
    f = ts.jit(lambda x: ts.dist.all_reduce(x @ x, axis="tp", op="max"))
    with ts.dist.mesh(tp=4):
        tape = f.trace(np.zeros((3, 3), np.float32)).tape
    text = print_module(from_tape(tape))
    assert re.search(
        r'tgraph\.all_reduce %\d+ \{axis = "tp", size = \[4\], op = "max"\} : '
        r"\(!tgraph\.tensor<\[3, 3\], f32>\) -> !tgraph\.tensor<\[3, 3\], f32>",
        text,
    )
    verify(parse_module(text))
    with pytest.raises(OpError, match="name of a mesh axis"):
        verify(parse_module(text.replace('axis = "tp"', 'axis = ""')))


MATRIX, ROW, NUMBER = "!tgraph.tensor<[B, 4], f32>", "!tgraph.tensor<[4], f32>", "!tgraph.tensor<[], f32>"
BOOLS, WHOLE, HALF = "!tgraph.tensor<[B, 4], bool>", "!tgraph.tensor<[B, 4], i32>", "!tgraph.tensor<[B, 4], bf16>"
FREE = "!tgraph.tensor<[C], f32>"

# One op on %m (matrix), %r (row), %n (number), %b (bools), %i (integers), %h (bf16), %c (free row): what it must say.
BROKEN: list[tuple[str, str]] = [
    (f"tgraph.exp %m : ({MATRIX}) -> {ROW}", "is !tgraph.tensor<[B, 4], f32> by its shape rule"),
    (f"tgraph.exp %m : ({MATRIX}) -> {HALF}", "is !tgraph.tensor<[B, 4], f32> by its shape rule"),
    (f"tgraph.exp %m, %m : ({MATRIX}, {MATRIX}) -> {MATRIX}", "has 1 operands (x), got 2"),
    (f"tgraph.add %m : ({MATRIX}) -> {MATRIX}", "has 2 operands (x, y), got 1"),
    (f"tgraph.add %m, %h : ({MATRIX}, {HALF}) -> {MATRIX}", "dtype"),
    (f"tgraph.add %m, %c : ({MATRIX}, {FREE}) -> {MATRIX}", "`x.shape[1] = 4` with `y.shape[0] = C`"),
    (f"tgraph.add %b, %b : ({BOOLS}, {BOOLS}) -> {BOOLS}", "got `x` of bool"),
    (f"tgraph.bitwise_and %m, %m : ({MATRIX}, {MATRIX}) -> {MATRIX}", "got `x` of f32"),
    (f"tgraph.logical_not %m : ({MATRIX}) -> {MATRIX}", "got `x` of f32"),
    (f"tgraph.exp %i : ({WHOLE}) -> {WHOLE}", "got `x` of i32"),
    (f"tgraph.where %m, %m, %m : ({MATRIX}, {MATRIX}, {MATRIX}) -> {MATRIX}", "`condition` of f32"),
    (f"tgraph.sum %m {{axes = [2], keepdims = false}} : ({MATRIX}) -> {ROW}", "no axis 2"),
    (f"tgraph.sum %m {{axes = [0, 0], keepdims = false}} : ({MATRIX}) -> {ROW}", "none twice, got (0, 0)"),
    (f"tgraph.sum %m {{axes = [0], keepdims = false}} : ({MATRIX}) -> {MATRIX}", "[4], f32> by its shape rule"),
    (f"tgraph.sum %m {{axes = [0], keepdims = true}} : ({MATRIX}) -> {ROW}", "[1, 4], f32> by its shape rule"),
    (f"tgraph.sum %m {{axis = 0}} : ({MATRIX}) -> {ROW}", "has no attribute `axis`"),
    (f"tgraph.sum %m {{axes = 0.5}} : ({MATRIX}) -> {ROW}", "expected a value of kind `ints`"),
    (f"tgraph.softmax %m {{axis = 5}} : ({MATRIX}) -> {MATRIX}", "no axis 5"),
    (f"tgraph.softmax %n {{axis = 0}} : ({NUMBER}) -> {NUMBER}", "no axis 0"),
    (f"tgraph.matmul %m, %m : ({MATRIX}, {MATRIX}) -> {MATRIX}", "inner dimensions"),
    (f"tgraph.matmul %m, %n : ({MATRIX}, {NUMBER}) -> {MATRIX}", "at least one dim"),
    (f"tgraph.matmul %b, %b : ({BOOLS}, {BOOLS}) -> {BOOLS}", "numbers"),
    (f"tgraph.transpose %m {{axes = [0, 0]}} : ({MATRIX}) -> {MATRIX}", "needs each axis of [B, 4] once"),
    (f"tgraph.transpose %m {{axes = [1]}} : ({MATRIX}) -> {MATRIX}", "needs each axis of [B, 4] once"),
    (f"tgraph.reshape %r {{shape = [5]}} : ({ROW}) -> !tgraph.tensor<[5], f32>", "4 elements, the new shape 5"),
    (f"tgraph.broadcast_to %r {{shape = [2, 5]}} : ({ROW}) -> !tgraph.tensor<[2, 5], f32>", "needs equal sizes"),
    (f"tgraph.squeeze %m {{axes = [1]}} : ({MATRIX}) -> !tgraph.tensor<[B], f32>", "`x.shape[1] = 4` and 1 differ"),
    (f"tgraph.cast %m {{dtype = f9}} : ({MATRIX}) -> {MATRIX}", "f9"),
    (f"tgraph.concat %m, %r {{axis = 0}} : ({MATRIX}, {ROW}) -> {MATRIX}", "one rank"),
    (f"tgraph.concat %m, %h {{axis = 0}} : ({MATRIX}, {HALF}) -> {MATRIX}", "dtype"),
    (f"tgraph.take %m, %m {{axis = 0}} : ({MATRIX}, {MATRIX}) -> {MATRIX}", "integer"),
    (f"tgraph.argmax %n {{axes = [0]}} : ({NUMBER}) -> !tgraph.tensor<[], i64>", "no axis 0"),
    (f"tgraph.layernorm_safe %m, %c : ({MATRIX}, {FREE}) -> {MATRIX}", "nothing says that"),
    (f"tgraph.tril %r : ({ROW}) -> {ROW}", "needs matrices, got [4]"),
    (f"tgraph.topk %m {{k = 9, axis = 1}} : ({MATRIX}) -> ({MATRIX}, {MATRIX})", "`topk` of 9"),
    (f'tgraph.all_reduce %m {{axis = "tp", size = [4], op = "median"}} : ({MATRIX}) -> {MATRIX}', "reduces with sum"),
    (f"tgraph.nothing %m : ({MATRIX}) -> {MATRIX}", "tgraph.nothing is not registered"),
    (f"tgraph.exp %q : ({MATRIX}) -> {MATRIX}", "values used but not defined: [%q]"),
    ("tgraph.exp %m : (!tgraph.tensor<[B, -4], f32>) -> !tgraph.tensor<[B, 4], f32>", "used with type"),
    (f"tgraph.exp %m : ({MATRIX}, ) -> {MATRIX}", "type expected"),
    (f"tgraph.return %m : ({MATRIX}) -> ()\n  %1 = tgraph.exp %m : ({MATRIX}) -> {MATRIX}", "not the last op"),
    (f"tgraph.exp %0 : ({MATRIX}) -> {MATRIX}", "used before"),
]


def graph_of(op: str) -> str:
    head = op if op.startswith("tgraph.return") else f"{'%0, %1' if op.startswith('tgraph.topk') else '%0'} = {op}"
    names = f"%m: {MATRIX}, %r: {ROW}, %n: {NUMBER}, %b: {BOOLS}, %i: {WHOLE}, %h: {HALF}, %c: {FREE}"
    return f"""tgraph.func @f({names}) -> {ROW} {{
  {head}
  tgraph.return %r : ({ROW}) -> ()
}}
"""


@pytest.mark.parametrize(("op", "words"), BROKEN, ids=lambda text: text[:60])
def test_G4_a_broken_graph_gives_one_precise_error(op: str, words: str) -> None:
    with pytest.raises(ts.TesseraError) as caught:
        Stages().run("graph", [], parse_module(graph_of(op), "<broken>"))
    text = str(caught.value)
    assert text.count("error[") == 1
    assert words in caught.value.message, text
    assert caught.value.span is not None, text
    assert caught.value.span.line in (2, 3), text
    assert caught.value.span.column >= 3, text


def test_G4_there_are_forty() -> None:
    assert len({op for op, _ in BROKEN}) >= 40


def test_G5_1_every_ir_has_a_page_and_every_dump_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "ops.py"))
    for room in ("graph", "schedule", "tile", "target"):
        page = script["PAGES"][room].read_text(encoding="utf-8")
        assert page == script["render"](room), "run scripts/ops.py"
        assert f"Version {CURRENT} of the IR" in page
    monkeypatch.setenv("TESSERA_DUMP", str(tmp_path))
    f, x = ts.jit(lambda x: ts.ops.softmax(x * 3.375)), np.ones((2, 3), np.float32)
    f(x)
    dumps = [file.read_text() for file in tmp_path.rglob("*.mlir")]
    assert len(dumps) > 5
    lowered = f.lower(x)
    for text in (*dumps, lowered.graph, lowered.schedule, lowered.tile, lowered.target):
        assert f"tessera.version = {CURRENT} : i64" in text.splitlines()[0]
        parse_module(text.split("\nbuiltin.module")[0])
