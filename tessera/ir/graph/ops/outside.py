"""Ops with effects on the outside world: printing, callbacks to Python functions, keys without a seed."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.base.arrays import Array, static_shape
from tessera.ir.base.interpret import perform
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import KEEP, Attribute, Attributes, InferContext, Nondeterminism, OpSpec
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.shape import TensorType


def _infer_print(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    try:
        attributes["format"].format(*[_AnyValue()] * len(types))
    except (IndexError, KeyError, ValueError) as error:
        raise ctx.fail(f"`debug_print` has {len(types)} values, which `{attributes['format']}` cannot show") from error
    return []


class _AnyValue:
    """Stands for a value of which only the run will know more."""

    def __format__(self, spec: str) -> str:
        return ""


def debug_print_reference(*values: Array, format: str) -> tuple[Array, ...]:
    """Prints, and gives nothing."""
    return perform("debug_print", -1, format, values, ())


def _infer_call(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    shapes, dtypes = attributes["shapes"], attributes["dtypes"]
    if len(shapes) != len(dtypes):
        raise ctx.fail(f"`io_callback` declares {len(shapes)} shapes and {len(dtypes)} dtypes")
    return [TensorType.of(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def io_callback_reference(
    *values: Array,
    slot: int,
    shapes: Sequence[Sequence[Dim]] = (),
    dtypes: Sequence[DType] = (),
    deterministic: bool = False,
    function: str = "",
) -> tuple[Array, ...]:
    """What the function gives."""
    wanted = [(dtype, static_shape(shape)) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return perform("io_callback", slot, "", values, wanted)


def _answers_differ(attributes: Attributes) -> Nondeterminism | None:
    if attributes["deterministic"] or not attributes["dtypes"]:
        return None
    return Nondeterminism(
        "its result comes from outside of the program",
        "say `deterministic=True` where it always gives the same for the same arguments",
        r"\)$",
        ", deterministic=True)",
    )


def _infer_key(ctx: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    return [TensorType.of((2,), dt.u64)]


def fresh_key_reference() -> Array:
    """The next key of the run."""
    return perform("fresh_key", -1, "", (), ())[0]


def _keys_differ(attributes: Attributes) -> Nondeterminism:
    return Nondeterminism(
        "its key has no seed and differs from run to run",
        "give it one, as in `random.key(0)`, or draw it within `with tessera.effects.seeded():`",
        r"\(\s*\)$",
        "(0)",
    )


IO = frozenset({"io"})

SPECS: tuple[OpSpec, ...] = (
    OpSpec(
        name="tgraph.debug_print",
        summary="Prints a text with values put into it, when the program comes to it.",
        operands=("values*",),
        results=(),
        attributes=(Attribute("format", "str", doc="the text, with a `{}` for each value"),),
        infer=_infer_print,
        reference=debug_print_reference,
        effects=IO,
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.io_callback",
        summary="What a Python function gives for values, called when the program comes to it.",
        operands=("values*",),
        results=("results*",),
        attributes=(
            Attribute("slot", "int", doc="the number of the function among those of the program"),
            Attribute("shapes", "maps", (), "the dims of each result"),
            Attribute("dtypes", "dtypes", (), "the dtype of each result"),
            Attribute("deterministic", "bool", False, "whether equal arguments always give equal results"),
            Attribute("function", "str", "", "the name of the function"),
        ),
        infer=_infer_call,
        reference=io_callback_reference,
        effects=IO,
        nondeterminism=_answers_differ,
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.fresh_key",
        summary="A random key without a seed, another one at every run.",
        results=("key",),
        infer=_infer_key,
        reference=fresh_key_reference,
        effects=frozenset({"io", "random"}),
        nondeterminism=_keys_differ,
        interval=ANYTHING,
    ),
)
