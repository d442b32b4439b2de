"""Forms of contractions, convolutions, pooling, what models are made of, random numbers and caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, numpy_dtype
from tessera.ir.base.spec import OpSpec
from tessera.ir.graph.samples import sample_dtype
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import BY_NAME, DType
from tests.numerics.forms import (
    CUBE,
    MATRIX,
    PAIRS,
    Attributes,
    Form,
    Operand,
    Sizes,
    Values,
    constantly,
    everything,
    named,
    numbers,
)

PRODUCTS = named(
    "MKN",
    (1, 1, 1), (1, 7, 1), (7, 1, 5), (3, 0, 4), (0, 3, 4), (4, 3, 0), (2, 3, 5), (5, 8, 13), (6, 16, 16), (7, 17, 33),
    (8, 32, 7), (13, 13, 31), (1, 67, 97), (97, 67, 1), (16, 64, 64), (31, 33, 65), (61, 5, 127), (128, 2, 129),
    (33, 131, 47), (3, 5003, 7), (257, 3, 263),
)  # fmt: skip
"""Matrix products: empty, rows, columns, prime, around the sizes of register blocks, several segments, over 2**16."""


def _typed(dtype: DType, **attributes: Any) -> Attributes:
    """The dtype of the result where arrays cannot say it."""
    return constantly(**attributes, **({"dtype": dt.i4} if dtype is dt.i4 else {}))


def matmul(spec: OpSpec, dtype: DType) -> list[Form]:
    """Matrices in every dtype; lines, batches and broadcast batches in one."""
    typed = _typed(dtype)
    forms = [Form("matrices", (Operand(("M", "K")), Operand(("K", "N"))), PRODUCTS, typed)]
    if dtype.name != sample_dtype(spec):
        return forms
    batches = tuple({**sizes, "A": a, "B": b} for sizes, (a, b) in zip(PRODUCTS[:15:2], PAIRS[2:], strict=False))
    shapes: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
        "row": (("K",), ("K", "N")),
        "column": (("M", "K"), ("K",)),
        "dot": (("K",), ("K",)),
        "batch": (("A", "M", "K"), ("A", "K", "N")),
        "shared": (("A", "M", "K"), ("K", "N")),
        "stretched": (("A", 1, "M", "K"), ("B", "K", "N")),
    }
    for name, (a, b) in shapes.items():
        forms.append(Form(name, (Operand(a), Operand(b)), batches, typed))
    pairs = (("bf16", "f32"), ("f32", "f64"), ("f16", "bf16"), ("i8", "i32"), ("u8", "i16"))
    for left, right in pairs:
        operands = (Operand(("M", "K"), left), Operand(("K", "N"), right))
        forms.append(Form(f"{left} by {right}", operands, PRODUCTS[::3]))
    operands = (Operand(("M", "K")), Operand(("K", "N")))
    for number, more in enumerate(({"accumulate": dt.f64}, {"dtype": dt.f64}, {"dtype": dt.bf16})):
        forms.append(Form(f"numerics {number}", operands, PRODUCTS[::3], constantly(**more)))
    return forms


def dot_general(spec: OpSpec, dtype: DType) -> list[Form]:
    """Batches in the middle, two contracted axes, a turned operand."""
    rows = tuple({**sizes, "B": 1 + number % 4} for number, sizes in enumerate(PRODUCTS[:-1]))
    middle = _typed(dtype, lhs_batch=(1,), rhs_batch=(2,), lhs_contract=(2,), rhs_contract=(1,))
    forms = [
        Form(
            "turned",
            (Operand(("K", "M")), Operand(("N", "K"))),
            PRODUCTS,
            _typed(dtype, lhs_contract=(0,), rhs_contract=(1,)),
        )
    ]
    if dtype.name == sample_dtype(spec):
        two = _typed(dtype, lhs_contract=(1, 2), rhs_contract=(1, 0))
        forms.append(Form("middle", (Operand(("M", "B", "K")), Operand(("N", "K", "B"))), rows, middle))
        forms.append(Form("two", (Operand(("M", "B", "K")), Operand(("K", "B", "N"))), rows, two))
    return forms


EQUATIONS: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...] = (
    ("ij,kj->ki", (("M", "K"), ("N", "K"))),
    ("ij->i", (("M", "K"),)),
    ("i,j->ij", (("M",), ("N",))),
    ("bqd,bkd->bqk", (("B", "M", "K"), ("B", "N", "K"))),
    ("ij,jk,kl->il", (("M", "K"), ("K", "N"), ("N", "B"))),
    ("ii->i", (("M", "M"),)),
)


def einsum(spec: OpSpec, dtype: DType) -> list[Form]:
    """One equation in every dtype, the others in one."""
    rows = tuple({**sizes, "B": 1 + number % 4} for number, sizes in enumerate(PRODUCTS))
    chosen = EQUATIONS if dtype.name == sample_dtype(spec) else EQUATIONS[:1]
    return [
        Form(equation, tuple(map(Operand, dims)), rows if number == 0 else rows[::2], constantly(equation=equation))
        for number, (equation, dims) in enumerate(chosen)
    ]


LINES = named(
    "NCLO",
    *((1 + n % 3, 1 + n % 4, 7 + 5 * n, 1 + (3 * n) % 7) for n in range(18)), (0, 2, 9, 3), (2, 3, 11, 0),
    (3, 2, 16001, 2),
)  # fmt: skip


def conv1d(spec: OpSpec, dtype: DType) -> list[Form]:
    """Plain in every dtype; strides, padding and groups in one."""
    operands = (Operand(("N", "C", "L")), Operand(("O", "C", 3)))
    forms = [Form("padded", operands, LINES, constantly(padding=(1,)))]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("strided", operands, LINES[::3], constantly(stride=(2,), dilation=(2,))))
        forms.append(Form("same", operands, LINES[::3], constantly(padding_mode="same", stride=(3,))))
        deep = (Operand(("N", 4, "L")), Operand((4, 1, 3)))
        forms.append(Form("depthwise", deep, LINES[::4], constantly(groups=4, padding=(2,))))
    return forms


IMAGES = named(
    "NCHWO",
    *((1 + n % 2, 1 + n % 3, 3 + n, 5 + (2 * n) % 13, 1 + n % 5) for n in range(18)), (0, 2, 5, 5, 3), (2, 3, 5, 7, 0),
    (1, 2, 193, 181, 2),
)  # fmt: skip


def conv2d(spec: OpSpec, dtype: DType) -> list[Form]:
    """Padded in every dtype; strides, dilation, groups and uneven padding in one."""
    operands = (Operand(("N", "C", "H", "W")), Operand(("O", "C", 3, 3)))
    forms = [Form("padded", operands, IMAGES, constantly(padding=(1, 1)))]
    if dtype.name == sample_dtype(spec):
        rest = IMAGES[:20:4]
        forms.append(Form("same", operands, rest, constantly(padding_mode="same", stride=(2, 3))))
        forms.append(Form("dilated", operands, rest, constantly(dilation=(2, 1), padding=(2, 2, 0, 1))))
        grouped = (Operand(("N", 4, "H", "W")), Operand((6, 2, 3, 3)))
        forms.append(Form("groups", grouped, rest, constantly(groups=2, padding=(1,))))
        forms.append(Form("points", (operands[0], Operand(("O", "C", 1, 1))), rest))
    return forms


def conv3d(spec: OpSpec, dtype: DType) -> list[Form]:
    """Padded in every dtype; strides and groups in one."""
    operands = (Operand(("N", "C", 4, "H", "W")), Operand(("O", "C", 2, 3, 3)))
    forms = [Form("padded", operands, IMAGES, constantly(padding=(1,)))]
    if dtype.name == sample_dtype(spec):
        grouped = (Operand(("N", 4, 3, "H", "W")), Operand((6, 2, 2, 1, 3)))
        steps = constantly(groups=2, stride=(1, 2, 1), dilation=(2, 1, 1))
        forms.append(Form("groups", grouped, tuple(_but(one, "CO") for one in IMAGES[1:20:4]), steps))
    return forms


def conv_transpose(spec: OpSpec, dtype: DType) -> list[Form]:
    """Strides that leave phases of several taps, of one and of none, cut and grown."""
    spatial = int(spec.short_name[-2])
    sizes = ("L",) if spatial == 1 else ("H", "W") if spatial == 2 else (2, "H", "W")
    rows = LINES if spatial == 1 else IMAGES
    operands = (Operand(("N", "C", *sizes)), Operand(("C", "O", *(3, 2, 3)[:spatial])))
    forms = [Form("strided", operands, rows, constantly(stride=(2,), padding=(1,), output_padding=(1,)))]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("gaps", operands, rows[:18:6], constantly(stride=(4,), dilation=(2,))))
        grouped = (Operand(("N", 4, *sizes)), Operand((4, 3, *(3, 2, 3)[:spatial])))
        less = tuple(_but(one, "CO") for one in rows[:18:6])
        forms.append(Form("groups", grouped, less, constantly(groups=2, stride=(3,), padding=(1,))))
    return forms


def conv_weights(spec: OpSpec, dtype: DType) -> list[Form]:
    """Sums over lines of one segment and of many, grouped and not."""
    one, two = (Dim.of(1),), (Dim.of(2),)
    operands = (Operand(("N", "O", "L")), Operand(("N", "C", "L")))
    window = constantly(taps=(Dim.of(3),), stride=(1,), dilation=(1,), low=one, high=one)
    forms = [Form("plain", operands, LINES, window)]
    if dtype.name == sample_dtype(spec):
        grouped = (Operand(("N", 2, "O", "L")), Operand(("N", 2, "C", "L")))
        more = constantly(taps=(Dim.of(3),), stride=(1,), dilation=(2,), low=two, high=two, grouped=True)
        forms.append(Form("grouped", grouped, (*LINES[3::3], LINES[-1]), more))
    return forms


def conv_windows(spec: OpSpec, dtype: DType) -> list[Form]:
    """Windows over lines, grouped and not."""
    one = (Dim.of(1),)
    operands = (Operand(("O", "C", 3)), Operand(("N", "C", "L")))
    forms = [Form("plain", operands, LINES, constantly(stride=(2,), dilation=(1,), low=one, high=one))]
    if dtype.name == sample_dtype(spec):
        grouped = (Operand((2, "O", "C", 2)), Operand(("N", 2, "C", "L")))
        more = constantly(stride=(1,), dilation=(2,), low=(Dim.of(0),), high=one, grouped=True)
        forms.append(Form("grouped", grouped, LINES[::3], more))
    return forms


def dot_windows(spec: OpSpec, dtype: DType) -> list[Form]:
    """Windows over lines with their channels last, whose positions are rows, columns, or summed."""

    def window(positions: str) -> Any:
        more = {"taps": (Dim.of(3),)} if positions == "k" else {}
        kept = {"stride": (1,), "dilation": (1,), "low": (Dim.of(1),), "positions": positions, **more}

        def attributes(dims: Mapping[str, Dim], dtype: DType) -> Mapping[str, Any]:
            return {**kept, "shape": (dims["L"],)}

        return attributes

    image, weights, summed = Operand(("N", "L", "C")), Operand(("O", 3, "C")), Operand(("N", "L", "O"))
    forms = [Form("rows", (image, weights), LINES, window("rows"))]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("columns", (weights, image), LINES[::3], window("columns")))
        forms.append(Form("summed", (summed, image), LINES[::3], window("k")))
    return forms


def pool(spec: OpSpec, dtype: DType) -> list[Form]:
    """Lines in every dtype, images with padding in one."""
    lines = named("AB", *((a, b + 3) for a, b in PAIRS))
    forms = [Form("lines", (Operand(("A", "B")),), lines, constantly(window=(3,)))]
    if dtype.name == sample_dtype(spec):
        image = (Operand(("N", "C", "H", "W")),)
        steps = constantly(window=(2, 3), stride=(2, 1), padding=(1, 1))
        forms.append(Form("images", image, tuple(_but(sizes, "O") for sizes in IMAGES[::3]), steps))
        same = constantly(window=(3,), padding_mode="same", stride=(2,), dilation=(2,))
        forms.append(Form("same", (Operand(("A", "B")),), lines[::3], same))
    return forms


def _but(sizes: Sizes, names: str) -> Sizes:
    return {own: size for own, size in sizes.items() if own not in names}


def along(spec: OpSpec, dtype: DType) -> list[Form]:
    """Rows in every dtype, other axes in one."""
    forms = [Form("rows", (Operand(("A", "B")),), MATRIX)]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("columns", (Operand(("A", "B")),), MATRIX[::2], constantly(axis=0)))
        forms.append(Form("middle", (Operand(("A", "B", "C")),), CUBE, constantly(axis=1)))
        wild = (Operand(("A", "B"), values=everything),)
        forms.append(Form("wild", wild, MATRIX[::2]))
    return forms


def logsumexp_safe(spec: OpSpec, dtype: DType) -> list[Form]:
    """Over rows and over everything, also of wild numbers."""
    forms = [Form("rows", (Operand(("A", "B")),), MATRIX, constantly(axes=(1,)))]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("all", (Operand(("A", "B")),), MATRIX, constantly(axes=(0, 1), keepdims=True)))
        wild = (Operand(("A", "B"), values=everything),)
        forms.append(Form("wild", wild, MATRIX, constantly(axes=(1,))))
    return forms


def normalisation(spec: OpSpec, dtype: DType) -> list[Form]:
    """With all its parameters in every dtype; fewer, and over two axes, in one."""
    x, weight = Operand(("A", "B")), Operand(("B",))
    count = 2 if spec.short_name == "layernorm_safe" else 1
    forms = [Form("whole", (x, *[weight] * count), MATRIX)]
    if dtype.name == sample_dtype(spec):
        forms.append(Form("bare", (x,), MATRIX[::2], constantly(eps=1e-3)))
        forms.append(Form("two axes", (Operand(("A", "B", "C")),), CUBE, constantly(axis=1)))
    return forms


def _labels(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.integers(-1, 9, shape).astype(numpy_dtype(dtype))


def cross_entropy(spec: OpSpec, dtype: DType) -> list[Form]:
    """Each row, the sum and the mean; labels outside count for nothing."""
    sizes = named("AB", *((a, b) for a, b in PAIRS if b))
    operands = (Operand(("A", "B")), Operand(("A",), "i64", _labels))
    return [
        Form(kind, operands, sizes if kind == "none" else sizes[::2], constantly(reduction=kind))
        for kind in ("none", "mean", "sum")
    ]


HEADS = named(
    "BSTD",
    (1, 1, 1, 1), (2, 3, 3, 8), (1, 7, 7, 16), (2, 5, 9, 8), (1, 6, 4, 4), (3, 1, 17, 32), (1, 13, 13, 7),
    (2, 8, 31, 64), (1, 33, 33, 16), (1, 64, 64, 64), (2, 17, 67, 20), (1, 1, 257, 64), (0, 3, 3, 8), (1, 0, 5, 8),
    (2, 31, 32, 33), (1, 97, 97, 64), (1, 2, 2, 128), (3, 11, 12, 13), (1, 127, 128, 40), (2, 61, 61, 3),
    (1, 130, 520, 64),
)  # fmt: skip


def attention(spec: OpSpec, dtype: DType) -> list[Form]:
    """Causal in every dtype; whole, shared heads and masks in one."""
    q, k = Operand(("B", 2, "S", "D")), Operand(("B", 2, "T", "D"))
    forms = [Form("causal", (q, k, k), HEADS, constantly(causal=True))]
    if dtype.name == sample_dtype(spec):
        shared = Operand(("B", 1, "T", "D"))
        mask = Operand(("S", "T"), "f32")
        forms.append(Form("whole", (q, k, k), HEADS, constantly(scale=0.5)))
        forms.append(Form("shared", (q, shared, shared), HEADS[::2], constantly(causal=True)))
        forms.append(Form("masked", (q, shared, shared, mask), HEADS[::2]))
    return forms


def attention_backward(spec: OpSpec, dtype: DType) -> list[Form]:
    """Causal in every dtype; whole, shared heads and masks in one."""
    q, rows = Operand(("B", 2, "S", "D")), ("B", 2, "S")

    def sums(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
        """Log-sum-exps of so many scores that shares are below one."""
        return rng.uniform(20.0, 24.0, shape).astype(numpy_dtype(dtype))

    forms: list[Form] = []
    for form in attention(spec, dtype):
        k, masks = form.operands[1], form.operands[3:]
        forms.append(replace(form, operands=(q, k, k, q, Operand(rows, values=sums), Operand(rows), *masks)))
    return forms


def attention_backward_keys(spec: OpSpec, dtype: DType) -> list[Form]:
    """The same, where nothing is hidden."""
    forms = attention_backward(spec, dtype)
    return [replace(form, operands=form.operands[:6], attributes=constantly()) for form in forms[:1]]


def attention_tangent(spec: OpSpec, dtype: DType) -> list[Form]:
    """The same, by queries, keys and values."""
    q, rows = Operand(("B", 2, "S", "D")), Operand(("B", 2, "S"), values=_positive)
    forms: list[Form] = []
    for form in attention(spec, dtype):
        k, masks = form.operands[1], form.operands[3:]
        given = (q, k, k, q, rows, *masks, q, k, k)

        def attributes(dims: Mapping[str, Dim], own: DType, form: Form = form) -> Mapping[str, Any]:
            return {**form.attributes(dims, own), "by": (0, 1, 2)}

        forms.append(replace(form, operands=given, attributes=attributes))
    return forms


def _offsets(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Three groups of the 16 rows there are, or of fewer, some of them empty."""
    return np.concatenate([[0], np.sort(rng.integers(0, 17, 3))]).astype(np.int64)


