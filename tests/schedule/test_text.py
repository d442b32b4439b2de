"""The texts of the specification, letter by letter, parse, verify and print back."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tessera.diagnostics.codes import IRSyntaxError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.interpret import InterpretError
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import verify
from tests.oracles.schedule_interpreter import run_program

load_dialects()

ATTENTION = """
tsched.module {
  %attn = tsched.fuse @attention(%Q, %K, %V)
           { pattern = "flash_attention" }

  // Shard layouts: heads on tp, batch on dp
  tsched.layout %Q {partition = ["batch"], mesh_axes = ["dp"]}
  tsched.layout %K {partition = ["head"],  mesh_axes = ["tp"]}
  tsched.layout %V {partition = ["head"],  mesh_axes = ["tp"]}

  // Tile policy candidates (BM, BN, BK)
  tsched.tile %attn candidates = [[128,128,64], [64,128,64], [128,64,64]]

  // Collective plan for logits RS/AG
  tsched.collective %attn { pattern = "RS_MM_AG", axis = "tp" }

  // Emit a sched.func for each fusion group
  %f = tsched.materialize %attn : !tsched.func
  tsched.return %f
}
"""
PIPELINE = """
// Three pipeline stages across axis pp
tsched.pipeline @train { axis="pp", stages=3, microbatch=8 }
"""
HOOKS = """
// Attach autotune results to sched IR
tsched.tile %attn chosen = [128,128,64] { source = "autotune" }
tsched.collective %attn { algo = "ring", quantize = "fp8" }
"""
ANNOTATION = """%0 = "tessera.schedule.pipeline"(%A, %B) {double_buffer=true}
"""

PRINTED = {
    ATTENTION: """tsched.module {
  %attn = tsched.fuse @attention(%Q, %K, %V) {pattern = "flash_attention"}
  tsched.layout %Q {partition = ["batch"], mesh_axes = ["dp"]}
  tsched.layout %K {partition = ["head"], mesh_axes = ["tp"]}
  tsched.layout %V {partition = ["head"], mesh_axes = ["tp"]}
  tsched.tile %attn candidates = [[128, 128, 64], [64, 128, 64], [128, 64, 64]]
  tsched.collective %attn {pattern = "RS_MM_AG", axis = "tp"}
  %f = tsched.materialize %attn : !tsched.func
  tsched.return %f
}
""",
    PIPELINE: """tsched.pipeline @train {axis = "pp", stages = 3, microbatch = 8}
""",
}
"""What is printed, letter by letter: one op a line, a space behind commas and around `=`, and no comments."""


def tokens_of(text: str) -> list[str]:
    """Words, texts and signs; white space separates them, and comments are none."""
    return re.findall(r'"[^"]*"|[%@!]?[\w.]+|[^\s\w]', re.sub(r"//[^\n]*", "", text))


@pytest.mark.parametrize("text", [ATTENTION, PIPELINE])
def test_texts_of_the_specification_print_back(text: str) -> None:
    """Every token comes back in its order, in one form, and that form comes back letter by letter."""
    module = parse_module(text)
    verify(module)
    (printed,) = [print_module(op) for op in module.ops]
    assert printed == PRINTED[text]
    assert tokens_of(printed) == tokens_of(text)
    (again,) = [print_module(op) for op in parse_module(printed).ops]
    assert again == printed


@pytest.mark.parametrize("text", [HOOKS, ANNOTATION], ids=["hooks", "annotation"])
@pytest.mark.parametrize("around", ["{}", "tsched.module {{\n{}\ntsched.return\n}}"], ids=["alone", "in a module"])
def test_hooks_and_annotations_print_back_alone_and_in_a_plan(text: str, around: str) -> None:
    """What nothing defines, `%attn` or `%A`, is an input of the module around it; of a text alone, of the text."""
    module = parse_module(around.format(text))
    verify(module)
    printed = print_module(module).split("{\n", 1)[1].rsplit("}", 1)[0]
    assert tokens_of(printed) == tokens_of(around.format(text).replace("}}", "}"))
    again = parse_module(print_module(module))
    verify(again)
    assert print_module(again) == print_module(module)
    generic = parse_module(print_module(module, generic=True))
    verify(generic)
    assert print_module(generic) == print_module(module)


def test_a_name_without_a_type_is_an_error_in_a_function() -> None:
    text = "tsched.module @f() {\n  tsched.tile %a chosen = 4\n  tsched.return\n}"
    with pytest.raises(IRSyntaxError, match="values used but not defined"):
        parse_module(text)


def test_one_name_in_two_modules_is_two_values() -> None:
    plan = "tsched.module {\n%y = tsched.fuse @f(%attn)\ntsched.return %y\n}\n"
    module = parse_module(HOOKS + plan + plan)
    verify(module)
    hint, *arguments = [value.name_hint for value in module.body.block.args] + [
        op.regions[0].block.args[0].name_hint for op in module.ops if op.regions
    ]
    assert [hint, *arguments] == ["attn"] * 3


def test_free_names_are_inputs_in_the_order_they_are_met() -> None:
    (plan,) = parse_module(ATTENTION).ops
    assert [argument.name_hint for argument in plan.regions[0].block.args] == ["Q", "K", "V"]


def test_a_plan_of_free_names_runs_where_its_bodies_are() -> None:
    body = """
    tgraph.func @scaled(%x: !tgraph.tensor<[B, N], f32>, %s: !tgraph.tensor<[], f32>) -> !tgraph.tensor<[B, N], f32> {
      %0 = tgraph.mul %x, %s : (!tgraph.tensor<[B, N], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[B, N], f32>
      tgraph.return %0 : (!tgraph.tensor<[B, N], f32>) -> ()
    }
    """
    plan = "tsched.module {\n%y = tsched.fuse @scaled(%x, %s)\ntsched.return %y\n}"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = run_program(parse_module(plan + body), x, np.array(2, np.float32))
    np.testing.assert_array_equal(y, 2 * x)
    with pytest.raises(InterpretError, match="`@scaled` of a group is not in the module"):
        run_program(parse_module(plan), x, np.array(2, np.float32))
