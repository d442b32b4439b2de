"""Writes docs/contributing/ops/, the ops of each IR, from their declarations: python scripts/ops.py [--check]."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tessera.ir.base.dialect_of import installed_dialects, load_dialects
from tessera.ir.base.op import CURRENT
from tessera.ir.base.spec import Attribute, OpSpec, Registry

FOLDER = Path(__file__).parents[1] / "docs" / "contributing" / "ops"
STAGES = ("graph", "schedule", "tile", "target")
PAGES = {stage: FOLDER / f"{stage}.md" for stage in STAGES}


def registry_of(stage: str) -> Registry:
    """The ops that a stage declares, and what backends add to it."""
    load_dialects()
    registry: Registry = importlib.import_module(f"tessera.ir.{stage}.ops").REGISTRY
    return installed_dialects()[registry.dialect] if stage == "target" else registry


def render(stage: str) -> str:
    """One row per op, in order of their names."""
    has_lowering = stage == "graph"
    lines = [
        f"# {stage.capitalize()} ops",
        "",
        f"Made by `scripts/ops.py` from the declarations in `tessera/ir/{stage}/ops`. Version {CURRENT} of the IR.",
        "",
        "| op | attributes | meaning |" + (" lowering |" if has_lowering else ""),
        "|---|---|---|" + ("---|" if has_lowering else ""),
    ]
    for spec in sorted(registry_of(stage), key=lambda spec: spec.name):
        name = spec.short_name if has_lowering else spec.name
        form = f"`{name}({', '.join(spec.operands)})`"
        attributes = "<br>".join(_attribute(attribute) for attribute in spec.attributes)
        effects = f" Effects: {', '.join(sorted(spec.effects))}." if spec.effects else ""
        row = f"| {form} | {attributes} | {_cell(spec.summary)}{effects} |"
        lines.append(row + (f" {_lowering(spec)} |" if has_lowering else ""))
    return "\n".join([*lines, ""])


def _attribute(attribute: Attribute) -> str:
    default = "" if attribute.is_required else f" = {attribute.default!r}"
    return _cell(f"`{attribute.name}: {attribute.kind}{default}`")


def _lowering(spec: OpSpec) -> str:
    if spec.lower is not None:
        return type(spec.lower).__name__.lower()
    return "other ops" if spec.decompose is not None else "host program"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Write the pages, or with `--check` only compare them."""
    texts = {page: render(stage) for stage, page in PAGES.items()}
    if sys.argv[1:] == ["--check"]:
        return 0 if all(page.read_text(encoding="utf-8") == text for page, text in texts.items()) else 1
    for page, text in texts.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
