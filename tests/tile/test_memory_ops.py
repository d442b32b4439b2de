"""The table of memory ops in the page of the tile stage has every op with that effect."""

from __future__ import annotations

import re

from scripts.documents.pages import ROOT
from tessera.ir.tile.dialect import DIALECT


def test_every_op_with_the_effect_is_in_the_table() -> None:
    page = (ROOT / "docs" / "contributing" / "stages" / "tile.md").read_text(encoding="utf-8")
    table = page.partition("| op | reads | writes |\n")[2].partition("\n\n")[0]
    listed = re.findall(r"`(ttile\.\w+)`", "".join(line.split("|")[1] for line in table.splitlines()[1:]))
    assert sorted(listed) == sorted(spec.name for spec in DIALECT if "memory" in spec.effects)
