"""GPTs to train on both sides: the same sizes and parameters as a `ts.nn.GPT` and as a module of torch, with AdamW."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import tessera as ts
from tessera.frontend.pytree import flatten, unflatten

RATE, DECAY, BETAS, EPS = 3e-4, 0.1, (0.9, 0.95), 1e-8


@dataclass(frozen=True)
class Model:
    """A GPT and the batches that it is trained on."""

    config: ts.nn.GPTConfig
    batch: int

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.config.length

    @property
    def flops(self) -> float:
        """Operations of a step: six for each token and parameter of a matmul, and the matmuls of causal attention."""
        one, head = self.config, self.config.width // self.config.heads
        mlp = (3 if one.mlp == "swiglu" else 2) * one.width * one.hidden
        layer = one.width * (one.heads + 2 * one.kv_heads) * head + one.width**2 + mlp
        attention = 2.0 * one.length * one.width
        return 6.0 * self.tokens * (one.depth * (layer + attention / 2) + one.vocabulary * one.width)


GPT2 = Model(ts.nn.GPTConfig(vocabulary=50304, length=1024, width=768, depth=12, heads=12), 8)
"""GPT-2-small, with a vocabulary that is a multiple of 128."""
LLAMA = Model(
    ts.nn.GPTConfig.llama(
        vocabulary=32000, length=2048, width=2048, depth=16, heads=16, kv_heads=4, hidden=5632, remat=True
    ),
    4,
)
"""One like Llama of a billion parameters, each block of which is checkpointed."""


def loss_of(model: Any, batch: Any) -> Any:
    """The mean cross-entropy of the next token."""
    return model.loss(*batch)


def make_optimizer() -> Any:
    """AdamW, the decay of all parameters alike, as torch's default is."""
    return ts.optim.adamw(RATE, b1=BETAS[0], b2=BETAS[1], eps=EPS, weight_decay=DECAY)


def make_step(backend: str = "cuda", policy: Any = None) -> ts.Jit:
    """Forward, backward and update in bf16 over parameters in f32, as one program."""
    return ts.train.make_step(
        loss_of, make_optimizer(), backend=backend, policy=ts.Training() if policy is None else policy
    )


def draw_parameters(config: ts.nn.GPTConfig, seed: int = 0) -> dict[str, Any]:
    """Parameters by name, as GPT-2 draws them, in NumPy: norms are ones, biases zeros."""
    rng, found = np.random.default_rng(seed), dict[str, Any]()
    for name, shape in parameter_shapes(config).items():
        if len(shape) == 1:
            found[name] = np.full(shape, 0.0 if name.endswith("bias") else 1.0, np.float32)
            continue
        is_added = name.endswith(("attention.out.weight", "mlp.down.weight"))
        scale = np.float32(0.02 / (np.sqrt(2 * config.depth) if is_added else 1.0))
        found[name] = rng.standard_normal(shape, np.float32) * scale
    return found


def parameter_shapes(config: ts.nn.GPTConfig) -> dict[str, tuple[int, ...]]:
    """The parameters of a GPT by name, in the order that its tree has them."""
    width, head = config.width, config.width // config.heads
    norm = {"weight": (width,)} | ({"bias": (width,)} if config.norm == "layernorm" and config.bias else {})

    def linear(inputs: int, outputs: int) -> dict[str, tuple[int, ...]]:
        return {"weight": (inputs, outputs)} | ({"bias": (outputs,)} if config.bias else {})

    up = ("gate", "up") if config.mlp == "swiglu" else ("up",)
    parts: dict[str, Mapping[str, tuple[int, ...]]] = {"tokens": {"weight": (config.vocabulary, width)}}
    if config.position == "learned":
        parts["positions"] = {"weight": (config.length, width)}
    for number in range(config.depth):
        own = f"blocks.{number}"
        parts[f"{own}.norm1"] = norm
        parts[f"{own}.attention.qkv"] = linear(width, (config.heads + 2 * config.kv_heads) * head)
        parts[f"{own}.attention.out"] = linear(width, width)
        parts[f"{own}.norm2"] = norm
        parts |= {f"{own}.mlp.{name}": linear(width, config.hidden) for name in up}
        parts[f"{own}.mlp.down"] = linear(config.hidden, width)
    parts["norm"] = norm
    if not config.tied:
        parts["head"] = {"weight": (width, config.vocabulary)}
    return {f"{part}.{name}": shape for part, shapes in parts.items() for name, shape in shapes.items()}


