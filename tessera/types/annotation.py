"""`Tensor["B", "S", bf16 @ accum(f32)]`: annotations as values, from Python and from text, and back to text."""

from __future__ import annotations

import ast
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeAlias, Union

from tessera.diagnostics.codes import AnnotationError
from tessera.diagnostics.error import Fix, Span, readable
from tessera.types import policy as policies
from tessera.types.dim import Dim, parse_dim
from tessera.types.dtype import BLOCK_FORMATS, BY_NAME, OTHER_NAMES, DType, find_dtype
from tessera.types.frozen import frozen
from tessera.types.policy import SILENT, ComputeMode, Policy, PolicyType, attach
from tessera.types.sharding import DimAxes, Sharding

ANONYMOUS = "_"
"""The dim name that is never equal to another: dynamic, and unnamed."""

HEADS = {"Tensor": None, "KVCache": 4, "KTile": None, "Quantized": None}
"""What can be annotated, and how many dims each must have (None: any number)."""

_POLICIES = (
    "tf32 accum compute loss_scale saturate wrap stochastic_round round_toward_zero round_nearest_even scaled "
    "tile_scaled flush_denormals keep_denormals"
)
"""What annotations may say of numerics, by the names of `types/policy.py`."""
_WORDS: dict[str, Any] = {
    **BY_NAME,
    "bool_": BY_NAME["bool"],
    **{name: getattr(policies, name) for name in _POLICIES.split()},
}
_POLICY_WORDS: dict[str, Any] = {**_WORDS, **BLOCK_FORMATS, "storage": policies.storage}


@frozen
class TensorAnnotation:
    """What a parameter is declared to be: dims by name or number, an element type, a numerics policy.

    `dtype` is None when any will do. `head` is the name in front: `Tensor`, or a state such as `KVCache`.
    `@ shard("dp")` behind it says how the tensor is sharded over a mesh.

    >>> print(annotation_of(("B", 128, BY_NAME["f32"])))
    Tensor["B", 128, f32]
    """

    dims: tuple[Dim, ...]
    dtype: DType | None = None
    policy: Policy = SILENT
    head: str = "Tensor"
    sharding: Sharding | None = None

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def symbols(self) -> frozenset[str]:
        return frozenset(name for dim in self.dims for name in dim.symbols)

    @property
    def element(self) -> str:
        """The last item as it is written: the dtype with its policies, or nothing."""
        return "" if self.dtype is None else str(PolicyType(self.dtype, self.policy))

    def __matmul__(self, other: Any) -> TensorAnnotation:
        """The same tensor sharded over a mesh: `Tensor["B", "D", f32] @ shard("dp")`, or `@ shard(B="dp")`."""
        if not isinstance(other, DimAxes):
            raise AnnotationError(
                f"`{self} @ {other!r}` is no annotation",
                fix=f'write `{self} @ shard("dp")`, or a policy behind the dtype',
            )
        return replace(self, sharding=other.resolve(str(self), [str(dim) for dim in self.dims]))

    def __getitem__(self, names: str | tuple[str, ...]) -> NamedDims:
        """Some of its dims by name: `W["d_model"]`, which `mesh(4).shard` cuts."""
        listed = names if isinstance(names, tuple) else (names,)
        known = [str(dim) for dim in self.dims]
        for name in listed:
            if known.count(name) != 1:
                raise AnnotationError(
                    f"`{self}` has {known.count(name)} dims named {name!r}",
                    fix=f"its dims are {', '.join(known) or 'none'}; name one that it has once",
                )
        return NamedDims(self, listed)

    def __or__(self, other: Any) -> Any:
        """One of several, as in `Tensor["B", f32] | None`."""
        return Union[self, other]  # noqa: UP007 - this is what `|` means here

    def __ror__(self, other: Any) -> Any:
        return Union[other, self]  # noqa: UP007

    def __str__(self) -> str:
        items = [str(dim) if dim.is_static else f'"{readable(str(dim))}"' for dim in self.dims]
        items += [self.element] if self.dtype is not None else []
        # `Tensor[()]` is Python's only syntax for an empty subscript.
        sharded = "" if self.sharding is None else f" @ {DimAxes.of(self.sharding)}"
        return f"{self.head}[{', '.join(items) or '()'}]{sharded}"

    __repr__ = __str__

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Present so that `typing` takes this value for a type; an annotation is not one to make values of."""
        raise AnnotationError(f"`{self}` describes a tensor; make one with `tessera.array` or `tessera.zeros`")


@frozen
class NamedDims:
    """Some dims of an annotation: `W["d_model"]`."""

    annotation: TensorAnnotation
    names: tuple[str, ...]


Item: TypeAlias = "str | int | Dim | DType | PolicyType | ComputeMode"


def annotation_of(items: Item | tuple[Item, ...], head: str = "Tensor") -> TensorAnnotation:
    """The annotation that `head[items]` stands for; raises `AnnotationError` (T0104) at the user's line."""
    listed = items if isinstance(items, tuple) else (items,)
    element = _element_of(listed[-1]) if listed else None
    dims = tuple(_dim(item, head) for item in (listed if element is None else listed[:-1]))
    _check_rank(dims, head)
    if element is None:
        return TensorAnnotation(dims, head=head)
    if isinstance(element, ComputeMode):
        raise AnnotationError(
            f"`{element}` is a compute mode, not a storage type",
            fix=lambda span: _mode_fix(span, element),
        )
    if isinstance(element, DType):
        return TensorAnnotation(dims, element, head=head)
    return TensorAnnotation(dims, element.dtype, element.policy, head)


