"""Writing by index: scatter sets, scatter_add adds, both in the order of the indices, so duplicates have one answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tessera.ir.base.arrays import Array, dtype_of, numpy_dtype, round_as
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import (
    FLOATS,
    INTEGERS,
    KEEP,
    ROUND,
    Attribute,
    Attributes,
    Builder,
    Cost,
    InferContext,
    Nondeterminism,
    OpSpec,
    Sample,
)
from tessera.ir.graph.building import Make, cast, check_integer, common_dtype, traffic
from tessera.ir.graph.ops.indexing import (
    CHECKED,
    STORED,
    check_not_empty,
    legal_array,
    legal_indices,
    refuse_outside,
)
from tessera.ir.tile.facets import Library
from tessera.types.dim import product
from tessera.types.dtype import DType
from tessera.types.shape import TensorType, equal_dims, normalize_axis, path, text

NUMBERS = (*FLOATS, *INTEGERS)


def _check_total(ctx: InferContext, op: str, x: TensorType, total: DType | None) -> None:
    """Raises unless sums of floats are kept in a float, and those of integers in the dtype that they have."""
    if total is None or total is x.dtype.compute or (x.dtype.is_float and total.is_float):
        return
    wanted = "a float" if x.dtype.is_float else str(x.dtype.compute)
    raise ctx.fail_dtype(f"`{op}` of {x.dtype} accumulates in {wanted}, not {total}")


def _infer_scatter(op: str) -> Any:
    def infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
        x, indices, updates = types
        check_integer(ctx, op, indices, "indices")
        common_dtype(ctx, op, (x, updates))
        if op == "scatter_add" and x.dtype.is_bool:
            raise ctx.fail_dtype("`scatter_add` adds numbers, got bool", help="cast to i32, or use `scatter`")
        _check_total(ctx, op, x, attributes.get("accumulate"))
        axis = normalize_axis(ctx, op, attributes["axis"], x.rank)
        wanted = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
        if updates.rank != len(wanted):
            raise ctx.fail(
                f"`{op}` into {text(x.shape)} at {text(indices.shape)} needs updates {text(wanted)}, "
                f"got {text(updates.shape)}"
            )
        for own, (left, right) in enumerate(zip(wanted, updates.shape, strict=True)):
            equal_dims(ctx, op, left, right, f"{left} and {path('updates', own, right)}")
        check_not_empty(ctx, op, x.shape[axis], indices)
        return [x]

    return infer


def _decompose_scatter(mode: str) -> Any:
    def decompose(b: Builder, operands: Sequence[Any], attributes: Attributes) -> Any:
        """To [outer, axis, inner]; sums in the dtype floats compute in, rounded once."""
        x, indices, updates = operands
        kind, index = b.type_of(x), b.type_of(indices)
        axis = int(attributes["axis"]) % kind.rank
        outer, inner = product(kind.shape[:axis]), product(kind.shape[axis + 1 :])
        total: DType | None = attributes.get("accumulate")
        compute = (total or kind.dtype).compute if mode == "add" else kind.dtype
        checked = attributes.get("checked")
        legal = legal_indices(b, indices, kind.shape[axis], checked)
        out = b.emit(
            "scatter_rows",
            b.emit("reshape", cast(b, x, compute), shape=(outer, kind.shape[axis], inner)),
            b.emit("reshape", legal, shape=(index.size,)),
            b.emit("reshape", cast(b, updates, compute), shape=(outer, index.size, inner)),
            mode=mode,
            accumulate=total,
            checked=checked,
        )
        return cast(b, b.emit("reshape", out, shape=kind.shape), kind.dtype)

    return decompose


def _infer_rows(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    x, indices, updates = types
    check_integer(ctx, "scatter_rows", indices, "indices")
    common_dtype(ctx, "scatter_rows", (x, updates))
    if (x.rank, indices.rank, updates.rank) != (3, 1, 3):
        raise ctx.fail(
            f"`scatter_rows` needs [outer, axis, inner], [n], [outer, n, inner], got {x}, {indices}, {updates}"
        )
    if attributes["mode"] not in ("set", "add"):
        raise ctx.fail(f"`scatter_rows` has modes set and add, not {attributes['mode']!r}")
    total: DType | None = attributes["accumulate"]
    if total is not None and attributes["mode"] == "set":
        raise ctx.fail_dtype(f"`scatter_rows` that sets adds nothing up, and has no accumulator: got {total}")
    _check_total(ctx, "scatter_rows", x, total)
    if total is not None and total.compute is not x.dtype.compute:
        raise ctx.fail_dtype(f"`scatter_rows` of {x.dtype} keeps its sums in its result, which does not hold {total}")
    for own, left in ((0, x.shape[0]), (1, indices.shape[0]), (2, x.shape[2])):
        equal_dims(
            ctx, "scatter_rows", left, updates.shape[own], f"{left} and {path('updates', own, updates.shape[own])}"
        )
    return [x]


def scatter_rows_reference(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    mode: str,
    accumulate: DType | None = None,
    checked: Any = None,
    in_place: bool = False,
) -> Array:
    """One index after the other, wherever they are; a narrow accumulator rounds what was added to, and nothing else."""
    refuse_outside(checked, indices, x.shape[1])
    out = x.copy()
    narrow = None if accumulate is None or accumulate.compute is accumulate else accumulate
    with np.errstate(over="ignore", invalid="ignore"):
        for number, row in enumerate(indices):
            made = updates[:, number] if mode == "set" else out[:, row] + updates[:, number]
            out[:, row] = made if narrow is None else round_as(made, narrow).astype(x.dtype)
    return out


def _scatter_values(
    x: Array, indices: Array, updates: Array, axis: int, mode: str, accumulate: DType | None = None
) -> Array:
    axis %= x.ndim
    shape = (
        int(np.prod(x.shape[:axis], dtype=np.int64)),
        x.shape[axis],
        int(np.prod(x.shape[axis + 1 :], dtype=np.int64)),
    )
    compute = numpy_dtype((accumulate or dtype_of(x)).compute) if mode == "add" else x.dtype
    wide, added = x.astype(compute), updates.astype(compute)
    flat = legal_array(indices, x.shape[axis]).reshape(-1)
    rows = added.reshape(shape[0], flat.size, shape[2])
    out = scatter_rows_reference(wide.reshape(shape), flat, rows, mode=mode, accumulate=accumulate)
    return round_as(out.reshape(x.shape), dtype_of(x))


def scatter_reference(x: Array, indices: Array, updates: Array, *, axis: int = 0) -> Array:
    """Of equal indices the last one is kept."""
    return _scatter_values(x, indices, updates, axis, "set")


def scatter_add_reference(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    axis: int = 0,
    ordered: bool = True,
    accumulate: DType | None = None,
) -> Array:
    """Updates of equal indices add up in order, in f32, rounded once; in that order also where any would do."""
    return _scatter_values(x, indices, updates, axis, "add", accumulate)


def _find_unordered(attributes: Attributes) -> Nondeterminism | None:
    if attributes["ordered"]:
        return None
    return Nondeterminism(
        "it adds updates in the order in which threads come to them",
        "leave `ordered=False` out, or call it within `with tessera.effects.ordered():`",
        r",\s*ordered\s*=\s*False",
    )


def _cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
    return Cost(operands[2].size, traffic(operands, results))


def _write_sample(shape: Sequence[int], indices: Sequence[int], axis: int, low: int = -3, high: int = 4) -> Make:
    def make(rng: np.random.Generator) -> Sequence[Array]:
        updates = (*shape[:axis], *indices, *shape[axis + 1 :])
        return [
            rng.standard_normal(tuple(shape)).astype(np.float32),
            rng.integers(low, high, tuple(indices), dtype=np.int64),
            rng.standard_normal(updates).astype(np.float32),
        ]

    return make


SAMPLES = (
    Sample("rows", _write_sample((5, 4), (7,), 0)),
    Sample("columns", _write_sample((3, 6), (2, 4), 1), {"axis": -1}),
    Sample("one", _write_sample((5, 3), (), 0)),
    Sample("none", _write_sample((5, 3), (0,), 0)),
    Sample("outside", _write_sample((4, 2), (9,), 0, -9, 9)),
)


AXIS = Attribute("axis", "int", 0, "the axis that is indexed")
ACCUMULATE = Attribute("accumulate", "dtype", None, "dtype of the running sums; default f32 (f64 for f64), integers")
ORDERED = Attribute("ordered", "bool", True, "in the order of the indices; without it, runs may differ")


IN_PLACE = Attribute("in_place", "bool", False, "the result is in the memory of `x`: only the rows are written")


def _writer(name: str, summary: str, mode: str, reference: Any, dtypes: tuple[str, ...]) -> OpSpec:
    return OpSpec(
        name=f"tgraph.{name}",
        summary=summary,
        operands=("x", "indices", "updates"),
        attributes=(AXIS, ORDERED, ACCUMULATE) if mode == "add" else (AXIS,),
        infer=_infer_scatter(name),
        reference=reference,
        nondeterminism=_find_unordered if mode == "add" else None,
        samples=SAMPLES,
        dtypes=dtypes,
        cost=_cost,
        decompose=_decompose_scatter(mode),
        takes_positions=True,
        policy=ROUND if mode == "add" else KEEP,
        interval=ANYTHING,
    )


SPECS: tuple[OpSpec, ...] = (
    _writer(
        "scatter",
        "`x` with slices of an axis replaced; of equal indices the last is kept; indices follow the rule of `take`.",
        "set",
        scatter_reference,
        STORED,
    ),
    _writer(
        "scatter_add",
        "`x` with updates added to slices of an axis, in the order of the indices, in f32 and rounded once.",
        "add",
        scatter_add_reference,
        NUMBERS,
    ),
    OpSpec(
        name="tgraph.scatter_rows",
        summary="x[:, indices[i]] = updates[:, i], or +=, for i in order, at legal indices.",
        operands=("x", "indices", "updates"),
        attributes=(Attribute("mode", "str", doc="set or add"), ACCUMULATE, CHECKED, IN_PLACE),
        infer=_infer_rows,
        reference=scatter_rows_reference,
        samples=(
            Sample("set", _write_sample((2, 5, 3), (4,), 1, low=0), {"mode": "set"}),
            Sample("add", _write_sample((1, 5, 7), (40,), 1, low=0), {"mode": "add"}),
        ),
        dtypes=("f32", "f64", *INTEGERS),
        cost=_cost,
        lower=Library("scatter", overwrites=0),
        policy=KEEP,
        interval=ANYTHING,
    ),
)
