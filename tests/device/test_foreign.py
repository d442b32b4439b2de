"""Tensors of PyTorch on a GPU as arguments, and Python floats beside them: shared, in order, replayed."""

# Traced functions have no types to give here, nor has PyTorch.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.codes import DeviceError, RuntimeArgumentError
from tessera.runtime.devices.cuda.driver import is_available
from tessera.runtime.devices.cuda.graphs import CAPTURE_AFTER
from tessera.runtime.devices.cuda.tensor import Borrowed, CudaTensor

pytestmark = [
    pytest.mark.device("sm_80"),
    pytest.mark.skipif(not is_available(), reason="there is no NVIDIA GPU here"),
]
DTYPES = "float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 uint8 bool"
X = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def torch() -> Any:
    found: Any = pytest.importorskip("torch")
    if not found.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    return found


def program_of(function: Any) -> Any:
    made = [one for jitted in function._all() for one in jitted.specializations]
    return made[-1].loaded


@kernel
def double_tiles(x: KTile["M", "N"]) -> Any:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * 2.0


def test_arguments_are_shared_and_results_are_ours(torch: Any) -> None:
    x, function = torch.from_numpy(X).cuda(), ts.jit(lambda x: x * 2.0 + 1.0)
    assert ts.asarray(x).address == x.data_ptr()
    for step in range(3 * CAPTURE_AFTER):
        x.fill_(step)
        made = function(x)
        assert isinstance(made, CudaTensor)
        assert made.cpu().tolist() == [[2.0 * step + 1] * 6] * 4
    assert function.cache_info().misses == 1
    assert program_of(function).copies == 0


def test_trees_mixed_operands_kernels_and_eager_ops(torch: Any) -> None:
    x, own = torch.from_numpy(X).cuda(), ts.cuda.array(X)
    function = ts.jit(lambda p, y: p["w"][0] + y * 2.0)
    for _ in range(2):
        assert function({"w": [x]}, own).cpu().tolist() == (X * 3).tolist()
        assert function({"w": [own]}, x).cpu().tolist() == (X * 3).tolist()
    assert function.cache_info().misses == 1
    assert ts.ops.add(x, 1).cpu().tolist() == (X + 1).tolist()
    assert (own + x).cpu().tolist() == (x + own).cpu().tolist() == (X * 2).tolist()
    assert double_tiles(x).cpu().tolist() == (X * 2).tolist()
    captured = ts.jit(lambda y: y + x)
    assert captured(own).cpu().tolist() == (X * 2).tolist()
    x.zero_()
    assert captured(own).cpu().tolist() == X.tolist()


def test_a_kernel_whose_first_tensor_is_on_a_gpu_runs_there(torch: Any) -> None:
    assert isinstance(double_tiles(x=torch.from_numpy(X).cuda()), CudaTensor)


