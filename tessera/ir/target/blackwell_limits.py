"""Tensor memory and the products that sum in it: `tcgen05` of one CTA (PTX ISA 8.7)."""

from __future__ import annotations

from tessera.ir.target.hopper_limits import Product
from tessera.types import dtype as dt
from tessera.types.dtype import DType

FEATURES = ("tcgen05", "tma")
"""What a kernel with tensor memory cannot be without."""
ROWS = 128
"""Rows of a product, and lanes of tensor memory: row i is in lane i."""
MAX_COLUMNS = 512
"""Columns of tensor memory, 4 bytes in each lane."""
MIN_COLUMNS = 32
"""Columns are given out in powers of two of so many."""
WIDEST = 256
"""Columns of one product."""
ALLOCATION = 16
"""Shared bytes of an allocation: the address that the machine writes, and the barrier that products arrive at."""

PRODUCTS: dict[DType, Product] = {
    dt.bf16: Product("f16", dt.f32, is_transposable=True),
    dt.f16: Product("f16", dt.f32, is_transposable=True),
}
"""By the dtype of both sides; the name is the kind of `tcgen05.mma`."""
FORMATS: dict[DType, int] = {dt.f16: 0, dt.bf16: 1}
"""The number of a side's dtype in an instruction descriptor of that kind."""


def columns_for(width: int) -> int:
    """The fewest columns that can be asked for which hold so many."""
    found = MIN_COLUMNS
    while found < width:
        found *= 2
    return found
