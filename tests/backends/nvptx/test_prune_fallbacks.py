"""Kernels for calls with empty tensors: they have no dots, and the results of the kernel they stand for."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tessera import KTile, bf16, f32, kernel, tile
from tessera.backends.nvptx.mma.fit import dots_in, tile_kernels, units_in
from tessera.compiler.kernel_instance import KernelInstance
from tessera.ir.base.op import SpecOp
from tessera.ir.base.text import parse_module
from tessera.ir.tile.interpret import run_kernel
from tessera.ir.tile.write_records import write_kernel
from tessera.stdlib import flash_attention_2
from tessera.types.schedule import Schedule
from tessera.types.shape import TensorType
from tests.kernel import test_schedule
from tests.oracles.nvptx_backend import NvptxBackend

BACKEND = NvptxBackend()


def written(
    made: Any, shapes: list[list[Any]], statics: dict[str, Any], block: tuple[int, ...] = (64, 64, 64)
) -> SpecOp:
    instance = KernelInstance(made.definition, statics, Schedule(block=block))
    return write_kernel(instance.program([TensorType.of(shape, bf16) for shape in shapes], "gpu"))


def pruned(given: SpecOp) -> list[SpecOp]:
    """The kernels that are left of a kernel and its fallback."""
    name = given.value("symbol")
    sizes = ", ".join(given.value("symbols"))
    buffers = ", ".join(f"%{at}: {argument.type}" for at, argument in enumerate(given.regions[0].block.args))
    names = ", ".join(f"%{at}" for at in range(len(given.regions[0].block.args)))
    call = f"tsched.call @{name}({names}) sizes = [{sizes}]"
    module = parse_module(f"tsched.module @main({buffers}) attributes {{workspace = 0}} {{ {call} tsched.return }}")
    module.body.block.add_op(given.clone())
    for one in BACKEND.tile_passes():
        one.run(module)
    main, *others = tile_kernels(module)
    assert units_in(main) is not None
    return [main, *others]


def emptied(given: SpecOp) -> SpecOp | None:
    """The kernel for launches with empty tensors; None where that one multiplies too."""
    _, other = pruned(given)
    return None if dots_in(other) else other


def results(given: SpecOp, shapes: list[tuple[int, ...]], out: tuple[int, ...], sizes: dict[str, int]) -> Any:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32).astype(ml_dtypes.bfloat16) for shape in shapes]
    found = np.full(out, 7, ml_dtypes.bfloat16)
    with np.errstate(all="ignore"):
        run_kernel(given, [*arrays, found], sizes)
    return found.astype(np.float32)


@pytest.mark.parametrize(("M", "K", "N"), [(70, 0, 33), (0, 40, 33), (70, 40, 0), (0, 0, 0)])
def test_a_dot_of_nothing_is_what_follows_it(M: int, K: int, N: int) -> None:
    given = written(test_schedule.product, [["M", "K"], ["K", "N"]], {})
    other = emptied(given)
    assert other is not None
    other.verify()
    assert not any(op.name in ("ttile.dot", "ttile.for") for op in other.walk())
    sizes = {"M": M, "K": K, "N": N}
    both = [results(one, [(M, K), (K, N)], (M, N), sizes) for one in (given, other)]
    np.testing.assert_array_equal(both[0], both[1])
    BACKEND.lower(other)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("S", "T"), [(70, 0), (0, 40)])
def test_attention_to_nothing_has_no_dots(S: int, T: int, causal: bool) -> None:
    given = written(flash_attention_2, [["B", "S", 64], ["B", "T", 64], ["B", "T", 64]], {"causal": causal}, (64, 64))
    other = emptied(given)
    assert other is not None
    sizes = {"B": 2, "S": S, "T": T}
    both = [results(one, [(2, S, 64), (2, T, 64), (2, T, 64)], (2, S, 64), sizes) for one in (given, other)]
    np.testing.assert_array_equal(both[0], both[1])


@kernel
def whole(a: KTile["M", 64, bf16], b: KTile["N", 64, bf16]) -> Any:
    """A dot without a loop."""
    T = tile.context()
    return tile.dot(tile.load(a, T.m, T.d), tile.load(b, T.n, T.d).T)


@kernel
def counted(a: KTile["M", "K", bf16], b: KTile["K", "N", bf16]) -> Any:
    """A loop that runs whatever the tensors are."""
    T = tile.context()
    acc = tile.zeros((T.m, T.n), f32)
    for _ in tile.steps(2, by=1):
        for k in tile.range_k(a.shape, T.k):
            acc += tile.dot(tile.load(a, rows=T.m, cols=k), tile.load(b, rows=k, cols=T.n))
    return acc


def test_there_is_no_fallback_where_empty_tensors_leave_no_program() -> None:
    assert len(pruned(written(whole, [["M", 64], ["N", 64]], {}))) == 1


def test_dots_that_may_run_stay() -> None:
    given = written(counted, [["M", "K"], ["K", "N"]], {})
    assert emptied(given) is None