GROUPS = tuple(
    {"K": k, "N": n}
    for k, n in (
        *((0, 3), (3, 0), (1, 1), (1, 7), (7, 1), (2, 3), (5, 5), (8, 16), (16, 8), (13, 17), (17, 13)),
        *((31, 33), (32, 32), (33, 31), (64, 40), (40, 64), (97, 5), (5, 97), (128, 3), (257, 263)),
    )
)


def ragged_dot(spec: OpSpec, dtype: DType) -> list[Form]:
    """Groups of rows, each by its matrix."""
    operands = (Operand((16, "K")), Operand((3, "K", "N")), Operand((4,), "i64", _offsets))
    return [Form("groups", operands, GROUPS)]


def ragged_outer(spec: OpSpec, dtype: DType) -> list[Form]:
    """Groups of rows by groups of rows."""
    operands = (Operand((16, "K")), Operand((16, "N")), Operand((4,), "i64", _offsets))
    return [Form("groups", operands, GROUPS)]


def ragged_blocks(spec: OpSpec, dtype: DType) -> list[Form]:
    """Three blocks: of a group, of another one, and of rows of none."""
    columns = ((0, 1, -1), (0, 5, 14), (5, 14, 16))

    def column(values: tuple[int, ...]) -> Operand:
        return Operand((3,), "i64", lambda rng, shape, dtype: np.array(values, np.int64))

    operands = (Operand((16, "K")), Operand((2, "K", "N")), *map(column, columns))
    return [Form("blocks", operands, GROUPS)]


