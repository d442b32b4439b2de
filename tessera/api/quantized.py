"""`Quantized`: narrow values with their scales, as one typed value that functions take, multiply and dequantize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.api.eager import install as _install
from tessera.diagnostics.codes import DTypeError
from tessera.frontend import pytree
from tessera.frontend.arguments import check_int, check_sequence
from tessera.frontend.functions.contraction import matmul
from tessera.frontend.functions.operands import dtype_of, parse_dtype, rank_of
from tessera.frontend.functions.quantize import dequantize, scale_of
from tessera.frontend.functions.quantize import quantize as quantized_values
from tessera.frontend.pytree import as_tuple
from tessera.types.annotation import TensorAnnotation, annotation_of
from tessera.types.dim import Dim
from tessera.types.dtype import f32, i32

_install()


class Quantized:
    """Values of a narrow dtype, and the scales that make numbers of them: `values * scale`.

    Scales broadcast to the values, or there is one for each `block` of them. As a type it is written
    `Quantized["K", "N", i8 @ scaled(1)]`, or `Tensor` in front: a scale for each index of axis 1.

    >>> q = ts.quantize(ts.array([[0.5, -2.0], [0.25, 1.0]]), ts.i8, axis=1)
    >>> q.values
    Tensor([2, 2] i8, [[127, -127],
                       [64, 64]])
    """

    __slots__ = ("block", "scale", "values")
    __array_ufunc__ = None  # NumPy then leaves `array @ q` to `q.__rmatmul__`
    has_matmul = True
    """Tensors leave `x @ q` to it too."""

    def __init__(self, values: Any, scale: Any, block: Sequence[int] = ()) -> None:
        self.values, self.scale = values, scale
        self.block = tuple(
            [check_int("Quantized", "block", size) for size in check_sequence("Quantized", "block", block)]
        )

    def __class_getitem__(cls, items: Any) -> TensorAnnotation:
        return annotation_of(items, "Quantized")

    @staticmethod
    def field_annotations(annotation: TensorAnnotation) -> list[TensorAnnotation | None]:
        """What values and scales are declared to be by `Tensor["K", "N", i8 @ scaled(1)]`."""
        scales = annotation.policy.scales
        values = TensorAnnotation(annotation.dims, annotation.dtype)
        if scales is None:
            return [values, None]
        if scales.block:
            dims = tuple(dim // own for dim, own in zip(annotation.dims, scales.block, strict=True))
        else:
            one = Dim.constant(1)
            dims = tuple(dim if axis in scales.axes else one for axis, dim in enumerate(annotation.dims))
        return [values, TensorAnnotation(dims, f32)]

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.values.shape

    @property
    def dtype(self) -> Any:
        """The dtype of the values."""
        return dtype_of(self.values)

    def dequantize(self, dtype: Any = f32) -> Any:
        """The numbers, as floats."""
        return dequantize(self.values, self.scale, dtype=dtype, block=self.block)

    def __matmul__(self, other: Any) -> Any:
        if not isinstance(other, Quantized):
            return matmul(self.dequantize(), other)
        return _matmul(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self.dequantize())

    def __repr__(self) -> str:
        dims = ", ".join(f'"{size}"' if not isinstance(size, int) else str(size) for size in self.shape)
        kind = f"tile_scaled({', '.join(map(str, self.block))})" if self.block else f"scaled{_axes(self)}"
        return f"Quantized[{dims}, {self.dtype} @ {kind}]"


def _axes(q: Quantized) -> str:
    rank = rank_of(q.values)
    shape = (1,) * (rank - rank_of(q.scale)) + tuple(q.scale.shape)
    return f"({', '.join(str(axis) for axis, size in enumerate(shape) if size != 1)})"


def _matmul(a: Quantized, b: Quantized) -> Any:
    """Integers are multiplied and summed as such where no scale changes along the sum; else floats are."""
    along = (a.scale.shape[-1:] or (1,))[0], (b.scale.shape[-2:-1] or (1,))[0]
    is_whole = a.dtype.is_integer and b.dtype.is_integer and not a.block and not b.block
    if not is_whole or not all(isinstance(size, int) and size == 1 for size in along):
        return matmul(a.dequantize(), b.dequantize())
    total = matmul(a.values, b.values, dtype=i32, accumulate=i32)
    return dequantize(total, a.scale * b.scale)


def quantize(
    x: Any,
    dtype: Any,
    *,
    axis: Any = None,
    block: Sequence[int] = (),
    scale: Any = None,
    rounding: str = "nearest_even",
) -> Quantized:
    """`x` in a narrow dtype with a scale for each index of `axis`, for each `block`, or one for all.

    Without `scale` the largest of each part goes to the largest of the dtype. Nothing is beyond the ends.
    """
    target = parse_dtype(dtype)
    if not target.is_integer and target.bits != 8:
        raise DTypeError(f"`quantize` makes i8, i4, u8 or a float8, not {target}", fix="cast to a wider float instead")
    chosen = scale_of(x, target, axis=axis, block=block) if scale is None else scale
    return Quantized(
        quantized_values(x, chosen, target, block=as_tuple(block), rounding=rounding), chosen, as_tuple(block)
    )


def _split(q: Quantized) -> tuple[tuple[Any, ...], tuple[int, ...]]:
    return (q.values, q.scale), q.block


pytree.register(
    Quantized,
    _split,
    lambda block, children: Quantized(children[0], children[1], as_tuple(block)),
    fields=("values", "scale"),
)
