"""Generation of tokens with caches of keys and values: greedy or drawn by a key, compiled once for all lengths."""

from __future__ import annotations

from functools import cache
from typing import Any

from tessera.api.control import scan
from tessera.api.eager import Tensor, asarray
from tessera.api.jit import Jit, jit
from tessera.api.randomness import fold, uniform
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.frontend.arguments import check_int, check_number
from tessera.frontend.functions import public as ops
from tessera.frontend.functions.operands import as_tensor, is_tensor
from tessera.nn.transformer import GPT
from tessera.types.dtype import f32, i64


def generate(
    model: GPT,
    prompt: Any,
    count: int,
    *,
    key: Any = None,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    capacity: int | None = None,
) -> Any:
    """`count` tokens [batch, count] that follow a prompt [batch, length], one at a time with a cache.

    Without a key each is the most probable one; with a key they are drawn as by `draw_token`, with scores divided by
    `temperature`. The same key draws the same tokens. The program is compiled once for a
    model and a `count`: batch and length of the prompt are symbolic. `capacity` is that of the caches,
    `model.config.length` by default, and must hold prompt and tokens.

    >>> config = ts.nn.GPTConfig(vocabulary=65, length=32, width=32, depth=1, heads=4)
    >>> model = ts.nn.GPT.init(ts.random.key(0), config)
    >>> ts.nn.generate(model, ts.array([[1, 2, 3]]), 5).shape
    (1, 5)
    """
    prompt = prompt if is_tensor(prompt) else asarray(prompt)
    if len(prompt.shape) != 2 or not prompt.shape[1]:
        raise ShapeError(
            f"`generate` takes a prompt [batch, length] of at least one token, got {list(prompt.shape)}",
            fix="write `prompt[None]` for one sequence, and begin with a token that stands for the start",
        )
    if check_int("generate", "count", count) < 1:
        raise ArgumentError(f"`generate` takes `count` from 1, got {count}")
    if not 0 <= check_int("generate", "top_k", top_k) <= model.config.vocabulary:
        raise ArgumentError(f"`generate` takes `top_k` from 0 to {model.config.vocabulary}, got {top_k}")
    if not 0.0 < check_number("generate", "top_p", top_p) <= 1.0:
        raise ArgumentError(f"`generate` takes `top_p` above 0 and up to 1, got {top_p}", fix="write `top_p=0.95`")
    if not check_number("generate", "temperature", temperature) > 0:
        raise ArgumentError(
            f"`generate` takes a `temperature` above 0, got {temperature}", fix="leave out `key` for the most probable"
        )
    size = model.config.length if capacity is None else capacity
    _check_capacity(model, prompt.shape[1] + count - 1, size)
    heat = as_tensor(float(temperature), f32)
    if key is None:
        return program(count, 0, 1.0, size, is_drawn=False)(model, ops.astype(prompt, i64), None, heat)
    return program(count, top_k, float(top_p), size, is_drawn=True)(model, ops.astype(prompt, i64), key, heat)


def _check_capacity(model: GPT, needed: int, capacity: int) -> None:
    if model.positions is not None:
        capacity = min(capacity, model.config.length)
    if needed > capacity:
        raise ArgumentError(
            f"`generate` keeps the prompt and all tokens but the last, {needed} positions, and has {capacity}",
            fix="generate fewer tokens, cut the prompt, or pass a larger `capacity`"
            + (" (positions are learned, and there are no more)" if model.positions is not None else ""),
        )


@cache
def program(count: int, top_k: int, top_p: float, capacity: int, *, is_drawn: bool) -> Jit:
    """The compiled program: the prompt in one pass, then a loop over tokens."""

    def generate_tokens(model: Any, prompt: Tensor["B", "P", i64], key: Any, temperature: Any) -> Any:
        def choose(scores: Any, number: Any) -> Any:
            if not is_drawn:
                return ops.argmax(scores, axis=-1)
            return draw_token(scores, fold(key, number), temperature=temperature, top_k=top_k, top_p=top_p)

        scores, caches = model.extend(prompt, model.caches(prompt.shape[0], capacity))
        first = choose(scores, 0)

        def step(state: Any, number: Any) -> Any:
            token, caches = state
            scores, caches = model.extend(ops.expand_dims(token, 1), caches)
            token = choose(scores, number)
            return (token, caches), token

        _, tokens = scan(step, (first, caches), ops.iota((count - 1,)) + 1)
        return ops.concat([ops.expand_dims(first, 1), ops.swapaxes(tokens, 0, 1)], axis=1)

    return jit(generate_tokens)


def draw_token(scores: Any, key: Any, *, temperature: Any = 1.0, top_k: int = 0, top_p: float = 1.0) -> Any:
    """One of the classes of `scores` [..., classes], with the probabilities of their softmax.

    Each score gets a number of the Gumbel distribution added, and the largest is taken, which has the probabilities of
    the softmax. With `top_k`, only that many of the largest scores count, and those equal to the last of them; with
    `top_p`, the fewest largest whose probabilities add up to it.

    >>> ts.nn.draw_token(ts.array([[0.0, 100.0, 0.0]]), ts.random.key(0))
    Tensor([1] i64, [1])
    """
    scores = ops.astype(scores, f32) / temperature
    if top_k:
        least = ops.topk(scores, top_k)[0][..., -1:]
        scores = ops.where(scores < least, float("-inf"), scores)
    if top_p < 1.0:
        largest = ops.sort(scores, descending=True)
        probabilities = ops.softmax(largest)
        # What is in front of a score: the first is always kept.
        is_kept = ops.cumsum(probabilities) - probabilities < top_p
        least = ops.where(is_kept, largest, float("inf")).min(axis=-1, keepdims=True)
        scores = ops.where(scores < least, float("-inf"), scores)
    drawn = uniform(key, scores.shape)
    # Uniform numbers are multiples of 2^-24, 0 among them, whose logarithm would be an infinity.
    noise = -ops.log(-ops.log(ops.maximum(drawn, 2.0**-25)))
    return ops.argmax(scores + noise, axis=-1)
