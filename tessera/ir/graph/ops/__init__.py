"""The ops of Graph IR: every module of this package gives `SPECS`, and they are all here.

An op is registered when its module is read, and one that lacks a facet which some stage will ask for is refused there,
by name: left out silently, it would be a composite op that no numerics policy rounds, or a value without a bound.
"""

from __future__ import annotations

import importlib
import pkgutil
import threading
from collections.abc import Iterator

from tessera.ir.base.interval import HULL, SAME, IntervalRule
from tessera.ir.base.spec import FLOATS, KEEP, ROUND, OpSpec, PolicyRule, Registry
from tessera.ir.tile.facets import Assembly, Gather, Pointwise, Reduction, View

_USUAL = ("contraction", "elementwise", "creation", "normalization", "movement", "reduce")
"""Modules read first: a program found in the disk cache often needs no others, and they cost more than running it."""


def policy_of(spec: OpSpec) -> PolicyRule:
    """The `policy` facet of a registered op: its own, or the one that its lowering implies."""
    return spec.policy or _implied_policy(spec) or KEEP


def interval_of(spec: OpSpec) -> IntervalRule | None:
    """The `interval` facet of an op: its own, or the one that its lowering implies."""
    if spec.interval is not None:
        return spec.interval
    if isinstance(spec.lower, View | Gather):
        return SAME
    return HULL if isinstance(spec.lower, Assembly) else None


def _implied_policy(spec: OpSpec) -> PolicyRule | None:
    if not spec.operands or isinstance(spec.lower, View | Gather | Assembly):
        return KEEP
    return ROUND if isinstance(spec.lower, Pointwise | Reduction) else None


_WITHOUT_SAMPLES = frozenset({"fused", "kernel_call"})
"""Ops that hold a program of the user's or of the compiler's, and are nothing without it."""


def check_facets(spec: OpSpec) -> None:
    """Raises TypeError, by name, for an op that lacks a facet it needs."""
    missing = ""
    if spec.reference is None:
        missing = "`reference`: its meaning on NumPy arrays, which tests and constant folding run"
    elif spec.lower is None and spec.decompose is None and not spec.effects and not spec.region_names:
        missing = "a lowering: `lower` (a facet of `ir/tile/facets.py`), or `decompose` into other ops"
    elif spec.policy is None and _implied_policy(spec) is None:
        missing = (
            "`policy`: what a numerics policy makes of it; `ROUND` for an op that computes, `KEEP` for one that moves "
            "elements or says itself how it rounds (`ir/base/spec.py`)"
        )
    elif interval_of(spec) is None:
        missing = (
            "`interval`: bounds on its result, a rule of `ir/base/interval.py`; `ANYTHING` says that nothing is known"
        )
    elif not (spec.samples or spec.effects or spec.region_names or spec.short_name in _WITHOUT_SAMPLES):
        missing = "`samples`: example operands, which the generated tests take"
    elif spec.operands and spec.samples and not spec.dtypes:
        missing = "`dtypes`: those that its samples are tried in"
    elif policy_of(spec).role == "contract" and not (policy_of(spec).by_parts or policy_of(spec).accumulate):
        missing = "`accumulate` in its policy: how it is built in an accumulator that its kernel does not have"
    missing = missing or _missing_transform(spec)
    if missing:
        raise TypeError(f"op `{spec.name}` lacks {missing}")


def why_no_derivative(spec: OpSpec) -> str:
    """Why an op has no derivative, as it says itself or as its effects and its dtypes do; empty where it may have."""
    effects = sorted(spec.effects - {"random"})
    if spec.no_derivative or not effects:
        has_floats = not spec.dtypes or any(name in FLOATS for name in spec.dtypes)
        return spec.no_derivative or ("" if has_floats else "integers and bools have no tangents")
    return f"it has the effect `{effects[0]}`"


_ON_TANGENTS = ("linear", "first", "multilinear")
"""Rules by which an op is its own derivative, on tangents: reverse mode transposes it."""


def _missing_transform(spec: OpSpec) -> str:
    """What a transform would ask an op for in vain; nothing is asked of what takes no operands."""
    has_parts = spec.decompose is not None
    if not spec.operands:
        return ""
    if spec.jvp in _ON_TANGENTS and spec.transpose is None:
        return f"`transpose`: its `jvp` is {spec.jvp!r}, the op itself on tangents, which reverse mode transposes"
    if spec.jvp is None and spec.transpose is not None and not has_parts:
        return "`jvp`: it has a `transpose`, so it is linear, and does not say in which operands"
    if spec.jvp is None and not has_parts and not why_no_derivative(spec):
        return (
            "a derivative: `jvp` (a rule of `ir/graph/derivatives`), or `decompose` into ops that have one, or the "
            "reason why there is none in `no_derivative`"
        )
    if spec.batch is None and not has_parts and not isinstance(spec.lower, Pointwise | Reduction | View):
        return '`batch`: a rule of `ir/graph/batching`; "loop" runs it for one element after the other'
    return ""


class _Folder(Registry):
    """The ops of this folder; a module is read when an op is asked for that none read so far has."""

    def __init__(self) -> None:
        super().__init__("tgraph")
        names = sorted(module.name for module in pkgutil.iter_modules(__path__))
        self._unread = [*(name for name in _USUAL if name in names), *(name for name in names if name not in _USUAL)]
        self._read: dict[str, tuple[OpSpec, ...]] = {}
        self._lock = threading.RLock()

    def add(self, spec: OpSpec) -> OpSpec:
        check_facets(spec)
        return super().add(spec)

    def _read_until(self, name: str = "") -> None:
        """Read modules until one has the op `name`; all of them when none has."""
        full = name if "." in name else f"{self.dialect}.{name}"
        if full in self._specs:
            return  # as nearly all of the thousands that a program asks for, without the lock
        with self._lock:
            while self._unread and full not in self._specs:
                module = self._unread[0]
                specs = getattr(importlib.import_module(f"{__name__}.{module}"), "SPECS", ())
                # Importing may read the registry itself; the module is then done already.
                if module in self._unread:
                    self._unread.remove(module)
                    self._read[module] = tuple(self.add(spec) for spec in specs)

    def __getitem__(self, name: str) -> OpSpec:
        found = self._specs.get(name if "." in name else f"tgraph.{name}")
        if found is not None:
            return found
        if self._unread:
            self._read_until(name)
        return super().__getitem__(name)

    def find(self, full: str) -> OpSpec | None:
        if self._unread:
            self._read_until(full)
        return super().find(full)

    def __contains__(self, name: str) -> bool:
        self._read_until(name)
        return super().__contains__(name)

    def __iter__(self) -> Iterator[OpSpec]:
        self._read_until()
        return (spec for module in sorted(self._read) for spec in self._read[module])

    def __len__(self) -> int:
        self._read_until()
        return super().__len__()


REGISTRY: Registry = _Folder()
"""Every op that a program may call, by name."""
