"""Writes docs/ops.md, the list of graph ops, from their declarations: python scripts/ops.py [--check]."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from tessera.ir.base.spec import Attribute, OpSpec
from tessera.ir.graph.ops import REGISTRY

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"


def render(specs: Iterable[OpSpec]) -> str:
    """One row per op, in order of their names."""
    lines = [
        "# Graph ops",
        "",
        "Made by `scripts/ops.py` from the declarations in `tessera/ir/graph/ops`.",
        "",
        "| op | attributes | meaning | way down |",
        "|---|---|---|---|",
    ]
    for spec in sorted(specs, key=lambda spec: spec.name):
        form = f"`{spec.short_name}({', '.join(spec.operands)})`"
        attributes = "<br>".join(_attribute(attribute) for attribute in spec.attributes)
        effects = f" Effects: {', '.join(sorted(spec.effects))}." if spec.effects else ""
        lines.append(f"| {form} | {attributes} | {_cell(spec.summary)}{effects} | {_way_down(spec)} |")
    return "\n".join([*lines, ""])


def _attribute(attribute: Attribute) -> str:
    default = "" if attribute.is_required else f" = {attribute.default!r}"
    return _cell(f"`{attribute.name}: {attribute.kind}{default}`")


def _way_down(spec: OpSpec) -> str:
    if spec.lower is not None:
        return type(spec.lower).__name__.lower()
    return "other ops" if spec.decompose is not None else "host program"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the page, or with `--check` only compare it."""
    text = render(REGISTRY)
    if sys.argv[1:] == ["--check"]:
        return 0 if PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
