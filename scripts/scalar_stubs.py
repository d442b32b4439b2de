"""Writes the `scalar.pyi` of tensors and of kernels, which show what the table of scalar functions makes: [--check]."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tessera.ir.base.scalar_functions import SCALAR_FUNCTIONS

ROOT = Path(__file__).parents[1]
TENSORS = ROOT / "tessera" / "frontend" / "functions" / "scalar.pyi"
TILES = ROOT / "tessera" / "frontend" / "kernel" / "scalar.pyi"
HEAD = "# Made by scripts/scalar_stubs.py from the table of scalar functions."


def render() -> dict[Path, str]:
    """Both stubs, by their paths."""
    tensors = {op.name: function.arity for function in SCALAR_FUNCTIONS.values() for op in function.graph_ops}
    tiles = {function.kernel_name: function.arity for function in SCALAR_FUNCTIONS.values() if function.kernel_name}
    tile_import = "from tessera.frontend.kernel.tiles import Tile\n"
    return {
        TENSORS: _text("", tensors, ("x: Any", "y: Any"), ("Any", "Any")),
        TILES: _text(tile_import, tiles, ("a: Any", "b: Any"), ("Any", "Tile")),
    }


def _text(imports: str, arities: dict[str, int], parameters: tuple[str, str], results: tuple[str, str]) -> str:
    listed = "".join(f'    "{name}",\n' for name in sorted(arities, key=_natural))
    functions = "".join(
        f"def {name}({', '.join(parameters[:arity]) if arity > 1 else 'x: Any'}) -> {results[arity - 1]}: ...\n"
        for name, arity in sorted(arities.items())
    )
    head = f"{HEAD}\n\nfrom typing import Any\n" + (f"\n{imports}" if imports else "")
    return f"{head}\n__all__ = [\n{listed}]\n\n{functions}"


def _natural(name: str) -> list[tuple[int, str]]:
    """What orders names as ruff orders `__all__`: numbers in them by value, so that `log2` is before `log10`."""
    return [(int(part) if part.isdigit() else 0, part) for part in re.split(r"(\d+)", name)]


def main() -> int:
    """Write the stubs, or with `--check` only compare them."""
    stale = [path for path, text in render().items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if "--check" not in sys.argv:
            path.write_text(render()[path], encoding="utf-8")
        print(f"{'stale' if '--check' in sys.argv else 'wrote'}: {path.relative_to(ROOT)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
