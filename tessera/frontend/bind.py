"""From a call to a signature: arguments bound to parameters, flattened, and matched with their annotations.

The signature is the key of a specialization: dtypes, static values and static sizes are part of it, symbolic sizes are
not, so that one specialization serves all of their values.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from tessera.diagnostics.calls import advise_option
from tessera.diagnostics.codes import DTypeError, GuardError, PytreeError, RuntimeArgumentError
from tessera.diagnostics.error import FixLike, TesseraError
from tessera.frontend.annotations import Parameter, declared_form
from tessera.frontend.concrete import concrete_dtype, scalar_tensor
from tessera.frontend.fixes import fixes_of
from tessera.frontend.pytree import Tree, as_tuple, flatten, is_value, leaf_paths, static_key
from tessera.runtime.foreign import is_foreign, share, tensor_advice
from tessera.types.annotation import ANONYMOUS, TensorAnnotation
from tessera.types.dim import Dim
from tessera.types.dtype import DType, f64
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, Policy
from tessera.types.shape import TensorType

_COORDINATE = re.compile(r"[a-z]\d+_*")


@frozen
class Leaf:
    """One leaf of a call's arguments: a tensor with its dtype and declared dims, or a static Python value.

    A dim is an int when it is static, a `Dim` when an annotation names it, None when it is dynamic and unnamed. Static
    values are compared by `key`, which is finer than their own equality. `is_number` is a Python float that is traced.
    """

    dtype: DType | None
    dims: tuple[int | Dim | None, ...] = ()
    static: Any = field(default=None, compare=False)
    key: Hashable = None
    policy: Policy = SILENT
    is_declared: bool = False
    is_number: bool = False


@frozen
class Signature:
    """The key of a specialization: calls with equal signatures share compiled code."""

    tree: Tree
    leaves: tuple[Leaf, ...]
    policy: Policy = SILENT
    buckets: tuple[tuple[str, int], ...] = ()
    """Symbolic dims that kernels hold in one tile, with the largest size of the bucket that they are in."""

    def paths(self) -> list[str]:
        """The path of each leaf as Python source: `x`, `params['w']`."""
        return [path.removeprefix(".") for path in leaf_paths(self.tree)]


@frozen
class Call:
    """A call, flattened: its signature, and the tensors in the order of the signature's tensor leaves."""

    signature: Signature
    tensors: tuple[Any, ...]


