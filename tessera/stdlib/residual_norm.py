"""Dropout, residual and layer normalization in one kernel: each row is read once and written once, in both directions.

The sum that is normalized is a result too, for the next residual. The backward kernel draws the same dropout mask by
the same key (numbers depend on the key and on the index of an element, not on the kernel), so no mask is stored.
"""

from __future__ import annotations

from typing import Any

from tessera.api.custom import custom_vjp
from tessera.api.kernel import kernel
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_number
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of, shape_dims
from tessera.frontend.kernel import language as tile
from tessera.frontend.kernel.tiles import KTile
from tessera.stdlib.operand_dims import bind_dims, promote_tensors
from tessera.types.dtype import f32


@kernel
def dropped_layernorm(
    x: KTile["B*S", "D"],
    residual: KTile["B*S", "D"],
    weight: KTile["D", f32],
    bias: KTile["D", f32],
    out: KTile["B*S", "D"],
    total: KTile["B*S", "D"],
    mean: KTile["B*S", f32],
    scale: KTile["B*S", f32],
    *,
    p: float = 0.0,
    eps: float = 1e-5,
) -> None:
    """Rows of `dropout(x) + residual` and their normalization; and what that subtracts and multiplies by."""
    T = tile.context()
    rows = tile.dropout_in_kernel(tile.load(x, rows=T.m, cols=T.d), p) + tile.load(residual, rows=T.m, cols=T.d)
    rows = tile.cast(tile.cast(rows, x.dtype), f32)  # what is normalized is what the next residual reads
    centre = tile.tile_reduce_rowsum(rows) / float(T.d)
    centred = rows - centre[:, None]
    inverse = tile.rsqrt(tile.tile_reduce_rowsum(centred * centred) / float(T.d) + eps)
    scaled = centred * inverse[:, None] * tile.load(weight, T.d) + tile.load(bias, T.d)
    tile.store(out, scaled, rows=T.m, cols=T.d)
    tile.store(total, rows, rows=T.m, cols=T.d)
    tile.store(mean, centre, T.m)
    tile.store(scale, inverse, T.m)


@kernel
def dropped_layernorm_gradients(
    d_out: KTile["B*S", "D"],
    d_total: KTile["B*S", "D"],
    total: KTile["B*S", "D"],
    mean: KTile["B*S", f32],
    scale: KTile["B*S", f32],
    weight: KTile["D", f32],
    dx: KTile["B*S", "D"],
    d_residual: KTile["B*S", "D"],
    *,
    p: float = 0.0,
) -> None:
    """Gradients of `x` and of the residual; the dropout mask is drawn again."""
    T = tile.context()
    inverse = tile.load(scale, T.m)[:, None]
    normal = (tile.load(total, rows=T.m, cols=T.d) - tile.load(mean, T.m)[:, None]) * inverse
    slopes = tile.load(d_out, rows=T.m, cols=T.d) * tile.load(weight, T.d)
    along = tile.tile_reduce_rowsum(slopes * normal) / float(T.d)
    centre = tile.tile_reduce_rowsum(slopes) / float(T.d)
    found = (slopes - centre[:, None] - normal * along[:, None]) * inverse + tile.load(d_total, rows=T.m, cols=T.d)
    tile.store(d_residual, found, rows=T.m, cols=T.d)
    tile.store(dx, tile.dropout_in_kernel(found, p), rows=T.m, cols=T.d)


def _normalize(x: Any, residual: Any, weight: Any, bias: Any, key: Any, p: float, eps: float) -> Any:
    return _run_forward(x, residual, weight, bias, key, p, eps)[:2]


def _run_forward(x: Any, residual: Any, weight: Any, bias: Any, key: Any, p: float, eps: float) -> Any:
    drawn = {"key": key} if p > 0.0 else {}
    return dropped_layernorm(x, residual, weight, bias, p=p, eps=eps, **drawn)


def _normalize_forward(
    x: Any, residual: Any, weight: Any, bias: Any, key: Any, p: float, eps: float
) -> tuple[Any, Any]:
    out, total, mean, scale = _run_forward(x, residual, weight, bias, key, p, eps)
    return (out, total), (total, mean, scale, weight, key)


def _normalize_backward(p: float, eps: float, kept: Any, d_results: Any) -> tuple[Any, ...]:
    total, mean, scale, weight, key = kept
    d_out, d_total = (cast(one, dtype_of(total)) for one in d_results)
    drawn = {"key": key} if p > 0.0 else {}
    dx, d_residual = dropped_layernorm_gradients(d_out, d_total, total, mean, scale, weight, p=p, **drawn)
    wide, leading = cast(d_out, f32), tuple(range(len(total.shape) - 1))
    normal = (cast(total, f32) - mean[..., None]) * scale[..., None]
    return dx, d_residual, (wide * normal).sum(axis=leading), wide.sum(axis=leading), None


normalize = custom_vjp(_normalize, nondiff_argnums=(5, 6))
normalize.defvjp(_normalize_forward, _normalize_backward)


def dropout_residual_layernorm(
    x: Any, residual: Any, weight: Any, bias: Any, *, p: float = 0.0, key: Any = None, eps: float = 1e-5
) -> tuple[Any, Any]:
    """`layernorm(dropout(x) + residual)` and the sum that was normalized, in one kernel.

    `x` and `residual` are [B, S, D], `weight` and `bias` [D], read as f32. A fraction `p` of `x` is zeroed by `key`,
    the rest divided by `1 - p`; the backward pass draws that mask too. The sum is rounded to the dtype of `x` before
    it is normalized.

    >>> x = ts.array([[[1.0, 3.0]]])
    >>> ts.ops.dropout_residual_layernorm(x, ts.zeros((1, 1, 2)), ts.ones(2), ts.zeros(2))[1]
    Tensor([1, 1, 2] f32, [[[1, 3]]])
    """
    share, least = (check_number("dropout_residual_layernorm", name, one) for name, one in (("p", p), ("eps", eps)))
    if not 0.0 <= share < 1.0 or (share > 0.0 and key is None):
        raise ArgumentError(
            f"`dropout_residual_layernorm` takes `p` in 0..1 without 1, and a key where it is above 0, got p={p!r} and "
            f"{'no key' if key is None else 'a key'}",
            fix="write `key=tessera.random.key(0)`",
        )
    x, residual = promote_tensors("dropout_residual_layernorm", x, residual)
    weight, bias = (cast(as_tensor(one), f32) for one in (weight, bias))
    operands = {"x": (x, "B S D"), "residual": (residual, "B S D"), "weight": (weight, "D"), "bias": (bias, "D")}
    bind_dims("dropout_residual_layernorm", operands)
    if shape_dims(x)[2].value == 0:
        return x, residual  # no kernel has rows of no elements
    out, total = normalize(x, residual, weight, bias, key, share, least)
    return out, total
