"""Ops on tensors of a GPU outside `jit`, with host memory in place of its own and the reference in place of kernels."""

from __future__ import annotations

import ctypes
import pickle
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.api import eager, jit
from tessera.api.compilation import load
from tessera.diagnostics.codes import BroadcastError, DeviceError, OperatorError
from tessera.frontend import call_plans
from tessera.frontend.pytree import as_tuple
from tessera.runtime.devices.cuda import tensor as cuda_numbers
from tessera.runtime.devices.cuda import tensor as cuda_tensor
from tessera.runtime.devices.cuda.tensor import CudaTensor, form_of
from tests.api.eager_surface import WRITTEN, I, X, Y, double, twice


def put(value: Any) -> CudaTensor:
    """A tensor of the device that is none: it keeps host memory alive."""
    host = ts.array(np.array(value)).copy()
    return CudaTensor(host.address, form_of(host.dtype, host.shape), 0, host)


class Program:
    """A program of the device: it takes tensors there, and numbers and keys from anywhere."""

    calls = 0

    def __init__(self, loaded: Any) -> None:
        self.loaded, self.given = loaded, 0

    def call(self, *_: Any) -> Any:
        return NotImplemented

    def run(self, arguments: Sequence[Any]) -> Any:
        assert all(isinstance(one, CudaTensor) or one.shape in ((), (2,)) for one in arguments)
        self.given += 1
        results = self.loaded.run([one.cpu() if isinstance(one, CudaTensor) else one for one in arguments])
        made = [put(np.asarray(one)) for one in as_tuple(results)]
        return made[0] if len(made) == 1 else tuple(made)


class Driver:
    """A device that is there."""

    ordinal = 0


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that were copied to the device, one entry each time."""
    found: list[int] = []

    def of(host: Any) -> CudaTensor:
        found.append(host.nbytes)
        return put(np.asarray(host))

    monkeypatch.setattr(CudaTensor, "of", staticmethod(of))
    return found


@pytest.fixture(autouse=True)
def backends_made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Backends that programs were made for."""
    found: list[str] = []

    def loading(tape: Any, options: Any, name: str = "") -> Any:
        found.append(options.backend)
        program, origin = load(tape, ts.Options(backend="reference"))
        return (Program(program) if options.backend == "cuda" else program), origin

    def copy(target: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(target, source, size)

    monkeypatch.setattr(eager, "_PROGRAMS", OrderedDict[Any, Any]())
    monkeypatch.setattr(call_plans, "PLANS", {})
    monkeypatch.setattr(eager, "load", loading)
    monkeypatch.setattr(jit, "load", loading)
    monkeypatch.setattr(cuda_tensor, "driver", Driver)
    monkeypatch.setattr(cuda_tensor, "copy_out", copy)
    monkeypatch.setattr(cuda_numbers, "_NUMBERS", {})
    monkeypatch.setattr(cuda_numbers, "current_stream", lambda: 0)
    return found


@pytest.mark.parametrize("what", WRITTEN)
def test_what_is_written_of_tensors_runs_where_they_are(what: str, backends_made: list[str]) -> None:
    expected = WRITTEN[what](ts.array(X), ts.array(Y), ts.array(I))
    assert set(backends_made) == {"cpu"}
    backends_made.clear()
    given = put(X), put(Y), put(I)
    found = WRITTEN[what](*given)
    assert isinstance(found, CudaTensor)
    assert set(backends_made) == {"cuda"}
    assert found.dtype is expected.dtype
    np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))
    backends_made.clear()
    WRITTEN[what](*given)
    assert backends_made == []


def test_tensors_of_two_memories_are_refused_with_both_named() -> None:
    for other in (Y, ts.array(Y)):
        for work in (lambda: put(X) + other, lambda: other * put(X)):  # noqa: B023
            with pytest.raises(DeviceError) as caught:
                work()
            assert "is on gpu[0], and" in caught.value.message
            assert "[2, 3]" in caught.value.message
            assert "`tessera.cuda.array(x)`" in str(caught.value)
            assert "`x.cpu()`" in str(caught.value)
            assert caught.value.span is not None
            assert caught.value.span.file == __file__
    with pytest.raises(DeviceError, match=r"`where` got tensors in two memories: `x`.* is on gpu\[0\], and"):
        ts.ops.where(ts.array(X) > 0, put(X), put(Y))