class Binder:
    """Binds calls of one function."""

    def __init__(
        self, parameters: Sequence[Parameter], signature: inspect.Signature, *, dynamic: bool, policy: Policy = SILENT
    ) -> None:
        self.policy = policy
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self.signature, self.dynamic = signature, dynamic
        self.traces_floats = True
        """Whether a float that is an argument by itself is traced; those in containers are static."""
        self.needed: dict[str, str] = {}
        """Floats that are static all the same, and why the program needs their values."""

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Call:
        """The signature of a call, and its tensors; raises where arguments contradict the annotations."""
        bound = bind_arguments(self.signature, args, kwargs)
        names = tuple(bound.arguments)
        leaves: list[Leaf] = []
        tensors: list[Any] = []
        children: list[Tree] = []
        for name in names:
            children.append(self._bind_argument(self.parameters[name], bound.arguments[name], leaves, tensors))
        tree = Tree(_Arguments, names, tuple(children))
        signature = Signature(tree, tuple(leaves), self.policy)
        _check_names(signature, tensors)
        return Call(signature, tuple(tensors))

    def _bind_argument(self, parameter: Parameter, value: Any, leaves: list[Leaf], tensors: list[Any]) -> Tree:
        if parameter.static:
            leaves.append(_static_leaf(value, parameter.name))
            return _LEAF_TREE
        if value.__class__ is float and self._is_traced(parameter):
            leaves.append(_NUMBER)
            tensors.append(scalar_tensor(value, f64))
            return _LEAF_TREE
        flat, tree = flatten(value, keep_order=True)
        check_form(parameter, tree, value)
        annotations = parameter.annotations(tree) if parameter.is_annotated else [None] * len(flat)
        for index, (leaf, annotation) in enumerate(zip(flat, annotations, strict=True)):
            leaf = _adopt(_scalar_tensor(leaf, annotation), tree, parameter.name, index)
            dtype = concrete_dtype(leaf)
            if dtype is None:
                path = leaf_paths(tree, parameter.name)[index]
                if annotation is not None:
                    raise not_a_tensor_error(path, leaf, annotation)
                leaves.append(_static_leaf(leaf, path))
                continue
            if annotation is None:
                dims = (None,) * len(leaf.shape) if self.dynamic else tuple(leaf.shape)
            else:
                dims = tuple(dim if dim.value is None else dim.value for dim in annotation.dims)
                if annotation.policy.scales is not None:
                    raise _missing_scales_error(leaf_paths(tree, parameter.name)[index], annotation)
                if not _fits(leaf, dtype, annotation):
                    path = leaf_paths(tree, parameter.name)[index]
                    where = (parameter.name, list(self.parameters).index(parameter.name)) if tree.is_leaf else ("", -1)
                    raise _misfit_error(leaf, dtype, annotation, path, where)
            policy = SILENT if annotation is None else annotation.policy
            leaves.append(Leaf(dtype, dims, policy=policy, is_declared=annotation is not None))
            tensors.append(leaf)
        return tree

    def _is_traced(self, parameter: Parameter) -> bool:
        return self.traces_floats and not parameter.is_annotated and parameter.name not in self.needed

    @contextmanager
    def with_values(self, need: Any, known: frozenset[str]) -> Generator[None]:
        """Let arguments be static whose values a trace asked for, from now on; `known` were so before it was bound.

        Another thread may have asked for the same since then: then binding again is all there is to do. A guess that
        does not help is taken back.
        """
        assert not need.names <= known, "a value that is static is known to the trace"
        self.needed.update(dict.fromkeys(need.names - self.needed.keys(), need.reason))
        try:
            yield
        except Exception:
            for name in need.names - known if need.is_guess else ():
                self.needed.pop(name, None)
            raise

    def declared_signature(self) -> Signature | None:
        """The signature of all calls, where annotations and defaults determine it; else None."""
        leaves: list[Leaf] = []
        children: list[Tree] = []
        for name, item in self.signature.parameters.items():
            parameter = self.parameters[name]
            form = None if parameter.static else declared_form(parameter.annotation)
            if form is not None:
                tree, annotations = form
                leaves += [_declared_leaf(annotation) for annotation in annotations]
                children.append(tree)
            elif item.default is not item.empty:
                children.append(self._bind_argument(parameter, item.default, leaves, []))
            else:
                return None
        names = tuple(self.signature.parameters)
        return Signature(Tree(_Arguments, names, tuple(children)), tuple(leaves), self.policy)


