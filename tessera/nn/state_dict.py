"""State dicts: the tensors of a module by name, and modules loaded from such, from PyTorch's or from safetensors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tessera.api.eager import array
from tessera.diagnostics.codes import ArgumentError, ShapeError
from tessera.diagnostics.error import find_nearest
from tessera.frontend.concrete import adopt_operand
from tessera.frontend.functions.operands import cast, dtype_of, is_tensor
from tessera.frontend.pytree import Tree, flatten, leaf_names, node_of, unflatten
from tessera.nn.module import Module

Names = Mapping[str, str] | Callable[[str], str]

GPT2_NAMES: Mapping[str, str] = {
    "tokens": "wte",
    "positions": "wpe",
    "blocks.*.norm1": "h.*.ln_1",
    "blocks.*.attention.qkv": "h.*.attn.c_attn",
    "blocks.*.attention.out": "h.*.attn.c_proj",
    "blocks.*.norm2": "h.*.ln_2",
    "blocks.*.mlp.up": "h.*.mlp.c_fc",
    "blocks.*.mlp.down": "h.*.mlp.c_proj",
    "norm": "ln_f",
}
"""What the checkpoints of GPT-2 call the parts of a `GPT`; its matrices are [in, out], as here (`layout="own"`)."""


def state_dict(module: Any, *, layout: str = "own") -> dict[str, Any]:
    """The tensors of a tree by name, as `blocks.0.attention.qkv.weight`, in the order of fields.

    With `layout="torch"`, tensors that PyTorch stores with other axes are transposed.

    >>> list(ts.nn.state_dict(ts.nn.Linear.init(ts.random.key(0), 3, 2)))
    ['weight', 'bias']
    """
    leaves, tree = flatten(module)
    axes = _axes(tree, layout)
    named = zip(leaf_names(tree), leaves, axes, strict=True)
    return {name: one if order is None else one.transpose(*order) for name, one, order in named}


def load_state_dict(
    module: Any,
    tensors: Mapping[str, Any],
    *,
    names: Names | None = None,
    layout: str = "own",
    is_strict: bool = True,
) -> Any:
    """The module with tensors of a state dict in place of its own, in its own dtypes.

    `tensors` are ours, NumPy's or PyTorch's, as `torch.nn.Module.state_dict` or a safetensors file has them. `names`
    translates names of the module: a dict of prefixes, where `*` stands for one part between dots, or a function. With
    `layout="torch"`, tensors that PyTorch stores with other axes, as `torch.nn.Linear.weight`, are transposed. Unless
    `is_strict`, tensors that are missing leave those of the module, and tensors that nobody asks for are left out.

    Raises: ArgumentError (T0202) for names that are missing or left over, ShapeError (T0101) for other shapes.

    >>> layer = ts.nn.Linear.init(ts.random.key(0), 3, 2)
    >>> theirs = {"fc.weight": ts.ones((2, 3)), "fc.bias": ts.zeros((2,))}
    >>> layer = ts.nn.load_state_dict(layer, theirs, names=lambda name: f"fc.{name}", layout="torch")
    >>> layer(ts.ones((1, 3)))
    Tensor([1, 2] f32, [[3, 3]])
    """
    leaves, tree = flatten(module)
    own = leaf_names(tree)
    wanted = [translate(name, names) for name in own]
    if is_strict:
        _check_names(wanted, tensors)
    made: list[Any] = []
    for leaf, name, theirs, order in zip(leaves, own, wanted, _axes(tree, layout), strict=True):
        found = tensors.get(theirs)
        made.append(leaf if found is None else _fit(leaf, found, name, theirs, order))
    return unflatten(tree, made)


def translate(name: str, names: Names | None) -> str:
    """What a tensor of a module is called in a state dict; the longest prefix of a dict counts.

    >>> ts.nn.translate("blocks.3.norm1.bias", ts.nn.GPT2_NAMES)
    'h.3.ln_1.bias'
    """
    if names is None:
        return name
    if callable(names):
        return names(name)
    for prefix in sorted(names, key=len, reverse=True):
        pattern = re.escape(prefix).replace(r"\*", r"([^.]+)")
        found = re.match(rf"{pattern}(?=\.|$)", name)
        if found is not None:
            start = names[prefix]
            for part in found.groups():
                start = start.replace("*", part, 1)
            return start + name[found.end() :]
    return name


def _check_names(wanted: Sequence[str], tensors: Mapping[str, Any]) -> None:
    missing = [name for name in wanted if name not in tensors]
    unused = sorted(set(tensors) - set(wanted))
    if not missing and not unused:
        return
    notes = [f"missing: {_shorten(missing)}"] if missing else []
    notes += [f"left over: {_shorten(unused)}"] if unused else []
    near = find_nearest(missing[0], unused) if missing else []
    raise ArgumentError(
        f"the state dict misses {len(missing)} tensors of the module, and has {len(unused)} that it does not ask for",
        notes=tuple(notes),
        fix=(f"is `{missing[0]}` there as `{near[0]}`? " if near else "")
        + "translate names with `names=`, or pass `is_strict=False`",
    )


def _shorten(names: Sequence[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"


def _fit(leaf: Any, found: Any, name: str, theirs: str, order: tuple[int, ...] | None) -> Any:
    # A copy: PyTorch's optimizers write in place, and a call may be given the module's memory (`donate`).
    tensor = array(adopt_operand(found.detach() if hasattr(found, "detach") else found))
    if order is not None and len(tensor.shape) == len(order):
        tensor = tensor.transpose(*order)
    if not is_tensor(leaf):
        return tensor
    if tuple(tensor.shape) != tuple(leaf.shape):
        raise ShapeError(
            f"`{name}` has the shape {list(leaf.shape)}, and `{theirs}` of the state dict {list(tensor.shape)}"
            + ("" if order is None else ", its axes transposed"),
            fix="make the module with the sizes of the state dict, or pass another `layout`",
        )
    return cast(tensor, dtype_of(leaf))


def _axes(tree: Tree, layout: str) -> list[tuple[int, ...] | None]:
    """The permutation of axes of each leaf."""
    if layout not in ("own", "torch"):
        raise ArgumentError(f"a state dict has no layout {layout!r}", fix='write "own" or "torch"')
    return [None] * tree.leaf_count if layout == "own" else _torch_axes(tree)


def _torch_axes(tree: Tree) -> list[tuple[int, ...] | None]:
    if tree.type is None:
        return [None]
    known: Mapping[str, tuple[int, ...]] = tree.type.torch_axes if issubclass(tree.type, Module) else {}
    steps = node_of(tree.type).steps(tree.data, len(tree.children))
    found: list[tuple[int, ...] | None] = []
    for step, child in zip(steps, tree.children, strict=True):
        own = known.get(step.lstrip("."))
        found += [own] if child.type is None else _torch_axes(child)
    return found