def test_single_numbers_go_along_and_are_copied_once(copies: list[int]) -> None:
    for number in (2, 2.0, True, np.float32(2), ts.array(2.0), np.array(2.0, np.float32)):
        assert isinstance(put(X) * number, CudaTensor)
        assert isinstance(number + put(X), CudaTensor)
    assert copies == [4, 4]  # 2.0 and 1.0
    for number in range(2 * cuda_numbers.KEPT):
        assert float((put(X) * number)[0, 0]) == number
    assert len(cuda_numbers._NUMBERS) == cuda_numbers.KEPT  # pyright: ignore[reportPrivateUsage]


def test_errors_are_those_of_tensors_in_host_memory() -> None:
    said: list[str] = []
    for move in (ts.array, put):
        with pytest.raises(BroadcastError) as caught:
            _ = move(X) + move(Y[:, :2])
        said.append(caught.value.message)
        with pytest.raises(OperatorError) as refused:
            move(X)[0] = 1.0
        said.append(refused.value.message)
        with pytest.raises(AttributeError) as unknown:
            getattr(move(X), "unsqueeze")  # noqa: B009
        said.append(str(unknown.value))
    assert said[:3] == said[3:]


def test_a_tensor_is_read_as_one_in_host_memory() -> None:
    x, one = put(X), put(np.float32(2.5))
    assert x.device == ts.gpu[0]
    assert ts.array(X).device == ts.cpu
    assert len(x) == 2
    assert [type(row) for row in x] == [CudaTensor, CudaTensor]
    assert x.tolist() == X.tolist()
    assert (int(one), float(one), bool(one), one.item()) == (2, 2.5, True, 2.5)
    assert f"{one:.2f}" == "2.50"
    assert list(range(5))[put(np.int64(3))] == 3
    assert repr(put(np.arange(3))) == "CudaTensor([3] i64, [0, 1, 2])"
    lines = repr(x).splitlines()
    assert lines[0].index("[1,") == lines[1].index("[4,")
    assert f"{x}" == repr(x)
    assert np.sum(x, axis=0).tolist() == X.sum(axis=0).tolist()
    assert np.concatenate([x, X]).shape == (4, 3)
    np.testing.assert_array_equal(np.asarray(x, np.float64), X.astype(np.float64))
    with pytest.raises(TypeError, match="rank 0 has no length"):
        len(one)
    with pytest.raises(OperatorError, match="only a tensor of one element"):
        bool(x)


def test_tensors_are_told_apart_and_kept_in_sets() -> None:
    x, y = put(X), put(X)
    assert len({x, y, x}) == 2
    assert (x == y).tolist() == [[True] * 3] * 2


def test_a_copy_is_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_tensor.CudaTensor, "of", staticmethod(put))
    assert pickle.loads(pickle.dumps(ts.array(X))).tolist() == X.tolist()
    restore, (host,) = put(X).__reduce__()
    assert restore(host).tolist() == X.tolist()


def test_functions_and_kernels_run_where_their_tensors_are(backends_made: list[str]) -> None:
    for work in (twice, double):
        backends_made.clear()
        for _ in range(2):
            found = work(put(X))
            assert isinstance(found, CudaTensor)
            np.testing.assert_array_equal(np.asarray(found), 2 * X)
        assert backends_made == ["cuda"]
        np.testing.assert_array_equal(np.asarray(work(X)), 2 * X)
        assert backends_made == ["cuda", "cpu"]
        assert isinstance(work(put(X)), CudaTensor)
        assert backends_made == ["cuda", "cpu"]


