"""A5: gradients through collectives: adjoint collectives in IR, and on four ranks those of one."""

# Traced functions are lambdas here, which have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tessera as ts
from tessera import dist, ops
from tessera.diagnostics.codes import DifferentiationError
from tessera.ir.graph.dialect import from_tape
from tests.runtime.ranks import programs
from tests.runtime.ranks.threads import on_ranks

RANKS = 4
RNG = np.random.default_rng(5)
X = RNG.standard_normal((RANKS, 4, 8))
SEED = RNG.standard_normal((RANKS, 128))

COLLECTIVES: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: dist.all_reduce(x, "dp", "sum"),
    "mean": lambda x: dist.all_reduce(x, "dp", "mean"),
    "max": lambda x: dist.all_reduce(x, "dp", "max"),
    "min": lambda x: dist.all_reduce(x, "dp", "min"),
    "all_gather 0": lambda x: dist.all_gather(x, "dp", 0),
    "all_gather 1": lambda x: dist.all_gather(x, "dp", 1),
    "reduce_scatter": lambda x: dist.reduce_scatter(x, "dp", 1),
    "reduce_scatter mean": lambda x: dist.reduce_scatter(x, "dp", 0, "mean"),
    "all_to_all": lambda x: dist.all_to_all(x, "dp", 1, 0),
    "two in a row": lambda x: dist.reduce_scatter(dist.all_gather(x, "dp", 0) ** 2.0, "dp", 0),
    "in a loop": lambda x: ts.scan(lambda c, r: (dist.all_reduce(ops.sin(c + r), "dp", "sum"), ()), x[0], x)[0],
}
ADJOINTS = {
    "sum": ["all_reduce", "all_reduce"],
    "all_gather 0": ["all_gather", "reduce_scatter"],
    "reduce_scatter": ["reduce_scatter", "all_gather"],
    "all_to_all": ["all_to_all", "all_to_all"],
}


def weighted(collective: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """The loss of a rank: its part of a weighted sum, smooth in what it has."""

    def loss(x: Any, seed: Any) -> Any:
        y = collective(ops.sin(x)).reshape((-1,))
        return (y * seed[: y.shape[0]] + y * y).sum()

    return loss


def by_differences(name: str) -> Any:
    """The gradient of the sum of all losses, from what the reference of a batch gives."""
    whole = ts.vmap(weighted(COLLECTIVES[name]), axis_name="dp")
    found, step = np.zeros_like(X), 1e-6
    for at in np.ndindex(2, 4, 3):
        ends = [X.copy(), X.copy()]
        ends[0][at] += step
        ends[1][at] -= step
        up, down = (float(np.asarray(whole(end, SEED)).sum()) for end in ends)
        found[at] = (up - down) / (2 * step)
    return found[:2, :, :3]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a5_a_gradient_on_four_ranks_is_that_of_one(name: str) -> None:
    gradient = ts.jit(ts.grad(weighted(COLLECTIVES[name])))
    found = on_ranks(lambda rank: np.asarray(gradient(X[rank], SEED[rank])), dp=RANKS)
    alone = np.asarray(ts.vmap(ts.grad(weighted(COLLECTIVES[name])), axis_name="dp")(X, SEED))
    np.testing.assert_allclose(np.stack(found), alone, rtol=1e-11, atol=1e-11)
    if name in ("mean", "max", "reduce_scatter mean", "two in a row"):
        np.testing.assert_allclose(alone[:2, :, :3], by_differences(name), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ADJOINTS)
def test_a5_the_adjoint_is_in_the_ir(name: str) -> None:
    def backward(rank: int) -> Any:
        return from_tape(ts.jit(ts.grad(weighted(COLLECTIVES[name]))).trace(X[rank], SEED[rank]).tape)

    kinds = [op.name.removeprefix("tgraph.") for op in on_ranks(backward, dp=RANKS)[0].walk()]
    assert [kind for kind in kinds if kind.startswith("all_") or kind == "reduce_scatter"] == ADJOINTS[name]


@pytest.mark.parametrize(("collective", "kind"), [("all_reduce", "prod"), ("reduce_scatter", "prod"),
                                                   ("reduce_scatter", "max"), ("reduce_scatter", "min")])  # fmt: skip
def test_reductions_of_ranks_without_a_rule_say_so(collective: str, kind: str) -> None:
    with (
        dist.mesh(dp=1),
        pytest.raises(DifferentiationError, match=f"`{collective}` with `{kind}` has no derivative") as caught,
    ):
        ts.jit(ts.grad(lambda x: getattr(dist, collective)(x, "dp", op=kind).sum())).trace(X[0])
    assert caught.value.fix is not None
    assert caught.value.fix.message == "reduce by `sum` or `mean`"


@pytest.mark.slow
def test_a5_weights_that_are_gathered_for_a_layer_have_scattered_gradients() -> None:
    """Sharded weights and data: each rank gets the part of the gradient that is of its weights, over all data."""
    found: list[Any] = ts.dist.run(programs.sharded_gradient, ranks=RANKS)
    w, x, y = programs.layer_data()
    _, whole = ts.value_and_grad(programs.layer_loss)(w, x, y)
    parts = np.split(np.asarray(whole), RANKS)
    for rank, (value, gradient) in enumerate(found):
        np.testing.assert_allclose(np.asarray(gradient), parts[rank], rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(float(value), float(programs.layer_loss(w, x, y)), rtol=1e-10)
