"""Attention on tensor cores: row sums apart, queries ahead, masks where they count, users' kernels, single queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tessera as ts
from examples.flash_attention import flash as example
from tessera import Schedule
from tessera.backends.nvptx.dialect import DIALECT
from tessera.backends.nvptx.types import FragmentAttr
from tessera.ir.base.dialect_of import load_dialects, make
from tessera.ir.base.op import OpError
from tessera.ir.base.text import parse_module
from tessera.ir.base.types import BufferAttr
from tessera.ir.base.verify import verify
from tessera.ir.target.machine_code import compile_texts
from tessera.ir.tile.interpret import run_kernel
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tessera.types import dtype as dt
from tessera.types.shape import TensorType
from tests.backends.nvptx.matrices import BACKEND, attention_text, causal, full, kernels_of, matrix_of, text_of
from tests.graph.eager import reference
from tests.oracles.nvptx_simulator import simulate

PLAIN = [(2, 2, 512, 128)] * 3


def with_lse(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, causal=True, return_lse=True)


def single(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, split_keys=True)


flash = example.with_schedule(Schedule(block=(128, 128), warps=8))


def by_hand(q: Any, k: Any, v: Any) -> Any:
    return flash(q, k, v, causal=True)


def loops(text: str) -> list[str]:
    """The bodies of loops with dots."""
    return [part for part in text.split("ttarget.steps")[1:] if "ttarget.mma_issue" in part]


@pytest.mark.parametrize("function", [causal, with_lse, by_hand])
def test_row_reductions_are_joined_after_the_loop(function: Any) -> None:
    text = text_of(matrix_of(function, PLAIN))
    assert text.count("ttarget.partial_rows : ") == 1
    assert text.count("ttarget.join_rows") == 1
    for body in loops(text):
        body = body.split("ttarget.join_rows")[0]
        assert body.count("ttarget.grow_rows") == 1
        assert 'kind = "sum"' not in body


def test_kernels_of_users_take_exp2_of_unscaled_scores() -> None:
    """One multiply-add before each power, as in the built-in op: the factor of the scores is inside of it."""
    (mine,) = kernels_of(by_hand, PLAIN)
    assert 'fn = "exp"' in text_of(mine)
    text = text_of(matrix_of(by_hand, PLAIN))
    assert 'fn = "exp"' not in text
    for body in loops(text):
        wide = [
            line for line in body.splitlines() if "fragment<[128, 128], f32>" in line and "ttarget.elementwise" in line
        ]
        names = [line.split('fn = "')[1].split('"')[0] for line in wide]
        assert sorted(names[: names.index("exp2") + 1]) == ["exp2", "fma"]


def test_queries_of_the_next_block_have_a_stage_where_it_fits() -> None:
    text = attention_text()
    first = next(
        line for line in text.splitlines() if "ttarget.shared_tile {" in line or "ttarget.shared_tile " in line
    )
    assert "stages = 2" in first
    rings = [line for line in text.splitlines() if " = ttarget.ring " in line]
    assert [line.count("stages = 2") for line in rings] == [1, 1, 1]


def test_the_mask_of_a_first_step_is_in_a_branch() -> None:
    text = text_of(matrix_of(causal, PLAIN))
    branch = next(part for part in text.split("ttarget.when")[1:] if "ttarget.mma_issue" not in part.split("})")[0])
    assert "ttarget.clip" in branch.split("})")[0]


@pytest.mark.parametrize(("length", "group"), [(1024, 16), (4096, 16), (8192, 8), (16384, 4), (65536, 1)])
def test_heads_that_run_together_have_their_keys_in_the_second_cache(length: int, group: int) -> None:
    """50 MiB: twelve heads of 8192 keys, and powers of two are taken."""
    text = text_of(matrix_of(causal, [(1, 16, length, 128)] * 3))
    assert f"group = {group}, is_descending = true" in text if group > 1 else "group = " not in text


def test_shared_heads_count_once_for_all_that_share_them() -> None:
    text = text_of(matrix_of(causal, [(1, 64, 16384, 128), (1, 8, 16384, 128), (1, 8, 16384, 128)]))
    assert "group = 16, is_descending = true" in text


@pytest.mark.parametrize("keys", [4096, 5000])
def test_single_queries_fill_a_block_with_the_heads_of_a_group(keys: int) -> None:
    parts, join = kernels_of(single, [(2, 16, 1, 128), (2, 2, keys, 128), (2, 2, keys, 128)])
    found = BACKEND.matrix(parts)
    assert found is not None
    assert found.value("consumers") == 1
    assert [dim.value for dim in found.value("grid")] == [2, 2, 1, -(-keys // 512)]
    assert BACKEND.matrix(join) is None
    # Programs take equally long, and nobody hands them out.
    assert "mailbox" not in text_of(found)


def full_in_parts(q: Any, k: Any, v: Any) -> Any:
    return ts.ops.attention(q, k, v, split_keys=True)


@pytest.mark.parametrize(
    ("queries", "batch", "grid"),
    [(5, 1, [1, 2, 1, 8]), (20, 1, [1, 2, 2, 8]), (20, 70, [70, 2, 1]), (1, 200, [200, 2, 1])],
)
def test_few_queries_share_programs_as_heads_of_a_group_do(queries: int, batch: int, grid: Any) -> None:
    """With parts of keys, which are asked for; where whole rows fill the machine one kernel has them."""
    shapes = [(batch, 8, queries, 128), (batch, 2, 4096, 128), (batch, 2, 4096, 128)]
    first, *others = kernels_of(full_in_parts, shapes)
    found = BACKEND.matrix(first)
    assert found is not None
    assert len(others) == (len(grid) == 4)
    assert [dim.value for dim in found.value("grid")] == grid


@pytest.mark.parametrize(
    ("batch", "length", "keys", "rows"),
    [(451, 384, 384, 192), (256, 256, 256, 128), (300, 197, 197, 128), (64, 1024, 1024, 64), (8, 1024, 1024, 64),
     (451, 384, 390, 64), (512, 128, 128, 128)],
)  # fmt: skip
def test_blocks_of_small_heads_are_those_that_are_done_first(batch: int, length: int, keys: int, rows: int) -> None:
    """As measured: rows that are none count, waves are whole, and three warpgroups hold no mask."""
    made = matrix_of(full, [(batch, 16, length, 64), (batch, 16, keys, 64), (batch, 16, keys, 64)])
    assert made.value("grid")[2].value == -(-length // rows)
    (ptx,) = compile_texts([BACKEND.code(made).text], BACKEND.code_target)
    assert assembler() is None or assemble(ptx, "sm_90a").startswith(b"\x7fELF")
    found = matrix_of(causal, [(batch, 16, length, 64)] * 3)
    assert found.value("grid")[2].value == -(-length // 64)


def test_programs_share_the_parts_of_a_head() -> None:
    """One for each multiprocessor has several parts, so that copies run ahead and few are there to find nothing."""
    parts, _ = kernels_of(single, [(1, 64, 1, 128), (1, 8, 32768, 128), (1, 8, 32768, 128)])
    found = BACKEND.matrix(parts)
    assert found is not None
    assert [dim.value for dim in found.value("grid")] == [1, 8, 1, 16]


WRONG = {
    "sums of other rows": ("!ttarget.partial_rows<[64], f32>", "scales sums of threads by a number for each row of"),
    "sums that are not in parts": ("!ttarget.row_vector<[128], f32>", "gives a float for each row"),
    "sums of integers": ("!ttarget.partial_rows<[128], i32>", "gives a float for each row"),
}


@pytest.mark.parametrize("name", list(WRONG))
def test_accumulators_that_do_not_fit_are_refused(name: str) -> None:
    new, message = WRONG[name]
    load_dialects()
    with pytest.raises(OpError) as caught:
        verify(parse_module(attention_text().replace("!ttarget.partial_rows<[128], f32>", new)))
    assert message in str(caught.value)


def test_what_is_joined_is_one_number_for_each_row() -> None:
    load_dialects()
    module = parse_module(attention_text())
    join = next(op for op in module.walk() if op.name == "ttarget.join_rows")
    wrong = make(DIALECT["join_rows"], [join.operands[0]], types=[FragmentAttr.of(TensorType.of([128, 128], dt.f32))])
    assert join.parent is not None
    join.parent.insert_op_after(wrong, join)
    with pytest.raises(OpError, match="joins sums of threads to one for each row"):
        verify(module)


@pytest.mark.parametrize(
    ("function", "queries", "keys", "head"),
    [(with_lse, 130, 300, 128), (with_lse, 200, 70, 64), (by_hand, 129, 260, 128)],
)
def test_matrix_kernels_mean_attention(function: Any, queries: int, keys: int, head: int) -> None:
    """Skewed, masked in part and summed in parts: on NumPy, with copies and dots as late as waits let them be."""
    rng = np.random.default_rng(queries * 1000 + keys)
    shapes = [(2, 2, queries, head), (2, 2, keys, head), (2, 2, keys, head)]
    q, k, v = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes)
    made = matrix_of(function, shapes)
    wanted: Any = reference("attention_with_lse", q, k, v, causal=True)
    outs = [np.full(wanted[0].shape, np.nan, ml_dtypes.bfloat16)]
    outs += [np.full(wanted[1].shape, np.nan, np.float32)] * (function is with_lse)
    buffers: list[Any] = [q, k, v, *outs]
    for at, argument in enumerate(made.regions[0].block.args):
        assert isinstance(argument.type, BufferAttr)
        buffers[at] = buffers[at].reshape([dim.value or 0 for dim in argument.type.shape])
    simulate(made, buffers, {})
    found = buffers[3].reshape(wanted[0].shape).astype(np.float32)
    np.testing.assert_allclose(found, wanted[0].astype(np.float32), rtol=0.05, atol=0.02)
    if function is with_lse:
        np.testing.assert_allclose(buffers[4].reshape(wanted[1].shape), wanted[1], rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(assembler() is None, reason="there is no ptxas here")
@pytest.mark.parametrize("shape", [(300, 300), (333, 200)])
@pytest.mark.parametrize("function", [with_lse, by_hand])
def test_ragged_lengths_assemble_without_spilling(function: Any, shape: Sequence[int]) -> None:
    """The assembler refuses to keep dots in flight where registers run out."""
    queries, keys = shape
    made = matrix_of(function, [(2, 2, queries, 128), (2, 2, keys, 128), (2, 2, keys, 128)])
    (ptx,) = compile_texts([BACKEND.code(made).text], BACKEND.code_target)
    assert b"prefetch.tensormap" in ptx
    assert b"cvta.shared" not in ptx
    assert assemble(ptx, "sm_90a").startswith(b"\x7fELF")


@pytest.mark.parametrize("head", [144, 192, 256])
def test_wide_heads_take_half_as_many_keys_at_a_time(head: int) -> None:
    for function in (causal, with_lse):
        text = text_of(matrix_of(function, [(2, 2, 512, head)] * 3))
        assert f"!ttarget.shared_tile<[64, {head}], bf16>" in text
        assert "consumers = 2" in text


def test_a_block_of_keys_that_a_row_does_not_see_changes_no_bit_of_it() -> None:
    """Of 192 queries the first 128 see none of the last block of keys; in programs of 64 they never meet it."""
    found = set[bytes]()
    for block in (64, 128, 192):
        (kernel,) = kernels_of(with_lse, [(1, 2, 384, 64)] * 3, overrides={"attention.queries": block})
        rng = np.random.default_rng(3)
        arrays = [rng.standard_normal((1, 2, 384, 64)).astype(ml_dtypes.bfloat16) for _ in range(3)]
        out, lse = np.full((1, 2, 384, 64), np.nan, ml_dtypes.bfloat16), np.full((1, 2, 384), np.nan, np.float32)
        run_kernel(kernel, [*arrays, out, lse], {})
        found.add(out.tobytes() + lse.tobytes())
    assert len(found) == 1
