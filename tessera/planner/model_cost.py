"""What a model costs to train, layer by layer: operations, bytes, parameters, and activations that are kept.

A model is an embedding, equal blocks, and a head; each is a `LayerCost` of one sequence. Two sources make it: numbers
that describe a transformer (`transformer.py`), and the Graph IR of an `nn` model (`traced_model.py`).
"""

from __future__ import annotations

from typing import Any

from tessera.diagnostics.codes import ScheduleError
from tessera.types.frozen import frozen

ELEMENT = {"bf16": 2, "f16": 2, "fp8": 1, "tf32": 4, "f32": 4}
"""Bytes of an activation by the dtype that matmuls compute in."""


@frozen
class LayerCost:
    """A layer, forward, of one sequence; operations and bytes that tensor parallelism divides, and those it does not.

    `matmul` and `attention` are operations (the latter of scores and of their sums of values), and `backward` and
    `attention_backward` are how many times as many the backward pass has. `moved` are bytes that ops between
    matmuls read and write; of them `moved_whole` are of norms and residuals, which every rank of a tensor-parallel
    group computes in full unless the sequence is divided there. `kept` and `kept_whole` are activations for the
    backward pass, in the same way; of them `cheap` and `cheap_whole` come from norms and activation functions, which
    are recomputed in little time. `input` are bytes of the layer's input alone. `regions` counts pairs of collectives
    of a tensor-parallel forward; `keys` are bytes of keys and values, `exchanged` those of tokens that go to experts.
    """

    name: str
    parameters: int
    matmul: float = 0.0
    attention: float = 0.0
    moved: float = 0.0
    moved_whole: float = 0.0
    kept: float = 0.0
    kept_whole: float = 0.0
    cheap: float = 0.0
    cheap_whole: float = 0.0
    input: float = 0.0
    regions: int = 0
    keys: float = 0.0
    exchanged: float = 0.0
    expert_parameters: int = 0
    backward: float = 2.0
    attention_backward: float = 2.5

    @property
    def flops(self) -> float:
        """Operations of a forward pass."""
        return self.matmul + self.attention

    @property
    def training_flops(self) -> float:
        """Operations of a forward and a backward that recomputes nothing, as MFU counts them."""
        return (1 + self.backward) * self.matmul + 3 * self.attention

    @property
    def dense_parameters(self) -> int:
        return self.parameters - self.expert_parameters

    def as_json(self) -> dict[str, Any]:
        """Plain values, by name."""
        return {name: getattr(self, name) for name in ("name", "parameters", "flops", "kept", "kept_whole", "regions")}


@frozen
class ModelCost:
    """A model: `layers` equal blocks between an embedding and a head, for sequences of `sequence` tokens.

    `boundary` are the bytes that pass from block to block. `splits` is what tensor parallelism has to divide (heads),
    `experts` what expert parallelism has; 0 where a model has none of either.
    """

    name: str
    sequence: int
    layers: int
    embedding: LayerCost
    block: LayerCost
    head: LayerCost
    boundary: float
    dtype: str = "bf16"
    splits: int = 0
    experts: int = 0

    @property
    def parameters(self) -> int:
        return self.embedding.parameters + self.layers * self.block.parameters + self.head.parameters

    @property
    def training_flops(self) -> float:
        """Operations of one sequence, forward and backward, without any that are computed twice."""
        return sum(count * layer.training_flops for layer, count in self.parts())

    def parts(self) -> tuple[tuple[LayerCost, int], ...]:
        """Each layer, and how often it is there."""
        return (self.embedding, 1), (self.block, self.layers), (self.head, 1)

    def stages(self, count: int) -> list[list[LayerCost]]:
        """The layers of each of `count` stages, one behind the other: as many blocks in each, as far as they go.

        Where blocks do not divide, stages in the middle have one more: the first embeds too, the last has the head.

        >>> [len(stage) for stage in EXAMPLE.stages(4)]
        [2, 2, 2, 2]
        """
        if not 1 <= count <= self.layers + 2:
            raise ScheduleError(
                f"{self.layers} layers do not make {count} stages: a stage has a layer, an embedding or a head",
                span=None,
                fix=f"let `pp` times `chunks` be at most {self.layers + 2}",
            )
        least, more = divmod(self.layers, count)
        # The last stages to get one more are the first and the last: they have the embedding and the head.
        order = sorted(range(count), key=lambda at: (at in (0, count - 1), at == count - 1, at))
        sizes = [least] * count
        for at in order[:more]:
            sizes[at] += 1
        made = [[self.block] * size for size in sizes]
        made[0].insert(0, self.embedding)
        made[-1].append(self.head)
        return made


def describe_model(model: ModelCost) -> str:
    """A model in a line."""
    count = model.parameters
    shown = f"{count / 1e9:.3g} B" if count >= 1e9 else f"{count / 1e6:.3g} M"
    return f"{model.name}: {shown} parameters in {model.layers} layers, sequences of {model.sequence} tokens"


_LAYER = LayerCost("block", 12, matmul=24.0, kept=4.0, input=1.0, regions=2)
EXAMPLE = ModelCost("example", 1, 6, LayerCost("embedding", 4), _LAYER, LayerCost("head", 4, matmul=8.0), 1.0)
"""Six blocks of a few numbers, for examples."""
