"""What a Hopper multiprocessor has, and the shapes its matrix and copy instructions come in.

Numbers are from the PTX ISA 8.7 (`wgmma.mma_async`, `cp.async.bulk.tensor`, `setmaxnreg`) and the CUDA driver API
(`cuTensorMapEncodeTiled`).
"""

from __future__ import annotations

from tessera.types import dtype as dt
from tessera.types.dtype import DType
from tessera.types.frozen import frozen

SHARED_BYTES = 227 << 10
"""Shared memory that one CTA may have."""
REGISTERS = 65536
"""Registers of a multiprocessor, all of which one CTA may have."""
WARPGROUP = 128
ROWS = 64
"""Rows of one `wgmma`."""
SPAN = 128
"""Bytes of a row of a swizzled tile: the widest swizzle."""
SPANS = (SPAN, 64, 32)
"""Bytes of rows that there are swizzles for, the widest first."""
MAX_COLUMNS = 256
"""Columns of one `wgmma`."""
STEP = 32
"""Bytes of k that one `wgmma` takes, whatever the dtype."""
ALIGNMENT = 1024
"""A swizzle repeats after eight rows, and where it begins is read from the address."""
MAX_BOX = 256
"""Elements of a copied box along any axis."""
MAX_RANK = 5
MAX_TRANSACTION = (1 << 20) - 1
"""Bytes that one phase of an mbarrier can count."""
MAX_STAGES = 8
PROMOTED = 128
"""Products of 8-bit floats that are added up inside of matrix units, before their sum is added outside of them: the
same whatever the depth of a step is, so that no choice of it changes a bit."""


@frozen
class Product:
    """A `wgmma` of one dtype: its PTX suffix, what it sums in, and whether sides may lie along rows or columns of k.

    Sums of 8-bit floats keep fewer bits than f32 has inside of the matrix units, so those are added up outside of them
    (`is_promoted`), `PROMOTED` of them at a time.
    """

    suffix: str
    accumulator: DType
    is_transposable: bool = False
    is_promoted: bool = False

    def has(self, columns: int) -> bool:
        """Whether there is one of so many columns: of floats any eights, of integers sixteens from 32 on."""
        is_even = self.accumulator.is_float or columns % 16 == 0 or columns < 32
        return columns % 8 == 0 and 8 <= columns <= MAX_COLUMNS and is_even


PRODUCTS: dict[DType, Product] = {
    dt.bf16: Product("f32.bf16.bf16", dt.f32, is_transposable=True),
    dt.f16: Product("f32.f16.f16", dt.f32, is_transposable=True),
    dt.i8: Product("s32.s8.s8", dt.i32),
    dt.f8e4m3: Product("f32.e4m3.e4m3", dt.f32, is_promoted=True),
    dt.f8e5m2: Product("f32.e5m2.e5m2", dt.f32, is_promoted=True),
}
"""By the dtype of both sides."""
TF32 = Product("f32.tf32.tf32", dt.f32)
"""The product of f32 where all of its numbers are ones of tf32: of others the matrix units cut the low bits off."""
FORMS: dict[DType, Product] = {**PRODUCTS, dt.f32: TF32}
"""All of them."""
