"""Calls of what is no op: kernels that a user wrote, Python functions, printing, and keys that the host draws."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.ir.base.arrays import Array, static_shape
from tessera.ir.base.dispatch import KERNELS
from tessera.ir.base.interval import ANYTHING
from tessera.ir.base.spec import KEEP, Attribute, Attributes, InferContext, Nondeterminism, OpSpec
from tessera.ir.graph.building import Types, cost_of
from tessera.ir.tile.facets import Library
from tessera.types import dtype as dt
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.effect import ALL
from tessera.types.shape import ZERO, TensorType


def _perform(call: str, slot: int, format: str, values: Any, wanted: Any) -> tuple[Any, ...]:
    """Do what a call of Python asks for, as the interpreter of IR does."""
    from tessera.ir.base.interpret import perform  # noqa: PLC0415 - it reads IR, and a trace needs none

    return perform(call, slot, format, values, wanted)


def _infer_kernel(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
    found = KERNELS.get(attributes["kernel"])
    if found is None:
        name = str(attributes["kernel"]).split(":")[0]
        raise ctx.fail(f"there is no kernel `{name}` in this process", help="import the module that defines it")
    outcome = found.outcome(types)
    for left, right, what in outcome.equalities:
        ctx.equal(left, right, what)
    return outcome.results


def kernel_reference(*arrays: Array, kernel: str) -> tuple[Array, ...]:
    """What the kernel gives, run program by program on NumPy."""
    return KERNELS[kernel].reference(arrays)


def _kernel_effects(attributes: Attributes) -> frozenset[str]:
    """A kernel draws or computes; one that nobody here knows may do anything."""
    kernel = KERNELS.get(attributes["kernel"])
    if kernel is None:
        return ALL
    return frozenset({"random"}) if getattr(getattr(kernel, "definition", None), "is_random", False) else frozenset()


def _find_atomics(attributes: Attributes) -> Nondeterminism | None:
    definition: Any = getattr(KERNELS.get(attributes["kernel"]), "definition", None)
    if not getattr(definition, "is_unordered", False):
        return None
    return Nondeterminism(
        f"kernel `{definition.name}` adds with `atomic_add`, in the order in which its programs come",
        "let one program own each cell and accumulate in it, or call the kernel outside of the deterministic scope",
    )


def _infer_print(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
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
    return _perform("debug_print", -1, format, values, ())


def _infer_call(ctx: InferContext, types: Types, attributes: Attributes) -> Types:
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
    return _perform("io_callback", slot, "", values, wanted)


def _answers_differ(attributes: Attributes) -> Nondeterminism | None:
    if attributes["deterministic"] or not attributes["dtypes"]:
        return None
    return Nondeterminism(
        "its result comes from outside of the program",
        "say `deterministic=True` where it always gives the same for the same arguments",
        r"\)$",
        ", deterministic=True)",
    )


def fresh_key_reference() -> Array:
    """The next key of the run."""
    return _perform("fresh_key", -1, "", (), ())[0]


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
        name="tgraph.kernel_call",
        summary="The results of a kernel written in the kernel language.",
        operands=("operands*",),
        results=("results*",),
        attributes=(Attribute("kernel", "str", doc="its name, and a digest of what it computes"),),
        infer=_infer_kernel,
        reference=kernel_reference,
        nondeterminism=_find_atomics,
        more_effects=_kernel_effects,
        cost=cost_of(lambda operands, results, attributes: sum((result.size for result in results), ZERO)),
        lower=Library("user_kernel"),
        jvp="kernels:kernel_jvp",
        batch="loop",
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.debug_print",
        summary="Prints a text with values put into it, when the program comes to it.",
        operands=("values*",),
        results=(),
        attributes=(Attribute("format", "str", doc="the text, with a `{}` for each value"),),
        infer=_infer_print,
        reference=debug_print_reference,
        effects=IO,
        batch="loop",
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
        batch="loop",
        nondeterminism=_answers_differ,
        policy=KEEP,
        interval=ANYTHING,
    ),
    OpSpec(
        name="tgraph.fresh_key",
        summary="A random key without a seed, another one at every run.",
        results=("key",),
        infer=lambda ctx, types, attributes: [TensorType.of((2,), dt.u64)],
        reference=fresh_key_reference,
        effects=frozenset({"io", "random"}),
        nondeterminism=_keys_differ,
        interval=ANYTHING,
    ),
)
