"""Matmuls of a batch as one: columns of small images beside each other, so that they fill register blocks.

An image of 7 by 7 positions has 49 columns, and a register block of four vectors 64 lanes. Columns of all images
together are cut into blocks that are full but for the last. Operands and results are found from the column as they were
from image and column, lane by lane where a vector reaches into the next image.

    batch = [4], n = 49, rhs_offset = 784*_b0 + ... + _n    ->    n = 196, rhs_offset = 784*(_n floordiv 49) + ...
"""

from __future__ import annotations

from xdsl.ir import SSAValue

from tessera.backends.cpu.gemm import FEW_ROWS
from tessera.ir.base.op import SpecOp
from tessera.ir.target.typed_ops import GemmOp, LoadOp, StoreOp
from tessera.ir.tile.lower_to_target import access_pattern
from tessera.types.dim import Dim

_GAIN = 1.1
"""How many times fewer columns are computed at least."""
_DEEPEST_FREE = 256
"""K from which on storing a vector lane by lane is little beside computing it."""
_IMAGE = "_b0"


def fold_images(op: GemmOp, lanes: int, vectors: int) -> None:
    """Fold the batch of a matmul into its columns, where register blocks of `vectors` are then full."""
    sizes = [dim.value for dim in (*op.batch, op.n, op.k, op.m)]
    known = [size for size in sizes if size is not None]
    if len(op.batch) != 1 or len(known) < len(sizes) or op.unit:
        return
    images, columns, k, rows = known
    if images < 2 or rows <= FEW_ROWS or k < _DEEPEST_FREE or columns < 2 * lanes:
        return
    computed = images * _computed(columns, lanes, vectors)
    if computed < _GAIN * _computed(images * columns, lanes, vectors) or not _can_fold(op):
        return
    column = Dim.symbol("_n")
    env = {"_n": column % columns, _IMAGE: column // columns}
    epilogue = op.regions[0].block
    for part in list(epilogue.ops):
        if isinstance(part, LoadOp | StoreOp):
            _fold_access(part, env, epilogue.args[0], images * columns)
    epilogue.erase_arg(epilogue.args[0])
    op.rhs_offset = op.rhs_offset.substitute(env)
    op.rhs_windows = tuple(dim.substitute(env) for dim in op.rhs_windows)
    op.batch, op.n = (), Dim.constant(images * columns)


def _computed(columns: int, lanes: int, vectors: int) -> int:
    """Columns that are computed for so many: whole register blocks, and the last in a power of two of registers."""
    whole, left = divmod(columns, lanes * vectors)
    last = 0 if not left else next(lanes << bit for bit in range(8) if lanes << bit >= left)
    return whole * lanes * vectors + last


def _can_fold(op: GemmOp) -> bool:
    """Whether A is one for all images, and what follows takes image and column for the address of an access only."""
    if any(_IMAGE in dim.symbols for dim in (op.lhs_offset, *op.lhs_windows)):
        return False
    image, _, column, _ = op.regions[0].block.args
    users = [use.operation for value in (image, column) for use in value.uses]
    return all(isinstance(user, LoadOp | StoreOp) and _is_plain(user, image, column) for user in users)


def _is_plain(access: LoadOp | StoreOp, image: SSAValue, column: SSAValue) -> bool:
    """Whether an access names image and column as the maps of operands do, and goes along columns."""
    first = 1 if isinstance(access, LoadOp) else 2
    named = dict(zip(access.coords, access.operands[first:], strict=False))
    is_named = all((value is image) == (name == _IMAGE) for name, value in named.items())
    is_set = isinstance(access, LoadOp) or access.mode == "set"
    return is_named and named.get("_n") is column and access.axes == ("_m", "_n") and is_set


def _fold_access(access: SpecOp, env: dict[str, Dim], image: SSAValue, columns: int) -> None:
    assert isinstance(access, LoadOp | StoreOp)
    first = 1 if isinstance(access, LoadOp) else 2
    places = {value: name for name, value in zip(access.coords, access.operands[first:], strict=False)}
    access.operands = [value for value in access.operands if value is not image]
    access.coords = tuple(name for name in access.coords if name != places.get(image))
    access.offset = access.offset.substitute(env)
    access.windows = tuple(dim.substitute(env) for dim in access.windows)
    access.pattern = access_pattern(access.offset, access.axes)
    bounds = zip(access.guarded, access.bounds, strict=True)
    access.bounds = tuple(Dim.constant(columns) if name == "_n" else bound for name, bound in bounds)
