"""Names of PyTorch that are one line, or one index, of ours: what to write instead of each."""

from __future__ import annotations

from collections.abc import Mapping


def write_instead(names: str, instead: str) -> dict[str, str]:
    """The same answer to several names: an expression of ours."""
    return dict.fromkeys(names.split(), f"write `tessera.{instead}`")


_STRIDES = "tensors have no strides to set: write `x[::2]`, `tessera.ops.unfold(x, window)`, or an index"
_NO_COPY = "tensors do not change, and so need no copies: write `x`"

_SPARSE = "there are no sparse tensors: `x[indices]` reads some elements, and `x.at[indices]` writes them"
_SPARSE_NAMES = (
    "to_sparse sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor"
    " sparse_compressed_tensor crow_indices col_indices ccol_indices row_indices sspaddmm smm spmm hspmm sparse"
    " sampled_addmm"
)
_REFLECTIONS = "there are no reflections to multiply: `tessera.linalg.qr` gives Q itself"
_LDL = (
    "there is no LDL factorization: `tessera.linalg.cholesky` takes positive definite matrices, `tessera.linalg.lu` any"
)
_BESSEL = "there are no Bessel functions but `tessera.ops.i0`, `i0e`, `i1` and `i1e`, and there is no Airy function"
_BESSEL_NAMES = (
    "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 modified_bessel_k0 modified_bessel_k1"
    " scaled_modified_bessel_k0 scaled_modified_bessel_k1"
)
_LOW_RANK = "write `tessera.linalg.svd(x, full_matrices=False)`, and keep the first k of each part"
_FRAMES = "frames = hop * tessera.arange(count)[:, None] + tessera.arange(n)"
_JITERATOR = "write the expression inside `tessera.jit`, which fuses it, or a kernel with `tessera.kernel`"
_JITERATOR_NAMES = (
    "jiterator_unary jiterator_binary jiterator_binary_return_by_ref jiterator_2inputs_2outputs"
    " jiterator_4inputs_with_extra_args"
)
_MASKED = (
    "write `tessera.ops.sum(tessera.ops.where(mask, x, 0), axis)`, and so others, each with what does not count in it:"
    " 1 in a product, `-math.inf` in a maximum"
)
_REDUCED = "and so with `add`, `mul`, `max` or `min`: a mean is a sum of values divided by one of ones"
_COPIES = "diagonal expand narrow permute squeeze unsqueeze"
"""What has a second name in PyTorch for a result that is no view."""

