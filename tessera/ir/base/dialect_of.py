"""Op classes, dialects and modules made from specs: a class is made when its op is first met, never before."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.ir import Block, Operation, OpTraits, Region, SSAValue
from xdsl.traits import IsolatedFromAbove, IsTerminator, NoTerminator, OpTrait, Pure

from tessera.diagnostics.error import Span
from tessera.ir.base.infer import RuleContext
from tessera.ir.base.op import TAPES, SpecOp
from tessera.ir.base.spec import OpSpec, Registry
from tessera.ir.base.types import TensorAttr, ValueAttr, attribute_of, location_of

_DIALECTS: dict[str, Registry] = {}
_TYPES: dict[str, type[Any]] = {}
_CLASSES: dict[str, type[SpecOp]] = {}
_SPECS: dict[str, OpSpec] = {}
"""Specs by the full names of their ops, as far as these were asked for."""
_NAMESPACES: dict[str, list[tuple[dict[str, Any], str]]] = {}
"""By dialect: where classes stand under names of modules, as far as these were asked for."""


def install(registry: Registry, types: Iterable[type[Any]] = ()) -> Registry:
    """Make a dialect known by name: its specs, and its types. A second registry of one name replaces the first."""
    _DIALECTS[registry.dialect] = registry
    _TYPES.update({type.name: type for type in types})
    for name in [name for name in _CLASSES if name.split(".", 1)[0] == registry.dialect]:
        del _CLASSES[name]
    _SPECS.clear()
    _forget_classes(registry.dialect)
    return registry


def _forget_classes(dialect: str) -> None:
    for namespace, name in _NAMESPACES.pop(dialect, ()):
        namespace.pop(name, None)


def contribute(dialect: Registry, registry: Registry, types: Iterable[type[Any]] = ()) -> Registry:
    """Add ops and types of a backend's own to a dialect, and return all of it.

    Nothing but the backend itself, and who reads texts of any machine (`load_dialects`), loads them.
    """
    for spec in registry:
        if spec.name not in dialect:
            dialect.add(spec)
    _TYPES.update({type.name: type for type in types})
    return dialect


def installed_dialects() -> Mapping[str, Registry]:
    """The dialects known so far, by name."""
    return _DIALECTS


def load_dialects() -> None:
    """Import `dialect.py` of every stage, which installs its dialect, and of every backend, which adds its own ops.

    The folders are the registry.
    """
    for root in ("tessera.ir", "tessera.backends"):
        for folder in pkgutil.iter_modules(importlib.import_module(root).__path__):
            package = f"{root}.{folder.name}"
            if folder.ispkg and importlib.util.find_spec(f"{package}.dialect") is not None:
                importlib.import_module(f"{package}.dialect")


def find_spec(name: str) -> OpSpec | None:
    """The spec of a full op name in the dialects installed."""
    found = _SPECS.get(name)
    if found is None:
        registry = _DIALECTS.get(name.partition(".")[0])
        found = None if registry is None else registry.find(name)
        if found is not None:
            _SPECS[name] = found
    return found


def op_class(op: OpSpec | str) -> type[SpecOp]:
    """The class of an op; one spec, or one name, always gives the same class."""
    name = op if isinstance(op, str) else op.name
    found = _CLASSES.get(name)
    if found is not None and (isinstance(op, str) or found.spec is op):
        return found
    spec = find_spec(op) if isinstance(op, str) else op
    if spec is None:
        raise KeyError(f"no dialect has an op `{name}`")
    if found is not None:
        _forget_classes(name.partition(".")[0])
    found = _CLASSES[name] = _make_class(spec)
    return found


def _make_class(spec: OpSpec) -> type[SpecOp]:
    kinds = {a.name: a.kind for a in spec.attributes if a.kind not in TAPES}
    # Defaults are what an attribute is when left out; a tape has none.
    defaults = {
        a.name: attribute_of(a.kind, a.default) for a in spec.attributes if a.name in kinds and not a.is_required
    }
    body: dict[str, Any] = {
        "__doc__": spec.summary,
        "name": spec.name,
        "spec": spec,
        "kinds": kinds,
        "defaults": defaults,
        "counts": _counts(spec),
        "traits": OpTraits(lambda: _traits(spec)),
    }
    body.update(_accessors(spec))
    if spec.form == "quoted":
        body["print"] = Operation.print  # by which xDSL tells ops whose names it writes in quotes
    return type(class_name(spec.name), (SpecOp,), body)


def class_name(name: str) -> str:
    """The class of an op by its name: `ttile.arg_reduce` is `ArgReduceOp`."""
    short = name.split(".", 1)[1]
    return re.sub(r"(?:^|[_.])(\w)", lambda match: match.group(1).upper(), short) + "Op"


def accessor_names(spec: OpSpec) -> dict[str, str]:
    """What each accessor of an op reads, by its name: "attribute", "operand", "operands" or "region".

    Where two parts share a name the attribute has it, then the operand; a name that `SpecOp` uses itself has none.
    """
    regions = {name.rstrip("*"): "region" for name in spec.region_names if not name.endswith("*")}
    operands = {name.rstrip("*"): "operands" if name.endswith("*") else "operand" for name in spec.operands}
    attributes = {a.name: "attribute" for a in spec.attributes if a.kind not in TAPES}
    found = {**regions, **operands, **attributes}
    return {name: kind for name, kind in found.items() if not hasattr(SpecOp, name)}


def _accessors(spec: OpSpec) -> dict[str, property]:
    """Properties by which Python code reads an op's parts, and sets its attributes, under their declared names."""
    made: dict[str, property] = {}
    for name, kind in accessor_names(spec).items():
        if kind == "attribute":
            made[name] = property(_reader(name), lambda op, value, name=name: op.set_value(name, value))
        elif kind == "region":
            made[name] = property(lambda op, name=name: op.region(name))
        else:
            index = [operand.rstrip("*") for operand in spec.operands].index(name)
            part = slice(index, None) if kind == "operands" else index
            made[name] = property(lambda op, part=part: op.operands[part])
    return made


