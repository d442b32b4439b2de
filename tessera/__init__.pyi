# Made by scripts/facade_stub.py from the names in `tessera/__init__.py`.

from tessera import autotune, cuda, data, dist, effects, graph, linalg, nn, op, ops, optim, profile, random, stdlib, tile, train, verify, xp
from tessera.api.algebra import associative_scan, map, reduce
from tessera.api.autodiff import autodiff, grad, value_and_grad, vjp, jvp, linearize, jacfwd, jacrev, hessian, hvp, stop_gradient
from tessera.api.callbacks import debug_print, io_callback
from tessera.api.checkpoint import checkpoint, remat, checkpoint_name, checkpoint_policies
from tessera.api.collectives import mesh
from tessera.api.constraints import constrain, require
from tessera.api.control import cond, switch, while_loop, fori_loop, scan
from tessera.api.custom import custom_jvp, custom_vjp
from tessera.api.eager import Tensor, array, asarray, zeros, ones, full, arange
from tessera.api.effects import deterministic
from tessera.api.function import function, Function
from tessera.api.jit import jit, Jit
from tessera.api.kernel import kernel, Kernel
from tessera.api.kv_cache import KVCache
from tessera.api.loss_scale import LossScale, all_finite
from tessera.api.placement import device, prefetch
from tessera.api.precision import AdaptivePrecision, LossScaler, Quantized, quantize
from tessera.api.shape_trace import ShapeTrace, shape_trace
from tessera.api.vmap import vmap
from tessera.compiler.options import Options
from tessera.diagnostics.error import TesseraError, InternalError, RecompileWarning
from tessera.frontend.complex.tensor import ComplexTensor
from tessera.frontend.kernel.language import KTile
from tessera.frontend.pytree import register as register_tree
from tessera.frontend.scopes import policy
from tessera.types.complex_dtype import ComplexDType, c64, c128
from tessera.types.device import cpu, gpu
from tessera.types.dtype import DType, f64, f32, bf16, f16, f8e4m3, f8e5m2, i64, i32, i16, i8, i4, u64, u32, u16, u8, bool_, nvfp4
from tessera.types.policy import Policy, Training, Inference, NVFP4, accum, compute, loss_scale, saturate, wrap, stochastic_round, round_nearest_even, round_toward_zero, flush_denormals, keep_denormals, scaled, tile_scaled, tf32
from tessera.types.schedule import Schedule

__version__: str
__all__ = [
    "AdaptivePrecision",
    "ComplexDType",
    "ComplexTensor",
    "DType",
    "Function",
    "Inference",
    "InternalError",
    "Jit",
    "KTile",
    "KVCache",
    "Kernel",
    "LossScale",
    "LossScaler",
    "NVFP4",
    "Options",
    "Policy",
    "Quantized",
    "RecompileWarning",
    "Schedule",
    "ShapeTrace",
    "Tensor",
    "TesseraError",
    "Training",
    "accum",
    "all_finite",
    "arange",
    "array",
    "asarray",
    "associative_scan",
    "autodiff",
    "autotune",
    "bf16",
    "bool_",
    "c128",
    "c64",
    "checkpoint",
    "checkpoint_name",
    "checkpoint_policies",
    "compute",
    "cond",
    "constrain",
    "cpu",
    "cuda",
    "custom_jvp",
    "custom_vjp",
    "data",
    "debug_print",
    "deterministic",
    "device",
    "dist",
    "effects",
    "f16",
    "f32",
    "f64",
    "f8e4m3",
    "f8e5m2",
    "flush_denormals",
    "fori_loop",
    "full",
    "function",
    "gpu",
    "grad",
    "graph",
    "hessian",
    "hvp",
    "i16",
    "i32",
    "i4",
    "i64",
    "i8",
    "io_callback",
    "jacfwd",
    "jacrev",
    "jit",
    "jvp",
    "keep_denormals",
    "kernel",
    "linalg",
    "linearize",
    "loss_scale",
    "map",
    "mesh",
    "nn",
    "nvfp4",
    "ones",
    "op",
    "ops",
    "optim",
    "policy",
    "prefetch",
    "profile",
    "quantize",
    "random",
    "reduce",
    "register_tree",
    "remat",
    "require",
    "round_nearest_even",
    "round_toward_zero",
    "saturate",
    "scaled",
    "scan",
    "shape_trace",
    "stdlib",
    "stochastic_round",
    "stop_gradient",
    "switch",
    "tf32",
    "tile",
    "tile_scaled",
    "train",
    "u16",
    "u32",
    "u64",
    "u8",
    "value_and_grad",
    "verify",
    "vjp",
    "vmap",
    "while_loop",
    "wrap",
    "xp",
    "zeros",
]
