"""Names that other libraries have and Tessera has elsewhere, under another name, or not: what to write instead."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn

from tessera.api.names_of_torch import TORCH, TORCH_FRONT, TORCH_NN, write_instead
from tessera.diagnostics.error import find_nearest
from tessera.diagnostics.frames import guard

_KEYS = "where `key = tessera.random.key(0)`: numbers are drawn with a key, and equal keys draw equal numbers"
_NORMAL = f"write `tessera.random.normal(key, (2, 3))`, {_KEYS}"
_UNIFORM = f"write `tessera.random.uniform(key, (2, 3))`, {_KEYS}"
_INTEGERS = f"write `tessera.random.randint(key, (2, 3), 0, 10)` for 0..9, {_KEYS}"
_SINGULAR = "which does not raise: see that `tessera.ops.isfinite(x)`"
_KEY = "write `tessera.random.key(0)`"
_DYNAMIC = "write `tessera.ops.masked_select(x, mask)`, with `size=` where the values of the mask are not known"


_ABSENT = (
    "amp interp isnat ma new nditer os quantized_gru tofile ulong ushort"
    " is_quantized flatiter intc batch_norm_elemt batch_norm_stats"
    " cudnn_batch_norm mkldnn_adaptive_avg_pool2d compiler complex32 complex256"
)
"""What other libraries have and Tessera has not, where the nearest name here is something else."""

RANDOM: Mapping[str, str] = {
    **dict.fromkeys(("randn", "standard_normal", "randn_like"), _NORMAL),
    **dict.fromkeys(("rand", "random", "random_sample", "rand_like"), _UNIFORM),
    **dict.fromkeys(("integers", "randint_like"), _INTEGERS),
    **dict.fromkeys(("seed", "manual_seed", "PRNGKey", "default_rng", "Generator"), _KEY),
    **write_instead("fold_in", "random.fold(key, number)"),
    "multinomial": (
        "write `tessera.random.categorical(key, tessera.ops.log(p), shape=(n,))` for n classes with the probabilities"
        " `p`: drawn with replacement, and not counted"
    ),
    **write_instead("randperm shuffle", "random.permutation(key, n)"),
    **write_instead("log_normal lognormal_", "random.lognormal(key, shape)"),
    **write_instead("chisquare", "random.chi_square(key, shape, df)"),
    **write_instead("t standard_t", "random.student_t(key, shape, df)"),
    **write_instead("standard_gamma", "random.gamma(key, shape, a)"),
    **write_instead("standard_cauchy", "random.cauchy(key, shape)"),
    **write_instead("standard_exponential", "random.exponential(key, shape)"),
    "negative_binomial": (
        "write `tessera.random.poisson(key, shape, tessera.random.gamma(other_key, shape, n, scale=(1 - p) / p))`"
    ),
}

OPS: Mapping[str, str] = {
    **write_instead("bmm mm dot mv", "ops.matmul(a, b)"),
    **write_instead("ger", "ops.outer(a, b)"),
    **write_instead("linear dense Linear", "ops.matmul(x, weight.T) + bias"),
    **write_instead("addmm", "ops.matmul(a, b) + bias"),
    **write_instead("cat append", "ops.concat([a, b], axis)"),
    **write_instead("clip", "ops.clamp(x, low, high)"),
    **write_instead("hardtanh", "ops.hard_tanh(x)"),
    **write_instead("hardswish hard_silu", "ops.hard_swish(x)"),
    **write_instead("hardsigmoid", "ops.hard_sigmoid(x)"),
    **write_instead("logsigmoid", "ops.log_sigmoid(x)"),
    **write_instead("divide true_divide", "ops.div(a, b)"),
    **write_instead("floor_divide", "ops.floordiv(a, b)"),
    **write_instead(
        "scaled_dot_product_attention dot_product_attention multi_head_attention", "ops.attention(q, k, v)"
    ),
    **write_instead("absolute fabs", "ops.abs(x)"),
    **write_instead("multiply", "ops.mul(a, b)"),
    **write_instead("negative", "ops.neg(x)"),
    **write_instead("power", "ops.pow(a, b)"),
    **write_instead("subtract", "ops.sub(a, b)"),
    **write_instead("not_equal", "ops.ne(a, b)"),
    **write_instead("less", "ops.lt(a, b)"),
    **write_instead("less_equal", "ops.le(a, b)"),
    **write_instead("greater", "ops.gt(a, b)"),
    **write_instead("greater_equal", "ops.ge(a, b)"),
    **write_instead("amax", "ops.max(x, axis)"),
    **write_instead("amin", "ops.min(x, axis)"),
    **write_instead("arctan2", "ops.atan2(y, x)"),
    **write_instead("rint around", "ops.round(x)"),
    **write_instead("cumulative_sum", "ops.cumsum(x, axis)"),
    **write_instead("cumulative_prod", "ops.cumprod(x, axis)"),
    **write_instead("index_select", "ops.take(x, indices, axis)"),
    **write_instead("take_along_dim", "ops.take_along_axis(x, indices, axis)"),
    **write_instead("layer_norm LayerNorm", "ops.layernorm(x, weight, bias)"),
    **write_instead("rms_norm RMSNorm", "ops.rmsnorm(x, weight)"),
    **write_instead("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", "ops.adaptive_avg_pool(x, size)"),
    **write_instead("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d", "ops.adaptive_max_pool(x, size)"),
    **write_instead("upsample resize", "ops.interpolate(x, size, 'linear')"),
    **write_instead("im2col", "ops.unfold(x, window)"),
    **write_instead("col2im", "ops.sum_windows(x, size, window)"),
    "fold": "write `tessera.ops.sum_windows(x, size, window)` for windows, and `tessera.random.fold(key, 7)` for keys",
    **write_instead("remainder", "ops.mod(a, b)"),
    **write_instead("swish", "ops.silu(x)"),
    **write_instead("logistic expit", "ops.sigmoid(x)"),
    **write_instead("softmax_cross_entropy_with_integer_labels", "ops.cross_entropy(logits, labels)"),
    **write_instead("view ravel", "ops.reshape(x, (-1,))"),
    **write_instead("permute_dims", "ops.transpose(x, axes)"),
    **write_instead("matrix_transpose", "ops.swapaxes(x, -1, -2)"),
    **write_instead("identity", "ops.eye(n)"),
    **write_instead("convolve conv", "ops.conv1d(x, weight)"),
    **write_instead("max_pool1d max_pool2d max_pool3d", "ops.max_pool(x, 2)"),
    **write_instead("avg_pool1d avg_pool2d avg_pool3d", "ops.avg_pool(x, 2)"),
    **write_instead("dropout", "random.dropout(x, key, 0.1)"),
    **write_instead("empty", "ops.zeros(shape)"),
    **write_instead("empty_like", "ops.zeros_like(x)"),
    **write_instead("invert", "ops.bitwise_not(x)"),
    **write_instead("left_shift", "ops.shift_left(a, b)"),
    **write_instead("right_shift", "ops.shift_right(a, b)"),
    **write_instead("arcsin", "ops.asin(x)"),
    **write_instead("arccos", "ops.acos(x)"),
    **write_instead("arctan", "ops.atan(x)"),
    **write_instead("arcsinh", "ops.asinh(x)"),
    **write_instead("arccosh", "ops.acosh(x)"),
    **write_instead("arctanh", "ops.atanh(x)"),
    **write_instead("gammaln", "ops.lgamma(x)"),
    **write_instead("psi", "ops.digamma(x)"),
    **write_instead("popcount", "ops.population_count(x)"),
    **write_instead("degrees", "ops.rad2deg(x)"),
    **write_instead("radians", "ops.deg2rad(x)"),
    **write_instead("special_erfinv", "ops.erfinv(x)"),
    **write_instead("average", "ops.mean(x, axis)"),
    **write_instead("conjugate", "ops.conj(z)"),
    **write_instead("view_as_complex", "ops.complex(x[..., 0], x[..., 1])"),
    **write_instead("view_as_real", "ops.stack([z.real, z.imag], -1)"),
    **write_instead("iscomplex", "ops.ne(tessera.ops.imag(z), 0.0)"),
    "binary_cross_entropy": (
        "write `tessera.nn.binary_cross_entropy(logits, y)`, and `tessera.ops.logit(p)` for the logits of probabilities"
    ),
    **write_instead("logspace geomspace", "ops.pow(10.0, tessera.ops.linspace(0.0, 1.0, 5))"),
    **write_instead("range", "ops.arange(n)"),
    **write_instead("flipud", "ops.flip(x, 0)"),
    **write_instead("fliplr", "ops.flip(x, 1)"),
    **write_instead("tri", "ops.tril(tessera.ops.ones((n, n)))"),
    **write_instead("tensor_split", "ops.array_split(x, parts, axis)"),
    **write_instead("hsplit", "ops.array_split(x, parts, 1)"),
    **write_instead("vsplit", "ops.array_split(x, parts, 0)"),
    **write_instead("dsplit", "ops.array_split(x, parts, 2)"),
    **write_instead("split_with_sizes unsafe_split unsafe_split_with_sizes", "ops.split(x, [3, 4])"),
    **write_instead("unsafe_chunk", "ops.chunk(x, chunks)"),
    **write_instead("row_stack", "ops.vstack(tensors)"),
    **write_instead("bucketize", "ops.searchsorted(boundaries, x)"),
    **write_instead("digitize", "ops.searchsorted(boundaries, x, side='right')"),
    **write_instead("iinfo", "xp.iinfo(dtype)"),
    **write_instead("finfo", "xp.finfo(dtype)"),
    **write_instead("isdtype", "xp.isdtype(dtype, 'integral')"),
    **write_instead("histc", "ops.histogram(x, bins)[0]"),
    **write_instead("trapz", "ops.trapezoid(y, x)"),
    **write_instead("flatnonzero", "ops.nonzero(x.reshape(-1))[0]"),
    **write_instead("mgrid", "ops.meshgrid(a, b)"),
    **write_instead("unique_values", "ops.unique(x)"),
    **write_instead("aminmax", "ops.min(x), tessera.ops.max(x)"),
    **write_instead("softsign", "ops.div(x, 1 + tessera.ops.abs(x))"),
    **write_instead("segment_reduce", "ops.segment_sum(data, segment_ids, num_segments)"),
    **dict.fromkeys(
        _ABSENT.split(), "it is not here: write it with others of `tessera.ops`, or use NumPy outside of `jit`"
    ),
    **dict.fromkeys(("extract", "compress"), _DYNAMIC),
    **TORCH,
}

LINALG: Mapping[str, str] = {
    **write_instead("cho_solve", "linalg.cholesky_solve(factor, b)"),
    **write_instead("lu_factor lu_full_pivot", "linalg.lu(a)"),
    **write_instead("lu_solve", "linalg.solve(a, b)"),
    **write_instead("inverse", "linalg.inv(a)"),
    **write_instead("logdet", "linalg.slogdet(a).logabsdet"),
    **write_instead("matrix_exp", "linalg.expm(a)"),
    **write_instead("chain_matmul", "linalg.multi_dot(matrices)"),
    **write_instead("nuclear_norm", "linalg.matrix_norm(x, 'nuc')"),
    "inv_ex": f"write `tessera.linalg.inv(a)`, {_SINGULAR}",
    "solve_ex": f"write `tessera.linalg.solve(a, b)`, {_SINGULAR}",
    "cholesky_ex": f"write `tessera.linalg.cholesky(a)`, {_SINGULAR}",
    **write_instead("triangular_solve", "linalg.solve_triangular(a, b)"),
    **dict.fromkeys(
        ("eig", "eigvals"),
        "there are no eigenvalues of general matrices: `tessera.linalg.eigh` takes symmetric and Hermitian ones",
    ),
    **write_instead("cross", "ops.cross(a, b)"),
    **write_instead("matmul", "ops.matmul(a, b)"),
    **write_instead("outer", "ops.outer(a, b)"),
    **write_instead("vecdot", "ops.vecdot(a, b)"),
    **write_instead("tensordot", "ops.tensordot(a, b)"),
    **write_instead("diagonal", "ops.diagonal(x, -2, -1)"),
    **write_instead("trace", "ops.trace(x, -2, -1)"),
    **write_instead("block_diag", "ops.block_diag(a, b)"),
}

FRONT: Mapping[str, str] = {
    **TORCH_FRONT,
    **write_instead("tensor as_tensor", "array(values)"),
    **write_instead("from_numpy from_dlpack", "asarray(values)"),
    **{f"float{bits}": f"write `tessera.f{bits}`" for bits in (16, 32, 64)},
    **{f"int{bits}": f"write `tessera.i{bits}`" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"write `tessera.u{bits}`" for bits in (8, 16, 32, 64)},
    **write_instead("bfloat16", "bf16"),
    **write_instead("float8_e4m3fn", "f8e4m3"),
    **write_instead("float8_e5m2", "f8e5m2"),
    **write_instead("half", "f16"),
    **write_instead("float single", "f32"),
    **write_instead("double", "f64"),
    **write_instead("complex64 cfloat csingle", "c64"),
    **write_instead("complex128 cdouble", "c128"),
    **write_instead("long", "i64"),
    "int": "write `tessera.i32`, which is PyTorch's, or `tessera.i64`, which is Python's",
    "fft": "transforms along an axis are `tessera.ops.fft(x)` and its like, others are in `tessera.xp.fft`",
    **write_instead("short", "i16"),
    **write_instead("char", "i8"),
    **write_instead("byte", "u8"),
    **write_instead("bool", "bool_"),
    **write_instead("ndarray Array", "Tensor"),
    **write_instead("compile script", "jit"),
    **write_instead("Mesh make_mesh", "dist.mesh(data=2)"),
    **write_instead("psum all_reduce", "dist.all_reduce(x, axis)"),
    **write_instead("foriloop for_loop", "fori_loop(0, n, body, state)"),
    **write_instead("print", "debug_print('x = {}', x)"),
    **write_instead("pure_callback", "io_callback(function, ...)"),
    **write_instead("language tl", "tile"),
    **write_instead("numpy jnp np lax functional F", "ops"),
    **write_instead("autograd backward gradients GradientTape requires_grad", "grad(loss)(params)"),
    **write_instead("jacobian batch_jacobian", "jacrev(f)(x)"),
    **write_instead("vhp hessian_vector_product", "hvp(f, (x,), (v,))"),
    **write_instead("vectorize vectorized_map", "vmap(f)"),
    **write_instead("custom_gradient custom_derivative", "custom_vjp(f)"),
    **write_instead("func functorch", "grad(f), tessera.vmap(f) and tessera.jvp(f, primals, tangents)"),
    **write_instead("value_and_gradient value_and_gradients", "value_and_grad(f)"),
    "closure_convert": "pass what a rule captures as an argument, or use what it captures as a constant",
    **dict.fromkeys(
        ("tree_map", "tree_util", "tree", "tree_flatten", "tree_leaves", "tree_multimap"),
        "write the container, as in `{name: f(x) for name, x in params.items()}`: functions take and return trees",
    ),
    **dict.fromkeys(
        ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled"),
        "derivatives are taken by `tessera.grad` alone, so there is nothing to switch off: remove it",
    ),
    **write_instead("detach", "stop_gradient(x)"),
    **write_instead("pmap", 'dist.pmap(f, "devices")'),
    **write_instead("Module flax", "nn.Module"),
    **{name: f"write `tessera.nn.{name}`" for name in ("Sequential", "Linear", "Embedding", "LayerNorm", "Dropout")},
    "Parameter": "a tensor in a field of a `tessera.nn.Module` is a parameter: assign the tensor",
    "is_tensor": "write `isinstance(x, tessera.Tensor)`",
    "is_complex": "write `isinstance(x, tessera.ComplexTensor)`",
    "newaxis": "write `None`, as in `x[:, None]`",
    **dict.fromkeys(("inf", "pi", "nan", "e"), "take it from Python's `math`"),
    **dict.fromkeys(("save", "load"), "write `numpy.save(file, x)` and `tessera.array(numpy.load(file))`"),
    **dict.fromkeys(("device_put", "to"), "write `tessera.cuda.array(x)` for a GPU, and `x.cpu()` for host memory"),
}

_TABLES: Mapping[str, Mapping[str, str]] = {
    "tessera": FRONT,
    "tessera.ops": OPS,
    "tessera.random": RANDOM,
    "tessera.linalg": LINALG,
    "tessera.nn": TORCH_NN,
}


def advice_for(module: str, name: str) -> str:
    """What to write instead of a name that a module does not have; empty where nobody knows."""
    if name.startswith("_"):
        return ""
    for table in (_TABLES.get(module, {}), *_TABLES.values()):
        if name in table:
            return table[name]
    known = ("tessera", "tessera.ops", "tessera.random", "tessera.nn", "tessera.linalg", "tessera.xp.fft")
    homes = {home: importlib.import_module(home).__all__ for home in known}
    for home, names in homes.items():
        if name in names and home != module:
            return f"write `{home}.{name}`"
    own = homes[module] if module in homes else importlib.import_module(module).__all__
    # Classes of other libraries are functions here, as `SGD` is `sgd`.
    close = [one for one in own if one.lower() == name.lower()] or find_nearest(name, own, cutoff=0.75)
    return f"did you mean `{module}.{close[0]}`?" if close else ""


def answer_names(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module, for names that it does not have."""
    return partial(guard(_refuse), module)


def _refuse(module: str, name: str) -> NoReturn:
    """Raise AttributeError for a name that a module does not have, with what to write instead where that is known."""
    advice = advice_for(module, name)
    raise AttributeError(f"module `{module}` has no attribute `{name}`{f': {advice}' if advice else ''}", name=name)
