"""Constants, captured arrays in read-only memory, are converted once to the order in which a program reads them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from typing import Any

import numpy as np

import tessera as ts
from tessera import ops
from tessera.api.constants import is_constant
from tessera.ir.base.tape import CONSTANT

GIVEN = "tessera.given = [[1, [1, 0]]]"
"""How a plan says that its second argument is given transposed."""


def frozen(shape: tuple[int, ...], seed: int = 0) -> Any:
    """An array that nobody writes."""
    made = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    made.flags.writeable = False
    return made


def product(x: Any, w: Any) -> Any:
    return x @ ops.transpose(w)


X, W = frozen((2, 96), 1), frozen((64, 96), 2)
WANTED = np.asarray(ts.jit(product)(X, W))


def test_read_only_memory_is_constant() -> None:
    assert is_constant(W)
    assert is_constant(W[3:])
    assert is_constant(np.frombuffer(bytes(16), np.float32))
    assert not is_constant(W.copy())
    assert not is_constant(np.frombuffer(bytearray(16), np.float32))
    assert not is_constant(ts.asarray(W))  # of whose memory nobody knows
    assert not is_constant(3.0)


def test_a_view_of_memory_that_changes_is_no_constant() -> None:
    owner = W.copy()
    weight = owner[:]
    weight.flags.writeable = False

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, weight)

    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED)
    owner *= 2
    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED * 2)


def test_an_array_that_becomes_writable_is_read_at_each_call() -> None:
    weight = frozen((64, 96), 2)

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, weight)

    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED)
    weight.flags.writeable = True
    weight *= 2
    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED * 2)


def test_a_constant_is_given_in_the_order_that_is_read() -> None:
    weight = W

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, weight)

    assert apply.trace(X).tape.promises[CONSTANT] == (1,)
    for _ in range(3):
        np.testing.assert_array_equal(np.asarray(apply(X)), WANTED)
    assert GIVEN in apply.schedule(X)
    assert "layout.order" in str(apply.explain(X).report["choices"])


def test_what_is_no_constant_is_read_as_it_is() -> None:
    weight = ts.asarray(W.copy())

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, weight)

    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED)
    assert CONSTANT not in apply.trace(X).tape.promises
    assert "tessera.given" not in apply.schedule(X)


def test_another_constant_is_converted_and_one_that_is_none_each_time() -> None:
    held = {"weight": W}

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, held["weight"])

    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED)
    held["weight"] = frozen((64, 96), 3)
    other = np.asarray(ts.jit(product)(X, frozen((64, 96), 3)))
    np.testing.assert_array_equal(np.asarray(apply(X)), other)
    changed = W.copy()
    held["weight"] = changed
    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED)
    changed *= 2
    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED * 2)


def test_the_choice_can_be_made_otherwise() -> None:
    weight = W

    def apply(x: Any) -> Any:
        return product(x, weight)

    across = ts.jit(apply, overrides={"layout.order": (0, 1)})
    np.testing.assert_array_equal(np.asarray(across(X)), WANTED)
    assert "tessera.given" not in across.schedule(X)
    along = ts.jit(apply, overrides={"layout.order": (1, 0), "contraction.block": (64, 64, 64)})
    np.testing.assert_array_equal(np.asarray(along(X)), WANTED)
    assert GIVEN in along.schedule(X)


def test_a_constant_that_others_read_as_it_is_stays() -> None:
    weight = W

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, weight), ops.exp(weight)

    np.testing.assert_array_equal(np.asarray(apply(X)[0]), WANTED)
    assert "tessera.given" not in apply.schedule(X)


def test_plans_and_tuning_take_constants_as_the_caller_has_them() -> None:
    weight = W

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, weight)

    again = apply.with_plan(apply.schedule(X))
    np.testing.assert_array_equal(np.asarray(again(X)), WANTED)
    apply.autotune(X, budget=2.0)
    np.testing.assert_array_equal(np.asarray(apply(X)), WANTED)


def test_rows_of_another_number_have_the_same_bits() -> None:
    weight = W

    @ts.jit
    def apply(x: Any) -> Any:
        return product(x, weight)

    for rows in (1, 2, 4, 8, 16):
        x = frozen((rows, 96), rows)
        np.testing.assert_array_equal(np.asarray(apply(x)), np.asarray(ts.jit(product)(x, W)))
