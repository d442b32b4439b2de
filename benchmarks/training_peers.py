"""Training steps on a CPU in each library: the same model from the same parameters, AdamW, and a batch each.

A trainer is a function without arguments that does one step, in place as its library does it, and gives the loss.
"""

from __future__ import annotations

import importlib
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

import tessera as ts
from benchmarks.contenders.contender import NotOfferedError
from benchmarks.training_models import (
    BETAS,
    DECAY,
    EPS,
    RATE,
    TorchTrainer,
    build_model,
    draw_parameters,
    loss_of,
    make_optimizer,
    torch_model,
)

Trainer: TypeAlias = "Callable[[], Any]"
Values: TypeAlias = "Mapping[str, Any]"


@dataclass(frozen=True)
class Task:
    """A model to train: its parameters, one batch, and its loss as each library writes it."""

    name: str
    values: Values
    batch: tuple[Any, Any]
    tessera: Callable[[Values], tuple[Any, Callable[[Any, Any], Any]]]
    torch: Callable[[Any, Values], Any]
    jax: Callable[[Any, Any, Values, Any, Any], Any]


def with_tessera(task: Task) -> Trainer:
    """One program for a step, whose state is donated."""
    params, loss = task.tessera(task.values)
    step = ts.train.make_step(loss, make_optimizer())
    state = ts.train.State.init(params, make_optimizer(), copy=True)
    batch = tuple(ts.array(one) for one in task.batch)

    def run() -> Any:
        nonlocal state
        state, metrics = step(state, batch)
        return metrics["loss"]

    return run


def with_torch(task: Task, *, compiled: bool) -> Trainer:
    """A module and its optimizer, as they are or compiled."""
    torch: Any = importlib.import_module("torch")
    trainer = TorchTrainer(torch, task.torch(torch, task.values), compiled=compiled, device="cpu")
    batch = [torch.tensor(one, dtype=torch.float32 if one.dtype.kind == "f" else torch.int64) for one in task.batch]
    return lambda: trainer.step(*batch)


def with_jax(task: Task) -> Trainer:
    """A jitted function whose state is donated."""
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    batch = tuple(jnp.asarray(one) for one in task.batch)
    params = {name: jnp.array(value) for name, value in task.values.items()}
    zeros = {name: jnp.zeros_like(value) for name, value in params.items()}
    state: Any = params, zeros, {name: jnp.zeros_like(value) for name, value in params.items()}, jnp.float32(0.0)

    def update(state: Any, batch: Any) -> Any:
        params, first, second, count = state

        def loss_of_params(params: Any) -> Any:
            return task.jax(jax, jnp, params, *batch)

        loss, grads = jax.value_and_grad(loss_of_params)(params)
        count = count + 1.0
        scale = 1.0 - BETAS[0] ** count, 1.0 - BETAS[1] ** count
        first = {k: BETAS[0] * first[k] + (1 - BETAS[0]) * g for k, g in grads.items()}
        second = {k: BETAS[1] * second[k] + (1 - BETAS[1]) * g * g for k, g in grads.items()}
        moved = {
            k: (first[k] / scale[0]) / (jnp.sqrt(second[k] / scale[1]) + EPS) + DECAY * p for k, p in params.items()
        }
        return ({k: p - RATE * moved[k] for k, p in params.items()}, first, second, count), loss

    step = jax.jit(update, donate_argnums=0)

    def run() -> Any:
        nonlocal state
        state, loss = step(state, batch)
        return loss.block_until_ready()

    return run


def make_trainer(name: str, task: Task, threads: int) -> Trainer:
    """The trainer of a library; raises NotOfferedError where it is not installed."""
    try:
        if name == "tessera":
            return with_tessera(task)
        if name == "jax":
            return with_jax(task)
        importlib.import_module("torch").set_num_threads(threads)
        return with_torch(task, compiled=name == "torch.compile")
    except ImportError as error:
        raise NotOfferedError(f"not installed ({error})") from error


# A GPT.


