"""Names that other libraries have and Tessera has elsewhere, under another name, or not: what to write instead."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import NoReturn

from tessera.diagnostics.error import find_nearest
from tessera.diagnostics.frames import guard

_KEYS = "where `key = tessera.random.key(0)`: numbers are drawn with a key, and equal keys draw equal numbers"
_NORMAL = f"write `tessera.random.normal(key, (2, 3))`, {_KEYS}"
_UNIFORM = f"write `tessera.random.uniform(key, (2, 3))`, {_KEYS}"
_INTEGERS = f"write `tessera.random.randint(key, (2, 3), 0, 10)` for 0..9, {_KEYS}"
_KEY = "write `tessera.random.key(0)`"
_DYNAMIC = (
    "the shape of its result would depend on values; write `tessera.ops.where(mask, x, 0)`, which keeps the shape"
)


def _write(names: str, instead: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), f"write `tessera.{instead}`")


_ABSENT = (
    "addmv addr amp apply_along_axis avg_pool3d broadcast broadcast_tensors det eig eigh cholesky fill_diagonal"
    " frexp geqrf interp inv inverse isin isnat linear_cross_entropy lstsq ma max_pool3d max_unpool1d"
    " max_unpool2d max_unpool3d mode modf nancumprod nancumsum new os pinv qr quantized_gru renorm rrelu signal"
    " slogdet solve svd tofile ulong ushort vander is_quantized flatiter rsub broadcast_shapes histogram2d"
    " histogramdd igamma igammac intc is_nonzero lu mvlgamma pdist polygamma batch_norm_elemt"
    " batch_norm_stats cudnn_batch_norm mkldnn_adaptive_avg_pool2d windows"
)
"""What other libraries have and Tessera has not, where the nearest name here is something else."""

RANDOM: Mapping[str, str] = {
    **dict.fromkeys(("randn", "standard_normal", "randn_like"), _NORMAL),
    **dict.fromkeys(("rand", "random", "random_sample", "rand_like"), _UNIFORM),
    **dict.fromkeys(("integers", "randint_like"), _INTEGERS),
    **dict.fromkeys(("seed", "manual_seed", "PRNGKey", "default_rng", "Generator"), _KEY),
    **_write("fold_in", "random.fold(key, number)"),
    "multinomial": (
        "write `tessera.random.categorical(key, tessera.ops.log(p), shape=(n,))` for n classes with the probabilities"
        " `p`: drawn with replacement, and not counted"
    ),
    **_write("randperm shuffle", "random.permutation(key, n)"),
}

OPS: Mapping[str, str] = {
    **_write("bmm mm dot mv inner vdot", "ops.matmul(a, b)"),
    **_write("ger", "ops.outer(a, b)"),
    **_write("linear dense Linear", "ops.matmul(x, weight.T) + bias"),
    **_write("addmm", "ops.matmul(a, b) + bias"),
    **_write("cat hstack vstack dstack append", "ops.concat([a, b], axis)"),
    **_write("clip clamp_min clamp_max", "ops.clamp(x, low, high)"),
    **_write("hardtanh", "ops.hard_tanh(x)"),
    **_write("hardswish hard_silu", "ops.hard_swish(x)"),
    **_write("hardsigmoid", "ops.hard_sigmoid(x)"),
    **_write("logsigmoid", "ops.log_sigmoid(x)"),
    **_write("divide true_divide", "ops.div(a, b)"),
    **_write("floor_divide", "ops.floordiv(a, b)"),
    **_write("scaled_dot_product_attention dot_product_attention multi_head_attention", "ops.attention(q, k, v)"),
    **_write("absolute fabs", "ops.abs(x)"),
    **_write("multiply", "ops.mul(a, b)"),
    **_write("negative", "ops.neg(x)"),
    **_write("power float_power", "ops.pow(a, b)"),
    **_write("subtract", "ops.sub(a, b)"),
    **_write("equal", "ops.eq(a, b)"),
    **_write("not_equal", "ops.ne(a, b)"),
    **_write("less", "ops.lt(a, b)"),
    **_write("less_equal", "ops.le(a, b)"),
    **_write("greater", "ops.gt(a, b)"),
    **_write("greater_equal", "ops.ge(a, b)"),
    **_write("fmax", "ops.maximum(a, b)"),
    **_write("fmin", "ops.minimum(a, b)"),
    **_write("amax", "ops.max(x, axis)"),
    **_write("amin", "ops.min(x, axis)"),
    **_write("arctan2", "ops.atan2(y, x)"),
    **_write("rint around", "ops.round(x)"),
    **_write("cumulative_sum", "ops.cumsum(x, axis)"),
    **_write("cumulative_prod", "ops.cumprod(x, axis)"),
    **_write("index_select", "ops.take(x, indices, axis)"),
    **_write("layer_norm LayerNorm", "ops.layernorm(x, weight, bias)"),
    **_write("rms_norm RMSNorm", "ops.rmsnorm(x, weight)"),
    **_write("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d", "ops.adaptive_avg_pool(x, size)"),
    **_write("adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d", "ops.adaptive_max_pool(x, size)"),
    **_write("upsample resize", "ops.interpolate(x, size, 'linear')"),
    **_write("im2col", "ops.unfold(x, window)"),
    **_write("col2im", "ops.sum_windows(x, size, window)"),
    **_write("remainder", "ops.mod(a, b)"),
    **_write("swish", "ops.silu(x)"),
    **_write("logistic expit", "ops.sigmoid(x)"),
    **_write("mse_loss", "ops.mean(tessera.ops.square(x - y))"),
    **_write("l1_loss", "ops.mean(tessera.ops.abs(x - y))"),
    **_write("nll_loss", "ops.cross_entropy(logits, labels)"),
    **_write("softmax_cross_entropy_with_integer_labels", "ops.cross_entropy(logits, labels)"),
    **_write("select", "ops.where(condition, a, b)"),
    **_write("view ravel", "ops.reshape(x, (-1,))"),
    **_write("permute_dims", "ops.transpose(x, axes)"),
    **_write("matrix_transpose", "ops.swapaxes(x, -1, -2)"),
    **_write("identity", "ops.eye(n)"),
    **_write("convolve conv", "ops.conv1d(x, weight)"),
    **_write("max_pool1d max_pool2d", "ops.max_pool(x, 2)"),
    **_write("avg_pool1d avg_pool2d", "ops.avg_pool(x, 2)"),
    **_write("dropout", "random.dropout(x, key, 0.1)"),
    **_write("empty", "ops.zeros(shape)"),
    **_write("empty_like", "ops.zeros_like(x)"),
    **_write("invert", "ops.bitwise_not(x)"),
    **_write("left_shift", "ops.shift_left(a, b)"),
    **_write("right_shift", "ops.shift_right(a, b)"),
    **_write("arcsin", "ops.asin(x)"),
    **_write("arccos", "ops.acos(x)"),
    **_write("arctan", "ops.atan(x)"),
    **_write("arcsinh", "ops.asinh(x)"),
    **_write("arccosh", "ops.acosh(x)"),
    **_write("arctanh", "ops.atanh(x)"),
    **_write("gammaln", "ops.lgamma(x)"),
    **_write("psi", "ops.digamma(x)"),
    **_write("popcount", "ops.population_count(x)"),
    **_write("degrees", "ops.rad2deg(x)"),
    **_write("radians", "ops.deg2rad(x)"),
    **_write("special_erfinv", "ops.erfinv(x)"),
    **_write("average", "ops.mean(x, axis)"),
    **dict.fromkeys(
        ("nanquantile", "nanmedian", "nanpercentile"),
        "there is none: `tessera.ops.quantile` of a NaN is NaN, so leave NaNs out with NumPy outside of `jit`",
    ),
    **_write("binary_cross_entropy", "ops.mean(-y * tessera.ops.log(p) - (1 - y) * tessera.ops.log(1 - p))"),
    **_write("logspace geomspace", "ops.pow(10.0, tessera.ops.linspace(0.0, 1.0, 5))"),
    **_write("range", "ops.arange(n)"),
    **_write("flipud", "ops.flip(x, 0)"),
    **_write("fliplr", "ops.flip(x, 1)"),
    **_write("tri", "ops.tril(tessera.ops.ones((n, n)))"),
    **dict.fromkeys(
        ("tensor_split", "array_split"),
        "write `tessera.ops.split(x, [3, 2, 2])`, with the sizes of the parts: of 7 elements in 3 parts those are it",
    ),
    **_write("bucketize", "ops.searchsorted(boundaries, x)"),
    **_write("digitize", "ops.searchsorted(boundaries, x, side='right')"),
    **_write("iinfo", "xp.iinfo(dtype)"),
    **_write("finfo", "xp.finfo(dtype)"),
    **_write("isdtype", "xp.isdtype(dtype, 'integral')"),
    **_write("histc", "ops.histogram(x, bins)[0]"),
    **_write("trapz", "ops.trapezoid(y, x)"),
    **_write("flatnonzero", "ops.nonzero(x.reshape(-1))[0]"),
    **_write("mgrid", "ops.meshgrid(a, b)"),
    **_write("unique_values", "ops.unique(x)"),
    **_write("aminmax", "ops.min(x), tessera.ops.max(x)"),
    **_write("softsign", "ops.div(x, 1 + tessera.ops.abs(x))"),
    **_write("scatter_reduce segment_reduce", "ops.segment_sum(data, segment_ids, num_segments)"),
    **dict.fromkeys(
        _ABSENT.split(), "it is not here: write it with others of `tessera.ops`, or use NumPy outside of `jit`"
    ),
    **dict.fromkeys(("argwhere", "masked_select", "extract", "compress"), _DYNAMIC),
}

FRONT: Mapping[str, str] = {
    **_write("tensor as_tensor", "array(values)"),
    **_write("from_numpy from_dlpack", "asarray(values)"),
    **{f"float{bits}": f"write `tessera.f{bits}`" for bits in (16, 32, 64)},
    **{f"int{bits}": f"write `tessera.i{bits}`" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"write `tessera.u{bits}`" for bits in (8, 16, 32, 64)},
    **_write("bfloat16", "bf16"),
    **_write("float8_e4m3fn", "f8e4m3"),
    **_write("float8_e5m2", "f8e5m2"),
    **_write("half", "f16"),
    **_write("float single", "f32"),
    **_write("double", "f64"),
    **_write("long int", "i64"),
    **_write("bool", "bool_"),
    **_write("ndarray Array", "Tensor"),
    **_write("compile script", "jit"),
    **_write("Mesh make_mesh", "dist.mesh(data=2)"),
    **_write("psum all_reduce", "dist.all_reduce(x, axis)"),
    **_write("foriloop for_loop", "fori_loop(0, n, body, state)"),
    **_write("print", "debug_print('x = {}', x)"),
    **_write("pure_callback", "io_callback(function, ...)"),
    **_write("language tl", "tile"),
    **_write("numpy jnp np lax functional F", "ops"),
    **_write("autograd backward gradient gradients GradientTape requires_grad", "grad(loss)(params)"),
    **_write("jacobian batch_jacobian", "jacrev(f)(x)"),
    **_write("vhp hessian_vector_product", "hvp(f, (x,), (v,))"),
    **_write("vectorize vectorized_map", "vmap(f)"),
    **_write("custom_gradient custom_derivative", "custom_vjp(f)"),
    **_write("func functorch", "grad(f), tessera.vmap(f) and tessera.jvp(f, primals, tangents)"),
    **_write("value_and_gradient value_and_gradients", "value_and_grad(f)"),
    "closure_convert": "pass what a rule captures as an argument, or use what it captures as a constant",
    **dict.fromkeys(
        ("tree_map", "tree_util", "tree", "tree_flatten", "tree_leaves", "tree_multimap"),
        "write the container, as in `{name: f(x) for name, x in params.items()}`: functions take and return trees",
    ),
    **dict.fromkeys(
        ("no_grad", "enable_grad", "inference_mode", "set_grad_enabled"),
        "derivatives are taken by `tessera.grad` alone, so there is nothing to switch off: remove it",
    ),
    **_write("detach", "stop_gradient(x)"),
    "pmap": "there is no such transform yet; `tessera.dist` runs a program on several ranks",
    **_write("Module flax", "nn.Module"),
    **{name: f"write `tessera.nn.{name}`" for name in ("Sequential", "Linear", "Embedding", "LayerNorm", "Dropout")},
    "Parameter": "a tensor in a field of a `tessera.nn.Module` is a parameter: assign the tensor",
    "is_tensor": "write `isinstance(x, tessera.Tensor)`",
    "newaxis": "write `None`, as in `x[:, None]`",
    **dict.fromkeys(("inf", "pi", "nan", "e"), "take it from Python's `math`"),
    **dict.fromkeys(("save", "load"), "write `numpy.save(file, x)` and `tessera.array(numpy.load(file))`"),
    **dict.fromkeys(("device_put", "to"), "write `tessera.cuda.array(x)` for a GPU, and `x.cpu()` for host memory"),
}

_TABLES: Mapping[str, Mapping[str, str]] = {"tessera": FRONT, "tessera.ops": OPS, "tessera.random": RANDOM}


def advice_for(module: str, name: str) -> str:
    """What to write instead of a name that a module does not have; empty where nobody knows."""
    if name.startswith("_"):
        return ""
    for table in (_TABLES.get(module, {}), *_TABLES.values()):
        if name in table:
            return table[name]
    homes = {home: importlib.import_module(home).__all__ for home in ("tessera", "tessera.ops", "tessera.random")}
    for home, names in homes.items():
        if name in names and home != module:
            return f"write `{home}.{name}`"
    own = homes[module] if module in homes else importlib.import_module(module).__all__
    close = find_nearest(name, own, cutoff=0.75)
    return f"did you mean `{module}.{close[0]}`?" if close else ""


def answer_names(module: str) -> Callable[[str], NoReturn]:
    """The `__getattr__` of a module, for names that it does not have."""
    return partial(guard(_refuse), module)


def _refuse(module: str, name: str) -> NoReturn:
    """Raise AttributeError for a name that a module does not have, with what to write instead where that is known."""
    advice = advice_for(module, name)
    raise AttributeError(f"module `{module}` has no attribute `{name}`{f': {advice}' if advice else ''}", name=name)