def _element_of(item: Any) -> DType | PolicyType | ComputeMode | None:
    """What the last item says of elements, None for a dim; dtypes of other libraries are taken, names are dims."""
    if isinstance(item, DType | PolicyType | ComputeMode):
        return item
    return None if isinstance(item, str | int | Dim) else find_dtype(item)


def _check_rank(dims: tuple[Dim, ...], head: str) -> None:
    expected = HEADS[head]
    if expected is not None and len(dims) != expected:
        raise AnnotationError(
            f"`{head}` has {expected} dims, got {len(dims)}", fix='write `KVCache["B", "H", "S_max", "D_h", dtype]`'
        )


def _other_fix(item: Any) -> str | None:
    """What to write in place of what other libraries write."""
    if item is Ellipsis:
        return f'write each dimension, `"{ANONYMOUS}"` for any size; without an annotation all ranks are taken'
    if isinstance(item, type):
        names = ", ".join(f"`{name}`" for name in ("f32", "bf16", "i64"))
        return f"dtypes are {names} and their like of `tessera`"
    return None


def _dim(item: Any, head: str) -> Dim:
    if isinstance(item, bool) or not isinstance(item, int | str | Dim):
        what = f"`{item}`" if isinstance(item, DType | PolicyType | ComputeMode) else f"{type(item).__name__} {item!r}"
        if item is Ellipsis or isinstance(item, type):
            what = f"`{getattr(item, '__name__', '...')}`"
        raise AnnotationError(
            f"{what} is not a dimension of `{head}[...]`",
            notes=("a dimension is a name in quotes or a size; the dtype, if given, comes last",),
            fix=lambda span: _order_fix(span, str(item)) or _other_fix(item),
        )
    if isinstance(item, str):
        return _named_dim(item)
    if isinstance(item, int) and item < 0:
        advice = f'write `"{ANONYMOUS}"` for any size'
        raise AnnotationError(
            f"a size cannot be negative, got {item}",
            fix=lambda span: _edits().edit_literal(span, item, f'"{ANONYMOUS}"', advice) or advice,
        )
    return Dim.of(item)


def _named_dim(text: str) -> Dim:
    if text in _WORDS or text in OTHER_NAMES:
        dtype = find_dtype(text)
        # The name of Python's own is not a dtype.
        ours = text if dtype is None else "bool_" if dtype.is_bool else dtype.name
        raise AnnotationError(
            f'`"{text}"` in quotes would be a dimension named `{text}`',
            fix=lambda span: _unquoted_fix(span, text, ours),
        )
    try:
        return parse_dim(text, refuses_zero=True)
    except ValueError as error:
        raise AnnotationError(
            str(error), notes=('a dimension is a name, a size, or arithmetic: `"B*H"`, `"S+1"`',)
        ) from None


def _edits() -> Any:
    """The module of edits, which errors alone load."""
    from tessera.diagnostics import edit  # noqa: PLC0415

    return edit


def _mode_fix(span: Span | None, mode: ComputeMode) -> Fix | str:
    """A compute mode, written as one."""
    advice, expression = f"write `{mode.storage} @ compute({mode})`", _edits().expression_at(span)
    *_, last = [None, *(expression.items() if expression is not None else ())]
    if last is None or expression is None:
        return advice
    storage, compute = (expression.name_of(name) or name for name in (str(mode.storage), "compute"))
    return last.edit(f"{storage} @ {compute}({last.text})", advice) or advice


def _order_fix(span: Span | None, word: str) -> Fix | None:
    """The dtype moved behind the dims."""
    expression = _edits().expression_at(span)
    items = [item.text for item in expression.items()] if expression is not None else []
    found = [text for text in items if text.split(".")[-1] == word]
    if expression is None or len(found) != 1 or items[-1] == found[0]:
        return None
    moved = ", ".join([text for text in items if text != found[0]] + found)
    head = expression.whole.text.partition("[")[0]
    return expression.whole.edit(f"{head}[{moved}]", "the dtype comes last")


