"""Kernels as parts of programs: inside `jit`, as registered ops, in the interpreter under a debugger, and tuned."""

from __future__ import annotations

import copy
import pdb
import pickle
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, Schedule, Tensor, f32, kernel, tile
from tessera.diagnostics.codes import (
    DeterminismError,
    DTypeError,
    KernelError,
    RaceError,
    RuntimeArgumentError,
    ScheduleError,
)
from tessera.frontend.kernel.rows import NeedsNumber
from tessera.types.dim import Dim
from tests.kernel import kernels
from tests.kernel.compare import arrays

RNG = np.random.default_rng(2)


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def test_a_kernel_in_jit_is_an_op_between_others() -> None:
    @ts.jit
    def program(a: Tensor["M", 24, f32], b: Tensor[24, "N", f32]) -> Any:
        return kernels.matmul(a * 2.0, b).sum(axis=1)

    for M, N in ((5, 7), (70, 130)):
        a, b = normal(M, 24), normal(24, N)
        np.testing.assert_allclose(np.asarray(program(a, b)), (2 * a @ b).sum(1), atol=1e-3)
    assert program.cache_info().size == 1
    assert "tgraph.kernel_call" in program.lower(normal(5, 24), normal(24, 7)).graph


def test_the_reference_backend_runs_a_kernel_as_its_tile_program() -> None:
    @ts.jit(backend="reference")
    def program(a: Any, b: Any) -> Any:
        return kernels.matmul(a, b) + 1.0

    a, b = normal(5, 6), normal(6, 7)
    np.testing.assert_array_equal(np.asarray(program(a, b)), np.asarray(kernels.matmul(a, b)) + np.float32(1))


def test_a_result_that_no_one_wants_is_not_stored() -> None:
    @ts.jit
    def program(x: Any) -> Any:
        return kernels.rows(x)[1] * 2.0

    x = normal(9, 16)
    np.testing.assert_allclose(np.asarray(program(x)), 2 * x.sum(1), atol=1e-5)


def test_a_free_dim_that_is_the_size_of_a_tile_is_served_in_jit() -> None:
    @ts.jit
    def program(x: Tensor["M", "N", f32]) -> Any:
        return kernels.softmax(x)

    for columns in (8, 13):
        x = normal(4, columns)
        powers = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(np.asarray(program(x)), powers / powers.sum(1, keepdims=True), rtol=1e-5)


def test_a_registered_kernel_is_a_function_of_ops_and_has_a_slot_for_its_derivative() -> None:
    fresh = ts.Kernel(kernels.vector_add.definition.function)
    fresh.register("test_registered_add")

    @fresh.defvjp
    def derivative(x: Any, y: Any, out: Any, g: Any) -> Any:
        return g, g

    @ts.jit
    def program(x: Any, y: Any) -> Any:
        return vars(ts.ops)["test_registered_add"](x, y) * 3.0

    x, y = normal(10), normal(10)
    np.testing.assert_array_equal(np.asarray(program(x, y)), (x + y) * np.float32(3))
    assert fresh.definition.vjp is derivative
    with pytest.raises(KernelError, match="has a `softmax` already"):
        fresh.register("softmax")


def test_the_three_decorators_give_equal_results(tmp_path: Path) -> None:
    function = kernels.matmul.definition.function
    space = {"BM": [16, 32], "BN": [16], "BK": [16]}
    made = [
        kernel.auto(function),
        kernel.schedule(Schedule(block=(32, 32, 32)))(function),
        kernel.autotune(space=space, budget_ms=50, cache=str(tmp_path))(function),
        kernel(function),
    ]
    a, b = normal(40, 20), normal(20, 30)
    first, *others = [arrays(one(a, b))[0] for one in made]
    for other in others:
        np.testing.assert_array_equal(first, other)
    tuning = made[2].tuning
    assert tuning is not None
    assert len(tuning.trials) == 2
    assert (tmp_path / "matmul.json").exists()
    again = kernel.autotune(space=space, cache=str(tmp_path))(function)
    again(a, b)
    assert again.tuning is not None
    assert again.tuning.trials == []


