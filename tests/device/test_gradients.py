"""Derivatives on a GPU: of every op in f32 against rules in f64, of nets and random programs; twice with equal bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api.jit import Jit
from tessera.compiler.options import Options
from tessera.ir.base.arrays import Array
from tessera.runtime.devices.cuda.driver import is_available
from tessera.types import dtype as dt
from tests.device.gradients import GRADIENTS, SEEDS, Gradient, flat_results, moved_arrays, random_gradient
from tests.device.poison import poisoned
from tests.fuzz.bindings import loss_of, tessera_names
from tests.fuzz.differentiable import differentiable_program
from tests.transforms.op_derivatives import OpDerivative, derivatives

pytestmark = pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here")


@pytest.mark.parametrize("one", derivatives((dt.f32,)), ids=lambda one: one.spec.short_name)
def test_derivatives_of_an_op_with_symbolic_dims(one: OpDerivative) -> None:
    function = one.jitted(backend="cuda")
    for number in one.numbers_of_sizes():
        case, directions = one.case(number)
        with poisoned(), np.errstate(all="ignore"):
            tangents, cotangents = function(*case.given, *directions)
            one.check(number, tangents, cotangents)
            assert flat_bits(function(*case.given, *directions)) == flat_bits((tangents, cotangents))
    assert function.cache_info().misses == 1


def flat_bits(found: Any) -> list[bytes]:
    return [array.tobytes() for array in flat_results(found)]


def check_gradient(found: Any, wide: Callable[..., Any], arrays: Sequence[Array], what: str) -> None:
    """Gradients in f32 against those of a CPU in f64, as far off as inputs that are off by a rounding make them."""
    expected = flat_results(wide(*moved_arrays(arrays, None)))
    moved = [flat_results(wide(*moved_arrays(arrays, run))) for run in range(3)]
    for at, (mine, wanted) in enumerate(zip(flat_results(found), expected, strict=True)):
        assert mine.shape == wanted.shape, what
        apart = max(float(np.abs(run[at] - wanted).max(initial=0.0)) for run in moved)
        reach = 16 * apart + 2.0**-17 * float(np.abs(wanted).max(initial=1e-3))
        assert np.all(np.abs(mine.astype(np.float64) - wanted) <= reach), f"{what}, result {at}"


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_nets(name: str) -> None:
    one: Gradient = GRADIENTS[name]
    arrays = one.arrays()
    function = ts.jit(one.function, backend="cuda")
    with poisoned():
        found = function(*arrays)
        assert flat_bits(function(*arrays)) == flat_bits(found)
    check_gradient(found, ts.jit(one.function), arrays, name)


@pytest.mark.parametrize("seed", SEEDS)
def test_gradients_of_random_programs(seed: int) -> None:
    function, calls = random_gradient(seed)
    on_device = Jit(function.function, options=Options.of(backend="cuda")) if isinstance(function, Jit) else function
    program = differentiable_program(seed)
    about = tuple(at for at, array in enumerate(calls[0]) if array.dtype.kind == "f")
    wide = ts.value_and_grad(ts.jit(loss_of(program, tessera_names())), about)
    for arrays in calls:
        with poisoned():
            found = on_device(*arrays)
            assert flat_bits(on_device(*arrays)) == flat_bits(found)
        check_gradient(found, wide, arrays, f"program {seed}")
