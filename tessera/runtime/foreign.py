"""Tensors of other libraries, recognized by the protocols that they have, and shared without copies.

A library is never loaded, and none is known by its name: whatever has DLPack, `__cuda_array_interface__` or
`__array_interface__` is a tensor. What it refuses (gradients, sparse layouts, devices that are not ours) is said in its
own words, with what to write instead where that is known.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

from tessera.diagnostics.codes import RuntimeArgumentError
from tessera.diagnostics.error import TesseraError
from tessera.runtime import dlpack

_PROTOCOLS = ("__dlpack__", "__cuda_array_interface__", "__array_interface__")
FOREIGN: set[type[Any]] = set()
"""Classes that were found to have one; the others are not kept, so that nothing holds on to them."""
_OWN = ("tessera", "numpy", "builtins")


def is_foreign(value: Any) -> bool:
    """Whether a value is a tensor of another library; NumPy's arrays are not among them, nor anything of ours."""
    kind = cast("type[Any]", type(value))
    if kind in FOREIGN:
        return True
    if kind.__module__.partition(".")[0] in _OWN:
        return False
    if any(hasattr(kind, name) for name in _PROTOCOLS):
        # A subclass of NumPy's arrays has them too; a class itself has them unbound.
        if isinstance(value, type) or _is_array(value):
            return False
        FOREIGN.add(kind)
        return True
    held: Any = getattr(value, "__dict__", None)
    return isinstance(held, dict) and any(name in held for name in _PROTOCOLS)


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic))


def share(value: Any) -> Any:
    """A foreign tensor as one of ours in the same memory, which it keeps alive: a `Tensor`, or a `CudaTensor`.

    A tensor of a GPU is read in the current stream, after what its own library has put into its stream so far.
    Raises RuntimeArgumentError (T0701) for what cannot be shared.
    """
    kind = cast("type[Any]", type(value))
    ask = _EXCHANGED.get(kind)
    if ask is not None:
        made = ask(value)
        if made is not NotImplemented:
            return made if made.__class__ is not tuple else _device_tensor().borrow(*made)
    try:
        if hasattr(kind, "is_neg") and value.is_neg():
            value = value.resolve_neg()  # PyTorch's memory holds the opposite of such elements
        if hasattr(value, "__dlpack__"):
            _check_memory(kind)
            made = _share_dlpack(value)
            _read_in_place(kind)
            return made
        if hasattr(value, "__cuda_array_interface__"):
            return _on_gpu(value)
    except TesseraError:
        raise
    except Exception as error:
        # Whatever a library raises: its words say what it refuses.
        raise _refusal(value, error) from error
    import numpy  # noqa: PLC0415 - the oldest protocol is NumPy's

    return _on_host().from_numpy(numpy.asarray(value))


def adopt(value: Any) -> Any:
    """A tensor of another library as one of ours in the same memory; any other value as it is."""
    return share(value) if is_foreign(value) else value


def adopt_tensors(tensors: Sequence[Any]) -> list[Any] | None:
    """The tensors of a call with those of other libraries as ours.

    None where there are none, and where one cannot be shared: whoever binds the call says which, and why.
    """
    if not any(is_foreign(tensor) for tensor in tensors):
        return None
    try:
        return [adopt(tensor) for tensor in tensors]
    except TesseraError:
        return None


def _share_dlpack(value: Any) -> Any:
    device = value.__dlpack_device__()[0]
    if device in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        return _on_gpu(value)
    dlpack.check_device(device, dlpack.HOST)
    return _on_host().from_dlpack(dlpack.request_capsule(value))


def _on_host() -> Any:
    from tessera.runtime.tensor import Tensor  # noqa: PLC0415 - to recognize a tensor takes no more than its class

    return Tensor


def _on_gpu(value: Any) -> Any:
    return _device_tensor().of(value)


def _device_tensor() -> Any:
    from tessera.runtime.devices.cuda.tensor import CudaTensor  # noqa: PLC0415 - only where there is a device

    return CudaTensor


def _native() -> Any:
    from tessera.runtime.tensor import native  # noqa: PLC0415 - as `_on_host`

    return native()


# Libraries that have a table of C functions beside DLPack's methods are asked by native code: a call of a compiled
# function then reads their tensors as it reads ours, where the methods, written in Python, take ten times as long.

_TABLE = "__dlpack_c_exchange_api__"
_EXCHANGED: dict[type[Any], Callable[[Any], Any]] = {}
"""What shares tensors of classes whose tables native code knows."""


