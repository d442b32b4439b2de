"""A GPT written for PyTorch from the definition: a function of the state dict of `nn.GPT`, with all of its choices."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from tessera import nn

torch: Any = pytest.importorskip("torch")
functional = torch.nn.functional

Tensors = Mapping[str, Any]


def loss(tensors: Tensors, tokens: Any, targets: Any, config: nn.GPTConfig, balance: float = 0.01) -> Any:
    """The mean cross-entropy of `targets`, with the load-balancing losses of experts added."""
    scores, balances = forward(tensors, tokens, config)
    made = functional.cross_entropy(scores.flatten(0, 1), targets.flatten())
    return made + balance * sum(balances) / len(balances) if balances else made


def forward(tensors: Tensors, tokens: Any, config: nn.GPTConfig) -> tuple[Any, list[Any]]:
    """Scores of the next token at each position, and the load-balancing losses."""
    x: Any = tensors["tokens.weight"][tokens]
    balances: list[Any] = []
    if config.position == "learned":
        x = x + tensors["positions.weight"][: tokens.shape[1]]
    for number in range(config.depth):
        own = {
            name.removeprefix(f"blocks.{number}."): one
            for name, one in tensors.items()
            if name.startswith(f"blocks.{number}.")
        }
        x = x + _attend(own, _norm(own, "norm1", x, config), config)
        made, balance = _feed_forward(own, _norm(own, "norm2", x, config), config)
        balances += [] if balance is None else [balance]
        x = x + made
    x = _norm(tensors, "norm", x, config)
    return x @ (tensors["tokens.weight"].T if config.tied else tensors["head.weight"]), balances


def _norm(own: Tensors, name: str, x: Any, config: nn.GPTConfig) -> Any:
    weight = own[f"{name}.weight"]
    if config.norm == "rmsnorm":
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + config.eps) * weight
    return functional.layer_norm(x, weight.shape, weight, own.get(f"{name}.bias"), config.eps)


def _linear(own: Tensors, name: str, x: Any) -> Any:
    made = x @ own[f"{name}.weight"]
    return made + own[f"{name}.bias"] if f"{name}.bias" in own else made


def _attend(own: Tensors, x: Any, config: nn.GPTConfig) -> Any:
    batch, length, _ = x.shape
    size = config.width // config.heads
    counts = (config.heads, config.kv_heads, config.kv_heads)
    parts = _linear(own, "attention.qkv", x).split([count * size for count in counts], dim=-1)
    q, k, v = (
        part.reshape(batch, length, count, size).transpose(1, 2) for part, count in zip(parts, counts, strict=True)
    )
    if config.position == "rotary":
        q, k = (_rotate(one, config.rotary_base) for one in (q, k))
    k, v = (one.repeat_interleave(config.heads // config.kv_heads, dim=1) for one in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(size)
    hidden = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)
    mixed = torch.softmax(scores.masked_fill(hidden, -math.inf), -1) @ v
    return _linear(own, "attention.out", mixed.transpose(1, 2).reshape(batch, length, -1))


def _rotate(x: Any, base: float) -> Any:
    """Pairs of elements that are half a head apart, rotated by their position times their frequency."""
    half = x.shape[-1] // 2
    frequencies = base ** (torch.arange(half, dtype=x.dtype) / -half)
    angles = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequencies
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()], dim=-1)


def _feed_forward(own: Tensors, x: Any, config: nn.GPTConfig) -> tuple[Any, Any]:
    if config.mlp == "gelu":
        return _linear(own, "mlp.down", functional.gelu(_linear(own, "mlp.up", x), approximate="tanh")), None
    if config.mlp == "swiglu":
        gated = functional.silu(_linear(own, "mlp.gate", x)) * _linear(own, "mlp.up", x)
        return _linear(own, "mlp.down", gated), None
    return mixture(own, x, config.top_experts)


def mixture(own: Tensors, x: Any, top: int, root: str = "mlp.") -> tuple[Any, Any]:
    """Every expert on every token, with the weight 0 where it is not among the top."""
    probabilities = torch.softmax(x @ own[f"{root}router.weight"], -1)
    weights, chosen = probabilities.topk(top, -1)
    dense = torch.zeros_like(probabilities).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True))
    gate, up, down = (own[f"{root}{name}"] for name in ("gate", "up", "down"))
    hidden = functional.silu(torch.einsum("bld,edh->bleh", x, gate)) * torch.einsum("bld,edh->bleh", x, up)
    made = torch.einsum("bleh,ehd,ble->bld", hidden, down, dense)
    experts = gate.shape[0]
    share = torch.bincount(chosen.flatten(), minlength=experts).to(x.dtype) / chosen.numel()
    return made, experts * (share * probabilities.flatten(0, 1).mean(0)).sum()


def gradients(
    tensors: Tensors, tokens: Any, targets: Any, config: nn.GPTConfig, dtype: Any
) -> tuple[Any, dict[str, Any]]:
    """The loss and its gradients by all tensors, computed in `dtype`."""
    leaves = {name: torch.tensor(one).to(dtype).requires_grad_() for name, one in tensors.items()}
    value = loss(leaves, torch.tensor(tokens), torch.tensor(targets), config)
    value.backward()
    return value.item(), {name: one.grad.numpy() for name, one in leaves.items() if one.grad is not None}
