"""Orders of dims in memory: conversions keep meaning and bits, are made where they pay, and can be chosen by hand."""

# Functions of traced values are written as lambdas, whose parameters cannot be annotated.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

import tessera as ts
from tessera import ops
from tessera.backends.reference.compile import run_tape
from tessera.compiler.backend import machines
from tessera.diagnostics.codes import ScheduleError
from tessera.ir.base.compilation import Choice, StaticChooser
from tessera.ir.base.tape import Tape
from tessera.ir.base.text import content_hash, parse_module, print_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.conversions import read_ordered
from tessera.ir.schedule.layouts import KNOB, MODELS, Access, choose_order
from tessera.ir.schedule.plan import fusions_in
from tessera.ir.schedule.typed_ops import LayoutOp
from tessera.types.machine import Machine
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import inputs_for, run_schedule, simplify, tapes, tensor, trace

CHOSEN = 4
"""Passes of the schedule stage up to the one that chooses layouts."""
SIZES = ({"A": 3, "B": 5}, {"A": 1, "B": 1}, {"A": 2, "B": 33})


class DrawnChooser(StaticChooser):
    """Chooses among orders by a number, and the default of everything else."""

    number = 0

    def choose(self, key: str, candidates: Sequence[Any], context: Mapping[str, Any]) -> Choice:
        if key.startswith(KNOB):
            self.overrides = {**self.overrides, key: candidates[(len(key) + self.number) % len(candidates)]}
        return super().choose(key, candidates, context)


def drawn(number: int) -> DrawnChooser:
    chooser = DrawnChooser()
    chooser.number = number
    return chooser


def layouts_in(module: ModuleOp) -> list[LayoutOp]:
    return [op for op in module.walk() if isinstance(op, LayoutOp)]


@settings(max_examples=40)
@given(tape=tapes(), number=st.integers(0, 3))
def test_meaning_and_bits_are_kept_in_every_order(tape: Tape, number: int) -> None:
    plain = run_schedule(simplify(tape), steps=CHOSEN)
    module = run_schedule(simplify(tape), steps=CHOSEN, chooser=drawn(number))
    again = parse_module(print_module(module))
    verify(again)
    assert content_hash(again) == content_hash(module)
    whole = run_schedule(simplify(tape), chooser=drawn(number))
    for sizes in SIZES:
        arrays = inputs_for(tape, sizes)
        with np.errstate(all="ignore"):
            wanted = run_program(plain, *arrays)
            for found in (run_program(module, *arrays), run_program(whole, *arrays)):
                for one, other in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(one, other)


@given(order=st.permutations(range(3)), more=st.permutations(range(3)), then=st.permutations(range(3)))
def test_a_body_that_reads_another_order_computes_the_same(order: list[int], more: list[int], then: list[int]) -> None:
    def program(x: Any) -> Any:
        seen = ops.transpose(x, tuple(more))
        return ops.transpose(ops.exp(seen), tuple(then)), ops.transpose(seen, tuple(then)), x * 2.0

    body = trace(program, tensor("2 3 4"))
    x = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
    found = run_tape(read_ordered(body, 0, tuple(order)), [np.ascontiguousarray(x.transpose(order))])
    for one, other in zip(found, run_tape(body, [x]), strict=True):
        np.testing.assert_array_equal(one, other)


