"""The gated delta rule in chunks: `state = decay (state - beta k k^T state) + beta k v^T`, `out = q state`.

A row writes what its key does not read yet, so the rows of a chunk depend on each other. In the WY form that is one
triangular system for each chunk: with `M` below the diagonal, `M_ij = beta_i decay_ij (k_i k_j)`, the values that a
chunk of 64 rows writes are `u - w state`, where `(I + M) [u, w] = beta [v, k]`. What is left are matmuls over all
chunks, and one chain: `state = decay state - (k^T w) state + k^T u` from chunk to chunk.

Two kernels are written here, each with its derivative: the inverse of unit triangular matrices, by substitution (a
series of powers would lose all digits where keys are alike), and the chain, whose state is the A operand of a dot and
stays in registers. The rest is ops of the graph, which have their derivatives.
"""

from __future__ import annotations

from typing import Any

from tessera.api.custom import custom_vjp
from tessera.api.kernel import kernel
from tessera.diagnostics.codes import ShapeError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of
from tessera.frontend.kernel import language as tile
from tessera.frontend.kernel.tiles import KTile
from tessera.stdlib.chunked_attention import bound_decay, share_heads
from tessera.stdlib.operand_dims import bind_dims, check_divides, promote_tensors
from tessera.types.dtype import f32

CHUNK = 64
"""Rows of a chunk: the substitution has as many steps, one after the other."""
_HIDDEN = -1e30
"""A logarithm whose power is 0, and whose derivative is 0 and not NaN."""


@kernel
def invert_unit_triangle(m: KTile["M", "L", "L", f32], out: KTile["M", "L", "L", f32]) -> None:
    """`(I + m)^-1` of matrices that are 0 on the diagonal and above it, row after row."""
    T = tile.context()
    index = tile.col_index(T.d)
    inverse = tile.zeros((T.d, T.d), f32)
    for i in tile.steps(CHUNK, 1):
        below = tile.load(m, i.start, slice(None))
        row = tile.where(index == i.start, 1.0, 0.0) - tile.sum(below[:, None] * inverse, 0)
        inverse = tile.where((index == i.start)[:, None], row[None, :], inverse)
    tile.store(out, inverse, slice(None), slice(None))


@kernel
def chain_states(
    added: KTile["B*H", "C", "V", "K"],
    moved: KTile["B*H", "C", "K", "K"],
    decay: KTile["B*H", "C", f32],
    out: KTile["B*H", "C", "V", "K"],
    *,
    reverse: bool = False,
) -> None:
    """`state = decay[c] state - state moved[c]^T + added[c]`: the state before each chunk.

    In `reverse`, from the last chunk on and without the transpose, which is the adjoint.
    """
    T = tile.context()
    state = tile.zeros((T.m, T.d), f32)
    for j in tile.steps(decay.shape[-1], 1):
        c = decay.shape[-1] - 1 - j.start if reverse else j.start
        narrow = tile.cast(state, added.dtype)
        tile.store(out, narrow, c, T.m, T.d)
        matrix = tile.load(moved, c, slice(None), slice(None))
        change = tile.dot(narrow, matrix if reverse else tile.transpose(matrix))
        state = state * tile.load(decay, c) - change + tile.load(added, c, T.m, T.d)


@custom_vjp
def invert_triangles(m: Any) -> Any:
    """`invert_unit_triangle` with its derivative, of matrices in any dims."""
    return ops.reshape(invert_unit_triangle(ops.reshape(m, (-1, CHUNK, CHUNK))), tuple(m.shape))


def _invert_forward(m: Any) -> tuple[Any, Any]:
    inverse = invert_triangles(m)
    return inverse, inverse


def _invert_backward(inverse: Any, d_out: Any) -> tuple[Any]:
    across = ops.swapaxes(inverse, -1, -2)
    return (-(across @ d_out @ across),)


invert_triangles.defvjp(_invert_forward, _invert_backward)


def _chain(added: Any, moved: Any, decay: Any, reverse: bool) -> Any:
    return chain_states(added, moved, decay, reverse=reverse)


def _chain_forward(added: Any, moved: Any, decay: Any, reverse: bool) -> tuple[Any, Any]:
    states = chain(added, moved, decay, reverse)
    return states, (states, moved, decay)


def _chain_backward(reverse: bool, kept: Any, d_out: Any) -> tuple[Any, ...]:
    states, moved, decay = kept
    adjoints = chain(d_out, moved, decay, not reverse)
    first, second = (states, adjoints) if reverse else (adjoints, states)
    d_moved = -(ops.swapaxes(first, -1, -2) @ second)
    d_decay = (cast(adjoints, f32) * cast(states, f32)).sum(axis=(-1, -2))
    return adjoints, cast(d_moved, dtype_of(moved)), d_decay


