"""`TracedTensor`: the tracer that a function is run on, which has a type but no data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from tessera.diagnostics.codes import ArgumentError, TracingError
from tessera.diagnostics.span import Span
from tessera.frontend.concrete import Tracer
from tessera.frontend.fixes import fixes_of
from tessera.frontend.methods import TensorMethods, function_named
from tessera.frontend.size import length_of, loop_range, size_of
from tessera.runtime.operators import no_attribute
from tessera.types.dtype import DType
from tessera.types.policy import SILENT, Policy, PolicyType
from tessera.types.tensor_type import TensorType

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace


class TracedTensor(Tracer, TensorMethods):
    """The tracer of a tensor: while a function is traced, every op on it is recorded on the tape.

    It has a shape, a dtype and all ops, but no value, so `if x:`, `float(x)` and `np.asarray(x)` raise `TracingError`
    (T0201), each with what to write instead.
    """

    __slots__ = ("policy", "trace", "type", "value")

    def __init__(self, trace: Trace, value: int, type: TensorType, policy: Policy = SILENT) -> None:
        self.trace, self.value, self.type, self.policy = trace, value, type, policy

    @property
    def shape(self) -> tuple[Any, ...]:
        """The dims: ints where static, sizes (`B`, `S + 1`) where symbolic."""
        return tuple(size_of(self.trace.resolve(dim)) for dim in self.type.shape)

    @property
    def dtype(self) -> DType:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.type.dtype

    @property
    def ndim(self) -> int:
        return len(self.type.shape)

    @property
    def size(self) -> Any:
        """The number of elements: an int, or a symbolic size."""
        return size_of(self.trace.resolve(self.type.size))

    if not TYPE_CHECKING:  # a type checker would take it to mean that every attribute exists

        def __getattr__(self, name: str) -> NoReturn:
            is_function = not name.startswith("_") and function_named(name) is not None
            raise AttributeError(no_attribute("a traced tensor", name, is_function), name=name, obj=self)

    def __repr__(self) -> str:
        dims = ", ".join(str(dim) if dim.is_static else f'"{size_of(dim)}"' for dim in self.type.shape)
        return f"Traced[{dims}{', ' if dims else ''}{PolicyType(self.dtype, self.policy)}]"

    def __len__(self) -> int:
        if not self.type.shape:
            raise TracingError("a scalar has no length")
        return length_of(self.shape[0])

    def __bool__(self) -> bool:
        _refuse(self, "bool()", "choose with `tessera.ops.where(condition, a, b)` or branch with `tessera.cond`")

    def __int__(self) -> int:
        _refuse(self, "int()", "use the tensor itself, or pass the number as a Python int, which is static", "int")

    def __float__(self) -> float:
        help = "use the tensor itself, or pass the number as a Python float, which is static"
        _refuse(self, "float()", help, "float")

    def __complex__(self) -> complex:
        _refuse(self, "complex()", "complex numbers are not supported")

    def __index__(self) -> int:
        _refuse(self, "an index", "index with `x[i]` on a tensor, which takes tensors of integers")

    def __iter__(self) -> Iterator[TracedTensor]:
        if not self.type.shape:
            raise TracingError("a scalar cannot be iterated over")
        return (self[at] for at in loop_range(self.shape[0]))

    def __contains__(self, item: object) -> NoReturn:
        _refuse(self, "`in`", "write `tessera.ops.any(x == value)`")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        _refuse_numpy(self, "")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array + x` is `x.__radd__(array)`; any other ufunc needs values."""
        name: str = ufunc.__name__
        is_reflected = len(inputs) == 2 and not isinstance(inputs[0], Tracer)
        if name not in _OPERATORS or method != "__call__" or options or not is_reflected:
            _refuse_numpy(self, _OPERATORS.get(name, name))
        return function_named(_OPERATORS[name])(*inputs)

    def __array_function__(self, function: Any, _: Any, inputs: Any, options: Any) -> Any:
        """NumPy functions that only need shapes and methods of ours run; those that pass a method more are refused."""
        try:
            return function._implementation(*inputs, **options)
        except (TypeError, ArgumentError):
            _refuse_numpy(self, function.__name__)

    def __dlpack__(self, **_: Any) -> NoReturn:
        _refuse(self, "another library", "call the other library outside of the traced function")

    def __setitem__(self, index: object, value: object) -> NoReturn:
        _refuse(
            self,
            "assignment to `x[...]`",
            "compute a new tensor with `tessera.ops.where` or `tessera.ops.scatter`",
            why="tensors are immutable in a traced function",
        )

    def item(self) -> NoReturn:
        """Refused: a tracer has no value."""
        _refuse(self, "`.item()`", "use the tensor itself", "item")

    def tolist(self) -> NoReturn:
        """Refused: a tracer has no value."""
        _refuse(self, "`.tolist()`", "return the tensor and convert it after the call", "tolist")

    def numpy(self) -> NoReturn:
        """Refused: a tracer has no value."""
        _refuse(self, "`.numpy()`", "return the tensor and convert it after the call", "numpy")


# Functions of ours by the NumPy ufunc that an operator calls.
_OPERATORS = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "power": "pow",
    "matmul": "matmul",
    "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor",
    "left_shift": "shift_left",
    "right_shift": "shift_right",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}


def _refuse_numpy(tensor: TracedTensor, name: str) -> NoReturn:
    """`name` is the function of ours that does the same, if there is one."""
    own = f"tessera.ops.{name}" if name and function_named(name) is not None else "tessera.ops"
    _refuse(tensor, "NumPy", f"use `{own}` instead of `numpy` inside a traced function", "numpy")


_WHY = "the function is traced once for all values, so the value is not known here"


def _refuse(tensor: TracedTensor, what: str, help: str, asked: str = "", why: str = _WHY) -> NoReturn:
    """`asked` is the function or method that needs the value, where removing the call can be the fix."""

    def find(span: Span | None) -> Any:
        if what == "NumPy":
            return fixes_of("values").numpy_fix(span, help)
        return fixes_of("values").itself_fix(span, help, (asked,)) if asked else help

    raise TracingError(
        f"{what} needs the value of a traced tensor {tensor.type}",
        notes=(why, tensor.trace.origin(tensor.value)),
        fix=find,
    )