def _gpt_in_jax(config: ts.nn.GPTConfig) -> Callable[..., Any]:
    """The loss of a GPT with layer norms, learned positions and tied embeddings."""
    width, head = config.width, config.width // config.heads

    def norm(jnp: Any, p: Any, x: Any, name: str) -> Any:
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + config.eps) * p[f"{name}.weight"]
            + p[f"{name}.bias"]
        )

    def linear(p: Any, x: Any, name: str) -> Any:
        return x @ p[f"{name}.weight"] + p[f"{name}.bias"]

    def loss(jax: Any, jnp: Any, p: Any, tokens: Any, targets: Any) -> Any:
        batch, length = tokens.shape
        x = p["tokens.weight"][tokens] + p["positions.weight"][:length]
        for own in (f"blocks.{number}" for number in range(config.depth)):
            qkv = linear(p, norm(jnp, p, x, f"{own}.norm1"), f"{own}.attention.qkv")
            q, k, v = (part.reshape(batch, length, config.heads, head) for part in jnp.split(qkv, 3, -1))
            mixed = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(batch, length, width)
            x = x + linear(p, mixed, f"{own}.attention.out")
            made = jax.nn.gelu(linear(p, norm(jnp, p, x, f"{own}.norm2"), f"{own}.mlp.up"), approximate=True)
            x = x + linear(p, made, f"{own}.mlp.down")
        scores = norm(jnp, p, x, "norm") @ p["tokens.weight"].T
        chosen = jnp.take_along_axis(jax.nn.log_softmax(scores), targets[..., None], -1)
        return -chosen.mean()

    return loss


def gpt_task(*, width: int = 256, depth: int = 4, length: int = 128, batch: int = 8, vocabulary: int = 256) -> Task:
    """A small GPT on random tokens."""
    config = ts.nn.GPTConfig(vocabulary=vocabulary, length=length, width=width, depth=depth, heads=max(1, width // 64))
    tokens = np.random.default_rng(0).integers(0, vocabulary, (batch, length + 1)).astype(np.int32)
    return Task(
        f"GPT, {depth} layers, d {width}, {batch} x {length} tokens",
        draw_parameters(config),
        (tokens[:, :-1].copy(), tokens[:, 1:].copy()),
        lambda values: (build_model(config, values), loss_of),
        lambda torch, values: torch_model(torch, config, values, "cpu"),
        _gpt_in_jax(config),
    )


# A perceptron.


def _mlp_in_torch(torch: Any, values: Values) -> Any:
    nn: Any = torch.nn

    class Net(nn.Module):  # pyright: ignore[reportUntypedBaseClass]
        """Its layers, with matrices as torch has them."""

        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            self.layers: Any = nn.ModuleList()
            for number in range(len(values) // 2):
                weight = values[f"w{number}"]
                layer = nn.Linear(*weight.shape)
                layer.weight.data = torch.tensor(weight.T.copy())
                layer.bias.data = torch.tensor(values[f"b{number}"])
                self.layers.append(layer)

        def forward(self, x: Any, labels: Any) -> Any:
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x))
            return nn.functional.cross_entropy(self.layers[-1](x), labels)

    return Net()


def _mlp_in_jax(jax: Any, jnp: Any, p: Any, x: Any, labels: Any) -> Any:
    last = len(p) // 2 - 1
    for number in range(last):
        x = jax.nn.relu(x @ p[f"w{number}"] + p[f"b{number}"])
    scores = jax.nn.log_softmax(x @ p[f"w{last}"] + p[f"b{last}"])
    return -jnp.take_along_axis(scores, labels[:, None], -1).mean()


def _mlp_in_tessera(p: Any, batch: Any) -> Any:
    x, labels = batch
    last = len(p) // 2 - 1
    for number in range(last):
        x = ts.ops.relu(x @ p[f"w{number}"] + p[f"b{number}"])
    return ts.ops.cross_entropy(x @ p[f"w{last}"] + p[f"b{last}"], labels)


def mlp_task(*, sizes: tuple[int, ...] = (784, 256, 128, 10), batch: int = 128) -> Task:
    """A small perceptron on random digits."""
    rng, values = np.random.default_rng(0), dict[str, Any]()
    for number, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        values[f"w{number}"] = rng.standard_normal((inputs, outputs), np.float32) / np.float32(np.sqrt(inputs))
        values[f"b{number}"] = np.zeros(outputs, np.float32)
    digits = rng.standard_normal((batch, sizes[0]), np.float32), rng.integers(0, sizes[-1], batch).astype(np.int32)
    return Task(
        f"MLP {'-'.join(map(str, sizes))}, batch {batch}",
        values,
        digits,
        lambda values: (dict(values), _mlp_in_tessera),
        _mlp_in_torch,
        _mlp_in_jax,
    )


def peak_bytes() -> int:
    """The most memory that this process had resident so far."""
    with open(f"/proc/{os.getpid()}/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) << 10
