"""What a conversion does to values that the other dtype lacks: the rule of each pair, by name."""

from __future__ import annotations

from tessera.types.dtype import DType
from tessera.types.promotion import holds

ROUNDINGS = ("", "nearest_even", "toward_zero", "wrap")
"""None where nothing is lost; to the nearest float, ties to even; to integers toward zero, held at their ends and NaN
to 0; integers to integers by their low bits."""


def rounding_of(source: DType, target: DType) -> str:
    """The rule by which a conversion rounds; empty where it keeps every value, and for bool, which asks for zero.

    >>> from tessera.types.dtype import bf16, f32, i8
    >>> rounding_of(f32, bf16), rounding_of(bf16, f32), rounding_of(f32, i8), rounding_of(i8, f32)
    ('nearest_even', '', 'toward_zero', '')
    """
    if target.is_bool or holds(target, source):
        return ""
    if target.is_float:
        return "nearest_even"
    return "toward_zero" if source.is_float else "wrap"
