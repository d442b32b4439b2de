"""What a value is: a shape of dims and an element type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tessera.types.dim import Dim, DimLike, product
from tessera.types.dtype import DType
from tessera.types.frozen import frozen


@frozen
class TensorType:
    """A tensor's dims and dtype; the type of every value of Graph IR and of every traced value."""

    shape: tuple[Dim, ...]
    dtype: DType

    @staticmethod
    def of(shape: Iterable[DimLike], dtype: DType) -> TensorType:
        return TensorType(tuple(Dim.of(dim) for dim in shape), dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Dim:
        """How many elements."""
        return product(self.shape)

    @property
    def bytes(self) -> Dim:
        return self.size * self.dtype.bytes

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(name for dim in self.shape for name in dim.symbols)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(self.shape, dtype)

    def with_shape(self, shape: Iterable[DimLike]) -> TensorType:
        return TensorType.of(shape, self.dtype)

    def substitute(self, env: Mapping[str, DimLike]) -> TensorType:
        return TensorType(tuple(dim.substitute(env) for dim in self.shape), self.dtype)

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.shape))}] {self.dtype}"
