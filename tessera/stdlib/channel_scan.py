"""The selective scan (Mamba): `h_t = exp(delta_t a) h_(t-1) + delta_t x_t b_t`, `y_t = c_t h_t`, and its derivative.

Every channel has N states of its own, so there is nothing for tensor cores: a program has a few channels, all N states
in registers, and goes from the first row to the last. A warp has 16 channels, so that nothing waits for another one.
The order of rows is the recipe: batch, channels and blocks change no bit.

Backwards the adjoint of a state runs from the last row to the first. A sequence is divided into segments of 256 rows
there, which run in parallel: the first pass gives what a segment adds to a state of zeros, and the sum of its steps;
the second goes along the segments, `h = exp(a sum) h + added`; the third computes the rows of all segments. States
are rematerialized: one is kept for every 8 rows, and a program recomputes those between in registers. Sums over
channels are those of blocks of 128, joined in order afterwards, and never atomic.
"""

from __future__ import annotations

from typing import Any

from tessera.api.custom import custom_vjp
from tessera.api.kernel import kernel
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, cast, dtype_of
from tessera.frontend.kernel import language as tile
from tessera.frontend.kernel.tiles import KTile
from tessera.stdlib.operand_dims import bind_dims, promote_tensors
from tessera.types.dtype import f32
from tessera.types.schedule import Schedule

SEGMENT = 256
"""Rows that one program goes through backwards: a batch of 1 with 2048 channels and 4096 rows has 256 programs."""
CHANNELS = 128
"""Channels of a program that goes backwards; sums over channels are sums over such blocks."""
FEW_CHANNELS = 16
"""Channels of a warp that goes through all rows: 8 batches of 2048 channels are 8 warps on a multiprocessor."""
GROUP = 8
"""Rows whose states a program keeps in registers as it goes backwards, 16 states of a channel each."""
_BLOCKS = Schedule(block=(1, CHANNELS))


def _segment_of(segments: Any) -> Any:
    """The number of this program's segment: programs are along a tensor that has an element for each."""
    T = tile.context()
    tile.load(segments, T.m)
    return T.m.start


@kernel.schedule(_BLOCKS)
def segment_totals(
    u: KTile["B", "L", "D"],
    delta: KTile["B", "L", "D", f32],
    a: KTile["N", "D", f32],
    w: KTile["B", "L", "N"],
    segments: KTile["C", f32],
    added: KTile["B", "C", "N", "D", f32],
    span: KTile["B", "C", "D", f32],
    *,
    reverse: bool = False,
) -> None:
    """What each segment adds to a state of zeros, and its sum of steps; in `reverse`, for adjoints."""
    T, segment = tile.context(), _segment_of(segments)
    rates = tile.load(a, slice(None), T.n)
    state, steps = tile.zeros((w.shape[-1], T.n), f32), tile.zeros((T.n,), f32)
    for j in tile.steps(SEGMENT, GROUP):
        for i in range(GROUP):
            t = segment * SEGMENT + (SEGMENT - 1 - j.start - i if reverse else j.start + i)
            step, row = tile.load(delta, t, T.n), tile.load(w, t, slice(None))
            decay, input = tile.exp(rates * step[None, :]), tile.load(u, t, T.n)
            if reverse:
                state = (state + row[:, None] * input[None, :]) * decay
            else:
                state = state * decay + row[:, None] * (input * step)[None, :]
            steps = steps + step
    tile.store(added, tile.per_block(state), segment, slice(None), T.n)
    tile.store(span, tile.per_block(steps), segment, T.n)


@kernel
def segment_starts(
    added: KTile["B", "C", "N", "D", f32],
    span: KTile["B", "C", "D", f32],
    a: KTile["N", "D", f32],
    out: KTile["B", "C", "N", "D", f32],
    *,
    reverse: bool = False,
) -> None:
    """The state before each segment, or in `reverse` the adjoint after it."""
    T = tile.context()
    rates = tile.load(a, T.m, T.n)
    state = tile.zeros((T.m, T.n), f32)
    for j in tile.steps(span.shape[1], 1):
        c = span.shape[1] - 1 - j.start if reverse else j.start
        tile.store(out, state, c, T.m, T.n)
        state = state * tile.exp(rates * tile.load(span, c, T.n)[None, :]) + tile.load(added, c, T.m, T.n)


