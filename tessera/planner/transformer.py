"""A transformer described by numbers, as in a file, and what it costs: in closed form, without a model or its weights.

    name = "Llama 3 70B"
    layers = 80
    width = 8192
    heads = 64
    kv_heads = 8
    hidden = 28672
    vocabulary = 128256
    sequence = 8192

Counted are matmuls, causal attention that keeps no scores (half of the rectangle is computed), and the bytes of norms,
rotary embeddings, activation functions and residuals, of `dtype` elements. Activations that are kept for the backward
pass are inputs of matmuls and norms, queries, keys, values and one number for each row of scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tessera.planner.model_cost import ELEMENT, LayerCost, ModelCost
from tessera.planner.topology_file import (
    Check,
    Document,
    check_bool,
    check_count,
    check_document,
    check_text,
    find_file,
    read_document,
)
from tessera.types.frozen import frozen

_COUNT = partial(check_count, most=1 << 24)
_LOSS_BYTES = 4
"""Bytes of a score of the head, whose loss is f32 under every policy."""


def _check_dtype(value: Any) -> str:
    return "" if value in ELEMENT else f"is one of {', '.join(ELEMENT)}"


_SCHEMA: Mapping[str, Mapping[str, Check]] = {
    "": {
        "name": check_text,
        **dict.fromkeys(("layers", "width", "heads", "kv_heads", "hidden", "vocabulary", "sequence"), _COUNT),
        **dict.fromkeys(("experts", "top_experts", "head_width"), _COUNT),
        **dict.fromkeys(("gated", "tied", "causal"), check_bool),
        "dtype": _check_dtype,
    }
}
_REQUIRED = ("name", "layers", "width", "heads", "vocabulary", "sequence")


@frozen
class Transformer:
    """Sizes of a decoder; 0 takes the usual: `kv_heads` as `heads`, `hidden` four times `width`.

    >>> Transformer("GPT-2", 12, 768, 12, vocabulary=50257, sequence=1024, gated=False, tied=True).cost().layers
    12
    """

    name: str
    layers: int
    width: int
    heads: int
    vocabulary: int
    sequence: int
    kv_heads: int = 0
    hidden: int = 0
    head_width: int = 0
    experts: int = 0
    top_experts: int = 2
    gated: bool = True
    tied: bool = False
    causal: bool = True
    dtype: str = "bf16"

    @property
    def query_width(self) -> int:
        return self.heads * (self.head_width or self.width // self.heads)

    @property
    def key_width(self) -> int:
        return (self.kv_heads or self.heads) * (self.head_width or self.width // self.heads)

    def cost(self) -> ModelCost:
        """What the model costs, layer by layer."""
        element, S = ELEMENT[self.dtype], self.sequence
        embedding = LayerCost(
            "embedding", self.vocabulary * self.width, moved_whole=2.0 * element * S * self.width, regions=1
        )
        boundary = float(element * S * self.width)
        return ModelCost(
            self.name, S, self.layers, embedding, self._block(), self._head(), boundary, self.dtype, self.heads,
            self.experts,
        )  # fmt: skip

    def _block(self) -> LayerCost:
        element, S, W, Q, KV = ELEMENT[self.dtype], self.sequence, self.width, self.query_width, self.key_width
        hidden, matrices = self.hidden or 4 * W, 3 if self.gated else 2
        active = hidden * (self.top_experts if self.experts else 1)
        projections = W * (Q + 2 * KV) + Q * W
        each = matrices * W * hidden
        experts = each * self.experts
        router = W * self.experts
        parameters = projections + (experts or each) + router + 2 * W
        return LayerCost(
            "block",
            parameters,
            matmul=2.0 * S * (projections + matrices * W * active + router),
            attention=4.0 * S * S * Q * (0.5 if self.causal else 1.0),
            # Rotary embeddings of queries and keys; the activation function reads its operands and writes one.
            moved=float(element * S * (2 * (Q + KV) + matrices * active)),
            # Two norms that read and write, two residuals that read two and write one.
            moved_whole=float(element * S * 10 * W),
            kept=float(element * S * (2 * Q + 2 * KV + matrices * active) + 4 * S * self.heads),
            kept_whole=float(element * S * 4 * W),
            cheap=float(element * S * active),
            cheap_whole=float(element * S * 2 * W),
            input=float(element * S * W),
            regions=2,
            keys=float(element * S * 2 * KV),
            exchanged=float(element * S * W * self.top_experts) if self.experts else 0.0,
            expert_parameters=experts,
        )

    def _head(self) -> LayerCost:
        element, S, W, V = ELEMENT[self.dtype], self.sequence, self.width, self.vocabulary
        return LayerCost(
            "head",
            W + (0 if self.tied else W * V),
            matmul=2.0 * S * W * V,
            moved=3.0 * _LOSS_BYTES * S * V,
            moved_whole=2.0 * element * S * W,
            kept=float(_LOSS_BYTES * S * V),
            kept_whole=float(element * S * 2 * W),
            input=float(element * S * W),
            regions=1,
        )


def read_transformer(name: str, **changes: Any) -> Transformer:
    """The transformer of a file, or of a shipped one by its name, with other values of some keys.

    >>> read_transformer("llama-3-8b").cost().parameters
    8030261248
    """
    return parse_transformer(*find_file(name, "models"), **changes)


def parse_transformer(file: str, text: str, **changes: Any) -> Transformer:
    """The transformer that a text describes; raises ScheduleError (T0401), at its line, for what is wrong with it."""
    document = read_document(file, text)
    check_document(document, _SCHEMA, _REQUIRED)
    made = Transformer(**{**document.values, **changes})
    _check_sizes(document, made)
    return made


def _check_sizes(document: Document, made: Transformer) -> None:
    if not made.head_width and made.width % made.heads:
        raise document.error(
            "heads", f"{made.heads} heads do not divide a width of {made.width}", fix="write `head_width` too"
        )
    if made.kv_heads and made.heads % made.kv_heads:
        raise document.error(
            "kv_heads",
            f"{made.kv_heads} heads of keys do not divide {made.heads} heads",
            fix=f"write a divisor of {made.heads}",
        )
    if made.experts and made.top_experts > made.experts:
        raise document.error(
            "top_experts", f"{made.top_experts} experts for a token, of {made.experts}", fix="choose fewer for a token"
        )