TORCH: Mapping[str, str] = {
    # Elements.
    **write_instead("clamp_min", "ops.maximum(x, low)"),
    **write_instead("clamp_max", "ops.minimum(x, high)"),
    **write_instead("frac", "ops.sub(x, tessera.ops.trunc(x))"),
    **write_instead("modf", "ops.trunc(x), x - tessera.ops.trunc(x)"),
    **write_instead("fix", "ops.trunc(x)"),
    **write_instead("sgn", "ops.sign(x)"),
    "positive": "write `x`",
    **write_instead("rsub", "ops.sub(y, x)"),
    **write_instead("addcmul", "ops.add(x, a * b)"),
    **write_instead("addcdiv", "ops.add(x, a / b)"),
    **write_instead("bitwise_left_shift", "ops.shift_left(a, b)"),
    **write_instead("bitwise_right_shift", "ops.shift_right(a, b)"),
    **write_instead("mvlgamma", "ops.multigammaln(x, d)"),
    **write_instead("norm_cdf", "ops.ndtr(x)"),
    **write_instead("modified_bessel_i0", "ops.i0(x)"),
    **write_instead("modified_bessel_i1", "ops.i1(x)"),
    **write_instead("softmin", "ops.softmax(-x, axis)"),
    **write_instead("rrelu", "ops.where(x > 0, x, x * tessera.random.uniform(key, x.shape, low=1 / 8, high=1 / 3))"),
    **write_instead("isreal", "ops.eq(tessera.ops.imag(x), 0)"),
    **write_instead("float_power", "ops.pow(a.cast(tessera.f64), b.cast(tessera.f64))"),
    **write_instead("complex64 cfloat", "c64"),
    **write_instead("complex128 cdouble", "c128"),
    **write_instead("conj_physical resolve_conj", "ops.conj(z)"),
    **write_instead("polar", "ops.complex(r * tessera.ops.cos(angle), r * tessera.ops.sin(angle))"),
    **write_instead("view_as_complex_copy", "ops.complex(x[..., 0], x[..., 1])"),
    **write_instead("view_as_real_copy", "ops.stack([z.real, z.imag], -1)"),
    **write_instead("H mH adjoint", "ops.conj(tessera.ops.swapaxes(x, -1, -2))"),
    **dict.fromkeys(
        ("chalf", "is_conj", "resolve_neg"),
        "complex tensors are `tessera.c64` or `tessera.c128`, and no function makes a view of one",
    ),
    # Products.
    **write_instead("inner", "ops.tensordot(a, b, ([-1], [-1]))"),
    **write_instead("vdot", "ops.sum(tessera.ops.conj(a) * b)"),
    **write_instead("addmv", "ops.add(y, tessera.ops.matmul(a, x))"),
    **write_instead("addr", "ops.add(x, tessera.ops.outer(a, b))"),
    **write_instead("baddbmm", "ops.add(x, tessera.ops.matmul(a, b))"),
    **write_instead("addbmm", "ops.add(x, tessera.ops.matmul(a, b).sum(0))"),
    **write_instead("dist", "ops.norm(x - y, order=p)"),
    **write_instead("pairwise_distance", "ops.norm(x - y + 1e-6, -1, order=p)"),
    **write_instead("std_mean", "ops.std(x, correction=1), tessera.ops.mean(x)"),
    **write_instead("var_mean", "ops.var(x, correction=1), tessera.ops.mean(x)"),
    "unique_consecutive": (
        "write `x[tessera.ops.concat([tessera.ops.full((1,), True), x[1:] != x[:-1]])]`, of a vector with elements"
    ),
    "masked": _MASKED,
    "equal": (
        "write `a.shape == b.shape and bool(tessera.ops.all(a == b))` for one answer, and `tessera.ops.eq(a, b)` for"
        " one of each element"
    ),
    "gradient": (
        "write `tessera.ops.concat([x[1:2] - x[:1], (x[2:] - x[:-2]) / 2, x[-1:] - x[-2:-1]])` for differences of"
        " samples along axis 0, and `tessera.grad(loss)(params)` for the derivatives of a function"
    ),
    "hash_tensor": "there is no hash of a tensor: hash `x.tobytes()`",
    **dict.fromkeys(("igamma", "igammac"), "there is no incomplete gamma function"),
    **write_instead("histogramdd histogram2d", "ops.bincount(tessera.ops.ravel_multi_index(bins, sizes), length)"),
    **dict.fromkeys(_BESSEL_NAMES.split(), _BESSEL),
    **write_instead("spherical_bessel_j0", "ops.sinc(x / math.pi)"),
    **dict.fromkeys(_JITERATOR_NAMES.split(), _JITERATOR),
    **dict.fromkeys(("resize_", "resize_as_"), "tensors do not change: write `x = tessera.ops.reshape(x, shape)`"),
    "zero_": "tensors do not change: write `x = tessera.ops.zeros_like(x)`",
    # Linear algebra.
    **write_instead("pinverse", "linalg.pinv(a)"),
    **write_instead("cholesky_inverse", "linalg.cholesky_solve(factor, tessera.ops.eye(n))"),
    **dict.fromkeys(("householder_product", "ormqr", "geqrf"), _REFLECTIONS),
    **dict.fromkeys(("ldl_factor", "ldl_factor_ex", "ldl_solve"), _LDL),
    **write_instead("lu_factor_ex", "linalg.lu(a)"),
    **write_instead("lu_unpack", "ops.tril(lu, -1) + tessera.ops.eye(n), tessera.ops.triu(lu)"),
    **write_instead("tensorinv", "linalg.inv(a.reshape(n, n)).reshape(shape)"),
    **write_instead("tensorsolve", "linalg.solve(a.reshape(n, n), b.reshape(n)).reshape(shape)"),
    **dict.fromkeys(("svd_lowrank", "pca_lowrank"), _LOW_RANK),
    # Signals.
    "stft": f"write `tessera.ops.rfft(x[frames] * tessera.ops.hann_window(n))`, where `{_FRAMES}`",
    "istft": (
        f"write `tessera.ops.zeros((size,)).at[frames].add(tessera.ops.irfft(z, n) * window)`, where `{_FRAMES}`, and"
        " divide by the sum of windows made so"
    ),
    **dict.fromkeys(
        ("signal", "windows"),
        "windows are functions: write `tessera.ops.hann_window(n, periodic=False)`, and others by their names",
    ),
    **write_instead("fft2", "xp.fft.fftn(x, axes=(-2, -1))"),
    **write_instead("ifft2", "xp.fft.ifftn(x, axes=(-2, -1))"),
    **write_instead("rfft2", "xp.fft.rfftn(x, axes=(-2, -1))"),
    **write_instead("irfft2", "xp.fft.irfftn(z, axes=(-2, -1))"),
    **write_instead("hfft2", "xp.fft.irfftn(tessera.ops.conj(z), axes=(-2, -1), norm='forward')"),
    **write_instead("hfftn", "xp.fft.irfftn(tessera.ops.conj(z), norm='forward')"),
    **write_instead("ihfft2", "ops.conj(tessera.xp.fft.rfftn(x, axes=(-2, -1), norm='forward'))"),
    **write_instead("ihfftn", "ops.conj(tessera.xp.fft.rfftn(x, norm='forward'))"),
    **write_instead("hann hanning", "ops.hann_window(n, periodic=False)"),
    **write_instead("hamming", "ops.hamming_window(n, periodic=False)"),
    **write_instead("blackman", "ops.blackman_window(n, periodic=False)"),
    **write_instead("bartlett", "ops.bartlett_window(n, periodic=False)"),
    **write_instead("kaiser", "ops.kaiser_window(n, beta, periodic=False)"),
    **write_instead("nuttall", "ops.nuttall_window(n, periodic=False)"),
    **write_instead("gaussian", "ops.gaussian_window(n, std, periodic=False)"),
    **write_instead("general_cosine", "ops.general_cosine_window(n, weights, periodic=False)"),
    **write_instead("general_hamming", "ops.general_cosine_window(n, [alpha, 1 - alpha], periodic=False)"),
    "special": "special functions are in `tessera.ops`",
    **write_instead("msort", "ops.sort(x, 0)"),
    **write_instead("kthvalue", "ops.sort(x, -1)[..., k - 1]"),
    "index_reduce": f"write `x.at[indices].max(values)`, and `x.at[:, indices]` for axis 1, {_REDUCED}",
    "scatter_reduce": f"write `x.at[indices, tessera.arange(n)].add(values)` for axis 0 of a matrix, {_REDUCED}",
    **write_instead("renorm", "ops.mul(x, tessera.ops.minimum(1, most / tessera.ops.norm(x, axes, keepdims=True)))"),
    # Elements at indices.
    "index_add": "write `x.at[indices].add(values)`, and `x.at[:, indices]` for axis 1",
    "index_put": "write `x.at[indices].set(values)`, or `add` to accumulate",
    "index_copy": "write `x.at[indices].set(values)`, and `x.at[:, indices]` for axis 1",
    "index_fill": "write `x.at[indices].set(value)`, and `x.at[:, indices]` for axis 1",
    **dict.fromkeys(
        ("select_scatter", "slice_scatter"), "write `x.at[index].set(values)`, where `x[index]` is the part"
    ),
    "diagonal_scatter": "write `x.at[i, i].set(values)`, where `i = tessera.arange(n)`",
    "put": "write `x.reshape(-1).at[indices].set(values).reshape(x.shape)`",
    **write_instead("fill_diagonal", "ops.where(tessera.ops.eye(n, dtype=tessera.bool_), value, x)"),
    **write_instead("nonzero_static", "ops.argwhere(x, size=n, fill_value=-1)"),
    "select": (
        "write `x[:, index]` for one index of an axis, or `tessera.ops.where(condition, a, b)` to choose by a condition"
    ),
    "is_nonzero": "write `bool(x)`",
    "T": "write `x.T`",
    "array_str": "write `str(x)`",
    "diag_indices": "write `x.at[i, i]`, or `x[i, i]`, where `i = tessera.arange(n)`",
    **write_instead("tril_indices_from", "ops.tril_indices(*x.shape)"),
    **write_instead("triu_indices_from", "ops.triu_indices(*x.shape)"),
    **dict.fromkeys(_SPARSE_NAMES.split(), _SPARSE),
    "item": "write `x.item()`",
    "slice": "write `x[start:stop]`",
    "sum_to_size": "write `x.sum(axes, keepdims=True)`, over the axes that were broadcast",
    "chain_matmul": "write `a @ b @ c`, with parentheses where an order is cheaper",
    "is_floating_point": "write `x.dtype.is_float`",
    # Shapes.
    **write_instead("repeat_interleave", "ops.repeat(x, n, axis)"),
    **write_instead("diagflat", "ops.diag(x.reshape(-1), offset)"),
    **write_instead("unbind", "ops.unstack(x, axis)"),
    **write_instead("movedim", "ops.moveaxis(x, source, destination)"),
    **write_instead("swapdims", "ops.swapaxes(x, first, second)"),
    **write_instead("t", "ops.transpose(x)"),
    **write_instead("mT", "ops.swapaxes(x, -1, -2)"),
    **write_instead("unflatten view_as reshape_as", "ops.reshape(x, shape)"),
    **write_instead("expand_as", "ops.broadcast_to(x, y.shape)"),
    **write_instead("broadcast", "ops.broadcast_to(x, shape)"),
    **write_instead("broadcast_tensors", "ops.broadcast_arrays(a, b)"),
    **write_instead("constant_pad_nd", "ops.pad(x, widths, value)"),
    **dict.fromkeys(
        ("fractional_max_pool2d", "fractional_max_pool3d"),
        "there are no windows of random sizes: write `tessera.ops.adaptive_max_pool(x, size)`",
    ),
    **dict.fromkeys(
        ("max_unpool1d", "max_unpool2d", "max_unpool3d"),
        "there is no pooling that gives indices: write `tessera.ops.interpolate(x, size)` to make an image larger",
    ),
    **write_instead("linear_cross_entropy", "nn.cross_entropy(x @ weight.T, labels)"),
    "multilabel_margin_loss": (
        "there is no margin loss of several labels: write `tessera.nn.binary_cross_entropy_with_logits(logits, target)`"
    ),
    **write_instead("multi_head_attention_forward", "ops.attention(q, k, v)"),
    **write_instead("native_layer_norm", "ops.layernorm(x, weight, bias)"),
    **write_instead("native_group_norm", "ops.group_norm(x, groups, weight, bias)"),
    **write_instead("native_batch_norm", "ops.batch_norm(x, mean, var, weight, bias)"),
    **write_instead("native_channel_shuffle", "ops.channel_shuffle(x, groups)"),
    **write_instead("grid_sampler cudnn_grid_sampler grid_sampler_2d grid_sampler_3d", "ops.grid_sample(x, grid)"),
    **write_instead("affine_grid_generator", "ops.affine_grid(theta, size)"),
    **write_instead("lp_pool1d lp_pool2d lp_pool3d", "ops.lp_pool(x, order, window)"),
    **write_instead("upsample_bilinear", "ops.interpolate(x, size, 'linear', align_corners=True)"),
    **write_instead("upsample_nearest", "ops.interpolate(x, size, 'nearest')"),
    **write_instead("fill", "ops.full_like(x, value)"),
    **write_instead("scalar_tensor", "array(value)"),
    **write_instead("new_zeros new_empty empty_permuted empty_strided new_empty_strided", "ops.zeros(shape, x.dtype)"),
    **write_instead("new_ones", "ops.ones(shape, x.dtype)"),
    **write_instead("new_full", "ops.full(shape, value, x.dtype)"),
    **write_instead("numel", "Tensor.size"),
    **write_instead("apply_along_axis", "vmap(function)(x)"),
    **dict.fromkeys(("as_strided", "as_strided_copy", "as_strided_scatter"), _STRIDES),
    **dict.fromkeys(("clone", "contiguous", "alias_copy"), _NO_COPY),
    **{f"{name}_copy": f"write `tessera.ops.{name}`" for name in _COPIES.split()},
    **write_instead("transpose_copy", "ops.swapaxes(x, first, second)"),
    "unfold_copy": "write `x[step * tessera.arange(count)[:, None] + tessera.arange(size)]` of a vector",
    **write_instead("split_copy", "ops.split(x, [3, 4])"),
    **write_instead("view_copy", "ops.reshape(x, shape)"),
    **write_instead("unbind_copy", "ops.unstack(x, axis)"),
    **write_instead("t_copy", "ops.transpose(x)"),
    **write_instead("split_with_sizes_copy", "ops.split(x, [3, 4])"),
    # Losses, under other names.
    "kl_div": "write `tessera.nn.kl_divergence(log_prediction, target)`, whose mean is PyTorch's `batchmean`",
    **write_instead("sigmoid_focal_loss", "nn.focal_loss(logits, target)"),
    **write_instead("triplet_margin_with_distance_loss", "nn.triplet_margin_loss(anchor, positive, negative)"),
    **write_instead("multilabel_soft_margin_loss", "nn.binary_cross_entropy_with_logits(logits, target)"),
    **write_instead("dropout1d dropout2d dropout3d feature_alpha_dropout", "random.feature_dropout(x, key, 0.1)"),
}  # fmt: skip

