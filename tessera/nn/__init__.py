"""`tessera.nn`: modules as pytrees, layers, transformers, recurrent cells, losses, initializers and state dicts."""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from tessera.api.other_names import answer_names as _answer_names
from tessera.diagnostics.frames import guard_public as _guard
from tessera.nn import initializers as initializers
from tessera.nn import losses as losses
from tessera.nn.attention import Attention, rotary_angles
from tessera.nn.convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tessera.nn.feed_forward import MLP, MoE, SwiGLU, gelu_tanh
from tessera.nn.generate import draw_token, generate
from tessera.nn.layers import Dropout, Embedding, Function, Linear, Sequential, with_policy
from tessera.nn.losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cosine_similarity,
    cross_entropy,
    ctc_loss,
    focal_loss,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_divergence,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from tessera.nn.module import Module, buffer, cast, combine, leaf, partition, split_buffers
from tessera.nn.norms import BatchNorm, GroupNorm, LayerNorm, RMSNorm
from tessera.nn.recurrent import Cell, GRUCell, LSTMCell, Recurrent, RNNCell
from tessera.nn.state_dict import GPT2_NAMES, load_state_dict, state_dict, translate
from tessera.nn.summary import count_parameters, summary
from tessera.nn.transformer import GPT, Block, GPTConfig

__all__ = [
    "GPT",
    "GPT2_NAMES",
    "MLP",
    "Attention",
    "BatchNorm",
    "Block",
    "Cell",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "Dropout",
    "Embedding",
    "Function",
    "GPTConfig",
    "GRUCell",
    "GroupNorm",
    "LSTMCell",
    "LayerNorm",
    "Linear",
    "MoE",
    "Module",
    "RMSNorm",
    "RNNCell",
    "Recurrent",
    "Sequential",
    "SwiGLU",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "buffer",
    "cast",
    "combine",
    "cosine_embedding_loss",
    "cosine_similarity",
    "count_parameters",
    "cross_entropy",
    "ctc_loss",
    "draw_token",
    "focal_loss",
    "gaussian_nll_loss",
    "gelu_tanh",
    "generate",
    "hinge_embedding_loss",
    "huber_loss",
    "initializers",
    "kl_divergence",
    "l1_loss",
    "leaf",
    "load_state_dict",
    "losses",
    "margin_ranking_loss",
    "mse_loss",
    "multi_margin_loss",
    "nll_loss",
    "partition",
    "poisson_nll_loss",
    "rotary_angles",
    "smooth_l1_loss",
    "soft_margin_loss",
    "split_buffers",
    "state_dict",
    "summary",
    "translate",
    "triplet_margin_loss",
    "with_policy",
]

_guard(globals(), __all__)

if not _TYPE_CHECKING:  # a checker would take it to mean that every name is there
    __getattr__ = _answer_names(__name__)
