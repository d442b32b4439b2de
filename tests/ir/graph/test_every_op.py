"""Every op of Graph IR, from its samples: it verifies, its texts read back, and the interpreter runs its reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from tessera.ir.base.arrays import dtype_of
from tessera.ir.base.build import Build
from tessera.ir.base.dialect_of import make
from tessera.ir.base.interpret import interpret
from tessera.ir.base.op import function_results
from tessera.ir.base.spec import OpSpec, Sample
from tessera.ir.base.tape import Record, Tape, tape_text
from tessera.ir.base.text import content_hash, parse_module, print_module, stamp
from tessera.ir.base.types import TensorAttr
from tessera.ir.base.verify import symbol_table, verify
from tessera.ir.graph.dialect import from_tape, new_function, to_tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.shape import TensorType

SPECS = [spec for spec in REGISTRY if spec.samples]


def module_of(spec: OpSpec, sample: Sample) -> tuple[ModuleOp, list[Any]]:
    arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
    types: list[object] = [TensorAttr.of(TensorType.of(array.shape, dtype_of(array))) for array in arrays]
    function, block = new_function("main", types, tuple(f"x{number}" for number in range(len(types))))
    module = ModuleOp([function])
    stamp(module)
    build = Build(block)
    build.emit(spec.name, *block.args, **sample.attributes)
    block.add_op(make("tgraph.return", build.made[-1].results))
    return module, arrays


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_samples_verify_and_texts_and_tapes_read_back(spec: OpSpec) -> None:
    for sample in spec.samples:
        module, _ = module_of(spec, sample)
        verify(module)
        expected = content_hash(module)
        again = parse_module(print_module(module))
        verify(again)
        assert content_hash(again) == expected
        assert content_hash(parse_module(print_module(module, generic=True))) == expected
        assert content_hash(from_tape(to_tape(symbol_table(module)["main"]))) == expected


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_the_interpreter_runs_the_reference_and_types_agree(spec: OpSpec) -> None:
    for sample in spec.samples[:4]:
        module, arrays = module_of(spec, sample)
        function = symbol_table(module)["main"]
        with np.errstate(all="ignore"):
            results = interpret(function, *arrays)
        assert [array.shape for array in results] == [
            tuple(dim.value for dim in type.shape) for type in function_results(function)
        ]


F32, I64, BOOL = TensorType((), dt.f32), TensorType((), dt.i64), TensorType((), dt.bool_)
ROW = TensorType.of(["N"], dt.f32)


def doubling() -> Tape:
    """v -> v + v"""
    return Tape([0], ["v"], [Record("tgraph.add", (0, 0), {}, (1,))], [1], [F32, F32])


def counting() -> Tape:
    """i, v -> v + v"""
    return Tape([0, 1], ["i", "v"], [Record("tgraph.add", (1, 1), {}, (2,))], [2], [I64, F32, F32])


def below(bound: float) -> Tape:
    """v -> v < bound"""
    full = Record("tgraph.full", (), {"value": bound, "shape": (), "dtype": dt.f32}, (1,))
    return Tape([0], ["v"], [full, Record("tgraph.lt", (0, 1), {}, (2,))], [2], [F32, F32, BOOL])


def summing() -> Tape:
    """total, x -> total + x, total + x"""
    return Tape([0, 1], ["total", "x"], [Record("tgraph.add", (0, 1), {}, (2,))], [2, 2], [F32, F32, F32])


def program(record: Record, inputs: list[TensorType], results: list[TensorType]) -> Tape:
    count = len(inputs)
    names = [f"x{number}" for number in range(count)]
    return Tape(list(range(count)), names, [record], list(range(count, count + len(results))), [*inputs, *results])


FLOWS: dict[str, tuple[Tape, list[Any], list[Any]]] = {
    "checkpoint": (
        program(Record("tgraph.checkpoint", (0,), {"body": doubling()}, (1,)), [F32], [F32]),
        [np.float32(3)],
        [6.0],
    ),
    "cond": (
        program(Record("tgraph.cond", (0, 1), {"then": doubling(), "otherwise": doubling()}, (2,)), [BOOL, F32], [F32]),
        [np.array(True), np.float32(3)],
        [6.0],
    ),
    "size_cond": (
        program(
            Record("tgraph.size_cond", (0,), {"size": Dim.of(0), "then": below(1.0), "otherwise": below(5.0)}, (1,)),
            [F32],
            [BOOL],
        ),
        [np.float32(3)],
        [True],
    ),
    "while": (
        program(
            Record("tgraph.while", (0,), {"condition": below(100.0), "body": doubling(), "carried": 1}, (1,)),
            [F32],
            [F32],
        ),
        [np.float32(3)],
        [192.0],
    ),
    "fori": (
        program(Record("tgraph.fori", (0, 1, 2), {"body": counting(), "carried": 1}, (3,)), [I64, I64, F32], [F32]),
        [np.int64(2), np.int64(6), np.float32(1)],
        [16.0],
    ),
    "scan": (
        program(
            Record("tgraph.scan", (0, 1), {"body": summing(), "carried": 1, "scanned": 1}, (2, 3)),
            [F32, ROW],
            [F32, ROW],
        ),
        [np.float32(0), np.arange(4, dtype=np.float32)],
        [6.0, [0.0, 1.0, 3.0, 6.0]],
    ),
    "custom_function": (
        program(Record("tgraph.custom_function", (0,), {"body": doubling(), "function": "double"}, (1,)), [F32], [F32]),
        [np.float32(3)],
        [6.0],
    ),
    "custom_linear": (
        program(
            Record(
                "tgraph.custom_linear",
                (0,),
                {"function": "double", "residuals": 0, "modes": ("forward",), "rules": (doubling(),)},
                (1,),
            ),
            [F32],
            [F32],
        ),
        [np.float32(3)],
        [6.0],
    ),
}


@pytest.mark.parametrize("name", FLOWS)
def test_control_flow_walks_from_tape_to_text_and_runs(name: str) -> None:
    tape, arrays, expected = FLOWS[name]
    for record in tape.records:
        tape.records[0] = replace(record, attributes=REGISTRY[record.op].with_defaults(record.attributes))
    module = from_tape(tape)
    verify(module)
    again = parse_module(print_module(module))
    verify(again)
    assert content_hash(again) == content_hash(module)
    assert tape_text(to_tape(symbol_table(again)["main"])) == tape_text(tape)
    results = interpret(symbol_table(again)["main"], *[np.asarray(array) for array in arrays])
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_array_equal(result, value)


ELSEWHERE = ("fused", "kernel_call", "debug_print", "io_callback", "fresh_key")
"""Ops that mean something only beside others or the world outside: `tests/kernel` and `tests/effects` have them."""


def test_every_op_has_a_meaning_and_samples_unless_it_takes_programs() -> None:
    without = [spec.short_name for spec in REGISTRY if not spec.samples]
    assert {name for name in without if name not in ELSEWHERE} == set(FLOWS)
    assert [spec.short_name for spec in REGISTRY if spec.reference is None] == []
