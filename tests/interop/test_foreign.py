"""Tensors of other libraries as arguments: shared, never static, in trees, kernels, eager ops and captured."""

# Traced functions have no types to give here, nor has PyTorch.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import KTile, kernel, tile
from tessera.diagnostics.codes import PytreeError, RuntimeArgumentError
from tessera.runtime.foreign import is_foreign, share


class Plain:
    """A tensor that has DLPack and nothing else: no shape, no dtype, no operators."""

    def __init__(self, array: Any) -> None:
        self.array, self.asked = array, 0

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **options: Any) -> Any:
        self.asked += 1
        return self.array.__dlpack__(**options)


class Interface:
    """A tensor that has NumPy's interface alone."""

    def __init__(self, array: Any) -> None:
        self.array = array

    @property
    def __array_interface__(self) -> Any:
        return self.array.__array_interface__


class Held:
    """An object that has the interface as an attribute of its own, and not of its class."""

    def __init__(self, array: Any) -> None:
        self.__array_interface__ = array.__array_interface__
        self.array = array


def torch_tensor(array: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(array)


def jax_array(array: Any) -> Any:
    jax: Any = pytest.importorskip("jax")
    return jax.device_put(array, jax.devices("cpu")[0])


LIBRARIES = [torch_tensor, jax_array, Plain, Interface, Held]
SHARING = [torch_tensor, Plain, Interface, Held]


DTYPES = (
    "float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool"
)


@dataclass
class Layer:
    """A node of a tree."""

    w: Any
    b: Any


@kernel
def double_tiles(x: KTile["M", "N"]) -> Any:
    T = tile.context()
    return tile.load(x, rows=T.m, cols=T.n) * 2.0


@pytest.mark.parametrize("library", LIBRARIES)
def test_an_argument_is_no_constant_and_compiles_once(library: Any) -> None:
    function = ts.jit(lambda x: x * 2.0 + 1.0)
    for number in range(3):
        array = np.full((2, 3), number, np.float32)
        assert function(library(array)).tolist() == (array * 2 + 1).tolist()
    assert function.cache_info().misses == 1


@pytest.mark.parametrize("library", SHARING)
def test_memory_is_shared_and_seen_anew_at_each_call(library: Any) -> None:
    array = np.arange(4, dtype=np.float32)
    given, function = library(array), ts.jit(lambda x: x + 1.0)
    assert ts.asarray(given).address == array.ctypes.data
    assert function(given).tolist() == [1.0, 2.0, 3.0, 4.0]
    array[:] = 7.0
    assert function(given).tolist() == [8.0] * 4
    loaded: Any = function.specializations[0].loaded
    assert loaded.copies == 0


@pytest.mark.parametrize("library", LIBRARIES)
def test_annotated_arguments_and_symbolic_dims(library: Any) -> None:
    @ts.jit
    def total(x: ts.Tensor["N", "M", ts.f32]) -> Any:
        return x.sum(axis=0)

    for shape in ((2, 3), (5, 4), (0, 2)):
        assert total(library(np.ones(shape, np.float32))).tolist() == [float(shape[0])] * shape[1]
    assert total.cache_info().misses == 1
    with pytest.raises(RuntimeArgumentError, match="`x` must be f32, got i32"):
        total(library(np.ones((2, 3), np.int32)))


@pytest.mark.parametrize("library", LIBRARIES)
def test_trees_and_mixed_operands(library: Any) -> None:
    def forward(layers: Any, x: Any) -> Any:
        return x @ layers[0].w + layers[0].b + layers[1]["w"]

    function = ts.jit(forward)
    w, b, other = np.ones((3, 2), np.float32), np.ones(2, np.float32), np.full(2, 5, np.float32)
    x = np.ones((4, 3), np.float32)
    for scale in (1.0, 2.0, 3.0):
        layers = [Layer(library(w * np.float32(scale)), ts.array(b)), {"w": library(other)}]
        assert function(layers, library(x)).tolist() == [[3.0 * scale + 6.0] * 2] * 4
    assert function.cache_info().misses == 1


@pytest.mark.parametrize("library", LIBRARIES)
def test_eager_ops_and_operators(library: Any) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    x, own = library(array), ts.ones((2, 3))
    assert ts.ops.add(x, 1).tolist() == (array + 1).tolist()
    assert ts.ops.add(x, own).tolist() == (own + x).tolist() == (array + 1).tolist()
    assert ts.ops.concat([x, own]).shape == (4, 3)
    assert ts.ops.matmul(x, library(array.T.copy())).tolist() == (array @ array.T).tolist()
    assert (own @ library(array.T.copy())).tolist() == (np.ones((2, 3)) @ array.T).tolist()
    assert ts.ops.sum(x, axis=1).tolist() == array.sum(1).tolist()
    assert ts.ops.where(library(array > 2), x, own).tolist() == np.where(array > 2, array, 1).tolist()
    assert ts.ops.cast(x, "i32").dtype is ts.i32


@pytest.mark.parametrize("library", [torch_tensor, jax_array])
def test_operators_of_the_other_library_leave_it_to_ours(library: Any) -> None:
    x, own = library(np.ones(3, np.float32)), ts.full((3,), 2.0)
    for made, wanted in ((x + own, 3.0), (x * own, 2.0), (x - own, -1.0), (x / own, 0.5)):
        assert isinstance(made, ts.Tensor)
        assert made.tolist() == [wanted] * 3
    assert ts.jit(lambda y: x + y)(own).tolist() == [3.0] * 3


def test_results_go_back_to_jax_without_a_copy() -> None:
    jax: Any = pytest.importorskip("jax")
    made = ts.jit(lambda x: x * 2.0)(jax.numpy.arange(6, dtype=jax.numpy.float32).reshape(2, 3))
    back = jax.dlpack.from_dlpack(made)
    assert back.tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    assert back.unsafe_buffer_pointer() == made.address
    for dtype in (jax.numpy.bfloat16, jax.numpy.float16, jax.numpy.int32, jax.numpy.uint8, jax.numpy.bool_):
        given = jax.numpy.ones((2, 3), dtype)
        assert ts.asarray(given).dtype is ts.zeros(1, dtype).dtype
        assert ts.asarray(given).tolist() == given.tolist()


@pytest.mark.parametrize("library", LIBRARIES)
def test_kernels(library: Any) -> None:
    for rows in (3, 40):
        array = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
        assert double_tiles(library(array)).tolist() == (array * 2).tolist()
        assert double_tiles.interpret(library(array)).tolist() == (array * 2).tolist()
        assert ts.jit(lambda x: double_tiles(x) + 1.0)(library(array)).tolist() == (array * 2 + 1).tolist()
    captured = library(np.ones((4, 8), np.float32))
    assert ts.jit(lambda x: double_tiles(captured) + x)(captured).tolist() == [[3.0] * 8] * 4


@pytest.mark.parametrize("library", LIBRARIES)
def test_captured_tensors_are_read_at_each_call(library: Any) -> None:
    holder = {"w": library(np.ones(3, np.float32))}
    function = ts.jit(lambda x: x + holder["w"])
    x = np.zeros(3, np.float32)
    assert function(x).tolist() == [1.0] * 3
    for number in (2.0, 3.0):
        holder["w"] = library(np.full(3, number, np.float32))
        assert function(x).tolist() == [number] * 3
        assert function(library(x)).tolist() == [number] * 3
    assert function.cache_info().misses == 1
    holder["w"] = ts.array([1.0, 2.0, 3.0])  # of another library, and of ours, are the same program
    assert function(x).tolist() == [1.0, 2.0, 3.0]
    holder["w"] = library(np.ones((2, 3), np.float32))
    assert function(x).shape == (2, 3)


def test_captured_tensors_change_in_place() -> None:
    torch: Any = pytest.importorskip("torch")
    w = torch.ones(3)
    function = ts.jit(lambda x: ts.ops.mul(w, x))
    assert function(np.ones(3, np.float32)).tolist() == [1.0] * 3
    w += 1
    assert function(np.ones(3, np.float32)).tolist() == [2.0] * 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_control_flow_takes_them(library: Any) -> None:
    x = library(np.arange(6, dtype=np.float32).reshape(3, 2))

    def loop(y: Any) -> Any:
        state, rows = ts.scan(lambda s, row: (s + row, s), library(np.zeros(2, np.float32)), x)
        return ts.cond(y.sum() > 0, lambda: state + y, lambda: rows[0])

    assert ts.jit(loop)(np.ones(2, np.float32)).tolist() == [7.0, 10.0]


@pytest.mark.parametrize("name", DTYPES.split())
def test_every_dtype_of_pytorch(name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    values = torch.tensor([[0, 1], [1, 0], [1, 1]]).to(getattr(torch, name))
    for given in (values, values[:, 0], values.T, values[:0], values[1, 1]):
        shared = ts.asarray(given)
        assert str(shared.dtype) == str(ts.zeros(1, getattr(torch, name)).dtype)
        assert (shared.shape, shared.tolist()) == (tuple(given.shape), given.tolist())
        assert ts.jit(lambda x: x)(given).tolist() == given.tolist()


def test_strides_offsets_and_broadcasts_of_pytorch() -> None:
    torch: Any = pytest.importorskip("torch")
    base = torch.arange(24.0).reshape(2, 3, 4)
    function, eager = ts.jit(lambda x: x * 2.0, dynamic=True), lambda x: ts.ops.mul(x, 2.0)
    views = [base[:, 1], base[..., ::2], base.permute(2, 0, 1), base[0, :1].expand(5, 4), base[:, :0], base[1, 2, 3]]
    for view in views:
        for call in (function, eager):
            assert call(view).tolist() == (view * 2).tolist()


def test_steps_backwards() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)[::-1, ::-1]
    for library in (Plain, Interface):
        assert ts.jit(lambda x: x + 0.0)(library(array)).tolist() == array.tolist()


def test_the_bit_of_pytorch_that_means_the_opposite() -> None:
    torch: Any = pytest.importorskip("torch")
    x = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert x.is_neg()
    assert ts.jit(lambda x: x + 0.0)(x).tolist() == [-2.0, 4.0]
    assert ts.ops.neg(x).tolist() == [2.0, -4.0]


REFUSED = {
    "gradient": (lambda torch: torch.ones(2, requires_grad=True), "requires a gradient", "x.detach()"),
    "parameter": (lambda torch: torch.nn.Parameter(torch.ones(2)), "requires a gradient", "x.detach()"),
    "sparse": (lambda torch: torch.eye(2).to_sparse(), "layout other than", "dense tensor"),
    "meta": (lambda torch: torch.ones(2, device="meta"), "meta", "memory of a CPU"),
    "complex": (lambda torch: torch.ones(2, dtype=torch.complex64), "elements of complex64", "the dtypes are"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_shared_says_why_and_which(what: str) -> None:
    torch: Any = pytest.importorskip("torch")
    make, reason, help = REFUSED[what]
    x, function = make(torch), ts.jit(lambda params: params["w"] + 1.0)
    for _ in range(2):
        with pytest.raises(RuntimeArgumentError, match=reason) as caught:
            function({"w": x})
        assert help in str(caught.value)
        assert "`params['w']`" in str(caught.value)
        function({"w": torch.ones(2)})
    with pytest.raises(RuntimeArgumentError, match=reason):
        ts.ops.add(x, 1.0)


def test_fake_tensors_of_pytorch_have_no_memory() -> None:
    pytest.importorskip("torch")
    module: Any = pytest.importorskip("torch._subclasses.fake_tensor")
    torch: Any = pytest.importorskip("torch")
    with module.FakeTensorMode():
        x = torch.ones(2)
    with pytest.raises(RuntimeArgumentError, match="no memory of its own"):
        ts.ops.add(x, 1.0)


def test_devices_that_are_not_ours() -> None:
    class Elsewhere(Plain):
        def __dlpack_device__(self) -> Any:
            return (8, 0)

    with pytest.raises(RuntimeArgumentError, match=r"device 8 \(metal\), not in host memory") as caught:
        ts.jit(lambda x: x)(Elsewhere(np.ones(2, np.float32)))
    assert "`x`" in str(caught.value)


def test_they_are_never_static() -> None:
    function = ts.jit(lambda x, w: x + w, static_argnames="w")
    with pytest.raises(PytreeError, match="`w` is of type `Plain`"):
        function(np.ones(2, np.float32), Plain(np.ones(2, np.float32)))


def test_donated_memory_of_others_is_not_written() -> None:
    array = np.ones(4, np.float32)
    for library in (Plain, Interface):
        function = ts.jit(lambda x: x + 1.0, donate="x")
        for _ in range(2):
            assert function(library(array)).tolist() == [2.0] * 4
            assert array.tolist() == [1.0] * 4


def test_memory_that_may_not_be_written_is_read() -> None:
    array = np.ones(4, np.float32)
    array.flags.writeable = False
    for library in (Plain, Interface):
        assert ts.jit(lambda x: x + 1.0)(library(array)).tolist() == [2.0] * 4


def test_a_result_keeps_what_it_shows() -> None:
    array: Any = np.arange(4, dtype=np.float32)
    shared = ts.asarray(Plain(array))
    result, gone = ts.jit(lambda x: x)(Plain(array)), weakref.ref(array)
    del array
    gc.collect()
    assert shared.tolist() == result.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert gone() is not None
    del shared, result
    gc.collect()
    assert gone() is None


def test_nothing_is_held_after_a_call() -> None:
    function = ts.jit(lambda x: x + 1.0)
    for _ in range(3):
        given = Plain(np.ones(3, np.float32))
        gone = weakref.ref(given.array)
        function(given)
        ts.ops.add(given, 1.0)
        del given
        gc.collect()
        assert gone() is None


def test_what_is_foreign() -> None:
    from unittest.mock import MagicMock

    for value in (1, 1.5, "x", None, np.ones(2), np.float32(1), ts.ones(2), Plain, MagicMock(), object(), [1]):
        assert not is_foreign(value), value
    array = np.ones(2, np.float32)
    for value in (Plain(array), Interface(array), Held(array)):
        assert is_foreign(value)
        assert share(value).address == array.ctypes.data
    traced: list[bool] = []
    ts.jit(lambda x: (traced.append(is_foreign(x)), x)[1]).trace(array)
    assert traced == [False]


def test_classes_of_arguments_are_not_kept() -> None:
    class Setting:
        pass

    gone = weakref.ref(Setting)
    assert not is_foreign(Setting())
    del Setting
    gc.collect()
    assert gone() is None
