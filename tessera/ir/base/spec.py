"""`OpSpec`: the one plain declaration of an op, from which its class, verifier, docs and tests are made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from tessera.diagnostics.error import find_nearest
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    import numpy as np

    from tessera.ir.base.interval import IntervalRule
    from tessera.types.dtype import BlockFormat

    Array: TypeAlias = "np.ndarray[Any, Any]"

Attributes: TypeAlias = Mapping[str, Any]

FLOATS = ("f32", "f64", "bf16", "f16", "f8e4m3", "f8e5m2")
INTEGERS = ("i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8")
NUMBERS = (*FLOATS, *INTEGERS)
BOOL = ("bool",)
BITS = (*INTEGERS, *BOOL)
ANY = (*NUMBERS, *BOOL)
"""Names of dtypes, as `OpSpec.dtypes` lists them."""

REQUIRED: Any = object()
"""The default of an attribute that has none."""


@frozen
class Attribute:
    """A named compile-time argument of an op.

    `kind` is one of int, float, bool, str, dim, dtype, type, symbol, array, any; their plurals ints, floats, bools,
    strs, dims, dtypes, types; maps (tuples of dims); tape, tapes. `dims` is a tuple of `Dim`; `array` a small
    constant; `any` numbers, strings, dims and dtypes in nested tuples and dicts; `symbol` the name of a function or
    kernel; `tape` a traced sub-program (control flow), which becomes a region. `COMPOSITE` of `literal.py` has kinds
    that are built of these. None is a value where it is the default, or the kind is any.
    """

    name: str
    kind: str
    default: Any = REQUIRED
    doc: str = ""

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


class InferContext(Protocol):
    """What a shape rule may ask while it runs."""

    def equal(self, left: Dim, right: Dim, what: str) -> Dim:
        """The one dim both must be: proved, or recorded as a guard; raises `ShapeError` when refuted."""
        ...

    def fail(self, message: str, *, help: str = "") -> Exception:
        """A `ShapeError` at the user's line, to raise."""
        ...

    def fail_dtype(self, message: str, *, help: str = "") -> Exception:
        """A `DTypeError` at the user's line, to raise."""
        ...


class Builder(Protocol):
    """How `decompose` makes other graph ops, whatever the values are made of."""

    def emit(self, name: str, *operands: Any, **attributes: Any) -> Any:
        """The result of op `tgraph.<name>` (a tuple when it has several); attributes left out take their defaults."""
        ...

    def type_of(self, value: Any) -> TensorType: ...


@frozen
class Producer:
    """The op a value came from, as `simplify` sees it: its short name, and whether it only `moves_elements`."""

    name: str
    operands: tuple[Any, ...]
    attributes: Attributes
    moves_elements: bool = False


class Simplifier(Builder, Protocol):
    """What `simplify` may ask on top of building: where a value came from."""

    def producer(self, value: Any) -> Producer | None:
        """The op whose only result `value` is; None for an input, or a result among several."""
        ...


@frozen
class Sample:
    """Example inputs of an op: `make(rng)` gives the arrays, `attributes` the rest."""

    name: str
    make: Callable[[np.random.Generator], Sequence[Any]]
    attributes: Attributes = field(default_factory=dict[str, Any])


@frozen
class Cost:
    """What one execution does, as functions of the dims."""

    flops: Dim
    bytes: Dim


@frozen
class Nondeterminism:
    """Why two runs of an op may differ, and what to write so that they do not.

    `pattern` and `replacement` are the fix as an edit of the call's source.
    """

    why: str
    fix: str
    pattern: str = ""
    replacement: str = ""


@frozen
class PolicyRule:
    """The `policy` facet: what a numerics policy (`ts.policy(storage=bf16, ...)`) makes of an op.

    `role` is one of
    - "keep": the op gives elements of its operands, or says itself how it rounds; a policy leaves it as it is;
    - "convert": the op is a cast, which rounds as the policy says;
    - "round": the op computes, in f32, and its float results are rounded once. One without a pointwise or reduction
      lowering is composite: under an accumulator that is not f32 its `decompose` is built in that accumulator;
    - "contract": operands (the first `factors`, or all) are multiplied and summed: they are kept as the policy stores
      values.

    `accumulate(builder, operands, attributes, dtype, emit_composite)` builds a contraction in an accumulator that its
    kernel does not have; `emit_composite(name, ...)` makes a composite op with its sums in it. `block_axis(type,
    number, attributes, format)` is the axis of an operand that is split into blocks of a storage format; None where
    there is none, or a message and a fix where blocks do not fit. A contraction that is built `by_parts` is its
    `decompose`, each part under the policy. An op that `saturates` may leave the range of integers, and a wider dtype
    computes it.
    """

    role: str
    saturates: bool = False
    factors: int | None = None
    accumulate: Callable[[Builder, Sequence[Any], Attributes, DType, Callable[..., Any]], Any] | None = None
    block_axis: Callable[[TensorType, int, Attributes, BlockFormat], int | tuple[str, str] | None] | None = None
    by_parts: bool = False

    def is_factor(self, number: int) -> bool:
        """Whether a contraction multiplies its operand of that number."""
        return self.factors is None or number < self.factors

    @property
    def is_arithmetic(self) -> bool:
        """Whether the op gives values that were not among its operands, and so has something to round."""
        return self.role in ("round", "contract")