def cached_attention(spec: OpSpec, dtype: DType) -> list[Form]:
    """Over the filled part of a cache, one query and several."""

    def filled(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
        return np.array(1 + int(rng.integers(0, 4)), np.int64)

    sizes = tuple({**one, "S": min(one["S"], 2), "T": one["T"] + 4} for one in HEADS)
    q, k = Operand(("B", 2, "S", "D")), Operand(("B", 1, "T", "D"))
    length = Operand((), "i64", filled)
    return [
        Form("causal", (q, k, k, length), sizes),
        Form("whole", (q, k, k, length), sizes[::4], constantly(causal=False)),
    ]


def attention_parts(spec: OpSpec, dtype: DType) -> list[Form]:
    """One query, its keys in parts that fit and that do not."""
    q, k = Operand(("B", 4, 1, "D")), Operand(("B", 2, "T", "D"))
    sizes = tuple({"B": one["B"], "T": one["T"], "D": one["D"]} for one in HEADS)
    return [
        Form("parts", (q, k, k), sizes, constantly(keys=16)),
        Form("whole", (q, k, k), sizes[::4], constantly(keys=512)),
    ]


def attention_join(spec: OpSpec, dtype: DType) -> list[Form]:
    """No part, one and many."""
    sizes = tuple({"B": one["B"], "P": one["T"], "D": one["D"]} for one in HEADS)
    rows = ("B", 2, "P")
    operands = (Operand((*rows, "D")), Operand(rows), Operand(rows, values=_positive))
    return [Form("joined", operands, sizes, constantly(dtype=dtype))]


def join_segments(spec: OpSpec, dtype: DType) -> list[Form]:
    """One partial result and many."""
    sizes = tuple({"P": min(max(one["T"], 1), 128), "D": one["D"]} for one in HEADS)
    sizes += ({"P": 3, "D": 0}, {"P": 11, "D": 3001})
    return [Form("joined", (Operand(("P", 2, "D")),), sizes, constantly(dtype=dtype))]


def fma_chain(spec: OpSpec, dtype: DType) -> list[Form]:
    """Two products, whose factors are broadcast to each other."""
    sizes = (*({"B": one["B"], "D": one["D"]} for one in HEADS[:-1]), {"B": 11, "D": 3001})
    operands = (Operand(("B", 1, "D")), Operand((3, "D")), Operand(("B", 3, "D")), Operand(("D",)))
    return [Form("chain", operands, sizes, constantly(accumulate=dtype, dtype=dtype))]


def split_qkv(spec: OpSpec, dtype: DType) -> list[Form]:
    """Equal and shared heads."""
    x = (Operand(("B", "S", "C")),)
    rows = tuple({"B": one["B"], "S": one["S"], "C": 6 * one["D"]} for one in HEADS)
    wide = tuple({"B": one["B"], "S": one["S"], "C": 8 * one["D"]} for one in HEADS[::4])
    return [
        Form("equal", x, rows, constantly(heads=2)),
        Form("shared", x, wide, constantly(heads=4, kv_heads=2)),
    ]


def rotary(spec: OpSpec, dtype: DType) -> list[Form]:
    """Halves and neighbours; angles in f32."""
    sizes = tuple({"B": one["B"], "S": one["S"], "D": 2 * one["D"], "H": one["D"]} for one in HEADS)
    angle = Operand(("S", "H"), "f32", _unit)
    operands = (Operand(("B", 2, "S", "D")), angle, angle)
    return [
        Form("halves", operands, sizes),
        Form("neighbours", operands, sizes[::3], constantly(interleaved=True)),
    ]


def _unit(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return np.cos(rng.uniform(0, 6.3, shape)).astype(numpy_dtype(dtype))


def _positive(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.uniform(0.5, 2.0, shape).astype(numpy_dtype(dtype))


def _key_values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    return rng.integers(0, 2 ** (dtype.bits - 1), shape).astype(numpy_dtype(dtype))


KEY = Operand((2,), "u64", _key_values)
WORDS = Operand((4,), "u32", _key_values)
LIKE = Operand(("A", "B"), "bool", passed=False)


def residual(spec: OpSpec, dtype: DType) -> list[Form]:
    """With and without dropout."""
    x = Operand(("A", "B"))
    return [
        Form("plain", (x, x), MATRIX),
        Form("dropout", (x, x, KEY), MATRIX[::3], constantly(dropout=0.25)),
    ]


def dropout(spec: OpSpec, dtype: DType) -> list[Form]:
    """Some, and none."""
    x = Operand(("A", "B"))
    return [
        Form("some", (x, KEY), MATRIX, constantly(rate=0.3)),
        Form("none", (x, KEY), MATRIX[::7], constantly(rate=0.0)),
    ]


def philox(spec: OpSpec, dtype: DType) -> list[Form]:
    """Counters of every size under one key."""
    counters = Operand(("A", "B"), "u64", _key_values)
    one = Operand((), "u64", _key_values)
    return [Form("counters", (counters, one, one), MATRIX)]


def drawn(spec: OpSpec, dtype: DType) -> list[Form]:
    """Samplers: every dtype they give, by both forms of a key."""
    extra: dict[str, tuple[dict[str, Any], ...]] = {
        "random_bits": tuple({"dtype": BY_NAME[name]} for name in ("u64", "u32", "u16", "u8")),
        "uniform": (
            *({"dtype": BY_NAME[name]} for name in ("f32", "f64", "bf16", "f16")),
            {"low": -3.0, "high": 5.0},
        ),
        "normal": (*({"dtype": BY_NAME[name]} for name in ("f32", "f64", "bf16", "f16")), {"mean": 1.0, "std": 3.0}),
        "bernoulli": ({}, {"p": 0.1}),
    }
    forms: list[Form] = []
    for number, more in enumerate(extra[spec.short_name]):
        label = " ".join(f"{name}={value}" for name, value in more.items()) or "plain"
        key = WORDS if number == 1 else KEY
        sizes = MATRIX if number == 0 else MATRIX[::3]
        forms.append(Form(label, (key, LIKE), sizes, _shaped(more)))
    return forms


def _shaped(more: Mapping[str, Any]) -> Attributes:
    return lambda dims, dtype: {"shape": (dims["A"], dims["B"]), **more}


def fold_key(spec: OpSpec, dtype: DType) -> list[Form]:
    """A key and a number; its shapes are fixed, so twenty keys stand for twenty shapes."""
    data = Operand((), "i64", numbers)
    return [Form("keys", (KEY, data, LIKE), MATRIX)]


CACHES = tuple({**one, "T": one["T"] + 2} for one in HEADS)


def _filled(most: int) -> Values:
    def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
        return np.array(int(rng.integers(0, most)), np.int64)

    return values


def kv_append(spec: OpSpec, dtype: DType) -> list[Form]:
    """Into an empty cache, a filled one, and past its end."""
    store, new = Operand(("B", 2, "T", "D")), Operand(("B", 2, "S", "D"))
    return [Form("rows", (store, store, Operand((), "i64", _filled(4)), new, new), CACHES)]


def kv_write(spec: OpSpec, dtype: DType) -> list[Form]:
    """Into an empty cache, a filled one, and past its end."""
    store, new = Operand(("B", 2, "T", "D")), Operand(("B", 2, "S", "D"))
    return [Form("rows", (store, Operand((), "i64", _filled(4)), new), CACHES)]


def kv_prune(spec: OpSpec, dtype: DType) -> list[Form]:
    """The last rows moved to the front."""
    store = Operand(("B", 2, "T", "D"))
    length = Operand((), "i64", _filled(3))
    return [Form(f"keep {keep}", (store, store, length), CACHES[:: 1 + 3 * keep], constantly(keep=keep))
            for keep in (0, 2)]  # fmt: skip


def kv_move(spec: OpSpec, dtype: DType) -> list[Form]:
    """A cache as it is."""
    store = Operand(("B", 2, "T", "D"))
    return [Form("cache", (store, store, Operand((), "i64", _filled(3))), CACHES)]
