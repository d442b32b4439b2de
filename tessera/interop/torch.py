"""Jitted functions for PyTorch: its tensors go in and come out without copies, and gradients flow where one says how.

Memory is shared by DLPack, on a CPU and on a GPU, where the function runs in PyTorch's current stream. PyTorch is
loaded by the first call, which has its tensors.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tessera.diagnostics.codes import ArgumentError
from tessera.frontend.pytree import as_tuple, is_sequence
from tessera.runtime.tensor import Tensor


class TorchFunction:
    """A jitted function that takes tensors of PyTorch and gives such.

    `derivative`, a jitted function too, takes the arguments, the results and the gradients of the results; it gives a
    gradient for each argument, None for one that has none. Without it, results do not ask for gradients.
    """

    def __init__(self, function: Callable[..., Any], derivative: Callable[..., Any] | None = None) -> None:
        self.function, self.derivative = function, derivative

    def __call__(self, *arguments: Any) -> Any:
        if self.derivative is None:
            return run(self.function, arguments)
        return _bridge().apply(self, *arguments)


def wrap(function: Callable[..., Any], derivative: Callable[..., Any] | None = None) -> TorchFunction:
    """A jitted function as one of PyTorch's tensors; with a `derivative` it is a part of what PyTorch differentiates.

    A tensor that is not contiguous is made so first, which is the only copy there is. Other arguments, numbers say, go
    in as they are, and have no gradient.

    Raises: ArgumentError (T0202) for what is no function; when it is called, for results that are no tensors, and where
    there is no PyTorch.
    """
    for name, given in (("function", function), ("derivative", derivative)):
        if given is not None and not callable(given):
            raise ArgumentError(
                f"`wrap` takes jitted functions, got {given!r} for `{name}`", fix="write `wrap(jit(f))`"
            )
    return TorchFunction(function, derivative)


def run(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """Call a jitted function with what PyTorch has; a tensor, or a tuple of them, comes back."""
    found = _run_on_host(function, arguments)
    made = [_share(one) for one in as_tuple(found)]
    return tuple(made) if is_sequence(found) else made[0]


def _share(result: Any) -> Any:
    """A result as a tensor of PyTorch, in the same memory."""
    if not hasattr(result, "__dlpack__"):
        raise ArgumentError(
            f"a function for PyTorch gives a tensor or a tuple of them, got {type(result).__name__}",
            fix="return tensors, and what else there is from a function of your own around it",
        )
    return _pytorch().from_dlpack(result)


def _pytorch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise ArgumentError(
            "PyTorch is not installed here, and `wrap` gives its tensors",
            fix="install it, as in `pip install torch`, or call the jitted function itself",
        ) from error


def _run_on_host(function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    """What a function gives for PyTorch's tensors, as tensors of ours."""
    torch = _pytorch()
    if not any(isinstance(one, torch.Tensor) and one.is_cuda for one in arguments):
        return function(*[Tensor.of(_whole(one)) if isinstance(one, torch.Tensor) else one for one in arguments])
    from tessera.runtime.devices.cuda.streams import stream  # noqa: PLC0415 - only where there is a device
    from tessera.runtime.devices.cuda.tensor import CudaTensor  # noqa: PLC0415

    # In PyTorch's own stream nobody waits, and memory that it gives away afterwards is used after this.
    with stream(torch.cuda.current_stream().cuda_stream):
        return function(*[CudaTensor.of(_whole(one)) if isinstance(one, torch.Tensor) else one for one in arguments])


def _whole(tensor: Any) -> Any:
    return tensor.detach().contiguous()


@cache
def _bridge() -> Any:
    """The class by which PyTorch differentiates."""
    torch = _pytorch()

    class Bridge(torch.autograd.Function):
        """One call: what it was given and gave is kept for its gradients."""

        @staticmethod
        def forward(ctx: Any, own: TorchFunction, *arguments: Any) -> Any:
            made = run(own.function, arguments)
            results = as_tuple(made) if is_sequence(made) else (made,)
            indices = [at for at, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
            ctx.own, ctx.count, ctx.indices = own, len(arguments), indices
            ctx.others = {at: argument for at, argument in enumerate(arguments) if at not in indices}
            ctx.save_for_backward(*[arguments[at] for at in indices], *results)
            ctx.mark_non_differentiable(*[one for one in results if not one.is_floating_point()])
            return made

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            kept, indices = ctx.saved_tensors, ctx.indices
            given = {**ctx.others, **dict(zip(indices, kept[: len(indices)], strict=True))}
            arguments = [given[at] for at in range(ctx.count)]
            made = _gradients(ctx.own.derivative, [*arguments, *kept[len(indices) :], *gradients], ctx.count)
            return None, *made

    return Bridge


def _gradients(derivative: Callable[..., Any], given: Sequence[Any], count: int) -> tuple[Any, ...]:
    """What a derivative gives, one for each argument."""
    made = _run_on_host(derivative, given)
    found = as_tuple(made) if is_sequence(made) else (made,)
    if len(found) != count:
        raise ArgumentError(
            f"a derivative gives a gradient for each argument: {count}, got {len(found)}",
            fix="give None for an argument that has none",
        )
    return tuple(None if one is None else _share(one) for one in found)
