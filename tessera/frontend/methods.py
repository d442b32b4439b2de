"""`TensorMethods`: the operators and methods that concrete tensors and tracers share."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from tessera.frontend.arguments import check_int, explain_wrong_calls
from tessera.frontend.pytree import as_tuple

if TYPE_CHECKING:
    from types import ModuleType

    from tessera.frontend.functions.updates import At

_FUNCTIONS: list[ModuleType] = []


def _functions() -> Any:
    """The module of all functions; they are defined on tensors, so they load after them."""
    if not _FUNCTIONS:
        from tessera.frontend.functions import public  # noqa: PLC0415 - see above

        _FUNCTIONS.append(public)
    return _FUNCTIONS[0]


def function_named(name: str) -> Any:
    """The function of that name; None where there is none."""
    found = getattr(_functions(), name, None) if name.isidentifier() else None
    return found if callable(found) else None


def _operator(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: getattr(_functions(), name)(self, other)


def _reflected_operator(name: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: getattr(_functions(), name)(other, self)


class TensorMethods:
    """Python's operators and NumPy's methods; each calls the function of the same name."""

    __slots__ = ()
    __hash__ = object.__hash__

    __add__, __radd__ = _operator("add"), _reflected_operator("add")
    __sub__, __rsub__ = _operator("sub"), _reflected_operator("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected_operator("mul")
    __truediv__, __rtruediv__ = _operator("div"), _reflected_operator("div")
    __floordiv__, __rfloordiv__ = _operator("floordiv"), _reflected_operator("floordiv")
    __mod__, __rmod__ = _operator("mod"), _reflected_operator("mod")
    __pow__, __rpow__ = _operator("pow"), _reflected_operator("pow")
    __and__ = __rand__ = _operator("bitwise_and")
    __or__ = __ror__ = _operator("bitwise_or")
    __xor__ = __rxor__ = _operator("bitwise_xor")
    __lshift__, __rlshift__ = _operator("shift_left"), _reflected_operator("shift_left")
    __rshift__, __rrshift__ = _operator("shift_right"), _reflected_operator("shift_right")
    __lt__ = _operator("lt")
    __le__ = _operator("le")
    __gt__ = _operator("gt")
    __ge__ = _operator("ge")

    def __matmul__(self, other: Any) -> Any:
        if getattr(other, "has_matmul", False):
            return NotImplemented  # Python asks `other.__rmatmul__` next
        return _functions().matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _functions().matmul(other, self)

    def __neg__(self) -> Any:
        return _functions().neg(self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return _functions().abs(self)

    def __invert__(self) -> Any:
        return _functions().bitwise_not(self)

    def __round__(self, decimals: int = 0) -> Any:
        return self.round(decimals)

    def __divmod__(self, other: Any) -> Any:
        return _functions().floordiv(self, other), _functions().mod(self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return _functions().floordiv(other, self), _functions().mod(other, self)

    def __eq__(self, other: object) -> Any:
        return _functions().eq(self, other)

    def __ne__(self, other: object) -> Any:
        return _functions().ne(self, other)

    def __getitem__(self, index: Any) -> Any:
        return _functions().getitem(self, index)

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The array API standard on tensors: `tessera.xp`."""
        from tessera.runtime.operators import apply  # noqa: PLC0415 - the namespace is above this package

        return apply("array_namespace", api_version)

    def to_device(self, device: Any, /, *, stream: Any = None) -> Any:
        """The tensor on a device."""
        from tessera.runtime.operators import apply  # noqa: PLC0415 - as above

        return apply("to_device", self, device, stream=stream)

    @property
    def at(self) -> At:
        """What gives new tensors with elements replaced: `x.at[index].set(values)`, and `add`, `mul`, `max`, `min`."""
        from tessera.frontend.functions.updates import At  # noqa: PLC0415 - see `_functions`

        return At(self)

    @property
    def T(self) -> Any:  # noqa: N802 - NumPy's name for it
        """The tensor with its axes in reverse order."""
        return _functions().transpose(self)

    @property
    def mT(self) -> Any:  # noqa: N802 - NumPy's name for it
        """The tensor with its last two axes swapped."""
        return _functions().swapaxes(self, -1, -2)

    def cast(self, dtype: Any) -> Any:
        """The tensor in another dtype."""
        return _functions().astype(self, dtype)

    def astype(self, dtype: Any) -> Any:
        """The tensor in another dtype: NumPy's name for `cast`."""
        return _functions().astype(self, dtype)

    def reshape(self, *shape: Any) -> Any:
        """The same elements in another shape; one size may be -1."""
        return _functions().reshape(self, _unpack(shape))

    def transpose(self, *axes: Any) -> Any:
        """The tensor with its axes in another order, by default reversed."""
        return _functions().transpose(self, _unpack(axes) or None)

    def swapaxes(self, first: int, second: int) -> Any:
        """The tensor with two axes swapped."""
        return _functions().swapaxes(self, first, second)

    def flatten(self) -> Any:
        """All elements in one dimension."""
        return _functions().reshape(self, (-1,))

    def ravel(self) -> Any:
        """All elements in one dimension: NumPy's name for `flatten`."""
        return _functions().reshape(self, (-1,))

    def repeat(self, repeats: int, axis: int | None = None) -> Any:
        """Each element repeated along an axis."""
        return _functions().repeat(self, repeats, axis)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """The elements whose indices along two axes are equal, as a last axis."""
        return _functions().diagonal(self, axis1, axis2, offset=offset)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        """The sum of a diagonal."""
        return _functions().trace(self, axis1, axis2, offset=offset)

    def take(self, indices: Any, axis: int | None = None) -> Any:
        """The elements at indices along an axis; by default of all elements in one dimension."""
        return _functions().take(self.flatten() if axis is None else self, indices, axis or 0)

    def dot(self, other: Any) -> Any:
        """The matrix product: NumPy's name for `x @ other`."""
        return _functions().matmul(self, other)

    def squeeze(self, axis: Any = None) -> Any:
        """The tensor without axes of size 1."""
        return _functions().squeeze(self, axis)

    def expand_dims(self, axis: Any) -> Any:
        """The tensor with new axes of size 1."""
        return _functions().expand_dims(self, axis)

    def broadcast_to(self, shape: Any) -> Any:
        """The tensor broadcast to a shape; -1 keeps a dim."""
        return _functions().broadcast_to(self, shape)

    def expand(self, *shape: Any) -> Any:
        """The tensor broadcast to a shape: PyTorch's name for `broadcast_to`."""
        return _functions().broadcast_to(self, _unpack(shape))

    def exp(self) -> Any:
        """`e` to the power of each element."""
        return _functions().exp(self)

    def log(self) -> Any:
        """The natural logarithm of each element."""
        return _functions().log(self)

    def sqrt(self) -> Any:
        """The square root of each element."""
        return _functions().sqrt(self)

    def tanh(self) -> Any:
        """The hyperbolic tangent of each element."""
        return _functions().tanh(self)

    def abs(self) -> Any:
        """The magnitude of each element."""
        return _functions().abs(self)

    def clamp(self, low: Any = None, high: Any = None) -> Any:
        """Each element clamped to `low..high`."""
        return _functions().clamp(self, low, high)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Each element clamped to `min..max`: NumPy's name for `clamp`."""
        return _functions().clamp(self, min, max)

    def round(self, decimals: int = 0) -> Any:
        """Each element rounded to so many decimals, halves to the even one."""
        functions = _functions()
        if not check_int("round", "decimals", decimals):
            return functions.round(self)
        scale = 10.0 ** builtins.abs(decimals)
        if decimals > 0:
            return functions.div(functions.round(functions.mul(self, scale)), scale)
        return functions.mul(functions.round(functions.div(self, scale)), scale)

    def sum(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Sum over axes."""
        return _functions().sum(self, axis, keepdims=keepdims)

    def prod(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Product over axes."""
        return _functions().prod(self, axis, keepdims=keepdims)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Mean over axes."""
        return _functions().mean(self, axis, keepdims=keepdims)

    def var(self, axis: Any = None, *, keepdims: bool = False, correction: int = 0) -> Any:
        """Variance over axes."""
        return _functions().var(self, axis, keepdims=keepdims, correction=correction)

    def std(self, axis: Any = None, *, keepdims: bool = False, correction: int = 0) -> Any:
        """Standard deviation over axes."""
        return _functions().std(self, axis, keepdims=keepdims, correction=correction)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Largest over axes."""
        return _functions().max(self, axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Smallest over axes."""
        return _functions().min(self, axis, keepdims=keepdims)

    def any(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Whether any element over axes is true."""
        return _functions().any(self, axis, keepdims=keepdims)

    def all(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Whether all elements over axes are true."""
        return _functions().all(self, axis, keepdims=keepdims)

    def argmax(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Where the largest element is along an axis; the first of equals."""
        return _functions().argmax(self, axis, keepdims=keepdims)

    def argmin(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Where the smallest element is along an axis; the first of equals."""
        return _functions().argmin(self, axis, keepdims=keepdims)

    def cumsum(self, axis: int = -1) -> Any:
        """Cumulative sum along an axis."""
        return _functions().cumsum(self, axis)

    def cumprod(self, axis: int = -1) -> Any:
        """Cumulative product along an axis."""
        return _functions().cumprod(self, axis)

    def sort(self, axis: int = -1, *, descending: bool = False) -> Any:
        """The elements in order along an axis, as a new tensor."""
        return _functions().sort(self, axis, descending=descending)

    def argsort(self, axis: int = -1, *, descending: bool = False) -> Any:
        """Where the elements of `sort` come from."""
        return _functions().argsort(self, axis, descending=descending)


def _unpack(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """`f(2, 3)` and `f((2, 3))` alike."""
    return as_tuple(given[0]) if len(given) == 1 else given


for _name, _item in list(vars(TensorMethods).items()):
    if isinstance(_item, FunctionType) and not _name.startswith("_"):
        setattr(TensorMethods, _name, explain_wrong_calls(_item))