def build_model(config: ts.nn.GPTConfig, values: Mapping[str, Any]) -> Any:
    """A `ts.nn.GPT` of these parameters."""

    def make(prefix: str, kind: Any) -> Any:
        own: list[Any] = [values.get(f"{prefix}.{name}") for name in ("weight", "bias")]
        return kind(own[0]) if kind is ts.nn.Embedding else kind(*own)

    def norm(prefix: str) -> Any:
        weight, bias = (values.get(f"{prefix}.{name}") for name in ("weight", "bias"))
        if config.norm == "rmsnorm":
            return ts.nn.RMSNorm(weight, eps=config.eps)
        return ts.nn.LayerNorm(weight, bias, eps=config.eps)

    def block(own: str) -> Any:
        qkv, out = (make(f"{own}.attention.{name}", ts.nn.Linear) for name in ("qkv", "out"))
        rotary = config.rotary_base if config.position == "rotary" else 0.0
        attention = ts.nn.Attention(qkv, out, config.heads, config.kv_heads, True, rotary, config.dropout)
        names = ("gate", "up", "down") if config.mlp == "swiglu" else ("up", "down")
        kind = ts.nn.SwiGLU if config.mlp == "swiglu" else ts.nn.MLP
        mlp = kind(*(make(f"{own}.mlp.{name}", ts.nn.Linear) for name in names))
        return ts.nn.Block(norm(f"{own}.norm1"), attention, norm(f"{own}.norm2"), mlp, config.dropout)

    return ts.nn.GPT(
        make("tokens", ts.nn.Embedding),
        make("positions", ts.nn.Embedding) if config.position == "learned" else None,
        tuple(block(f"blocks.{number}") for number in range(config.depth)),
        norm("norm"),
        None if config.tied else make("head", ts.nn.Linear),
        config,
    )


def make_state(config: ts.nn.GPTConfig, values: Mapping[str, Any], backend: str = "cuda") -> Any:
    """The state that training starts with, on the device."""
    move = ts.cuda.array if backend == "cuda" else ts.array
    state = ts.train.State.init(build_model(config, values), make_optimizer(), copy=backend != "cuda")
    leaves, form = flatten(state, keep_order=True)
    return unflatten(form, [move(leaf) for leaf in leaves])


# The same in torch, with matrices as [out, in].


