"""Symbolic dims that a kernel inside `jit` holds in one tile: specialized per bucket of sizes, or per size.

The size of a tile is static. Where a kernel takes a whole row of symbolic length, the jitted function is specialized
for a bucket of lengths: tiles have the largest length of the bucket, and elements beyond the end of a row are masked,
as they are at any edge. Reductions are halving trees, and identities fill their tails, so that all buckets give the
same bits. Where a kernel computes with the length itself as a Python number, each length is a specialization of its
own.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from tessera.diagnostics.codes import KernelError
from tessera.frontend.bind import Call, Signature, input_types
from tessera.types.dim import Dim, next_power_of_two
from tessera.types.shape import TensorType

LEAST = 16
"""Elements of the smallest bucket: one CPU vector of f32 in AVX-512."""
DOUBLING = 256
"""Up to here buckets are powers of two; above, there are four to each doubling, so that at most a fifth is masked."""


def bucket_of(size: int) -> int:
    """The smallest bucket that holds a size.

    >>> [bucket_of(size) for size in (1, 100, 256, 257, 400, 1000)]
    [16, 128, 256, 320, 448, 1024]
    """
    if size <= DOUBLING:
        return max(LEAST, next_power_of_two(size))
    step = next_power_of_two(size) // 8
    return -(-size // step) * step


def below(bucket: int) -> int:
    """The largest size of the bucket before.

    >>> [below(bucket) for bucket in (16, 128, 320, 1024)]
    [0, 64, 256, 896]
    """
    if bucket <= LEAST:
        return 0
    return bucket // 2 if bucket <= DOUBLING else bucket - next_power_of_two(bucket) // 8


class NeedsNumber(Exception):  # noqa: N818 - a request, which the front end answers
    """Raised where a dim must be static, as the size of a tile is: the front end specializes it and starts again."""

    def __init__(self, dim: Dim, *, is_row: bool = False) -> None:
        """`is_row` says that it is the length of a tile alone: a longer tile, masked at the end, will do."""
        super().__init__(str(dim))
        self.dim, self.is_row, self.kernel = dim, is_row, ""


_LARGEST: ContextVar[Mapping[str, int] | None] = ContextVar("row buckets", default=None)


@contextmanager
def specialize_rows(signature: Signature) -> Generator[None]:
    """Within it, kernels may ask for dims of the signature as numbers."""
    token = _LARGEST.set(dict(signature.buckets))
    try:
        yield
    finally:
        _LARGEST.reset(token)


def is_answered() -> bool:
    """Whether a function is being traced that specializes dims that kernels ask for."""
    return _LARGEST.get() is not None


def rows_of(types: Sequence[TensorType]) -> list[tuple[int, int, int]]:
    """Operand, axis, and elements of a tile that holds all of a dim, for dims whose sizes are in buckets."""
    largest = _LARGEST.get() or {}
    return [
        (operand, axis, bucket_of(dim.evaluate(largest)))
        for operand, type in enumerate(types)
        for axis, dim in enumerate(type.shape)
        if dim.symbols and dim.symbols <= largest.keys() and _is_growing(dim)
    ]


def _is_growing(dim: Dim) -> bool:
    """Whether a dim is largest where its symbols are."""
    return all(factor >= 0 and all(atom.kind == "symbol" for atom in monomial) for monomial, factor in dim.terms)


class RowDims:
    """The dims of a function that kernels hold in one tile (`rows`), and those that they need as numbers (`exact`).

    Calls of other threads read both while one adds to them, so that sets are replaced, and never changed.
    """

    def __init__(self) -> None:
        self.rows: frozenset[str] = frozenset()
        self.exact: frozenset[str] = frozenset()

    def refine(self, call: Call) -> Call:
        """The call with those dims static, or in buckets."""
        rows, exact = self.rows, self.exact
        if not rows and not exact:
            return call
        types, _ = input_types(call.signature)
        sizes: dict[str, int] = {}
        for type, tensor in zip(types, call.tensors, strict=True):
            for dim, size in zip(type.shape, tensor.shape, strict=True):
                if dim.symbol_name is not None:
                    sizes.setdefault(dim.symbol_name, size)
        # A row of no elements is no tile, which the kernel says.
        exact |= {name for name in rows if not sizes.get(name)}
        at, leaves = iter(zip(types, call.tensors, strict=True)), list[Any]()
        for leaf in call.signature.leaves:
            leaves.append(leaf if leaf.dtype is None else _with_numbers(leaf, *next(at), exact))
        buckets = sorted((name, bucket_of(sizes[name])) for name in rows - exact if name in sizes)
        signature = replace(call.signature, leaves=tuple(leaves), buckets=tuple(buckets))
        return Call(signature, call.tensors)

    def answer(self, need: NeedsNumber, call: Call) -> Call | None:
        """The call with a dim that a kernel asks for static, or in a bucket; None where its arguments do not decide it.

        Another thread may have added dims since the call was refined: what this one lacks may be among them.
        """
        if not call.tensors:
            return None
        refined = self.refine(call)
        if refined.signature != call.signature:
            return refined
        return self.refine(call) if self.add(need, call.signature) else None

    def add(self, need: NeedsNumber, signature: Signature) -> bool:
        """Take a dim that a kernel asks for into account; False where the sizes of the arguments do not decide it."""
        known = {name for type in input_types(signature)[0] for dim in type.shape for name in dim.symbols}
        if not need.dim.symbols <= known:
            return False
        is_new_row = need.is_row and not need.dim.symbols <= self.rows and _is_growing(need.dim)
        if need.dim.symbols <= (self.rows if is_new_row else self.exact):
            return False
        if is_new_row:
            self.rows |= need.dim.symbols
        else:
            self.exact |= need.dim.symbols
        return True


def _with_numbers(leaf: Any, type: TensorType, tensor: Any, exact: frozenset[str]) -> Any:
    dims = [
        size if dim.symbols and dim.symbols <= exact else declared
        for declared, dim, size in zip(leaf.dims, type.shape, tensor.shape, strict=True)
    ]
    return replace(leaf, dims=tuple(dims))


def free_dim_error(need: NeedsNumber) -> KernelError:
    """The error for a dim that a kernel needs as a number, and that no argument gives."""
    return KernelError(
        f"`{need.kernel}` needs `{need.dim}` as a number, since it is the size of a tile, and here it is free",
        fix="declare that dim with its size, as in `Tensor[..., 128, f32]`",
    )