def bind_arguments(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> inspect.BoundArguments:
    """Arguments by parameter name, with defaults; raises RuntimeArgumentError (T0701) where they do not match."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        named = ", ".join(f"`{name}`" for name in signature.parameters) or "none"
        # Python reports a missing argument first, and a misspelt name is the most common cause of one.
        takes_any = any(item.kind is item.VAR_KEYWORD for item in signature.parameters.values())
        unknown = () if takes_any else [name for name in kwargs if name not in signature.parameters]
        notes = tuple(f"unexpected argument `{name}`" for name in unknown)
        advice = advise_option("f", {name: kwargs[name] for name in unknown})
        fix = f"its parameters are {named}" + (f"; {advice}, where `f` makes this call" if advice else "")
        raise RuntimeArgumentError(str(error).replace("'", "`"), notes=notes, fix=fix) from None
    bound.apply_defaults()
    return bound


def not_a_tensor_error(path: str, leaf: Any, annotation: TensorAnnotation) -> RuntimeArgumentError:
    """The error for an argument that is declared a tensor, and is not one."""
    return RuntimeArgumentError(
        f"`{path}` must be a tensor, got {type(leaf).__name__}",
        notes=(f"it is declared {annotation}",),
        fix=tensor_advice(leaf),
    )


def _declared_leaf(annotation: TensorAnnotation) -> Leaf:
    dims = tuple(dim if dim.value is None else dim.value for dim in annotation.dims)
    return Leaf(annotation.dtype, dims, policy=annotation.policy, is_declared=True)


def _missing_scales_error(path: str, annotation: TensorAnnotation) -> DTypeError:
    return DTypeError(
        f"`{path}` has no scales, but is declared with scales",
        notes=(f"it is declared {annotation}",),
        fix="quantize it with `tessera.quantize(x, dtype, axis=...)`, which returns values and scales",
    )


class _Arguments(tuple[Any, ...]):
    """The root of a call's pytree: a tuple of named arguments."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()


_LEAF_TREE = Tree()
_NUMBER = Leaf(f64, is_number=True)


def arguments_of(tree: Tree, leaves: Sequence[Any], rebuild: Callable[[Tree, Sequence[Any]], Any]) -> dict[str, Any]:
    """The arguments by name, from the leaves of a call."""
    at, arguments = 0, dict[str, Any]()
    for name, child in zip(as_tuple(tree.data), tree.children, strict=True):
        count = child.leaf_count
        arguments[name] = rebuild(child, leaves[at : at + count])
        at += count
    return arguments


def _scalar_tensor(leaf: Any, annotation: TensorAnnotation | None) -> Any:
    """A Python number for a declared scalar becomes a tensor; anything else is returned as it is."""
    if annotation is None or annotation.dims or not _is_number(leaf):
        return leaf
    return scalar_tensor(leaf, annotation.dtype)


def _adopt(leaf: Any, tree: Tree, name: str, index: int) -> Any:
    """A tensor of another library as one of ours; raises RuntimeArgumentError (T0701) with the path of the leaf."""
    if not is_foreign(leaf):
        return leaf
    try:
        return share(leaf)
    except TesseraError as error:
        raise error.with_note(f"it is the argument `{leaf_paths(tree, name)[index]}`") from error.__cause__


def _is_number(value: Any) -> bool:
    return isinstance(value, bool | int | float)


def check_form(parameter: Parameter, tree: Tree, value: Any) -> None:
    """Raise for a container where a tensor is declared; types such as `KVCache` declare their own tensors."""
    declared, kind = parameter.annotation, tree.type
    if isinstance(declared, TensorAnnotation) and kind is not None and not hasattr(kind, "field_annotations"):
        raise RuntimeArgumentError(
            f"`{parameter.name}` must be a tensor, got {kind.__name__}",
            notes=(f"it is declared {declared}",),
            fix=tensor_advice(value),
        )


def _static_leaf(value: Any, path: str) -> Leaf:
    try:
        if is_foreign(value):
            raise TypeError
        hash(value)
        key = static_key(value)
    except TypeError:
        raise PytreeError(
            f"`{path}` is of type `{type(value).__name__}`, which is no pytree of tensors and not hashable",
            fix="pass a tuple in place of the list"
            if isinstance(value, list)
            else "pass tensors, containers of tensors, or hashable values",
        ) from None
    return Leaf(None, (), value, key)


def _fits(leaf: Any, dtype: DType, annotation: TensorAnnotation) -> bool:
    """Whether a tensor has the declared dtype, rank and static sizes."""
    if (annotation.dtype is not None and annotation.dtype is not dtype) or len(leaf.shape) != annotation.rank:
        return False
    for dim, size in zip(annotation.dims, leaf.shape, strict=True):
        if dim.value is not None and dim.value != size:
            return False
    return True


def _misfit_error(
    leaf: Any, dtype: DType, annotation: TensorAnnotation, path: str, where: tuple[str, int]
) -> RuntimeArgumentError:
    """The error for a tensor that contradicts its annotation; `where` is its parameter, if it is a whole argument."""
    declared, calls = (f"it is declared {annotation}",), fixes_of("arguments")
    argument, shape = calls.argument_at(*where), tuple(leaf.shape)
    if annotation.dtype is not None and annotation.dtype is not dtype:
        message, fix = (
            f"`{path}` must be {annotation.dtype}, got {dtype}",
            calls.cast_argument(argument, annotation.dtype),
        )
        return RuntimeArgumentError(message, notes=declared, fix=fix)
    if len(shape) != annotation.rank:
        message = f"`{path}` must have {annotation.rank} dims, got {len(shape)}: {list(shape)}"
        return RuntimeArgumentError(
            message, notes=declared, fix=calls.reshape_argument(argument, shape, annotation.rank)
        )
    wrong = (at for at, dim in enumerate(annotation.dims) if dim.value not in (None, shape[at]))
    axis = next(wrong)
    size = annotation.dims[axis].value
    message = f"`{path}.shape[{axis}]` must be {size}, got {shape[axis]}"
    swapped = (*shape[:-2], *shape[:-3:-1])
    if len(shape) > 1 and all(dim.value in (None, size) for dim, size in zip(annotation.dims, swapped, strict=True)):
        fix = calls.transpose_argument(argument, len(shape))
        return RuntimeArgumentError(f"{message}: it fits transposed", notes=declared, fix=fix)
    fix = calls.fit_argument(argument, shape, axis, size) if next(wrong, None) is None else None
    return RuntimeArgumentError(message, notes=declared, fix=fix)


def _check_names(signature: Signature, tensors: Sequence[Any]) -> None:
    """Raise where dims of one name differ, or a dim declared as an expression has another value."""
    values: dict[str, tuple[int, int, int]] = {}
    arithmetic: list[tuple[int, int, Dim, int]] = []
    number = 0
    for leaf in signature.leaves:
        if leaf.dtype is None:
            continue
        for axis, (dim, size) in enumerate(zip(leaf.dims, tensors[number].shape, strict=True)):
            if not isinstance(dim, Dim) or dim.symbol_name == ANONYMOUS:
                continue
            name = dim.symbol_name
            if name is None:
                arithmetic.append((number, axis, dim, size))
            elif name not in values:
                values[name] = (size, number, axis)
            elif values[name][0] != size:
                raise _disagreement_error(signature, tensors, name, values[name], (size, number, axis))
        number += 1
    for number, axis, dim, size in arithmetic:
        if dim.symbols <= values.keys() and dim.evaluate({name: values[name][0] for name in dim.symbols}) != size:
            raise _wrong_arithmetic_error(signature, tensors, values, (number, axis), dim)


def _tensor_paths(signature: Signature) -> list[str]:
    return [path for path, leaf in zip(signature.paths(), signature.leaves, strict=True) if leaf.dtype is not None]


def _disagreement_error(
    signature: Signature,
    tensors: Sequence[Any],
    name: str,
    first: tuple[int, int, int],
    second: tuple[int, int, int],
) -> GuardError:
    paths = _tensor_paths(signature)
    left, right = (f"{paths[number]}.shape[{axis}]" for _, number, axis in (first, second))
    swapped = next((at for at in (second[1], first[1]) if _fits_transposed(signature, tensors, at)), None)
    advice = (
        f"pass tensors of one size there; dims that may differ are declared with two names, or as `_`, not `{name}`"
    )
    fix: FixLike = advice
    reason = ""
    if swapped is not None:
        reason = f": `{paths[swapped]}` fits transposed"
        names, calls = as_tuple(signature.tree.data), fixes_of("arguments")
        if paths[swapped] in names:
            argument = calls.argument_at(paths[swapped], names.index(paths[swapped]))
            fix = calls.transpose_argument(argument, len(tensors[swapped].shape))
    return GuardError(
        f"`{left}` is {first[0]} and `{right}` is {second[0]}, but both are `{name}`{reason}",
        notes=(f"rule: dims of one name are equal (`{name}`)",),
        fix=fix,
    )


def _fits_transposed(signature: Signature, tensors: Sequence[Any], number: int) -> bool:
    """Whether all names agree once the last two axes of a tensor are swapped."""
    shapes = [tuple(tensor.shape) for tensor in tensors]
    if len(shapes[number]) < 2:
        return False
    shapes[number] = (*shapes[number][:-2], shapes[number][-1], shapes[number][-2])
    values: dict[str, int] = {}
    leaves = [leaf for leaf in signature.leaves if leaf.dtype is not None]
    for leaf, shape in zip(leaves, shapes, strict=True):
        for dim, size in zip(leaf.dims, shape, strict=True):
            wanted = dim if isinstance(dim, int) else dim.value if isinstance(dim, Dim) else size
            name = dim.symbol_name if isinstance(dim, Dim) else None
            if name is not None and name != ANONYMOUS:
                wanted = values.setdefault(name, size)
            if wanted not in (None, size):
                return False
    return True


def _wrong_arithmetic_error(
    signature: Signature,
    tensors: Sequence[Any],
    values: Mapping[str, tuple[int, int, int]],
    where: tuple[int, int],
    dim: Dim,
) -> GuardError:
    paths, (number, axis) = _tensor_paths(signature), where
    expected = dim.evaluate({name: values[name][0] for name in dim.symbols})
    sources = tuple(
        f"`{name}` is {values[name][0]} from `{paths[values[name][1]]}.shape[{values[name][2]}]`"
        for name in sorted(dim.symbols)
    )
    path = f"{paths[number]}.shape[{axis}]"
    return GuardError(
        f"`{path}` must be `{dim}` = {expected}, got {tensors[number].shape[axis]}",
        notes=sources,
        fix=fit_argument_fix(signature, tensors, path, expected),
    )


def fit_argument_fix(signature: Signature, tensors: Sequence[Any], path: str, size: int) -> FixLike:
    """The edit of a call that pads or slices `name.shape[axis]` to a size; None for a path inside a container."""
    name, _, axis = path.removesuffix("]").partition(".shape[")
    names, paths = as_tuple(signature.tree.data), _tensor_paths(signature)
    if name not in names or name not in paths or size < 0:
        return None
    calls, shape = fixes_of("arguments"), tuple(tensors[paths.index(name)].shape)
    return calls.fit_argument(calls.argument_at(name, names.index(name)), shape, int(axis), size)


def input_types(signature: Signature) -> tuple[list[TensorType], frozenset[str]]:
    """The types of the tensor leaves, and the symbolic dims that annotations name.

    A dynamic dim without a name, or one whose names no input binds, gets a fresh symbol.
    """
    bare = {
        dim.symbol_name
        for leaf in signature.leaves
        for dim in leaf.dims
        if isinstance(dim, Dim) and dim.symbol_name not in (None, ANONYMOUS)
    }
    types: list[TensorType] = []
    declared: set[str] = set()
    taken = {dim_name(name) for name in bare}
    for path, leaf in zip(signature.paths(), signature.leaves, strict=True):
        if leaf.dtype is None:
            continue
        shape: list[Dim] = []
        for axis, dim in enumerate(leaf.dims):
            if isinstance(dim, int):
                shape.append(Dim.constant(dim))
            elif dim is None or not dim.symbols <= bare:
                shape.append(Dim.symbol(_unused_name(f"{_identifier(path)}_{axis}", taken)))
            else:
                named = dim.substitute({name: Dim.symbol(dim_name(name)) for name in dim.symbols})
                shape.append(named)
                declared |= named.symbols
        types.append(TensorType(tuple(shape), leaf.dtype))
    return types, frozenset(declared)


def size_expressions(signature: Signature, types: Sequence[TensorType]) -> list[tuple[Dim, Dim]]:
    """Sizes that are declared as expressions of names that no input has alone: the symbol, and the expression."""
    tensors = [leaf for leaf in signature.leaves if leaf.dtype is not None]
    return [
        (made, dim.substitute({name: Dim.symbol(dim_name(name)) for name in dim.symbols}))
        for leaf, type in zip(tensors, types, strict=True)
        for dim, made in zip(leaf.dims, type.shape, strict=True)
        if isinstance(dim, Dim) and dim.symbol_name is None and made.symbol_name is not None
    ]


def static_arguments(signature: Signature) -> dict[str, Any]:
    """The static arguments of a call that are mutable objects, whose contents may change."""
    leaves = zip(signature.paths(), signature.leaves, strict=True)
    return {path: leaf.static for path, leaf in leaves if leaf.dtype is None and not is_value(leaf.static)}


def named_sizes(signature: Signature, tensors: Sequence[Any]) -> dict[str, tuple[int, str]]:
    """The size of each dim name in a call, and the path that binds it."""
    types, _ = input_types(signature)
    sizes: dict[str, tuple[int, str]] = {}
    for path, type, tensor in zip(_tensor_paths(signature), types, tensors, strict=False):
        for axis, (dim, size) in enumerate(zip(type.shape, tensor.shape, strict=True)):
            if dim.symbol_name is not None:
                sizes.setdefault(dim.symbol_name, (size, f"{path}.shape[{axis}]"))
    return sizes


def dim_name(name: str) -> str:
    """A dim's name that cannot be confused with a coordinate of an index map (`d0`, `m1`): such names get a `_`.

    Names that already end in `_` get one more, so that two names never become one.
    """
    return f"{name}_" if _COORDINATE.fullmatch(name) else name


def _unused_name(name: str, taken: set[str]) -> str:
    """A name that is not in `taken` yet, added to it: `a.b` and `a_b` give one identifier but are two dims."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _identifier(path: str) -> str:
    """A path as an identifier: `params['w'][0]` is `params_w_0`."""
    words = "".join(mark if mark.isalnum() else " " for mark in path).split()
    return "_".join(words) or "x"