def _reader(name: str) -> Callable[[SpecOp], Any]:
    """`op.value(name)`, without a call."""

    def read(op: SpecOp) -> Any:
        found = op.properties.get(name)
        if found is None:
            return op.defaults[name].data
        assert isinstance(found, ValueAttr), f"{found} is not an attribute of ours"
        return found.data

    return read


def class_lookup(dialect: str, namespace: dict[str, Any]) -> Callable[[str], type[SpecOp]]:
    """The `__getattr__` of a dialect's module of typed classes: `DotOp` is the class of its op `dot`.

    What it finds it puts into the module's namespace, where it stays until a dialect of that name is installed anew.
    """

    def find(name: str) -> type[SpecOp]:
        named = (spec for spec in _DIALECTS.get(dialect, ()) if class_name(spec.name) == name)
        spec = next(named, None)
        if spec is None:
            raise AttributeError(f"`{dialect}` has no op whose class is `{name}`")
        found = namespace[name] = op_class(spec.name)
        _NAMESPACES.setdefault(dialect, []).append((namespace, name))
        return found

    return find


def _counts(spec: OpSpec) -> tuple[int, int, int] | None:
    """How many operands, results and regions every op of a spec has; None where a last name stands for any number."""
    lists = (spec.operands, spec.results, spec.region_names)
    if any(names and names[-1].endswith("*") for names in lists):
        return None
    return len(lists[0]), len(lists[1]), len(lists[2])


def _traits(spec: OpSpec) -> tuple[OpTrait, ...]:
    found: list[OpTrait] = []
    if spec.is_terminator:
        found.append(IsTerminator())
    if is_isolated(spec):
        found.append(IsolatedFromAbove())
    if spec.region_names:
        found.append(NoTerminator())  # our verifier looks at the ends of blocks, and knows more
    if spec.is_mergeable:
        found.append(Pure())
    return tuple(found)


def is_isolated(spec: OpSpec) -> bool:
    """Whether no region of the op sees values from outside."""
    return spec.is_isolated or spec.form == "function" or any(a.kind in TAPES for a in spec.attributes)


class DialectContext(Context):
    """An xDSL context that asks our dialects for ops and types, and makes a class only when a text names it."""

    def __init__(self) -> None:
        super().__init__()
        self.load_dialect(Builtin)
        self.load_attr_or_type(ValueAttr)
        for type in _TYPES.values():
            self.load_attr_or_type(type)

    def _get_known_op(self, name: str) -> type[Operation] | None:
        spec = find_spec(name)
        return super()._get_known_op(name) if spec is None else op_class(spec)


def make(
    op: OpSpec | str,
    operands: Sequence[SSAValue] = (),
    values: Mapping[str, Any] | None = None,
    *,
    types: Sequence[Any] | None = None,
    regions: Sequence[Region | Block] = (),
    span: Span | None = None,
) -> SpecOp:
    """A new op, not yet in a block.

    `values` are plain; those left out take their defaults. `types` are the result types; without them the op's
    `type_rule` gives them. (Ops with a shape rule are made with `Build.emit`, or with types that are known already.)
    """
    cls = op_class(op)
    properties = properties_of(cls, values or {})
    if types is None:
        rule = cls.spec.type_rule
        types = () if rule is None else rule([value.type for value in operands], plain_values(properties))
    return cls.create(
        operands=operands,
        result_types=types,
        properties=properties,
        location=location_of(span),
        regions=[Region(part) if isinstance(part, Block) else part for part in regions],
    )


def properties_of(cls: type[SpecOp], values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values, and defaults for the rest, as properties in the order of the spec."""
    found: dict[str, Any] = {}
    for name, kind in cls.kinds.items():
        if name in values:
            found[name] = attribute_of(kind, values[name])
        elif name in cls.defaults:
            found[name] = cls.defaults[name]
        else:
            raise TypeError(f"`{cls.name}` needs attribute `{name}`")
    if values.keys() <= cls.kinds.keys():
        return found
    unknown = values.keys() - cls.kinds.keys() - {name.rstrip("*") for name in cls.spec.region_names}
    if unknown:
        raise TypeError(f"`{cls.name}` has no attribute `{min(unknown)}`; it has {sorted(cls.kinds)}")
    return found


def plain_values(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties as plain values."""
    return {name: attribute.data for name, attribute in properties.items()}


_RULES: dict[Any, Sequence[TensorAttr]] = {}
"""What shape rules gave without guards: decompositions ask the same of every layer."""
_RULES_LIMIT = 1 << 16


def inferred_types(
    cls: type[SpecOp],
    operands: Sequence[SSAValue],
    properties: Mapping[str, Any],
    values: Mapping[str, Any],
    context: RuleContext,
) -> Sequence[TensorAttr]:
    """The result types that a shape rule gives; raises `RuleError` where it says no."""
    key = (cls, tuple(properties.values()), *[value.type for value in operands])
    is_kept = not context.guards.pairs and not cls.spec.region_names
    if is_kept and (known := _RULES.get(key)) is not None:
        return known
    plain: list[Any] = [cast("TensorAttr", value.type).data for value in operands]
    found = [TensorAttr.of(type) for type in cls.spec.infer(context, plain, values)]
    if is_kept and not context.guards.pairs:  # the rule itself may have added a guard
        if len(_RULES) >= _RULES_LIMIT:
            _RULES.clear()
        _RULES[key] = found
    return found
