"""Element types: their names and sizes, and the number formats that values are rounded to."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import DTypeError
from tessera.diagnostics.error import Fix, Span, find_nearest
from tessera.types.frozen import frozen

if TYPE_CHECKING:
    from tessera.types.policy import Policy, PolicyType


@frozen
class DType:
    """An element type; the module's names (`f32`, `bf16`, ...) are its only instances."""

    name: str
    kind: str  # "float", "int", "uint" or "bool"
    bits: int
    exponent: int = 0  # exponent bits of a float
    mantissa: int = 0  # stored mantissa bits of a float

    @property
    def bytes(self) -> int:
        """Bytes of one stored element; i4 is stored one to a byte."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger number; 0 where arithmetic is exact."""
        return 2.0**-self.mantissa if self.is_float else 0.0

    @property
    def compute(self) -> DType:
        """The type arithmetic is done in: narrow floats compute in f32, all others in themselves."""
        return f32 if self.is_float and self.bits < 32 else self

    def __matmul__(self, policy: Policy | DType) -> PolicyType:
        """`bf16 @ accum(f32)`: this type with a numerics policy; a bare dtype is short for `accum(dtype)`."""
        from tessera.types.policy import attach  # noqa: PLC0415 - a policy is made of dtypes, so it comes after them

        return attach(self, policy)

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copied or sent to another process, it is still the only one of its name: code compares it by identity.
        return parse_dtype, (self.name,)

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


f64 = DType("f64", "float", 64, 11, 52)
f32 = DType("f32", "float", 32, 8, 23)
bf16 = DType("bf16", "float", 16, 8, 7)
f16 = DType("f16", "float", 16, 5, 10)
f8e4m3 = DType("f8e4m3", "float", 8, 4, 3)
f8e5m2 = DType("f8e5m2", "float", 8, 5, 2)
i64 = DType("i64", "int", 64)
i32 = DType("i32", "int", 32)
i16 = DType("i16", "int", 16)
i8 = DType("i8", "int", 8)
i4 = DType("i4", "int", 4)
u64 = DType("u64", "uint", 64)
u32 = DType("u32", "uint", 32)
u16 = DType("u16", "uint", 16)
u8 = DType("u8", "uint", 8)
bool_ = DType("bool", "bool", 8)

ALL = (f64, f32, bf16, f16, f8e4m3, f8e5m2, i64, i32, i16, i8, i4, u64, u32, u16, u8, bool_)
BY_NAME = {dtype.name: dtype for dtype in ALL}


# Dtypes as users give them: ours, their names here and elsewhere, and those of NumPy, ml_dtypes, JAX and PyTorch.

OTHER_NAMES: dict[str, DType] = {
    **{f"{dtype.kind}{dtype.bits}": dtype for dtype in ALL if not dtype.is_bool and dtype.bits > 8},
    **{f"{dtype.kind}{dtype.bits}": dtype for dtype in ALL if dtype.is_integer},
    "bfloat16": bf16,
    "float16": f16,
    "float8_e4m3fn": f8e4m3,
    "float8_e5m2": f8e5m2,
    "bool_": bool_,
}
"""Dtypes by their names in NumPy, ml_dtypes, JAX and PyTorch."""
_NUMPY_DTYPES: dict[Any, DType] = {}


def find_dtype(given: Any) -> DType | None:
    """The dtype that a value stands for, or None: one of ours, a name, or a dtype of another library.

    NumPy's dtypes and scalar types (those of ml_dtypes and JAX too), and PyTorch's dtypes are recognized without
    loading these libraries. NumPy's short codes are no names: its `i4` has four bytes, ours four bits.

    >>> find_dtype("float32"), find_dtype("bf16"), find_dtype(bool), find_dtype(float)
    (f32, bf16, bool, None)
    """
    kind = given.__class__
    if kind is DType:
        return given
    if isinstance(given, str):
        return BY_NAME.get(given) or OTHER_NAMES.get(given)
    if given is bool:
        return bool_
    if kind.__name__ == "dtype" and kind.__module__.partition(".")[0] == "torch":
        return find_dtype(str(given).removeprefix("torch."))
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if isinstance(given, type):
        # JAX's scalar types hold the dtype of NumPy that they stand for.
        given = numpy.dtype(given) if issubclass(given, numpy.generic) else getattr(given, "dtype", None)
    return _find_numpy_dtype(given) if isinstance(given, numpy.dtype) else None


def _find_numpy_dtype(given: Any) -> DType | None:
    # `numpy.dtype.name` is computed at each access.
    found = _NUMPY_DTYPES.get(given)
    if found is None and given.isnative:
        found = find_dtype(given.name)
        if found is not None:
            _NUMPY_DTYPES[given] = found
    return found


def parse_dtype(given: Any) -> DType:
    """The dtype that a value stands for, see `find_dtype`; raises DTypeError (T0102) for any other."""
    found = find_dtype(given)
    if found is None:
        is_type = isinstance(given, type)
        shown = f"{given.__module__}.{given.__name__}".removeprefix("builtins.") if is_type else given
        raise DTypeError(f"`{shown}` is not a dtype", fix=lambda span: _dtype_fix(span, given))
    return found


_MISTAKEN = {"half": "f16", "float": "f32", "double": "f64", "int": "i64", "long": "i64", "short": "i16", "byte": "u8"}


