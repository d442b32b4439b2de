"""Which forms each op of Graph IR is tried in."""

from __future__ import annotations

import os
import zlib
from typing import Any

from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.ops import REGISTRY
from tessera.ir.graph.samples import sample_dtype
from tessera.ir.tile.facets import Pointwise, Reduction
from tessera.types.dtype import BY_NAME, DType
from tessera.types.shape import TensorType
from tests.graph.eager import RuleDTypeError, RuleError, infer
from tests.numerics import forms_composite as composite
from tests.numerics import forms_elementwise as elementwise
from tests.numerics import forms_movement as movement
from tests.numerics import forms_quantize as quantize
from tests.numerics.forms import Form, from_samples
from tests.numerics.forms_elementwise import Forms

CONTROL = frozenset(
    {
        "cond",
        "while",
        "fori",
        "scan",
        "size_cond",
        "checkpoint",
        "custom_function",
        "custom_linear",
        "debug_print",
        "io_callback",
        "fresh_key",
        "axis_index",
        "fused",
        "kernel_call",
    }
)
"""Ops that take programs (`test_control.py` has some), meet the world outside (`tests/effects`), take nothing, or are
parts of kernels that users write (`tests/kernel`)."""

FAMILIES: dict[str, Forms] = {
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "replicated"), movement.collective),
    "gelu": elementwise.gelu,
    "where": elementwise.where,
    "clamp": elementwise.clamp,
    "cast": elementwise.cast,
    "bitcast": elementwise.bitcast,
    "cast_like": elementwise.cast_like,
    **{name: getattr(quantize, name) for name in ("round_to", "round_stochastic", "round_blocks")},
    **{name: getattr(quantize, name) for name in ("quantize", "dequantize")},
    "mean": elementwise.reduction,
    "var": elementwise.spread,
    "std": elementwise.spread,
    "logsumexp": elementwise.reduction,
    "norm": elementwise.norm,
    **dict.fromkeys(("cumulative", "cumsum", "cumprod", "cummax"), elementwise.cumulative),
    "reshape": movement.reshape,
    "transpose": movement.transpose,
    "prefetch": movement.prefetch,
    "broadcast_to": movement.broadcast_to,
    "expand_dims": movement.expand_dims,
    "squeeze": movement.squeeze,
    "slice": movement.cut,
    "flip": movement.flip,
    "roll": movement.roll,
    "tile": movement.tile,
    "repeat": movement.repeat,
    "split": movement.split,
    "diagonal": movement.diagonal,
    "concat": movement.concat,
    "stack": movement.stack,
    "pad": movement.pad,
    "pad_gather": movement.pad,
    "iota": movement.iota,
    "full": movement.full,
    "eye": movement.eye,
    "linspace": movement.linspace,
    "constant": movement.constant,
    "dim_size": movement.dim_size,
    **dict.fromkeys(("tril", "triu"), movement.triangle),
    "take": movement.take,
    "embedding": movement.embedding,
    "gather": movement.gather,
    **dict.fromkeys(("index_get", "index_legal"), movement.index_get),
    "slice_legal": movement.slice_legal,
    "slice_write": movement.slice_write,
    **dict.fromkeys(("take_along_axis", "take_along_legal"), movement.take_along),
    "one_hot": movement.one_hot,
    **dict.fromkeys(("scatter", "scatter_add"), movement.scatter),
    "scatter_rows": movement.scatter_rows,
    "index_put": movement.index_put,
    **dict.fromkeys(("sort", "argsort"), movement.sort),
    "sort_rows": movement.sort_rows,
    "topk": movement.topk,
    "matmul": composite.matmul,
    "dot_general": composite.dot_general,
    "einsum": composite.einsum,
    "ragged_dot": composite.ragged_dot,
    "ragged_outer": composite.ragged_outer,
    "ragged_blocks": composite.ragged_blocks,
    "conv1d": composite.conv1d,
    "conv2d": composite.conv2d,
    "conv3d": composite.conv3d,
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), composite.conv_transpose),
    "conv_windows": composite.conv_windows,
    "conv_weights": composite.conv_weights,
    "dot_windows": composite.dot_windows,
    **dict.fromkeys(("max_pool", "avg_pool"), composite.pool),
    **dict.fromkeys(("softmax", "softmax_safe", "log_softmax"), composite.along),
    "logsumexp_safe": composite.logsumexp_safe,
    **dict.fromkeys(("layernorm_safe", "rmsnorm_safe"), composite.normalisation),
    "cross_entropy": composite.cross_entropy,
    **dict.fromkeys(("attention", "attention_with_lse"), composite.attention),
    "attention_parts": composite.attention_parts,
    "attention_join": composite.attention_join,
    "attention_backward": composite.attention_backward,
    "attention_backward_keys": composite.attention_backward_keys,
    "attention_tangent": composite.attention_tangent,
    "join_segments": composite.join_segments,
    "fma_chain": composite.fma_chain,
    "cached_attention": composite.cached_attention,
    "split_qkv": composite.split_qkv,
    "rotary": composite.rotary,
    "residual": composite.residual,
    "dropout": composite.dropout,
    "philox": composite.philox,
    **dict.fromkeys(("random_bits", "uniform", "normal", "bernoulli"), composite.drawn),
    "fold_key": composite.fold_key,
    "kv_append": composite.kv_append,
    "kv_write": composite.kv_write,
    "kv_prune": composite.kv_prune,
    **dict.fromkeys(("kv_offload", "kv_prefetch"), composite.kv_move),
}


