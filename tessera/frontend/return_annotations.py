"""Return annotations: dtypes, ranks and sizes of what a function returns, held to what it declares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import DTypeError, ShapeError
from tessera.diagnostics.error import Span, user_span
from tessera.frontend.annotations import leaf_annotations
from tessera.frontend.bind import Signature, dim_name
from tessera.frontend.concrete import concrete_type
from tessera.frontend.fixes import fixes_of
from tessera.frontend.pytree import flatten, leaf_paths
from tessera.frontend.trace import TracedFunction, TracedTensor
from tessera.types.annotation import ANONYMOUS, TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.shape import TensorType

if TYPE_CHECKING:
    from tessera.frontend.shape_inference import Facts
    from tessera.frontend.trace import Trace


def check_returned(annotation: Any, traced: TracedFunction) -> None:
    """Raise where a result does not have the dtype, rank or static sizes of the return annotation.

    Nothing is converted implicitly. Symbolic sizes are checked while the function is traced, by `ReturnedSizes`.
    """
    tape, declared = traced.tape, leaf_annotations(annotation, traced.tree)
    for path, slot, wanted in zip(leaf_paths(traced.tree, "result"), traced.slots, declared, strict=True):
        if wanted is not None and slot.output is not None:
            value = tape.outputs[slot.output]
            maker = next((record for record in tape.records if value in record.results), None)
            span, is_made = maker.span if maker else None, maker is not None and len(maker.results) == 1
            check_type(path, tape.types[value], wanted, span or user_span(), is_made=is_made and span is not None)


def check_type(
    path: str, type: TensorType, wanted: TensorAnnotation, span: Span | None, *, is_made: bool = False
) -> None:
    """Raise unless a result has the declared dtype, rank and static sizes.

    `is_made` where `span` is the expression that computes it.
    """
    notes = (f"the function is declared to return `{wanted}`", f"`{path}` is {type}")
    if wanted.dtype is not None and wanted.dtype is not type.dtype:
        dtype = wanted.dtype
        raise DTypeError(
            f"`{path}` is {type.dtype}, and is declared {dtype}",
            span=span,
            notes=notes,
            fix=lambda span: fixes_of("operands").cast_fix(span if is_made else None, path, dtype),
        )
    if wanted.rank != type.rank:
        raise ShapeError(f"`{path}` has {type.rank} dims, and is declared with {wanted.rank}", span=span, notes=notes)
    for axis, (dim, declared) in enumerate(zip(type.shape, wanted.dims, strict=True)):
        if dim.is_static and declared.is_static and dim != declared:
            raise ShapeError(f"`{path}.shape[{axis}] = {dim}`, and is declared {declared}", span=span, notes=notes)


# Symbolic sizes in a return annotation: proved for all calls, refuted by a counterexample, or guarded at run time.

_TRIES = 64
"""Candidate calls that are tried, to find one whose sizes contradict the annotation."""
_UNBOUNDED = 1 << 20
"""The upper end of candidate sizes that no constraint bounds."""


class ReturnedSizes:
    """The sizes that a return annotation declares, checked against those of the trace.

    `names` are sizes that parameters bind, `sources` where; a name that no parameter binds stands for the first size
    declared by it.
    """

    def __init__(self, trace: Trace, function: Any, names: Mapping[str, Dim], sources: Mapping[str, str]) -> None:
        self.facts, self.function = trace.facts, function
        self.named, self.sources = dict(names), dict(sources)

    def check(self, path: str, type: TensorType, wanted: TensorAnnotation, span: Span | None) -> None:
        """Raise ShapeError (T0101) where a size contradicts its declaration; what some calls may satisfy is guarded."""
        if wanted.rank != type.rank:
            return  # `check_type` reports that
        for axis, (dim, declared) in enumerate(zip(type.shape, wanted.dims, strict=True)):
            name = declared.symbol_name
            if name is not None and name not in self.named and name != ANONYMOUS:
                self.named[name], self.sources[name] = dim, f"{path}.shape[{axis}]"
            elif name != ANONYMOUS and declared.symbols <= self.named.keys():
                self._match_size((path, axis), type, wanted, span)

    def _match_size(
        self, where: tuple[str, int], type: TensorType, wanted: TensorAnnotation, span: Span | None
    ) -> None:
        (path, axis), facts = where, self.facts
        declared = wanted.dims[axis]
        left, right = facts.resolve(type.shape[axis]), facts.resolve(declared.substitute(self.named))
        if left == right or (declared.is_static and left.is_static):
            return  # `check_type` reports two static sizes that differ
        answer = facts.decide(left, right)
        if answer is not None and answer.is_proved:
            return
        sizes = {} if left.is_static and right.is_static else _witness(facts, left, right)
        if sizes is None:
            facts.assume(left, right, f"`{path}.shape[{axis}]` is declared {declared}", span)
            return
        given = " and ".join(f"{name} = {sizes[name]}" for name in sorted(left.symbols | right.symbols))
        named = [f"`{name}` is `{self.sources[name]}`" for name in sorted(wanted.symbols & self.sources.keys())]
        raise ShapeError(
            f"`{path}.shape[{axis}] = {left}`, and is declared `{declared}`",
            span=span,
            notes=(
                f"the function is declared to return `{wanted}`",
                f"`{path}` is {type}",
                *named,
                f"{f'with {given} ' if given else ''}it is {left.evaluate(sizes)}, not {right.evaluate(sizes)}",
            ),
            fix=lambda _: fixes_of("operands").returned_fix(
                self.function, list(map(self._in_names, type.shape)), wanted
            ),
        )

    def _in_names(self, dim: Dim) -> Dim:
        """A size in the names of the function; without one, where it has no short name there."""
        known = self.facts.resolve(dim)
        names = {found.symbol_name: Dim.symbol(name) for name, found in self.named.items()}
        given = {symbol: names[symbol] for symbol in known.symbols if symbol in names}
        is_short = given.keys() == known.symbols and "(" not in str(known)
        return known.substitute(given) if is_short else Dim.symbol(ANONYMOUS)


def check_sizes(trace: Trace, function: Any, signature: Signature, returns: Any, result: Any) -> None:
    """Check the sizes of a traced function's result against its return annotation."""
    from tessera.frontend.constraints import static_numbers  # noqa: PLC0415 - few functions declare any

    found, tree = flatten(result, keep_order=True)
    leaves = list(zip(leaf_paths(tree, "result"), found, leaf_annotations(returns, tree), strict=True))
    facts = trace.facts
    wanted = [name for _, _, annotation in leaves if annotation is not None for name in annotation.symbols]
    names = {name: Dim.symbol(name) for name in facts.declared}
    names |= {name: Dim.symbol(dim_name(name)) for name in wanted if dim_name(name) in facts.declared}
    names |= {name: Dim.constant(value) for name, value in static_numbers(signature).items()}
    names |= {name: facts.names[name] for name in wanted if name in facts.names}
    sizes = ReturnedSizes(trace, function, names, _sources(trace, names))
    for path, value, annotation in leaves:
        type = value.type if isinstance(value, TracedTensor) else concrete_type(value)
        if annotation is not None and annotation.head == "Tensor" and type is not None:
            sizes.check(path, type, annotation, maker_span(trace, value) or user_span())


