"""Sizes known to be multiples: kernels have no ragged edge there, and give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import ops
from tessera.backends.reference.compile import run_tape
from tessera.ir.base.tape import Guard, Tape
from tessera.ir.base.text import print_module
from tessera.ir.base.verify import verify
from tessera.ir.schedule.bodies import canonicalize, multiples
from tessera.ir.schedule.plan import fusions_in
from tessera.ir.tile.passes.drop_bounds import DropBounds
from tessera.types.dim import Dim, minimum
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import assert_close, inputs_for, run_schedule, simplify, tapes, tensor

A, B = Dim.symbol("A"), Dim.symbol("B")
ZERO = Dim.constant(0)


@settings(max_examples=20)
@given(
    tape=tapes(("AB",)),
    first=st.sampled_from([2, 3, 8]),
    second=st.sampled_from([4, 16]),
    steps=st.sampled_from([3, None]),
)
def test_a_program_with_known_multiples_means_the_same(tape: Tape, first: int, second: int, steps: int | None) -> None:
    tape.guards += [Guard(A % first, ZERO, "rows"), Guard(B % second, ZERO, "columns")]
    module = run_schedule(simplify(tape), steps=steps)
    DropBounds().run(module)
    for rows, columns in ((1, 1), (2, 3)):
        arrays = inputs_for(tape, {"A": rows * first, "B": columns * second})
        with np.errstate(all="ignore"):
            assert_close(run_program(module, *arrays), run_tape(tape, arrays))
    if steps is not None:
        sizes = [dict(fuse.value("sizes")) for fuse in fusions_in(module)]
        assert {size for one in sizes for size in one.values()} <= {A // first, B // second}


@settings(max_examples=20)
@given(tapes())
def test_bounds_that_are_dropped_were_never_reached(tape: Tape) -> None:
    module = run_schedule(simplify(tape))
    before = print_module(module)
    DropBounds().run(module)
    verify(module)
    assert print_module(module).count("bounds = [-1]") >= before.count("bounds = [-1]")
    for sizes in ({"A": 3, "B": 5}, {"A": 1, "B": 33}, {"A": 16, "B": 64}):
        arrays = inputs_for(tape, sizes)
        with np.errstate(all="ignore"):
            assert_close(run_program(module, *arrays), run_tape(tape, arrays))


def test_only_remainders_of_zero_are_multiples() -> None:
    guards = [
        Guard(A % 8, Dim.constant(4), "another remainder"),
        Guard((A + 1) % 8, ZERO, "not a size"),
        Guard(A % B, ZERO, "not a number"),
        Guard(2 * (A % 8), ZERO, "a multiple of a remainder"),
        Guard(minimum(A, 1), Dim.constant(1), "a bound"),
        Guard(8 * (A // 8), A + 1, "more than whole parts"),
        Guard(4 * (A // 8), A, "other parts"),
        Guard(8 * (A // 8), B, "parts of another"),
    ]
    assert multiples(guards) == {}
    assert multiples([Guard(ZERO, A % 8, "swapped"), Guard(A % 12, ZERO, "both")]) == {"A": 24}
    assert multiples([Guard(16 * (A // 16), A, "whole"), Guard(B, 4 * (B // 4), "swapped")]) == {"A": 16, "B": 4}


def test_sizes_are_written_as_multiples_and_guards_that_shows_are_gone() -> None:
    other = Guard(A, B, "equal")
    tape = Tape(inputs=[0], names=["x"], records=[], outputs=[0], types=[tensor("A B")])
    tape.guards = [Guard(A % 8, ZERO, "multiple"), other]
    made, sizes = canonicalize(tape)
    assert str(made.types[0]) == "[8*s0, s1] f32"
    assert sizes == {"s0": A // 8, "s1": B}
    assert [guard.what for guard in made.guards] == ["equal"]


def _softmax(x: ts.Tensor["B", "S", ts.f32]) -> Any:
    return ops.softmax(x * 2.0, axis=1)


def _shares(x: ts.Tensor["B", "S", ts.f32]) -> Any:
    return ops.exp(x) / (1.0 + ops.abs(x))


def _columns(x: ts.Tensor["S", "B", ts.f32]) -> Any:
    return ops.sum(x, axis=0), ops.argmax(x, axis=0)


def _parts(x: ts.Tensor["B", "S", ts.f32]) -> Any:
    return ops.sum(ops.reshape(x, (x.shape[0], -1, 16)), axis=2)


@pytest.mark.parametrize("function", [_softmax, _shares, _columns, _parts], ids=lambda function: function.__name__[1:])
def test_the_ragged_edge_is_gone_and_every_bit_is_the_same(function: Callable[..., Any]) -> None:
    plain, known = ts.jit(function), ts.jit(ts.constrain("S % 128 == 0")(function))
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal((size, 5)).astype(np.float32) for size in (128, 384)]
    chosen = arrays if function is _columns else [np.ascontiguousarray(array.T) for array in arrays]
    for x in chosen:
        assert _bits(known(x)) == _bits(plain(x))
    if function in (_softmax, _shares):
        assert "guarded" in plain.lower(chosen[0]).target
        assert "guarded" not in known.lower(chosen[0]).target
        assert "ttile.clip" not in known.lower(chosen[0]).tile


def _bits(result: Any) -> list[bytes]:
    return [
        np.asarray(part).tobytes() for part in cast("tuple[Any, ...]", result if type(result) is tuple else (result,))
    ]