chain = custom_vjp(_chain, nondiff_argnums=3)
chain.defvjp(_chain_forward, _chain_backward)


def gated_delta_rule(q: Any, k: Any, v: Any, beta: Any, log_decay: Any = None, *, scale: float | None = None) -> Any:
    """`state_t = exp(log_decay_t) (I - beta_t k_t k_t^T) state_(t-1) + beta_t k_t v_t^T`, `out_t = q_t state_t`.

    `q` and `k` are [B, G, S, K], `v` is [B, H, S, V] with G a divisor of H, `beta` and `log_decay` are [B, H, S]; keys
    are of length 1 and `beta` is in 0..1 where the state is to stay bounded. Without `log_decay` it is the delta
    rule; one below -100 resets the state, as -inf does.
    In chunks of 64 rows by matmuls; sums and the state are f32, what is multiplied has the dtype of `v`.

    >>> one = ts.ones((1, 1, 3, 1))
    >>> ts.ops.gated_delta_rule(one, one, one, ts.full((1, 1, 3), 0.5))[0, 0, :, 0]
    Tensor([3] f32, [0.5, 0.75, 0.875])
    """
    q, k, v = promote_tensors("gated_delta_rule", q, k, v)
    beta = cast(as_tensor(beta), f32)
    g = ops.zeros(tuple(beta.shape), f32) if log_decay is None else bound_decay(log_decay)
    operands = {"q": (q, "B G S K"), "k": (k, "B G S K"), "v": (v, "B H S V"), "beta": (beta, "B H S")}
    sizes = bind_dims("gated_delta_rule", {**operands, "log_decay": (g, "B H S")})
    check_divides("gated_delta_rule", "G", "H", sizes)
    length = sizes["S"]
    if not isinstance(length, int):
        raise ShapeError(
            f"`gated_delta_rule` takes sequences of a known length, got `S` of {length}",
            notes=("rule: rows are padded to whole chunks of 64, at compile time",),
            fix="write a number for the length in the annotation",
        )
    q = q if scale is None else cast(cast(q, f32) * scale, dtype_of(q))
    rows = [_split(share_heads(x, sizes["H"])) for x in (q, k)] + [_split(x) for x in (v, beta, g)]
    out = _read_chunks(*rows)
    return ops.reshape(out, (*out.shape[:2], out.shape[2] * CHUNK, out.shape[4]))[:, :, :length]


def _split(x: Any) -> Any:
    """[B, H, S, ...] as chunks, [B, H, C, L, ...], with zeros after the last row: they write nothing."""
    rows = x.shape[2]
    chunks = (rows + CHUNK - 1) // CHUNK
    padded = ops.pad(x, [(0, chunks * CHUNK - rows) if axis == 2 else (0, 0) for axis in range(len(x.shape))])
    return ops.reshape(padded, (*x.shape[:2], chunks, CHUNK, *x.shape[3:]))


def _read_chunks(q: Any, k: Any, v: Any, beta: Any, g: Any) -> Any:
    """All rows of all chunks."""
    dtype = dtype_of(v)
    sums = ops.cumsum(g, axis=-1)
    last = sums[..., -1:]
    index = ops.arange(CHUNK)
    is_before, is_same = index[:, None] > index[None, :], index[:, None] == index[None, :]
    gaps = sums[..., :, None] - sums[..., None, :]
    past = ops.exp(ops.where(is_before | is_same, gaps, _HIDDEN))
    across = ops.swapaxes(k, -1, -2)
    overlaps = ops.where(is_before, past * beta[..., None] * cast(k @ across, f32), 0.0)
    solve = cast(invert_triangles(overlaps), dtype)
    u = solve @ cast(beta[..., None] * cast(v, f32), dtype)
    w = solve @ cast((beta * ops.exp(sums))[..., None] * cast(k, f32), dtype)
    kept = cast(cast(k, f32) * ops.exp(last - sums)[..., None], dtype)
    written, moved = ops.swapaxes(u, -1, -2) @ kept, ops.swapaxes(kept, -1, -2) @ w
    states = ops.swapaxes(chain(written, moved, ops.exp(last[..., 0]), False), -1, -2)
    scores = cast(past * cast(q @ across, f32), dtype)
    old = cast(cast(q, f32) * ops.exp(sums)[..., None], dtype) @ states
    return cast(cast(old, f32) + cast(scores @ (u - w @ states), f32), dtype)
