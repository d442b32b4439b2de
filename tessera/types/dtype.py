"""Element types: their sizes, ranges and names, and how two of them meet in one operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
