"""The version every IR text carries, the refusal of versions we do not read, and how older texts are brought up."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from typing import Any, TypeAlias

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from tessera.diagnostics.codes import VersionError
from tessera.diagnostics.span import Span
from tessera.ir.base.dialect_of import properties_of
from tessera.ir.base.op import CURRENT, SpecOp
from tessera.ir.base.types import ValueAttr
from tessera.types.dim import Dim
from tessera.types.frozen import frozen

KEY = "tessera.version"
_WRITTEN = re.compile(rf'^[^\n]*?(?<![\w.])"?{re.escape(KEY)}"?\s*=\s*([^\s,}}]+)', re.MULTILINE)

Renames: TypeAlias = Mapping[str, str]


@frozen
class Upgrade:
    """What the next version renamed: ops, attributes of ops, and names in their expressions.

    Attributes and names are found by the newest name of the op.
    """

    ops: Renames
    attributes: Mapping[str, Renames]
    symbols: Mapping[str, Renames] = field(default_factory=dict[str, Renames])


_COORDS = {"names": "coords"}
_ACCESS = {**_COORDS, "way": "pattern"}

UPGRADES: dict[int, Upgrade] = {
    # Version 1 ended functions and loop bodies alike in `tgraph.output`, and wrote `tgraph.function`.
    1: Upgrade(
        ops={"tgraph.function": "tgraph.func", "tgraph.output": "tgraph.return"},
        attributes={"tgraph.func": {"arguments": "names"}},
    ),
    # Version 2 had other names in Target IR for the ops and attributes of Tile IR.
    2: Upgrade(
        ops={
            "ttarget.math": "ttarget.elementwise",
            "ttarget.convert": "ttarget.cast",
            "ttarget.spread": "ttarget.broadcast",
            "ttarget.fold": "ttarget.reduce",
            "ttarget.fold_place": "ttarget.arg_reduce",
            "ttarget.fold_rows": "ttarget.reduce_rows",
        },
        attributes={
            "ttarget.load": _ACCESS,
            "ttarget.store": _ACCESS,
            "ttarget.fetch": _COORDS,
            "ttarget.coordinate": _COORDS,
            "ttarget.clip": _COORDS,
            "ttarget.copy_async": _COORDS,
            "ttarget.fragment_load": _COORDS,
            "ttarget.fragment_store": _COORDS,
            "ttarget.store_rows": _COORDS,
            "ttarget.store_tile": _COORDS,
            "ttarget.kernel": {"shares": "warps_per_row"},
            "ttarget.block_dot": {"rows": "max_rows", "depth": "max_k"},
            "ttarget.shuffle": {"way": "mode"},
            "ttile.shuffle": {"way": "mode"},
        },
        symbols={"ttarget.block_dot": {"_depth": "_inner_k"}},
    ),
}
"""By the version that a text comes from: one table of renames for each."""


def version_of_text(text: str, name: str = "<text>") -> int:
    """The version that a text says it is; one that says nothing is of this version.

    Raises VersionError (T0303) for a version newer than this one, older than the oldest upgrade, or no number.
    """
    found = next((match for match in _WRITTEN.finditer(text) if "//" not in match.group().split(KEY)[0]), None)
    if found is None:
        return CURRENT
    written = found.group(1)
    version = int(written) if written.isdigit() else -1
    if version != CURRENT and version not in UPGRADES:
        line = text.count("\n", 0, found.start(1)) + 1
        column = found.start(1) - text.rfind("\n", 0, found.start(1))
        raise VersionError(
            f"this is IR of version {written}, and this Tessera reads versions {min(UPGRADES)} to {CURRENT}",
            span=Span(name, line, column, line, column + len(written)),
            fix="write the text again with the Tessera that made it, or use a newer one here",
        )
    return version


def new_name(name: str, version: int) -> str:
    """What an op of an older version is called now."""
    for step in range(version, CURRENT):
        name = UPGRADES[step].ops.get(name, name)
    return name


def upgrade(op: SpecOp, version: int) -> None:
    """Bring the attributes of an op parsed from an older version up to this one."""
    for step in range(version, CURRENT):
        renames = UPGRADES[step].attributes.get(op.name, {})
        symbols = {old: Dim.symbol(new) for old, new in UPGRADES[step].symbols.get(op.name, {}).items()}
        if renames or symbols:
            given = {name: value.data for name, value in op.properties.items() if isinstance(value, ValueAttr)}
            values = {renames.get(name, name): _substitute(value, symbols) for name, value in given.items()}
            op.properties = properties_of(type(op), values)


def _substitute(value: Any, symbols: Mapping[str, Dim]) -> Any:
    return value.substitute(symbols) if symbols and isinstance(value, Dim) else value


def stamp(module: ModuleOp) -> None:
    """Write this version on a module."""
    module.attributes[KEY] = IntegerAttr(CURRENT, i64)