def maker_span(trace: Trace, value: Any) -> Span | None:
    """Where a traced tensor was computed; None for one that was not computed in this trace."""
    number = getattr(value, "value", None)
    return next((record.span for record in trace.tape.records if number in record.results), None)


def _sources(trace: Trace, names: Mapping[str, Dim]) -> dict[str, str]:
    """The size of an input that binds each name."""
    found: dict[Dim, str] = {}
    for path, value in zip(trace.tape.names, trace.tape.inputs, strict=True):
        for axis, dim in enumerate(trace.tape.types[value].shape):
            found.setdefault(dim, f"{path}.shape[{axis}]")
    return {name: found[dim] for name, dim in names.items() if dim in found}


def _witness(facts: Facts, left: Dim, right: Dim) -> dict[str, int] | None:
    """Sizes that satisfy all constraints and assumptions, but make two dims differ; None where none are found.

    Dims without a declared name are left to guards.
    """
    if not left.symbols | right.symbols <= facts.declared:
        return None
    for sizes in _calls(facts):
        assumed = [(facts.resolve(item.left), facts.resolve(item.right)) for item in facts.assumptions]
        kept = all(one.evaluate(sizes) == other.evaluate(sizes) for one, other in assumed)
        rules = facts.solver.constraints if facts.solver is not None else ()
        if kept and all(rule.holds(sizes) for rule in rules) and left.evaluate(sizes) != right.evaluate(sizes):
            return sizes
    return None


def _calls(facts: Facts) -> Iterator[dict[str, int]]:
    """Candidate sizes that constraints on single dims allow: small ones first, pairwise different if possible."""
    free = [name for name in facts.order if name not in facts.values]
    candidates: list[Sequence[int]] = []
    for name in free:
        low, high, step, residue = max(2, facts.at_least.get(name, 0)), _UNBOUNDED, 1, 0
        if facts.solver is not None:
            value = facts.solver.value(name)
            low, high, step, residue = max(low, value.low), min(high, value.high), value.modulus, value.residue
            low = low if value.high >= low else max(value.low, 0)
        candidates.append(range(low + (residue - low) % step, high + 1, step)[: 2 * _TRIES])
    if not all(candidates):
        return
    for number in range(_TRIES):
        picks = zip(free, candidates, range(len(free)), strict=True)
        sizes = {name: values[(number * (1 + at) + at) % len(values)] for name, values, at in picks}
        yield {**sizes, **{name: facts.resolve(Dim.symbol(name)).evaluate(sizes) for name in facts.values}}
