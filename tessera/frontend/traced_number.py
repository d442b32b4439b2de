"""`TracedNumber`: a Python float that is an argument, traced as a scalar until the program needs its value.

A number that changes from call to call (a learning rate) is no reason to compile again, so a float that is passed to a
parameter is an input of the program. It stays weak, as a Python number is: arithmetic with Python numbers is in f64, as
Python's is, and beside a tensor it is rounded once to the dtype that a constant would have there. To Python code it is
a `float` (to `isinstance`, if not to `type`). Whatever asks for its value (`if rate:`, `math.sqrt(rate)`, an attribute
of an op) raises `NeedsValue`, which whoever traces catches: the argument is static from then on, and the function is
traced again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from tessera.diagnostics.error import Span, TesseraError, is_ours, user_span
from tessera.frontend.concrete import is_array
from tessera.frontend.methods import function_named
from tessera.ir.base import dispatch
from tessera.ir.base.tape import Record, Tape
from tessera.runtime.foreign import is_foreign
from tessera.types.dtype import DType, bool_, f32, f64
from tessera.types.policy import SILENT
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.frontend.trace import TracedTensor

NUMBER = TensorType((), f64)
"""The type of a number in a trace."""


class NeedsValue(BaseException):
    """The values of these arguments are needed: no error, so that no `except Exception` of the program sees it.

    A bare `except:` does, or `finally: return`, so that the trace keeps it too, and its end raises it again.
    """

    def __init__(self, names: frozenset[str], what: str, span: Span | None, *, is_guess: bool = False) -> None:
        """`is_guess` says that the program failed, and may not with the values: else it is as it was."""
        super().__init__(", ".join(sorted(names)))
        self.names, self.reason = names, f"{what} needs its value" + (f" at {span}" if span else "")
        self.is_guess = is_guess

    @classmethod
    def guess(cls, error: TypeError, names: frozenset[str]) -> NeedsValue | None:
        """The need behind an error of Python about a type, such as that of `json.dumps`, which knows floats by type.

        None where there is no number, or the error is one of ours: that says what is wrong.
        """
        if not names or isinstance(error, TesseraError):
            return None
        trace, frame = error.__traceback__, None
        while trace is not None:
            frame = frame if is_ours(trace.tb_frame.f_code.co_filename) else frame or trace.tb_frame
            trace = trace.tb_next
        return cls(names, "what takes Python's own floats alone", frame and Span.of_frame(frame), is_guess=True)


def _weak(op: str, *, is_reflected: bool = False) -> Callable[[Any, Any], Any]:
    def method(self: TracedNumber, other: Any) -> Any:
        if not isinstance(other, bool | int | float):
            # Tensors of Tessera take it as any number; arrays and tensors of others would ask for its value.
            if not is_array(other) and not is_foreign(other):
                return NotImplemented
            return function_named(op)(*((other, self) if is_reflected else (self, other)))
        self.check_open()
        if op in _COMPARISONS and type(other) is int and abs(other) > _EXACT:
            return _compare_exactly(op, self, other)
        pair = [as_double(self), as_double(other)]
        return TracedNumber(_record(op, pair[::-1] if is_reflected else pair), self.names | _names_of(other))

    return method


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_EXACT = 2**53
"""Up to which every integer is a float."""


def _compare_exactly(op: str, number: TracedNumber, other: int) -> Any:
    """A comparison with an integer that may lie between two floats, as Python has it: no rounding, no overflow."""
    try:
        below = float(other)
    except OverflowError:
        below = sys.float_info.max if other > 0 else -math.inf
    if below == other:
        return TracedNumber(_record(op, [as_double(number), as_double(below)]), number.names)
    if op in ("eq", "ne"):
        return op == "ne"
    if below > other:
        below = math.nextafter(below, -math.inf)
    # No float lies between the two, so that less is at most the one below, and more is more than that.
    return TracedNumber(_record({"l": "le", "g": "gt"}[op[0]], [as_double(number), as_double(below)]), number.names)


def _logical(op: str) -> Callable[[Any, Any], Any]:
    """`&`, `|` or `^` of bools, which are the same either way round; of floats Python has none."""

    def method(self: TracedNumber, other: Any) -> Any:
        if is_array(other) or is_foreign(other):
            return function_named(f"bitwise_{op}")(self, other)
        if self.__class__ is not bool or not isinstance(other, bool | int):
            return NotImplemented
        if not isinstance(other, bool):
            self.need_value("an operator of integers")
        self.check_open()
        pair = [self.tensor, _as_bool(other)]
        return TracedNumber(_record(f"logical_{op}", pair), self.names | _names_of(other))

    return method


def _as_bool(value: Any) -> Any:
    if type(value) is TracedNumber:
        value.check_open()
        return value.tensor
    return _record("full", (), {"shape": (), "value": float(value), "dtype": bool_})


def _names_of(value: Any) -> frozenset[str]:
    return value.names if type(value) is TracedNumber else frozenset()


def _unary(op: str) -> Callable[[Any], Any]:
    def method(self: TracedNumber) -> TracedNumber:
        self.check_open()
        return TracedNumber(_record(op, [as_double(self)]), self.names)

    return method


def _value(what: str) -> Callable[..., NoReturn]:
    def method(self: TracedNumber, *_: Any, **__: Any) -> NoReturn:
        self.need_value(what)

    return method


class TracedNumber:
    """A scalar of a trace that Python takes for a float, or for a bool where it is the result of a comparison.

    `names` are the arguments that it is computed from.
    """

    __slots__ = ("names", "tensor")

    def __init__(self, tensor: TracedTensor, names: frozenset[str]) -> None:
        self.tensor, self.names = tensor, names

    @property
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return bool if self.tensor.dtype.is_bool else float

    def check_open(self) -> None:
        """Raises EscapedTracerError (T0203) once its trace has ended."""
        if not dispatch.is_open(self.tensor.recorder):
            from tessera.frontend.trace import leaked_tracer_error  # noqa: PLC0415 - traces make these numbers

            raise leaked_tracer_error(self.tensor)

    def need_value(self, what: str) -> NoReturn:
        """Let the trace begin again with the value: now, or at its end where the program catches this."""
        self.check_open()
        need = self.names, what, user_span()
        trace: Any = self.tensor.recorder
        while trace is not None:
            trace.pending = trace.pending or need
            trace = trace.parent
        raise NeedsValue(*need)

    def to(self, dtype: DType) -> Any:
        """A tensor of it, rounded once, as a constant would be."""
        self.check_open()
        if dtype is self.tensor.dtype:
            return self.tensor
        if not dtype.is_float and self.__class__ is float:
            self.need_value(f"a conversion to {dtype}")
        return _record("cast", [self.tensor], {"dtype": dtype})

    def result(self) -> Any:
        """The tensor that a function returns for it: f32, as of any number alone."""
        return self.to(bool_ if self.__class__ is bool else f32)

    __add__, __radd__ = _weak("add"), _weak("add", is_reflected=True)
    __sub__, __rsub__ = _weak("sub"), _weak("sub", is_reflected=True)
    __mul__, __rmul__ = _weak("mul"), _weak("mul", is_reflected=True)
    __truediv__, __rtruediv__ = _weak("div"), _weak("div", is_reflected=True)
    __floordiv__, __rfloordiv__ = _weak("floordiv"), _weak("floordiv", is_reflected=True)
    __mod__, __rmod__ = _weak("mod"), _weak("mod", is_reflected=True)
    __pow__, __rpow__ = _weak("pow"), _weak("pow", is_reflected=True)
    __lt__, __le__, __gt__, __ge__ = _weak("lt"), _weak("le"), _weak("gt"), _weak("ge")
    __neg__, __abs__ = _unary("neg"), _unary("abs")

    __and__ = __rand__ = _logical("and")
    __or__ = __ror__ = _logical("or")
    __xor__ = __rxor__ = _logical("xor")

    def __invert__(self) -> NoReturn:
        """Python's: `~True` is -2, an integer."""
        if self.__class__ is not bool:
            raise TypeError("bad operand type for unary ~: 'float'")
        self.need_value("`~`")

    def __eq__(self, other: object) -> Any:
        return _weak("eq")(self, other)

    def __ne__(self, other: object) -> Any:
        return _weak("ne")(self, other)

    def __pos__(self) -> TracedNumber:
        return self

    __bool__, __float__, __int__ = _value("a condition"), _value("`float()`"), _value("`int()`")
    __round__, __trunc__, __floor__, __ceil__ = (_value(f"`{name}()`") for name in ("round", "trunc", "floor", "ceil"))
    __complex__, __hash__, __format__ = _value("`complex()`"), _value("a key of a dict or set"), _value("its text")
    __divmod__, __rdivmod__, __array__, __reduce__ = map(_value, ("`divmod`", "`divmod`", "NumPy", "pickle"))

    def __repr__(self) -> str:
        if dispatch.is_open(self.tensor.recorder):
            self.need_value("its text")
        return f"a leaked number of {', '.join(sorted(self.names))}"

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """`array * rate` is an op of the program; any other ufunc needs the value."""
        from tessera.frontend.trace import OPERATORS  # noqa: PLC0415 - traces make these numbers

        name = OPERATORS.get(ufunc.__name__)
        if name is None or method != "__call__" or options:
            self.need_value(f"`numpy.{ufunc.__name__}`")
        return function_named(name)(*inputs)

    def __getattr__(self, name: str) -> Any:
        if hasattr(float, name):
            self.need_value(f"`.{name}`")
        advice = ": it is a Python float, which is used as it is" if name in ("item", "numpy", "tolist", "cpu") else ""
        raise AttributeError(f"a number has no attribute `{name}`{advice}", name=name, obj=None)


