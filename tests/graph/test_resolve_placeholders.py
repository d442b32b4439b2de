"""Placeholders: a program with them is the one with their values in their place."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.compiler.compile import replay
from tessera.compiler.options import Options
from tessera.diagnostics.codes import GraphVerifyError
from tessera.ir.base.dialect_of import load_dialects
from tessera.ir.base.interpret import interpret
from tessera.ir.base.text import parse_module, print_module
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.passes.resolve_placeholders import ResolvePlaceholders

load_dialects()

_TEXT = """
builtin.module attributes {{tessera.scale = {scale} : f32}} {{
tgraph.func @main(%x: !tgraph.tensor<[3, 4], f32>) -> !tgraph.tensor<[3, 4], f32>
    attributes {{names = ["x"], tessera.axis = {axis}}} {{
  %0 = tgraph.full {{value = #attr.tessera.scale, shape = [], dtype = f32}} : () -> !tgraph.tensor<[], f32>
  %1 = tgraph.softmax %x {{axis = #attr.tessera.axis}} : (!tgraph.tensor<[3, 4], f32>) -> !tgraph.tensor<[3, 4], f32>
  %2 = tgraph.mul %1, %0 : (!tgraph.tensor<[3, 4], f32>, !tgraph.tensor<[], f32>) -> !tgraph.tensor<[3, 4], f32>
  tgraph.return %2 : (!tgraph.tensor<[3, 4], f32>) -> ()
}}
}}
"""


def _written(scale: float, axis: int) -> str:
    """The same program with the values written out."""
    text = _TEXT.format(scale=scale, axis=axis)
    return text.replace("#attr.tessera.scale", str(scale)).replace("#attr.tessera.axis", str(axis))


@settings(max_examples=20, deadline=None)
@given(scale=st.sampled_from([0.5, 1.0, 2.5, 1024.0]), axis=st.integers(0, 1))
def test_a_program_means_what_it_does_with_the_values_written_out(scale: float, axis: int) -> None:
    module = parse_module(_TEXT.format(scale=scale, axis=axis))
    ResolvePlaceholders().run(module)
    verify(module)
    x = np.random.default_rng(3).normal(size=(3, 4)).astype(np.float32)
    plain = parse_module(_written(scale, axis))
    (found,), (wanted,) = (interpret(symbol_table(one)["main"], x) for one in (module, plain))
    np.testing.assert_array_equal(found, wanted)
    assert "#attr" not in print_module(module)


def test_a_text_with_placeholders_prints_back_as_it_was() -> None:
    text = print_module(parse_module(_TEXT.format(scale=2.5, axis=1)))
    assert print_module(parse_module(text)) == text
    assert len(re.findall("#attr.tessera", text)) == 2


def test_a_program_with_placeholders_compiles() -> None:
    text = re.sub(r"builtin.module attributes \{[^}]*\} \{", "builtin.module {", _TEXT.format(scale=2.5, axis=1))
    text = text.replace("tessera.axis = 1", "tessera.axis = 1, tessera.scale = 2.5")
    assert replay(text, Options().text).objects == replay(_written(2.5, 1), Options().text).objects


def test_values_can_be_given_to_the_pass_and_a_function_has_the_last_word() -> None:
    module = parse_module(_TEXT.format(scale=2.5, axis=1).replace("tessera.axis = 1", "tessera.other = 1"))
    ResolvePlaceholders({"axis": 0, "scale": 9.0}).run(module)
    text = print_module(module)
    assert "axis = 0" in text
    assert "value = 2.5" in text


def test_one_that_nothing_gives_is_refused_at_its_op() -> None:
    module = parse_module(_TEXT.format(scale=2.5, axis=1).replace("tessera.axis = 1", "tessera.other = 1"))
    with pytest.raises(GraphVerifyError, match=r"nothing says what `#attr\.tessera\.axis` is") as caught:
        ResolvePlaceholders().run(module)
    assert caught.value.span is not None