def _unquoted_fix(span: Span | None, text: str, ours: str) -> Fix | str:
    advice, expression = f"write `{ours}` unquoted", _edits().expression_at(span)
    name = expression.name_of(ours) if expression is not None else None
    return (name is not None and _edits().edit_literal(span, text, name, advice)) or advice


@lru_cache(maxsize=1 << 10)
def parse_annotation(text: str) -> TensorAnnotation:
    """The annotation a text stands for; names that are no dtype are dims. Raises `AnnotationError`.

    >>> parse_annotation('Tensor["B", S, 64, bf16 @ accum(f32)]')
    Tensor["B", "S", 64, bf16 @ accum(f32)]
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise AnnotationError(f"`{text}` is not an annotation: {error.msg}") from None
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.MatMult):
        return parse_annotation(ast.unparse(tree.left)) @ _parse_axes(tree.right, text)
    if isinstance(tree, ast.Attribute):
        tree = ast.Name(tree.attr)
    if isinstance(tree, ast.Name) and tree.id in HEADS:
        raise AnnotationError(f"`{text}` has no dims", fix=f'write `{tree.id}["B", f32]`')
    if not isinstance(tree, ast.Subscript) or _head_name(tree.value) not in HEADS:
        raise AnnotationError(f"`{text}` is not an annotation", fix='write `Tensor["B", "S", f32]`')
    items = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
    return annotation_of(tuple(_value(item, text) for item in items), _head_name(tree.value))


def _parse_axes(node: ast.expr, text: str) -> DimAxes:
    """`shard("dp", None, D=("tp", "sp"))`, behind a tensor."""
    if not isinstance(node, ast.Call) or _head_name(node.func) != "shard":
        raise AnnotationError(f"`{ast.unparse(node)}` is not a sharding, in `{text}`", fix='write `@ shard("dp")`')
    try:
        given = [ast.literal_eval(one) for one in node.args]
        named = {one.arg or "": ast.literal_eval(one.value) for one in node.keywords}
    except ValueError:
        raise AnnotationError(f"`{ast.unparse(node)}` names axes in quotes, or None, in `{text}`") from None
    return DimAxes.make(given, named)


@lru_cache(maxsize=1 << 8)
def parse_policy(text: str) -> Policy:
    """The policy that `str(policy)` wrote; raises `AnnotationError`.

    >>> parse_policy("storage(bf16) @ accum(f32) @ saturate")
    storage(bf16) @ accum(f32) @ saturate
    """
    if not text.strip():
        return SILENT
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise AnnotationError(f"`{text}` is not a policy: {error.msg}") from None
    made = SILENT
    while True:
        left, last = (tree.left, tree.right) if isinstance(tree, ast.BinOp) else (None, tree)
        made = made.joined(_policy_word(last, text))
        if left is None:
            return made
        tree = left


def _policy_word(node: ast.expr, text: str) -> Policy:
    match node:
        case ast.Name(id=name):
            value = _POLICY_WORDS.get(name)
        case ast.Call(func=ast.Name(id=name), args=[ast.Name(id=inner)]) if callable(_POLICY_WORDS.get(name)):
            value = _POLICY_WORDS[name](_POLICY_WORDS.get(inner, inner))
        case ast.Call(func=ast.Name(id=("loss_scale" | "scaled" | "tile_scaled") as name), args=arguments):
            value = _POLICY_WORDS[name](*[getattr(one, "value", one) for one in arguments])
        case _:
            value = None
    if not isinstance(value, Policy):
        raise AnnotationError(f"`{ast.unparse(node)}` is not part of a policy, in `{text}`")
    return value


def _head_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _value(node: ast.expr, text: str) -> Any:
    """A node of an annotation as the value it means; nothing but the words of the language is run."""
    match node:
        case ast.Constant(value=str() | int() | float() as value):
            return value
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _WORDS.get(name, name)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
        case ast.BinOp(op=ast.MatMult(), left=left, right=right):
            base = _value(left, text)
            if isinstance(base, ComputeMode):
                return annotation_of(base)
            if not isinstance(base, DType | PolicyType):
                raise AnnotationError(f"`{ast.unparse(left)}` is not a dtype, in `{text}`", fix=_known_dtypes())
            return attach(base, _value(right, text))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if callable(_WORDS.get(name)):
            return _WORDS[name](*[_value(argument, text) for argument in arguments])
        case ast.BinOp():
            return ast.unparse(node)
        case _:
            raise AnnotationError(f"`{ast.unparse(node)}` is not part of an annotation, in `{text}`")


def _known_dtypes() -> str:
    return "the dtypes are " + ", ".join(BY_NAME)
