"""The workloads in PyTorch, eager and through torch.compile; layers store their weights [out, in], as it likes."""

# Functions of a library that is loaded by name have no types to give.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contenders.contender import Contender, Library, Run
from benchmarks.workloads import Arrays, Workload


def _functions(torch: Any) -> dict[str, Callable[..., Any]]:
    F = torch.nn.functional

    def rmsnorm(x: Any, weight: Any) -> Any:
        return F.rms_norm(x, (x.shape[-1],), weight, 1e-5)

    return {
        "matmul": torch.matmul,
        "matmul_bias_gelu": lambda a, b, bias: F.gelu(torch.addmm(bias, a, b), approximate="tanh"),
        "softmax": lambda x: torch.softmax(x, -1),
        "layernorm": lambda x, weight, bias: F.layer_norm(x, (x.shape[-1],), weight, bias, 1e-5),
        "rmsnorm": rmsnorm,
        "bias_gelu_mul": lambda x, bias, gate: F.gelu(x + bias, approximate="tanh") * gate,
        "bias_gelu_erf_mul": lambda x, bias, gate: F.gelu(x + bias) * gate,
        "attention": F.scaled_dot_product_attention,
        "attention_causal": partial(F.scaled_dot_product_attention, is_causal=True),
    }


def _forward(torch: Any, heads: int) -> Callable[..., Any]:
    F = torch.nn.functional

    def block(x: Any, p: dict[str, Any]) -> Any:
        B, S, D = x.shape
        qkv = F.linear(F.layer_norm(x, (D,), p["norm1"], p["shift1"], 1e-5), p["qkv"], p["qkv_bias"])
        q, k, v = qkv.view(B, S, 3, heads, D // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, S, D)
        x = x + F.linear(mixed, p["out"], p["out_bias"])
        hidden = F.linear(F.layer_norm(x, (D,), p["norm2"], p["shift2"], 1e-5), p["up"], p["up_bias"])
        return x + F.linear(F.gelu(hidden, approximate="tanh"), p["down"], p["down_bias"])

    def forward(x: Any, layers: list[dict[str, Any]]) -> Any:
        for parameters in layers:
            x = block(x, parameters)
        return x

    return forward


def _tensor(torch: Any, array: np.ndarray[Any, Any]) -> Any:
    """Shares the array's memory, so that nobody's inputs are in better pages than the others'."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _layer(torch: Any, parameters: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: _tensor(torch, array) for name, array in parameters.items()}
    return {name: tensor.T.contiguous() if tensor.ndim == 2 else tensor for name, tensor in tensors.items()}


def _prepare(torch: Any, transform: Callable[[Any], Any], work: Workload, arrays: Arrays) -> Run:
    if work.kind == "transformer":
        function = transform(_forward(torch, work.sizes["H"]))
        x, layers = _tensor(torch, arrays["x"]), [_layer(torch, layer) for layer in arrays["layers"]]
        arguments: tuple[Any, ...] = (x, layers)
    else:
        function = transform(_functions(torch)[work.kind])
        arguments = tuple(_tensor(torch, array) for array in arrays.values())

    def run() -> Any:
        with torch.inference_mode():
            return function(*arguments)

    return run


def _compiled(torch: Any, function: Any) -> Any:
    torch._dynamo.reset()  # pyright: ignore[reportPrivateUsage] - a row must not count against the next one's recompile limit
    return torch.compile(function, dynamic=False)


def _to_numpy(torch: Any, tensor: Any) -> np.ndarray[Any, Any]:
    return tensor.to(torch.float32).numpy()


def _load(torch: Any, threads: int) -> Iterable[Contender]:
    torch.set_num_threads(threads)
    to_numpy = partial(_to_numpy, torch)
    yield Contender("torch", partial(_prepare, torch, lambda function: function), to_numpy)
    yield Contender("torch.compile", partial(_prepare, torch, partial(_compiled, torch)), to_numpy)


LIBRARY = Library("torch", _load)