def _dtype_fix(span: Span | None, given: Any) -> Fix | str:
    near = _nearest_names(given)
    if not near or not isinstance(given, str):
        return dtype_help(given)
    from tessera.diagnostics.edit import edit_text  # noqa: PLC0415 - for errors alone

    return edit_text(span, given, near[0], f"did you mean `{near[0]}`?") or dtype_help(given)


def _nearest_names(given: Any) -> list[str]:
    name = given.__name__ if isinstance(given, type) else str(given)
    return find_nearest(name, (*BY_NAME, *OTHER_NAMES), 3, 0.5)


def dtype_help(given: Any) -> str:
    """What to write in place of something that is no dtype."""
    known = f"the dtypes are {', '.join(BY_NAME)}, as in `tessera.f32`"
    if isinstance(given, int):
        return f"pass sizes as one shape, as in `(2, 3)`; {known}"
    name = given.__name__ if isinstance(given, type) else str(given)
    if name in _MISTAKEN:
        return f"libraries disagree on what `{name}` is: write `tessera.{_MISTAKEN[name]}`, or the one that you mean"
    if getattr(given, "isnative", True) is False:
        return "convert the array to the byte order of this machine first, as in `x.astype(np.float32)`"
    near = _nearest_names(given)
    return f"did you mean {' or '.join(f'`{one}`' for one in near)}? {known}" if near else known


# Number formats that values are rounded to: those that are stored, and those that only round (tf32, f4e2m1).

ROUNDINGS = ("nearest_even", "toward_zero", "stochastic")
SATURATIONS = ("", "saturate", "wrap")
"""Unset, floats overflow to infinity (f8e4m3, which has none, to NaN), integers stop at their ends."""
DENORMALS = ("keep", "flush")


@frozen
class NumberFormat:
    """A set of numbers: a float by its exponent and mantissa bits, an integer by its ends.

    `largest` is the largest finite number; a float without infinity overflows to NaN, or, where it `has_nan` not
    either, stops at the largest.
    """

    name: str
    exponent: int
    mantissa: int
    largest: float
    has_infinity: bool = True
    has_nan: bool = True
    lowest: float = 0.0

    @property
    def is_float(self) -> bool:
        return self.exponent > 0

    @property
    def bias(self) -> int:
        return (1 << (self.exponent - 1)) - 1

    @property
    def smallest_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def smallest(self) -> float:
        """The least number above zero."""
        return 2.0 ** (1 - self.bias - self.mantissa) if self.is_float else 1.0

    @property
    def dtype(self) -> DType | None:
        """The dtype that stores the format, if one does."""
        return BY_NAME.get(self.name)


def _float(name: str, exponent: int, mantissa: int) -> NumberFormat:
    bias = (1 << (exponent - 1)) - 1
    return NumberFormat(name, exponent, mantissa, (2.0 - 2.0**-mantissa) * 2.0**bias)


def _integer(name: str, bits: int, *, signed: bool) -> NumberFormat:
    half = 1 << (bits - 1)
    largest, lowest = (half - 1, -half) if signed else (2 * half - 1, 0)
    return NumberFormat(name, 0, 0, float(largest), has_infinity=False, has_nan=False, lowest=float(lowest))


_LISTED = (
    _float("f32", 8, 23),
    _float("tf32", 8, 10),
    _float("bf16", 8, 7),
    _float("f16", 5, 10),
    _float("f8e5m2", 5, 2),
    # The upper codes of e4m3 and e2m1 are numbers: no infinities, and e2m1 has no NaN either.
    NumberFormat("f8e4m3", 4, 3, 448.0, has_infinity=False),
    NumberFormat("f4e2m1", 2, 1, 6.0, has_infinity=False, has_nan=False),
    _integer("i16", 16, signed=True),
    _integer("i8", 8, signed=True),
    _integer("u8", 8, signed=False),
    _integer("i4", 4, signed=True),
)
FORMATS: dict[str, NumberFormat] = {one.name: one for one in _LISTED}


@frozen
class BlockFormat:
    """Numbers of a narrow format in blocks along one axis, each block with a scale of its own, and one for the tensor.

    `nvfp4` is f4e2m1 in blocks of 16 with scales in f8e4m3, 4.5 bits an element, and an f32 for all of them.
    """

    name: str
    element: str
    block: int
    scale: str

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


nvfp4 = BlockFormat("nvfp4", "f4e2m1", 16, "f8e4m3")
BLOCK_FORMATS = {nvfp4.name: nvfp4}


def conversion_fault(format: str, rounding: str, saturation: str, denormals: str) -> str:
    """What is wrong with such a conversion, or nothing."""
    for what, given, known in (
        ("format", format, tuple(FORMATS)),
        ("rounding", rounding, ROUNDINGS),
        ("saturation", saturation, SATURATIONS),
        ("denormals", denormals, DENORMALS),
    ):
        if given not in known:
            shown = ", ".join(f"`{one}`" for one in known if one)
            return f"there is no {what} `{given}`; there are {shown}"
    if saturation == "wrap" and FORMATS[format].is_float:
        return f"`{format}` is a float, which does not wrap"
    if denormals == "flush" and not FORMATS[format].is_float:
        return f"`{format}` has no denormals to flush"
    return ""
