# Typed accessors of the `ttarget` ops: made by scripts/typed_ops.py from their declarations.

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim

class AcquireOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue

class AdvanceOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue

class AwaitOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue

class CommitCopiesOp(SpecOp): ...

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

class ElectOp(SpecOp):
    body: Region

class EpilogueOp(SpecOp):
    body: Region
    columns: int
    pieces: int

class FragmentLoadOp(SpecOp):
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]
    pad: Any

class FragmentReadOp(SpecOp):
    tile: SSAValue
    cursor: SSAValue
    major: str

class FragmentStoreOp(SpecOp):
    tile: SSAValue
    buffer: SSAValue
    at: Sequence[SSAValue]
    coords: tuple[str, ...]
    axes: tuple[str, ...]
    map: tuple[Dim, ...]
    bounds: tuple[Dim, ...]
    windows: tuple[Dim, ...]

class GrowRowsOp(SpecOp):
    partial: SSAValue
    factor: SSAValue
    fragment: SSAValue

class JoinRowsOp(SpecOp):
    partial: SSAValue

class LagOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue
    stages: int

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
    multicast: bool
    row_pairs: bool

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

class PingpongOp(SpecOp):
    mode: str

class ReduceRowsOp(SpecOp):
    fragment: SSAValue
    kind: str

class ReleaseOp(SpecOp):
    ring: SSAValue
    cursor: SSAValue
    range: Sequence[SSAValue]

class RingOp(SpecOp):
    tiles: Sequence[SSAValue]
    offset: int
    stages: int
    bytes: int

class RolesOp(SpecOp):
    producer: Region
    consumer: Region

class SharedTileOp(SpecOp):
    offset: int
    stages: int
    swizzle: int

class SkipOp(SpecOp):
    low: SSAValue
    high: SSAValue

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
    copies: int

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
    by_threads: bool
    low: tuple[int, ...]
    high: tuple[int, ...]
    strides: tuple[int, ...]

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

class UniformOp(SpecOp):
    body: Region

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
    warps_n: int
    shared: int

class WhenOp(SpecOp):
    body: Region
    low: SSAValue
    high: SSAValue
    given: Sequence[SSAValue]
