"""No result of a kernel depends on its block sizes: such kernels are refused, and marked ones keep their blocks."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera as ts
from tessera import KTile, Schedule, Tensor, f32, i32, kernel, tile
from tessera.diagnostics.codes import BlockValueError, GuardError, KernelError, ScheduleError
from tests.kernel.compare import arrays

INF = float("inf")
RNG = np.random.default_rng(9)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


@kernel
def row_sums(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    total = tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        total += tile.sum(tile.load(x, T.m, k), 1)
    return total


@kernel
def lane_sums(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    lanes = tile.zeros((T.m, T.k))
    for k in tile.range_k(x.shape, T.k):
        lanes += tile.load(x, T.m, k)
    return tile.sum(lanes, 1)


@kernel
def row_max(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    top = tile.full((T.m,), -INF)
    for k in tile.range_k(x.shape, T.k):
        top = tile.maximum(top, tile.max(tile.load(x, T.m, k), 1))
    return top


@kernel
def log_sum_exp(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    top, total = tile.full((T.m,), -INF), tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        block = tile.load(x, T.m, k, pad=-INF)
        new = tile.maximum(top, tile.max(block, 1))
        total = total * tile.exp(top - new) + tile.sum(tile.exp(block - new[:, None]), 1)
        top = new
    return top + tile.log(total)


@kernel
def variance(x: KTile["M", "N", f32], out: KTile["M", "N", f32]) -> None:
    T = tile.context()
    total, squares = tile.zeros((T.m,)), tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        block = tile.load(x, T.m, k)
        total, squares = total + tile.sum(block, 1), squares + tile.sum(block * block, 1)
    mean = total / x.shape[1]
    scale = tile.rsqrt(squares / x.shape[1] - mean * mean + 1e-3)
    for k in tile.range_k(x.shape, T.k):
        tile.store(out, (tile.load(x, T.m, k) - mean[:, None]) * scale[:, None], T.m, k)


@kernel
def causal_sums(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    total = tile.zeros((T.m,))
    for k in tile.steps(T.m.start + T.m, by=T.k):
        kept = tile.where(tile.col_index(k)[None, :] <= tile.row_index()[:, None], tile.load(x, T.m, k), 0.0)
        total += tile.sum(kept, 1)
    return total


@kernel
def product(x: KTile["M", "N", f32], y: KTile["N", "M", f32]) -> Any:
    T = tile.context()
    acc = tile.zeros((T.m, T.n))
    for k in tile.range_k(x.shape, T.k):
        acc += tile.dot(tile.load(x, T.m, k), tile.load(y, k, T.n))
    return acc


@kernel
def atomic_sums(x: KTile["M", "N", i32], out: KTile["M", i32]) -> None:
    T = tile.context()
    tile.atomic_add(out, tile.sum(tile.load(x, T.m, T.n), 1), T.m)


@kernel
def neighbours(x: KTile["M", "N", f32], out: KTile["M", "N", f32]) -> None:
    T = tile.context()
    left = tile.load(x, T.m, slice(T.n.start - 1, T.n.start + T.n - 1))
    tile.store(out, left + tile.load(x, T.m, T.n) * tile.cast(tile.col_index(), f32)[None, :], T.m, T.n)


@kernel
def scanned(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.scan(tile.load(x, T.m, T.d)) - tile.max(tile.load(x, T.m, T.d), 1)[:, None]


EXACT = {"row_max": row_max, "product": product, "neighbours": neighbours, "scanned": scanned}
"""Kernels whose bits no block changes."""
ROUNDED = {"row_sums": row_sums, "lane_sums": lane_sums, "log_sum_exp": log_sum_exp, "variance": variance}
ROUNDED["causal_sums"] = causal_sums
"""Kernels that sum floats over blocks: the order of the sum is that of their blocks, and a search keeps those."""


@settings(max_examples=6, deadline=None)
@given(rows=st.integers(1, 40), columns=st.integers(2, 150), seed=st.integers(0, 99), data=st.data())
def test_kernels_that_pass_give_one_result_for_all_blocks(rows: int, columns: int, seed: int, data: Any) -> None:
    x = np.random.default_rng(seed).normal(size=(rows, columns)).astype(np.float32)
    name = data.draw(st.sampled_from([*EXACT, *ROUNDED, "atomic_sums"]))
    given = (x, np.ascontiguousarray(x.T)) if name == "product" else (x,)
    one: Any = {**EXACT, **ROUNDED, "atomic_sums": atomic_sums}[name]
    if name == "atomic_sums":
        given = ((x * 100).astype(np.int32),)
    found: list[Any] = []
    for _ in range(3):
        block = [data.draw(st.sampled_from([4, 8, 16, 48, 64, 200])) for _ in range(3)]
        found.append(arrays(one.with_schedule(Schedule(block=tuple(block))).run_tiles(*given))[0])
    # Two orders of a sum of n floats differ by n rounding errors of the sum of their magnitudes at most.
    bound = 2 * columns * 2.0**-24 * (1 + np.abs(x).sum(1, keepdims=True).max())
    for other in found[1:]:
        if name in ROUNDED:
            np.testing.assert_allclose(
                other, found[0], rtol=columns * 2.0**-22, atol=bound * (100 if name == "variance" else 1)
            )
        else:
            np.testing.assert_array_equal(other, found[0])


def test_sums_over_blocks_keep_their_block_in_a_search_and_exact_reductions_do_not() -> None:
    x = normal(9, 300)
    for one in ROUNDED.values():
        assert one.program(x).numeric == ("k",)
    assert row_max.program(x).numeric == product.program(x, np.ascontiguousarray(x.T)).numeric == ()
    assert one_row_softmax.program(x).numeric == ()


@kernel
def one_row_softmax(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.softmax(tile.load(x, T.m, T.d))


def refused(body: Any, *operands: Any) -> BlockValueError:
    """The error of a kernel whose result depends on blocks; it is at the line of the kernel."""
    made = kernel(body).with_schedule(Schedule(block=(4, 64, 32)))
    with pytest.raises(BlockValueError) as raised:
        made.program(*(operands or (normal(7, 300),)))
    with pytest.raises((BlockValueError, GuardError)):
        made(*(operands or (normal(7, 300),)))
    assert raised.value.span is not None
    assert raised.value.span.file == __file__
    assert raised.value.fix
    return raised.value


def test_a_sum_of_one_block_of_columns_is_refused_at_its_line_with_its_numbers() -> None:
    def normalized(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        v = tile.load(x, T.m, T.n)
        return v / tile.sum(v, 1)[:, None]

    error = refused(normalized)
    assert "`sum` is of one block of 64 of 300 elements (`n`) alone" in error.message
    assert error.span is not None
    assert "tile.sum(v, 1)" in error.span.source_line
    made = kernel(normalized)
    x = normal(7, 40)
    np.testing.assert_allclose(arrays(made(x))[0], x / x.sum(1, keepdims=True), rtol=1e-4)  # one block holds all of it
    with pytest.raises(BlockValueError, match="one block of 256 of 700 elements"):
        made(normal(7, 700))
    with pytest.raises(GuardError, match="must be at most 256"):
        ts.jit(made.record_op, dynamic=True)(normal(7, 700))


REFUSED: dict[str, Any] = {}


def refuse(body: Any) -> Any:
    REFUSED[body.__name__] = body
    return body


@refuse
def of_rows(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    v = tile.load(x, T.m, T.n)
    return v - tile.max(v, 0)[None, :]


@refuse
def softmax_of_a_block(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.softmax(tile.load(x, T.m, T.n))


@refuse
def scan_of_a_block(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.scan(tile.load(x, T.m, T.n))


@refuse
def squared_sums(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    total = tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        part = tile.sum(tile.load(x, T.m, k), 1)
        total += part * part
    return total


@refuse
def last_block(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    total = tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        total = tile.sum(tile.load(x, T.m, k), 1)
    return total


@refuse
def counted_blocks(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    total = tile.load(x, T.m, 0)
    for _ in tile.range_k(x.shape, T.k):
        total += 1.0
    return total


@refuse
def sums_reduced_by_max(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    lanes = tile.zeros((T.m, T.k))
    for k in tile.range_k(x.shape, T.k):
        lanes += tile.load(x, T.m, k)
    return tile.max(lanes, 1)


@refuse
def unscaled_weights(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    top, total = tile.full((T.m,), -INF), tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        block = tile.load(x, T.m, k, pad=-INF)
        new = tile.maximum(top, tile.max(block, 1))
        total += tile.sum(tile.exp(block - new[:, None]), 1)
        top = new
    return top + tile.log(total)


@refuse
def weights_scaled_too_far(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    top, total = tile.full((T.m,), -INF), tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        block = tile.load(x, T.m, k, pad=-INF)
        new = tile.maximum(top, tile.max(block, 1))
        total = total * tile.exp(top - new + 0.5) + tile.sum(tile.exp(block - new[:, None]), 1)
        top = new
    return top + tile.log(total)


@refuse
def running_sums(x: KTile["M", "N", f32], out: KTile["M", "N", f32]) -> None:
    T = tile.context()
    total = tile.zeros((T.m,))
    for k in tile.range_k(x.shape, T.k):
        block = tile.load(x, T.m, k)
        tile.store(out, block + total[:, None], T.m, k)
        total += tile.sum(block, 1)


@refuse
def unmasked_end(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    total = tile.zeros((T.m,))
    for k in tile.steps(T.m.start + T.m, by=T.k):
        total += tile.sum(tile.load(x, T.m, k), 1)
    return total


@refuse
def first_of_block(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, T.n) - tile.load(x, T.m, T.n.start)[:, None]


@refuse
def start_as_number(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, T.n) * T.n.start


@refuse
def size_as_number(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, T.n) * (1.0 / float(T.n))


@refuse
def shape_as_number(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    v = tile.load(x, T.m, T.n)
    return v * v.shape[1]


@refuse
def warps_as_number(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, T.n) * T.warps


@refuse
def first_columns(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.sum(tile.load(x, T.m, slice(0, T.n)), 1)


@refuse
def sum_of_ones(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, 0) + tile.sum(tile.full((T.m, T.n), 1.0), 1)


@refuse
def squared_atomics(x: KTile["M", "N", f32], out: KTile["M", f32]) -> None:
    T = tile.context()
    part = tile.sum(tile.load(x, T.m, T.n), 1)
    tile.atomic_add(out, part * part, T.m)


@refuse
def counted_programs(x: KTile["M", "N", f32], out: KTile["M", f32]) -> None:
    T = tile.context()
    tile.atomic_add(out, tile.sum(tile.load(x, T.m, T.n), 1), T.m)
    tile.atomic_add(out, tile.full((T.m,), 1.0), T.m)


@refuse
def reversed_blocks(x: KTile["M", 320, f32]) -> Any:
    T = tile.context()
    return tile.load(x, T.m, T.n) + tile.load(x, T.m, slice(320 - T.n.start - T.n, 320 - T.n.start))


@pytest.mark.parametrize("name", REFUSED)
def test_results_that_depend_on_blocks_are_refused(name: str) -> None:
    refused(REFUSED[name], *([normal(7, 320)] if name == "reversed_blocks" else []))


def test_a_dot_of_one_block_along_k_and_what_is_no_accumulation_are_refused() -> None:
    def last(x: KTile["M", "K", f32], y: KTile["K", "N", f32]) -> Any:
        T = tile.context()
        acc = tile.zeros((T.m, T.n))
        for k in tile.range_k(x.shape, T.k):
            acc = tile.dot(tile.load(x, T.m, k), tile.load(y, k, T.n))
        return acc

    def clamped(x: KTile["M", "K", f32], y: KTile["K", "N", f32]) -> Any:
        T = tile.context()
        acc = tile.zeros((T.m, T.n))
        for k in tile.range_k(x.shape, T.k):
            acc = tile.relu(acc + tile.dot(tile.load(x, T.m, k), tile.load(y, k, T.n)))
        return acc

    for body in (last, clamped):
        assert "one block of 32 of 300 elements (`k`)" in refused(body, normal(7, 300), normal(300, 9)).message


def test_scales_of_groups_that_blocks_do_not_divide_are_refused() -> None:
    def scaled(a: KTile["M", "K", f32], s: KTile["M", "G", f32], b: KTile["K", "N", f32]) -> Any:
        T = tile.context()
        acc = tile.zeros((T.m, T.n))
        for k in tile.range_k(a.shape, T.k):
            part = tile.dot(tile.load(a, T.m, k), tile.load(b, k, T.n))
            acc += part * tile.load(s, T.m, k.start // 64)[:, None]
        return acc

    operands = normal(5, 256), normal(5, 4), normal(256, 6)
    made = kernel(scaled)
    expected = (operands[0] * np.repeat(operands[1], 64, 1)) @ operands[2]
    for k in (16, 32, 64):
        one = made.with_schedule(Schedule(block=(4, 16, k)))
        assert one.program(*operands).numeric == ("k",)
        np.testing.assert_allclose(arrays(one(*operands))[0], expected, rtol=1e-4, atol=1e-4)
    for k in (48, 128):
        with pytest.raises(BlockValueError, match=f"one block of {k} of 256"):
            made.with_schedule(Schedule(block=(4, 16, k))).program(*operands)


@kernel
def shifted_by_blocks(x: KTile["M", "N", f32], rows: KTile["M", f32]) -> None:
    """The largest element with the sum of its own block added, over all blocks."""
    T = tile.context()
    v = tile.load(x, T.m, T.n)
    tile.atomic_max(rows, tile.max(v + tile.sum(v, 1)[:, None], 1), T.m)


def test_an_atomic_does_not_make_good_a_shift_by_each_block() -> None:
    with pytest.raises(BlockValueError, match="depends on its size"):
        shifted_by_blocks.with_schedule(Schedule(block=(4, 16))).program(normal(5, 64))


@kernel
def block_norms(x: KTile["M", "N", f32], out: KTile["M", "G", f32], *, G: int) -> None:
    """The largest of each group of columns; a group is a block."""
    T = tile.context()
    tile.store(out, tile.max(tile.abs(tile.load(x, T.m, T.n)), 1, scope="block"), T.m, T.n.start // T.n)


def test_a_marked_reduction_is_of_each_block_and_fixes_the_block() -> None:
    x = normal(6, 128)
    for n in (32, 64):
        one = block_norms.with_schedule(Schedule(block=(4, n)))
        found = [arrays(run(x, G=128 // n))[0] for run in (one, one.interpret, one.run_tiles)]
        for result in found:
            np.testing.assert_array_equal(result, np.abs(x).reshape(6, -1, n).max(2))
        program = one.program(x, G=128 // n)
        assert program.numeric == program.fixed == ("n",)
    with pytest.raises(ScheduleError, match="no schedule gives `BN`"):
        block_norms(x, G=4)


def test_a_search_never_varies_a_fixed_block() -> None:
    @kernel.autotune(space={"BM": [4, 8], "BN": [64, 32, 16]}, budget_ms=20)
    def normalized(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        v = tile.load(x, T.m, T.n)
        return v / tile.sum(v, 1, scope="block")[:, None]

    x = np.abs(normal(20, 128)) + 1
    groups = x.reshape(20, 2, 64)
    np.testing.assert_allclose(
        arrays(normalized(x))[0].reshape(20, 2, 64), groups / groups.sum(2, keepdims=True), rtol=1e-5
    )
    assert normalized.tuning is not None
    assert normalized.tuning.pinned == ("n",)
    assert {schedule.n for schedule, _ in normalized.tuning.trials} == {64}


def test_a_search_drops_blocks_that_do_not_hold_a_row() -> None:
    @kernel.autotune(space={"BM": [4], "BN": [32, 128]}, budget_ms=20)
    def normalized(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        v = tile.load(x, T.m, T.n)
        return v / tile.sum(v, 1)[:, None]

    x = np.abs(normal(20, 100)) + 1
    np.testing.assert_allclose(arrays(normalized(x))[0], x / x.sum(1, keepdims=True), rtol=1e-5)
    assert normalized.tuning is not None
    assert any("one block of 32 of 100" in why for _, why in normalized.tuning.dropped)


DECISIONS = {
    "if_expression": "return v if T.n > 40 else v * 2",
    "if": "if T.n // 64:\n        v = v * 2\n    return v",
    "not": "return v if not T.n // 64 else v * 2",
    "and": "return v if T.n // 64 and True else v * 2",
    "equal": "return v if 32 == T.n else v * 2",
    "in": "return v if T.n in (32, 16) else v * 2",
    "shapes": "return v if v.shape == (4, 32) else v * 2",
    "loop": "for i in range(T.n // 16):\n        v = v + 1.0\n    return v",
    "length": "return v * len(range(T.n))",
    "item": "return v * [1.0, 2.0, 3.0][T.n // 64]",
    "items": "return v * len([1.0, 2.0, 3.0][: T.n // 32])",
    "key": "return v * TABLE[T.n]",
    "repeated": "return v * len([1.0] * T.n)",
    "bool": "return v * float(bool(T.n // 64))",
    "text": "return v * len(str(T.n * 2))",
    "method": "return v * T.n.bit_length()",
    "attribute": "return v * T.n.real",
    "largest": "return v * max([T.n, 40])",
    "sum": "return v * sum((T.n, 1))",
    "numpy scalar": "return v * (np.int64(2) * T.n)",
    "numpy scalar behind": "return v * (T.n - np.float32(2))",
    "numpy type": "return v * np.float16(T.n)",
    "numpy decision": "return v if np.int64(40) // T.n else v * 2",
    "numpy function": "return v * np.maximum(T.n, 4)",
    "numpy reduction": "return v * np.prod([T.n, 2])",
    "numpy item": "return v * np.array([1.0, 2.0, 3.0])[T.n // 64]",
    "numpy array": "return v * np.full((1,), T.n)[0]",
    "dunder": "return v * T.n.__index__()",
    "complex": "return v * complex(T.n).real",
}


def _decide(body: str) -> Any:
    text = (
        f"def decided(x: KTile['M', 'N', f32]):\n    T = tile.context()\n    v = tile.load(x, T.m, T.n)\n    {body}\n"
    )
    name = f"<decision {abs(hash(body))}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"KTile": KTile, "f32": f32, "tile": tile, "TABLE": {32: 1.0, 64: 2.0}, "np": np}
    exec(compile(text, name, "exec"), scope)
    return kernel(Schedule(block=(4, 32)))(scope["decided"])


@pytest.mark.parametrize("body", DECISIONS.values(), ids=DECISIONS)
def test_python_that_decides_by_a_block_size_is_refused(body: str) -> None:
    with pytest.raises(BlockValueError, match=r"is computed from .*`T\.[mn]`, a choice of the schedule"):
        _decide(body)(normal(5, 70))


@pytest.mark.parametrize(
    "body",
    [
        "return v * 2 if tile.per_block(T.n) < 40 else v",
        "return tile.per_block(v * 2 if T.n < 40 else v)",
        "for i in range(tile.per_block(T.n) // 32):\n        v = v * 2\n    return v",
        "return v * (tile.per_block(np.int64(T.n)) // 16)",
    ],
)
def test_a_decision_by_a_fixed_block_fixes_it(body: str) -> None:
    x = normal(5, 70)
    decided = _decide(body)
    np.testing.assert_array_equal(arrays(decided(x))[0], x * 2)
    assert "n" in decided.program(x).fixed


@pytest.mark.parametrize(
    "body",
    [
        "return v * 2 + tile.zeros((T.m, T.n))",
        "return v * 2 + tile.zeros(tuple(v.shape))",
        "assert T.n > 16\n    return v * len(v.shape)",
        "return v * 2 if T.n is not None else v",
        "return v * 2 + tile.zeros((np.int64(T.m), np.int64(1) * T.n))",
        "return v * np.add(1, np.int64(1))",
        "return v * 2 if isinstance(T.n, int) else v",
    ],
)
def test_sizes_of_tiles_and_assertions_stay_free(body: str) -> None:
    x = normal(5, 70)
    decided = _decide(body)
    np.testing.assert_array_equal(arrays(decided(x))[0], x * 2)
    assert decided.program(x).fixed == ()


@kernel
def whole_columns(x: KTile["M", "N", f32]) -> Any:
    T = tile.context()
    v = tile.load(x, T.m, T.n)
    return v + tile.sum(v, 0)[None, :]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_a_dim_is_held_by_one_block_of_any_size_up_to_that_size(rows: int) -> None:
    """A block of 1 is no other: the dim is at most 1 then, and stays symbolic."""
    one = whole_columns.with_schedule(Schedule(block=(rows, 16)))
    for size in range(rows + 1):
        x = normal(size, 20)
        np.testing.assert_array_equal(arrays(one(x))[0], arrays(one.run_tiles(x))[0])
    with pytest.raises(BlockValueError, match=f"one block of {rows} of {rows + 1} elements"):
        one(normal(rows + 1, 20))

    @ts.jit
    def inside(x: Tensor["B", "N", f32]) -> Any:
        return one(x)

    assert arrays(inside(normal(rows, 20)))[0].shape == (rows, 20)
    with pytest.raises(GuardError, match=f"`B` is {rows + 1}, but it must be at most {rows}"):
        inside(normal(rows + 1, 20))


def test_numbers_of_the_schedule_are_marked_too_and_other_scopes_are_unknown() -> None:
    @kernel(Schedule(block=(4, 32)))
    def scaled(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return tile.load(x, T.m, T.n) / tile.per_block(T.n)

    x = normal(5, 70)
    np.testing.assert_array_equal(arrays(scaled(x))[0], x / np.float32(32))
    assert scaled.program(x).fixed == ("n",)

    @kernel
    def wrong(x: KTile["M", "N", f32]) -> Any:
        T = tile.context()
        return tile.sum(tile.load(x, T.m, T.d), 1, scope="warp")

    with pytest.raises(KernelError, match="`scope` is one of row, block"):
        wrong(x)
