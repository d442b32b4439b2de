# Typed accessors of the `ttarget` ops: made by scripts/typed_ops.py from their declarations.

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType

class ArgReduceOp(SpecOp):
    indices: SSAValue
    kind: str
    axis: int

class BarrierOp(SpecOp): ...

class BitcastOp(SpecOp):
    block: SSAValue

class BlockDotOp(SpecOp):
    lhs: SSAValue
    rhs: SSAValue
    out: SSAValue
    panels: SSAValue
    at: Sequence[SSAValue]
    names: tuple[str, ...]
    m: Dim
    n: Dim
    k: Dim
    max_rows: int
    max_k: int
    lhs_offset: Dim
    rhs_offset: Dim
    out_stride: int
    is_fresh: bool

class BroadcastOp(SpecOp):
    block: SSAValue
    axes: tuple[int, ...]

class CastOp(SpecOp):
    block: SSAValue
    rounding: str

class ClipOp(SpecOp):
    block: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    axis: str
    bound: Dim
    identity: Any

class ConstantOp(SpecOp): ...

class CoordinateOp(SpecOp):
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    expr: Dim

class DotOp(SpecOp):
    lhs: SSAValue
    rhs: SSAValue
    acc: SSAValue

class ElementwiseOp(SpecOp):
    blocks: Sequence[SSAValue]
    fn: str

class FetchOp(SpecOp):
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    offset: Dim

class GemmOp(SpecOp):
    epilogue: Region
    lhs: SSAValue
    rhs: SSAValue
    batch: tuple[Dim, ...]
    m: Dim
    n: Dim
    k: Dim
    lhs_offset: Dim
    rhs_offset: Dim
    lhs_windows: tuple[Dim, ...]
    rhs_windows: tuple[Dim, ...]
    lhs_dtype: DType
    rhs_dtype: DType
    unit: str
    instruction: tuple[int, ...]

class IndexOp(SpecOp):
    at: Sequence[SSAValue]
    names: tuple[str, ...]
    expr: Dim

class KernelOp(SpecOp):
    body: Region
    symbol: str
    symbols: tuple[str, ...]
    writes: tuple[int, ...]
    lanes: int
    features: tuple[str, ...]
    scratch: Dim
    threads: int
    vector: int
    align: int
    warps_per_row: int
    multiples: tuple[int, ...]
    max_registers: int
    max_shared: int

class LaunchOp(SpecOp):
    buffers: Sequence[SSAValue]
    kernel: str
    types: tuple[str, ...]
    arity: int
    sizes: tuple[Dim, ...]

class LoadOp(SpecOp):
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    offset: Dim
    pattern: str
    align: int
    guarded: tuple[str, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]
    pad: Any
    prefetch: int

class LoopOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    carried: Sequence[SSAValue]
    step: int
    is_partial: bool
    unroll: int

class PrefetchOp(SpecOp):
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    offset: Dim
    elements: int
    ahead: int
    least: int

class ProgramsOp(SpecOp):
    body: Region
    grid: tuple[Dim, ...]

class ReduceOp(SpecOp):
    block: SSAValue
    kind: str
    axis: int

class ReturnOp(SpecOp): ...

class RoundOp(SpecOp):
    block: SSAValue
    bits: Sequence[SSAValue]
    format: str
    rounding: str
    saturation: str
    denormals: str

class ScratchOp(SpecOp):
    offset: Dim
    space: str
    swizzle: int

class SelectOp(SpecOp):
    condition: SSAValue
    first: SSAValue
    second: SSAValue

class ShuffleOp(SpecOp):
    block: SSAValue
    mode: str
    by: int
    width: int

class SortOp(SpecOp):
    keys: SSAValue
    indices: SSAValue
    spare_keys: SSAValue
    spare_indices: SSAValue
    count: SSAValue
    descending: bool

class StoreOp(SpecOp):
    block: SSAValue
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    offset: Dim
    pattern: str
    align: int
    guarded: tuple[str, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]
    mode: str

class TailOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    carried: Sequence[SSAValue]
    step: int
    is_partial: bool
    unroll: int

class TransposeOp(SpecOp):
    block: SSAValue

class TreeOp(SpecOp):
    lines: SSAValue
    count: SSAValue
    kind: str

class VoteOp(SpecOp):
    block: SSAValue
    kind: str
    width: int

class YieldOp(SpecOp): ...
