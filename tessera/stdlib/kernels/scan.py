"""Scan along an axis: each element combined with all before it, in order.

The tensor is seen as [outer, n, inner]. Programs run over `outer` and blocks of `inner`; each has a sequential loop
over `n` that carries one accumulator, a vector along `inner`. The order of the sum is that of the definition, so
results do not depend on the machine; parallelism comes from `outer` and `inner` alone.
"""

from __future__ import annotations

from typing import Any

from xdsl.ir import SSAValue

from tessera.ir.base.op import SpecOp
from tessera.ir.tile.language import Place
from tessera.stdlib.kernels.call import Call, LibraryKernel
from tessera.types.dim import Dim, product
from tessera.types.dtype import DType
from tessera.types.promotion import integer_range

_FUNCTIONS = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def _start(kind: str, dtype: DType) -> Any:
    """The identity of a scan; for sums -0.0, which unlike 0.0 keeps a leading -0.0."""
    if kind in ("sum", "prod"):
        zero = -0.0 if dtype.is_float else 0
        return zero if kind == "sum" else 1
    if dtype.is_float:
        return float("-inf") if kind == "max" else float("inf")
    low, high = integer_range(dtype)
    return low if kind == "max" else high


def _write(call: Call) -> list[SpecOp]:
    """[outer, n, inner]: programs over outer and blocks of inner, a loop over n that carries a scalar or a vector."""
    (x,), (out,) = call.operands, call.results
    axis, kind = int(call.attributes["axis"]) % x.rank, str(call.attributes["kind"])
    outer, count, inner = product(x.shape[:axis]), x.shape[axis], product(x.shape[axis + 1 :])
    width = 1 if inner.value == 1 else call.choose("scan.tile", [times * call.lanes for times in (4, 2, 1, 8)])
    is_vector = inner.value != 1
    shape = (outer, count, inner)
    shapes = {number: shape for number in (*call.inputs, *call.outputs) if number is not None}
    b = call.builder([outer, inner.ceildiv(width)] if is_vector else [outer], shapes=shapes)
    coords = {"_o": b.program_id(0)}
    if is_vector:
        coords["_j"] = b.index(Dim.symbol("_p") * width, {"_p": b.program_id(1)})
    bounds = {} if inner.value is not None and inner.value % width == 0 else {"_j": inner}
    place = Place(coords, ("_j",), (width,), bounds) if is_vector else Place(coords)
    step = Dim.symbol("_k")
    along = count - 1 - step if call.attributes["reverse"] else step
    at = (Dim.symbol("_o"), along, Dim.symbol("_j") if is_vector else Dim.constant(0))
    asked: DType | None = call.attributes.get("accumulate")
    compute = (asked or out.dtype).compute
    narrow = call.narrow_accumulator

    def step_scan(k: SSAValue, carried: list[SSAValue]) -> list[SSAValue]:
        here = place.with_coords(_k=k)
        element = b.cast(b.load(call.input(b, 0), at, here), compute)
        total = b.elementwise(_FUNCTIONS[kind], carried[0], element)
        total = total if narrow is None else b.round(total, format=narrow)
        b.store(b.cast(total, out.dtype), call.output(b, 0), at, here)
        return [total]

    b.loop(b.index(0), b.index(count), 1, step_scan, [b.full(_start(kind, compute), place.sizes, compute)])
    return [b.finish()]


SCAN = LibraryKernel("scan", "Cumulative sum, product, maximum or minimum along an axis, in order.", _write)
