"""Ops made from specs: text, access, verification, guards, and how little they cost."""

from __future__ import annotations

import gc
import time
import weakref

import pytest
from xdsl.ir import Block

from tessera.diagnostics.codes import IRSyntaxError
from tessera.diagnostics.error import Span
from tessera.ir.base.dialect_of import find_spec, make, op_class
from tessera.ir.base.op import OpError, SpecOp, check_form
from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.base.text import content_hash, parse_module, print_module
from tessera.ir.base.types import INDEX, BufferAttr, TensorAttr, ValueAttr, span_of
from tessera.ir.base.verify import symbol_table, verify
from tests.ir.base import toy

LOOP = """builtin.module attributes {tessera.version = 4 : i64} {
  toy.func @kernel(%x: !ttile.buffer<[M, N], f32>) {
    %t = toy.load %x {shape = [BM, 4]} : (!ttile.buffer<[M, N], f32>) -> !ttile.tile<[BM, 4], f32>
    %r = toy.loop %t {extent = (M floordiv BM), tag = [1, {a = 2.0}]} ({
    ^bb0(%i: !ttile.index, %acc: !ttile.tile<[BM, 4], f32>):
      %u = toy.load %x, %i {shape = [BM, 4]} : (!ttile.buffer<[M, N], f32>, !ttile.index) -> !ttile.tile<[BM, 4], f32>
      toy.yield %u : (!ttile.tile<[BM, 4], f32>) -> ()
    }) : (!ttile.tile<[BM, 4], f32>) -> !ttile.tile<[BM, 4], f32>
    toy.return
  }
}
"""


@pytest.fixture(autouse=True)
def dialect() -> None:
    toy.use_toy()


def function(*lines: str, arguments: str = "%x: !tgraph.tensor<[B], f32>", attributes: str = "") -> str:
    body = "\n".join(f"  {line}" for line in lines)
    return f"toy.func @f({arguments}) {attributes} {{\n{body}\n  toy.return\n}}\n"


def test_structural_ops_with_regions_print_and_parse_to_the_same_text() -> None:
    module = parse_module(LOOP)
    verify(module)
    assert print_module(module) == LOOP
    assert print_module(parse_module(print_module(module, generic=True))) == LOOP


def test_values_are_read_by_name() -> None:
    module = parse_module(LOOP)
    loop = next(op for op in module.walk() if op.name == "toy.loop")
    assert isinstance(loop, SpecOp)
    assert loop.value("tag") == (1, {"a": 2.0})
    assert str(loop.value("extent")) == "(M floordiv BM)"
    assert loop.region("body").block.args[0].type == INDEX
    load = loop.operands[0].owner
    assert isinstance(load, SpecOp)
    assert isinstance(load.operand("buffer").type, BufferAttr)
    assert list(load.operands_named("at*")) == []
    loop.set_value("tag", 7)
    assert "tag = 7" in print_module(loop)


def test_a_type_rule_gives_types_and_checks_them() -> None:
    block = Block(arg_types=[BufferAttr.of(toy.tensor("M", 8))])
    made = make("toy.load", block.args, {"shape": ("BM", 8)})
    assert str(made.result.type) == "!ttile.tile<[BM, 8], f32>"
    wrong = LOOP.replace(
        "shape = [BM, 4]} : (!ttile.buffer<[M, N], f32>) ->", "shape = [4]} : (!ttile.buffer<[M, N], f32>) ->"
    )
    with pytest.raises(OpError, match=r"`toy.load` gives !ttile.tile<.4., f32> here, not"):
        verify(parse_module(wrong))


def test_a_spec_may_verify_its_op_itself() -> None:
    wrong = LOOP.replace("^bb0(%i: !ttile.index,", "^bb0(%i: !ttile.tile<[4], f32>,")
    wrong = wrong.replace("%x, %i {", "%x {").replace("f32>, !ttile.index)", "f32>)")
    with pytest.raises(OpError, match="takes its step first") as caught:
        verify(parse_module(wrong))
    assert caught.value.advice == "add an argument of type !ttile.index"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            function(
                "%0 = toy.add %x, %y : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>"
            ),
            "values used but not defined",
        ),
        (function("%0 = toy.nothing %x : (!tgraph.tensor<[B], f32>) -> ()"), "Operation toy.nothing is not registered"),
        (function("%0 = toy.scale %x {by = } : () -> ()"), "expected a value"),
        (function("%0 = toy.scale %x {by = 1.0, by = 2.0} : () -> ()"), "`by` is given twice"),
        (function("%0 = toy.scale %x {bye = 1.0} : () -> ()"), "has no attribute `bye`"),
        (function(arguments="%x: !tgraph.tensor<[B], f33>"), "expected a dtype, got `f33`"),
    ],
)
def test_a_wrong_text_is_refused_at_its_place(text: str, words: str) -> None:
    with pytest.raises(IRSyntaxError, match=words.replace("[", r"\[")) as caught:
        parse_module(text)
    assert caught.value.span is not None
    assert caught.value.span.file == "<text>"


T = "!tgraph.tensor<[B], f32>"


