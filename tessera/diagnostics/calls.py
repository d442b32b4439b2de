"""Calls with missing or unexpected arguments: errors that say what a parameter of another library is called here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.diagnostics.error import find_nearest

# Names of parameters in PyTorch, NumPy and JAX.

_SAME = (
    "dim: axis axes dims; dims: axes axis reps; axis: axes; axes: axis; dimension: axis; keepdim: keepdims; "
    "axis0: first; axis1: second; dim0: first axis1; dim1: second axis1; dim2: axis2; in_dims: in_axes; "
    "out_dims: out_axes; input: x a q logits prediction log_probabilities indices distance scores b; self: x a; "
    "other: y b exponent q; input1: x; input2: y factor; x1: x; x2: y; x: a; y: b; A: a x; B: b; end: stop y; "
    "exponent: y; target: labels; log_probs: log_probabilities; mat2: b; vec2: b; tensor: x tensors; "
    "tensors: arrays matrices; elements: x; test_elements: values; test_element: values; element: x; "
    "sorted_sequence: sorted; values: y; index: indices positions; src: updates; weight: w weights table; "
    "running_mean: mean; running_var: var; attn_mask: mask; size: shape; steps: num; fill_value: value; "
    "is_causal: causal; dropout_p: dropout; ddof: correction; unbiased: correction; p: order rate ord; "
    "ord: order; norm_type: order; diagonal: offset; kernel_size: window taps; output_size: size; "
    "num_groups: groups; num_classes: depth; minlength: length; shifts: shift; min: low; max: high; "
    "lambd: threshold; interpolation: method; padding_mode: padding; upscale_factor: factor; "
    "downscale_factor: factor; split_size: parts; split_size_or_sections: parts; split_sizes: parts; row: rows; "
    "col: columns; n: rows; m: columns; N: n; pad: widths; unitriangular: unit_diagonal; rcond: rtol; "
    "tau: temperature; lam: rate; count: n; prob: p; concentration: a alpha; argnum: argnums; "
    "nondiff_argnames: nondiff_argnums; in_features: inputs; out_features: outputs; in_channels: inputs; "
    "out_channels: outputs; num_embeddings: entries; embedding_dim: features; normalized_shape: features; "
    "num_features: channels; num_channels: channels; input_size: inputs; hidden_size: hidden; embed_dim: width; "
    "num_heads: heads; window_length: n"
)
SAME: Mapping[str, Sequence[str]] = {
    name: own.split() for name, own in (entry.split(": ") for entry in _SAME.split("; "))
}
"""What the same parameter may be called here; the first that a function has."""

_REDUCTION = 'write `reduction="mean"`, `"sum"` or `"none"`'
_IN_PLACE = "tensors do not change: leave it out, and write `x = ...`"
_TRAINING = "nothing knows whether it trains: leave the call out where nothing is dropped"
_RUNNING = "it reads the mean and variance it gets: `ts.nn.BatchNorm` computes and updates them"
_ALL_SORTS = "sorting is stable and its result sorted: leave it out"
_ALWAYS = "leave it out: results do not depend on which algorithm is used"
_SPARSE = "gradients are dense: leave it out"
_PADDING = "write `table.at[row].set(0.0)` for a row that stays zero, and leave it out"

ADVICE: Mapping[str, str] = {
    "out": "tensors are immutable, and results are new tensors: write `y = ...` without `out`",
    **dict.fromkeys(("size_average", "reduce"), _REDUCTION),
    "scatter.reduce": "write `ts.ops.scatter_add`, or `x.at[indices].mul(values)` and its like",
    "scatter.value": "write `updates=ts.ops.full(shape, value)`",
    "inplace": _IN_PLACE,
    **dict.fromkeys(("training", "train"), _TRAINING),
    **dict.fromkeys(("batch_norm.training", "momentum", "use_input_stats"), _RUNNING),
    **dict.fromkeys(
        ("instance_norm.running_mean", "instance_norm.running_var"), "each instance has its own: leave it out"
    ),
    "cudnn_enabled": _ALWAYS,
    "compute_mode": _ALWAYS,
    "driver": _ALWAYS,
    "pivot": "rows are always exchanged for the largest pivot: leave it out",
    **dict.fromkeys(("sparse", "sparse_grad"), _SPARSE),
    **dict.fromkeys(("stable", "sorted"), _ALL_SORTS),
    "assume_unique": "leave it out: it changes no result",
    "alpha": "scale the operand: write `x + alpha * y`",
    "sub.alpha": "scale the operand: write `x - alpha * y`",
    "decimals": "write `ts.ops.round(x * 10**n) / 10**n` for n decimals",
    "rounding_mode": 'write `ts.ops.floordiv(x, y)` for "floor", and `ts.ops.trunc(ts.ops.div(x, y))` for "trunc"',
    "bias": "add it: write `... + bias[:, None]`, with a None for each spatial axis",
    **dict.fromkeys(
        ("hamming_window.alpha", "hamming_window.beta"), "write `ts.ops.general_cosine_window(n, [alpha, beta])`"
    ),
    "softplus.beta": "write `ts.ops.softplus(beta * x) / beta`",
    "softplus.threshold": "leave it out: it does not overflow",
    **dict.fromkeys(("elu.scale", "elu.input_scale"), "write `scale * ts.ops.elu(x)`, and scale `x` too"),
    "logit.eps": "write `ts.ops.logit(ts.ops.clamp(x, eps, 1 - eps))`",
    "gumbel_softmax.eps": "leave it out: its numbers are never 0",
    "pad.mode": "it pads with one value: `x[index]` repeats or mirrors elements",
    "scale_factor": "pass the sizes: write `size=(2 * height, 2 * width)`",
    "recompute_scale_factor": "leave it out: it takes sizes, not factors",
    "antialias": "there is no filter: shrink by `ts.ops.avg_pool(x, window)`",
    "include_last_offset": "bags are rows of `indices`: leave it out",
    "offsets": "bags are rows of `indices`: pad them, and weigh rows with `ts.ops.embedding`",
    "per_sample_weights": "write `(ts.ops.embedding(table, indices) * weights[..., None]).sum(-2)`",
    "max_norm": "scale the table: `ts.ops.norm(table, -1, keepdims=True)` has the norms of its rows",
    "scale_grad_by_freq": "leave it out, and scale the gradient of the table by `ts.ops.bincount`",
    "padding_idx": _PADDING,
    "embedding.norm_type": "there is no largest norm to keep: leave it out",
    "embedding_bag.norm_type": "there is no largest norm to keep: leave it out",
    **dict.fromkeys(
        ("cross_entropy.weight", "cross_entropy.ignore_index", "cross_entropy.label_smoothing"),
        "`ts.nn.cross_entropy` takes it",
    ),
    "binary_cross_entropy.weight": 'write `reduction="none"`, and weigh the result',
    **dict.fromkeys(
        ("huber_loss.weight", "l1_loss.weight", "mse_loss.weight"), 'write `reduction="none"`, and weigh the result'
    ),
    **dict.fromkeys(("start_dim", "end_dim"), "write `x.reshape(...)`: it makes one axis of all"),
    **dict.fromkeys(("transpose.dim0", "transpose.dim1"), "write `ts.ops.swapaxes(x, 0, 1)`"),
    "gather.dim": "write `ts.ops.take_along_axis(x, indices, axis)`",
    "max.other": "write `ts.ops.maximum(x, y)`",
    "min.other": "write `ts.ops.minimum(x, y)`",
    "matrix_norm.dim": "the matrices are the last two axes: move them there by `ts.ops.moveaxis`",
    **dict.fromkeys(("dims_self", "dims_other"), "write `axes=([1], [0])`, one list of axes for each operand"),
    "right": 'write `side="right"`',
    "out_int32": "write `.cast(ts.i32)` behind the call",
    "sorter": "write `ts.ops.take(sorted, sorter)` for what is searched",
    **dict.fromkeys(("fweights", "aweights"), "repeat or scale the observations: leave it out"),
    "density": "divide the counts by their sum and the widths of bins",
    "histogram.weight": "write `weights=...`",
    "UPLO": "the lower half is read: write `ts.ops.conj(a.mT)` for the upper one",
    "solve_triangular.upper": "write `lower=True` for a lower triangle: the upper one is the default",
    "solve.left": "write `ts.linalg.solve(a.mT, b.mT).mT`",
    "pinv.atol": "singular values are cut relative to the largest: write `rtol=...`",
    "matrix_rank.atol": "write `tol=...`",
    "symmetric": "write `hermitian=True`",
    "some": 'write `full_matrices=False` for `svd`, and `mode="reduced"` for `qr`',
    "unfold.dimension": "it takes windows of images: `x[..., start:stop]` takes those of an axis",
    **dict.fromkeys(("unfold.size", "unfold.step"), "write `window=...` and `stride=...`"),
    "svd.driver": _ALWAYS,
    "requires_grad": "derivatives are taken by `ts.grad(loss)(params)`: leave it out",
    **dict.fromkeys(("device", "pin_memory"), "tensors are made where `with ts.device(...)` says: leave it out"),
    "layout": "all tensors are strided: leave it out",
    "memory_format": "leave it out, or write `channels_last=True` where a function takes it",
    "generator": "pass a key, made from a seed by `ts.random.key(0)`",
    "batch_first": "the batch is the first axis: leave it out",
    **dict.fromkeys(("affine", "elementwise_affine"), "write `weight=False` and `bias=False` where `init` takes them"),
    "track_running_stats": "it always does: leave it out",
    "num_layers": "write a tuple of modules, one for each layer",
    "bidirectional": "write two of `ts.nn.Recurrent`, one with `reverse=True`, and join what they give",
}
"""What to write for a parameter of any function, or of one of a name (`function.parameter`)."""

_OPTIONS_OF_JIT = (
    *("static_argnames", "dynamic", "constraints", "policy", "donate"),
    *("backend", "fusion", "debug", "fast_math", "features", "overrides", "memory", "offload", "largest_contraction"),
    *("tuned", "plan"),
)
"""Keywords of `jit`, which transforms of functions do not take."""


# Errors.


def explain_call(
    function: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any], error: Exception, name: str = ""
) -> Exception:
    """The error to raise in place of Python's for a call that does not fit a function; any other error is itself."""
    if type(error) is not TypeError:
        return error
    import inspect  # noqa: PLC0415 - for errors alone

    try:
        inspect.signature(function).bind(*args, **given)
    except TypeError as reason:
        found = wrong_call(function, args, given, str(reason).replace("'", "`"), name)
        found.__suppress_context__ = True
        return found
    return error  # raised inside the function, which is not about its call


