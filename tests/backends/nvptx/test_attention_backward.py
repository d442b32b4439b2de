"""Gradients of attention for NVIDIA: on tensor cores, with the values of the formula, and PTX that assembles."""

# Traced functions have no types to give here.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.tensor_cores import shared_beside
from tessera.compiler.compile import compile_tape
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.graph.ops.attention import attention_with_lse_reference
from tessera.ir.graph.ops.attention_backward import attention_backward_keys_reference, attention_backward_reference
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tests.backends.nvptx.matrices import BACKEND, kernels_of, text_of
from tests.oracles.nvptx_simulator import simulate

EPS = 2.0**-8
"""Half a step of bf16."""


def gradients(causal: bool) -> Any:
    def pull(q: Any, k: Any, v: Any, given: Any) -> Any:
        return ts.vjp(lambda *x: ts.ops.attention(*x, causal=causal), q, k, v)[1](given)

    return pull


def shapes_of(heads: int, shared: int, queries: int, keys: int, size: int) -> list[tuple[int, ...]]:
    q, k = (1, heads, queries, size), (1, shared, keys, size)
    return [q, k, k, q]


def backward_kernels(shapes: Sequence[Sequence[int]], causal: bool, **given: Any) -> list[SpecOp]:
    return [one for one in kernels_of(gradients(causal), shapes, **given) if "backward" in one.value("symbol")]


def names_of(kernels: Sequence[SpecOp]) -> list[str]:
    return [one.value("symbol").rsplit("_", 1)[1] for one in kernels]


def matrices_of(causal: bool, queries: int = 1024, keys: int = 1024, size: int = 128) -> dict[str, str]:
    """Both kernels as text, by what they give."""
    kernels = backward_kernels(shapes_of(8, 8, queries, keys, size), causal)
    found = {name: BACKEND.matrix(kernel) for name, kernel in zip(names_of(kernels), kernels, strict=True)}
    return {name: text_of(kernel) for name, kernel in found.items() if kernel is not None}


def steps_of(text: str) -> list[str]:
    """The loops of the consumers."""
    return text.split("}, {")[-1].split("ttarget.steps")[1:]


def test_causal_programs_are_handed_out_the_longest_first() -> None:
    """Queries further on see more keys, and keys further on are seen by fewer queries."""
    for name, text in matrices_of(True).items():
        assert "mailbox" in text, name
        assert ("is_descending = true" in text) is (name == "q")
    assert not any("mailbox" in text for text in matrices_of(False).values())


@pytest.mark.parametrize(("batch", "length", "group"), [(8, 1024, 30), (2, 2048, 16), (2, 512, 24)])
def test_heads_of_all_batches_are_handed_out_together(batch: int, length: int, group: int) -> None:
    """As many as keep 132 multiprocessors busy beside the longest program, or as have their operands in L2."""
    for kernel in backward_kernels([(batch, 12, length, 128)] * 4, True):
        found = BACKEND.matrix(kernel)
        assert found is not None
        assert f"group = {group}," in text_of(found)


@pytest.mark.parametrize("lead", [0, 96])
def test_steps_that_a_causal_mask_does_not_reach_have_none(lead: int) -> None:
    """Of queries they come first, of keys last."""
    for name, text in matrices_of(True, 1024, 1024 + lead).items():
        masks = ["ttarget.clip" in loop.split("ttarget.yield")[0] for loop in steps_of(text)]
        assert masks == ([False, True] if name == "q" else [True, False])


@pytest.mark.parametrize("causal", [False, True])
def test_both_dots_of_a_block_are_in_flight_before_the_first_is_waited_for(causal: bool) -> None:
    for text in matrices_of(causal).values():
        for loop in steps_of(text):
            body = loop.split("ttarget.yield")[0]
            assert body.split("ttarget.mma_wait")[0].count("ttarget.mma_issue") == 2


@pytest.mark.parametrize(
    ("size", "names"),
    [(64, ["q", "kv"]), (128, ["q", "kv"]), (256, ["q", "k", "v"]), *((size, ["q", "kv"]) for size in (48, 80, 96))],
)
@pytest.mark.parametrize("causal", [False, True])
def test_each_pass_runs_on_tensor_cores_without_atomics(size: int, names: list[str], causal: bool) -> None:
    kernels = backward_kernels(shapes_of(8, 2, 512, 512, size), causal)
    assert names_of(kernels) == names
    for kernel in kernels:
        found = BACKEND.matrix(kernel)
        assert found is not None, kernel.value("symbol")
        text = text_of(found)
        assert "ttarget.mma_issue" in text
        assert 'mode = "add"' not in text


