"""Automatic sharding: how each input, op and output of a function is sharded on a mesh so that it takes least time.

The function is traced, `sharding_program.py` says what each op takes under each sharding and each conversion between
them, and `ir/schedule/planning/assignment.py` finds the assignment of least time among all of them: by an integer
program where SciPy is installed, and else by a dynamic program. Both are exact within the model, which knows of
operations and bytes at measured rates, and of collectives on a topology; it does not know of fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, prod
from typing import TYPE_CHECKING, Any

from tessera.api.jit import Jit, jit
from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.arguments import check_callables
from tessera.types.rates import Rates, rates_of
from tessera.types.topology import Topology, topology_of

if TYPE_CHECKING:
    from tessera.api.sharding_program import ShardingChoice

SHARED_MEMORY: Mapping[str, Any] = {"inside": 2.0, "inside_latency": 20_000.0}
"""Links of ranks of one machine, where nobody describes a topology: as order of magnitude, GB/s and nanoseconds."""


def auto_shard(
    function: Callable[..., Any],
    mesh: Mapping[str, int],
    *args: Any,
    topology: Topology | Mapping[str, Any] | None = None,
    rates: Rates | str = "cpu",
    outputs: Mapping[int, str] | None = None,
    memory: float = inf,
    solver: str = "",
    batch: str = "",
    **kwargs: Any,
) -> ShardingChoice:
    """How a function of such arguments is best sharded on a mesh, by a model of bytes and operations.

    `topology` links the ranks (`topology_of` says how it is described), `rates` are what each computes. `outputs`
    names the input that an output is sharded like, as a gradient is like its parameter: `{1: "w"}`. `memory` bounds
    the bytes of all inputs on a rank. `solver` is `milp`, by SciPy, or `dynamic`; without it, SciPy's where it is
    installed. `batch` names the input that a data-parallel plan cuts, to compare with: the first one, or the first that
    `outputs` does not name.

    >>> def mlp(x, up, down):
    ...     return ts.ops.relu(x @ up) @ down
    >>> x, up, down = ts.ones((8, 1024)), ts.ones((1024, 4096)), ts.ones((4096, 1024))
    >>> found = ts.dist.auto_shard(mlp, {"dp": 2, "tp": 2}, x, up, down, memory=20e6)
    >>> found.time < found.naive["replicated"]
    True
    """
    from tessera.api.sharding_program import ShardingProgram  # noqa: PLC0415 - loads the compiler

    check_callables("auto_shard", function=function)
    _check_mesh(mesh)
    jitted = function if isinstance(function, Jit) else jit(function)
    tape = jitted.trace(*args, **kwargs).tape
    described, found = _describe_machine(prod(mesh.values()), topology, rates)
    return ShardingProgram(tape, dict(mesh), described, found, outputs or {}, memory).choose(solver, batch)


def _check_mesh(mesh: Any) -> None:
    sizes: list[Any] = list(mesh.values()) if isinstance(mesh, dict) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if not sizes or not all(type(size) is int and size >= 1 for size in sizes):
        raise ArgumentError(
            f"`auto_shard` takes a mesh of axes and sizes, got {mesh!r}", fix='write `{"dp": 2, "tp": 2}`'
        )


def _describe_machine(
    ranks: int, topology: Topology | Mapping[str, Any] | None, rates: Rates | str
) -> tuple[Topology, Rates]:
    """The links between ranks and what one of them computes; raises ArgumentError (T0202) where they do not fit."""
    if isinstance(topology, Topology):
        described = topology
    else:
        described = topology_of({"devices": ranks, **SHARED_MEMORY, **(topology or {})})
    if described.ranks != ranks:
        raise ArgumentError(
            f"`auto_shard` has a topology of {described.ranks} devices for {ranks} ranks",
            fix=f"describe as many devices as the mesh has ranks: `topology={{'devices': {ranks}}}`",
        )
    found = rates_of(rates) if isinstance(rates, str) else rates
    if found is None:
        raise ArgumentError(
            f"nobody measured rates of `{rates}`", fix="take those of `cpu` or `sm_90a`, or a `Rates` of your own"
        )
    return described, found


alpa_shard = auto_shard
"""Another name of `auto_shard`."""