def test_what_is_known_of_attributes_goes_with_them() -> None:
    """A process that compiles for days keeps nothing of the attributes that it has checked."""
    value = TensorAttr.of(toy.tensor(3))
    made = make("toy.scale", Block(arg_types=[value]).args, types=(value,))
    attribute = ValueAttr(2.5)
    made.properties["by"] = attribute
    check_form(made)
    assert attribute.known_kind == "float"
    seen = weakref.ref(attribute)
    del attribute, made
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '"toy.func"() <{symbol = #tessera.value<3>}> ({ "toy.return"() : () -> () }) : () -> ()',
            "of kind symbol",
        ),
        (
            function(f'%0 = "toy.scale"(%x) <{{by = #tessera.value<"a">}}> : ({T}) -> {T}'),
            "must be a value of kind float",
        ),
        (function(f'%0 = "toy.scale"(%x) <{{by = 1 : i64}}> : ({T}) -> {T}'), "must be a value of kind float, got 1"),
        (function(f'%0 = "toy.scale"(%x) <{{bye = #tessera.value<1>}}> : ({T}) -> {T}'), "has no attribute `bye`"),
        (function(f'%0 = "toy.load"(%x) : ({T}) -> {T}'), "needs attribute `shape`"),
        (function(f"%0 = toy.scale %x : ({T}) -> ({T}, {T})").replace("%0 =", "%0, %1 ="), "has 1 results"),
        (function(f"toy.return %x : ({T}) -> ()"), "ends a block, but is not the last op"),
        (function("%0 = toy.scale %x : (!ttile.index) -> !ttile.index", arguments="%x: !ttile.index"), "takes tensors"),
    ],
)
def test_a_module_that_breaks_a_rule_is_refused(text: str, words: str) -> None:
    with pytest.raises(OpError, match=words):
        verify(parse_module(text))


def test_a_region_of_an_isolated_op_sees_nothing_outside() -> None:
    body = f"({{ toy.yield %x : ({T}) -> () }}, {{ toy.yield %x : ({T}) -> () }})"
    text = function(f"%0 = toy.cond %x {body} : ({T}) -> {T}")
    with pytest.raises(OpError, match="used before, or outside of where"):
        verify(parse_module(text))


def test_guards_make_dims_equal() -> None:
    arguments = "%x: !tgraph.tensor<[B], f32>, %y: !tgraph.tensor<[2*C], f32>"
    line = "%0 = toy.add %x, %y : (!tgraph.tensor<[B], f32>, !tgraph.tensor<[2*C], f32>) -> !tgraph.tensor<[2*C], f32>"
    with pytest.raises(OpError, match=r"nothing says that B and 2\*C are equal"):
        verify(parse_module(function(line, arguments=arguments)))
    guards = 'attributes {guards = [[dim<B>, dim<2*C>, "add"]]}'
    verify(parse_module(function(line, arguments=arguments, attributes=guards)))


def test_defaults_are_left_out_and_come_back() -> None:
    module = parse_module(function("%0 = toy.scale %x : (!tgraph.tensor<[B], f32>) -> !tgraph.tensor<[B], f32>"))
    scale = next(op for op in module.walk() if op.name == "toy.scale")
    assert isinstance(scale, SpecOp)
    assert scale.value("by") == 1.0
    assert "{" not in print_module(scale)
    assert "by = #tessera.value<1.0>" in print_module(scale, generic=True)


def test_a_parsed_op_knows_its_line_and_locations_survive_text() -> None:
    module = parse_module(LOOP, "kernel.mlir")
    loop = next(op for op in module.walk() if op.name == "toy.loop")
    span = span_of(loop)
    assert span is not None
    assert (span.file, span.line, span.column) == ("kernel.mlir", 4, 5)
    again = parse_module(print_module(module, locations=True), "other.mlir")
    assert span_of(next(op for op in again.walk() if op.name == "toy.loop")) == span


def test_spans_and_names_are_not_part_of_the_hash() -> None:
    module = parse_module(LOOP)
    renamed = parse_module(LOOP.replace("%acc", "%sum").replace("%t", "%first"), "elsewhere.mlir")
    assert content_hash(module) == content_hash(renamed)
    assert content_hash(module) != content_hash(parse_module(LOOP.replace("[BM, 4]", "[BM, 5]")))
    assert content_hash(module) != content_hash(parse_module(LOOP.replace("tag = [1,", "tag = [1.0,")))
    assert content_hash(module) != content_hash(
        parse_module(LOOP.replace("toy.load %x, %i", "toy.load %x").replace("f32>, !ttile.index)", "f32>)"))
    )


def test_clones_keep_spans() -> None:
    made = make("toy.scale", Block(arg_types=[TensorAttr.of(toy.tensor(3))]).args, types=(), span=Span("f.py", 3))
    assert span_of(made.clone()) == Span("f.py", 3)


def test_make_refuses_what_the_spec_does_not_have() -> None:
    with pytest.raises(TypeError, match="has no attribute `bye`"):
        make("toy.scale", (), {"bye": 1}, types=())
    with pytest.raises(TypeError, match="needs attribute `shape`"):
        make("toy.load", ())
    with pytest.raises(KeyError, match="no dialect has an op"):
        make("toy.nothing")


def test_symbols_are_found_in_a_dict() -> None:
    assert list(symbol_table(parse_module(LOOP))) == ["kernel"]


def test_classes_are_made_at_first_use_and_150_cost_little() -> None:
    attributes = (Attribute("axis", "int", 0), Attribute("shape", "dims"), Attribute("keep", "bool", False))
    specs = [OpSpec(f"many.op_{n}", "", ("x",), toy.infer_scale, attributes=attributes) for n in range(150)]
    assert find_spec("many.op_0") is None
    started = time.process_time()
    classes = [op_class(spec) for spec in specs]
    assert time.process_time() - started < 0.15  # about 4 ms; a wide margin for a busy machine
    assert classes[0] is op_class(specs[0])
    assert classes[7].__name__ == "Op7Op"