def _record(op: str, operands: Sequence[Any], attributes: Any = None) -> Any:
    """An op on scalars alone, which no policy is about."""
    trace: Any = dispatch.tracing()
    return trace.record_op(op, operands, attributes or {}, SILENT)


def as_double(value: Any) -> Any:
    """A number as a scalar of f64 in the trace, which is what Python computes in."""
    if type(value) is TracedNumber:
        return value.tensor if value.tensor.dtype is f64 else _record("cast", [value.tensor], {"dtype": f64})
    return _record("full", (), {"shape": (), "value": float(value), "dtype": f64})


def is_traced_number(value: object) -> bool:
    """Whether a value is a traced number: `isinstance` takes one for the float or the bool that it stands for."""
    return type(value) is TracedNumber


# Numbers that a program takes in one dtype alone are rounded before the call, and not in the program.


def settle_numbers(tape: Tape, numbers: Sequence[int]) -> None:
    """Let each input that is only converted, always to the same dtype, be of that dtype.

    `%1: f64 = input; %2: f32 = cast(%1); %3 = mul(%0, %2)` becomes `%1: f32 = input; %3 = mul(%0, %1)`. The call rounds
    the number once, to the nearest, ties to even, as the conversion would.
    """
    for value in numbers:
        uses = [record for record in tape.records if value in record.operands]
        dtypes: set[Any] = {record.attributes.get("dtype") for record in uses if record.op.endswith(".cast")}
        if len(dtypes) != 1 or not all(record.op.endswith(".cast") for record in uses) or value in tape.outputs:
            continue
        tape.types[value] = TensorType((), dtypes.pop())
        same = {record.results[0]: value for record in uses}
        kept = [record for record in tape.records if value not in record.operands]
        tape.records[:] = [_renumber(record, same) for record in kept]
        tape.outputs[:] = [same.get(output, output) for output in tape.outputs]


def _renumber(record: Record, same: dict[int, int]) -> Record:
    if not any(value in same for value in record.operands):
        return record
    return replace(record, operands=tuple(same.get(value, value) for value in record.operands))
