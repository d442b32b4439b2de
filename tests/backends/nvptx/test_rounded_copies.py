"""f32 that is rounded to tf32 as it is copied: where that is done, where it is not, and the rounding itself."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.compiler.compile import Lowering, lower
from tessera.compiler.options import Options
from tessera.ir.base.arrays import round_to
from tessera.ir.base.op import OpError, SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import attribute_of
from tessera.ir.base.verify import verify
from tests.backends.nvptx.matrices import BACKEND, nn, nt, text_of
from tests.oracles.nvptx_simulator import simulate

TF32 = ts.compute(ts.tf32)


def lower_program(function: Any, *shapes: tuple[int, ...], policy: Any = TF32, **overrides: Any) -> Lowering:
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    options = Options.of(backend="cuda", features=("sm_90a",), overrides=overrides)
    jitted: Any = ts.jit(function, policy=policy)
    return lower(jitted.trace(*arrays).tape, options)


def maps_of(kernel: SpecOp) -> list[str]:
    """What each TMA descriptor of a kernel rounds to."""
    return [op.value("rounds") for op in kernel.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map"]


def names(made: Lowering) -> list[str]:
    return [target.name for target in made.targets]


def test_a_dot_of_tf32_is_one_kernel_whose_copies_round() -> None:
    made = lower_program(nt, (256, 128), (192, 128))
    assert names(made) == ["ttarget.matrix_kernel"]
    assert maps_of(made.targets[0]) == ["tf32", "tf32", ""]
    assert [map.dtype for map in BACKEND.code(made.targets[0]).maps] == ["tf32", "tf32", "f32"]


def test_what_others_read_too_is_rounded_in_memory() -> None:
    def twice(x: Any, w: Any, v: Any) -> Any:
        return nt(x, w), nt(x, v)

    made = lower_program(twice, (256, 128), (192, 128), (320, 128))
    matrices = [target for target in made.targets if target.name == "ttarget.matrix_kernel"]
    assert names(made).count("ttarget.kernel") == 1
    assert [maps_of(target) for target in matrices] == [["", "tf32", ""]] * 2


def test_operands_across_k_and_other_tensor_cores_take_what_was_rounded_before() -> None:
    """What lies across K is rounded as it is written along it; other tensor cores have both by one kernel."""
    made = lower_program(nn, (256, 128), (128, 192))
    assert names(made) == ["ttarget.kernel", "ttarget.matrix_kernel"]
    assert maps_of(made.targets[1]) == ["tf32", "", ""]
    by_warps = lower_program(nt, (256, 128), (192, 128), **{"matrix.instruction": "mma.sync"})
    assert names(by_warps) == ["ttarget.kernel", "ttarget.warp_kernel"]


SEEN: dict[str, tuple[Any, Any]] = {
    "rows left out": ((192, 128), np.float32),
    "columns left out": ((256, 64), np.float32),
    "bf16 made wider": ((256, 128), ml_dtypes.bfloat16),
    "f16 made wider": ((256, 128), np.float16),
}
"""What a dot sees of a tensor of 256 by 128 as f32, and its dtype."""


@pytest.mark.parametrize("what", SEEN)
@pytest.mark.parametrize("is_both", [False, True])
def test_what_copies_cannot_bring_is_rounded_in_memory(what: str, is_both: bool) -> None:
    """And the dot is on tensor cores all the same."""
    (rows, columns), dtype = SEEN[what]

    def see_descriptors(x: Any) -> Any:
        return x[:rows, :columns].cast(ts.f32)

    def function(x: Any, w: Any) -> Any:
        return nt(see_descriptors(x), see_descriptors(w) if is_both else w)

    x = np.zeros((256, 128), dtype)
    jitted: Any = ts.jit(function, policy=TF32)
    traced = jitted.trace(x, x if is_both else np.zeros((192, columns), np.float32))
    made = lower(traced.tape, Options.of(backend="cuda", features=("sm_90a",)))
    # Two that are rounded alike share a kernel; of a B operand copies may leave out rows.
    assert names(made) == ["ttarget.kernel", "ttarget.matrix_kernel"]
    right = "tf32" if not is_both or what == "rows left out" else ""
    assert maps_of(made.targets[-1]) == ["", right, ""]


@pytest.mark.parametrize("policy", [ts.round_toward_zero, ts.flush_denormals, ts.saturate])
def test_another_rounding_is_not_that_of_copies(policy: Any) -> None:
    made = lower_program(nt, (256, 128), (192, 128), policy=TF32.overridden(policy))
    assert all("tf32" not in maps_of(target) for target in made.targets)


@given(m=st.integers(1, 140), n=st.integers(1, 80), k=st.integers(1, 24), seed=st.integers(0, 9))
@settings(max_examples=10, deadline=None)
def test_copies_round_as_the_program_says(m: int, n: int, k: int, seed: int) -> None:
    made = lower_program(nt, (m, 4 * k), (n, 4 * k))
    (target,) = made.targets
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal((rows, 4 * k)).astype(np.float32) for rows in (m, n))
    out = np.full((m, n), np.nan, np.float32)
    simulate(target, [x, w, out], {})
    a, b = (round_to(one, format="tf32").astype(np.float64) for one in (x, w))
    exact = a @ b.T
    # Numbers of tf32 have dots of 22 bits: what is off is the rounding of sums alone.
    assert np.all(np.abs(out - exact) <= 4 * k * 2.0**-23 * (np.abs(a) @ np.abs(b).T))


def test_a_map_that_rounds_to_anything_else_is_refused() -> None:
    module = parse_module(text_of(lower_program(nt, (256, 128), (192, 128)).targets[0]))
    verify(module)
    maps = [op for op in module.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map"]
    maps[0].properties["rounds"] = attribute_of("str", "bf16")
    with pytest.raises(OpError, match="copies round f32 to tf32 or nothing, got f32 to bf16"):
        verify(module)


def test_a_map_that_rounds_is_not_stored_through() -> None:
    module = parse_module(text_of(lower_program(nt, (256, 128), (192, 128)).targets[0]))
    maps = [op for op in module.walk() if isinstance(op, SpecOp) and op.name == "ttarget.tensor_map"]
    maps[-1].properties["rounds"] = attribute_of("str", "tf32")
    with pytest.raises(OpError, match="stores elements as they are, and its TMA descriptor rounds to tf32"):
        verify(module)
