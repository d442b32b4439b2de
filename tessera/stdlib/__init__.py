"""What comes with Tessera, written in Tessera: kernels to use as they are, or with `with_schedule` as you like."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.frames import guard_public

if TYPE_CHECKING:
    from tessera.stdlib.channel_scan import selective_scan
    from tessera.stdlib.chunked_attention import linear_attention, ssd
    from tessera.stdlib.delta_rule import gated_delta_rule
    from tessera.stdlib.fourier import fft, ifft, irfft, rfft
    from tessera.stdlib.long_convolution import fft_conv1d
    from tessera.stdlib.optimizers import fused_adam
    from tessera.stdlib.residual_norm import dropout_residual_layernorm
    from tessera.stdlib.tile_kernels import efficient_layernorm, flash_attention_2, rotary_embedding, stable_softmax

_HOME = {
    "channel_scan": "selective_scan",
    "chunked_attention": "linear_attention ssd",
    "delta_rule": "gated_delta_rule",
    "fourier": "fft ifft irfft rfft",
    "long_convolution": "fft_conv1d",
    "optimizers": "fused_adam",
    "residual_norm": "dropout_residual_layernorm",
    "tile_kernels": "efficient_layernorm flash_attention_2 rotary_embedding stable_softmax",
}
_WHERE = {name: home for home, names in _HOME.items() for name in names.split()}
__all__ = [
    "dropout_residual_layernorm",
    "efficient_layernorm",
    "fft",
    "fft_conv1d",
    "flash_attention_2",
    "fused_adam",
    "gated_delta_rule",
    "ifft",
    "irfft",
    "linear_attention",
    "rfft",
    "rotary_embedding",
    "selective_scan",
    "ssd",
    "stable_softmax",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """A kernel, loaded at its first use: the compiler's own library is in this package too."""
    if name not in _WHERE:
        raise AttributeError(f"module `tessera.stdlib` has no attribute `{name}`")
    home = importlib.import_module(f"tessera.stdlib.{_WHERE[name]}")
    guard_public(vars(home), (name,))
    return getattr(home, name)
