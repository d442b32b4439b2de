"""Tensors on their way: the movement is in the program at every level and in `explain`, and changes no result."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportArgumentType=false, reportUnknownArgumentType=false
from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, f32, kernel, tile
from tessera.backends.nvptx.compile import NvptxCode
from tessera.compiler.compile import lower
from tessera.compiler.options import Options
from tessera.compiler.report import movements_of
from tessera.diagnostics.codes import ArgumentError
from tessera.ir.target.machine_code import compile_text
from tessera.runtime.devices.cuda.assembler import assemble, assembler
from tests.oracles.nvptx_backend import NvptxBackend

GPU = NvptxBackend()
W = ts.array(np.arange(32, dtype=np.float32).reshape(8, 4))
X, V = np.ones((3, 8), np.float32), np.arange(4, dtype=np.float32)


@ts.jit
def near(x: Any, v: Any) -> Any:
    with ts.prefetch((v, W)):
        y = x @ W + v
    return y * v


@ts.jit
def plain(x: Any, v: Any) -> Any:
    return (x @ W + v) * v


def test_the_movement_is_in_the_program_at_every_level() -> None:
    text = near.lower(X, V)
    assert text.graph.count("tgraph.prefetch") == 2
    assert text.schedule.count('{space = "shared"}') == 4  # of the plan, and of the host program
    told = [line for line in text.tile.splitlines() if 'hints = {space = "shared"}' in line]
    assert len(told) == 2
    assert "prefetch = 1" in text.tile
    # The block ends before `* v`, whose load is told nothing.
    assert sum("ttile.load" in line for line in text.tile.splitlines()) == 4
    np.testing.assert_array_equal(np.asarray(near(X, V)), np.asarray(plain(X, V)))


def test_explain_lists_what_moves_where_for_whom_and_from_which_line() -> None:
    near(X, V)
    first, second = near.explain(X, V).report["movements"]
    assert first.startswith("`captured_0` [8, 4] f32 to shared for matmul_add_mul")
    assert second.startswith("`v` [4] f32 to shared for matmul_add_mul")
    assert "test_prefetch.py" in first
    assert "movements:" in str(near.explain(X, V))
    plain(X, V)
    assert "movements" not in plain.explain(X, V).report


def test_on_a_gpu_tma_moves_it() -> None:
    def multiply(x: Any, w: Any) -> Any:
        with ts.prefetch(w, into="smem", overlap="compute"):
            return x @ w

    narrow = np.ones((512, 512), ml_dtypes.bfloat16)
    words = "blocks ahead of their use"
    for machine, stages, how in (
        ("sm_90a", {}, f"by the TMA, in 8 buffers, {words}, as without `prefetch`"),
        ("sm_90a", {"pipeline.stages": 1}, f"by the TMA, in 2 buffers, {words}"),
        ("sm_80", {}, f"by asynchronous copies (cp.async), in 4 buffers, {words}, as without `prefetch`"),
    ):
        options = Options.of(backend="cuda", features=(machine,), overrides=stages)
        made = lower(ts.jit(multiply).trace(narrow, narrow).tape, options)
        (line,) = movements_of(made.program, made.code.targets)
        assert line.startswith("`w` [512, 512] bf16 to shared for matmul")
        assert line.partition(" at ")[0].endswith(f"beside compute: {how}")


def test_on_a_cpu_loads_ask_for_cache_lines_ahead() -> None:
    def program(x: Any, w: Any, *, prefetched: bool) -> Any:
        if not prefetched:
            return ts.ops.softmax(x + w)
        with ts.prefetch(w, into="smem", overlap="compute"):
            return ts.ops.softmax(x + w)

    jitted = ts.jit(program)
    for shape in ((1, 1), (3, 17), (37, 300)):
        x, w = (np.random.default_rng(seed).normal(size=shape).astype(np.float32) for seed in (1, 2))
        texts = [jitted.lower(x, w, prefetched=prefetched) for prefetched in (True, False)]
        counts = [text.llvm.count("call void @llvm.prefetch.p0(") for text in texts]
        assert counts[1] == 0
        assert counts[0] > 0 or shape == (1, 1)
        assert ("prefetch = 512" in texts[0].target) == (counts[0] > 0)
        found = [np.asarray(jitted(x, w, prefetched=prefetched)) for prefetched in (True, False)]
        np.testing.assert_array_equal(*found)
    (line,) = jitted.explain(x, w, prefetched=True).report["movements"]
    assert "by prefetch instructions, 512 bytes ahead of its loads" in line
    (packed, *_) = near.explain(X, V).report["movements"]
    assert "as without `prefetch`" in packed


def test_a_kernel_of_a_user_asks_for_cache_lines_of_what_it_reads_in_a_loop() -> None:
    @kernel
    def sums(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        total = tile.zeros((T.m,))
        for k in tile.range_k(x.shape, T.k):
            total += tile.sum(tile.load(x, T.m, k), 1)
        return total

    @ts.jit
    def program(x: Any) -> Any:
        with ts.prefetch(x):
            return sums(x)

    x = np.random.default_rng(4).normal(size=(9, 333)).astype(np.float32)
    assert "call void @llvm.prefetch.p0(" in program.lower(x).llvm
    np.testing.assert_array_equal(np.asarray(program(x)), np.asarray(sums(x)))


def test_on_a_gpu_one_buffer_becomes_two_where_something_is_prefetched() -> None:
    def multiply(x: Any, w: Any, *, prefetched: bool) -> Any:
        if not prefetched:
            return x @ w
        with ts.prefetch(w, into="smem", overlap="compute"):
            return x @ w

    narrow = np.ones((512, 512), ml_dtypes.bfloat16)
    found: list[set[str]] = []
    for prefetched in (False, True):
        traced = ts.jit(multiply).trace(narrow, narrow, prefetched=prefetched)
        made = lower(traced.tape, Options.of(backend="cuda", features=("sm_90a",), overrides={"pipeline.stages": 1}))
        assert isinstance(made.code, NvptxCode)
        found.append(set(re.findall(r"stages = \d", "".join(map(str, made.code.targets)))))
        for code in made.code.codes:
            text = compile_text(code.text, GPU.code_target)
            assert b"cp.async.bulk.tensor" in text  # the TMA
            if assembler() is not None:
                assemble(text, "sm_90a")
    assert "stages = 1" in found[0]
    assert found[1] == {"stages = 2"}


def test_kernels_with_and_without_are_one_code_for_a_gpu() -> None:
    def attend(q: Any, cache: Any, *, prefetched: bool) -> Any:
        if not prefetched:
            return ts.ops.attention(q, cache.K, cache.V)
        with ts.prefetch(cache):
            return ts.ops.attention(q, cache.K, cache.V)

    q, cache = ts.array(np.zeros((1, 2, 64, 64), ml_dtypes.bfloat16)), ts.KVCache.empty(1, 2, 64, 64, ts.bf16)
    jitted = ts.jit(attend, backend="cuda")
    texts = [jitted.lower(q, cache, prefetched=prefetched) for prefetched in (True, False)]
    assert texts[0].target == texts[1].target
    assert 'hints = {space = "shared"}' in texts[0].tile
    assert 'hints = {space = "shared"}' not in texts[1].tile


def test_a_kernel_of_a_user_reads_what_is_prefetched() -> None:
    @kernel
    def double(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return tile.load(x, T.m, T.n) * 2.0

    @ts.jit
    def program(x: Any) -> Any:
        with ts.prefetch({"x": x}) as there:
            return double(x) + there["x"]

    np.testing.assert_array_equal(np.asarray(program(X)), 3.0)
    assert 'hints = {space = "shared"}' in program.lower(X).tile


def test_eagerly_nothing_moves() -> None:
    with ts.prefetch(W) as there:
        assert there is W
    with pytest.raises(ArgumentError, match="takes a tensor, a KVCache or a container of tensors, got str"):
        ts.prefetch("x").__enter__()


FORMS: list[Any] = [
    lambda x, w, v: x @ w + v,
    lambda x, w, v: ts.ops.softmax(x @ w) * v,
    lambda x, w, v: (w.T * 2.0).sum(axis=1) + v,
    lambda x, w, v: w.reshape(4, 8) @ x.T + v[:, None],
]


@settings(max_examples=12)
@given(form=st.sampled_from(range(len(FORMS))), which=st.sets(st.sampled_from("xwv")))
def test_results_are_the_same_bit_for_bit(form: int, which: set[str]) -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        given = {"x": x, "w": w, "v": v}
        with ts.prefetch({name: given[name] for name in which} or x):
            return FORMS[form](x, w, v)

    rng = np.random.default_rng(3)
    operands = [rng.normal(size=shape).astype(np.float32) for shape in ((3, 8), (8, 4), (4,))]
    wanted = ts.jit(FORMS[form], backend="reference")(*operands)
    found = ts.jit(program, backend="reference")(*operands)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))
    made = [lower(ts.jit(one).trace(*operands).tape, Options()) for one in (program, FORMS[form])]
    assert len(made[0].kernels) == len(made[1].kernels)


@pytest.mark.parametrize("form", range(len(FORMS)))
def test_compiled_code_keeps_its_bits(form: int) -> None:
    def program(x: Any, w: Any, v: Any) -> Any:
        with ts.prefetch((x, w, v)):
            return FORMS[form](x, w, v)

    rng = np.random.default_rng(4)
    operands = [rng.normal(size=shape).astype(np.float32) for shape in ((3, 8), (8, 4), (4,))]
    found, wanted = (np.asarray(ts.jit(one)(*operands)) for one in (program, FORMS[form]))
    assert found.tobytes() == wanted.tobytes()