@pytest.mark.parametrize(
    ("causal", "sizes"),
    [(True, (2, 1, 150, 150, 64)), (False, (1, 1, 130, 70, 128)), (True, (1, 1, 70, 200, 64)),
     (True, (1, 1, 150, 150, 96)), (False, (1, 1, 70, 130, 80))],
)  # fmt: skip
def test_simulated_kernels_have_the_values_of_the_formula(causal: bool, sizes: tuple[int, ...]) -> None:
    """Weights and gradients of scores are rounded before their dots, and results once more."""
    shapes, rng = shapes_of(*sizes), np.random.default_rng(7)
    q, k, v, given = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    out, lse = attention_with_lse_reference(q, k, v, causal=causal)
    shift = np.where(lse == -np.inf, 0.0, lse).astype(np.float32)
    delta = (out.astype(np.float32) * given.astype(np.float32)).sum(-1)
    wide = [one.astype(np.float64) for one in (q, k, v, given)]
    wanted = attention_backward_reference(*wide, shift, delta, causal=causal)
    for kernel in backward_kernels(shapes, causal):
        found = BACKEND.matrix(kernel)
        assert found is not None
        results = [np.full(shape, np.nan, ml_dtypes.bfloat16) for shape in shapes[:3]]
        written = kernel.value("writes")
        simulate(found, [q, k, v, given, shift, delta, *results], {})
        for number in written:
            own, one = results[number - 6].astype(np.float64), wanted[number - 6]
            assert np.linalg.norm(own - one) <= 3 * EPS * np.linalg.norm(one), names_of([kernel])


@pytest.mark.parametrize("causal", [False, True])
def test_two_ctas_of_small_heads_share_a_multiprocessor(causal: bool) -> None:
    """Both have registers and shared memory for it; heads of 128 have not."""
    for size, is_shared in ((64, True), (32, True), (128, False)):
        for kernel in backward_kernels(shapes_of(8, 2, 1024, 1024, size), causal):
            found = BACKEND.matrix(kernel)
            assert found is not None
            assert (found.value("consumers") == 1) == is_shared
            assert (found.value("shared") <= shared_beside(2)) == is_shared
            assert (tuple(found.value("registers")) == (40, 216)) == is_shared


def kept_kernels(shapes: Sequence[Sequence[int]], **given: Any) -> list[SpecOp]:
    """The kernels of a gradient that keeps the gradients of its scores: by keys and values, and by queries."""
    found = kernels_of(gradients(False), shapes, **given)
    first = next(at for at, one in enumerate(found) if "backward_keys" in one.value("symbol"))
    return found[first : first + 2]


@pytest.mark.parametrize("size", [112, 128])
def test_gradients_of_scores_are_stored_while_dots_are_in_flight(size: int) -> None:
    by_keys, by_queries = kept_kernels(shapes_of(4, 4, 1024, 1024, size))
    found = BACKEND.matrix(by_keys)
    assert found is not None
    (loop,) = steps_of(text_of(found))
    body = loop.split("ttarget.yield")[0]
    before, behind = body.split("ttarget.store_tile")
    assert before.count("ttarget.mma_issue") == 4
    assert behind.count("ttarget.mma_wait") == 2
    assert "matmul" in by_queries.value("symbol")
    assert BACKEND.matrix(by_queries) is not None


@pytest.mark.parametrize("sizes", [(2, 2, 152, 136, 128), (1, 1, 136, 200, 128), (1, 1, 64, 72, 112)])
def test_kept_gradients_of_scores_have_the_values_of_the_formula(sizes: tuple[int, ...]) -> None:
    shapes, rng = shapes_of(*sizes), np.random.default_rng(7)
    q, k, v, given = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    out, lse = map(np.asarray, attention_with_lse_reference(q, k, v))
    delta: Any = (out.astype(np.float32) * given.astype(np.float32)).sum(-1)
    wide_q, wide_k, wide_v, wide_given = (one.astype(np.float64) for one in (q, k, v, given))
    wanted = attention_backward_keys_reference(wide_q, wide_k, wide_v, wide_given, lse, delta)
    kernel = kept_kernels(shapes)[0]
    found = BACKEND.matrix(kernel)
    assert found is not None
    results = [np.full(one.shape, np.nan, ml_dtypes.bfloat16) for one in wanted]
    simulate(found, [q, k, v, given, lse, delta, *results], {})
    for own, one in zip(results, wanted, strict=True):
        assert np.linalg.norm(own.astype(np.float64) - one) <= 3 * EPS * np.linalg.norm(one)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("architecture", "dtype", "size"),
    [("sm_90a", ml_dtypes.bfloat16, 64), ("sm_90a", ml_dtypes.bfloat16, 128), ("sm_90a", np.float32, 64),
     ("sm_80", ml_dtypes.bfloat16, 64)],
)  # fmt: skip
def test_gradients_assemble(architecture: str, dtype: Any, size: int) -> None:
    arrays = [np.zeros(shape, dtype) for shape in shapes_of(4, 2, 300, 300, size)]
    options = Options.of(backend="cuda", features=(architecture,))
    jitted: Any = ts.jit(gradients(True))
    _, *kernels, _ = compile_tape(jitted.trace(*arrays).tape, options).objects
    assert sum(b"attention_backward" in ptx for ptx in kernels) >= 2
    if assembler() is None:
        pytest.skip("there is no ptxas here; PTX was made all the same")
    for ptx in kernels:
        assemble(ptx, architecture)


def test_gradients_of_heads_that_are_filled_up_are_computed_by_threads() -> None:
    """Tensor cores take such heads forward; tiles of gradients are whole heads."""
    assert all(BACKEND.matrix(kernel) is None for kernel in backward_kernels([(2, 4, 128, 40)] * 4, False))
    assert all(BACKEND.matrix(kernel) is not None for kernel in backward_kernels([(2, 4, 128, 48)] * 4, False))
