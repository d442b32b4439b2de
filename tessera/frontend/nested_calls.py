"""A jitted function called inside another trace: its annotations and constraints are checked there too."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from tessera.diagnostics.codes import DTypeError, ShapeError
from tessera.diagnostics.error import Span, user_span
from tessera.frontend.annotations import Parameter, leaf_annotations
from tessera.frontend.bind import bind_arguments, check_form, not_a_tensor_error
from tessera.frontend.concrete import concrete_type
from tessera.frontend.pytree import flatten, leaf_paths, unflatten
from tessera.frontend.return_annotations import check_type
from tessera.frontend.size import Size
from tessera.frontend.trace import TracedTensor
from tessera.types.annotation import ANONYMOUS, TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.dtype import DType
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType, is_refuted

if TYPE_CHECKING:
    from tessera.frontend.trace import Trace
    from tessera.types.constraint import Constraint


@frozen
class DeclaredFunction:
    """A function with its annotations, constraints and policy."""

    function: Callable[..., Any]
    signature: inspect.Signature
    parameters: tuple[Parameter, ...]
    returns: Any = None
    constraints: Sequence[Constraint] = ()
    policy: Policy = SILENT

    @property
    def says_anything(self) -> bool:
        """Whether it has annotations or constraints."""
        annotated = any(parameter.is_annotated for parameter in self.parameters)
        return annotated or self.returns is not None or bool(self.constraints)

    def call(self, trace: Trace, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Trace the function into the caller's trace, with its arguments checked."""
        bound = bind_arguments(self.signature, args, kwargs)
        if not self.says_anything:
            with self._policy(trace):
                return self.function(*args, **kwargs)
        sizes = _Sizes(trace, user_span())
        for parameter in self.parameters:
            if parameter.is_annotated and not parameter.static and parameter.name in bound.arguments:
                bound.arguments[parameter.name] = sizes.check_argument(parameter, bound.arguments[parameter.name])
        sizes.settle()
        names: Mapping[str, Dim] = sizes.named
        if self.constraints:
            from tessera.frontend.constraints import impose_on_call  # noqa: PLC0415 - few functions have any

            names = {**impose_on_call(trace, self.constraints, self.parameters, bound.arguments), **names}
        with self._policy(trace), _with_names(trace, names):
            result = sizes.without_policies(self.function(*bound.args, **bound.kwargs))
        return result if self.returns is None else self._check_result(trace, result, sizes)

    def _policy(self, trace: Trace) -> Any:
        if not self.policy:
            return nullcontext()
        from tessera.frontend.scopes import enter_policy  # noqa: PLC0415 - few functions have any

        return enter_policy(trace, self.policy)

    def _check_result(self, trace: Trace, result: Any, given: _Sizes) -> Any:
        from tessera.frontend.return_annotations import ReturnedSizes  # noqa: PLC0415 - few functions declare any

        leaves, tree = flatten(result, keep_order=True)
        wanted = leaf_annotations(self.returns, tree)
        sizes = ReturnedSizes(trace, self.function, given.named, given.sources)
        for path, leaf, annotation in zip(leaf_paths(tree, "result"), leaves, wanted, strict=True):
            type = _type_of(trace, leaf)
            if annotation is not None and type is not None:
                check_type(path, type, annotation, _maker(trace, leaf))
                sizes.check(path, type, annotation, _maker(trace, leaf))
        return result


@contextmanager
def _with_names(trace: Trace, names: Mapping[str, Dim]) -> Generator[None]:
    """Within it, `require` may use the dim names of the called function."""
    facts, before = trace.facts, trace.facts.names
    facts.names = {**before, **names}
    try:
        yield
    finally:
        facts.names = before


def _type_of(trace: Trace, leaf: Any) -> TensorType | None:
    """The type of a tensor, with the trace's equalities substituted; None for anything else."""
    found = leaf.type if isinstance(leaf, TracedTensor) else concrete_type(leaf)
    return None if found is None else found.with_shape(tuple(map(trace.resolve, found.shape)))


def _maker(trace: Trace, leaf: Any) -> Span | None:
    if not isinstance(leaf, TracedTensor) or leaf.recorder is not trace:
        return user_span()
    return next((record.span for record in trace.tape.records if leaf.value in record.results), None) or user_span()


