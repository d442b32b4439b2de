"""Why a jitted function was specialized again: what changed between two signatures, and how to avoid it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.api.specialization import Specialization
from tessera.frontend.bind import Leaf, Signature
from tessera.frontend.pytree import as_tuple
from tessera.types.device import Device
from tessera.types.dim import Dim
from tessera.types.frozen import frozen
from tessera.types.policy import Policy


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


@frozen
class Around:
    """Where a function was called, as far as its code depends on it: a scope's device, and what a caller promises."""

    device: Device | None = None
    promise: str = ""


class History:
    """The last two specializations of a function, in whatever scopes they were made."""

    def __init__(self) -> None:
        self._seen: list[tuple[Specialization, Around]] = []

    def add(self, made: Specialization, around: Around) -> None:
        """A new specialization."""
        self._seen = [*self._seen[-1:], (made, around)]

    def clear(self) -> None:
        """Forget all of them."""
        self._seen = []

    def explain(self, name: str) -> str:
        """Why the last one was needed: what changed, and what to write so that it would not."""
        if len(self._seen) < 2:
            return f"`{name}` has not been specialized a second time"
        (before, there), (after, here) = self._seen
        lines = [f"`{name}` was specialized again because", *_scope_changes(there, here)]
        old, new = before.signature, after.signature
        lines += _policy_change(old.policy, new.policy) if old.policy != new.policy else []
        lines += _form_changes(old, new) if old.tree != new.tree else _leaf_changes(old, new)
        # Between equal signatures on equal devices, the change is in captured variables.
        lines += _captured_changes(after.captures.differences(before.captures)) if len(lines) == 1 else []
        return "\n".join(lines)


def _scope_changes(old: Around, new: Around) -> list[str]:
    devices = [repr(one.device) if one.device is not None else "none" for one in (old, new)]
    promises = [one.promise or "none" for one in (old, new)]
    changed = (("device of the scope around the call", devices), ("promise of its caller", promises))
    return [f"  the {what} changed from {pair[0]} to {pair[1]}" for what, pair in changed if pair[0] != pair[1]]


def _policy_change(old: Policy, new: Policy) -> list[str]:
    before, after = (str(one) if one else "none" for one in (old, new))
    return [
        f"  the policy around the call changed from {before} to {after}: each policy is its own code",
        "    = help: declare it on the function, as in `jit(policy=...)`, or call it in scopes of one policy",
    ]


def _captured_changes(paths: Sequence[str]) -> list[str]:
    lines = [f"  captured variable `{path}` changed" for path in paths]
    return [*lines, "    = help: hold a number that changes in a tensor, which is read at each call"] if lines else []


def _form_changes(old: Signature, new: Signature) -> list[str]:
    lines: list[str] = []
    trees = [zip(as_tuple(tree.data), tree.children, strict=True) for tree in (old.tree, new.tree)]
    before, after = ({name: str(form) for name, form in pairs} for pairs in trees)
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            was, now = (one.get(name, "nothing").replace("*", "a leaf") for one in (before, after))
            lines.append(f"  the form of `{name}` changed from {was} to {now}")
    return lines


def _leaf_changes(old: Signature, new: Signature) -> list[str]:
    lines: list[str] = []
    for path, before, after in zip(new.paths(), old.leaves, new.leaves, strict=True):
        if before != after:
            lines += [f"  {line}" for line in _changes(path, before, after)]
    return lines


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
