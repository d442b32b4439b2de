# Typed accessors of the `tgraph` ops: made by scripts/typed_ops.py from their declarations.

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType

class AbsOp(SpecOp):
    x: SSAValue

class AcosOp(SpecOp):
    x: SSAValue

class AcoshOp(SpecOp):
    x: SSAValue

class AddOp(SpecOp):
    x: SSAValue
    y: SSAValue

class AllOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool

class AllGatherOp(SpecOp):
    x: SSAValue
    axis: str
    size: tuple[Dim, ...]
    dim: int
    purpose: str

class AllReduceOp(SpecOp):
    x: SSAValue
    axis: str
    size: tuple[Dim, ...]
    op: str

class AllToAllOp(SpecOp):
    x: SSAValue
    axis: str
    size: tuple[Dim, ...]
    split: int
    concat: int
    purpose: str

class AnyOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool

class ArgmaxOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool

class ArgminOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool

class ArgsortOp(SpecOp):
    x: SSAValue
    axis: int
    descending: bool

class AsinOp(SpecOp):
    x: SSAValue

class AsinhOp(SpecOp):
    x: SSAValue

class AtanOp(SpecOp):
    x: SSAValue

class Atan2Op(SpecOp):
    x: SSAValue
    y: SSAValue

class AtanhOp(SpecOp):
    x: SSAValue

class AttentionOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    mask: Sequence[SSAValue]
    causal: bool
    scale: float | None
    part: int

class AttentionBackwardOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    cotangent: SSAValue
    lse: SSAValue
    delta: SSAValue
    mask: Sequence[SSAValue]
    causal: bool
    scale: float | None

class AttentionBackwardKeysOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    cotangent: SSAValue
    lse: SSAValue
    delta: SSAValue
    scale: float | None

class AttentionJoinOp(SpecOp):
    acc: SSAValue
    top: SSAValue
    total: SSAValue
    length: Sequence[SSAValue]
    dtype: DType
    keys: int

class AttentionPartsOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    length: Sequence[SSAValue]
    keys: int
    scale: float | None

class AttentionTangentOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    out: SSAValue
    lse: SSAValue
    others: Sequence[SSAValue]
    causal: bool
    scale: float | None
    by: tuple[int, ...]

class AttentionWithLseOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    mask: Sequence[SSAValue]
    causal: bool
    scale: float | None
    part: int

class AvgPoolOp(SpecOp):
    x: SSAValue
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]
    count_padding: bool
    accumulate: DType | None

class AxisIndexOp(SpecOp):
    axis: str
    size: tuple[Dim, ...]

class BernoulliOp(SpecOp):
    key: SSAValue
    shape: tuple[Dim, ...]
    p: float

class BitcastOp(SpecOp):
    x: SSAValue
    dtype: DType
    source: DType

class BitwiseAndOp(SpecOp):
    x: SSAValue
    y: SSAValue

class BitwiseNotOp(SpecOp):
    x: SSAValue

class BitwiseOrOp(SpecOp):
    x: SSAValue
    y: SSAValue

class BitwiseXorOp(SpecOp):
    x: SSAValue
    y: SSAValue

class BroadcastToOp(SpecOp):
    x: SSAValue
    shape: tuple[Dim, ...]

class CachedAttentionOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    length: SSAValue
    causal: bool
    scale: float | None
    part: int

class CastOp(SpecOp):
    x: SSAValue
    dtype: DType

class CastLikeOp(SpecOp):
    x: SSAValue
    like: SSAValue

class CeilOp(SpecOp):
    x: SSAValue

class CheckpointOp(SpecOp):
    body: Region
    policy: Any

class CheckpointNameOp(SpecOp):
    x: SSAValue
    label: str

class ClampOp(SpecOp):
    x: SSAValue
    low: SSAValue
    high: SSAValue

class ConcatOp(SpecOp):
    xs: Sequence[SSAValue]
    axis: int

class CondOp(SpecOp):
    then: Region
    otherwise: Region
    predicate: SSAValue

class ConstantOp(SpecOp): ...