_SAME_NAMES = {
    "bincount": "tessera.ops.bincount(x, length)",
    "cross_entropy": "tessera.ops.cross_entropy(tessera.ops.moveaxis(logits, 1, -1), labels)",
    "embedding": "tessera.ops.embedding(table, indices)",
    "flatten": "x.reshape(x.shape[0], -1)",
    "gather": "tessera.ops.take_along_axis(x, indices, axis)",
    "meshgrid": "tessera.ops.meshgrid(a, b, indexing='ij')",
    "nonzero": "tessera.ops.argwhere(x)",
    "norm": "tessera.ops.norm(x, order=p)",
    "pad": "tessera.ops.pad(x, ((0, 0), (1, 2)))",
    "round": "tessera.ops.round(x * 100) / 100",
    "scatter": "tessera.ops.put_along_axis(x, indices, values, axis)",
    "sort": "tessera.ops.sort(x), tessera.ops.argsort(x)",
    "split": "tessera.ops.split(x, [3, 1])",
    "std": "tessera.ops.std(x, correction=1)",
    "transpose": "tessera.ops.swapaxes(x, 0, 1)",
    "var": "tessera.ops.var(x, correction=1)",
}
TORCH_FRONT: Mapping[str, str] = {
    name: f"write `tessera.ops.{name}`, and for what PyTorch's computes `{code}`" for name, code in _SAME_NAMES.items()
}
"""Functions that have the same name here and take or give something else."""

