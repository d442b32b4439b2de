"""The version every IR text carries, the refusal of versions we do not read, and how older texts are brought up."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any, TypeAlias

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64

from tessera.diagnostics.codes import VersionError
from tessera.diagnostics.span import Span
from tessera.ir.base.dialect_of import properties_of
from tessera.ir.base.op import CURRENT, SpecOp
from tessera.ir.base.types import ValueAttr
from tessera.types.frozen import frozen

KEY = "tessera.version"
_WRITTEN = re.compile(rf'^[^\n]*?(?<![\w.])"?{re.escape(KEY)}"?\s*=\s*([^\s,}}]+)', re.MULTILINE)

Values: TypeAlias = dict[str, Any]


@frozen
class Upgrade:
    """What changed from one version to the next: ops renamed, and attributes rewritten, by the new name of the op."""

    renamed: Mapping[str, str] = field(default_factory=dict[str, str])
    rewritten: Mapping[str, Callable[[Values], Values]] = field(default_factory=dict[str, Callable[[Values], Values]])


def _keep_names(values: Values) -> Values:
    # Version 1 called the argument names of a function `arguments`.
    if "arguments" in values:
        values["names"] = values.pop("arguments")
    return values


UPGRADES: dict[int, Upgrade] = {
    # Version 1 ended functions and loop bodies alike in `tgraph.output`, and wrote `tgraph.function`.
    1: Upgrade(
        renamed={"tgraph.function": "tgraph.func", "tgraph.output": "tgraph.return"},
        rewritten={"tgraph.func": _keep_names},
    ),
}
"""By the version that a text comes from."""


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
        name = UPGRADES[step].renamed.get(name, name)
    return name


def upgrade(op: SpecOp, version: int) -> None:
    """Bring the attributes of an op parsed from an older version up to this one."""
    for step in range(version, CURRENT):
        rewrite = UPGRADES[step].rewritten.get(op.name)
        if rewrite is not None:
            given = {name: value.data for name, value in op.properties.items() if isinstance(value, ValueAttr)}
            op.properties = properties_of(type(op), rewrite(given))


def stamp(module: ModuleOp) -> None:
    """Write this version on a module."""
    module.attributes[KEY] = IntegerAttr(CURRENT, i64)
