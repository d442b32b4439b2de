"""`KVCache["B", "H", "S_max", "D_h", dtype]` as a value: dims and dtype of a cache, and the tensors it is made of."""

from __future__ import annotations

from tessera.diagnostics.codes import AnnotationError
from tessera.types.annotation import TensorAnnotation
from tessera.types.dim import Dim, DimLike
from tessera.types.dtype import DType, i64
from tessera.types.frozen import frozen
from tessera.types.tensor_type import TensorType


@frozen
class KVCacheType:
    """Keys and values of a batch of sequences: room for `capacity` positions, of which the first `length` are filled.

    >>> print(KVCacheType.of("B", 8, "S_max", 64, i64))
    KVCache["B", 8, "S_max", 64, i64]
    """

    batch: Dim
    heads: Dim
    capacity: Dim
    head_dim: Dim
    dtype: DType

    @staticmethod
    def of(batch: DimLike, heads: DimLike, capacity: DimLike, head_dim: DimLike, dtype: DType) -> KVCacheType:
        return KVCacheType(Dim.of(batch), Dim.of(heads), Dim.of(capacity), Dim.of(head_dim), dtype)

    @staticmethod
    def from_annotation(annotation: TensorAnnotation) -> KVCacheType:
        """The type an annotation describes; raises where it says no dtype."""
        if annotation.dtype is None:
            raise AnnotationError(f"`{annotation}` has no dtype", fix="write it last, as in `..., bf16]`")
        batch, heads, capacity, head_dim = annotation.dims
        return KVCacheType(batch, heads, capacity, head_dim, annotation.dtype)

    @property
    def annotation(self) -> TensorAnnotation:
        return TensorAnnotation(self.shape, self.dtype, head="KVCache")

    @property
    def shape(self) -> tuple[Dim, ...]:
        return (self.batch, self.heads, self.capacity, self.head_dim)

    @property
    def store(self) -> TensorType:
        """The type of the keys, and of the values."""
        return TensorType(self.shape, self.dtype)

    @property
    def tensors(self) -> tuple[TensorType, TensorType, TensorType]:
        """Keys, values, and how many positions are filled."""
        return self.store, self.store, TensorType((), i64)

    @property
    def bytes(self) -> Dim:
        return self.store.bytes * 2

    def __str__(self) -> str:
        return str(self.annotation)
