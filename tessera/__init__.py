"""Tessera: a tile-first language and an optimizing compiler for deep learning, in one Python stack.

Public names load when they are first used; `__init__.pyi` shows them to type checkers (`scripts/facade_stub.py`).
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "tessera.types.dtype": "DType f64 f32 bf16 f16 f8e4m3 f8e5m2 i64 i32 i16 i8 i4 u64 u32 u16 u8 bool_ nvfp4",
    "tessera.types.complex_dtype": "ComplexDType c64 c128",
    "tessera.frontend.complex.tensor": "ComplexTensor",
    "tessera.frontend.scopes": "policy",
    "tessera.api.loss_scale": "LossScale all_finite",
    "tessera.api.precision": "AdaptivePrecision LossScaler Quantized quantize",
    "tessera.types.policy": "Policy Training Inference NVFP4 accum compute loss_scale saturate wrap stochastic_round "
    "round_nearest_even round_toward_zero flush_denormals keep_denormals scaled tile_scaled tf32",
    "tessera.diagnostics.error": "TesseraError InternalError RecompileWarning",
    "tessera.api.jit": "jit Jit",
    "tessera.api.function": "function Function",
    "tessera.api.autodiff": "autodiff grad value_and_grad vjp jvp linearize jacfwd jacrev hessian hvp stop_gradient",
    "tessera.api.custom": "custom_jvp custom_vjp",
    "tessera.api.vmap": "vmap",
    "tessera.api.checkpoint": "checkpoint remat checkpoint_name checkpoint_policies",
    "tessera.api.eager": "Tensor array asarray zeros ones full arange",
    "tessera.api.constraints": "constrain require",
    "tessera.api.control": "cond switch while_loop fori_loop scan",
    "tessera.api.algebra": "associative_scan map reduce",
    "tessera.api.shape_trace": "ShapeTrace shape_trace",
    "tessera.api.kv_cache": "KVCache",
    "tessera.api.callbacks": "debug_print io_callback",
    "tessera.api.effects": "deterministic",
    "tessera.api.placement": "device prefetch",
    "tessera.api.collectives": "mesh",
    "tessera.types.device": "cpu gpu",
    "tessera.compiler.options": "Options",
    "tessera.api.kernel": "kernel Kernel",
    "tessera.types.schedule": "Schedule",
    "tessera.frontend.kernel.language": "KTile",
}
_WHERE = {name: (module, name) for module, names in _HOME.items() for name in names.split()}
_WHERE["register_tree"] = ("tessera.frontend.pytree", "register")
_MODULES = (
    "autotune",
    "cuda",
    "data",
    "dist",
    "effects",
    "graph",
    "linalg",
    "nn",
    "op",
    "ops",
    "optim",
    "profile",
    "random",
    "stdlib",
    "tile",
    "train",
    "verify",
    "xp",
)

__all__ = sorted((*_WHERE, *_MODULES))  # pyright: ignore[reportUnsupportedDunderAll] - the stub lists them


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import tessera` itself costs next to nothing."""
    if name in _WHERE:
        module, attribute = _WHERE[name]
        home = importlib.import_module(module)
        # Errors that leave a public function show no frames of ours.
        importlib.import_module("tessera.diagnostics.frames").guard_public(vars(home), (attribute,))
        value = getattr(home, attribute)
    elif name in _MODULES:
        value = importlib.import_module(f"tessera.{name}")
    elif name.startswith("_"):
        raise AttributeError(f"module `tessera` has no attribute `{name}`", name=name)
    else:
        try:
            return importlib.import_module("tessera.api.other_names").answer_names(__name__)(name)
        except AttributeError as error:
            importlib.import_module("tessera.diagnostics.frames").hide_frames(error)
            raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
