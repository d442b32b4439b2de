# Typed accessors of the `ttarget` ops: made by scripts/typed_ops.py from their declarations.

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType

class AcquireOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue

class AdvanceOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue

class ArgReduceOp(SpecOp):
    indices: SSAValue
    kind: str
    axis: int

class AwaitOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue

class BarrierOp(SpecOp): ...

class BitcastOp(SpecOp):
    block: SSAValue

class BlockDotOp(SpecOp):
    lhs: SSAValue
    rhs: SSAValue
    out: SSAValue
    room: SSAValue
    at: Sequence[SSAValue]
    names: tuple[str, ...]
    m: Dim
    n: Dim
    k: Dim
    rows: int
    depth: int
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

class CommitCopiesOp(SpecOp): ...

class ConstantOp(SpecOp): ...

class CoordinateOp(SpecOp):
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    expr: Dim

class CopyOp(SpecOp):
    map: SSAValue
    ring: SSAValue
    cursor: SSAValue
    tile: SSAValue
    at: Sequence[SSAValue]
    pieces: int
    half: str

class CopyAsyncOp(SpecOp):
    tile: SSAValue
    cursor: SSAValue
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]

class CursorOp(SpecOp): ...

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

class FragmentLoadOp(SpecOp):
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]
    pad: Any

class FragmentStoreOp(SpecOp):
    tile: SSAValue
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]

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

class GrowRowsOp(SpecOp):
    partial: SSAValue
    factor: SSAValue
    fragment: SSAValue

class IndexOp(SpecOp):
    at: Sequence[SSAValue]
    names: tuple[str, ...]
    expr: Dim

class JoinRowsOp(SpecOp):
    partial: SSAValue

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
    shares: int
    max_registers: int
    max_shared: int

class LagOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue
    stages: int

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

class LoopOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    carried: Sequence[SSAValue]
    step: int
    is_partial: bool
    unroll: int

class MatrixKernelOp(SpecOp):
    body: Region
    symbol: str
    symbols: tuple[str, ...]
    grid: tuple[Dim, ...]
    writes: tuple[int, ...]
    features: tuple[str, ...]
    consumers: int
    registers: tuple[int, ...]
    shared: int
    pair: bool

class MmaAddOp(SpecOp):
    fragment: SSAValue
    lhs: SSAValue
    rhs: SSAValue
    cursors: Sequence[SSAValue]
    lhs_major: str
    rhs_major: str
    parts: int

class MmaIssueOp(SpecOp):
    acc: SSAValue
    lhs: SSAValue
    rhs: SSAValue
    cursors: Sequence[SSAValue]
    lhs_major: str
    rhs_major: str
    mode: str

class MmaOpenOp(SpecOp):
    fragment: SSAValue

class MmaSyncOp(SpecOp):
    acc: SSAValue
    lhs: SSAValue
    rhs: SSAValue
    cursors: Sequence[SSAValue]
    lhs_major: str
    rhs_major: str
    mode: str

class MmaWaitOp(SpecOp):
    pending: Sequence[SSAValue]
    left: int

class PackOp(SpecOp):
    fragment: SSAValue

class PartialRowsOp(SpecOp): ...

class ProgramsOp(SpecOp):
    body: Region
    grid: tuple[Dim, ...]

class ReduceOp(SpecOp):
    block: SSAValue
    kind: str
    axis: int

class ReduceRowsOp(SpecOp):
    fragment: SSAValue
    kind: str

class ReleaseOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue
    range: Sequence[SSAValue]

class RestOp(SpecOp):
    body: Region
    columns: int
    pieces: int

class ReturnOp(SpecOp): ...

class RingOp(SpecOp):
    tiles: Sequence[SSAValue]
    offset: int
    stages: int
    bytes: int

class RolesOp(SpecOp):
    producer: Region
    consumer: Region

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
    c: SSAValue
    a: SSAValue
    b: SSAValue

class SharedTileOp(SpecOp):
    offset: int
    stages: int
    swizzle: int

class ShuffleOp(SpecOp):
    block: SSAValue
    mode: str
    by: int
    width: int

class SortOp(SpecOp):
    keys: SSAValue
    places: SSAValue
    spare_keys: SSAValue
    spare_places: SSAValue
    count: SSAValue
    descending: bool

class StageAfterOp(SpecOp):
    cursor: SSAValue
    by: int
    stages: int

class StepsOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    carried: Sequence[SSAValue]
    step: int
    is_nonempty: bool

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

class StoreRowsOp(SpecOp):
    fragment: SSAValue
    staging: SSAValue
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]

class StoreTileOp(SpecOp):
    fragment: SSAValue
    map: tuple[Dim, ...]
    staging: SSAValue
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    bounds: tuple[Dim, ...]

class TailOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    carried: Sequence[SSAValue]
    step: int
    is_partial: bool
    unroll: int

class TensorAllocOp(SpecOp):
    columns: int
    offset: int
    warp: int

class TensorCommitOp(SpecOp):
    memory: SSAValue

class TensorDeallocOp(SpecOp):
    memory: SSAValue
    warp: int

class TensorKernelOp(SpecOp):
    body: Region
    symbol: str
    symbols: tuple[str, ...]
    grid: tuple[Dim, ...]
    writes: tuple[int, ...]
    features: tuple[str, ...]
    consumers: int
    shared: int

class TensorLoadOp(SpecOp):
    memory: SSAValue

class TensorMapOp(SpecOp):
    buffer: SSAValue
    box: tuple[int, ...]
    swizzle: int
    cut: int
    rounds: str

class TensorMmaOp(SpecOp):
    memory: SSAValue
    lhs: SSAValue
    rhs: SSAValue
    at: Sequence[SSAValue]
    lhs_major: str
    rhs_major: str

class TensorReleaseOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue

class TensorWaitOp(SpecOp):
    memory: SSAValue

class TilesOp(SpecOp):
    body: Region
    cursors: Sequence[SSAValue]
    grid: tuple[Dim, ...]
    group: int
    is_descending: bool
    mailbox: int

class TransposeOp(SpecOp):
    block: SSAValue

class TurnOp(SpecOp):
    way: str

class VoteOp(SpecOp):
    block: SSAValue
    kind: str
    width: int

class WaitCopiesOp(SpecOp):
    left: int

class WarpKernelOp(SpecOp):
    body: Region
    symbol: str
    symbols: tuple[str, ...]
    grid: tuple[Dim, ...]
    writes: tuple[int, ...]
    features: tuple[str, ...]
    consumers: int
    across: int
    shared: int

class WhenOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    given: Sequence[SSAValue]

class YieldOp(SpecOp): ...