def wrong_call(
    function: Callable[..., Any], args: tuple[Any, ...], given: Mapping[str, Any], reason: str, name: str = ""
) -> ArgumentError:
    """The error for a call with missing or unexpected arguments, for which there is a reason."""
    import inspect  # noqa: PLC0415 - for errors alone

    name, signature = name or function.__name__, inspect.signature(function)
    own = [one for key, one in signature.parameters.items() if key not in ("self", "cls")]
    plain = [one.replace(annotation=one.empty) for one in own]
    notes = (f"it is `{name}{inspect.Signature(plain)}`",)
    parameters = [one.name for one in plain]
    by_name = [one.name for one in plain if one.kind not in (one.VAR_POSITIONAL, one.POSITIONAL_ONLY)]
    wrong = next((one for one in given if one not in signature.parameters), None)
    if wrong is not None:
        message = f"unexpected argument `{wrong}` of `{name}`"
        if parameters[:1] == ["function"] and wrong in _OPTIONS_OF_JIT:
            return ArgumentError(message, notes=notes, fix=advise_option(f"{name}(f)", given))
        by_place = next((one for one in SAME.get(wrong, ()) if one in parameters and one not in by_name), None)
        if by_place is not None:
            return ArgumentError(message, notes=notes, fix=f"pass `{by_place}` without a name")
        return ArgumentError(message, notes=notes, fix=suggest_parameter(name, wrong, given[wrong], by_name))
    sizes = [one for one in args if type(one) is int]
    is_shape = parameters[-1:] == ["shape"] and len(sizes) > 1
    fix = f"pass sizes as one shape, as in `{tuple(sizes)}`" if is_shape else None
    if "key" in parameters and not any(hasattr(one, "dtype") for one in (*args, *given.values())):
        fix = "pass a key, made from a seed by `ts.random.key(0)`"
    return ArgumentError(f"wrong arguments of `{name}`: {reason}", notes=notes, fix=fix)


