"""A table of the parameters of a module: names, shapes, dtypes, counts and bytes, with totals for each part."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console
from rich.table import Table

from tessera.frontend.functions.operands import dtype_of, is_tensor
from tessera.frontend.pytree import Tree, flatten, node_of
from tessera.nn.module import Module
from tessera.types.frozen import frozen


@frozen
class Row:
    """One part of a module: how deep it is, its name and type, and the parameters below it."""

    depth: int
    name: str
    kind: str
    shape: str
    count: int
    bytes: int


def count_parameters(tree: Any) -> int:
    """How many numbers the tensors of a tree have.

    >>> ts.nn.count_parameters(ts.nn.Linear.init(ts.random.key(0), 3, 2))
    8
    """
    return sum(_size(one) for one in flatten(tree)[0])


def _size(leaf: Any) -> int:
    return math.prod(leaf.shape) if is_tensor(leaf) else 1


class Summary:
    """The rows of a table of parameters; printed by `print`, and shown as it is at a prompt.

    >>> table = ts.nn.summary(ts.nn.Linear.init(ts.random.key(0), 3, 2))
    >>> table.rows[0].count, table.rows[1].name
    (8, 'weight')
    """

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    @property
    def table(self) -> Table:
        """The table, to be put into other output of `rich`."""
        made = Table(title=f"{self.rows[0].kind}: {self.rows[0].count:,} parameters", title_justify="left")
        made.add_column("part", no_wrap=True)
        made.add_column("type")
        has_shapes = any(row.shape for row in self.rows[1:])
        if has_shapes:
            made.add_column("shape", no_wrap=True)
        made.add_column("parameters", justify="right", no_wrap=True)
        made.add_column("bytes", justify="right", no_wrap=True)
        for row in self.rows[1:]:
            indent = "  " * (row.depth - 1)
            shape = (row.shape,) if has_shapes else ()
            made.add_row(f"{indent}{row.name}", row.kind, *shape, f"{row.count:,}", show_bytes(row.bytes))
        made.add_section()
        none = ("",) if has_shapes else ()
        made.add_row("total", "", *none, f"{self.rows[0].count:,}", show_bytes(self.rows[0].bytes))
        return made

    def __str__(self) -> str:
        console = Console(width=110, color_system=None, force_terminal=False)
        with console.capture() as captured:
            console.print(self.table)
        return captured.get().rstrip()

    __repr__ = __str__

    def __rich__(self) -> Table:
        return self.table


def summary(module: Any, *, depth: int | None = None) -> Summary:
    """A table of the parameters of a module, down to `depth` levels; equal parts of a list are one row.

    >>> print(ts.nn.summary(ts.nn.Linear.init(ts.random.key(0), 3, 2)).rows[0].count)
    8
    """
    leaves, tree = flatten(module)
    rows: list[Row] = []
    _add_rows(tree, leaves, "", 0, math.inf if depth is None else depth, rows)
    return Summary(rows)


def _add_rows(tree: Tree, leaves: list[Any], name: str, level: int, deepest: float, rows: list[Row]) -> None:
    count, size = sum(map(_size, leaves)), sum(map(_bytes, leaves))
    if tree.type is None:
        (one,) = leaves
        kind = str(dtype_of(one)) if is_tensor(one) else type(one).__name__
        rows.append(Row(level, name, kind, str(list(getattr(one, "shape", ()))), count, size))
        return
    rows.append(Row(level, name, tree.type.__name__, "", count, size))
    if level >= deepest:
        return
    for step, child, own in _parts(tree, leaves):
        if child.leaf_count:
            _add_rows(child, own, step, level + 1, deepest, rows)


def _parts(tree: Tree, leaves: list[Any]) -> list[tuple[str, Tree, list[Any]]]:
    """The children with their names and leaves; of lists, those that follow each other with equal shapes as one."""
    assert tree.type is not None
    steps = node_of(tree.type).steps(tree.data, len(tree.children))
    found: list[tuple[str, Tree, list[Any]]] = []
    at = 0
    for step, child in zip(steps, tree.children, strict=True):
        own = leaves[at : at + child.leaf_count]
        at += child.leaf_count
        found.append((step.lstrip(".") if issubclass(tree.type, Module) else step, child, own))
    if tree.type not in (list, tuple):
        return found
    return _join_equal(found)


def _join_equal(parts: list[tuple[str, Tree, list[Any]]]) -> list[tuple[str, Tree, list[Any]]]:
    made: list[tuple[str, Tree, list[Any]]] = []
    start = 0
    for at in range(1, len(parts) + 1):
        if at < len(parts) and _alike(parts[start], parts[at]):
            continue
        name, tree, leaves = parts[start]
        made.append((name if at == start + 1 else f"[{start}] to [{at - 1}], each", tree, leaves))
        start = at
    return made


def _alike(left: tuple[str, Tree, list[Any]], right: tuple[str, Tree, list[Any]]) -> bool:
    return left[1] == right[1] and [_facts(one) for one in left[2]] == [_facts(one) for one in right[2]]


def _facts(leaf: Any) -> Any:
    return (tuple(leaf.shape), dtype_of(leaf)) if is_tensor(leaf) else None


def _bytes(leaf: Any) -> int:
    return _size(leaf) * dtype_of(leaf).bits // 8 if is_tensor(leaf) else 0


def show_bytes(count: int) -> str:
    """A number of bytes in the largest unit that leaves at least 1 of it.

    >>> from tessera.nn.summary import show_bytes
    >>> show_bytes(3 << 20)
    '3.0 MiB'
    """
    size, units = float(count), ("B", "KiB", "MiB", "GiB", "TiB")
    at = 0
    while size >= 1024 and at < len(units) - 1:
        size, at = size / 1024, at + 1
    return f"{count} B" if at == 0 else f"{size:.1f} {units[at]}"