class _Sizes:
    """The sizes that the dim names of a function stand for at one call of it."""

    def __init__(self, trace: Trace, span: Span | None) -> None:
        self.trace, self.span = trace, span
        self.named: dict[str, Dim] = {}
        self.sources: dict[str, str] = {}
        # Sizes that are expressions of names are checked once all names are bound.
        self.later: list[tuple[Dim, Dim, str]] = []
        # Whether the function declares policies, and those of the caller's tensors that they replace.
        self.has_policies, self.before = False, dict[DType, Policy]()

    def check_argument(self, parameter: Parameter, value: Any) -> Any:
        """An argument, checked against its annotation; its tensors get the policies of their types."""
        leaves, tree = flatten(value)
        check_form(parameter, tree, value)
        annotations, paths = parameter.annotations(tree), leaf_paths(tree, parameter.name)
        found = [self._leaf(*item) for item in zip(leaves, annotations, paths, strict=True)]
        is_same = all(new is old for new, old in zip(found, leaves, strict=True))
        return value if is_same else unflatten(tree, found)

    def _leaf(self, leaf: Any, annotation: TensorAnnotation | None, path: str) -> Any:
        if annotation is None:
            return leaf
        type = _type_of(self.trace, leaf)
        if type is None:
            if not annotation.dims and isinstance(leaf, bool | int | float | Size):
                return leaf  # a Python number is accepted for a declared scalar
            raise not_a_tensor_error(path, leaf, annotation)
        notes = (f"it is declared {annotation}", f"`{path}` is {type}")
        if annotation.dtype is not None and annotation.dtype is not type.dtype:
            raise DTypeError(
                f"`{path}` must be {annotation.dtype}, got {type.dtype}",
                span=self.span,
                notes=notes,
                fix=f"cast it before the call, as in `{path}.cast({annotation.dtype})`",
            )
        if annotation.rank != type.rank:
            raise ShapeError(
                f"`{path}` must have {annotation.rank} dims, got {type.rank}",
                span=self.span,
                notes=notes,
                fix=f"give it {annotation.rank} dims, as `reshape` does, or declare {type.rank}",
            )
        for axis, (declared, dim) in enumerate(zip(annotation.dims, type.shape, strict=True)):
            self._match_size(declared, dim, f"{path}.shape[{axis}]", notes)
        if not annotation.policy or annotation.policy.scales is not None:
            return leaf
        self.has_policies = True
        if isinstance(leaf, TracedTensor) and leaf.policy:
            self.before.setdefault(leaf.dtype, leaf.policy)
        return TracedTensor(self.trace, self.trace.value_of(leaf), type, annotation.policy)

    def _match_size(self, declared: Dim, dim: Dim, path: str, notes: tuple[str, ...]) -> None:
        name = declared.symbol_name
        if name == ANONYMOUS:
            return
        if name is not None and name not in self.named:
            self.named[name], self.sources[name] = dim, path
        elif declared.is_static or name is not None:
            wanted = declared if name is None else self.named[name]
            what = f"`{path}` is declared {declared}" if name is None else self._both(name, path)
            self._equal(dim, wanted, path, what, notes)
        else:
            self.later.append((declared, dim, path))

    def without_policies(self, result: Any) -> Any:
        """A result for the caller: policies of the function's types end where it returns."""
        if not self.has_policies:
            return result
        leaves, tree = flatten(result, keep_order=True)
        return unflatten(tree, [self._restore_policy(leaf) for leaf in leaves])

    def _restore_policy(self, leaf: Any) -> Any:
        if not isinstance(leaf, TracedTensor) or not leaf.policy:
            return leaf
        return TracedTensor(leaf.recorder, leaf.value, leaf.type, self.before.get(leaf.dtype, SILENT))

    def _both(self, name: str, path: str) -> str:
        return f"`{self.sources[name]}` and `{path}` are both `{name}`"

    def settle(self) -> None:
        """Check sizes that are expressions of names."""
        for declared, dim, path in self.later:
            if declared.symbols <= self.named.keys():
                wanted = declared.substitute(self.named)
                self._equal(dim, wanted, path, f"`{path}` is declared {declared}", ())

    def _equal(self, dim: Dim, wanted: Dim, path: str, what: str, notes: tuple[str, ...]) -> None:
        facts = self.trace.facts
        left, right = facts.resolve(dim), facts.resolve(wanted)
        if left == right:
            return
        answer = facts.decide(left, right)
        if is_refuted(left, right) or (answer is not None and answer.is_refuted):
            raise ShapeError(
                f"`{path}` must be {right}, got {left}",
                span=self.span,
                notes=(f"rule: {what}", *notes),
                fix='pass that size, or declare the dim with its own name, or as `"_"`, if the sizes may differ',
            )
        if answer is None or not answer.is_proved:
            facts.assume(left, right, what, self.span)
