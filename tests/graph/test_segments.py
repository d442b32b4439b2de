"""Segments of K: which contractions have several, that all of them follow the recipe, and that nothing changes it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera.backends.nvptx.tensor_cores import GPUS
from tessera.ir.graph.ops.contraction import matmul_reference
from tessera.ir.graph.ops.segments import MOST_SEGMENTS, SHORTEST, UNIT, join_segments, segment_length
from tessera.types.dim import Dim
from tests.oracles.schedule_interpreter import run_program
from tests.schedule.programs import run_schedule, simplify

KNOWN: dict[tuple[int, int], int | None] = {
    (32768, 512): 4096,
    (8192, 768): 2816,
    (8192, 1): 1024,
    (1 << 20, 1): 8192,
    (50257, 768): 16896,
    (3072, 768): None,
    (4096, 1024): None,
    (14336, 4096): None,
    (8192, 8192): None,
    (2047, 1): None,
    (0, 5): None,
    (65536, 1100): None,
    (8192, 1040): 4096,
    (6239, 1040): None,
    (8192, 1041): None,
}
"""K and columns, and how long a segment is: products of ordinary layers have one."""


@pytest.mark.parametrize(("sizes", "length"), KNOWN.items(), ids=str)
def test_the_length_of_segments(sizes: tuple[int, int], length: int | None) -> None:
    found = segment_length(*map(Dim.of, sizes))
    assert (None if found is None else found.value) == length


def test_symbolic_sizes_have_the_segments_of_static_ones() -> None:
    rng = np.random.default_rng(3)
    symbolic = segment_length(Dim.symbol("K"), Dim.symbol("N"))
    assert symbolic is not None
    drawn = [(int(2 ** rng.uniform(0, 20)), int(2 ** rng.uniform(0, 13))) for _ in range(200)]
    # Where a result is just too wide for two segments, a quotient that is rounded down decides.
    drawn += [(k, n) for n in range(1030, 1050) for k in (6 * n - 1, 6 * n, 8192, 10000, 1 << 20)]
    for k, n in drawn:
        known, length = segment_length(Dim.of(k), Dim.of(n)), symbolic.evaluate({"K": k, "N": n})
        assert length % UNIT == 0
        assert -(-k // length) == (1 if known is None else -(-k // (known.value or 1)))
        assert known is None or (length == known.value and length >= SHORTEST and -(-k // length) <= MOST_SEGMENTS)


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    made = rng.standard_normal(shape) * (1 if np.dtype(dtype).kind != "i" else 40)
    return made.astype(dtype)


def _wanted(a: Any, b: Any, **more: Any) -> Any:
    length = segment_length(Dim.of(a.shape[-1]), Dim.of(b.shape[1] if b.ndim > 1 else 1))
    return matmul_reference(a, b, segment=None if length is None else length.value, **more)


SHAPES = [(5, 4096, 8), (33, 5001, 100), (1, 3000, 1), (3, 20000, 64)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bits_are_those_of_the_recipe(shape: tuple[int, int, int]) -> None:
    """Static and symbolic, eager, as an einsum and as an interpreted program."""
    rng, (m, k, n) = np.random.default_rng(sum(shape)), shape
    a, b = _draw(rng, (m, k), np.float32), _draw(rng, (k, n), np.float32)
    wanted = _wanted(a, b)
    assert np.abs(wanted - a.astype(np.float64) @ b.astype(np.float64)).max() < 1e-5 * k**0.5 * 8
    assert np.asarray(ts.jit(ts.ops.matmul)(a, b)).tobytes() == wanted.tobytes()
    assert np.asarray(ts.ops.matmul(a, b)).tobytes() == wanted.tobytes()
    assert np.asarray(_symbolic(a, b)).tobytes() == wanted.tobytes()
    assert np.asarray(ts.ops.einsum("mk,kn->mn", a, b)).tobytes() == wanted.tobytes()
    bias = _draw(rng, (n,), np.float32)
    assert np.asarray(ts.jit(_layer)(a, b, bias)).tobytes() == np.maximum(wanted + bias, 0).tobytes()


@pytest.mark.parametrize("k", [100, pytest.param(2050, marks=pytest.mark.slow)])
def test_a_host_program_decides_by_the_size_of_k(k: int) -> None:
    """The tile kernels of a GPU, interpreted: one kernel where K is short, segments and their join where it is long."""
    rng = np.random.default_rng(k)
    a, b = _draw(rng, (1, k), np.float32), _draw(rng, (k, 1), np.float32)
    module = run_schedule(simplify(_symbolic.trace(a, b).tape), machine=GPUS["sm_90a"])
    (found,) = run_program(module, a, b)
    assert found.tobytes() == _wanted(a, b).tobytes()


def _layer(a: Any, b: Any, c: Any) -> Any:
    return ts.ops.relu(ts.ops.matmul(a, b) + c)


def _free(a: ts.Tensor["M", "K"], b: ts.Tensor["K", "N"]):
    return ts.ops.matmul(a, b)


_symbolic = ts.jit(_free)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.float64, np.int8, np.int32], ids=str)
def test_partial_results_are_in_the_accumulator(dtype: Any) -> None:
    rng = np.random.default_rng(1)
    a, b = _draw(rng, (6, 5000), dtype), _draw(rng, (5000, 17), dtype)
    found, wanted = np.asarray(ts.jit(ts.ops.matmul)(a, b)), _wanted(a, b)
    if dtype is np.float64:  # its reference has NumPy's order
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-11)
    else:
        assert found.tobytes() == wanted.tobytes()


def test_a_row_alone_is_the_row_of_a_batch_whoever_batches() -> None:
    rng = np.random.default_rng(2)
    a, b = _draw(rng, (3, 4, 6000), np.float32), _draw(rng, (6000, 9), np.float32)
    whole = np.asarray(ts.jit(ts.ops.matmul)(a, b))
    assert np.asarray(ts.jit(ts.ops.matmul)(a[1, 2:3], b)).tobytes() == whole[1, 2:3].tobytes()
    assert np.asarray(ts.jit(ts.ops.matmul)(a[1, 2], b)).tobytes() == whole[1, 2].tobytes()
    assert np.asarray(ts.jit(ts.vmap(ts.ops.matmul, in_axes=(0, None)))(a, b)).tobytes() == whole.tobytes()
    columns = _draw(rng, (300, 6000, 9), np.float32)
    # The batch is 2700 columns of one product, which has the segments that 9 columns have.
    many = np.asarray(ts.jit(ts.vmap(_contract, in_axes=(None, 0)))(a[0], columns))
    assert many[7].tobytes() == np.asarray(ts.jit(_contract)(a[0], columns[7])).tobytes()


def _contract(x: Any, w: Any) -> Any:
    return ts.ops.dot_general(x, w, contract=((1,), (0,)))


def _total(w: Any, x: Any) -> Any:
    return ts.ops.sum(ts.ops.matmul(x, w))


def test_derivatives_have_segments_of_their_own_sizes() -> None:
    rng = np.random.default_rng(4)
    x, w = _draw(rng, (4096, 12), np.float32), _draw(rng, (12, 7), np.float32)
    made = np.asarray(ts.jit(ts.grad(_total, argnums=0))(w, x))
    assert made.tobytes() == _wanted(np.ascontiguousarray(x.T), np.ones((4096, 7), np.float32)).tobytes()


def test_a_debug_build_has_the_same_bits() -> None:
    """Its verifier compares what the segments of a target kernel touch with those of the tile kernel."""
    rng = np.random.default_rng(6)
    a, b = _draw(rng, (3, 5000), np.float32), _draw(rng, (5000, 6), np.float32)
    assert np.asarray(ts.jit(ts.ops.matmul, debug=True)(a, b)).tobytes() == _wanted(a, b).tobytes()
    assert np.asarray(ts.jit(_free, debug=True)(a, b)).tobytes() == _wanted(a, b).tobytes()


def test_a_policy_and_a_promised_epilogue_keep_segments() -> None:
    rng = np.random.default_rng(5)
    a, b = _draw(rng, (3, 5000), np.float32), _draw(rng, (5000, 6), np.float32)
    with ts.policy(storage=ts.bf16, accumulate=ts.f32):
        found = np.asarray(ts.jit(ts.ops.matmul)(a, b))
    rounded = (a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16))
    assert found.tobytes() == _wanted(*rounded).astype(found.dtype).tobytes()


def test_a_rewrite_hands_segments_on() -> None:
    """The attribute is in the program that was traced, whatever is made of it."""
    tape = ts.jit(ts.ops.matmul).trace(np.zeros((4, 8192), np.float32), np.zeros((8192, 512), np.float32)).tape
    (record,) = [one for one in tape.records if one.op == "tgraph.matmul"]
    assert record.attributes["segment"] == Dim.of(1792)
    tape = ts.jit(ts.ops.matmul).trace(np.zeros((4, 512), np.float32), np.zeros((512, 512), np.float32)).tape
    (record,) = tape.records
    assert record.attributes["segment"] is None


def test_the_tree_is_aligned() -> None:
    """Any aligned run of a power of two is a node of it, so that it can be computed elsewhere."""
    for count in range(1, 70):
        made = join_segments([(number,) for number in range(count)], lambda x, y: (x, y))
        assert _leaves(made) == list(range(count))
        _check_aligned(made)


def _leaves(node: Any) -> list[int]:
    return [node[0]] if isinstance(node[0], int) else [*_leaves(node[0]), *_leaves(node[1])]


def _check_aligned(node: Any) -> None:
    if isinstance(node[0], int):
        return
    left, right = map(_leaves, node)
    assert len(left) & (len(left) - 1) == 0
    assert left[0] % (2 * len(left)) == 0
    assert len(right) <= len(left)
    for part in node:
        _check_aligned(part)