def test_a_space_without_a_legal_schedule_is_refused() -> None:
    tuned = kernel.autotune(space={"BM": [16], "BD": [32]})(kernels.softmax.definition.function)
    with pytest.raises(ScheduleError, match="no schedule of the space") as raised:
        tuned(normal(4, 8))
    assert "d=32" in str(raised.value)


def test_the_context_shows_the_schedule_in_force() -> None:
    @kernel
    def look(x: KTile["M", "D", f32]) -> Any:
        T = tile.context()
        return tile.load(x, rows=T.m, cols=T.d) * tile.per_block(float(T.m + T.stages))

    base = Schedule(block=(32,), stages=3)
    x = normal(5, 8)
    np.testing.assert_array_equal(arrays(look.with_schedule(base)(x))[0], x * 35)
    np.testing.assert_array_equal(arrays(look.with_schedule(base.with_block(64))(x))[0], x * 67)


def test_hints_are_in_tile_ir_and_change_no_result() -> None:
    @kernel
    def hinted(x: KTile["M", "D", f32], *, prefetch: int) -> Any:
        T = tile.context()
        total = tile.zeros((T.m,), f32)
        for k in tile.range_k(x.shape, 16, prefetch=prefetch):
            total += tile.sum(tile.load(x, rows=T.m, cols=k, vector=4, stages=3, swizzle="xor"), 1)
        return total

    x = normal(9, 50)
    texts = [hinted.lower(x, prefetch=count).tile for count in (0, 1, 2)]
    assert 'hints = {stages = 3, swizzle = "xor", vector = 4}' in texts[0]
    assert "prefetch = 1" in texts[1]
    assert "prefetch = 2" in texts[2]
    plain = arrays(hinted(x, prefetch=0))[0]
    for count in (1, 2):
        np.testing.assert_array_equal(arrays(hinted(x, prefetch=count))[0], plain)


def test_a_debugger_stops_on_the_line_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[tuple[str, int, Any]] = []

    class Watching(pdb.Pdb):
        def interaction(self, frame: Any, traceback: Any) -> None:
            stopped.append((frame.f_code.co_name, frame.f_lineno, frame.f_locals["block"]))
            self.set_continue()

    @kernel
    def watched(x: KTile["M", "D", f32]) -> Any:
        T = tile.context()
        block = tile.load(x, rows=T.m, cols=T.d)
        breakpoint()
        return block * 2.0

    monkeypatch.setattr(sys, "breakpointhook", lambda: Watching(nosigint=True).set_trace(sys._getframe(1)))  # pyright: ignore[reportPrivateUsage]
    x = normal(3, 4)
    np.testing.assert_array_equal(arrays(watched.interpret(x))[0], x * 2)
    ((name, line, block),) = stopped
    assert name == "watched"
    start = watched.definition.source.tree.body[0].lineno
    assert start < line <= start + 4
    assert block.shape == (16, 4)
    np.testing.assert_array_equal(arrays(watched(x))[0], x * 2)


@kernel
def first_row(x: KTile["M", 256, f32], copy: KTile["M", 256, f32], out: KTile["M", 256, f32]) -> None:
    """All blocks of rows write one row."""
    T = tile.context()
    tile.store(copy, tile.load(x, rows=T.m, cols=T.d), (T.m, slice(None)))
    tile.store(out, tile.load(x, 0, T.d), (0, slice(None)))


def test_debug_builds_find_programs_that_write_one_cell() -> None:
    with pytest.raises(RaceError) as raised:
        first_row.with_options(debug=True)(normal(40, 256))
    assert raised.value.span is not None
    assert raised.value.span.source_line.strip().startswith("tile.store(out")
    kernels.matmul.with_options(debug=True)(normal(5, 6), normal(6, 7))
    kernels.column_sums.with_options(debug=True)(np.ones((40, 8), np.int32))


@kernel
def total(x: KTile["M", "D", f32], out: KTile["D", f32]) -> None:
    """Floats that all programs add to one result."""
    T = tile.context()
    tile.atomic_add(out, tile.reduce(tile.load(x, rows=T.m, cols=T.d), 0), slice(None))