class Conv1dOp(SpecOp):
    x: SSAValue
    w: SSAValue
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]
    groups: int
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class Conv2dOp(SpecOp):
    x: SSAValue
    w: SSAValue
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]
    groups: int
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class Conv3dOp(SpecOp):
    x: SSAValue
    w: SSAValue
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]
    groups: int
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class ConvTranspose1dOp(SpecOp):
    x: SSAValue
    w: SSAValue
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class ConvTranspose2dOp(SpecOp):
    x: SSAValue
    w: SSAValue
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class ConvTranspose3dOp(SpecOp):
    x: SSAValue
    w: SSAValue
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class ConvWeightsOp(SpecOp):
    y: SSAValue
    x: SSAValue
    taps: tuple[Dim, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[Dim, ...]
    high: tuple[Dim, ...]
    grouped: bool
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class ConvWindowsOp(SpecOp):
    w: SSAValue
    x: SSAValue
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[Dim, ...]
    high: tuple[Dim, ...]
    grouped: bool
    taps_first: bool
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class CopysignOp(SpecOp):
    x: SSAValue
    y: SSAValue

class CosOp(SpecOp):
    x: SSAValue

class CoshOp(SpecOp):
    x: SSAValue

class CrossEntropyOp(SpecOp):
    logits: SSAValue
    labels: SSAValue
    reduction: str

class CummaxOp(SpecOp):
    x: SSAValue
    axis: int
    reverse: bool

class CumprodOp(SpecOp):
    x: SSAValue
    axis: int
    reverse: bool
    accumulate: DType | None

class CumsumOp(SpecOp):
    x: SSAValue
    axis: int
    reverse: bool
    accumulate: DType | None

class CumulativeOp(SpecOp):
    x: SSAValue
    kind: str
    axis: int
    reverse: bool
    accumulate: DType | None

class CustomFunctionOp(SpecOp):
    body: Region
    function: str
    captured: int
    modes: tuple[str, ...]

class CustomLinearOp(SpecOp):
    function: str
    residuals: int
    modes: tuple[str, ...]

class DebugPrintOp(SpecOp):
    format: str

class DequantizeOp(SpecOp):
    q: SSAValue
    scale: SSAValue
    dtype: DType
    block: tuple[int, ...]

class DiagonalOp(SpecOp):
    x: SSAValue
    axis1: int
    axis2: int

class DimSizeOp(SpecOp):
    dims: tuple[Dim, ...]

class DivOp(SpecOp):
    x: SSAValue
    y: SSAValue

class DotGeneralOp(SpecOp):
    a: SSAValue
    b: SSAValue
    lhs_batch: tuple[int, ...]
    rhs_batch: tuple[int, ...]
    lhs_contract: tuple[int, ...]
    rhs_contract: tuple[int, ...]
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class DotWindowsOp(SpecOp):
    lhs: SSAValue
    rhs: SSAValue
    shape: tuple[Dim, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    low: tuple[Dim, ...]
    positions: str
    taps: tuple[Dim, ...]
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class DropoutOp(SpecOp):
    x: SSAValue
    key: SSAValue
    rate: float

class EinsumOp(SpecOp):
    equation: str
    dtype: DType | None

class EmbeddingOp(SpecOp):
    table: SSAValue
    indices: SSAValue
    mode: str
    may_be_empty: bool

class EqOp(SpecOp):
    x: SSAValue
    y: SSAValue

class ErfOp(SpecOp):
    x: SSAValue

class ErfcOp(SpecOp):
    x: SSAValue

class ExpOp(SpecOp):
    x: SSAValue

class Exp2Op(SpecOp):
    x: SSAValue

class ExpandDimsOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]

class Expm1Op(SpecOp):
    x: SSAValue

class EyeOp(SpecOp):
    shape: tuple[Dim, ...]
    dtype: DType
    offset: int

class FlipOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]

class FloorOp(SpecOp):
    x: SSAValue

class FloordivOp(SpecOp):
    x: SSAValue
    y: SSAValue

class FmaChainOp(SpecOp):
    terms: Sequence[SSAValue]
    accumulate: DType
    dtype: DType

class FoldKeyOp(SpecOp):
    key: SSAValue
    data: SSAValue

class ForiOp(SpecOp):
    body: Region
    lower: SSAValue
    upper: SSAValue
    carried: int

class FreshKeyOp(SpecOp): ...

class FullOp(SpecOp):
    shape: tuple[Dim, ...]
    dtype: DType

class FuncOp(SpecOp):
    body: Region
    symbol: str
    names: tuple[str, ...]
    guards: Any

class FusedOp(SpecOp):
    x: SSAValue
    contraction: SSAValue

class GatherOp(SpecOp):
    x: SSAValue
    indices: SSAValue
    mode: str
    may_be_empty: bool