def _read_in_place(kind: type[Any]) -> None:
    """Let native code ask a class for its tensors, one of which was shared before: what it refuses was said there."""
    owner = next((one for one in kind.__mro__ if "__dlpack__" in vars(one)), None)
    # Who has methods of its own under an inherited table may mean something else by them.
    if kind in _EXCHANGED or owner is None or _TABLE not in vars(owner):
        return
    table = dlpack.exchange_table(vars(owner)[_TABLE])
    if table is not None:
        names = [name if hasattr(kind, name) else None for name in ("requires_grad", "is_neg")]
        _native().read_in_place(kind, table, *names)
        _EXCHANGED[kind] = _native().from_exchange


def _check_memory(kind: type[Any]) -> None:
    """Raises for PyTorch's wrappers (fake tensors, distributed ones): what they export is not what they stand for."""
    owner = next((one for one in kind.__mro__ if "__torch_dispatch__" in vars(one)), None)
    if owner is not None and owner.__name__ not in ("Tensor", "TensorBase"):
        raise RuntimeArgumentError(
            f"a `{kind.__module__}.{kind.__name__}` has no memory of its own to share",
            fix="pass a plain tensor of PyTorch",
        )


def _refusal(value: Any, error: Exception) -> RuntimeArgumentError:
    kind = cast("type[Any]", type(value))
    if getattr(value, "requires_grad", False):
        return RuntimeArgumentError(
            f"a {kind.__name__} that requires a gradient is not shared: autograd would not see what is computed here",
            fix="pass `x.detach()`, or differentiate with `tessera.interop.torch.wrap(f, derivative)`",
        )
    return RuntimeArgumentError(
        f"a `{kind.__module__}.{kind.__name__}` cannot be shared: {error}",
        fix="make it a dense tensor in the memory of a CPU or an NVIDIA GPU first",
    )


# What is accepted where a tensor is expected, said to whoever passes something else.

_ACCEPTED = (
    "pass a tensor, an array of NumPy, a tensor of any library with DLPack or `__array_interface__`, "
    "or `ts.array(...)` of numbers and nested lists"
)


def tensor_advice(value: Any) -> str:
    """What to write where a tensor is expected, by what was passed instead."""
    kind = cast("type[Any]", type(value))
    for kinds, advice in _ADVICE:
        if isinstance(value, kinds):
            return advice(value)
    if hasattr(kind, "__array__"):
        return "pass the array that it holds, `numpy.asarray(...)` of it"
    if callable(value):
        return "pass what it returns: `f(...)` instead of `f`"
    return f"pass `ts.array(list(...))` of it, or {_ACCEPTED[5:]}" if hasattr(kind, "__iter__") else _ACCEPTED


def _advise_list(values: Sequence[Any]) -> str:
    items = list(values)
    while items and all(isinstance(item, (list, tuple)) for item in items):
        items = [one for item in items for one in item]
    if all(isinstance(item, (bool, int, float)) for item in items):
        return "`ts.array(...)` converts nested lists of numbers to a tensor"
    if all(hasattr(item, "shape") or is_foreign(item) for item in items):
        return "`ts.ops.stack([...])` makes one tensor of several, and `ts.ops.concat` joins them"
    return _ACCEPTED


_ADVICE: tuple[tuple[Any, Callable[[Any], str]], ...] = (
    ((bool, int, float), lambda value: f"`ts.array({value!r})` is a scalar, and `ts.full(shape, {value!r})` a tensor"),
    ((list, tuple), _advise_list),
    (type(None), lambda _: 'pass a tensor; a parameter that may be left out is declared `Tensor["N"] | None`'),
    (str, lambda _: "tensors hold numbers: convert the text first, as in `ts.array([float(word) for word in words])`"),
    ((set, frozenset), lambda _: "a set has no order: write `ts.array(sorted(values))`"),
    (dict, lambda _: "pass one of its values; a parameter without an annotation takes a dict of tensors"),
    (
        (bytes, bytearray, memoryview),
        lambda _: "`ts.asarray(data)` shares its bytes, `numpy.frombuffer` reads them",
    ),
    (range, lambda value: f"write `ts.arange({value.start}, {value.stop}, {value.step})`"),
    (
        complex,
        lambda _: (
            "pass its real and its imaginary part as two tensors, or `ts.array(z)` where complex tensors are taken"
        ),
    ),
)
"""By class, the first that fits."""
