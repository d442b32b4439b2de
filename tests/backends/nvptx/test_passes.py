"""Lowering to matrix kernels keeps the meaning: simulated, with the producer as far ahead as barriers let it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera.backends.nvptx.block_model import WGMMA_BLOCKS
from tessera.backends.nvptx.pipeline import MmaChoices
from tessera.ir.base.op import SpecOp
from tessera.ir.tile.interpret import run_kernel
from tests.backends.nvptx.matrices import arrays_of, causal, full, kernels_of, layer, nn, nt, text_of, tn
from tests.oracles.nvptx_backend import NvptxBackend
from tests.oracles.nvptx_simulator import DeadlockError, simulate


def hopper(kernel: SpecOp, **choices: Any) -> SpecOp:
    """The kernel after all passes."""
    made = NvptxBackend(choices=MmaChoices(**choices)).matrix(kernel)
    assert made is not None
    made.verify()
    assert made.name == "ttarget.matrix_kernel"
    return made


def both(kernel: SpecOp, seed: int = 0) -> tuple[Any, Any]:
    """What the interpreter of tiles gives, and what the simulated kernel gives."""
    first, second = arrays_of(kernel, seed), arrays_of(kernel, seed)
    (place,) = kernel.value("writes")
    second[place][...] = np.asarray(77).astype(second[place].dtype)
    run_kernel(kernel, first, {})
    simulate(hopper(kernel), second, {})
    return first[place].astype(np.float64), second[place].astype(np.float64)


def simulated(kernel: SpecOp) -> Any:
    """What the simulated kernel gives alone."""
    arrays = arrays_of(kernel)
    simulate(hopper(kernel), arrays, {})
    return arrays[-1].astype(np.float64)


def product_of(name: str, kernel: SpecOp) -> Any:
    """The dot, as NumPy gives it; integers this small are exact in bf16 up to 256, and rounded above."""
    a, b, out = arrays_of(kernel)
    left, right = a.astype(np.float64), b.astype(np.float64)
    if name == "tn":
        left = left.reshape(-1, out.shape[0]).T  # a single row is one already
    whole = left @ (right.T if name == "nt" else right)
    return whole.astype(np.float32).astype(out.dtype).astype(np.float64)


ORIENTATIONS: dict[str, tuple[Callable[..., Any], Callable[[int, int, int], list[tuple[int, int]]]]] = {
    "nt": (nt, lambda m, n, k: [(m, k), (n, k)]),
    "nn": (nn, lambda m, n, k: [(m, k), (k, n)]),
    "tn": (tn, lambda m, n, k: [(k, m), (k, n)]),
}
BLOCKS = [block for block in WGMMA_BLOCKS if block[0] in (64, 128) and block[1] % 64 == 0]


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(sorted(ORIENTATIONS)),
    st.sampled_from(BLOCKS),
    st.tuples(st.integers(1, 150), st.integers(1, 20), st.integers(1, 40)),
)
def test_a_dot_of_any_size_keeps_its_meaning(name: str, block: Any, size: tuple[int, int, int]) -> None:
    function, shapes = ORIENTATIONS[name]
    m, n, k = size[0], 8 * size[1], 8 * size[2]
    (kernel,) = kernels_of(function, shapes(m, n, k), overrides={"contraction.block": block})
    np.testing.assert_array_equal(simulated(kernel), product_of(name, kernel))


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_any_number_of_buffers_gives_the_same(stages: int) -> None:
    overrides = {"contraction.block": (64, 64, 64), "pipeline.stages": stages}
    (kernel,) = kernels_of(nt, [(100, 500), (72, 500)], overrides=overrides)
    np.testing.assert_array_equal(simulated(kernel), product_of("nt", kernel))


def into_f32(x: Any, w: Any) -> Any:
    return ts.ops.matmul(x, ts.ops.transpose(w), dtype=ts.f32)


E4M3 = ml_dtypes.float8_e4m3fn
CHOICES: dict[str, tuple[dict[str, Any], str, tuple[int, int, int], tuple[int, int, int], Any]] = {
    "pairs": ({"multicast": "always"}, "half", (256, 512, 192), (128, 256, 64), ml_dtypes.bfloat16),
    "apart": ({"lag": 3}, "ttarget.lag", (128, 128, 1280), (128, 128, 64), E4M3),
    "together": ({"lag": 0}, "ttarget.mma_add", (128, 128, 1280), (128, 128, 64), E4M3),
    "beside": ({"epilogue": "beside"}, "ttarget.epilogue", (768, 768, 256), (64, 64, 64), ml_dtypes.bfloat16),
    "after": ({"epilogue": "after"}, "ttarget.store_tile", (768, 768, 256), (64, 64, 64), ml_dtypes.bfloat16),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_of_the_lowering_change_the_kernel_and_not_its_meaning(name: str) -> None:
    choices, sign, (m, n, k), block, dtype = CHOICES[name]
    function = into_f32 if dtype is E4M3 else nt
    (kernel,) = kernels_of(function, [(m, k), (n, k)], dtype, overrides={"contraction.block": block})
    made = hopper(kernel, **choices)
    assert sign in text_of(made)
    arrays = arrays_of(kernel)
    simulate(made, arrays, {})
    np.testing.assert_array_equal(arrays[-1].astype(np.float64), product_of("nt", kernel))


@pytest.mark.parametrize("name", sorted(ORIENTATIONS))
def test_the_interpreter_of_tiles_gives_the_same(name: str) -> None:
    function, shapes = ORIENTATIONS[name]
    (kernel,) = kernels_of(function, shapes(70, 72, 24))
    expected, found = both(kernel)
    np.testing.assert_array_equal(found, expected)


def test_an_epilogue_keeps_its_meaning() -> None:
    (kernel,) = kernels_of(layer, [(70, 40), (40, 72), (72,)])
    expected, found = both(kernel)
    np.testing.assert_allclose(found, expected, atol=2.0**-6)


@pytest.mark.parametrize("function", [full, causal], ids=lambda one: one.__name__)
def test_attention_keeps_its_meaning(function: Any) -> None:
    (kernel,) = kernels_of(function, [(1, 1, 70, 64), (1, 1, 150, 64), (1, 1, 150, 64)])
    expected, found = both(kernel)
    np.testing.assert_allclose(found, expected, atol=0.06)


def test_eight_bit_floats_keep_their_meaning() -> None:
    (kernel,) = kernels_of(into_f32, [(70, 260), (64, 260)], dtype=ml_dtypes.float8_e4m3fn)
    expected, found = both(kernel)
    np.testing.assert_array_equal(found, expected)


def without(kernel: SpecOp, name: str, number: int = 0) -> SpecOp:
    ops = [op for op in kernel.walk() if op.name == f"ttarget.{name}"]
    ops[number].detach()
    ops[number].erase()
    return kernel


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("release", "the producer in `ttarget.acquire` of stage"),
        ("copy", "consumer 0 in `ttarget.await` of stage 0 in iteration 0"),
    ],
)
def test_a_missing_step_is_a_deadlock_that_is_told(name: str, who: str) -> None:
    (kernel,) = kernels_of(nt, [(128, 1024), (128, 1024)], overrides={"contraction.block": (64, 64, 64)})
    broken = without(hopper(kernel), name)
    with pytest.raises(DeadlockError, match=who):
        simulate(broken, arrays_of(kernel), {})


def test_a_stage_that_is_left_too_early_shows() -> None:
    """The simulation is not blind: a producer that is let in while a dot reads changes what it reads."""
    (kernel,) = kernels_of(
        nt, [(64, 1024), (64, 1024)], overrides={"contraction.block": (64, 64, 64), "pipeline.stages": 2}
    )
    arrays = arrays_of(kernel)
    broken = hopper(kernel)
    loops = [op for op in broken.walk() if op.name == "ttarget.mma_issue"]
    (release, *_) = [op for op in broken.walk() if op.name == "ttarget.release"]
    (issue,) = loops
    block = issue.parent_block()
    assert block is not None
    release.detach()
    block.insert_op_before(release, issue)
    release.operands = [release.operands[0], issue.operands[3]]
    simulate(broken, arrays, {})
    assert (arrays[2].astype(np.float64) != product_of("nt", kernel)).any()


def test_a_stage_that_is_never_filled_shows() -> None:
    """Without waits and copies consumers read what is poisoned."""
    (kernel,) = kernels_of(nt, [(64, 256), (64, 256)], overrides={"contraction.block": (64, 64, 64)})
    arrays = arrays_of(kernel)
    broken = hopper(kernel)
    for op in list(broken.walk()):
        if op.name in ("ttarget.copy", "ttarget.await"):
            op.detach()
            op.erase()
    simulate(broken, arrays, {})
    assert np.isnan(arrays[2].astype(np.float64)).all()
