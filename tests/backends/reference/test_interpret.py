"""The oracle: a tape run op by op gives what each op's reference gives, with static dims and with free ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from tessera.backends.reference.compile import run_tape
from tessera.diagnostics.codes import GuardError, RuntimeArgumentError
from tessera.diagnostics.error import CompilationError
from tessera.frontend.concrete import concrete_type
from tessera.frontend.pytree import as_tuple
from tessera.frontend.shape_inference import Facts
from tessera.frontend.trace import Trace
from tessera.ir.base.spec import OpSpec
from tessera.ir.base.tape import Guard, Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim
from tessera.types.dtype import f32
from tessera.types.shape import TensorType

SPECS = [spec for spec in REGISTRY if spec.samples and "collective" not in spec.effects]


def tape_of(spec: OpSpec, arrays: Sequence[Any], attributes: Any, *, free: bool) -> Tape:
    """One op on a tape; symbolic dims have a symbol for each size, so equal sizes stay equal."""
    trace = Trace(facts=Facts())
    stand_ins: list[Any] = []
    for number, array in enumerate(arrays):
        type = concrete_type(array)
        assert type is not None
        if free:
            dims = [Dim.symbol(f"n{size}") if size > 1 else Dim.constant(size) for size in array.shape]
            type = TensorType(tuple(dims), type.dtype)
        stand_ins.append(trace.add_input(f"x{number}", type))
    made = trace.record(spec.name, stand_ins, attributes)
    return trace.finish(as_tuple(made))


@pytest.mark.parametrize("free", [False, True], ids=["static", "free"])
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.short_name)
def test_a_tape_means_what_its_op_means(spec: OpSpec, free: bool) -> None:
    assert spec.reference is not None
    for sample in spec.samples:
        arrays = [np.asarray(array) for array in sample.make(np.random.default_rng(0))]
        try:
            tape = tape_of(spec, arrays, sample.attributes, free=free)
        except CompilationError:
            assert free, "a sample must be right for its own sizes"
            continue
        found = run_tape(tape, arrays)
        with np.errstate(all="ignore"):
            expected = spec.reference(*arrays, **spec.with_defaults(sample.attributes))
        for left, right in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
            assert (left.dtype, left.shape) == (right.dtype, right.shape)
            assert left.tobytes() == right.tobytes()
        for value, array in zip(tape.outputs, found, strict=True):
            sizes = {f"n{size}": size for array in arrays for size in array.shape}
            assert tuple(dim.evaluate(sizes) for dim in tape.types[value].shape) == array.shape


def test_what_a_tape_relies_on_is_checked() -> None:
    n, m = Dim.symbol("N"), Dim.symbol("M")
    tape = Tape(inputs=[0, 1], names=["x", "y"], outputs=[0], types=[TensorType((n,), f32), TensorType((m,), f32)])
    tape.guards.append(Guard(n, m + 1, "one longer"))
    x, y = np.zeros(4, np.float32), np.zeros(3, np.float32)
    assert run_tape(tape, [x, y])[0].shape == (4,)
    with pytest.raises(GuardError, match="one longer"):
        run_tape(tape, [x, x])
    with pytest.raises(RuntimeArgumentError, match="2 inputs are needed, got 1"):
        run_tape(tape, [x])
    tape.types[1] = TensorType((n,), f32)
    with pytest.raises(GuardError, match=r"`y.shape\[0\]` must be `N` = 4, got 3"):
        run_tape(tape, [x, y])
