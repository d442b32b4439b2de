"""Every function on tensors under one roof: what `tessera.ops` shows and what methods call."""

from __future__ import annotations

from types import FunctionType as _FunctionType

from tessera.frontend.complex.dispatch import accept_complex as _accept_complex
from tessera.frontend.functions.activations import *  # noqa: F403
from tessera.frontend.functions.algebra import *  # noqa: F403
from tessera.frontend.functions.arrangement import *  # noqa: F403
from tessera.frontend.functions.complex_numbers import *  # noqa: F403
from tessera.frontend.functions.composite import *  # noqa: F403
from tessera.frontend.functions.contraction import *  # noqa: F403
from tessera.frontend.functions.creation import *  # noqa: F403
from tessera.frontend.functions.elementwise import *  # noqa: F403
from tessera.frontend.functions.images import *  # noqa: F403
from tessera.frontend.functions.indexing import *  # noqa: F403
from tessera.frontend.functions.lookup import *  # noqa: F403
from tessera.frontend.functions.movement import *  # noqa: F403
from tessera.frontend.functions.normal_distribution import *  # noqa: F403
from tessera.frontend.functions.polynomials import *  # noqa: F403
from tessera.frontend.functions.reduction import *  # noqa: F403
from tessera.frontend.functions.sampling import *  # noqa: F403
from tessera.frontend.functions.selection import *  # noqa: F403
from tessera.frontend.functions.special import *  # noqa: F403
from tessera.frontend.functions.special_series import *  # noqa: F403
from tessera.frontend.functions.statistics import *  # noqa: F403
from tessera.frontend.functions.updates import *  # noqa: F403
from tessera.frontend.functions.windows import *  # noqa: F403

# Functions call each other unwrapped: those with complex arguments take them apart before they do.
globals().update(
    {
        name: _accept_complex(item)
        for name, item in list(globals().items())
        if isinstance(item, _FunctionType) and item.__module__.startswith("tessera.frontend.functions.")
    }
)
