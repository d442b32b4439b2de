"""Tessera: a tile-first language and an optimizing compiler for deep learning, in one Python stack."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tessera import cuda, dist, effects, graph, op, ops, random, stdlib, tile, verify
    from tessera.api.callbacks import debug_print, io_callback
    from tessera.api.constraints import constrain, require
    from tessera.api.control import cond, fori_loop, scan, while_loop
    from tessera.api.eager import Tensor, arange, array, full, ones, zeros
    from tessera.api.effects import deterministic
    from tessera.api.jit import Jit, jit
    from tessera.api.kernel import Kernel, kernel
    from tessera.api.kv_cache import KVCache
    from tessera.api.placement import device, prefetch
    from tessera.api.precision import AdaptivePrecision, LossScaler, Quantized, quantize
    from tessera.api.shape_trace import ShapeTrace, shape_trace
    from tessera.compiler.options import Options
    from tessera.diagnostics.error import InternalError, TesseraError
    from tessera.frontend.kernel.language import KTile
    from tessera.frontend.pytree import register as register_tree
    from tessera.frontend.scopes import policy
    from tessera.types.device import cpu, gpu
    from tessera.types.dtype import (
        DType,
        bf16,
        bool_,
        f8e4m3,
        f8e5m2,
        f16,
        f32,
        f64,
        i4,
        i8,
        i16,
        i32,
        i64,
        nvfp4,
        u8,
        u16,
        u32,
        u64,
    )
    from tessera.types.policy import (
        NVFP4,
        Inference,
        Policy,
        Training,
        accum,
        compute,
        flush_denormals,
        keep_denormals,
        loss_scale,
        round_nearest_even,
        round_toward_zero,
        saturate,
        scaled,
        stochastic_round,
        tf32,
        tile_scaled,
        wrap,
    )
    from tessera.types.schedule import Schedule

__version__ = "0.1.0"

_DTYPES = "DType f64 f32 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 i4 u64 u32 u16 u8 bool_ nvfp4"
_HOME = {
    "tessera.types.dtype": _DTYPES,
    "tessera.frontend.scopes": "policy",
    "tessera.api.precision": "AdaptivePrecision LossScaler Quantized quantize",
    "tessera.types.policy": "Policy Training Inference NVFP4 accum compute loss_scale saturate wrap stochastic_round "
    "round_nearest_even round_toward_zero flush_denormals keep_denormals scaled tile_scaled tf32",
    "tessera.diagnostics.error": "TesseraError InternalError",
    "tessera.api.jit": "jit Jit",
    "tessera.api.eager": "Tensor array zeros ones full arange",
    "tessera.api.constraints": "constrain require",
    "tessera.api.control": "cond while_loop fori_loop scan",
    "tessera.api.shape_trace": "ShapeTrace shape_trace",
    "tessera.api.kv_cache": "KVCache",
    "tessera.api.callbacks": "debug_print io_callback",
    "tessera.api.effects": "deterministic",
    "tessera.api.placement": "device prefetch",
    "tessera.types.device": "cpu gpu",
    "tessera.compiler.options": "Options",
    "tessera.api.kernel": "kernel Kernel",
    "tessera.types.schedule": "Schedule",
    "tessera.frontend.kernel.language": "KTile",
}
_WHERE = {name: (module, name) for module, names in _HOME.items() for name in names.split()}
_WHERE["register_tree"] = ("tessera.frontend.pytree", "register")
_MODULES = ("cuda", "dist", "effects", "graph", "op", "ops", "random", "stdlib", "tile", "verify")

__all__ = [
    "NVFP4",
    "AdaptivePrecision",
    "DType",
    "Inference",
    "InternalError",
    "Jit",
    "KTile",
    "KVCache",
    "Kernel",
    "LossScaler",
    "Options",
    "Policy",
    "Quantized",
    "Schedule",
    "ShapeTrace",
    "Tensor",
    "TesseraError",
    "Training",
    "accum",
    "arange",
    "array",
    "bf16",
    "bool_",
    "compute",
    "cond",
    "constrain",
    "cpu",
    "cuda",
    "debug_print",
    "deterministic",
    "device",
    "dist",
    "effects",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "f64",
    "flush_denormals",
    "fori_loop",
    "full",
    "gpu",
    "graph",
    "i4",
    "i8",
    "i16",
    "i32",
    "i64",
    "io_callback",
    "jit",
    "keep_denormals",
    "kernel",
    "loss_scale",
    "nvfp4",
    "ones",
    "op",
    "ops",
    "policy",
    "prefetch",
    "quantize",
    "random",
    "register_tree",
    "require",
    "round_nearest_even",
    "round_toward_zero",
    "saturate",
    "scaled",
    "scan",
    "shape_trace",
    "stdlib",
    "stochastic_round",
    "tf32",
    "tile",
    "tile_scaled",
    "u8",
    "u16",
    "u32",
    "u64",
    "verify",
    "while_loop",
    "wrap",
    "zeros",
]


_OTHER_NAMES = {
    **dict.fromkeys(("tensor", "as_tensor", "asarray", "from_numpy"), "array(values)"),
    **{f"float{bits}": f"f{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)},
    "bfloat16": "bf16",
    "bool": "bool_",
    "compile": "jit",
    "function": "jit",
    "manual_seed": "random.key(seed)",
}
"""What other libraries call what is here by another name."""


_NOT_YET = {
    **dict.fromkeys(("autograd", "grad", "jvp", "value_and_grad", "vjp"), "derivatives are not taken yet"),
    **dict.fromkeys(("pmap", "vmap"), "there is no such transform yet; ops take leading dims as they come"),
}
"""What other libraries have and Tessera does not yet."""


def _unknown(name: str) -> str:
    """The sentence about a name that is not here, with what to write instead where that is known."""
    if name in _NOT_YET:
        return f"module `tessera` has no attribute `{name}`: {_NOT_YET[name]}"
    other = _OTHER_NAMES.get(name)
    if other is None and not name.startswith("_"):
        is_function = name in importlib.import_module("tessera.ops").__all__
        other = f"ops.{name}" if is_function else None
    return f"module `tessera` has no attribute `{name}`{f': write `tessera.{other}`' if other else ''}"


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import tessera` itself costs next to nothing."""
    if name in _WHERE:
        module, attribute = _WHERE[name]
        value = getattr(importlib.import_module(module), attribute)
    elif name in _MODULES:
        value = importlib.import_module(f"tessera.{name}")
    else:
        # Where it is known what to say, Python is not to look here for a name that is nearly the same.
        raise AttributeError(_unknown(name), name=name, obj=None if name in _NOT_YET else sys.modules[__name__])
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
