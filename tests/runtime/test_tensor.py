"""Tensors against NumPy, DLPack, buffers and plain lists; and what they say when asked for nonsense."""

from __future__ import annotations

import array
import ctypes
import gc
import math
import pickle
import struct
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tessera.diagnostics.codes import OperatorError, OutOfMemoryError, RuntimeArgumentError
from tessera.diagnostics.error import TesseraError
from tessera.runtime import arrays, operators
from tessera.runtime.tensor import Tensor
from tessera.types.dtype import ALL, BY_NAME, DType, f32, i4


def sample(dtype: DType, shape: tuple[int, ...] = (3, 4)) -> np.ndarray[Any, Any]:
    return (np.arange(np.prod(shape)).reshape(shape) % 7).astype(arrays.numpy_dtype(dtype))


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_numpy_in_both_directions_is_without_a_copy(dtype: DType) -> None:
    source = sample(dtype)
    tensor = Tensor.of(source, dtype)
    assert (tensor.shape, tensor.dtype, tensor.ndim, tensor.size) == ((3, 4), dtype, 2, 12)
    assert tensor.nbytes == 12 * dtype.bytes
    assert tensor.strides == source.strides
    back = tensor.numpy()
    assert back.dtype == source.dtype
    assert np.shares_memory(back, source)
    np.testing.assert_array_equal(np.asarray(tensor), source)
    assert np.asarray(tensor).dtype == source.dtype
    source[0, 0] = 5
    assert tensor.tolist() == source.tolist()


@given(hnp.arrays(st.sampled_from(["f8", "f4", "i4", "?"]), hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)))
def test_lists_are_those_of_numpy(source: np.ndarray[Any, Any]) -> None:
    np.testing.assert_array_equal(np.array(Tensor.of(source).tolist()).ravel(), np.array(source.tolist()).ravel())
    if 0 not in source.shape:
        assert np.shape(Tensor.of(source).tolist()) == source.shape


