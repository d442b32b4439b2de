"""Writes `tessera/__init__.pyi`, which shows the public names to type checkers, from the table of them: [--check]."""

from __future__ import annotations

import sys
from pathlib import Path

import tessera

STUB = Path(tessera.__file__).with_suffix(".pyi")
HEAD = "# Made by scripts/facade_stub.py from the names in `tessera/__init__.py`."


def render() -> str:
    """The text of the stub."""
    facade = vars(tessera)  # a type checker sees the stub alone
    homes: dict[str, list[str]] = {"tessera": list(facade["_MODULES"])}
    for name, (module, attribute) in facade["_WHERE"].items():
        homes.setdefault(module, []).append(name if name == attribute else f"{attribute} as {name}")
    imports = "".join(f"from {module} import {', '.join(names)}\n" for module, names in sorted(homes.items()))
    listed = "".join(f'    "{name}",\n' for name in tessera.__all__)
    return f"{HEAD}\n\n{imports}\n__version__: str\n__all__ = [\n{listed}]\n"


def main() -> int:
    """Write the stub, or with `--check` only compare it."""
    is_stale = not STUB.is_file() or STUB.read_text(encoding="utf-8") != render()
    if is_stale and "--check" not in sys.argv:
        STUB.write_text(render(), encoding="utf-8")
    return 1 if is_stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
