"""What functions of `tessera.ops` do with complex arguments, by their names; those that are not here refuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.frontend.complex import arithmetic, circular, contractions, exponentials, movement
from tessera.frontend.complex.parts import as_complex, conditions, each_part, scatter
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.functions import algebra as real_algebra
from tessera.frontend.functions import contraction as real_contraction
from tessera.frontend.functions import elementwise as real_elementwise
from tessera.frontend.functions import indexing as real_indexing
from tessera.frontend.functions import lookup as real_lookup
from tessera.frontend.functions import movement as real_movement
from tessera.frontend.functions import reduction as real_reduction
from tessera.frontend.functions import special as real_special
from tessera.frontend.functions import statistics as real_statistics
from tessera.frontend.functions import updates as real_updates
from tessera.frontend.functions.creation import tril, triu

_EACH_PART = (
    *(real_movement.reshape, real_movement.flatten, real_movement.transpose, real_movement.swapaxes),
    *(real_movement.moveaxis, real_movement.broadcast_to, real_movement.expand_dims, real_movement.squeeze),
    *(real_movement.flip, real_movement.roll, real_movement.tile, real_movement.repeat),
    *(real_movement.split, real_movement.unstack, tril, triu),
    *(real_indexing.getitem, real_indexing.take, real_indexing.take_along_axis, real_indexing.gather),
    *(real_indexing.embedding, real_lookup.chunk, real_lookup.narrow, real_updates.dynamic_slice),
    *(real_lookup.segment_sum, real_lookup.segment_mean, real_contraction.diagonal, real_contraction.trace),
    *(real_reduction.sum, real_reduction.mean, real_reduction.cumsum),
    *(real_statistics.nansum, real_elementwise.round, real_special.nan_to_num),
)
"""Functions that move elements of their first argument, or are linear in it: each part by itself."""

_BILINEAR = (
    *(real_algebra.tensordot, real_algebra.outer, real_algebra.kron, real_algebra.cross),
    real_contraction.dot_general,
)
_CONDITIONS = (
    *(real_reduction.any, real_reduction.all, real_statistics.count_nonzero, real_lookup.nonzero),
    *(real_elementwise.logical_not, real_elementwise.logical_and),
    *(real_elementwise.logical_or, real_elementwise.logical_xor),
)
"""Functions that ask only which elements are not 0."""
_SCATTERS = (real_indexing.scatter, real_indexing.scatter_add, real_lookup.put_along_axis)


def _real(x: Any) -> Any:
    return as_complex(x).real


def _imag(x: Any) -> Any:
    return as_complex(x).imag


def _conj(x: Any) -> ComplexTensor:
    return as_complex(x).conj()


def _zeros_like(x: Any) -> ComplexTensor:
    return movement.full_like(x, 0.0)


def _ones_like(x: Any) -> ComplexTensor:
    return movement.full_like(x, 1.0)


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    return arithmetic.where(mask, value, x)


def _by_name(*functions: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    return {function.__name__: function for function in functions}


TABLE: dict[str, Callable[..., Any]] = {
    **{function.__name__: each_part(function) for function in _EACH_PART},
    **{function.__name__: contractions.bilinear(function) for function in _BILINEAR},
    **{function.__name__: conditions(function) for function in _CONDITIONS},
    **{function.__name__: scatter(function) for function in _SCATTERS},
    **_by_name(
        *(arithmetic.add, arithmetic.sub, arithmetic.mul, arithmetic.div, arithmetic.neg, arithmetic.square),
        *(arithmetic.reciprocal, arithmetic.abs, arithmetic.angle, arithmetic.sign, arithmetic.eq, arithmetic.ne),
        *(arithmetic.isfinite, arithmetic.isinf, arithmetic.isnan, arithmetic.isclose, arithmetic.where),
        *(exponentials.exp, exponentials.expm1, exponentials.log, exponentials.log1p, exponentials.log2),
        *(exponentials.log10, exponentials.sqrt, exponentials.pow),
        *(circular.sin, circular.cos, circular.tan, circular.asin, circular.acos, circular.atan),
        *(circular.sinh, circular.cosh, circular.tanh, circular.asinh, circular.acosh, circular.atanh),
        *(movement.astype, movement.cast_like, movement.concat, movement.stack, movement.pad, movement.meshgrid),
        *(movement.broadcast_arrays, movement.full, movement.full_like, movement.zeros, movement.ones),
        *(movement.eye, movement.linspace),
        *(
            contractions.matmul,
            contractions.vecdot,
            contractions.einsum,
            contractions.prod,
            contractions.cumprod,
            contractions.var,
        ),
        *(contractions.norm, contractions.diff, contractions.unique_all, contractions.unique),
    ),
    "cast": movement.astype,
    "real": _real,
    "imag": _imag,
    "conj": _conj,
    "complex": movement.make_complex,
    "zeros_like": _zeros_like,
    "ones_like": _ones_like,
    "masked_fill": _masked_fill,
    "allclose": lambda *args, **given: real_reduction.all(arithmetic.isclose(*args, **given)),
    "std": lambda *args, **given: real_elementwise.sqrt(contractions.var(*args, **given)),
}
"""The function for complex arguments, by the name of that for real ones, whose parameters it has."""
