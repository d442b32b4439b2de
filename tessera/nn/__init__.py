"""`tessera.nn`: modules as pytrees, layers, transformers, recurrent cells, losses, initializers and state dicts."""

from __future__ import annotations

from tessera.diagnostics.frames import guard_public as _guard
from tessera.nn import initializers as initializers
from tessera.nn.attention import Attention, rotary_angles
from tessera.nn.convolutions import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from tessera.nn.feed_forward import MLP, MoE, SwiGLU, gelu_tanh
from tessera.nn.generate import draw_token, generate
from tessera.nn.layers import Dropout, Embedding, Function, Linear, Sequential, with_policy
from tessera.nn.losses import binary_cross_entropy, cross_entropy, huber_loss, kl_divergence, l1_loss, mse_loss
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
    "buffer",
    "cast",
    "combine",
    "count_parameters",
    "cross_entropy",
    "draw_token",
    "gelu_tanh",
    "generate",
    "huber_loss",
    "initializers",
    "kl_divergence",
    "l1_loss",
    "leaf",
    "load_state_dict",
    "mse_loss",
    "partition",
    "rotary_angles",
    "split_buffers",
    "state_dict",
    "summary",
    "translate",
    "with_policy",
]

_guard(globals(), __all__)