def advise_option(call: str, given: Mapping[str, Any]) -> str:
    """Where the options of `jit` among keywords belong, with values that it takes; nothing where there are none."""
    values = {one: _show(value) for one, value in given.items() if one in _OPTIONS_OF_JIT}
    if "offload" in values:
        values = {"memory": "2**30", **values, "offload": "True"}  # nothing is offloaded without a budget
    if "memory" in values and (type(given.get("memory")) is not int or given["memory"] <= 0):
        values["memory"] = "2**30"
    written = ", ".join(f"{one}={value}" for one, value in values.items())
    return f"options are those of `jit`: write `jit({call}, {written})`" if values else ""


def suggest_parameter(function: str, wrong: str, value: Any, parameters: list[str]) -> str:
    """What to write instead of a parameter that a function does not have."""
    own = ADVICE.get(f"{function.rpartition('.')[2]}.{wrong}")
    if own is not None:
        return own
    same = [one for one in SAME.get(wrong, ()) if one in parameters]
    value = int(value) if wrong == "unbiased" and isinstance(value, bool) else value
    if not same and wrong in ADVICE:
        return ADVICE[wrong]
    near = [*same, *find_nearest(wrong, parameters)]
    return f"write `{near[0]}={_show(value)}`" if near else "remove it"


def _show(value: Any) -> str:
    return f"{value!r}" if isinstance(value, bool | int | float | str) else "..."