@st.composite
def views(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Arrays seen through transpositions, steps, reversals and broadcasts."""
    dtype = draw(st.sampled_from(["u1", "i2", "f4", "f8"]))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=40).filter(lambda s: np.prod(s) < 5000))
    view = np.arange(np.prod(shape)).astype(dtype).reshape(shape)
    view = view.transpose(draw(st.permutations(range(len(shape)))))
    view = view[tuple(slice(None, None, draw(st.sampled_from([1, 2, -1, -3]))) for _ in shape)]
    if draw(st.booleans()):
        view = np.broadcast_to(view, (draw(st.integers(1, 3)), *view.shape))
    return view


@given(views())
def test_the_native_copy_of_any_view_is_numpys(view: np.ndarray[Any, Any]) -> None:
    tensor = Tensor.from_dlpack(view) if view.flags.writeable else Tensor.of(view)
    copy = tensor.copy()
    assert copy.is_contiguous
    assert copy.shape == view.shape
    np.testing.assert_array_equal(copy.numpy(), view)
    assert copy.numpy().dtype == view.dtype


def test_a_strided_array_is_copied_once_and_kept() -> None:
    source = np.arange(12, dtype=np.float32).reshape(3, 4).T
    tensor = Tensor.from_numpy(source)
    assert tensor.is_contiguous
    np.testing.assert_array_equal(tensor.numpy(), source)


def test_foreign_byte_order_and_odd_addresses_are_repaired() -> None:
    np.testing.assert_array_equal(Tensor.of(np.arange(5, dtype=">f4")).numpy(), np.arange(5))
    odd = np.zeros(21, np.uint8)[1:].view(np.float32)
    odd[:] = range(5)
    tensor = Tensor.of(odd)
    assert tensor.address % 4 == 0
    np.testing.assert_array_equal(tensor.numpy(), np.arange(5))


def test_owners_live_as_long_as_tensors_and_arrays_do() -> None:
    source = np.arange(4.0)
    alive = weakref.ref(source)
    tensor = Tensor.of(source)
    del source
    gc.collect()
    assert alive() is not None
    view = tensor.numpy()
    del tensor
    gc.collect()
    np.testing.assert_array_equal(view, np.arange(4.0))
    del view
    gc.collect()
    assert alive() is None


def test_read_only_memory_stays_read_only() -> None:
    source = np.arange(4.0)
    source.flags.writeable = False
    tensor = Tensor.of(source)
    assert tensor.is_read_only
    assert not tensor.numpy().flags.writeable
    with pytest.raises(BufferError, match=r"DLPack 1\.0"):
        tensor.__dlpack__()
    assert Tensor.from_dlpack(tensor).is_read_only


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype is not i4], ids=str)
@pytest.mark.parametrize("version", [None, (1, 0)])
def test_dlpack_out_and_in_is_without_a_copy(dtype: DType, version: tuple[int, int] | None) -> None:
    tensor = Tensor.of(sample(dtype))
    capsule = tensor.__dlpack__(max_version=version)
    again = Tensor.from_dlpack(capsule)
    assert (again.address, again.dtype, again.shape) == (tensor.address, dtype, (3, 4))
    with pytest.raises(RuntimeArgumentError, match="used before"):
        Tensor.from_dlpack(capsule)
    del tensor
    np.testing.assert_array_equal(again.numpy(), sample(dtype))


@pytest.mark.parametrize("dtype", [dtype for dtype in ALL if dtype.bits >= 8 and dtype.name[:2] not in ("bf", "f8")])
def test_numpy_reads_our_dlpack_and_we_read_numpys(dtype: DType) -> None:
    tensor = Tensor.of(sample(dtype))
    there = np.from_dlpack(tensor)
    assert np.shares_memory(there, tensor.numpy())
    strided = sample(dtype, (4, 6))[::2, ::-1]
    here = Tensor.from_dlpack(strided)
    assert not here.is_contiguous
    np.testing.assert_array_equal(here.numpy(), strided)
    np.testing.assert_array_equal(here.contiguous().numpy(), strided)
    assert here.tolist() == strided.tolist()


def test_an_unused_capsule_lets_go_of_its_tensor() -> None:
    source = np.arange(4.0)
    alive = weakref.ref(source)
    capsules = [Tensor.of(source).__dlpack__(), Tensor.of(source).__dlpack__(max_version=(1, 0))]
    del source
    gc.collect()
    assert alive() is not None
    capsules.clear()
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize(("mark", "name"), [("f", "f32"), ("d", "f64"), ("q", "i64"), ("B", "u8"), ("l", "i64")])
def test_buffers_are_shared(mark: str, name: str) -> None:
    source = array.array(mark, [1, 2, 3])
    tensor = Tensor.from_buffer(source)
    assert (tensor.dtype.name, tensor.tolist()) == (name, [1, 2, 3])
    source[0] = 9
    assert tensor.tolist()[0] == 9
    assert Tensor.of(bytes([1, 2])).is_read_only
    assert Tensor.of(memoryview(bytes(6)).cast("B", (2, 3))).shape == (2, 3)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_lists_become_tensors_and_come_back(dtype: DType) -> None:
    values = [[True, False], [False, True]] if dtype.is_bool else [[1, 2], [3, -4 if dtype.kind != "uint" else 4]]
    assert Tensor.of(values, dtype).tolist() == values


@pytest.mark.parametrize("name", ["bf16", "f8e4m3", "f8e5m2", "f16", "f32"])
@given(value=st.floats(width=64) | st.floats(-500, 500))
def test_rounding_is_that_of_ml_dtypes(name: str, value: float) -> None:
    # ml_dtypes rounds doubles to f32 first where the target is narrow; give it a value that this leaves alone.
    with np.errstate(over="ignore"):
        value = float(np.float32(value))
        expected = np.array(value, np.float32).astype(arrays.numpy_dtype(BY_NAME[name]))
    found = Tensor.of(value, name).numpy()
    if np.isnan(expected):
        assert np.isnan(found)
    else:
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["bf16", "f8e4m3", "f8e5m2"])
def test_every_bit_pattern_is_read_as_ml_dtypes_does(name: str) -> None:
    dtype = BY_NAME[name]
    bits = np.arange(1 << dtype.bits, dtype=f"u{dtype.bytes}").view(arrays.numpy_dtype(dtype))
    with np.errstate(invalid="ignore"):
        expected = bits.astype(np.float64)
    np.testing.assert_array_equal(np.array(Tensor.of(bits).tolist()), expected)


def test_numbers() -> None:
    one = Tensor.of([[2.5]], "f32")
    assert (one.item(), float(one), int(one), bool(one), f"{one:.2f}") == (2.5, 2.5, 2, True, "2.50")
    assert [10, 20, 30][Tensor.of(1, "i32")] == 20
    with pytest.raises(TypeError, match="not an index"):
        range(3)[Tensor.of(1.0, "f32")]
    with pytest.raises(OperatorError, match=r"one element has an item, this one has shape \[2\]"):
        bool(Tensor.of([1, 2], "i32"))
    assert len(Tensor.of([1, 2], "i32")) == 2
    with pytest.raises(TypeError, match="rank 0"):
        len(Tensor.of(1, "i32"))


def test_pickle_and_copy_keep_the_elements() -> None:
    tensor = Tensor.of(sample(BY_NAME["bf16"]))
    again = pickle.loads(pickle.dumps(tensor))
    assert (again.dtype, again.shape, again.tobytes()) == (tensor.dtype, tensor.shape, tensor.tobytes())


def test_text_shows_dims_dtype_and_values() -> None:
    assert repr(Tensor.of([[1, 2], [3, 4.5]], "f32")) == ("Tensor([2, 2] f32, [[1, 2],\n                    [3, 4.5]])")
    assert repr(Tensor.of(np.arange(1000))) == "Tensor([1000] i64, [0, 1, 2, ..., 997, 998, 999])"
    assert repr(Tensor.of(True, "bool")) == "Tensor([] bool, True)"
    assert repr(Tensor.of([], "i8")) == "Tensor([0] i8, [])"


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        ([1, 2], None, "a list has no dtype of its own"),
        ([[1], [2, 3]], "f32", "differ in length at depth 1"),
        ([[1], 2], "f32", "differ in length at depth 1"),
        (["a"], "f32", "a str is not a number"),
        ([np.float32(1)], "f32", r"a `float32` of NumPy is not a number(.|\n)*`numpy\.array\(values\)`"),
        ([300], "u8", "300 is not a value of u8, which holds 0..255"),
        ([1.5], "i32", "1.5 is not a value of i32"),
        (np.array([9], np.int8), "i4", "i4 holds -8..7, but the array has values in 9..9"),
        (np.array([1j]), None, "`complex128` have no Tessera dtype"),
        (np.ones(3), "f32", r"the elements are f64, not f32(.|\n)*`ts\.ops\.cast\(values, ts\.f32\)`"),
    ],
)
def test_what_is_no_tensor_is_explained(value: Any, dtype: str | None, text: str) -> None:
    with pytest.raises(RuntimeArgumentError, match=text):
        Tensor.of(value, dtype)


def test_calling_the_class_says_what_to_do() -> None:
    with pytest.raises(OperatorError, match=r"ts\.array"):
        Tensor([1])


def test_the_class_with_a_subscript_is_an_annotation() -> None:
    assert str(Tensor["B", 64, f32]) == 'Tensor["B", 64, f32]'


def test_operators_go_to_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "_table", {})
    x, y = Tensor.of([1.0], "f32"), Tensor.of([2.0], "f32")
    with pytest.raises(TesseraError, match="nothing here carries out `add`"):
        _ = x + y
    with pytest.raises(TesseraError, match="`sum`"):
        x.sum()
    names = ["add", "matmul", "eq", "getitem", "neg", "T", "sum"]

    def recorder(name: str) -> operators.Operation:
        return lambda *given, **options: (name, given, options)

    operators.set_operators({name: recorder(name) for name in names})
    assert x + y == ("add", (x, y), {})
    assert 1 + x == ("add", (1, x), {})
    assert np.ones(1) + x == ("add", (np.ones(1), x), {})
    assert (x == y) == ("eq", (x, y), {})
    assert x[0, ...] == ("getitem", (x, (0, ...)), {})
    assert ("T", (x,), {}) == x.T
    assert x.sum(axis=1) == ("sum", (x,), {"axis": 1})
    assert len({x, y, x}) == 2


def test_the_array_interface_says_what_the_native_one_does() -> None:
    class Interface:
        def __init__(self, tensor: Tensor) -> None:
            self.__array_interface__ = tensor.__array_interface__

    for source in (sample(f32)[::2, ::-1], sample(BY_NAME["bool"]), sample(BY_NAME["u16"], (1, 3))):
        tensor = Tensor.from_dlpack(source)
        np.testing.assert_array_equal(np.asarray(Interface(tensor)), source)
        assert np.asarray(tensor).strides == np.asarray(Interface(tensor)).strides == source.strides
        assert np.asarray(tensor).flags.c_contiguous == source.flags.c_contiguous


def test_narrow_floats_are_arrays_of_ml_dtypes() -> None:
    assert np.asarray(Tensor.of([1.0], "bf16")).dtype == ml_dtypes.bfloat16
    assert not hasattr(Tensor.of([1.0], "bf16"), "__array_interface__")
    assert np.asarray(Tensor.of([1.0], "f32"), dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize(
    "shape", [(1 << 31, 1 << 31), (1 << 64,), (1 << 63,), (1 << 32, 1 << 32), (0, 1 << 62), (1 << 48,)]
)
def test_sizes_that_no_memory_has_are_refused_with_their_bytes(shape: tuple[int, ...]) -> None:
    total = 4 * math.prod(dim or 1 for dim in shape)
    with pytest.raises(OutOfMemoryError, match=f"no memory for {total} bytes: ") as caught:
        Tensor.empty(shape, f32)
    assert isinstance(caught.value, MemoryError)


def test_negative_sizes_are_refused() -> None:
    with pytest.raises(RuntimeArgumentError, match=r"a size is negative in \[-2147483648, -2\]"):
        Tensor.empty((-(1 << 31), -2), f32)


class _Producer:
    """Somebody's DLPack tensor of f32 with the sizes and strides given, in elements."""

    def __init__(self, shape: tuple[int, ...], strides: tuple[int, ...] | None) -> None:
        self.sizes = (ctypes.c_int64 * len(shape))(*shape)
        self.steps = None if strides is None else (ctypes.c_int64 * len(strides))(*strides)
        steps = None if self.steps is None else ctypes.addressof(self.steps)
        dtype = 2 | 32 << 8 | 1 << 16
        # data, device, rank and dtype, shape, strides, offset, context, deleter
        words = struct.pack(
            "QiiiIQQQQQ", 64, 1, 0, len(shape), dtype, ctypes.addressof(self.sizes), steps or 0, 0, 0, 0
        )
        self.record = ctypes.create_string_buffer(words)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self) -> object:
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.record), _CAPSULE, None)


_CAPSULE = ctypes.c_char_p(b"dltensor")


@pytest.mark.parametrize(
    ("shape", "strides", "text"),
    [
        ((1 << 31, 1 << 31), None, "exceed 64 bits"),
        ((0, 1 << 62), None, "exceed 64 bits"),
        ((2, 2), (1 << 62, 1), "exceed 64 bits"),
        ((2, -3), None, "a size is negative"),
    ],
)
def test_a_producer_of_impossible_sizes_is_refused(
    shape: tuple[int, ...], strides: tuple[int, ...] | None, text: str
) -> None:
    with pytest.raises(RuntimeArgumentError, match=text):
        Tensor.from_dlpack(_Producer(shape, strides))
    producer = _Producer((2, 3), (3, 1))
    assert Tensor.from_dlpack(producer).shape == (2, 3)
