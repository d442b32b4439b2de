"""`tessera.linalg`: linear algebra on batches of matrices, under the names of NumPy and JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.eager import install as _install
from tessera.api.other_names import answer_names as _answer_names
from tessera.diagnostics.frames import guard_public as _guard
from tessera.linalg.eigen import eigh, eigvalsh
from tessera.linalg.elimination import det, inv, lu, slogdet, solve
from tessera.linalg.norms import cond, expm, matrix_norm, matrix_power, multi_dot, norm, vector_norm
from tessera.linalg.orthogonal import qr
from tessera.linalg.singular import lstsq, matrix_rank, pinv, svd, svdvals
from tessera.linalg.triangular import cholesky, cholesky_solve, solve_triangular

__all__ = [
    "cholesky",
    "cholesky_solve",
    "cond",
    "det",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "lu",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "vector_norm",
]

_install()
_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a checker would take it to mean that every name is there
    __getattr__ = _answer_names(__name__)