class TorchNet:
    """What a GPT computes, of parameters by name, as a user of torch writes it."""

    def __init__(self, torch: Any, config: ts.nn.GPTConfig, device: str) -> None:
        self.torch, self.functional, self.config = torch, torch.nn.functional, config
        self.head = config.width // config.heads
        steps = torch.arange(0, self.head, 2, device=device) / self.head
        angles = torch.outer(torch.arange(config.length, device=device).float(), config.rotary_base**-steps)
        self.cos, self.sin = angles.cos(), angles.sin()

    def norm(self, p: Any, x: Any, name: str) -> Any:
        """The norm of rows."""
        weight, bias = _part(p, name), _part(p, name, "bias")
        if self.config.norm == "rmsnorm":
            return self.functional.rms_norm(x, x.shape[-1:], weight, self.config.eps)
        return self.functional.layer_norm(x, x.shape[-1:], weight, bias, self.config.eps)

    def linear(self, p: Any, x: Any, name: str) -> Any:
        """A projection."""
        return self.functional.linear(x, _part(p, name), _part(p, name, "bias"))

    def rotate(self, x: Any) -> Any:
        """Rotary embeddings."""
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        first, second = x.chunk(2, -1)
        return self.torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    def block(self, p: Any, x: Any, own: str) -> Any:
        """One layer."""
        config, (batch, length, width) = self.config, x.shape
        qkv = self.linear(p, self.norm(p, x, f"{own}.norm1"), f"{own}.attention.qkv")
        sizes = [count * self.head for count in (config.heads, config.kv_heads, config.kv_heads)]
        q, k, v = (part.view(batch, length, -1, self.head).transpose(1, 2) for part in qkv.split(sizes, -1))
        if config.position == "rotary":
            q, k = self.rotate(q), self.rotate(k)
        attend, is_shared = self.functional.scaled_dot_product_attention, config.heads != config.kv_heads
        mixed = attend(q, k, v, is_causal=True, enable_gqa=is_shared).transpose(1, 2).reshape(batch, length, width)
        x = x + self.linear(p, mixed, f"{own}.attention.out")
        rows = self.norm(p, x, f"{own}.norm2")
        made = self.linear(p, rows, f"{own}.mlp.up")
        if config.mlp == "swiglu":
            made = self.functional.silu(self.linear(p, rows, f"{own}.mlp.gate")) * made
        else:
            made = self.functional.gelu(made, approximate="tanh")
        return x + self.linear(p, made, f"{own}.mlp.down")

    def loss(self, p: Any, tokens: Any, targets: Any) -> Any:
        """The mean cross-entropy of the tokens that follow, in float32."""
        config, checkpoint = self.config, self.torch.utils.checkpoint.checkpoint
        x = self.functional.embedding(tokens, _part(p, "tokens"))
        if config.position == "learned":
            x = x + _part(p, "positions")[: tokens.shape[1]]
        for number in range(config.depth):
            own = f"blocks.{number}"
            x = checkpoint(self.block, p, x, own, use_reentrant=False) if config.remat else self.block(p, x, own)
        scores = self.functional.linear(self.norm(p, x, "norm"), _part(p, "tokens" if config.tied else "head"))
        return self.functional.cross_entropy(scores.flatten(0, 1).float(), targets.flatten())


def _part(p: Any, name: str, kind: str = "weight") -> Any:
    """A parameter; None where there is none of that name."""
    full = f"{name}.{kind}".replace(".", "_")
    return p[full] if full in p else None  # noqa: SIM401 - a `ParameterDict` that is compiled has no `get`


def torch_model(torch: Any, config: ts.nn.GPTConfig, values: Mapping[str, Any], device: str = "cuda") -> Any:
    """A module of torch whose `forward(tokens, targets)` is the loss."""
    net = TorchNet(torch, config, device)

    class Peer(torch.nn.Module):
        """The parameters."""

        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.p = torch.nn.ParameterDict()
            for name, value in values.items():
                is_matrix = value.ndim == 2 and not name.startswith(("tokens", "positions"))
                made = torch.tensor(value.T.copy() if is_matrix else value, device=device)
                self.p[name.replace(".", "_")] = torch.nn.Parameter(made)

        def forward(self, tokens: Any, targets: Any) -> Any:
            return net.loss(self.p, tokens, targets)

    return Peer()


class TorchTrainer:
    """A model of torch with its optimizer: `step(tokens, targets)` gives the loss, which stays on the device."""

    def __init__(self, torch: Any, model: Any, *, compiled: bool, device: str = "cuda") -> None:
        self.torch, self.model, self.device = torch, torch.compile(model) if compiled else model, device
        self.optimizer = torch.optim.AdamW(
            model.parameters(), RATE, BETAS, EPS, weight_decay=DECAY, fused=device == "cuda"
        )

    def step(self, tokens: Any, targets: Any) -> Any:
        """Forward and backward under autocast to bf16, and the update."""
        with self.torch.autocast(self.device, self.torch.bfloat16, enabled=self.device == "cuda"):
            loss = self.model(tokens, targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()
