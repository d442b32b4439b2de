# Typed accessors of the `tsched` ops: made by scripts/typed_ops.py from their declarations.

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim

class AliasOp(SpecOp):
    source: SSAValue
    space: str

class AllocOp(SpecOp):
    output: int
    offset: Dim | None

class CallOp(SpecOp):
    buffers: Sequence[SSAValue]
    kernel: str
    sizes: tuple[Dim, ...]
    flops: Dim | None
    bytes: Dim | None
    time: Dim | None

class CallbackOp(SpecOp):
    call: str
    slot: int
    text: str
    outputs: int

class CollectiveOp(SpecOp):
    group: SSAValue
    pattern: str
    axis: str
    algo: str
    quantize: str

class CollectiveStartOp(SpecOp):
    number: int
    call: str
    axis: str
    ranks: int
    purpose: str

class CollectiveWaitOp(SpecOp):
    number: int

class ConstantOp(SpecOp): ...

class CopyOp(SpecOp):
    source: SSAValue
    target: SSAValue

class ForOp(SpecOp):
    body: Region
    carried: int
    scanned: int
    stacked: int
    length: Dim | None
    reverse: bool

class FreeOp(SpecOp):
    buffer: SSAValue

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
    in_place: int
    pipeline: Any

class GuardOp(SpecOp):
    left: Dim
    right: Dim
    what: str

class IfOp(SpecOp):
    then: Region
    otherwise: Region
    condition: SSAValue

class LayoutOp(SpecOp):
    partition: tuple[str, ...]
    mesh_axes: tuple[str, ...]

class MaterializeOp(SpecOp):
    group: SSAValue

class ModuleOp(SpecOp):
    body: Region
    symbol: str
    names: tuple[str, ...]
    guards: Any
    workspace: Dim | None

class PipelineOp(SpecOp):
    symbol: str
    axis: str
    stages: int
    microbatch: int

class ReturnOp(SpecOp): ...

class TileOp(SpecOp):
    group: SSAValue
    candidates: Any
    chosen: Any
    source: str
    knob: str

class WhileOp(SpecOp):
    condition: Region
    body: Region
    carried: Sequence[SSAValue]

class YieldOp(SpecOp): ...