BY_BYTES = frozenset(
    {"expand_dims", "squeeze", "slice", "flip", "roll", "tile", "repeat", "split", "diagonal", "concat", "stack"}
    | {"pad", "pad_gather"}
    | {
        "prefetch",
        "reshape",
        "tril",
        "triu",
        "eye",
        "iota",
        "gather",
        "embedding",
        "take_along_axis",
        "take_along_legal",
    }
)
"""Ops that only move elements: what depends on the dtype shows in one form, the other forms need one dtype."""


def forms_of(spec: OpSpec, dtype: DType) -> list[Form]:
    """The forms an op is tried in with one of its dtypes."""
    forms = _forms_of(spec, dtype)
    if spec.short_name in BY_BYTES and dtype.name != sample_dtype(spec):
        return forms[:1]
    return forms


def _forms_of(spec: OpSpec, dtype: DType) -> list[Form]:
    chosen = FAMILIES.get(spec.short_name)
    if chosen is not None:
        return chosen(spec, dtype)
    if is_sampled(spec):
        return from_samples(spec, dtype)
    if isinstance(spec.lower, Reduction):
        return elementwise.reduction(spec, dtype)
    return (elementwise.unary if len(spec.operands) == 1 else elementwise.binary)(spec, dtype)


def _keeps_shape(spec: OpSpec, dtype: DType) -> bool:
    """Whether an op without a family takes one or two operands of any shape, and gives that shape."""
    if spec.is_variadic or len(spec.operands) > 2 or any(attribute.is_required for attribute in spec.attributes):
        return False
    type = TensorType.of((3, 5), dtype)
    try:
        return [found.shape for found in infer(spec.short_name, *[type] * len(spec.operands))] == [type.shape]
    except (RuleError, RuleDTypeError):
        return False


def is_sampled(spec: OpSpec) -> bool:
    """Whether an op is tried in forms made of its samples: one of a new kind, which has no family here."""
    if spec.short_name in FAMILIES or isinstance(spec.lower, Reduction | Pointwise):
        return False
    return not _keeps_shape(spec, BY_NAME[sample_dtype(spec)])


def tried() -> list[tuple[OpSpec, DType]]:
    """Every op with each of its dtypes."""
    return [(spec, BY_NAME[name]) for spec in REGISTRY if spec.short_name not in CONTROL for name in spec.dtypes]


def chosen() -> list[tuple[OpSpec, DType]]:
    """Every op with the dtypes that differ for it: of those that are alike, one, which ops take in turns.

    Integers of one width differ by their sign alone, and the two floats of 8 bits by where bits of them end; an op that
    moves elements knows their width alone; a reduction knows all. `HYPOTHESIS_PROFILE=nightly` tries all.
    """
    if os.environ.get("HYPOTHESIS_PROFILE") == "nightly":
        return tried()
    found: list[tuple[OpSpec, DType]] = []
    for spec in (one for one in REGISTRY if one.short_name not in CONTROL):
        number = zlib.crc32(spec.name.encode()) >> 8
        alike: dict[Any, list[DType]] = {}
        for dtype in (BY_NAME[name] for name in spec.dtypes):
            alike.setdefault(_kind_of(spec, dtype), []).append(dtype)
        first = BY_NAME[sample_dtype(spec)]
        found += [(spec, first if first in some else some[number % len(some)]) for some in alike.values()]
    return found


def _kind_of(spec: OpSpec, dtype: DType) -> Any:
    """What an op sees of a dtype."""
    if isinstance(spec.lower, Reduction):
        return dtype.name
    if spec.short_name in BY_BYTES:
        return dtype.bits
    if dtype.is_float:
        return "f8" if dtype.bits == 8 else dtype.name
    return dtype.bits, dtype.is_bool
