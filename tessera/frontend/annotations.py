"""Annotations of a function: resolved once at decoration, and matched to the leaves of each argument."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tessera.diagnostics.codes import AnnotationError, ArgumentError
from tessera.diagnostics.error import Span, TesseraError
from tessera.frontend.pytree import LEAF, Tree, as_tuple, container_named, is_record, node_of
from tessera.types.annotation import HEADS, TensorAnnotation
from tessera.types.frozen import frozen

_EMPTY: Any = inspect.Parameter.empty
_PLAIN = frozenset(("Any", "None", "bool", "float", "int", "str"))


@frozen
class Parameter:
    """One parameter of a function: its annotation, and whether its value is static (part of the cache key)."""

    name: str
    annotation: Any = None
    static: bool = False

    @property
    def is_annotated(self) -> bool:
        return self.annotation is not None

    def annotations(self, tree: Tree) -> list[TensorAnnotation | None]:
        """The annotation of each leaf of an argument."""
        return leaf_annotations(self.annotation, tree)

    def __str__(self) -> str:
        return self.name if self.annotation is None else f"{self.name}: {annotation_text(self.annotation)}"


def other_annotations(signature: inspect.Signature, parameters: Iterable[Parameter]) -> dict[str, str]:
    """Annotations that say nothing of tensors, as `np.ndarray` does not, as they are written."""
    empty = {one.name for one in parameters if one.annotation is None}
    found = {name: one.annotation for name, one in signature.parameters.items() if one.annotation is not _EMPTY}
    texts = {name: one if isinstance(one, str) else annotation_text(one) for name, one in found.items()}
    return {name: text for name, text in texts.items() if name in empty and text not in _PLAIN}


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function to be traced; raises `ArgumentError` (T0202) where Python has none."""
    if type(function).__module__ == "numpy":
        name = getattr(function, "__name__", "")
        raise ArgumentError(
            f"`jit` takes a function that calls ops, got `numpy.{name}`",
            fix=f"use `tessera.ops.{name}` if there is one",
        )
    try:
        return inspect.signature(function)
    except ValueError as error:
        raise ArgumentError(
            f"`jit` takes a function with an inspectable signature: {error}", fix="wrap it in a function of your own"
        ) from None


def order_of(signature: inspect.Signature) -> tuple[tuple[tuple[str, Any], ...], int]:
    """Names and defaults of the parameters, and how many may be positional; none with `*args` or `**kwargs`."""
    parameters = signature.parameters.values()
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in parameters):
        return (), -1
    positional = sum(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters)
    return tuple((parameter.name, parameter.default) for parameter in parameters), positional


def required_of(signature: inspect.Signature) -> tuple[str, ...]:
    """The required parameters; of a function that has none, its `*args` and `**kwargs`."""
    parameters = signature.parameters.values()
    open_ended = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    named = [one.name for one in parameters if one.default is _EMPTY and one.kind not in open_ended]
    return tuple(named or [f"{open_ended[one.kind]}{one.name}" for one in parameters if one.kind in open_ended])


def parameters_of(
    function: Callable[..., Any], signature: inspect.Signature, static: Iterable[str] = ()
) -> tuple[Parameter, ...]:
    """The parameters of a function; raises `AnnotationError` (T0104) at the annotation that is wrong."""
    names = set(static)
    unknown = sorted(names - signature.parameters.keys())
    if unknown:
        raise AnnotationError(
            f"`static_argnames` names `{unknown[0]}`, which is not a parameter of `{function.__name__}`",
            fix=f"the parameters are {', '.join(signature.parameters)}",
        )
    found: list[Parameter] = []
    for name, parameter in signature.parameters.items():
        annotation = resolve(function, name, parameter.annotation)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) and annotation is not None:
            annotation = tuple[annotation, ...] if parameter.kind is parameter.VAR_POSITIONAL else dict[str, annotation]
        found.append(Parameter(name, annotation, name in names))
    return tuple(found)


def resolve(function: Callable[..., Any], name: str, annotation: Any) -> Any:
    """The annotation as a value if it mentions tensors, else None; strings are evaluated in the function's scope."""
    if annotation is _EMPTY:
        return None
    if isinstance(annotation, str):
        if annotation in _PLAIN:
            return None
        annotation = _evaluate(function, name, annotation)
    return annotation if mentions_tensors(annotation) else None


def _evaluate(function: Callable[..., Any], name: str, text: str) -> Any:
    target = inspect.unwrap(function)
    scope = dict(getattr(target, "__globals__", {}))
    scope |= _closure_of(target) if inspect.isfunction(target) else {}
    is_about_tensors = any(f"{head}[" in text for head in HEADS)
    try:
        return eval(text, scope)
    except TesseraError as error:
        raise error.at(_annotation_span(target, name) or error.span) from None
    except (AttributeError, NameError, TypeError, SyntaxError) as error:
        if not is_about_tensors:
            return None  # annotations for type checkers may use undefined names
        missing = error.name if isinstance(error, AttributeError | NameError) else None
        raise AnnotationError(
            f"the annotation of `{name}` uses `{missing}`, which is not defined"
            if missing
            else f"the annotation of `{name}` is invalid: {error}",
            span=_annotation_span(target, name),
            fix='write defined names, as in `Tensor["B", "D", f32]`: dims, and the dtype last',
        ) from None


def _closure_of(function: types.FunctionType) -> dict[str, Any]:
    """The values of captured variables; the name of a function itself is still unbound when it is decorated."""
    found: dict[str, Any] = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:
            continue
    return found