class GcdOp(SpecOp):
    x: SSAValue
    y: SSAValue

class GeOp(SpecOp):
    x: SSAValue
    y: SSAValue

class GeluOp(SpecOp):
    x: SSAValue
    approximate: str

class GtOp(SpecOp):
    x: SSAValue
    y: SSAValue

class HypotOp(SpecOp):
    x: SSAValue
    y: SSAValue

class IndexGetOp(SpecOp):
    x: SSAValue
    indices: Sequence[SSAValue]
    axes: tuple[int, ...]
    out_axis: int
    mode: str
    may_be_empty: bool
    by: str

class IndexLegalOp(SpecOp):
    x: SSAValue
    indices: Sequence[SSAValue]
    axes: tuple[int, ...]
    out_axis: int
    checked: Any
    masked: bool

class IndexPutOp(SpecOp):
    x: SSAValue
    updates: SSAValue
    indices: Sequence[SSAValue]
    axes: tuple[int, ...]
    out_axis: int
    reduce: str
    mode: str
    accumulate: DType | None
    by: str

class IoCallbackOp(SpecOp):
    slot: int
    shapes: tuple[tuple[Dim, ...], ...]
    dtypes: tuple[DType, ...]
    deterministic: bool
    function: str

class IotaOp(SpecOp):
    shape: tuple[Dim, ...]
    axis: int
    dtype: DType

class IsinfOp(SpecOp):
    x: SSAValue

class IsnanOp(SpecOp):
    x: SSAValue

class JoinSegmentsOp(SpecOp):
    parts: SSAValue
    dtype: DType

class KernelCallOp(SpecOp):
    kernel: str

class KvAppendOp(SpecOp):
    keys: SSAValue
    length: SSAValue
    k: SSAValue
    v: SSAValue

class KvOffloadOp(SpecOp):
    keys: SSAValue
    length: SSAValue
    space: str

class KvPrefetchOp(SpecOp):
    keys: SSAValue
    length: SSAValue
    space: str

class KvPruneOp(SpecOp):
    keys: SSAValue
    length: SSAValue
    keep: int

class KvWriteOp(SpecOp):
    old: SSAValue
    length: SSAValue
    new: SSAValue
    in_place: bool

class LayernormSafeOp(SpecOp):
    x: SSAValue
    parameters: Sequence[SSAValue]
    axis: int
    eps: float

class LeOp(SpecOp):
    x: SSAValue
    y: SSAValue

class LinspaceOp(SpecOp):
    start: float
    stop: float
    num: int
    dtype: DType
    endpoint: bool

class LogOp(SpecOp):
    x: SSAValue

class Log10Op(SpecOp):
    x: SSAValue

class Log1pOp(SpecOp):
    x: SSAValue

class Log2Op(SpecOp):
    x: SSAValue

class LogSoftmaxOp(SpecOp):
    x: SSAValue
    axis: int

class LogicalAndOp(SpecOp):
    x: SSAValue
    y: SSAValue

class LogicalNotOp(SpecOp):
    x: SSAValue

class LogicalOrOp(SpecOp):
    x: SSAValue
    y: SSAValue

class LogicalXorOp(SpecOp):
    x: SSAValue
    y: SSAValue

class LogsumexpOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool

class LogsumexpSafeOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool

class LtOp(SpecOp):
    x: SSAValue
    y: SSAValue

class MatmulOp(SpecOp):
    a: SSAValue
    b: SSAValue
    accumulate: DType | None
    dtype: DType | None
    segment: Dim | None
    partial: bool

class MaxOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool
    identity: bool

class MaxPoolOp(SpecOp):
    x: SSAValue
    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    padding_mode: str
    dilation: tuple[int, ...]

class MaximumOp(SpecOp):
    x: SSAValue
    y: SSAValue

class MeanOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool

class MinOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool
    identity: bool

class MinimumOp(SpecOp):
    x: SSAValue
    y: SSAValue

class ModOp(SpecOp):
    x: SSAValue
    y: SSAValue

class MulOp(SpecOp):
    x: SSAValue
    y: SSAValue

class NeOp(SpecOp):
    x: SSAValue
    y: SSAValue

class NegOp(SpecOp):
    x: SSAValue

class NormOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool
    order: float

class NormalOp(SpecOp):
    key: SSAValue
    shape: tuple[Dim, ...]
    mean: float
    std: float
    dtype: DType

class OneHotOp(SpecOp):
    indices: SSAValue
    depth: tuple[Dim, ...]
    dtype: DType

