"""Calling a kernel that a user wrote: an op like any other, with a shape rule, a reference, and its own lowering."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.arrays import Array
from tessera.ir.base.dispatch import KERNELS, UserKernel
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import KEEP, Attribute, Attributes, Cost, InferContext, Nondeterminism, OpSpec
from tessera.ir.graph.building import traffic
from tessera.ir.tile.facets import Library
from tessera.types.dim import Dim
from tessera.types.effect import ALL
from tessera.types.shape import TensorType


def _infer(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    found = KERNELS.get(attributes["kernel"])
    if found is None:
        name = str(attributes["kernel"]).split(":")[0]
        raise ctx.fail(f"there is no kernel `{name}` in this process", help="import the module that defines it")
    outcome = found.outcome(types)
    for left, right, what in outcome.equalities:
        ctx.equal(left, right, what)
    return outcome.results


def kernel_of(attributes: Attributes) -> UserKernel:
    """The kernel that a call names."""
    return KERNELS[attributes["kernel"]]


def kernel_reference(*arrays: Array, kernel: str, vjp: str = "") -> tuple[Array, ...]:
    """What the kernel gives, run program by program on NumPy."""
    return KERNELS[kernel].reference(arrays)


def _cost(operands: Sequence[TensorType], results: Sequence[TensorType], attributes: Attributes) -> Cost:
    return Cost(sum((result.size for result in results), Dim.constant(0)), traffic(operands, results))


def _effects(attributes: Attributes) -> frozenset[str]:
    """A kernel draws or computes; one that nobody here knows may do anything."""
    kernel = KERNELS.get(attributes["kernel"])
    if kernel is None:
        return ALL
    return frozenset({"random"}) if getattr(getattr(kernel, "definition", None), "is_random", False) else frozenset()


def _find_atomics(attributes: Attributes) -> Nondeterminism | None:
    definition: Any = getattr(KERNELS.get(attributes["kernel"]), "definition", None)
    if not getattr(definition, "is_unordered", False):
        return None
    return Nondeterminism(
        f"kernel `{definition.name}` adds with `atomic_add`, in the order in which its programs come",
        "let one program own each cell and accumulate in it, or call the kernel outside of the deterministic scope",
    )


SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.kernel_call",
        summary="The results of a kernel written in the kernel language.",
        operands=("operands*",),
        results=("results*",),
        attributes=(
            Attribute("kernel", "str", doc="its name, and a digest of what it computes"),
            Attribute("vjp", "str", "", "the function that gives its derivative; empty where it has none"),
        ),
        infer=_infer,
        reference=kernel_reference,
        nondeterminism=_find_atomics,
        more_effects=_effects,
        cost=_cost,
        lower=Library("user_kernel"),
        policy=KEEP,
        interval=ANYTHING,
    ),
)
