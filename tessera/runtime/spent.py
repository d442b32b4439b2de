"""What is said of tensors that were given up to a call."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.diagnostics.codes import DonatedError
from tessera.types.dtype import DType


def donated_error(shape: Sequence[int], dtype: DType) -> DonatedError:
    """A tensor is used that was given up."""
    return DonatedError(
        f"a tensor {list(shape)} {dtype} is used that was given up to a call, which may have written over it",
        notes=("rule: arguments that `donate` names belong to the call, and its results to the caller",),
        fix="use what the call returned in its place, or leave the argument out of `donate`",
    )
