"""Programs for whole tensors on a mesh: `partition` makes one rank's program, `shard` says how a value is sharded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tessera.diagnostics.codes import ShardingError
from tessera.frontend.functions.operands import as_tensor, dtype_of, rank_of
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.types.sharding import Sharding


def sharding_of(what: str, given: Any, rank: int) -> Sharding:
    """The sharding that a value stands for: a `Sharding`, its text, an axis or None for each dim, or axes by dim.

    Raises ShardingError (T0307) where it is none, or of another number of dims.
    """
    if given is None:
        return Sharding.whole(rank)
    if isinstance(given, Sharding):
        made = given
    elif isinstance(given, str):
        made = Sharding.parse(given)
    elif isinstance(given, Mapping):
        made = _by_dim(what, cast("Mapping[Any, Any]", given), rank)
    elif isinstance(given, tuple | list):
        made = Sharding.of(*cast("Sequence[Any]", given))
    else:
        raise ShardingError(
            f"{what} is sharded as {given!r}, which is no sharding",
            fix='write `("dp", None)`, `{0: "dp"}` or `Sharding.of("dp", None)`',
        )
    if len(made.dims) != rank:
        raise ShardingError(
            f"{what} has {rank} dims, and its sharding {made} is of {len(made.dims)}",
            fix="give axes, or None, for each dim",
        )
    return made


def _by_dim(what: str, given: Mapping[Any, Any], rank: int) -> Sharding:
    dims: list[Any] = [None] * rank
    for dim, axes in given.items():
        if isinstance(dim, bool) or not isinstance(dim, int) or not -rank <= dim < rank:
            raise ShardingError(f"{what} has dims 0 to {rank - 1}, and its sharding names dim {dim!r}")
        dims[dim] = axes
    return Sharding.of(*dims)


def shard(x: Any, sharding: Any) -> Any:
    """`x`, which is sharded so where the program is partitioned: `shard(y, ("dp", None))`, `shard(y, {0: "dp"})`.

    It computes nothing. `partition` takes it as given, and inserts what brings the value there. Outside a program it is
    `x` as it is.

    Raises: ShardingError (T0307) where it is no sharding of as many dims as `x` has.
    """
    dtype_of(x)
    made = sharding_of("`x` of `shard`", sharding, rank_of(x))
    if dispatch.tracing() is None:
        return as_tensor(x)
    return apply("shard", (x,), {"sharding": str(made)})