def softmax_of_sum(x: Any, y: Any) -> Any:
    return ops.softmax(ops.transpose(x) + y)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...], tuple[int, ...]]] = {
    "rows": (softmax_of_sum, ("64 64", "64 64"), (1, 0)),
    "epilogue": (lambda x, a, b: a @ b + ops.transpose(x), ("64 64", "64 8", "8 64"), (1, 0)),
    "channels": (
        lambda x, w: ops.conv2d(ops.transpose(x, (0, 3, 1, 2)), w),
        ("2 16 16 8", "8 8 3 3"),
        (0, 3, 1, 2),
    ),
    "batch": (lambda x, w: ops.einsum("ijb,bjk->bik", x, w), ("32 32 8", "8 32 32"), (2, 0, 1)),
    "batch of the right operand": (
        lambda x, w: ops.einsum("bij,jkb->bik", w, x),
        ("32 32 8", "8 32 32"),
        (2, 0, 1),
    ),
    "several maps": (
        lambda x, y: (ops.max(ops.exp(y)), ops.transpose(x) + ops.max(y), ops.transpose(x) * ops.sum(y)),
        ("128 128", "128 128"),
        (1, 0),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_read_across_its_order_is_converted_once(name: str) -> None:
    function, types, order = PROGRAMS[name]
    tape = trace(function, *map(tensor, types))
    before = run_schedule(simplify(tape), steps=CHOSEN - 1)
    module = run_schedule(simplify(tape), steps=CHOSEN, chooser=StaticChooser(models=MODELS))
    (layout,) = [op for op in layouts_in(module) if op.order == order]
    assert layout.source == "static model"
    assert layout.operands[0] is next(iter(module.ops)).regions[0].block.args[0]
    assert len(fusions_in(module)) == len(fusions_in(before)) + 1
    arrays = inputs_for(tape, {})
    for one, other in zip(run_program(module, *arrays), run_program(before, *arrays), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("function", "types"),
    [
        (lambda x, y: ops.softmax(x + y), ("64 64", "64 64")),
        (lambda x, y: x @ ops.transpose(y), ("64 64", "64 64")),
        (lambda x, y: ops.transpose(x), ("64 64", "64 64")),
        (lambda x, y: ops.sum(x, axis=0) + y, ("64 64", "64 64")),
        (lambda x, y: ops.conv2d(x, y), ("2 8 16 16", "8 8 3 3")),
        (lambda x, y: ops.softmax(ops.transpose(x, (1, 0, 2)) + y), ("8 16 32", "16 8 32")),
    ],
)
def test_nothing_is_asked_where_every_order_is_right(function: Callable[..., Any], types: tuple[str, ...]) -> None:
    chooser = StaticChooser(models=MODELS)
    module = run_schedule(simplify(trace(function, *map(tensor, types))), steps=CHOSEN, chooser=chooser)
    assert not layouts_in(module)
    assert not any(key.startswith(KNOB) for key in chooser.questions)


def test_a_copy_that_is_there_may_be_chosen_to_be_none() -> None:
    tape = trace(lambda x: ops.softmax(ops.transpose(x)), tensor("64 32"))
    copied = run_schedule(simplify(tape), steps=CHOSEN, chooser=StaticChooser(models=MODELS))
    none = run_schedule(simplify(tape), steps=CHOSEN, chooser=StaticChooser({KNOB: (0, 1)}, MODELS))
    assert [len(fusions_in(module)) for module in (copied, none)] == [2, 1]
    assert [op.source for module in (copied, none) for op in layouts_in(module)] == ["static model", "override"]
    arrays = inputs_for(tape, {})
    np.testing.assert_array_equal(run_program(copied, *arrays)[0], run_program(none, *arrays)[0])


def test_the_model_weighs_a_conversion_against_all_reads() -> None:
    across = Access((1, 0), frozenset({1}), 400_000.0)
    own, other = (0, 1), (1, 0)
    assert across.is_slow(own)
    assert not across.is_slow(other)

    def choose(accesses: list[Access], machine: Machine, free: tuple[Any, ...] = ()) -> Any:
        context = {"machine": machine, "accesses": tuple(accesses), "elements": 2 << 20, "free": free}
        return choose_order((own, other), context)

    cpu, gpu = Machine("cpu"), machines()["sm_90a"]
    assert choose([], cpu) == choose([across], cpu) == own  # 630 us of a conversion would save 400
    assert choose([across, across], cpu) == choose([across], cpu, free=(other,)) == other
    assert choose([across, across], gpu) == own


# Compiled code: the choice is a knob, is in the text of a plan, and can be edited there.


def arrays_of(*shapes: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def count_groups(text: str) -> int:
    return text.count("= tsched.fuse @")


def test_orders_are_candidates_that_change_no_bit() -> None:
    given_arrays = arrays_of((64, 48), (48, 64))
    safe = ts.jit(softmax_of_sum)
    wanted = np.asarray(safe(*given_arrays))
    space = ts.autotune.space(safe, *given_arrays)
    (knob,) = [knob for knob in space.knobs if knob.name == KNOB]
    assert (knob.default, knob.source) == ((1, 0), "static model")
    assert set(knob.candidates) == {(0, 1), (1, 0)}
    assert space.class_of(knob) == "bit_neutral"
    for order in knob.candidates:
        fixed = ts.jit(softmax_of_sum, overrides={knob.key: order})
        np.testing.assert_array_equal(np.asarray(fixed(*given_arrays)), wanted)
        assert count_groups(fixed.schedule(*given_arrays)) == (2 if order == (1, 0) else 1)


def test_an_order_edited_by_hand_holds_and_is_the_same_program() -> None:
    given_arrays = arrays_of((64, 48), (48, 64))
    safe = ts.jit(softmax_of_sum)
    wanted = np.asarray(safe(*given_arrays))
    text = safe.schedule(*given_arrays)
    assert count_groups(text) == 2
    flat = safe.with_plan(text.replace("order = [1, 0]", "order = [0, 1]"))
    np.testing.assert_array_equal(np.asarray(flat(*given_arrays)), wanted)
    edited = flat.schedule(*given_arrays)
    assert count_groups(edited) == 1
    assert 'tsched.layout %x {order = [0, 1], candidates = [[0, 1], [1, 0]], source = "plan"}' in edited
    back = safe.with_plan(edited.replace("order = [0, 1]", "order = [1, 0]"))
    np.testing.assert_array_equal(np.asarray(back(*given_arrays)), wanted)
    assert count_groups(back.schedule(*given_arrays)) == 2


def test_an_order_that_no_group_gains_by_is_refused() -> None:
    given_arrays = arrays_of((64, 48), (48, 64))
    safe = ts.jit(softmax_of_sum)
    text = safe.schedule(*given_arrays).replace(
        "tsched.layout %x {order = [1, 0]", "tsched.layout %y {order = [1, 0]", 1
    )
    with pytest.raises(ScheduleError, match="no group beside this value reads it faster") as caught:
        safe.with_plan(text)(*given_arrays)
    assert "it can be [0, 1]" in str(caught.value)