@kernel.schedule(Schedule(block=(FEW_CHANNELS,), warps=1))
def scan_rows(
    x: KTile["B", "L", "D"],
    delta: KTile["B", "L", "D", f32],
    a: KTile["D", "N", f32],
    b: KTile["B", "L", "N"],
    c: KTile["B", "L", "N"],
    out: KTile["B", "L", "D"],
) -> None:
    """All rows, one after the other, of a few channels."""
    T = tile.context()
    rates = tile.load(a, T.m, slice(None))
    state = tile.zeros((T.m, b.shape[-1]), f32)
    for j in tile.steps(x.shape[1], GROUP):
        for i in range(GROUP):
            t = j.start + i
            step, row = tile.load(delta, t, T.m), tile.load(b, t, slice(None))
            input = (tile.load(x, t, T.m) * step)[:, None]
            state = state * tile.exp(rates * step[:, None]) + row[None, :] * input
            tile.store(out, tile.per_block(tile.sum(state * tile.load(c, t, slice(None))[None, :], 1)), t, T.m)


@kernel.schedule(_BLOCKS)
def scan_states(
    x: KTile["B", "L", "D"],
    delta: KTile["B", "L", "D", f32],
    a: KTile["N", "D", f32],
    b: KTile["B", "L", "N"],
    starts: KTile["B", "C", "N", "D", f32],
    segments: KTile["C", f32],
    groups: KTile["K", f32],
    out: KTile["B", "K", "N", "D", f32],
    *,
    group: int = GROUP,
) -> None:
    """The state before every group of rows."""
    T, segment = tile.context(), _segment_of(segments)
    rates = tile.load(a, slice(None), T.n)
    state = tile.load(starts, segment, slice(None), T.n)
    for j in tile.steps(SEGMENT, group):
        tile.store(out, tile.per_block(state), (segment * SEGMENT + j.start) // group, slice(None), T.n)
        for i in range(group):
            t = segment * SEGMENT + j.start + i
            state = _advance(state, *_row(x, delta, b, t, T), rates)


def _row(x: Any, delta: Any, b: Any, t: Any, T: Any) -> tuple[Any, Any, Any]:
    """The input, the step and the weights of a row."""
    return tile.load(x, t, T.n), tile.load(delta, t, T.n), tile.load(b, t, slice(None))


def _advance(state: Any, x: Any, step: Any, b: Any, rates: Any) -> Any:
    """The state after a row."""
    return state * tile.exp(rates * step[None, :]) + b[:, None] * (x * step)[None, :]


@kernel.schedule(_BLOCKS.with_warps(8))
def scan_gradients(
    x: KTile["B", "L", "D"],
    delta: KTile["B", "L", "D", f32],
    a: KTile["N", "D", f32],
    b: KTile["B", "L", "N"],
    c: KTile["B", "L", "N"],
    d_out: KTile["B", "L", "D"],
    states: KTile["B", "K", "N", "D", f32],
    ends: KTile["B", "C", "N", "D", f32],
    segments: KTile["C", f32],
    blocks: KTile["P", f32],
    dx: KTile["B", "L", "D", f32],
    d_delta: KTile["B", "L", "D", f32],
    da: KTile["B", "C", "N", "D", f32],
    db: KTile["B", "P", "L", "N", f32],
    dc: KTile["B", "P", "L", "N", f32],
    *,
    group: int = GROUP,
) -> None:
    """Gradients of a segment from its last row to its first; those of `b` and `c` for each block of channels."""
    T, segment = tile.context(), _segment_of(segments)
    rates = tile.load(a, slice(None), T.n)
    adjoint = tile.load(ends, segment, slice(None), T.n)
    slopes = tile.zeros((b.shape[-1], T.n), f32)
    for j in tile.steps(SEGMENT, group):
        first = segment * SEGMENT + (SEGMENT - group - j.start)
        before = (tile.load(states, first // group, slice(None), T.n),)
        for i in range(group - 1):
            before = before + (_advance(before[i], *_row(x, delta, b, first + i, T), rates),)  # noqa: RUF005 - the language has no stars
        for i in range(group - 1, -1, -1):
            t = first + i
            input, step, row = _row(x, delta, b, t, T)
            slope, column = tile.load(d_out, t, T.n), tile.load(c, t, slice(None))
            adjoint = adjoint + column[:, None] * slope[None, :]
            tile.store(
                dc,
                tile.sum(_advance(before[i], input, step, row, rates) * slope[None, :], 1, scope="block"),
                T.n.start // CHANNELS,
                t,
                slice(None),
            )
            tile.store(
                db, tile.sum(adjoint * (input * step)[None, :], 1, scope="block"), T.n.start // CHANNELS, t, slice(None)
            )
            inner = tile.sum(adjoint * row[:, None], 0)
            adjoint = adjoint * tile.exp(rates * step[None, :])
            through = adjoint * before[i]
            tile.store(dx, tile.per_block(inner * step), t, T.n)
            tile.store(d_delta, tile.per_block(inner * input + tile.sum(through * rates, 0)), t, T.n)
            slopes = slopes + through * step[None, :]
    tile.store(da, tile.per_block(slopes), segment, slice(None), T.n)


# The passes as one function with a derivative.


def _count(extent: Any, size: Any) -> Any:
    """A tensor with an element for each block of so many."""
    return ops.zeros(((extent + size - 1) // size,), f32)


def _starts(u: Any, delta: Any, a: Any, w: Any, *, reverse: bool) -> tuple[Any, Any]:
    """The states before segments, or adjoints after them; and the tensor that programs are along."""
    segments = _count(u.shape[1], SEGMENT)
    added, span = segment_totals(u, delta, a, w, segments, reverse=reverse)
    return segment_starts(added, span, a, reverse=reverse), segments


@custom_vjp
def scan_channels(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
    """The scan itself, with `a` as [N, D]."""
    return scan_rows(x, delta, ops.transpose(a), b, c)


def _scan_forward(x: Any, delta: Any, a: Any, b: Any, c: Any) -> tuple[Any, Any]:
    return scan_channels(x, delta, a, b, c), (x, delta, a, b, c)


def _scan_backward(kept: Any, d_out: Any) -> tuple[Any, ...]:
    x, delta, a, b, c = kept
    states = a.shape[0]
    group = GROUP if states <= 16 else GROUP // 2 if states <= 32 else GROUP // 4
    starts, segments = _starts(x, delta, a, b, reverse=False)
    ends, _ = _starts(d_out, delta, a, c, reverse=True)
    before = scan_states(x, delta, a, b, starts, segments, _count(x.shape[1], group), group=group)
    blocks = _count(x.shape[2], CHANNELS)
    dx, d_delta, da, db, dc = scan_gradients(x, delta, a, b, c, d_out, before, ends, segments, blocks, group=group)
    db, dc = (cast(one.sum(axis=1), dtype_of(b)) for one in (db, dc))
    return cast(dx, dtype_of(x)), d_delta, da.sum(axis=(0, 1)), db, dc


scan_channels.defvjp(_scan_forward, _scan_backward)


def selective_scan(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any = None, z: Any = None) -> Any:
    """The scan of Mamba: `h_t = exp(delta_t a) h_(t-1) + delta_t x_t b_t`, `y_t = c_t h_t + d x_t`, by `silu(z)`.

    `x`, `delta` and `z` are [B, L, D], `a` is [D, N] and below 0, `b` and `c` are [B, L, N], `d` is [D]. States are
    f32, and so are `delta`, `a` and `d`; the result has the dtype of `x`. Rows are computed in order: bits are the same
    for any batch and any number of channels.

    >>> one = ts.ones((1, 3, 1))
    >>> ts.ops.selective_scan(one, one, ts.array([[-0.6931472]]), one, one)[0, :, 0]
    Tensor([3] f32, [1, 1.5, 1.75])
    """
    x, b, c = promote_tensors("selective_scan", x, b, c)
    delta, a = (cast(as_tensor(value), f32) for value in (delta, a))
    rows = "B L D"
    operands: dict[str, tuple[Any, str]] = {"x": (x, rows), "delta": (delta, rows), "a": (a, "D N")}
    operands |= {"b": (b, "B L N"), "c": (c, "B L N")}
    operands |= {} if d is None else {"d": (as_tensor(d), "D")}
    operands |= {} if z is None else {"z": (as_tensor(z), rows)}
    bind_dims("selective_scan", operands)
    out = scan_channels(x, delta, ops.transpose(a), b, c)
    if d is None and z is None:
        return out
    out = cast(out, f32)
    out = out if d is None else out + cast(as_tensor(d), f32) * cast(x, f32)
    out = out if z is None else out * ops.silu(cast(as_tensor(z), f32))
    return cast(out, dtype_of(x))