_LOSSES = {
    "L1Loss": "l1_loss",
    "MSELoss": "mse_loss",
    "HuberLoss": "huber_loss",
    "SmoothL1Loss": "smooth_l1_loss",
    "CrossEntropyLoss": "cross_entropy",
    "NLLLoss": "nll_loss",
    "KLDivLoss": "kl_divergence",
    "BCELoss": "binary_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy_with_logits",
    "CTCLoss": "ctc_loss",
    "GaussianNLLLoss": "gaussian_nll_loss",
    "PoissonNLLLoss": "poisson_nll_loss",
    "HingeEmbeddingLoss": "hinge_embedding_loss",
    "CosineEmbeddingLoss": "cosine_embedding_loss",
    "MarginRankingLoss": "margin_ranking_loss",
    "MultiMarginLoss": "multi_margin_loss",
    "SoftMarginLoss": "soft_margin_loss",
    "TripletMarginLoss": "triplet_margin_loss",
}
_ACTIVATIONS = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "LeakyReLU": "leaky_relu",
    "GELU": "gelu",
    "SiLU": "silu",
    "ELU": "elu",
    "SELU": "selu",
    "CELU": "celu",
    "Mish": "mish",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Softplus": "softplus",
    "LogSigmoid": "log_sigmoid",
    "Hardswish": "hard_swish",
    "Hardsigmoid": "hard_sigmoid",
    "Hardtanh": "hard_tanh",
}