class OptimizationBarrierOp(SpecOp):
    x: SSAValue
    after: Sequence[SSAValue]

class PadOp(SpecOp):
    x: SSAValue
    low: tuple[Dim, ...]
    high: tuple[Dim, ...]

class PadGatherOp(SpecOp):
    x: SSAValue
    low: tuple[Dim, ...]
    high: tuple[Dim, ...]

class PhiloxOp(SpecOp):
    counter: SSAValue
    key: SSAValue
    stream: SSAValue

class PopulationCountOp(SpecOp):
    x: SSAValue

class PowOp(SpecOp):
    x: SSAValue
    y: SSAValue

class PrefetchOp(SpecOp):
    x: SSAValue
    space: str
    overlap: str

class ProdOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool
    accumulate: DType | None

class QuantizeOp(SpecOp):
    x: SSAValue
    scale: SSAValue
    dtype: DType
    block: tuple[int, ...]
    rounding: str
    saturation: str
    denormals: str

class RaggedBlocksOp(SpecOp):
    x: SSAValue
    w: SSAValue
    matrix: SSAValue
    start: SSAValue
    end: SSAValue
    dtype: DType | None

class RaggedDotOp(SpecOp):
    x: SSAValue
    w: SSAValue
    offsets: SSAValue
    dtype: DType | None

class RaggedOuterOp(SpecOp):
    x: SSAValue
    y: SSAValue
    offsets: SSAValue
    dtype: DType | None

class RandomBitsOp(SpecOp):
    key: SSAValue
    shape: tuple[Dim, ...]
    dtype: DType

class ReciprocalOp(SpecOp):
    x: SSAValue

class ReduceScatterOp(SpecOp):
    x: SSAValue
    axis: str
    size: tuple[Dim, ...]
    dim: int
    op: str

class ReluOp(SpecOp):
    x: SSAValue

class RepeatOp(SpecOp):
    x: SSAValue
    repeats: int
    axis: int

class ReplicatedOp(SpecOp):
    x: SSAValue
    axis: str
    size: tuple[Dim, ...]

class ReshapeOp(SpecOp):
    x: SSAValue
    shape: tuple[Dim, ...]

class ResidualOp(SpecOp):
    x: SSAValue
    y: SSAValue
    key: Sequence[SSAValue]
    dropout: float

class ReturnOp(SpecOp): ...

class RmsnormSafeOp(SpecOp):
    x: SSAValue
    parameters: Sequence[SSAValue]
    axis: int
    eps: float

class RollOp(SpecOp):
    x: SSAValue
    shifts: tuple[int, ...]
    axes: tuple[int, ...]

class RotaryOp(SpecOp):
    x: SSAValue
    cos: SSAValue
    sin: SSAValue
    interleaved: bool

class RoundOp(SpecOp):
    x: SSAValue

class RoundBlocksOp(SpecOp):
    x: SSAValue
    format: str
    axis: int
    whole: bool

class RoundStochasticOp(SpecOp):
    x: SSAValue
    bits: SSAValue
    format: str
    saturation: str
    denormals: str

class RoundToOp(SpecOp):
    x: SSAValue
    format: str
    rounding: str
    saturation: str
    denormals: str

class RsqrtOp(SpecOp):
    x: SSAValue

class SavedValueOp(SpecOp):
    x: SSAValue
    after: Sequence[SSAValue]

class ScanOp(SpecOp):
    body: Region
    carried: int
    scanned: int
    length: tuple[Dim, ...]
    reverse: bool

class ScatterOp(SpecOp):
    x: SSAValue
    indices: SSAValue
    updates: SSAValue
    axis: int
    mode: str

class ScatterAddOp(SpecOp):
    x: SSAValue
    indices: SSAValue
    updates: SSAValue
    axis: int
    mode: str
    ordered: bool
    accumulate: DType | None

class ScatterRowsOp(SpecOp):
    x: SSAValue
    updates: SSAValue
    indices: Sequence[SSAValue]
    mode: str
    accumulate: DType | None
    checked: Any
    drops: bool
    in_place: bool

class ScoredAttentionOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    others: Sequence[SSAValue]
    scale: float | None
    score: Any
    mask: Any
    cached: bool
    ranges: bool

class ScoredAttentionBackwardOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    cotangent: SSAValue
    lse: SSAValue
    delta: SSAValue
    others: Sequence[SSAValue]
    scale: float | None
    score: Any
    mask: Any
    ranges: bool

class ScoredAttentionTangentOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    out: SSAValue
    lse: SSAValue
    others: Sequence[SSAValue]
    scale: float | None
    score: Any
    mask: Any
    by: tuple[int, ...]

class ScoredAttentionWithLseOp(SpecOp):
    q: SSAValue
    k: SSAValue
    v: SSAValue
    others: Sequence[SSAValue]
    scale: float | None
    score: Any
    mask: Any
    cached: bool
    ranges: bool

class ShardOp(SpecOp):
    x: SSAValue
    sharding: str

class ShiftLeftOp(SpecOp):
    x: SSAValue
    y: SSAValue

class ShiftRightOp(SpecOp):
    x: SSAValue
    y: SSAValue

class SigmoidOp(SpecOp):
    x: SSAValue

class SignOp(SpecOp):
    x: SSAValue

class SiluOp(SpecOp):
    x: SSAValue

class SinOp(SpecOp):
    x: SSAValue

class SinhOp(SpecOp):
    x: SSAValue

class SizeCondOp(SpecOp):
    then: Region
    otherwise: Region
    size: Dim

class SliceOp(SpecOp):
    x: SSAValue
    start: tuple[Dim, ...]
    stop: tuple[Dim, ...]
    step: tuple[int, ...]

class SliceLegalOp(SpecOp):
    x: SSAValue
    starts: Sequence[SSAValue]
    axes: tuple[int, ...]
    lengths: tuple[Dim, ...]

class SliceWriteOp(SpecOp):
    x: SSAValue
    update: SSAValue
    starts: Sequence[SSAValue]
    axes: tuple[int, ...]
    in_place: bool

class SoftmaxOp(SpecOp):
    x: SSAValue
    axis: int

class SoftmaxSafeOp(SpecOp):
    x: SSAValue
    axis: int

class SoftplusOp(SpecOp):
    x: SSAValue

class SortOp(SpecOp):
    x: SSAValue
    axis: int
    descending: bool

class SortRowsOp(SpecOp):
    x: SSAValue
    descending: bool
    keep: int

class SplitOp(SpecOp):
    x: SSAValue
    sizes: tuple[Dim, ...]
    axis: int

class SplitQkvOp(SpecOp):
    x: SSAValue
    heads: int
    kv_heads: int | None

class SqrtOp(SpecOp):
    x: SSAValue

class SqueezeOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]

class StackOp(SpecOp):
    xs: Sequence[SSAValue]
    axis: int

class StdOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool
    correction: int

class StopGradientOp(SpecOp):
    x: SSAValue

class SubOp(SpecOp):
    x: SSAValue
    y: SSAValue

class SumOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool
    accumulate: DType | None

class TakeOp(SpecOp):
    x: SSAValue
    indices: SSAValue
    axis: int
    mode: str
    may_be_empty: bool

class TakeAlongAxisOp(SpecOp):
    x: SSAValue
    indices: SSAValue
    axis: int
    mode: str
    may_be_empty: bool

class TakeAlongLegalOp(SpecOp):
    x: SSAValue
    indices: SSAValue
    axis: int
    checked: Any
    masked: bool

class TanOp(SpecOp):
    x: SSAValue

class TanhOp(SpecOp):
    x: SSAValue

class TileOp(SpecOp):
    x: SSAValue
    reps: tuple[int, ...]

class TopkOp(SpecOp):
    x: SSAValue
    axis: int
    k: int
    largest: bool

class TransposeOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]

class TrilOp(SpecOp):
    x: SSAValue
    offset: int

class TriuOp(SpecOp):
    x: SSAValue
    offset: int

class TruncOp(SpecOp):
    x: SSAValue

class UnfoldOp(SpecOp):
    x: SSAValue
    shape: tuple[Dim, ...]
    steps: tuple[int, ...]
    low: tuple[Dim, ...]

class UniformOp(SpecOp):
    key: SSAValue
    shape: tuple[Dim, ...]
    low: float
    high: float
    dtype: DType

class VarOp(SpecOp):
    x: SSAValue
    axes: tuple[int, ...]
    keepdims: bool
    correction: int

class WhereOp(SpecOp):
    condition: SSAValue
    x: SSAValue
    y: SSAValue

class WhileOp(SpecOp):
    condition: Region
    body: Region
    carried: int
    max_trips: tuple[Dim, ...]

class YieldOp(SpecOp): ...
