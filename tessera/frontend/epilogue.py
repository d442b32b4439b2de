"""`ops.epilogue`: the ops after a matmul, as steps of a chain that is fused into its kernel, or an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tessera.diagnostics.codes import FusionError
from tessera.frontend.arguments import check_sequence
from tessera.frontend.functions import composite, elementwise
from tessera.ir.base import dispatch
from tessera.ir.base.dispatch import apply
from tessera.types.frozen import frozen

ACTIVATIONS = ("relu", "gelu", "silu", "sigmoid", "tanh")


@frozen
class Step:
    """One step: a name, and the function it applies to the value so far."""

    name: str
    apply: Callable[[Any], Any]


def bias(b: Any) -> Step:
    """Add a row to every row."""
    return Step("bias", lambda x: elementwise.add(x, b))


def act(name: str = "relu", **options: Any) -> Step:
    """An activation by name: relu, gelu, silu, sigmoid or tanh."""
    if not isinstance(name, str) or name not in ACTIVATIONS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise FusionError(f"there is no activation `{name}`", fix=f"the activations are {', '.join(ACTIVATIONS)}")
    function: Callable[..., Any] = getattr(elementwise, name)
    return Step("act", lambda x: function(x, **options))


def dropout(rate: float, key: Any) -> Step:
    """Zero a fraction of the elements by a random key, and scale the others up."""
    from tessera.frontend.functions.operands import promote_operands  # noqa: PLC0415 - beside its use
    from tessera.types.promotion import FLOATING  # noqa: PLC0415

    return Step(
        "dropout",
        lambda x: apply("dropout", (*promote_operands("dropout", (x,), FLOATING), key), {"rate": float(rate)}),
    )


def residual(r: Any) -> Step:
    """Add a tensor of the matmul's shape."""
    return Step("residual", lambda x: composite.residual(r, x))


@frozen
class EpilogueChain:
    """Steps in order, to be applied to a matmul inside `jit`."""

    steps: tuple[Step, ...]

    def __call__(self, matmul: Any) -> Any:
        """All steps applied to `matmul`, fused into its kernel.

        Raises: FusionError (T0403) outside of `jit`, and at compile time where they cannot be fused, with the reason.
        """
        if dispatch.active() is None:
            raise FusionError(
                "an epilogue is fused into the kernel of its matmul, and outside of `jit` the matmul has already run",
                fix="call it in a function with `@jit`",
            )
        value = matmul
        for step in self.steps:
            value = step.apply(value)
        return apply("fused", (value, matmul), {})

    def __repr__(self) -> str:
        return f"epilogue.chain([{', '.join(step.name for step in self.steps)}])"


def chain(steps: Sequence[Step]) -> EpilogueChain:
    """Steps that are fused into the kernel of the matmul they are applied to.

    >>> @ts.jit
    ... def linear(x, w, b):
    ...     return ts.ops.epilogue.chain([ts.ops.epilogue.bias(b), ts.ops.epilogue.act("relu")])(x @ w)
    >>> linear(ts.ones((2, 3)), ts.ones((3, 2)), ts.array([-5.0, 1.0]))
    Tensor([2, 2] f32, [[0, 4],
                        [0, 4]])
    """
    for step in check_sequence("chain", "steps", steps):
        if not isinstance(step, Step):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise FusionError(
                f"{type(step).__name__} is not a step of an epilogue",
                fix="the steps are epilogue.bias(b), act(name), dropout(rate, key) and residual(r)",
            )
    return EpilogueChain(tuple(steps))