@pytest.mark.parametrize(
    "name", ["float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "int32", "uint8", "bool"]
)
def test_dtypes_and_forms(torch: Any, name: str) -> None:
    values = torch.tensor([[0, 1], [1, 0], [1, 1]]).to(getattr(torch, name)).cuda()
    for given in (values, values[:, 0], values.T, values[:0], values[1, 1], values[1:]):
        assert ts.jit(lambda x: x)(given).cpu().tolist() == given.cpu().tolist()


def test_another_memory_and_a_gradient_are_refused(torch: Any) -> None:
    function = ts.jit(lambda x, y: x + y)
    x = torch.from_numpy(X).cuda()
    with pytest.raises(DeviceError, match="tensors in two memories"):
        function(x, torch.from_numpy(X))
    with pytest.raises(RuntimeArgumentError, match="requires a gradient"):
        function(x, x.clone().requires_grad_())
    with pytest.raises(DeviceError, match="tensors in two memories"):
        ts.ops.add(x, X)


def test_a_producers_stream_is_waited_for_and_memory_kept(torch: Any) -> None:
    side, function = torch.cuda.Stream(), ts.jit(lambda x: x * 1.0)
    for step in range(8):
        with torch.cuda.stream(side):
            x = torch.zeros(1 << 24, device="cuda")
            for _ in range(step + 1):
                x += 1.0
            made = function(x)
            del x
            # What was let go may be used again at once, in this stream.
            other = torch.full((1 << 24,), -1.0, device="cuda")
        assert float(made.cpu().numpy().min()) == float(made.cpu().numpy().max()) == step + 1
        del other
    ts.cuda.synchronize()
    Borrowed.release()
    assert not Borrowed.waiting


def test_memory_is_given_back(torch: Any) -> None:
    function = ts.jit(lambda x: x + 1.0)
    x = torch.ones(1 << 20, device="cuda")
    gone = weakref.ref(x.untyped_storage())
    for _ in range(3):
        function(x)
    del x
    gc.collect()
    ts.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    Borrowed.release()
    assert torch.cuda.memory_allocated() <= before
    assert gone() is None


def test_a_capture_holds_what_it_reads(torch: Any) -> None:
    function = ts.jit(lambda x: x * 2.0)
    x = torch.ones(1 << 16, device="cuda")
    function(x)
    with ts.cuda.capture() as graph:
        made = function(x)
    x.fill_(3.0)
    graph.replay()
    assert made.cpu().tolist()[:2] == [6.0, 6.0]
    del x
    gc.collect()
    torch.full((1 << 16,), -7.0, device="cuda")
    graph.replay()
    assert made.cpu().tolist()[:2] == [6.0, 6.0]


def test_donated_memory_of_others_is_not_written(torch: Any) -> None:
    x, function = torch.ones(64, device="cuda"), ts.jit(lambda x: x + 1.0, donate="x")
    for _ in range(3):
        assert function(x).cpu().tolist() == [2.0] * 64
        assert x.cpu().tolist() == [1.0] * 64


VALUES = [0.1, -0.0, 1e-40, 1e300, math.inf, -math.inf, 65504.1, 2.0**-149]


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16"])
def test_numbers_have_the_bits_of_constants(dtype: str) -> None:
    x = ts.cuda.array(ts.array([1.0, 2.0, -3.0], dtype))
    function = ts.jit(lambda x, by: (x * by, x + (1 - by * 2.0)))
    for by in VALUES:
        wanted = ts.jit(lambda x, by=by: (x * by, x + (1 - by * 2.0)), static_argnames="by")(x)
        for one, other in zip(function(x, by), wanted, strict=True):
            np.testing.assert_array_equal(one.cpu().numpy(), other.cpu().numpy())
    assert function.cache_info().misses == 1


def test_a_number_that_changes_reaches_replays() -> None:
    function = ts.jit(lambda x, by: ts.ops.softmax(ts.ops.relu(x * by) @ x.T, axis=-1) * by)
    x = ts.cuda.array(X)
    wanted = ts.jit(lambda x, by: ts.ops.softmax(ts.ops.relu(x * by) @ x.T, axis=-1) * by, backend="reference")
    for step in range(6 * CAPTURE_AFTER):
        by = 1.0 + step / 8
        np.testing.assert_allclose(function(x, by).cpu().numpy(), np.asarray(wanted(X, by)), rtol=1e-4, atol=1e-5)
    assert function.cache_info().misses == 1
    plans = list(program_of(function)._plans.values())
    assert any(plan.replays is not None and plan.replays.graphs for plan in plans)


def test_numbers_in_two_streams_and_in_a_capture() -> None:
    function, x = ts.jit(lambda x, by: x * by), ts.cuda.array(X)
    streams = [ts.cuda.Stream(), ts.cuda.Stream()]
    made: list[Any] = []
    for step in range(20):
        with ts.cuda.stream(streams[step % 2]):
            made.append(function(x, float(step)))
    for step, one in enumerate(made):
        assert one.cpu().tolist() == (X * step).tolist()
    with ts.cuda.capture() as graph:
        captured = function(x, 5.0)
    assert function(x, 6.0).cpu().tolist() == (X * 6).tolist()
    graph.replay()
    assert captured.cpu().tolist() == (X * 5).tolist()
    assert function(x, 5.0).cpu().tolist() == (X * 5).tolist()
