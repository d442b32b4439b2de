"""Attention of few keys on tensor cores: one block without a loop, several CTAs a multiprocessor, heads in eights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from tessera import bf16
from tessera.backends.nvptx.mma.fit import tile_kernels, units_in
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import BufferAttr
from tessera.ir.target.machine_code import compile_texts
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tests.backends.nvptx.matrices import BACKEND, causal, full, kernels_of, matrix_of, text_of
from tests.graph.eager import reference
from tests.oracles.nvptx_simulator import simulate

ARCHITECTURE = "sm_90a"


def masked(q: Any, k: Any, v: Any, mask: Any) -> Any:
    return ts.ops.attention(q, k, v, mask)


def ptx_of(kernel: SpecOp) -> bytes:
    (found,) = compile_texts([BACKEND.code(kernel).text], BACKEND.code_target)
    return found


def ctas_of(ptx: bytes) -> int:
    """How many CTAs a multiprocessor is to hold."""
    (found,) = re.findall(rb"\.minnctapersm (\d+)", ptx)
    return int(found)


@pytest.mark.parametrize(("keys", "width"), [(1, 16), (16, 16), (77, 80), (128, 128)])
def test_keys_of_one_block_have_no_loop(keys: int, width: int) -> None:
    text = text_of(matrix_of(full, [(2, 2, 40, 64), (2, 2, keys, 64), (2, 2, keys, 64)]))
    assert "ttarget.steps" not in text
    assert f"!ttarget.pending<[64, {width}], f32>" in text
    more = text_of(matrix_of(full, [(2, 2, 40, 64), (2, 2, 129, 64), (2, 2, 129, 64)]))
    assert "ttarget.steps" in more
    assert "!ttarget.pending<[64, 128], f32>" in more


@pytest.mark.parametrize(
    ("keys", "head", "ctas"), [(32, 64, 4), (16, 32, 4), (77, 64, 3), (32, 96, 3), (96, 16, 3), (128, 64, 2)]
)
def test_programs_that_wait_are_beside_others(keys: int, head: int, ctas: int) -> None:
    """As many as registers and two stages of all that is copied allow; barriers that are known take none of others."""
    ptx = ptx_of(matrix_of(full, [(64, 8, 32, head), (64, 8, keys, head), (64, 8, keys, head)]))
    assert ctas_of(ptx) == ctas
    assert not re.search(rb"bar\.sync\s+%", ptx)


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize("function", [full, causal, masked])
@pytest.mark.parametrize(("keys", "head"), [(16, 16), (64, 64), (96, 96), (80, 128), (82, 40), (128, 8), (50, 200)])
def test_few_keys_assemble_without_spilling(function: Any, keys: int, head: int) -> None:
    """Registers of an instruction are among those that threads begin with, which are few of many CTAs."""
    shapes: list[Sequence[int]] = [(8, 4, 64, head), (8, 2, keys, head), (8, 2, keys, head)]
    ptx = ptx_of(matrix_of(function, [*shapes, *([(64, keys)] if function is masked else [])]))
    assert assemble(ptx, ARCHITECTURE).startswith(b"\x7fELF")


@pytest.mark.parametrize("keys", [77, 400])
def test_single_queries_of_a_group_of_heads_are_rows_of_one_program(keys: int) -> None:
    """Keys are copied once for all of them; heads with queries of their own have programs of their own."""
    for queries, heads in ((1, 43), (2, 172)):
        made = matrix_of(full, [(59, 172, queries, 64), (59, 43, keys, 64), (59, 43, keys, 64)])
        assert [dim.value for dim in made.value("grid")] == [59, heads, 1]
        # No more queries are copied than eight, which is the fewest rows of a box.
        assert "box = [1, 1, 8, 64]" in text_of(made)


@pytest.mark.parametrize(
    ("function", "queries", "keys", "head"),
    [(full, 3, 77, 64), (full, 1, 77, 64), (causal, 1, 300, 40), (masked, 1, 90, 64), (causal, 70, 40, 40),
     (causal, 5, 9, 24), (masked, 64, 82, 40), (full, 90, 200, 72), (masked, 33, 30, 64)],
)  # fmt: skip
def test_matrix_kernels_of_few_keys_mean_attention(function: Any, queries: int, keys: int, head: int) -> None:
    """On NumPy, with copies and dots as late as waits let them be; rows that see no key give 0."""
    rng = np.random.default_rng(queries * 1000 + keys)
    shapes = [(2, 4, queries, head), (2, 2, keys, head), (2, 2, keys, head)]
    shapes += [(queries, keys)] if function is masked else []
    given = [rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes]
    made = matrix_of(function, shapes)
    wanted: Any = reference("attention", *given, causal=function is causal)
    buffers: list[Any] = [*given, np.full(wanted.shape, np.nan, ml_dtypes.bfloat16)]
    for at, argument in enumerate(made.regions[0].block.args):
        assert isinstance(argument.type, BufferAttr)
        buffers[at] = buffers[at].reshape([dim.value or 0 for dim in argument.type.shape])
    simulate(made, buffers, {})
    found = buffers[-1].reshape(wanted.shape).astype(np.float32)
    np.testing.assert_allclose(found, wanted.astype(np.float32), rtol=0.05, atol=0.02)


def test_heads_in_eights_are_on_tensor_cores_and_others_are_not() -> None:
    (odd,) = kernels_of(full, [(2, 2, 100, 25)] * 3)
    assert BACKEND.matrix(odd) is None
    text = text_of(matrix_of(full, [(2, 2, 100, 40)] * 3))
    assert "!ttarget.shared_tile<[112, 48], bf16>" in text


def of_any_batch(q: ts.Tensor["B", 2, 30, 64, bf16], k: ts.Tensor["B", 2, 40, 64, bf16]) -> Any:
    return ts.ops.attention(q, k, k)


def test_launches_without_elements_have_no_kernel() -> None:
    """TMA has no descriptor of an empty tensor; a batch of nothing has no programs either, and nothing is launched."""
    options = Options.of(backend="cuda", features=(ARCHITECTURE,))
    given = [np.zeros((3, 2, length, 64), ml_dtypes.bfloat16) for length in (30, 40)]
    lowering = lower(ts.jit(of_any_batch).trace(*given).tape, options, keep_snapshots=("nvptx-prune-fallbacks",))
    text = next(one.text for one in lowering.stages.snapshots if one.name == "nvptx-prune-fallbacks")
    (main,) = tile_kernels(parse_module(text))
    assert units_in(main) is not None
