"""Linear attention and state-space duality (Mamba-2) in chunks: kernels, their derivatives and the functions of `ops`.

The recurrence is `state = decay * state + k_t v_t^T`, `out_t = q_t state`. In chunks of 128 rows it is matmuls, in two
passes. The first goes along the chunks and writes the state before each: `k^T v` of a chunk is one dot, and a program
has a block of the state in registers. The second takes all chunks in parallel: `q state`, and within the chunk `q k^T`
below the diagonal times `v`. A chunk is part of the recipe, so blocks, batch and heads change no bit.

Derivatives are the same two passes with other operands. `dq` is attention of `d_out` to `v` over values `k`; `dv` and
`dk` run from the last chunk to the first. A decay enters by its logarithm `A`, summed up along the sequence, of which
only differences count: `dA = q dq - k dk` row by row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tessera.api.custom import custom_vjp
from tessera.api.kernel import kernel
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of
from tessera.frontend.kernel import language as tile
from tessera.frontend.kernel.tiles import KTile
from tessera.stdlib.operand_dims import bind_dims, check_divides, promote_tensors
from tessera.types.dtype import f32
from tessera.types.schedule import Schedule

CHUNK = 128
"""Rows of a chunk: a state of 128 x 128 is then as much memory as a chunk of each operand."""
_ROWS = Schedule(block=(CHUNK, 64))
_LEAST_LOG = -100.0
"""The least logarithm of a decay that is summed up: its power is 0 in f32 but for a denormal number."""


# The first pass: the state before each chunk, in the dtype of what it is multiplied with.


@kernel
def chunk_states(
    v: KTile["B*H", "S", "V"],
    k: KTile["B*G", "S", "D"],
    marks: KTile["C", f32],
    out: KTile["B*H", "C", "D", "V"],
    *,
    reverse: bool = False,
) -> None:
    """States of a recurrence that forgets nothing; `marks` has an element for each chunk, and its size alone counts."""
    T = tile.context()
    state = tile.zeros((T.m, T.n), f32)
    for n in tile.steps(v.shape[-2], CHUNK):
        rows, c = _chunk_of(n, marks.shape[-1], reverse)
        tile.store(out, tile.cast(state, k.dtype), c, T.m, T.n)
        state += tile.dot(tile.transpose(tile.load(k, rows, T.m)), tile.load(v, rows, T.n))


@kernel
def decayed_states(
    v: KTile["B*H", "S", "V"],
    k: KTile["B*G", "S", "D"],
    total: KTile["B*H", "C", f32],
    out: KTile["B*H", "C", "D", "V"],
    *,
    reverse: bool = False,
) -> None:
    """States that chunk c multiplies by `exp(total[c])`; rows of `v` have the decay up to the end of their chunk."""
    T = tile.context()
    state = tile.zeros((T.m, T.n), f32)
    for n in tile.steps(v.shape[-2], CHUNK):
        rows, c = _chunk_of(n, total.shape[-1], reverse)
        tile.store(out, tile.cast(state, k.dtype), c, T.m, T.n)
        state = state * tile.exp(tile.load(total, c))
        state += tile.dot(tile.transpose(tile.load(k, rows, T.m)), tile.load(v, rows, T.n))


def _chunk_of(n: Any, chunks: Any, reverse: bool) -> tuple[Any, Any]:
    """The rows and the number of the chunk that a step is at, from the last one on in `reverse`."""
    if not reverse:
        return n, n.start // CHUNK
    start = (chunks - 1) * CHUNK - n.start
    return slice(start, start + CHUNK), chunks - 1 - n.start // CHUNK


# The second pass: all chunks, each with the state before it.


@kernel.schedule(_ROWS)
def chunk_outputs(
    v: KTile["B*H", "S", "V"],
    q: KTile["B*G", "S", "D"],
    k: KTile["B*G", "S", "D"],
    states: KTile["B*H", "C", "D", "V"],
    out: KTile["B*H", "S", "V"],
    *,
    reverse: bool = False,
) -> None:
    """What a chunk reads from the state before it and from its own rows."""
    T = tile.context()
    values = tile.load(v, T.m, T.n)  # the first load has the heads of the grid
    queries = tile.load(q, T.m, slice(None))
    acc = tile.dot(queries, tile.load(states, T.m.start // CHUNK, slice(None), T.n))
    scores = _keep_triangle(tile.dot(queries, tile.transpose(tile.load(k, T.m, slice(None)))), reverse)
    acc = acc + tile.dot(tile.cast(scores, q.dtype), values, scope="block")
    tile.store(out, acc, T.m, T.n)


@kernel.schedule(_ROWS)
def decayed_outputs(
    v: KTile["B*H", "S", "V"],
    q: KTile["B*G", "S", "D"],
    k: KTile["B*G", "S", "D"],
    near: KTile["B*H", "S", f32],
    states: KTile["B*H", "C", "D", "V"],
    out: KTile["B*H", "S", "V"],
    *,
    reverse: bool = False,
) -> None:
    """The same where row i has decayed by `exp(near[i])` since the state before its chunk."""
    T = tile.context()
    tile.store(out, _sum_decayed(q, k, v, near, states, T, reverse), T.m, T.n)


@kernel.schedule(_ROWS)
def decayed_gradients(
    v: KTile["B*H", "S", "V"],
    q: KTile["B*G", "S", "D"],
    k: KTile["B*G", "S", "D"],
    near: KTile["B*H", "S", f32],
    states: KTile["B*H", "C", "D", "V"],
    out: KTile["B*H", "S", "V", f32],
    *,
    reverse: bool = False,
) -> None:
    """`decayed_outputs` in f32: gradients of a decay are differences of them."""
    T = tile.context()
    tile.store(out, _sum_decayed(q, k, v, near, states, T, reverse), T.m, T.n)


def _sum_decayed(q: Any, k: Any, v: Any, near: Any, states: Any, T: Any, reverse: bool) -> Any:
    here, queries = tile.load(near, T.m), tile.load(q, T.m, slice(None))
    acc = tile.dot(queries, tile.load(states, T.m.start // CHUNK, slice(None), T.n)) * tile.exp(here)[:, None]
    scores = tile.dot(queries, tile.transpose(tile.load(k, T.m, slice(None))))
    scores = _keep_triangle(scores * tile.exp(tile.minimum(here[:, None] - here[None, :], 0.0)), reverse)
    return acc + tile.dot(tile.cast(scores, q.dtype), tile.load(v, T.m, T.n), scope="block")


def _keep_triangle(scores: Any, reverse: bool) -> Any:
    """Scores of rows up to each, or from each on in `reverse`."""
    row, column = tile.row_index()[:, None], tile.row_index()[None, :]
    return tile.where(row <= column if reverse else row >= column, scores, 0.0)


@kernel.schedule(Schedule(block=(CHUNK,)))
def chunk_decays(
    g: KTile["B*H", "S", f32],
    marks: KTile["C", f32],
    near: KTile["B*H", "S", f32],
    far: KTile["B*H", "S", f32],
    total: KTile["B*H", "C", f32],
) -> None:
    """Logarithms of decays summed up within chunks: up to each row, from it to the end of its chunk, and of all."""
    T = tile.context()
    rows = tile.load(g, T.m)
    sums, whole = tile.scan(rows, "sum", 0, scope="block"), tile.sum(rows, 0, scope="block")
    tile.store(near, sums, T.m)
    tile.store(far, whole - sums, T.m)
    tile.store(total, whole, T.m.start // CHUNK)


# The two passes as one function with a derivative, which is made of the same.


def _marks(x: Any) -> Any:
    return ops.zeros(((x.shape[-2] + CHUNK - 1) // CHUNK,), f32)


def _with_columns(made: Any, q: Any, v: Any) -> Any:
    """A kernel of the second pass with blocks of columns that fit beside whole rows of `q` and `k`."""
    width, depth = (int(x.shape[-1]) if isinstance(x.shape[-1], int) else 2 * CHUNK for x in (v, q))
    columns = min(CHUNK if depth <= CHUNK else CHUNK // 2, -(-width // 8) * 8)
    return made.with_schedule(Schedule(block=(CHUNK, columns)))


def _attend(q: Any, k: Any, v: Any, reverse: bool) -> Any:
    states = chunk_states(v, k, _marks(v), reverse=reverse)
    return _with_columns(chunk_outputs, q, v)(v, q, k, states, reverse=reverse)


def _attend_forward(q: Any, k: Any, v: Any, reverse: bool) -> tuple[Any, Any]:
    return attend(q, k, v, reverse), (q, k, v)


def _attend_backward(reverse: bool, kept: Any, d_out: Any) -> tuple[Any, ...]:
    q, k, v = kept
    heads = v.shape[1]
    wide_q, wide_k = share_heads(q, heads), share_heads(k, heads)
    dq, dk = attend(d_out, v, wide_k, reverse), attend(v, d_out, wide_q, not reverse)
    return _sum_heads(dq, q), _sum_heads(dk, k), attend(wide_k, wide_q, d_out, not reverse)


attend = custom_vjp(_attend, nondiff_argnums=3)
attend.defvjp(_attend_forward, _attend_backward)


def _attend_decayed(q: Any, k: Any, v: Any, g: Any, reverse: bool, is_wide: bool) -> Any:
    near, far, total = chunk_decays(g, _marks(v))
    near, far = (far, near) if reverse else (near, far)
    scaled = cast(cast(v, f32) * ops.exp(far)[..., None], dtype_of(v))
    states = decayed_states(scaled, k, total, reverse=reverse)
    made = _with_columns(decayed_gradients if is_wide else decayed_outputs, q, v)
    return made(v, q, k, near, states, reverse=reverse)


def _attend_decayed_forward(q: Any, k: Any, v: Any, g: Any, reverse: bool, is_wide: bool) -> tuple[Any, Any]:
    return attend_decayed(q, k, v, g, reverse, is_wide), (q, k, v, g)


def _attend_decayed_backward(reverse: bool, is_wide: bool, kept: Any, d_out: Any) -> tuple[Any, ...]:
    q, k, v, g = kept
    heads, d_out = v.shape[1], cast(d_out, dtype_of(v))
    wide_q, wide_k = share_heads(q, heads), share_heads(k, heads)
    dq = attend_decayed(d_out, v, wide_k, g, reverse, True)
    dk = attend_decayed(v, d_out, wide_q, g, not reverse, True)
    dv = attend_decayed(wide_k, wide_q, d_out, g, not reverse, False)
    later = (cast(wide_q, f32) * dq - cast(wide_k, f32) * dk).sum(axis=-1)
    # The decay of a row counts in what rows from it on read from those before it; over all rows `later` sums to 0.
    before = ops.cumsum(later, axis=-1) - later
    dg = before if reverse else -before
    return _sum_heads(cast(dq, dtype_of(q)), q), _sum_heads(cast(dk, dtype_of(k)), k), dv, dg


attend_decayed = custom_vjp(_attend_decayed, nondiff_argnums=(4, 5))
attend_decayed.defvjp(_attend_decayed_forward, _attend_decayed_backward)


def bound_decay(log_decay: Any) -> Any:
    """Logarithms of decays in f32, held at a least value: a decay of 0 resets the state, and has the slope 0.

    Decays between rows are differences of sums, in which a larger number would leave no digits to the others, and -inf
    none at all.
    """
    return ops.maximum(cast(as_tensor(log_decay), f32), _LEAST_LOG)


def share_heads(x: Any, heads: Any) -> Any:
    """Groups repeated until they are as many as the heads."""
    return x if x.shape[1] == heads else ops.repeat(x, heads // x.shape[1], axis=1)


def _sum_heads(gradient: Any, x: Any) -> Any:
    """The gradient of heads that several shared."""
    groups, heads = x.shape[1], gradient.shape[1]
    if groups == heads:
        return gradient
    apart = ops.reshape(gradient, (gradient.shape[0], groups, heads // groups, *gradient.shape[2:]))
    return apart.sum(axis=2)


# What users call.

FEATURE_MAPS: dict[str, Callable[[Any], Any]] = {
    "elu": lambda x: ops.where(x > 0.0, x + 1.0, ops.exp(ops.minimum(x, 0.0))),
    "relu": ops.relu,
    "exp": ops.exp,
    "softmax": lambda x: ops.softmax(x, axis=-1),
}
"""Functions of queries and keys by name; `elu` is that of Katharopoulos et al., `elu(x) + 1`."""


def linear_attention(
    q: Any,
    k: Any,
    v: Any,
    log_decay: Any = None,
    *,
    feature_map: str | Callable[[Any], Any] | None = None,
    causal: bool = True,
    normalize: bool = False,
    scale: float | None = None,
    eps: float = 1e-6,
) -> Any:
    """Attention without softmax: `out_t = f(q_t) state_t` with `state_t = exp(log_decay_t) state_(t-1) + f(k_t) v_t^T`.

    `q` and `k` are [B, G, S, D], `v` is [B, H, S, V] with G a divisor of H, `log_decay` [B, H, S] or [H] and not above
    0; below -100 it resets the state, as -inf does, and has the gradient 0. `feature_map` is a function, or `"elu"`,
    `"relu"`, `"exp"` or `"softmax"`; `normalize` divides each row by the sum of its weights plus `eps`, and
    `causal=False` lets every row read all. Sums are f32, the state is rounded to the dtype of `q` where it is
    multiplied, once for each chunk of 128 rows; batch and heads change no bit.

    >>> ts.ops.linear_attention(ts.ones((1, 1, 3, 2)), ts.ones((1, 1, 3, 2)), ts.ones((1, 1, 3, 1)))[0, 0, :, 0]
    Tensor([3] f32, [2, 4, 6])
    """
    q, k, v = promote_tensors("linear_attention", q, k, v)
    operands = {"q": (q, "B G S D"), "k": (k, "B G S D"), "v": (v, "B H S V")}
    if log_decay is not None:
        log_decay = bound_decay(log_decay)
        operands["log_decay"] = (log_decay, "H" if len(log_decay.shape) == 1 else "B H S")
    sizes = bind_dims("linear_attention", operands)
    check_divides("linear_attention", "G", "H", sizes)
    map = _find_map(feature_map)
    q, k = (cast(map(x), dtype_of(v)) for x in (q, k))
    q = q if scale is None else cast(cast(q, f32) * scale, dtype_of(v))
    if log_decay is not None and len(log_decay.shape) == 1:
        log_decay = ops.broadcast_to(log_decay[None, :, None], tuple(v.shape[:3]))
    if not causal and log_decay is not None:
        raise ArgumentError(
            "`linear_attention` with `causal=False` has no order of rows, and takes no `log_decay`",
            fix="leave out one of the two",
        )
    out = _weigh(q, k, v, log_decay, causal)
    if not normalize:
        return out
    ones = ops.ones((*v.shape[:3], 8), dtype_of(v))  # as many columns as a tensor core takes at least
    weights = cast(_weigh(q, k, ones, log_decay, causal)[..., :1], f32)
    return cast(cast(out, f32) / (weights + eps), dtype_of(v))


def _weigh(q: Any, k: Any, v: Any, log_decay: Any, causal: bool) -> Any:
    """The sum of values by their weights."""
    if not causal:
        heads = v.shape[1]
        return share_heads(q, heads) @ (ops.swapaxes(share_heads(k, heads), -1, -2) @ v)
    if log_decay is None:
        return attend(q, k, v, False)
    return attend_decayed(q, k, v, log_decay, False, False)


def _find_map(feature_map: Any) -> Callable[[Any], Any]:
    if feature_map is None:
        return lambda x: x
    if callable(feature_map):
        return feature_map
    if feature_map not in FEATURE_MAPS:
        raise ArgumentError(
            f"`linear_attention` knows no feature map {feature_map!r}",
            notes=(f"it has {', '.join(repr(name) for name in FEATURE_MAPS)}",),
            fix="give it a function of a tensor",
        )
    return FEATURE_MAPS[feature_map]


def ssd(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any = None, z: Any = None) -> Any:
    """State-space duality (Mamba-2): `state = exp(delta_t a) state + delta_t b_t x_t^T`, `y_t = c_t state + d x_t`.

    `x` is [B, H, S, P], `delta` [B, H, S] and above 0, `a` [H] and below 0, `b` and `c` [B, G, S, N] with G a divisor
    of H, `d` [H]; the result is multiplied by `silu(z)` where `z`, of the shape of `x`, is given. In chunks of 128 rows
    by matmuls, as `linear_attention` is, with its numerics.

    >>> one = ts.ones((1, 1, 3, 1))
    >>> ts.ops.ssd(one, ts.ones((1, 1, 3)), ts.array([-0.6931472]), one, one)[0, 0, :, 0]
    Tensor([3] f32, [1, 1.5, 1.75])
    """
    x, b, c = promote_tensors("ssd", x, b, c)
    delta, a = (cast(as_tensor(value), f32) for value in (delta, a))
    operands: dict[str, tuple[Any, str]] = {
        "x": (x, "B H S P"),
        "delta": (delta, "B H S"),
        "a": (a, "H"),
        "b": (b, "B G S N"),
        "c": (c, "B G S N"),
    }
    if d is not None:
        operands["d"] = (as_tensor(d), "H")
    if z is not None:
        operands["z"] = (as_tensor(z), "B H S P")
    check_divides("ssd", "G", "H", bind_dims("ssd", operands))
    wide, log_decay = cast(x, f32), bound_decay(delta * a[:, None])
    out = attend_decayed(c, b, cast(wide * delta[..., None], dtype_of(x)), log_decay, False, False)
    if d is None and z is None:
        return out
    out = cast(out, f32)
    out = out if d is None else out + cast(as_tensor(d), f32)[:, None, None] * wide
    out = out if z is None else out * ops.silu(cast(as_tensor(z), f32))
    return cast(out, dtype_of(x))
