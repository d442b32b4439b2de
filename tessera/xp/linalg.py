"""`tessera.xp.linalg`: the extension of the array API standard for linear algebra, on `tessera.linalg`."""

from __future__ import annotations

from typing import Any, NamedTuple

from tessera import linalg as own
from tessera.diagnostics.frames import guard_public
from tessera.frontend.functions import public as ops
from tessera.xp.data_types import astype, check_kind, result_type
from tessera.xp.manipulation import matmul, matrix_transpose, tensordot, vecdot

_FLOATING = ("real floating", "complex floating")


class EighResult(NamedTuple):
    """Eigenvalues in ascending order, and eigenvectors as columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """An orthogonal matrix, and an upper triangular one."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant, and the logarithm of its magnitude."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """Left singular vectors, singular values in descending order, and the adjoint of the right singular vectors."""

    U: Any
    S: Any
    Vh: Any


# Factorizations.


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The lower factor of positive definite matrices, or the upper one."""
    return own.cholesky(check_kind("cholesky", x, *_FLOATING), upper=upper)


def eigh(x: Any, /) -> EighResult:
    """Eigenvalues and eigenvectors of symmetric matrices."""
    return EighResult(*own.eigh(check_kind("eigh", x, *_FLOATING)))


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of symmetric matrices, in ascending order."""
    return own.eigvalsh(check_kind("eigvalsh", x, *_FLOATING))


def qr(x: Any, /, *, mode: str = "reduced") -> QRResult:
    """The QR factors, `mode` "reduced" or "complete"."""
    return QRResult(*own.qr(check_kind("qr", x, *_FLOATING), mode))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVDResult:
    """The singular value decomposition."""
    return SVDResult(*own.svd(check_kind("svd", x, *_FLOATING), full_matrices))


def svdvals(x: Any, /) -> Any:
    """Singular values, in descending order."""
    return own.svdvals(check_kind("svdvals", x, *_FLOATING))


# Systems.


def det(x: Any, /) -> Any:
    """The determinant of square matrices."""
    return own.det(check_kind("det", x, *_FLOATING))


def inv(x: Any, /) -> Any:
    """The inverse of square matrices."""
    return own.inv(check_kind("inv", x, *_FLOATING))


def slogdet(x: Any, /) -> SlogdetResult:
    """The sign of the determinant, and the logarithm of its magnitude."""
    return SlogdetResult(*own.slogdet(check_kind("slogdet", x, *_FLOATING)))


def solve(x1: Any, x2: Any, /) -> Any:
    """The solution of `x1 x = x2`; only an `x2` of one dim is a vector."""
    check_kind("solve", x1, *_FLOATING)
    check_kind("solve", x2, *_FLOATING)
    dtype = result_type(x1, x2)
    return own.solve(astype(x1, dtype), astype(x2, dtype))


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """The pseudo-inverse."""
    return own.pinv(check_kind("pinv", x, *_FLOATING), rtol)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values are above `rtol` times the largest."""
    return own.matrix_rank(check_kind("matrix_rank", x, *_FLOATING), rtol)


# Norms and products.


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of matrices."""
    return own.matrix_norm(check_kind("matrix_norm", x, *_FLOATING), ord, keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm of vectors along `axis`, or of all elements."""
    return own.vector_norm(check_kind("vector_norm", x, *_FLOATING), ord, axis, keepdims)


def matrix_power(x: Any, n: int, /) -> Any:
    """`x` multiplied with itself n times."""
    return own.matrix_power(check_kind("matrix_power", x, "numeric"), n)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The vector product along an axis of size 3; other axes broadcast."""
    check_kind("cross", x1, "numeric")
    check_kind("cross", x2, "numeric")
    dtype = result_type(x1, x2)
    return astype(ops.cross(astype(x1, dtype), astype(x2, dtype), axis), dtype)


def outer(x1: Any, x2: Any, /) -> Any:
    """The products of every element of one vector with every element of another."""
    check_kind("outer", x1, "numeric")
    check_kind("outer", x2, "numeric")
    dtype = result_type(x1, x2)
    return astype(ops.outer(astype(x1, dtype), astype(x2, dtype)), dtype)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """The diagonals of matrices, `offset` above the main one."""
    return ops.diagonal(x, -2, -1, offset=offset)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sums of diagonals, in 64 bits for integers."""
    check_kind("trace", x, "numeric")
    from tessera.xp.statistical import sum  # noqa: PLC0415 - a name of Python's own here

    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip

guard_public(globals(), tuple(__all__))
