"""What a function says it returns, checked against what its trace returns."""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import DTypeError, ShapeError
from tessera.diagnostics.span import Span, user_span
from tessera.frontend.annotations import leaf_annotations
from tessera.frontend.fixes import fixes_of
from tessera.frontend.trace_function import TracedFunction
from tessera.frontend.tree import leaf_paths
from tessera.types.annotation import TensorAnnotation
from tessera.types.tensor_type import TensorType


def check_returned(annotation: Any, traced: TracedFunction) -> None:
    """Raise where a tensor is not of the dtype, rank or known sizes that the return annotation declares.

    Nothing is converted: a narrower dtype than was computed must be asked for. Sizes with names are held to them while
    the function is traced, by `returned_sizes`.
    """
    tape, declared = traced.tape, leaf_annotations(annotation, traced.tree)
    for path, slot, wanted in zip(leaf_paths(traced.tree, "result"), traced.slots, declared, strict=True):
        if wanted is not None and slot.output is not None:
            value = tape.outputs[slot.output]
            maker = next((record for record in tape.records if value in record.results), None)
            span, is_made = maker.span if maker else None, maker is not None and len(maker.results) == 1
            check_type(path, tape.types[value], wanted, span or user_span(), is_made=is_made and span is not None)


def check_type(
    path: str, type: TensorType, wanted: TensorAnnotation, span: Span | None, *, is_made: bool = False
) -> None:
    """Raise unless a result has the dtype, the rank and the known sizes that it is declared with.

    `is_made` where the span is that of the expression which makes it.
    """
    notes = (f"the function is declared to return `{wanted}`", f"`{path}` is {type}")
    if wanted.dtype is not None and wanted.dtype is not type.dtype:
        dtype = wanted.dtype
        raise DTypeError(
            f"`{path}` is {type.dtype}, and is declared {dtype}",
            span=span,
            notes=notes,
            fix=lambda span: fixes_of("values").cast_fix(span if is_made else None, path, dtype),
        )
    if wanted.rank != type.rank:
        raise ShapeError(f"`{path}` has {type.rank} dims, and is declared with {wanted.rank}", span=span, notes=notes)
    for axis, (dim, declared) in enumerate(zip(type.shape, wanted.dims, strict=True)):
        if dim.is_static and declared.is_static and dim != declared:
            raise ShapeError(f"`{path}.shape[{axis}] = {dim}`, and is declared {declared}", span=span, notes=notes)
