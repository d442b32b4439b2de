"""Tensors of libraries with DLPack's table of C functions: calls read them in place, and refuse what memory hides."""

# Traced functions have no types to give here, nor has PyTorch.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false
from __future__ import annotations

import ctypes
import gc
import sys
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.runtime import dlpack
from tessera.runtime.foreign import share
from tessera.runtime.tensor import native

DTYPES = (
    "float32 float64 float16 bfloat16 float8_e4m3fn float8_e5m2 int64 int32 int16 int8 uint8 uint16 uint32 uint64 bool"
)


@pytest.fixture
def torch() -> Any:
    found: Any = pytest.importorskip("torch")
    if not hasattr(found.Tensor, "__dlpack_c_exchange_api__"):
        pytest.skip("this PyTorch has no table of C functions")
    ts.asarray(found.ones(2))
    return found


def warm(torch: Any, function: Any, *given: Any) -> Any:
    """A function whose program for these is made, with the count of its native calls."""
    made = ts.jit(function)
    made(*given)
    return made


def refuse_methods(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a method of Python is called")

    for name in ("__dlpack__", "__dlpack_device__"):
        monkeypatch.setattr(torch.Tensor, name, refuse)


@pytest.mark.parametrize("name", DTYPES.split())
def test_calls_read_every_dtype_and_form_in_place(torch: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.tensor([[0, 1], [1, 0], [1, 1]]).to(getattr(torch, name))
    forms = (values, values[1:], values[:0], values[1, 1], values[1:2].T, values[:, :1].T[:, :1])
    functions = [warm(torch, lambda x: x, form) for form in forms]
    refuse_methods(torch, monkeypatch)
    for form, function in zip(forms, functions, strict=True):
        assert function(form).tolist() == form.tolist()
        assert share(form).tolist() == form.tolist()
        assert share(form).address == form.data_ptr()
        assert function.specializations[0].loaded.copies == 0


def test_eager_ops_share_without_methods_of_python(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.arange(6.0).reshape(2, 3)
    refuse_methods(torch, monkeypatch)
    assert ts.ops.sum(x).item() == 15.0
    assert (ts.ones((2, 3)) + x).tolist() == (x + 1).tolist()
    assert ts.ops.add(x.T, x.T).tolist() == (x.T + x.T).tolist()
    assert share(x[:, ::2]).strides == (12, 8)


def test_trees_captured_tensors_and_numbers_beside_them(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    held, x = torch.ones(3), torch.arange(3.0)
    function = warm(torch, lambda p, by: p["w"] * by + held, {"w": x}, 2.0)
    refuse_methods(torch, monkeypatch)
    held += 1
    assert function({"w": x + 1}, 3.0).tolist() == [5.0, 8.0, 11.0]


def odd_tensors(torch: Any) -> dict[str, Any]:
    """Tensors of the same type whose memory is not their elements, or that have none, or none that may be shared."""
    made = {
        "gradient": torch.ones(2, requires_grad=True),
        "sparse": torch.eye(2).to_sparse(),
        "meta": torch.ones(2, device="meta"),
        "complex": torch.ones(2, dtype=torch.complex64),
        "conjugate": torch.ones(2, dtype=torch.complex64).conj(),
        "opposite": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    }
    for name, make in {
        "rows": lambda: torch.eye(2).to_sparse_csr(),
        "zeros": lambda: torch._efficientzerotensor(2),
        "opaque": lambda: torch.ones(2).to_mkldnn(),
        "ragged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8),
    }.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made[name] = make()
        except (RuntimeError, AttributeError, NotImplementedError):
            continue  # this build has none
    return made


def test_what_memory_does_not_say_is_never_read_in_place(torch: Any) -> None:
    function = ts.jit(lambda x: x * 1.0)
    function(torch.ones(2))
    for name, value in odd_tensors(torch).items():
        assert native().from_exchange(value) is NotImplemented, name
        if name == "opposite":
            assert function(value).tolist() == [-2.0, 4.0]
            continue
        for call in (function, ts.ops.exp):
            with pytest.raises(RuntimeArgumentError):
                call(value)


def test_wrong_dtypes_and_ranks_are_other_programs(torch: Any) -> None:
    function = ts.jit(lambda x: x + x)
    for given in (
        torch.ones(2),
        torch.ones(2, dtype=torch.int8),
        torch.ones(2, 2),
        torch.ones(2, dtype=torch.bfloat16),
    ):
        assert function(given).tolist() == (given + given).tolist()
    assert function.cache_info().misses == 4
    packed = warm(torch, lambda x: x + x, ts.array([1, 2], "i4"))
    assert str(packed(torch.tensor([1, 2], dtype=torch.int8)).dtype) == "i8"


def test_strided_and_misaligned_tensors_are_copied(torch: Any) -> None:
    function = ts.jit(lambda x: x * 2.0, dynamic=True)
    misaligned = torch.from_numpy(np.frombuffer(bytearray(b"\0" + bytes(36)), np.float32, 9, 1))
    misaligned += 3.0
    assert misaligned.data_ptr() % 4
    views = (torch.arange(8.0)[::2], torch.arange(8.0).reshape(2, 4).T, torch.ones(1).expand(3), misaligned)
    for view in views:
        assert function(view).tolist() == (view * 2).tolist()


def test_a_class_with_methods_of_its_own_is_asked_by_them(torch: Any) -> None:
    class Doubled(torch.Tensor):
        def __dlpack__(self, **options: Any) -> Any:
            return (self.as_subclass(torch.Tensor) * 2).__dlpack__(**options)

    x = torch.ones(3).as_subclass(Doubled)
    function = ts.jit(lambda x: x + 0.0)
    for _ in range(3):
        assert function(x).tolist() == [2.0] * 3
        assert ts.ops.add(x, 0.0).tolist() == [2.0] * 3


def test_batched_tensors_of_functional_transforms_are_refused(torch: Any) -> None:
    function = ts.jit(lambda x: x * 2.0)
    function(torch.ones(3))
    with pytest.raises(RuntimeArgumentError, match="cannot be shared"):
        torch.func.vmap(function)(torch.ones(2, 3))


def test_nothing_is_held_and_counts_of_references_stay(torch: Any) -> None:
    x, function = torch.ones(4), ts.jit(lambda x: x + 1.0)
    function(x)
    before = sys.getrefcount(x)
    for _ in range(100):
        function(x)
        share(x)
    gc.collect()
    assert sys.getrefcount(x) == before
    storage = x.untyped_storage()
    gone, kept = weakref.ref(storage), share(x)
    del x, storage
    gc.collect()
    assert kept.tolist() == [1.0] * 4
    del kept
    gc.collect()
    assert gone() is None


def test_donated_memory_is_not_written(torch: Any) -> None:
    x, function = torch.ones(4), ts.jit(lambda x: x + 1.0, donate="x")
    for _ in range(3):
        assert function(x).tolist() == [2.0] * 4
        assert x.tolist() == [1.0] * 4


def test_other_versions_of_the_table_and_other_capsules_are_left_alone() -> None:
    words = (ctypes.c_uint64 * 7)(2, 0, 0, 0, 0, 0, 0)
    newest = dlpack.new_capsule(ctypes.addressof(words), ctypes.c_char_p(b"dlpack_exchange_api"), None)
    assert dlpack.exchange_table(newest) is None
    older = (ctypes.c_uint64 * 7)(1, 0, 0, 0, 0, 0, 0)
    words[1] = ctypes.addressof(older)
    assert dlpack.exchange_table(newest) == ctypes.addressof(older)
    assert dlpack.exchange_table(None) is None
    name = ctypes.c_char_p(b"another")
    assert dlpack.exchange_table(dlpack.new_capsule(ctypes.addressof(words), name, None)) is None


def test_capsules_of_wrong_versions_sizes_and_uses_are_explained() -> None:
    class Capsule:
        """A producer of one capsule, as often as it is asked."""

        def __init__(self) -> None:
            self.made: Any = np.ones(2, np.float32).__dlpack__(max_version=(1, 0))

        def __dlpack_device__(self) -> Any:
            return (1, 0)

        def __dlpack__(self, **_: Any) -> Any:
            return self.made

    given = Capsule()
    assert ts.asarray(given).tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeArgumentError, match="one that was used before"):
        share(given)
    with pytest.raises(RuntimeArgumentError, match="not a DLPack capsule"):
        ts.Tensor.from_dlpack(object())
