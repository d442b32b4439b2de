# Typed accessors of the `tsched` ops: made by scripts/typed_ops.py from their declarations.

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim

class AliasOp(SpecOp):
    source: SSAValue
    space: str
    flops: Dim
    bytes: Dim
    time: Dim

class AllocOp(SpecOp):
    output: int
    offset: Dim | None
    space: str
    flops: Dim
    bytes: Dim
    time: Dim

class CallOp(SpecOp):
    buffers: Sequence[SSAValue]
    kernel: str
    sizes: tuple[Dim, ...]
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None
    part: int
    launch: int

class CallbackOp(SpecOp):
    call: str
    slot: int
    text: str
    outputs: int
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class CollectiveOp(SpecOp):
    group: SSAValue
    pattern: str
    axis: str
    algo: str
    quantize: str
    topology: Any
    plan: Any
    flops: Dim
    bytes: Dim
    time: Dim

class CollectiveStartOp(SpecOp):
    number: int
    call: str
    axis: str
    ranks: int
    purpose: str
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class CollectiveWaitOp(SpecOp):
    number: int
    flops: Dim
    bytes: Dim
    time: Dim

class ConstantOp(SpecOp):
    flops: Dim
    bytes: Dim
    time: Dim

class CopyOp(SpecOp):
    source: SSAValue
    target: SSAValue
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class ForOp(SpecOp):
    body: Region
    carried: int
    scanned: int
    stacked: int
    length: Dim | None
    reverse: bool
    in_place: tuple[int, ...]
    trips: Dim | None
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class FreeOp(SpecOp):
    buffer: SSAValue
    flops: Dim
    bytes: Dim
    time: Dim

class FuncOp(SpecOp):
    body: Region
    symbol: str
    names: tuple[str, ...]
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class FuseOp(SpecOp):
    body: str
    pattern: str
    kind: str
    axes: tuple[int, ...]
    sizes: Any
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None
    kernels: tuple[str, ...]
    in_place: tuple[int, ...]
    pipeline: Any
    launch: int
    rows: int

class GuardOp(SpecOp):
    left: Dim
    right: Dim
    what: str
    flops: Dim
    bytes: Dim
    time: Dim

class IfOp(SpecOp):
    then: Region
    otherwise: Region
    condition: Sequence[SSAValue]
    size: Dim | None
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class LayoutOp(SpecOp):
    partition: tuple[str, ...]
    mesh_axes: tuple[str, ...]
    dims: tuple[str, ...]
    halo: Any
    order: tuple[int, ...]
    candidates: Any
    source: str
    flops: Dim
    bytes: Dim
    time: Dim

class MaterializeOp(SpecOp):
    group: SSAValue
    flops: Dim
    bytes: Dim
    time: Dim

class MeshRegionOp(SpecOp):
    body: Region
    axis: str
    size: int
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class ModuleOp(SpecOp):
    body: Region
    symbol: str
    names: tuple[str, ...]
    guards: Any
    workspace: Dim | None
    offloaded: Dim | None
    mesh: Any
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class OffloadOp(SpecOp):
    flops: Dim
    bytes: Dim
    time: Dim

class PipelineOp(SpecOp):
    symbol: str
    axis: str
    stages: int
    microbatch: int
    schedule: str
    chunks: int
    orders: Any
    flops: Dim
    bytes: Dim
    time: Dim

class PipelineRegionOp(SpecOp):
    body: Region
    schedule: str
    axis: str
    stages: int
    microbatch: int
    chunks: int
    orders: Any
    flops: Dim
    bytes: Dim
    time: Dim

class PrefetchOp(SpecOp):
    offloaded: SSAValue
    flops: Dim
    bytes: Dim
    time: Dim

class ReturnOp(SpecOp):
    flops: Dim
    bytes: Dim
    time: Dim

class StageOp(SpecOp):
    body: str
    index: int
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class TileOp(SpecOp):
    group: SSAValue
    candidates: Any
    chosen: Any
    source: str
    knob: str
    flops: Dim
    bytes: Dim
    time: Dim

class WhileOp(SpecOp):
    condition: Region
    body: Region
    carried: Sequence[SSAValue]
    in_place: tuple[int, ...]
    trips: Dim | None
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class YieldOp(SpecOp):
    flops: Dim
    bytes: Dim
    time: Dim