def _annotation_span(function: Callable[..., Any], name: str) -> Span | None:
    """The span of a parameter's annotation."""
    from tessera.diagnostics.edit import source_lines  # noqa: PLC0415 - for errors alone

    lines, start = source_lines(function)
    try:
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except SyntaxError:
        return None
    file = inspect.getsourcefile(function) if lines else None
    indent = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.arg == name and node.annotation is not None:
            span = Span.of_node(file or "<unknown>", node.annotation, start - 1)
            return dataclasses.replace(span, column=span.column + indent, end_column=span.end_column + indent)
    return None


def mentions_tensors(annotation: Any) -> bool:
    """Whether an annotation mentions tensors, directly or inside a container."""
    if isinstance(annotation, TensorAnnotation):
        return True
    if any(mentions_tensors(item) for item in typing.get_args(annotation)):
        return True
    return any(mentions_tensors(hint) for hint in _field_hints(annotation).values())


def _field_hints(annotation: Any) -> dict[str, Any]:
    """The annotations of the fields of a dataclass or named tuple; none for anything else."""
    if not _is_record(annotation) or str(getattr(annotation, "__module__", "")).startswith("tessera.types"):
        return {}
    try:
        return typing.get_type_hints(annotation)
    except NameError:
        return {}


def _is_record(annotation: Any) -> bool:
    return inspect.isclass(annotation) and (dataclasses.is_dataclass(annotation) or hasattr(annotation, "_fields"))


def leaf_annotations(annotation: Any, tree: Tree) -> list[TensorAnnotation | None]:
    """The annotation of each leaf of a value of form `tree`, None where there is none."""
    if tree.is_leaf:
        return [_for_leaf(annotation)]
    inner = _child_annotations(annotation, tree)
    return [
        found for given, child in zip(inner, tree.children, strict=True) for found in leaf_annotations(given, child)
    ]


def declared_form(annotation: Any) -> tuple[Tree, list[TensorAnnotation]] | None:
    """The form and leaf annotations that an annotation determines; None where values may have several forms."""
    if isinstance(annotation, TensorAnnotation):
        if annotation.dtype is None:
            return None
        return (LEAF, [annotation]) if annotation.head == "Tensor" else _state_form(annotation)
    args, hints = typing.get_args(annotation), _field_hints(annotation)
    if typing.get_origin(annotation) is tuple and args and Ellipsis not in args:
        kind, names, inner = tuple, None, args
    elif hints and is_record(annotation):
        kind, names, inner = annotation, tuple(hints), tuple(hints.values())
        if names != _names_of_fields(annotation):
            return None
    else:
        return None
    forms = [declared_form(item) for item in inner]
    known = [form for form in forms if form is not None]
    if len(known) != len(forms):
        return None
    leaves = [leaf for _, found in known for leaf in found]
    return Tree(kind, names, tuple([tree for tree, _ in known])), leaves


def _state_form(annotation: TensorAnnotation) -> tuple[Tree, list[TensorAnnotation]] | None:
    """The form of a container that has an annotation of its own, such as `KVCache[...]`; None for any other."""
    kind = container_named(annotation.head)
    fields = getattr(kind, "field_annotations", None)
    if kind is None or fields is None:
        return None
    found: list[TensorAnnotation | None] = fields(annotation)
    known = [one for one in found if one is not None and one.dtype is not None]
    if len(known) < len(found):
        return None
    names = tuple(step.removeprefix(".") for step in node_of(kind).steps(None, len(known)))
    return Tree(kind, names, (LEAF,) * len(known)), known


def _names_of_fields(record: Any) -> tuple[str, ...]:
    if dataclasses.is_dataclass(record):
        return tuple([field.name for field in dataclasses.fields(record)])
    return tuple(record._fields)


def _for_leaf(annotation: Any) -> TensorAnnotation | None:
    if isinstance(annotation, TensorAnnotation):
        return annotation
    options = [item for item in _union_members(annotation) if isinstance(item, TensorAnnotation)]
    return options[0] if len(options) == 1 else None


def _union_members(annotation: Any) -> Sequence[Any]:
    is_union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    return typing.get_args(annotation) if is_union else ()


def _child_annotations(annotation: Any, tree: Tree) -> Sequence[Any]:
    count = len(tree.children)
    if isinstance(annotation, TensorAnnotation):
        state = getattr(tree.type, "field_annotations", None)
        return state(annotation) if state is not None else [None] * count
    members = _union_members(annotation)
    if members:
        chosen = [item for item in members if item is not type(None)]
        return _child_annotations(chosen[0], tree) if len(chosen) == 1 else [None] * count
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is dict and len(args) == 2:
        return [args[1]] * count
    if origin is list or (origin is tuple and len(args) == 2 and args[1] is Ellipsis):
        return [args[0]] * count
    if origin is tuple and len(args) == count:
        return args
    hints = _field_hints(annotation)
    if not hints or tree.type is None:
        return [None] * count
    names = tree.data if tree.type is dict else [one.lstrip(".") for one in node_of(tree.type).steps(tree.data, count)]
    return [hints.get(name) for name in as_tuple(names)]


def annotation_text(annotation: Any) -> str:
    """An annotation as Python source."""
    if isinstance(annotation, type) and not typing.get_args(annotation):
        return annotation.__name__
    return str(annotation).replace("typing.", "")
