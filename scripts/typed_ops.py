"""Writes `typed_ops.pyi` of each IR, the typed accessors of its ops, from their declarations: [--check]."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tessera.ir.base.dialect_of import accessor_names, class_name
from tessera.ir.base.literal import COMPOSITE
from tessera.ir.base.spec import Attribute, OpSpec, Registry

ROOT = Path(__file__).parents[1]
PACKAGES = ("tessera.ir.graph", "tessera.ir.schedule", "tessera.ir.tile", "tessera.ir.target", "tessera.backends.nvptx")
SCALARS = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "symbol": "str",
    "dim": "Dim",
    "dtype": "DType",
    "type": "Any",
    "array": "Any",
    "any": "Any",
}
PARTS = {"operand": "SSAValue", "operands": "Sequence[SSAValue]", "region": "Region"}
"""What accessors of parts other than attributes give."""
IMPORTS = """\
from collections.abc import Sequence
from typing import Any

from xdsl.ir import Region, SSAValue

from tessera.ir.base.op import SpecOp
from tessera.types.dim import Dim
from tessera.types.dtype import DType
"""


def python_type(attribute: Attribute) -> str:
    """The type of an attribute's plain value; one whose default is None may be None."""
    kind = attribute.kind
    if kind == "maps":
        found = "tuple[tuple[Dim, ...], ...]"
    elif kind in SCALARS or kind in COMPOSITE:
        found = SCALARS.get(kind, "Any")
    else:
        found = f"tuple[{SCALARS[kind.removesuffix('s')]}, ...]"
    return f"{found} | None" if attribute.default is None and found != "Any" else found


def render_class(spec: OpSpec) -> str:
    """One op as a class of annotations."""
    types = {attribute.name: attribute for attribute in spec.attributes}
    lines = [
        f"    {name}: {python_type(types[name]) if kind == 'attribute' else PARTS[kind]}"
        for name, kind in accessor_names(spec).items()
    ]
    head = f"class {class_name(spec.name)}(SpecOp):"
    return "\n".join([head, *lines]) if lines else f"{head} ..."


def render(package: str) -> str:
    """The stub of one package's ops."""
    module = importlib.import_module(f"{package}.dialect")
    # Of a dialect that several packages add to, each has a stub of its own ops.
    registry: Registry = module.REGISTRY if module.DIALECT.dialect == "ttarget" else module.DIALECT
    classes = [render_class(spec) for spec in sorted(registry, key=lambda spec: spec.name)]
    body = "\n\n".join(classes)
    used = [line for line in IMPORTS.splitlines() if not line or _is_used(line, body)]
    head = f"# Typed accessors of the `{registry.dialect}` ops: made by scripts/typed_ops.py from their declarations."
    return "\n".join([head, "", *used, "", body, ""])


def _is_used(line: str, body: str) -> bool:
    names = line.split(" import ")[1].split(", ")
    return any(name in body for name in names)


def stub_of(package: str) -> Path:
    """Where the stub of a package is."""
    return ROOT / package.replace(".", "/") / "typed_ops.pyi"


def main() -> int:
    """Write the stubs, or with `--check` only compare them."""
    stale: list[Path] = []
    for package in PACKAGES:
        stub, text = stub_of(package), render(package)
        if not stub.is_file() or stub.read_text(encoding="utf-8") != text:
            stale.append(stub)
            if "--check" not in sys.argv:
                stub.write_text(text, encoding="utf-8")
    for stub in stale:
        print(f"{'stale' if '--check' in sys.argv else 'wrote'}: {stub.relative_to(ROOT)}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
