"""Writes docs/guide/pytorch-ops.md: every op of PyTorch's own op database, and what it is here: [--check].

The names are those of `op_db`, which PyTorch tests its ops with. Each is here under its name or a part of it, or is
answered by the tables of `tessera.api.other_names`, which say what to write when somebody asks for it; the tables here
are of names alone that mean something else in PyTorch. A name that nobody answers is an error.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import tessera as ts
from tessera.api.other_names import advice_for

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "pytorch-ops.md"
VERSION = "PyTorch "
HOMES = {
    "linalg": ("linalg", "ops"),
    "fft": ("ops", "xp.fft"),
    "nn": ("ops", "nn", "random"),
    "": ("ops", "random", "linalg", "nn", "xp.fft", ""),
}
"""Where ops of a namespace of PyTorch are looked for, in order."""
HERE, WRITE, ABSENT, INTERNAL = "here", "write", "absent", "internal"
_BACKWARD = "a derivative of another op: `tessera.grad` takes derivatives"
_SCALED = "a kernel behind a dtype: `tessera.policy` and `tessera.quantize` choose scaled products"
_KERNEL = "a kernel behind another op: `tessera.ops.attention`, or `tessera.ops.softmax`"
EXCEPTIONS = {
    "signal.windows.cosine": (WRITE, "write `tessera.ops.sin((tessera.ops.linspace(0.5, n - 0.5, n)) * math.pi / n)`"),
    "signal.windows.exponential": (
        WRITE,
        "write `tessera.ops.exp(-tessera.ops.abs(tessera.ops.linspace(-(n - 1) / 2, (n - 1) / 2, n)) / tau)`",
    ),
    "repeat": (WRITE, "write `tessera.ops.tile(x, reps)`; `tessera.ops.repeat` is `repeat_interleave`"),
    "max_pool2d_with_indices_backward": (INTERNAL, _BACKWARD),
    "native_dropout_backward": (INTERNAL, _BACKWARD),
    "_softmax_backward_data": (INTERNAL, _BACKWARD),
    "torch._scaled_mm": (INTERNAL, _SCALED),
    "torch._scaled_mm_v2": (INTERNAL, _SCALED),
}
"""Names whose last part means something else, and those behind other ops."""
NOTES = {
    "argmax": "the first of equal elements",
    "gather": "it takes rows by index: PyTorch's is `tessera.ops.take_along_axis`",
    "max": "values alone: `tessera.ops.argmax` has the indices",
    "median": "the mean of the middle two, as NumPy's",
    "min": "values alone: `tessera.ops.argmin` has the indices",
    "nanmedian": "the mean of the middle two, as NumPy's",
    "scatter": "it writes rows by index: PyTorch's is `tessera.ops.put_along_axis`",
    "scatter_add": "it adds rows by index",
    "std": "`correction=0` unless it is passed, as NumPy's",
    "svd": "`tessera.linalg.svd` gives V transposed, as `torch.linalg.svd` does",
    "take": "along an axis: of all elements with `x.reshape(-1)`",
    "transpose": "it takes all axes: PyTorch's is `tessera.ops.swapaxes`",
    "unfold": "windows of an image: along one axis, write `x[positions]`",
    "var": "`correction=0` unless it is passed, as NumPy's",
}
"""What differs in a function of the same name."""
OPENING = """# Ops of PyTorch by name

<!-- Made by scripts/torch_ops.py from PyTorch's op database; change the tables of tessera/api, not this page. -->

Every op of the op database of {version}: {count} names. {here} are **here**, {write} are an expression of ours, which
`ts.<name>` tells who asks for it, {absent} are absent for the reason that stands beside them, and {internal} are
internal to PyTorch. [Coming from PyTorch](from-pytorch.md) says what else is different.
"""


@dataclass(frozen=True)
class Row:
    """An op of PyTorch: its name, whether it is here, and what to write."""

    name: str
    kind: str
    answer: str

    @property
    def group(self) -> str:
        """The namespace that it is listed under."""
        return self.name.rpartition(".")[0] if self.kind != INTERNAL else "Internal to PyTorch"


def names_of_torch() -> list[str]:
    """The names in the op database; PyTorch's module of it asks for `expecttest`, which only its own tests use."""
    if importlib.util.find_spec("expecttest") is None:
        stand_in: Any = ModuleType("expecttest")
        stand_in.TestCase = object
        sys.modules["expecttest"] = stand_in
    database = importlib.import_module("torch.testing._internal.common_methods_invocations")
    return sorted({op.name for op in database.op_db})


def classify(name: str) -> Row:
    """What an op is here; raises LookupError for one that nobody answers."""
    if name in EXCEPTIONS:
        return Row(name, *EXCEPTIONS[name])
    space, _, last = name.rpartition(".")
    if name.startswith("torch.ops."):
        return Row(name, INTERNAL, _KERNEL)
    if space == "masked":
        return Row(name, WRITE, advice_for("tessera", "masked"))
    for home in HOMES.get(space.partition(".")[0], HOMES[""]):
        module = importlib.import_module(f"tessera.{home}".rstrip("."))
        if last in module.__all__ or last in getattr(module, "_LIBRARY", ()):
            note = NOTES.get(name, "")
            return Row(name, HERE, f"`{module.__name__}.{last}`" + (f": {note}" if note else ""))
    if hasattr(ts.Tensor, last):
        return Row(name, HERE, f"`tessera.Tensor.{last}`")
    if last.startswith("_"):
        return Row(name, INTERNAL, "an op behind others, which has no name for users")
    advice = advice_for("tessera", last)
    if not advice or "did you mean" in advice:
        raise LookupError(f"nobody says what PyTorch's `{name}` is here: write it into tessera/api/names_of_torch.py")
    is_absent = advice.startswith(("there is no", "there are no", "it is not here"))
    return Row(name, ABSENT if is_absent else WRITE, advice)


def render(rows: Iterable[Row], version: str) -> str:
    """The page."""
    listed = sorted(rows, key=lambda row: (row.kind == INTERNAL, row.group, row.name))
    counts = {kind: sum(row.kind == kind for row in listed) for kind in (HERE, WRITE, ABSENT, INTERNAL)}
    parts = [OPENING.format(version=version, count=len(listed), **counts)]
    for group, members in groupby(listed, key=lambda row: row.group):
        title = group if " " in group else f"torch.{group}".rstrip(".")
        parts.append(f"\n## {title}\n\n| op | {'what it is' if ' ' in group else 'here'} |\n|---|---|\n")
        parts += [f"| `{row.name}` | {row.answer.replace('|', '&#124;')} |\n" for row in members]
    return "".join(parts)


def main() -> int:
    """Write the page, or with `--check` only compare it."""
    version = VERSION + importlib.import_module("torch").__version__.partition("+")[0]
    text = render(map(classify, names_of_torch()), version)
    is_stale = not PAGE.is_file() or PAGE.read_text(encoding="utf-8") != text
    if is_stale and "--check" not in sys.argv:
        PAGE.write_text(text, encoding="utf-8")
    return 1 if is_stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