TORCH_NN: Mapping[str, str] = {
    **{name: f"losses are functions: write `tessera.nn.{own}`" for name, own in _LOSSES.items()},
    **{name: f"functions need no module: write `tessera.ops.{own}(x)`" for name, own in _ACTIVATIONS.items()},
    **write_instead("Softmax", "ops.softmax(x, axis=-1)"),
    **write_instead("LogSoftmax", "ops.log_softmax(x, axis=-1)"),
    **write_instead("BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm", "nn.BatchNorm"),
    **write_instead("MaxPool1d MaxPool2d MaxPool3d", "ops.max_pool(x, window)"),
    **write_instead("AvgPool1d AvgPool2d AvgPool3d", "ops.avg_pool(x, window)"),
    **write_instead("AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d", "ops.adaptive_avg_pool(x, size)"),
    **write_instead("Dropout1d Dropout2d Dropout3d", "random.feature_dropout(x, key, 0.1)"),
    **write_instead("RNN", "nn.Recurrent(tessera.nn.RNNCell.init(key, inputs, hidden))"),
    **write_instead("LSTM", "nn.Recurrent(tessera.nn.LSTMCell.init(key, inputs, hidden))"),
    **write_instead("GRU", "nn.Recurrent(tessera.nn.GRUCell.init(key, inputs, hidden))"),
    **write_instead("MultiheadAttention", "nn.Attention"),
    **write_instead("TransformerEncoderLayer TransformerDecoderLayer", "nn.Block"),
    **write_instead("init", "nn.initializers"),
    "Flatten": "write `x.reshape(x.shape[0], -1)`",
    "Identity": "write `lambda x: x`, or leave it out",
    "ModuleList": "a field may be a tuple of modules: write `layers: tuple[tessera.nn.Linear, ...]`",
    "ModuleDict": "a field may be a dict of modules: write `layers: dict[str, tessera.nn.Linear]`",
    "functional": "functions are in `tessera.ops`, losses in `tessera.nn`",
}
