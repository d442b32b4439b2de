"""Transformers: a block of attention and a feed-forward layer, and a GPT with the choices of GPT-2 and of Llama."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from tessera.api.checkpoint import checkpoint
from tessera.api.kv_cache import KVCache
from tessera.api.randomness import dropout, fold, split
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor
from tessera.frontend.scopes import policy
from tessera.nn import initializers
from tessera.nn.attention import Attention
from tessera.nn.feed_forward import MLP, MoE, SwiGLU
from tessera.nn.layers import Embedding, Linear
from tessera.nn.module import Module
from tessera.nn.norms import LayerNorm, RMSNorm
from tessera.types.dtype import f32, i64
from tessera.types.frozen import frozen

_CHOICES = {"norm": ("layernorm", "rmsnorm"), "mlp": ("gelu", "swiglu", "moe"), "position": ("learned", "rotary")}


@frozen
class GPTConfig:
    """Sizes and choices of a `GPT`; the defaults are those of GPT-2, `llama()` has the others.

    `hidden` is the width of feed-forward layers, 0 for four times `width`; `kv_heads` 0 for as many as `heads`.
    `remat` computes the inside of each block again in the backward pass in place of keeping it.

    >>> ts.nn.GPTConfig(vocabulary=256, length=128, width=64, depth=2, heads=4).hidden
    256
    """

    vocabulary: int = 50257
    length: int = 1024
    width: int = 768
    depth: int = 12
    heads: int = 12
    kv_heads: int = 0
    hidden: int = 0
    norm: str = "layernorm"
    mlp: str = "gelu"
    position: str = "learned"
    rotary_base: float = 10000.0
    bias: bool = True
    tied: bool = True
    dropout: float = 0.0
    eps: float = 1e-5
    experts: int = 8
    top_experts: int = 2
    remat: bool = False

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            given = getattr(self, name)
            if given not in known:
                raise ArgumentError(
                    f"`GPTConfig` has no {name} {given!r}", fix=f"write one of {', '.join(map(repr, known))}"
                )
        object.__setattr__(self, "hidden", self.hidden or 4 * self.width)
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        if self.width % self.heads or self.heads % self.kv_heads:
            raise ArgumentError(
                f"`GPTConfig` has a width of {self.width} for {self.heads} heads, with keys for {self.kv_heads}",
                notes=("rule: `width` is a multiple of `heads`, and that of `kv_heads`",),
            )

    @staticmethod
    def llama(**sizes: Any) -> GPTConfig:
        """Sizes with the choices of Llama: RMSNorm, SwiGLU, rotary embeddings, no biases, a head of its own.

        >>> ts.nn.GPTConfig.llama(vocabulary=256, width=64, depth=2, heads=4, kv_heads=2).norm
        'rmsnorm'
        """
        choices: dict[str, Any] = {
            "norm": "rmsnorm",
            "mlp": "swiglu",
            "position": "rotary",
            "bias": False,
            "tied": False,
        }
        return GPTConfig(**{**choices, **sizes})


class Block(Module):
    """One layer of a transformer: attention and a feed-forward layer, each on a norm of `x` and added back to it.

    The result is a triple: the values, the cache (None without one), and the load-balancing loss of a mixture of
    experts (None without one).

    >>> config = ts.nn.GPTConfig(width=32, heads=4)
    >>> block = ts.nn.Block.init(ts.random.key(0), config)
    >>> block(ts.ones((2, 5, 32)))[0].shape
    (2, 5, 32)
    """

    norm1: LayerNorm | RMSNorm
    attention: Attention
    norm2: LayerNorm | RMSNorm
    mlp: MLP | SwiGLU | MoE
    dropout: float = 0.0

    @classmethod
    def init(cls, key: Any, config: GPTConfig, *, dtype: Any = f32) -> Block:
        """Weights as GPT-2 draws them: those that are added back are smaller, the more blocks there are."""
        first, second = split(key)
        draw = partial(initializers.normal, std=0.02)
        draw_out = partial(initializers.normal, std=0.02 / math.sqrt(2 * config.depth))
        attention = Attention.init(
            first,
            config.width,
            heads=config.heads,
            kv_heads=config.kv_heads,
            rotary=config.rotary_base if config.position == "rotary" else 0.0,
            dropout=config.dropout,
            bias=config.bias,
            weight_init=draw,
            out_init=draw_out,
            dtype=dtype,
        )
        sizes = (config.width, config.hidden)
        inits: dict[str, Any] = {"weight_init": draw, "down_init": draw_out}
        mlp: MLP | SwiGLU | MoE
        if config.mlp == "moe":
            counts = {"experts": config.experts, "top": config.top_experts}
            mlp = MoE.init(second, *sizes, **counts, **inits, dtype=dtype)
        else:
            kind = MLP if config.mlp == "gelu" else SwiGLU
            mlp = kind.init(second, *sizes, bias=config.bias, **inits, dtype=dtype)
        return cls(_norm(config, dtype), attention, _norm(config, dtype), mlp, config.dropout)

    def __call__(
        self, x: Any, *, cache: KVCache | None = None, angles: Any = None, key: Any = None
    ) -> tuple[Any, KVCache | None, Any]:
        keys = (None, None, None) if key is None else split(key, 3)
        mixed = self.attention(self.norm1(x), cache=cache, angles=angles, key=keys[0])
        if cache is not None:
            mixed, cache = mixed
        x = x + self._drop(mixed, keys[1])
        made, balance = self.mlp(self.norm2(x)), None
        if isinstance(self.mlp, MoE):
            made, balance = made
        return x + self._drop(made, keys[2]), cache, balance

    def _drop(self, x: Any, key: Any) -> Any:
        return x if key is None or not self.dropout else dropout(x, key, self.dropout)


def _norm(config: GPTConfig, dtype: Any) -> LayerNorm | RMSNorm:
    if config.norm == "rmsnorm":
        return RMSNorm.init(config.width, eps=config.eps, dtype=dtype)
    return LayerNorm.init(config.width, eps=config.eps, bias=config.bias, dtype=dtype)


class GPT(Module):
    """A decoder of tokens: embeddings, blocks, a norm, and scores of the next token at each position.

    >>> config = ts.nn.GPTConfig(vocabulary=65, length=32, width=32, depth=2, heads=4)
    >>> model = ts.nn.GPT.init(ts.random.key(0), config)
    >>> tokens = ts.zeros((2, 8), ts.i64)
    >>> loss, gradients = ts.value_and_grad(lambda model: model.loss(tokens, tokens))(model)
    >>> gradients.blocks[0].attention.qkv.weight.shape
    (32, 96)
    """

    tokens: Embedding
    positions: Embedding | None
    blocks: tuple[Block, ...]
    norm: LayerNorm | RMSNorm
    head: Linear | None
    config: GPTConfig

    @classmethod
    def init(cls, key: Any, config: GPTConfig, *, dtype: Any = f32) -> GPT:
        """Parameters as GPT-2 draws them; with tied embeddings there is no head."""
        keys = split(key, config.depth + 3)
        positions = None
        if config.position == "learned":
            positions = Embedding.init(keys[1], config.length, config.width, std=0.02, dtype=dtype)
        head = None
        if not config.tied:
            draw = partial(initializers.normal, std=0.02)
            head = Linear.init(keys[2], config.width, config.vocabulary, bias=False, weight_init=draw, dtype=dtype)
        return cls(
            Embedding.init(keys[0], config.vocabulary, config.width, std=0.02, dtype=dtype),
            positions,
            tuple(Block.init(own, config, dtype=dtype) for own in keys[3:]),
            _norm(config, dtype),
            head,
            config,
        )

    def __call__(self, tokens: Any, *, key: Any = None) -> Any:
        """Scores [batch, length, vocabulary] of the token after each of `tokens` [batch, length].

        With a key, dropout is applied.
        """
        return self._scores(self._features(tokens, None, key)[0])

    def loss(self, tokens: Any, targets: Any, *, key: Any = None, balance: float = 0.01) -> Any:
        """The mean cross-entropy of `targets`, the tokens that follow, in nats; negative ones do not count.

        The load-balancing loss of a mixture of experts, its mean over blocks, is added `balance` times. The loss is
        f32 under every policy: bf16 has steps of 1/16 around 10.
        """
        features, _, balances = self._features(tokens, None, key)
        scores = self._scores(features)
        with policy(storage=f32):
            made = ops.cross_entropy(ops.astype(scores, features.dtype.compute), targets)
            for one in balances:
                made = made + ops.cast_like(one, made) * (balance / len(balances))
        return made

    def caches(self, batch: Any, capacity: Any = None, *, dtype: Any = None) -> tuple[KVCache, ...]:
        """Empty caches, one for each block, of `capacity` positions: `config.length` by default."""
        size = self.config.length if capacity is None else capacity
        return tuple(block.attention.cache(batch, size, dtype=dtype) for block in self.blocks)

    def extend(self, tokens: Any, caches: tuple[KVCache, ...]) -> tuple[Any, tuple[KVCache, ...]]:
        """Scores [batch, vocabulary] of the token after the last of `tokens`, which follow those in the caches.

        The caches that come back hold `tokens` too.
        """
        if len(caches) != len(self.blocks):
            raise ArgumentError(
                f"a `GPT` of {len(self.blocks)} blocks takes as many caches, got {len(caches)}",
                fix="begin with `model.caches(batch)`",
            )
        features, held, _ = self._features(tokens, caches, None)
        return self._scores(features[:, -1]), held

    def _scores(self, features: Any) -> Any:
        return self.tokens.attend(features) if self.head is None else self.head(features)

    def _features(self, tokens: Any, caches: Any, key: Any) -> tuple[Any, tuple[Any, ...], list[Any]]:
        """What blocks and norm make of tokens; the caches, and the load-balancing losses of blocks that have any."""
        length = tokens.shape[1] if len(tokens.shape) == 2 else None
        if length is None or (isinstance(length, int) and caches is None and self._is_too_long(length)):
            raise ShapeError(
                f"`GPT` takes tokens [batch, length] with a length of at most {self.config.length}, "
                f"got {list(tokens.shape)}",
                fix="give it fewer tokens at a time, or make it with a larger `length`",
            )
        start = as_tensor(0, i64) if caches is None else caches[0].length
        x = self.tokens(tokens)
        if self.positions is not None:
            places = ops.iota((length,)) + start
            x = x + (self.positions.weight[:length] if caches is None else self.positions(places))
        angles = self.blocks[0].attention.angles(length, start, dtype=x.dtype.compute) if self.blocks else None
        if key is not None and self.config.dropout:
            x = dropout(x, fold(key, len(self.blocks)), self.config.dropout)
        held: list[Any] = []
        balances: list[Any] = []
        for number, block in enumerate(self.blocks):
            own = None if key is None else fold(key, number)
            cache = None if caches is None else caches[number]
            run = _run_rematerialized if self.config.remat and caches is None else _run
            x, cache, balance = run(block, x, cache, angles, own)
            held.append(cache)
            balances += [] if balance is None else [balance]
        return self.norm(x), tuple(held), balances

    def _is_too_long(self, length: int) -> bool:
        return self.positions is not None and length > self.config.length


def _run(block: Block, x: Any, cache: Any, angles: Any, key: Any) -> tuple[Any, Any, Any]:
    return block(x, cache=cache, angles=angles, key=key)


_run_rematerialized = checkpoint(_run)
