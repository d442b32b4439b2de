"""What matrix units of single warps take: `mma.sync`, its sides from `ldmatrix`, copies by `cp.async` (PTX ISA 8.0)."""

from __future__ import annotations

from tessera.ir.target.hopper_limits import Product
from tessera.types import dtype as dt
from tessera.types.dtype import DType

FEATURES = ("cp.async", "ldmatrix", "mma.sync")
"""What such a kernel cannot be without; everything from sm_80 on has it."""
PIECE = 16
"""Bytes that one `cp.async` moves, and that both of its ends are multiples of."""
MAX_STAGES = 8
MAX_GROUPS = 4
"""Groups of four warps of a CTA: more threads would have too few registers each."""
ACROSS = (1, 2, 4)
"""Warps of a group that stand side by side."""
MOST_SHARED = 227 << 10
"""Shared bytes of a CTA on the largest machine; the one at hand may have fewer."""

PRODUCTS: dict[DType, Product] = {
    dt.bf16: Product("m16n8k16.row.col.f32.bf16.bf16.f32", dt.f32, is_transposable=True),
    dt.f16: Product("m16n8k16.row.col.f32.f16.f16.f32", dt.f32, is_transposable=True),
    dt.i8: Product("m16n8k32.row.col.s32.s8.s8.s32", dt.i32),
}
"""By the dtype of both sides: each takes 32 bytes of k."""
FORMS: dict[DType, Product] = {**PRODUCTS, dt.f32: Product("m16n8k8.row.col.f32.tf32.tf32.f32", dt.f32)}
"""The same, and that of f32 where all of its numbers are ones of tf32."""