def test_what_is_listed_to_run_here_does() -> None:
    assert isinstance(ts.array(put(X)), ts.Tensor)
    works: list[Callable[[Any], Any]] = [twice, double, lambda x: x * 2.0, lambda x: x + ts.array(X)]
    with ts.device(ts.cpu):
        for work in works:
            found = work(put(X))
            assert isinstance(found, ts.Tensor)
            np.testing.assert_array_equal(np.asarray(found), 2 * X)


def test_captured_tensors_say_where_a_function_runs_too(backends_made: list[str]) -> None:
    there = put(Y)
    alone = ts.jit(lambda: there * 2.0)

    @ts.jit
    def beside(x: Any) -> Any:
        return x + there

    for _ in range(2):
        found = alone()
        assert isinstance(found, CudaTensor)
        np.testing.assert_array_equal(np.asarray(found), 2 * Y)
        assert isinstance(beside(2.0), CudaTensor)
        with pytest.raises(DeviceError, match=r"two memories: `captured_0`, .* is on gpu\[0\], and `x`"):
            beside(X)
    with ts.device(ts.cpu):
        np.testing.assert_array_equal(np.asarray(beside(X)), X + Y)


def test_captured_tensors_of_the_host_are_refused(copies: list[int]) -> None:
    held: dict[str, Any] = {"weights": ts.array(Y), "scale": np.float32(2.0)}

    @ts.jit
    def rescale(x: Any) -> Any:
        return (x + held["weights"]) * held["scale"]

    for _ in range(2):
        with pytest.raises(
            DeviceError, match=r"`rescale` got .*: `x`, .* is on gpu\[0\], and `.*weights.*`, \[2, 3\] f32"
        ):
            rescale(put(X))
    assert copies == []
    held["weights"] = put(Y)
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(rescale(put(X))), (X + Y) * 2)
    held["weights"] = ts.array(Y)
    with pytest.raises(DeviceError, match="two memories"):
        rescale(put(X))
    np.testing.assert_array_equal(np.asarray(rescale(X)), (X + Y) * 2)


def test_a_backend_that_is_named_is_kept(backends_made: list[str]) -> None:
    here = ts.jit(twice.function, backend="cpu")
    for work in (here, here.under(ts.Policy()), double.with_options(backend="cpu")):
        for _ in range(2):
            found = work(put(X))
            assert isinstance(found, ts.Tensor)
            np.testing.assert_array_equal(np.asarray(found), 2 * X)
    assert set(backends_made) == {"cpu"}


def test_kernels_take_tensors_of_the_device_inside_other_functions(backends_made: list[str]) -> None:
    @ts.jit
    def around(x: Any) -> Any:
        return double(x) + twice(x)

    assert isinstance(around(put(X)), CudaTensor)
    assert backends_made == ["cuda"]


def test_a_function_of_two_memories_is_refused() -> None:
    @ts.jit
    def add(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(DeviceError, match="`add` got tensors in two memories: argument 1"):
        add(X, put(Y))


def test_training_and_evaluation_copy_batches_to_where_parameters_are(copies: list[int]) -> None:
    def loss(w: Any, batch: Any) -> Any:
        return ((w - batch["x"]) ** 2.0).sum() * batch["scale"]

    optimizer = ts.optim.sgd(0.25)
    step = ts.train.make_step(loss, optimizer, donate=False)
    made = ts.train.State.init(ts.zeros((2, 3)), optimizer).replace(params=put(np.zeros((2, 3), np.float32)))
    batches = [{"x": X, "scale": 1.0}, {"x": ts.array(Y), "scale": 1.0}, {"x": put(X), "scale": 1.0}]
    run = ts.train.fit(step, made, batches, progress=False)
    assert isinstance(run.state.params, CudaTensor)
    np.testing.assert_array_equal(np.asarray(run.state.params), X / 8 + Y / 4 + X / 2)
    assert copies.count(X.nbytes) == 2
    assert ts.train.evaluate(loss, put(X), [{"x": X, "scale": 2.0}]) == {"loss": 0.0}
    with pytest.raises(DeviceError, match="two memories"):
        step(run.state, batches[0])
