"""Collectives: ops that speak with the other devices along a named axis of the mesh."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tessera.diagnostics.codes import ArgumentError, TracingError
from tessera.diagnostics.span import Span
from tessera.frontend.arguments import whole
from tessera.frontend.functions.operands import axis_of, dtype_of, rank_of
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.ir.base.tape import Tape
from tessera.ir.graph.ops import REGISTRY
from tessera.types.dim import Dim

_REDUCTIONS = ("sum", "prod", "max", "min")
_MESH: ContextVar[dict[str, int] | None] = ContextVar("mesh", default=None)


@contextmanager
def mesh(**sizes: int) -> Generator[None]:
    """Within it, the mesh has these axes: `with mesh(dp=4, tp=2): ...`."""
    for name, size in sizes.items():
        if whole("mesh", name, size) < 1:
            raise ArgumentError(f"`mesh` takes `{name}` from 1, got {size}", fix=f"write `mesh({name}=2)`")
    token = _MESH.set({**(_MESH.get() or {}), **sizes})
    try:
        yield
    finally:
        _MESH.reset(token)


def all_reduce(x: Any, axis: str, op: str = "sum") -> Any:
    """`x` of all devices along mesh axis `axis`, reduced by `op`; every device gets the result."""
    return _collective("all_reduce", x, {"axis": axis, "op": _reduction("all_reduce", op)})


def all_gather(x: Any, axis: str, dim: int = 0) -> Any:
    """`x` of all devices along mesh axis `axis`, joined along `dim`."""
    return _collective("all_gather", x, {"axis": axis, "dim": axis_of("all_gather", dim, rank_of(x))})


def reduce_scatter(x: Any, axis: str, dim: int = 0, op: str = "sum") -> Any:
    """`x` of all devices reduced by `op`, each device keeping its part along `dim`."""
    dim = axis_of("reduce_scatter", dim, rank_of(x))
    return _collective("reduce_scatter", x, {"axis": axis, "dim": dim, "op": _reduction("reduce_scatter", op)})


def all_to_all(x: Any, axis: str, split: int = 0, concat: int = 0) -> Any:
    """Part `i` of `x` along `split` goes to device `i`; what arrives is joined along `concat`."""
    rank = rank_of(x)
    dims = {"split": axis_of("all_to_all", split, rank), "concat": axis_of("all_to_all", concat, rank)}
    return _collective("all_to_all", x, {"axis": axis, **dims})


def axis_index(axis: str) -> Any:
    """The number of this device along mesh axis `axis`."""
    return _on_mesh("axis_index", (), {"axis": axis})


def replicated(x: Any, axis: str) -> Any:
    """`x`, promised to be the same on all devices along mesh axis `axis`, so that it may decide for all of them."""
    dtype_of(x)
    return _on_mesh("replicated", (x,), {"axis": axis})


def _reduction(name: str, op: str) -> str:
    if not isinstance(op, str) or op not in _REDUCTIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TracingError(f"`{name}` has no reduction `{op}`", fix=f"`op` is one of {', '.join(_REDUCTIONS)}")
    return op


def _collective(name: str, x: Any, attributes: dict[str, Any]) -> Any:
    dtype_of(x)
    return _on_mesh(name, (x,), attributes)


def _on_mesh(name: str, operands: tuple[Any, ...], attributes: dict[str, Any]) -> Any:
    if not isinstance(attributes["axis"], str):
        raise TracingError(
            f"`{name}` takes the name of a mesh axis, got {attributes['axis']!r}", fix='write its name: `axis="tp"`'
        )
    axis, sizes = attributes["axis"], _MESH.get() or {}
    if axis not in sizes:
        raise TracingError(
            f"`{name}` speaks along mesh axis `{axis}`, and there is no such axis",
            fix=f"call it within `with tessera.dist.mesh({axis}=...)`",
        )
    if dispatch.tracing() is None:
        raise TracingError(
            f"`{name}` is part of a program: call it in a jitted function", fix="put `@jit` on the function around it"
        )
    return apply(name, operands, {**attributes, "size": (Dim.constant(sizes[axis]),)})


def check_order(tape: Tape) -> None:
    """Raise EffectOrderError (T0302) where ranks could meet the collectives of a program in different orders."""
    from tessera.ir.graph.from_tape import function_of  # noqa: PLC0415 - loads the compiler
    from tessera.ir.graph.uniformity import check_collective_order  # noqa: PLC0415

    check_collective_order(function_of(tape, "main"))


def refuse_to_run(tape: Tape) -> None:
    """Raise where a program needs other processes, which this version does not start."""
    found = other_ranks(tape)
    if found is not None:
        raise TracingError(
            f"{found[0]} cannot run: this version has one process",
            span=found[1],
            notes=("its shapes and types are checked, and `lower` shows its Graph IR",),
        )


def other_ranks(tape: Tape) -> tuple[str, Span | None] | None:
    """The first collective of a program that needs other processes, in words, and where it stands."""
    for record in tape.records:
        if "size" in record.attributes and "collective" in REGISTRY[record.op].effects:
            size = record.attributes["size"][0]
            if size.value != 1:
                return f"`{record.op.split('.', 1)[1]}` over {size} devices", record.span
    return None