KEEP, CONVERT, ROUND = PolicyRule("keep"), PolicyRule("convert"), PolicyRule("round")

Infer: TypeAlias = Callable[[InferContext, Sequence[TensorType], Attributes], Sequence[TensorType]]
Reference: TypeAlias = "Callable[..., Array | tuple[Array, ...]]"
Decompose: TypeAlias = Callable[[Builder, Sequence[Any], Attributes], Any]
Simplify: TypeAlias = Callable[[Simplifier, Sequence[Any], Attributes], Any]
CostRule: TypeAlias = Callable[[Sequence[TensorType], Sequence[TensorType], Attributes], Cost]
AttributeRule: TypeAlias = Callable[[Sequence[TensorType], Attributes], Attributes]
TypeRule: TypeAlias = Callable[[Sequence[Any], Attributes], Sequence[Any]]
Verify: TypeAlias = Callable[[Any], None]
Differs: TypeAlias = "Callable[[Attributes], Nondeterminism | None]"


def no_rule(context: InferContext, types: Sequence[TensorType], attributes: Attributes) -> Sequence[TensorType]:
    """The shape rule of an op that has none: its result types are given when it is made."""
    raise TypeError("this op has no shape rule; its result types are given when it is made")


@frozen
class OpSpec:
    """An op: what it takes and gives, when it is wrong, what it means, what it costs, and its lowering.

    `operands` and `results` are names; a last name ending in `*` stands for any number. `infer` is verifier and
    shape rule in one. `reference(*arrays, **attributes)` is the meaning, on NumPy arrays; its dims have values, and
    in place of a tape it gets a function from arrays to a tuple of arrays. `lower` is a facet of
    `ir/tile/facets.py` (a view, pointwise, reduction, contraction, gather, assembly or library kernel), or None for
    an op that `decompose` rewrites into others. `simplify` gets a simplifier, operands and attributes and returns the
    value (or tuple of values) to use instead, of the same type and bit for bit the same, or None. `policy` is what a
    numerics policy makes of the op, `interval` how far it takes its operands (`ir/base/interval.py`). `jvp` and
    `transpose` name the rules of its derivatives (`ir/graph/derivatives/shared.py`): an op that has neither is
    differentiated through `decompose`, or says in `no_derivative` why it has none. One whose derivative needs more than
    its results is linearized as the op `with_residuals`, which takes the same and gives more. `batch` names the rule
    for a batch of operands (`ir/graph/batching/shared.py`), `shard` that for operands of which ranks have parts
    (`ir/graph/sharding/rules.py`), where its lowering does not imply it.
    `nondeterminism` says by the attributes whether runs on equal operands may differ; without it they never do.
    `more_effects` are those that an op has by its attributes, on top of `effects`. `attribute_rule` gives, from
    operand types, attributes that are not given when an op is first made; rewrites hand them on. An op that
    `takes_positions` reads or writes where an operand says; `decompose` may be told how that is `checked`.

    Ops of the lower stages work on other types than tensors, and leave `infer` out. They may give `type_rule`, from
    operand types and attributes to result types (all xDSL types), and `verify`, which gets the op and raises through
    `op.fail(message)`. `regions` names bodies that are not traced (`*` as above). An op of form "function" prints as
    `name @symbol(arguments) -> results {...}`; it has one region and an attribute `symbol` of that kind. Values from
    outside are visible inside a region unless the op `is_isolated`, as all functions and all ops with tapes are.
    """

    name: str
    summary: str
    operands: tuple[str, ...] = ()
    infer: Infer = no_rule
    reference: Reference | None = None
    attributes: tuple[Attribute, ...] = ()
    results: tuple[str, ...] = ("out",)
    effects: frozenset[str] = frozenset()
    nondeterminism: Differs | None = None
    more_effects: Callable[[Attributes], frozenset[str]] | None = None
    attribute_rule: AttributeRule | None = None
    samples: tuple[Sample, ...] = ()
    dtypes: tuple[str, ...] = ()
    cost: CostRule | None = None
    simplify: Simplify | None = None
    decompose: Decompose | None = None
    lower: Any = None
    policy: PolicyRule | None = None
    interval: IntervalRule | None = None
    jvp: str | None = None
    transpose: str | None = None
    with_residuals: str = ""
    no_derivative: str = ""
    batch: str | None = None
    shard: str | None = None
    takes_positions: bool = False
    verify: Verify | None = None
    type_rule: TypeRule | None = None
    regions: tuple[str, ...] = ()
    form: str = "op"
    is_terminator: bool = False
    is_isolated: bool = False
    # What follows from the others is asked of every op of a program, many times.
    short_name: str = field(default="", init=False, repr=False, compare=False)
    region_names: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)
    """The names of all regions in order: those made from tapes, then those declared; `*` stands for any number."""
    moves_elements: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether the result has the elements of the first operand and nothing else."""

    def __post_init__(self) -> None:
        stars = {"tape": "", "tapes": "*"}
        tapes = tuple(a.name + stars[a.kind] for a in self.attributes if a.kind in stars)
        object.__setattr__(self, "short_name", self.name.partition(".")[2])
        object.__setattr__(self, "region_names", tapes + self.regions)
        object.__setattr__(self, "moves_elements", getattr(self.lower, "moves_elements", False))

    @property
    def is_structural(self) -> bool:
        """Whether result types are given rather than inferred."""
        return self.infer is no_rule

    @property
    def is_variadic(self) -> bool:
        return bool(self.operands) and self.operands[-1].endswith("*")

    @property
    def has_one_result(self) -> bool:
        """Whether the op always has exactly one result, which is then given by itself."""
        return len(self.results) == 1 and not self.results[0].endswith("*")

    @property
    def is_pure(self) -> bool:
        return not self.effects

    @property
    def is_mergeable(self) -> bool:
        """Whether equal ops may become one, and one that is not used may go: draws depend on their keys alone."""
        return self.effects <= {"random"}

    def effects_for(self, attributes: Attributes) -> frozenset[str]:
        """The effects of the op with these attributes."""
        return self.effects if self.more_effects is None else self.effects | self.more_effects(attributes)

    def attribute(self, name: str) -> Attribute:
        return next(attribute for attribute in self.attributes if attribute.name == name)

    def with_defaults(self, given: Attributes) -> dict[str, Any]:
        """All attributes in declaration order: those given, else their defaults."""
        full = {a.name: given.get(a.name, a.default) for a in self.attributes}
        if not given.keys() <= full.keys():
            raise TypeError(f"`{self.name}` has no attribute `{min(given.keys() - full)}`; it has {sorted(full)}")
        for a in self.attributes:
            if a.is_required and a.name not in given:
                raise TypeError(f"`{self.name}` needs attribute `{a.name}`")
        return full

    def complete(self, given: Attributes, types: Sequence[TensorType]) -> dict[str, Any]:
        """The same of an op on operands of these types, which decide some of those that are not given."""
        full = self.with_defaults(given)
        if self.attribute_rule is not None:
            decided = self.attribute_rule(types, full)
            full.update((name, value) for name, value in decided.items() if name not in given)
        return full


class Registry:
    """The specs of one dialect, by full and by short name."""

    def __init__(self, dialect: str, specs: Iterable[OpSpec] = ()) -> None:
        self.dialect = dialect
        self._specs: dict[str, OpSpec] = {}
        for spec in specs:
            self.add(spec)

    def add(self, spec: OpSpec) -> OpSpec:
        if spec.name in self._specs:
            raise ValueError(f"`{spec.name}` is declared twice")
        self._specs[spec.name] = spec
        return spec

    def __getitem__(self, name: str) -> OpSpec:
        full = name if "." in name else f"{self.dialect}.{name}"
        found = self._specs.get(full)
        if found is None:
            near = find_nearest(full, self._specs, 3)
            raise KeyError(f"there is no op `{full}`" + (f"; did you mean {', '.join(near)}?" if near else ""))
        return found

    def find(self, full: str) -> OpSpec | None:
        """The spec of a full name, if there is one."""
        return self._specs.get(full)

    def __contains__(self, name: str) -> bool:
        return (name if "." in name else f"{self.dialect}.{name}") in self._specs

    def __iter__(self) -> Iterator[OpSpec]:
        return iter(self._specs.values())

    def __len__(self) -> int:
        return len(self._specs)
