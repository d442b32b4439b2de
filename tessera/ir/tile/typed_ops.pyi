# Typed accessors of the `ttile` ops: made by scripts/typed_ops.py from their declarations.

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim

class AllGatherOp(SpecOp):
    tile: SSAValue
    at: Sequence[SSAValue]
    axis: str
    size: tuple[Dim, ...]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    shape: tuple[Dim, ...]

class AllReduceOp(SpecOp):
    tile: SSAValue
    at: Sequence[SSAValue]
    axis: str
    size: tuple[Dim, ...]
    op: str
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    shape: tuple[Dim, ...]

class ArgReduceOp(SpecOp):
    indices: SSAValue
    kind: str
    axis: int

class AttendOp(SpecOp):
    scores: SSAValue
    acc: SSAValue
    max: SSAValue
    sum: SSAValue

class BarrierOp(SpecOp): ...

class BitcastOp(SpecOp):
    tile: SSAValue

class BroadcastOp(SpecOp):
    tile: SSAValue
    axes: tuple[int, ...]

class ButterflyOp(SpecOp):
    tile: SSAValue
    by: int
    width: int

class CastOp(SpecOp):
    tile: SSAValue
    rounding: str

class ClipOp(SpecOp):
    tile: SSAValue
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
    unit: str
    instruction: tuple[int, ...]
    awaits: tuple[int, ...]
    releases: tuple[int, ...]

class ElementwiseOp(SpecOp):
    tiles: Sequence[SSAValue]
    fn: str

class FetchOp(SpecOp):
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    map: tuple[Dim, ...]

class ForOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    carried: Sequence[SSAValue]
    step: int
    block: str
    prefetch: int
    buffers: int
    stages: int
    form: str
    pingpong: bool
    awaits: tuple[int, ...]
    releases: tuple[int, ...]

class IndexOp(SpecOp):
    at: Sequence[SSAValue]
    names: tuple[str, ...]
    expr: Dim

class KernelOp(SpecOp):
    body: Region
    symbol: str
    symbols: tuple[str, ...]
    grid: tuple[Dim, ...]
    writes: tuple[int, ...]
    kind: str
    schedule: Any
    warpgroups: int
    scheduler: str
    group: int
    descending: bool
    multicast: bool
    skips: bool
    roles: str
    registers: tuple[int, ...]
    row_pairs: bool
    warps_n: int
    epilogue: str
    lag: int
    reasons: tuple[str, ...]
    variant_of: str

class LoadOp(SpecOp):
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]
    checked: Any
    pad: Any
    hints: Any
    space: str
    layout: str
    swizzle: int
    box: tuple[int, ...]
    stages: int
    ring: int

class PerBlockOp(SpecOp):
    tile: SSAValue

class ProgramIdOp(SpecOp):
    axis: int

class ReduceOp(SpecOp):
    tile: SSAValue
    kind: str
    axis: int

class ReduceScatterOp(SpecOp):
    axis: str
    size: tuple[Dim, ...]
    op: str
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    shape: tuple[Dim, ...]

class ReturnOp(SpecOp): ...

class RoundOp(SpecOp):
    tile: SSAValue
    bits: Sequence[SSAValue]
    format: str
    rounding: str
    saturation: str
    denormals: str

class ScratchOp(SpecOp):
    space: str
    swizzle: int

class SelectOp(SpecOp):
    condition: SSAValue
    first: SSAValue
    second: SSAValue

class ShuffleOp(SpecOp):
    tile: SSAValue
    mode: str
    by: int
    width: int

class SoftmaxOp(SpecOp):
    tile: SSAValue
    eps: float

class SortOp(SpecOp):
    keys: SSAValue
    indices: SSAValue
    spare_keys: SSAValue
    spare_indices: SSAValue
    count: SSAValue
    descending: bool

class StoreOp(SpecOp):
    tile: SSAValue
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]
    checked: Any
    mode: str
    space: str
    layout: str
    swizzle: int
    box: tuple[int, ...]

class TransposeOp(SpecOp):
    tile: SSAValue

class TreeOp(SpecOp):
    lines: SSAValue
    count: SSAValue
    kind: str

class VoteOp(SpecOp):
    tile: SSAValue
    kind: str
    width: int

class YieldOp(SpecOp): ...