def test_additions_of_floats_in_no_order_are_not_deterministic() -> None:
    @ts.jit
    @ts.deterministic
    def program(x: Any) -> Any:
        return total(x)

    with pytest.raises(DeterminismError, match="atomic_add"):
        program(normal(4, 8))
    np.testing.assert_allclose(np.asarray(total(np.ones((40, 8), np.float32))), 40)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (np.ones(3, np.float32), "must have 2 dims, got 1"),
        (np.ones((2, 3)), "must be f32, got f64"),
        (3.0, "must be a tensor, got float"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_at_the_call(argument: Any, message: str) -> None:
    with pytest.raises(RuntimeArgumentError, match=message) as raised:
        kernels.softmax(argument)
    assert raised.value.span is not None
    assert raised.value.span.source_line.strip() == "kernels.softmax(argument)"


def test_operands_that_do_not_fit_are_refused_in_jit_at_the_call() -> None:
    @ts.jit
    def program(x: Any) -> Any:
        return kernels.softmax(x)

    with pytest.raises(DTypeError, match="got f64") as raised:
        program(np.ones((2, 3)))
    assert raised.value.span is not None
    assert raised.value.span.source_line.strip() == "return kernels.softmax(x)"


def scaled_by(factor: float) -> Any:
    @kernel
    def scaled(x: KTile["N", f32]) -> Any:
        T = tile.context()
        return tile.load(x, T.n) * factor

    return scaled


def test_kernels_of_one_source_that_capture_other_values_are_two() -> None:
    @ts.jit
    def program(x: Any) -> Any:
        return scaled_by(2.0)(x) + scaled_by(3.0)(x)

    np.testing.assert_array_equal(np.asarray(program(np.ones(3, np.float32))), 5.0)


def test_kernels_run_in_loops_of_programs_on_views_and_on_nothing() -> None:
    @ts.jit
    def program(x: Any) -> Any:
        return ts.fori_loop(0, 3, lambda _, carried: scaled_by(2.0)(carried), x[::2])

    np.testing.assert_array_equal(np.asarray(program(np.arange(6, dtype=np.float32))), [0, 16, 32])
    assert scaled_by(2.0)(np.ones(0, np.float32)).shape == (0,)


def test_blocks_that_no_schedule_gives_are_a_choice_of_the_compiler() -> None:
    @ts.jit
    def program(a: Any, b: Any) -> Any:
        return kernels.matmul(a, b)

    other = ts.jit(program.function, overrides={"kernel.block": (32, 64, 64)})
    a, b = normal(70, 20), normal(20, 90)
    np.testing.assert_array_equal(np.asarray(other(a, b)), np.asarray(program(a, b)))
    assert "grid = [3, 2]" in other.lower(a, b).tile
    assert "grid = [2, 1]" in program.lower(a, b).tile
    assert any("kernel.block" in line for line in program.explain(a, b).report["choices"])


def test_a_kernel_is_copied_and_pickled_as_a_function_is() -> None:
    assert copy.copy(kernels.vector_add) is kernels.vector_add
    assert copy.deepcopy({"op": kernels.vector_add})["op"] is kernels.vector_add
    assert pickle.loads(pickle.dumps(kernels.vector_add)) is kernels.vector_add
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(kernels.vector_add.with_schedule(Schedule(block=(64,))))


def test_threads_that_call_a_kernel_for_the_first_time_do_not_disturb_each_other() -> None:
    @kernel
    def double(x: KTile["M", "N", f32]) -> KTile["M", "N", f32]:
        T = tile.context()
        return tile.load(x, rows=T.m, cols=T.d) * 2.0

    jitted, numbers = double._jit, double._jit._binder.numbers  # pyright: ignore[reportPrivateUsage]
    size, seen = Dim.symbol("N"), list[bool]()

    def work() -> str:
        """Asks for a size that another thread has made a number by then."""
        other = threading.Thread(target=lambda: seen.append(jitted.is_own_trace))
        other.start()
        other.join()
        if "N" not in numbers:
            numbers.add("N")
            raise NeedsNumber(size)
        return "done"

    assert jitted.retry_with_sizes(work) == "done"
    assert seen == [False, False], "what a thread traces is its own"

    def ask() -> None:
        raise NeedsNumber(size)

    with pytest.raises(NeedsNumber):  # for a number that it is
        jitted.retry_with_sizes(ask)
