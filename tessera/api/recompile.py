"""How often a jitted function was specialized, and why again: what changed between two signatures, what frees it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tessera.frontend.bind import Leaf, Signature
from tessera.frontend.several import several
from tessera.frontend.tree import Tree
from tessera.types.dim import Dim
from tessera.types.frozen import frozen


@frozen
class CacheInfo:
    """What a jitted function's calls found: `compiles` made code, the other `misses` loaded it from disk."""

    hits: int
    misses: int
    compiles: int
    size: int

    @classmethod
    def sum(cls, infos: Iterable[CacheInfo]) -> CacheInfo:
        """The counts of several functions together."""
        counts = [(info.hits, info.misses, info.compiles, info.size) for info in infos]
        return cls(*map(sum, zip(*counts, strict=True)))


def explain_difference(name: str, old: Signature, new: Signature, outside: Sequence[str] = ()) -> str:
    """The changes from one signature to the next, a line each, with the annotation that would avoid each.

    Between equal signatures, the change is in what the function reads from `outside`, given as paths.
    """
    lines = [f"`{name}` was specialized again because"]
    if old.tree != new.tree:
        before, after = ({name: str(form) for name, form in _forms(tree)} for tree in (old.tree, new.tree))
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                was, now = (one.get(name, "nothing").replace("*", "a leaf") for one in (before, after))
                lines.append(f"  the form of `{name}` changed from {was} to {now}")
        return "\n".join(lines)
    if old == new:
        lines += [f"  `{path}`, which it reads from outside, changed" for path in outside]
        lines += ["    = help: hold a number that changes in a tensor, which is read at each call"] if outside else []
    for path, before, after in zip(new.paths(), old.leaves, new.leaves, strict=True):
        if before != after:
            lines += [f"  {line}" for line in _changes(path, before, after)]
    return "\n".join(lines)


def _forms(tree: Tree) -> Iterator[tuple[str, Tree]]:
    return zip(several(tree.data), tree.children, strict=True)


def _changes(path: str, before: Leaf, after: Leaf) -> list[str]:
    if before.dtype is None and after.dtype is None:
        return [_static_change(path, before, after)]
    if before.dtype is None or after.dtype is None:
        return [f"`{path}` changed between a Python value and a tensor"]
    lines: list[str] = []
    if before.dtype is not after.dtype:
        lines.append(f"`{path}.dtype` changed from {before.dtype} to {after.dtype}: each dtype is its own code")
    if len(before.dims) != len(after.dims):
        lines.append(f"`{path}` changed from {len(before.dims)} dims to {len(after.dims)}: each rank is its own code")
        return lines
    changed = [axis for axis, pair in enumerate(zip(before.dims, after.dims, strict=True)) if pair[0] != pair[1]]
    for axis in changed:
        lines.append(f"`{path}.shape[{axis}]` changed from {before.dims[axis]} to {after.dims[axis]}")
    if changed:
        lines.append(f"  = help: annotate `{path}: {_freeing(after, changed)}` to serve all sizes with one compilation")
    return lines


def _static_change(path: str, before: Leaf, after: Leaf) -> str:
    line = f"`{path}` changed from {before.static!r} to {after.static!r}: Python values are static"
    if isinstance(after.static, float):
        line += f"\n    = help: annotate `{path}: Tensor[f32]` to pass it as a number that may change"
    return line


def _freeing(leaf: Leaf, changed: list[int]) -> str:
    names = ("B", "S", "D", "E")
    items = [
        f'"{names[axis] if axis < len(names) else f"N{axis}"}"' if axis in changed else _dim_text(dim)
        for axis, dim in enumerate(leaf.dims)
    ]
    return f"Tensor[{', '.join([*items, str(leaf.dtype)])}]"


def _dim_text(dim: int | Dim | None) -> str:
    return str(dim) if isinstance(dim, int) else f'"{dim or "_"}"'
